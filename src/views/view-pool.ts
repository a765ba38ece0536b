import type { Access } from '../model/access.ts';
import type { Selection } from '../model/selection.ts';
import type { View } from './view.ts';

/** What a subscription needs of the views that it moves between. */
export interface ViewPool {
  readonly controlPlane: string;
  now(): number;
  /** A client has accepted a response whose newest update arrived then; undefined: nothing in it was an update. */
  acknowledged(receivedAt: number | undefined): void;
  /** The view of this class; the caller joins its `subscribers`. `before`: the selection that this one replaces. */
  view(selection: Selection, access: Access, before?: Selection): View;
  /** No cursor needs the view any more. */
  retire(view: View): void;
}
