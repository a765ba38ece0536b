/** Time, injected: a real one at the edges, a virtual one in tests. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds since any moment, with fractions. It never goes back, so it is for measuring. */
  monotonic(): number;
  /** Runs once after so many milliseconds, or as soon as it can if they are over; does not keep the process alive. */
  after(milliseconds: number, run: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

/** setTimeout's limits: longer waits fire at once, and of negative ones Node warns on stderr. */
const timeoutMs = { shortest: 0, longest: 2 ** 31 - 1 };

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(milliseconds, run) {
    const { shortest, longest } = timeoutMs;
    const timer = setTimeout(run, Math.min(Math.max(milliseconds, shortest), longest)).unref();
    return { cancel: () => clearTimeout(timer) };
  },
};

/** The last millisecond since the epoch that a Date can be. What is read from a disk may say any other. */
export const lastMoment = 8_640_000_000_000_000;

/** More than the two clocks drift apart in a day, in milliseconds. */
const leastStepMs = 1000;

/**
 * When moments of `monotonic()` are by the wall clock, for people. The same moment is the same time until the wall clock is
 * set: the two are read one after the other, and the one in whole milliseconds.
 */
export class WallTime {
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>;
  #offset = Number.POSITIVE_INFINITY;

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>) {
    this.#clock = clock;
  }

  /** Milliseconds since the epoch. */
  of(moment: number): number {
    const offset = Math.round(this.#clock.now() - this.#clock.monotonic());
    if (Math.abs(offset - this.#offset) >= leastStepMs) this.#offset = offset;
    return Math.round(moment) + this.#offset;
  }

  /** What has been so since a moment. */
  shown<T extends { readonly since: number }>(one: T): T {
    return { ...one, since: this.of(one.since) };
  }
}

/** Waits for something, but not for longer than so many milliseconds. False: it is not done. */
export async function within(
  clock: Pick<Clock, 'after'>,
  milliseconds: number,
  something: Promise<unknown>,
): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<boolean>();
  const timer = clock.after(milliseconds, () => resolve(false));
  try {
    return await Promise.race([something.then(() => true), late]);
  } finally {
    timer.cancel();
  }
}

/** Work that is due so many milliseconds after `start`, and again as long as there is some. */
export class Sweep {
  readonly #clock: Clock;
  readonly #milliseconds: number;
  readonly #run: () => boolean | void;
  #timer: Timer | undefined;

  /** `run`: true if there is more to do. */
  constructor(clock: Clock, milliseconds: number, run: () => boolean | void) {
    this.#clock = clock;
    this.#milliseconds = milliseconds;
    this.#run = run;
  }

  /** There is something to do. */
  start(): void {
    this.#timer ??= this.#clock.after(this.#milliseconds, () => {
      this.#timer = undefined;
      if (this.#run() === true) this.start();
    });
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}

/** Runs once when what comes in several steps, such as the writing of files, has come to rest. */
export class Settling {
  readonly #clock: Clock;
  readonly #times: Readonly<Record<'quiet' | 'longest', number>>;
  readonly #run: () => void;
  #waiting: { readonly timer: Timer; readonly since: number } | undefined;

  /**
   * `times`, in milliseconds: for how long nothing must have happened; and where something always happens, how long after the
   * first time it runs.
   */
  constructor(clock: Clock, times: Readonly<Record<'quiet' | 'longest', number>>, run: () => void) {
    this.#clock = clock;
    this.#times = times;
    this.#run = run;
  }

  /** Something happened. */
  touch(): void {
    const now = this.#clock.monotonic();
    const since = this.#waiting?.since ?? now;
    this.cancel();
    const wait = Math.min(this.#times.quiet, since + this.#times.longest - now);
    const timer = this.#clock.after(wait, () => {
      this.#waiting = undefined;
      this.#run();
    });
    this.#waiting = { timer, since };
  }

  cancel(): void {
    this.#waiting?.timer.cancel();
    this.#waiting = undefined;
  }
}

/** At most so often, in milliseconds, something is made; and that may take one part in `share` of the time. */
const usualPace = { shortestMs: 2000, longestMs: 10_000, share: 200 };

/** What is dear to make, as looking at every stream is: whoever asks gets the same, and nothing is made while nobody asks. */
export class Paced<T> {
  readonly #clock: Clock;
  readonly #make: () => Promise<T>;
  readonly #pace: typeof usualPace;
  /** `until` then it is new enough, by the clock. */
  #made: { readonly until: number; readonly value: T } | undefined;
  #making: Promise<T> | undefined;

  /** `keptMs`: for so long it is new enough, however long it takes to make. */
  constructor(clock: Clock, make: () => Promise<T>, keptMs?: number) {
    this.#clock = clock;
    this.#make = make;
    this.#pace = keptMs === undefined ? usualPace : { shortestMs: keptMs, longestMs: keptMs, share: 0 };
  }

  /** What was made last, however old. */
  get last(): T | undefined {
    return this.#made?.value;
  }

  /** For so many milliseconds it will be new enough. */
  get freshMs(): number {
    return Math.max(this.#pace.shortestMs, (this.#made?.until ?? 0) - this.#clock.monotonic());
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
    const { shortestMs, longestMs, share } = this.#pace;
    const wait = Math.min(longestMs, Math.max(shortestMs, share * (now - at)));
    this.#made = { until: now + wait, value };
    return value;
  }
}

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
