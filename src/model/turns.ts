/** A turn of the event loop ends after so many bytes, whatever the number of entries: they are hashed and copied. */
const bytesPerTurn = 1024 * 1024;

/** Work in parts: each `next` is one turn of the event loop, and the last one gives the result. */
export type InTurns<T> = Generator<undefined, T, undefined>;

/** Divides the reading of a large message into turns. */
export class ReadingPace {
  readonly #entriesPerTurn: number;
  #entries = 0;
  #bytes = 0;

  constructor(entriesPerTurn: number) {
    this.#entriesPerTurn = entriesPerTurn;
  }

  /** One more entry of so many bytes was read: whether others get a turn now. */
  isTurnOver(bytes: number): boolean {
    this.#entries++;
    this.#bytes += bytes;
    if (this.#entries < this.#entriesPerTurn && this.#bytes < bytesPerTurn) return false;
    this.#entries = 0;
    this.#bytes = 0;
    return true;
  }
}

/** All of it in this turn. */
export function atOnce<T>(reading: InTurns<T>): T {
  for (;;) {
    const step = reading.next();
    if (step.done === true) return step.value;
  }
}
