import { setTimeout as sleep } from 'node:timers/promises';

/** Between two tries, in milliseconds: to ask costs CPU, so that what takes long is asked for less and less often. */
const firstPause = 20;
const longestPause = 250;
const growth = 1.25;

export interface EventuallyOptions {
  /** How long to go on trying, in milliseconds. */
  readonly timeout?: number;
  /** Between two tries, in milliseconds; left out: longer and longer. */
  readonly pause?: number;
}

/** The first answer of `check` that is not a throw. After the timeout, its last error. */
export async function eventually<T>(
  check: () => T | Promise<T>,
  { timeout = 60_000, pause }: EventuallyOptions = {},
): Promise<T> {
  const deadline = performance.now() + timeout;
  for (let next = pause ?? firstPause; ; next = pause ?? Math.min(growth * next, longestPause)) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() > deadline) throw error;
    }
    await sleep(next);
  }
}

/** `check` must hold all the time. */
export async function always(check: () => void | Promise<void>, milliseconds: number): Promise<void> {
  const deadline = performance.now() + milliseconds;
  while (performance.now() < deadline) {
    await check();
    await sleep(50);
  }
}
