/** Starts a worker where none can be started, and says what its slot hears. The argument: why none can. */
import cluster from 'node:cluster';
import { openSync } from 'node:fs';
import { forkWorker } from '../../src/workers/worker-slot.ts';

const why = process.argv[2];
const say = (text: string): void => void process.stdout.write(`${text}\n`);
say('');

if (why === 'ENOENT') process.execPath = '/nowhere/node';
if (why === 'ENOMEM') {
  cluster.fork = () => {
    throw Object.assign(new Error('spawn ENOMEM'), { code: 'ENOMEM' });
  };
}
if (why === 'EMFILE') {
  try {
    for (;;) openSync('/dev/null', 'r');
  } catch {
    // there is no descriptor left
  }
}

const worker = forkWorker({ message: () => {}, ended: say });
worker.send({ kind: 'drain', milliseconds: 0 });
