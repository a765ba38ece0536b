/** Loaded into a relay before its own code: SIGUSR2 collects garbage and writes what is left to stderr. */
import { setTimeout as sleep } from 'node:timers/promises';

process.on('SIGUSR2', () => {
  void answer();
});

async function answer(): Promise<void> {
  // Finalizers of one collection free what the next one finds.
  for (let round = 0; round < 3; round++) {
    globalThis.gc?.();
    await sleep(20);
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  process.stderr.write(`memory ${JSON.stringify({ rss, used: heapUsed + external })}\n`);
}
