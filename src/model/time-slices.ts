import type { Clock } from './clock.ts';

/** Updates, ACKs and health checks wait for a slice of work to end, in milliseconds. */
const sliceMs = 5;

/** Makes long answers one at a time, in slices of 5 ms. Between two slices, 5 ms are left for everything else. */
export class TimeSlices {
  readonly #clock: Clock;
  #last: Promise<void> = Promise.resolve();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs it when all that came before is done. */
  async run<T>(work: (pace: Pace) => Promise<T>): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    try {
      return await work(new Pace(this.#clock));
    } finally {
      resolve();
    }
  }
}

export class Pace {
  readonly #clock: Clock;
  #end = performance.now() + sliceMs;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** To be called after each piece of work: a promise to wait for if the slice is over, else undefined. */
  yieldIfDue(): Promise<void> | undefined {
    if (performance.now() < this.#end) return undefined;
    return new Promise((resolve) => {
      this.#clock.after(sliceMs, () => {
        this.#end = performance.now() + sliceMs;
        resolve();
      });
    });
  }
}
