/** Loaded into a relay before its own code: SIGUSR2 collects garbage and writes what is left to stderr. */
import { setTimeout as sleep } from 'node:timers/promises';

/** A collection that frees less, in bytes, is the last one. */
const settled = 65_536;

process.on('SIGUSR2', () => {
  void answer();
});

async function answer(): Promise<void> {
  // Finalizers of one collection free what the next one finds.
  let now = collected();
  for (let round = 0; round < 2; round++) {
    const before = now.used;
    await sleep(20);
    now = collected();
    if (before - now.used < settled) break;
  }
  process.stderr.write(`memory ${JSON.stringify(now)}\n`);
}

function collected(): { readonly rss: number; readonly used: number } {
  globalThis.gc?.();
  const { rss, heapUsed, external } = process.memoryUsage();
  return { rss, used: heapUsed + external };
}
