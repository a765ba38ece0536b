import { type Clock, within } from './clock.ts';

/** At most so often, in milliseconds, something is made; and that may take a two-hundredth of the time. */
const pace = { shortestMs: 2000, longestMs: 10_000, share: 200 };

/** What is dear to make, as looking at every stream is: whoever asks gets the same, and nothing is made while nobody asks. */
export class Paced<T> {
  readonly #clock: Clock;
  readonly #make: () => Promise<T>;
  /** `until` then it is new enough, by the clock. */
  #made: { readonly until: number; readonly value: T } | undefined;
  #making: Promise<T> | undefined;

  constructor(clock: Clock, make: () => Promise<T>) {
    this.#clock = clock;
    this.#make = make;
  }

  /** What was made last, however old. */
  get last(): T | undefined {
    return this.#made?.value;
  }

  /** For so many milliseconds it will be new enough. */
  get freshMs(): number {
    return Math.max(pace.shortestMs, (this.#made?.until ?? 0) - this.#clock.monotonic());
  }

  current(): Promise<T> {
    const made = this.#made;
    if (made !== undefined && this.#clock.monotonic() < made.until) return Promise.resolve(made.value);
    this.#making ??= this.#begin().finally(() => {
      this.#making = undefined;
    });
    return this.#making;
  }

  /** The same, but nobody waits longer for it: then what was made last. */
  async within(milliseconds: number): Promise<T | undefined> {
    await within(this.#clock, milliseconds, this.current()).catch(() => false);
    return this.last;
  }

  async #begin(): Promise<T> {
    const at = this.#clock.monotonic();
    const value = await this.#make();
    const now = this.#clock.monotonic();
    const wait = Math.min(pace.longestMs, Math.max(pace.shortestMs, pace.share * (now - at)));
    this.#made = { until: now + wait, value };
    return value;
  }
}
