/** Exponential backoff with full jitter: a random time up to a bound that doubles, so that a fleet does not retry at once. */
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

  /** Milliseconds to wait before the next attempt. */
  next(): number {
    const wait = this.#random() * Math.min(this.#bound, this.#maxMs);
    this.#bound = Math.min(this.#bound * 2, this.#maxMs);
    return wait;
  }

  /** Waits as long as the other one would from now on. */
  continueFrom(other: Backoff): void {
    this.#bound = other.#bound;
  }

  /** Only after a stream or connection that lasted (protocol §5b): a server that answers and closes is not healthy. */
  reset(): void {
    this.#bound = this.#initialMs;
  }
}
