import type { Access } from '../model/access.ts';
import type { Selection } from '../model/selection.ts';
import type { View } from './view.ts';

/** What a subscription needs of the views that it moves between. */
export interface ViewPool {
  readonly controlPlane: string;
  now(): number;
  /** The view of this class; the caller joins its `subscribers`. */
  view(selection: Selection, access: Access): View;
  /** Nobody stands on the view any more. */
  retire(view: View): void;
}
