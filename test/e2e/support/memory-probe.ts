/** Loaded into a relay before its own code: SIGUSR2 collects garbage and writes what is left to stderr. */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

process.on('SIGUSR2', () => {
  void answer();
});

/** Not by the flag of the command: with other flags V8 does not take what it has compiled before. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc()');
}

async function answer(): Promise<void> {
  // Finalizers of one collection free what the next one finds.
  for (let round = 0; round < 3; round++) {
    collect();
    await sleep(20);
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  process.stderr.write(`memory ${JSON.stringify({ rss, used: heapUsed + external })}\n`);
}
