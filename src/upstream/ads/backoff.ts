/** Exponential backoff with full jitter: any time up to a bound that doubles, so that a fleet does not march in step. */
export class Backoff {
  readonly #initialMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #bound: number;

  constructor(initialMs: number, maxMs: number, random: () => number) {
    this.#initialMs = initialMs;
    this.#maxMs = maxMs;
    this.#random = random;
    this.#bound = initialMs;
  }

  /** Milliseconds to wait before the next try. */
  next(): number {
    const wait = this.#random() * Math.min(this.#bound, this.#maxMs);
    this.#bound = Math.min(this.#bound * 2, this.#maxMs);
    return wait;
  }

  /** Only when a response has arrived (protocol §8): a server that accepts and closes is not well. */
  reset(): void {
    this.#bound = this.#initialMs;
  }
}
