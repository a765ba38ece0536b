import type { Backoff } from './backoff.ts';

/** Which endpoint is next and when: the policy of one upstream, without connections and clock. */
export class Failover {
  readonly #count: number;
  readonly #backoff: Backoff;
  /** How many times longer than usual an endpoint must hold a connection before the relay goes back to it. */
  readonly #penalties: number[];
  /** Endpoints that have answered, and not been silent since. */
  readonly #trusted = new Set<number>();
  #current = 0;
  /** In a row, without success between. */
  #failures = 0;
  /**
   * Since the last response, some endpoint was connected but sent nothing. Until a response arrives, a connection
   * alone does not count as success.
   */
  #sawSilence = false;

  /** `count` endpoints, in order of preference. */
  constructor(count: number, backoff: Backoff) {
    this.#count = count;
    this.#backoff = backoff;
    this.#penalties = Array.from({ length: count }, () => 1);
  }

  get current(): number {
    return this.#current;
  }

  /** One round over all endpoints has failed. */
  get down(): boolean {
    return this.#failures >= this.#count;
  }

  /** The current endpoint is silent, and another one was not tried yet in this round. */
  get hasAlternative(): boolean {
    return this.#failures < this.#count - 1 && !this.#trusted.has(this.#current);
  }

  /** A connection counts as recovery, unless an endpoint was connected and silent since the last response. */
  get countsAsRecovery(): boolean {
    return !this.#sawSilence;
  }

  connected(): void {
    if (!this.#sawSilence) this.#failures = 0;
  }

  answered(): void {
    this.#failures = 0;
    this.#sawSilence = false;
    this.#penalties[this.#current] = 1;
    this.#trusted.add(this.#current);
  }

  /** The connection that ended had responses and lasted long: the backoff starts over. */
  resetBackoff(): void {
    this.#backoff.reset();
  }

  /** No other endpoint is left to try, so the silence of the current one counts as its answer. */
  acceptSilence(): void {
    this.#failures = 0;
  }

  /**
   * The current endpoint failed: unreachable, or connected and without an answer. Moves to the next one; at once,
   * or after a whole round with a wait. In milliseconds.
   */
  failed(kind: 'unreachable' | 'unanswered'): number {
    if (kind === 'unanswered') {
      this.#sawSilence = true;
      this.#trusted.delete(this.#current);
      this.#penalties[this.#current] = Math.min((this.#penalties[this.#current] ?? 1) * 2, 64);
    }
    this.#failures++;
    this.#current = (this.#current + 1) % this.#count;
    return this.#failures % this.#count === 0 ? this.#backoff.next() : 0;
  }

  /** A connection that had worked ended: the same endpoint is tried first, because its versions are still valid there. */
  lost(): number {
    this.#failures = 0;
    return this.#backoff.next();
  }

  /** How many times `failback_after` a preferred endpoint must hold a connection. */
  penalty(index: number): number {
    return this.#penalties[index] ?? 1;
  }

  failedBack(index: number): void {
    this.#current = index;
  }
}
