import type { Subscriber } from '../model/subscription.ts';

/** A subscription as its view sees it. */
export interface ViewSubscriber extends Subscriber {
  /** The revision of a view that its client was last sent; undefined: that was another view's, or nothing yet. */
  positionIn(view: object): number | undefined;
  /** The view has changed. */
  invalidated(): void;
}
