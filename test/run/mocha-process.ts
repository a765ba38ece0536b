/** A process of `npm test`: mocha with the files of one job after another, as `main.ts` asks for them. */
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import Mocha from 'mocha';
import { z } from 'zod';
import Reporter from '../support/reporter.ts';
import { type Order, orderSchema } from './report.ts';

const { timeout } = z
  .object({ timeout: z.number() })
  .parse(createRequire(import.meta.url)('../../.mocharc.cjs'));

let isRunning = false;

async function run({ files, env }: Order): Promise<void> {
  isRunning = true;
  Object.assign(process.env, env);
  const mocha = new Mocha({ reporter: Reporter, timeout, forbidOnly: true, diff: true });
  for (const file of files) mocha.addFile(resolve(file));
  await mocha.loadFilesAsync();
  mocha.run(() => {
    isRunning = false;
    // Its listeners would stay: of several runners, each hands an unhandled rejection to all others, without end.
    mocha.dispose();
  });
}

// As mocha's own command does: the test that is running fails.
process.on('unhandledRejection', (reason) => {
  throw reason;
});
process.on('message', (message) => void run(orderSchema.parse(message)));
// Nobody waits for the report: `npm test` was killed. What the tests have started is in the group of this process.
process.once('disconnect', () => {
  if (isRunning) process.kill(-process.pid, 'SIGKILL');
});
