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
