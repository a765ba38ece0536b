import type { Clock } from './clock.ts';

/** Updates, ACKs and health checks wait for a slice of work to end, in milliseconds. */
const slice = 5;

/** Long answers: one is made at a time, in slices, with as much time for everything else between them. */
export class Slices {
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
  #end = performance.now() + slice;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** To be called after each piece of work: a promise to wait for if the slice is over, else undefined. */
  due(): Promise<void> | undefined {
    if (performance.now() < this.#end) return undefined;
    return new Promise((resolve) => {
      this.#clock.after(slice, () => {
        this.#end = performance.now() + slice;
        resolve();
      });
    });
  }
}
