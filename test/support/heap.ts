import { setTimeout } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

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
