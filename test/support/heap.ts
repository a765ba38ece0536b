import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Of Node, for a process of a short life. One that has just started collects garbage at each MB of it: that is a sixth of its
 * CPU. What is in use after a collection is the same. Four helpers of V8 would only take the cores from other jobs.
 */
export const shortLife = ['--min-semi-space-size=16', '--v8-pool-size=1'] as const;

/** Bytes in use, those of buffers included. Another thread gives dead buffers back, in its own time. */
export async function heapAfterCollection(): Promise<number> {
  setFlagsFromString('--expose-gc');
  let least = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < 5; attempt++) {
    runInNewContext('gc()');
    await setTimeout(10);
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    least = Math.min(least, heapUsed + arrayBuffers);
  }
  return least;
}
