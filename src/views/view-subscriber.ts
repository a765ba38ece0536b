/** A subscription as its view sees it. */
export interface ViewSubscriber {
  /** The revision that its client stands on in a view; undefined if it stands elsewhere, or nowhere yet. */
  positionIn(view: object): number | undefined;
  /** The view has changed. */
  invalidated(): void;
  /** There may be something to take. */
  readonly wake: () => void;
}
