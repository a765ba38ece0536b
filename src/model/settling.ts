import type { Clock, Timer } from './clock.ts';

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
    const wait = Math.max(0, Math.min(this.#times.quiet, since + this.#times.longest - now));
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
