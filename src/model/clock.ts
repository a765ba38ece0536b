/** Time, injected: a real one at the edges, a virtual one in tests. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds since any moment, with fractions. It never goes back, so it is for measuring. */
  monotonic(): number;
  /** Runs once after so many milliseconds; does not keep the process alive. */
  after(milliseconds: number, run: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

/** setTimeout's limit: longer waits fire at once. */
const longestTimeoutMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(milliseconds, run) {
    const timer = setTimeout(run, Math.min(milliseconds, longestTimeoutMs)).unref();
    return { cancel: () => clearTimeout(timer) };
  },
};

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
