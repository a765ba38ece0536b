/**
 * A token bucket: so many events a second, a second's worth at once. The rate is asked each time: it may change. Times are
 * by `Clock.monotonic()`.
 */
export class Rate {
  readonly #perSecond: () => number;
  #tokens: number;
  #at: number;

  constructor(perSecond: () => number, now: number) {
    this.#perSecond = perSecond;
    this.#tokens = perSecond();
    this.#at = now;
  }

  /** Spends so many; the milliseconds to wait before the next. */
  spend(now: number, cost = 1): number {
    const perSecond = this.#perSecond();
    const saved = Math.min(perSecond, this.#tokens + ((now - this.#at) / 1000) * perSecond);
    this.#tokens = saved - cost;
    this.#at = now;
    return this.#tokens >= 0 ? 0 : (-this.#tokens / perSecond) * 1000;
  }

  /** The same for an event that can be refused: false if a wait would be needed, and then nothing is spent. */
  trySpend(now: number, cost: number): boolean {
    const bounded = Math.min(cost, this.#perSecond()); // what costs more than a full bucket takes all of it
    const wait = this.spend(now, bounded);
    if (wait > 0) this.#tokens += bounded;
    return wait === 0;
  }
}
