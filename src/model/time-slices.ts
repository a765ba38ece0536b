import type { Clock } from './clock.ts';
import type { Payer } from './payer.ts';

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
  async run<T>(work: (pace: Pace) => Promise<T>, payer?: Payer): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    const pace = new Pace(this.#clock, payer);
    try {
      return await work(pace);
    } finally {
      pace.end();
      resolve();
    }
  }
}

export class Pace {
  readonly #clock: Clock;
  readonly #payer: Payer | undefined;
  #began = performance.now();

  constructor(clock: Clock, payer?: Payer) {
    this.#clock = clock;
    this.#payer = payer;
  }

  /** To be called after each piece of work: a promise to wait for if the slice is over, else undefined. */
  yieldIfDue(): Promise<void> | undefined {
    if (performance.now() < this.#began + sliceMs) return undefined;
    this.end();
    return new Promise((resolve) => {
      this.#clock.after(sliceMs, () => {
        this.#began = performance.now();
        resolve();
      });
    });
  }

  /** The last slice is over. */
  end(): void {
    this.#payer?.spent(performance.now() - this.#began);
  }
}
