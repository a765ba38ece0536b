import { setTimeout as sleep } from 'node:timers/promises';

const usualPause = 50;

export interface EventuallyOptions {
  /** How long to go on trying, in milliseconds. */
  readonly timeout?: number;
  /** Between two tries, in milliseconds. */
  readonly pause?: number;
}

/** The first answer of `check` that is not a throw. After the timeout, its last error. */
export async function eventually<T>(
  check: () => T | Promise<T>,
  { timeout = 30_000, pause = usualPause }: EventuallyOptions = {},
): Promise<T> {
  const deadline = Date.now() + timeout;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    await sleep(pause);
  }
}

/** `check` must hold all the time. */
export async function always(check: () => void | Promise<void>, milliseconds: number): Promise<void> {
  const deadline = Date.now() + milliseconds;
  while (Date.now() < deadline) {
    await check();
    await sleep(usualPause);
  }
}
