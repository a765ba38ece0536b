import type { Clock } from './clock.ts';
import type { Payer } from './payer.ts';

/** Updates, ACKs and health checks wait for a slice of work to end, in milliseconds. */
const sliceMs = 5;

/** Makes long answers one at a time, in slices of 5 ms. Between two slices, 5 ms are left for everything else. */
export class TimeSlices {
  readonly #clock: Clock;
  #last: Promise<void> = Promise.resolve();
  /** When the slice of this turn of the event loop began. Short answers share it: twenty of them make no long turn. */
  #began: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs it when all that came before is done. */
  async run<T>(work: (pace: Pace) => Promise<T>, payer?: Payer): Promise<T> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    const pace = new Pace(this.#clock, payer, this.#began);
    try {
      await pace.yieldIfDue();
      return await work(pace);
    } finally {
      this.#endTurn(pace.end());
      resolve();
    }
  }

  #endTurn(began: number): void {
    this.#began = began;
    setImmediate(() => {
      if (this.#began === began) this.#began = undefined;
    });
  }
}

export class Pace {
  readonly #clock: Clock;
  readonly #payer: Payer | undefined;
  /** Of the slice, and of what is charged for it. */
  #began: number;
  #chargedFrom = performance.now();

  /** `began`: a slice goes on that began then. */
  constructor(clock: Clock, payer?: Payer, began?: number) {
    this.#clock = clock;
    this.#payer = payer;
    this.#began = began ?? this.#chargedFrom;
  }

  /** To be called after each piece of work: a promise to wait for if the slice is over, else undefined. */
  yieldIfDue(): Promise<void> | undefined {
    if (performance.now() < this.#began + sliceMs) return undefined;
    this.end();
    return new Promise((resolve) => {
      this.#clock.after(sliceMs, () => {
        this.#began = performance.now();
        this.#chargedFrom = this.#began;
        resolve();
      });
    });
  }

  /** The last slice is over: when it began. */
  end(): number {
    this.#payer?.spent(performance.now() - this.#chargedFrom);
    return this.#began;
  }
}
