import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { root } from '../run/report.ts';

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  // One that has ended stays in the list until its parent asks for its code.
  return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
};

describe('npm test that is interrupted', () => {
  for (const signal of ['SIGINT', 'SIGHUP', 'SIGKILL'] as const) {
    it(`leaves no process after ${signal}`, async function () {
      if (!existsSync('/proc/self/status')) return this.skip();
      using directory = temporaryDirectory();
      const pids = join(directory.path, 'pids');
      const hanging = join(directory.path, 'hanging.js');
      writeFileSync(
        hanging,
        `const child = require('node:child_process').spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)']);
         require('node:fs').writeFileSync(${JSON.stringify(pids)}, process.pid + ' ' + child.pid + '\\n');
         it('hangs', function () { this.timeout(0); return new Promise(() => {}); });`,
      );
      const main: ChildProcess = spawn(
        process.execPath,
        [
          '--input-type=module',
          '-e',
          `import { MochaProcess } from ${JSON.stringify(join(root, 'test/run/run-job.ts'))};
           await new MochaProcess().run({ name: 'hanging', files: [${JSON.stringify(hanging)}] }, {});`,
        ],
        { cwd: root, stdio: 'ignore' },
      );
      let started: number[] = [];
      await eventually(() => {
        started = readFileSync(pids, 'utf8').trim().split(' ').map(Number);
        expect(started).to.have.length(2);
      });
      const ended = once(main, 'exit');
      main.kill(signal);
      await ended;
      await eventually(() => expect(started.filter(isAlive)).to.deep.equal([]));
      return undefined;
    });
  }
});
