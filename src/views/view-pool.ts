import type { Access } from '../model/access.ts';
import type { Selection } from '../model/selection.ts';
import type { Composed } from './frame.ts';
import type { View } from './view.ts';

/** What a subscription needs of the views that it moves between. */
export interface ViewPool {
  readonly controlPlane: string;
  now(): number;
  /** A client has answered a response whose newest update arrived then; undefined: nothing in it was an update. */
  answered(accepted: boolean, receivedAt: number | undefined): void;
  /** Composes a response that clients of a class share. */
  timed(compose: () => Composed): Composed;
  /** The view of this class; the caller joins its `subscribers`. `before`: the selection that this one replaces. */
  view(selection: Selection, access: Access, before?: Selection): View;
  /** No cursor needs the view any more. */
  retire(view: View): void;
}
