/** Something that takes bytes from outside. */
export interface Subject {
  readonly name: string;
  /** Well-formed inputs that mutations begin with. */
  readonly corpus: readonly Buffer[];
  /** Longer inputs are cut off: what an operator writes is parsed at a millisecond a kilobyte, and that is no harm. */
  readonly longest?: number;
  /** So many inputs share one trial; fewer where each takes long. */
  readonly casesPerTrial?: number;
  /** Begins anew: whatever the cases before have left is dropped. */
  open(): Trial;
}

export interface Trial {
  /** Takes one input; throws if the program would have crashed or if it does not work any more afterwards. */
  take(bytes: Buffer): void;
  /** The peer that sent all of it is gone: what is kept now is kept for nobody. */
  settle?(): void;
  close?(): void;
}
