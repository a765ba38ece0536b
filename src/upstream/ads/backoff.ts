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

  /** Waits as long as the other one would from now on. */
  continueFrom(other: Backoff): void {
    this.#bound = other.#bound;
  }

  /** Only for what had lived for a while (protocol §5b): a server that answers and closes is not well. */
  reset(): void {
    this.#bound = this.#initialMs;
  }
}
