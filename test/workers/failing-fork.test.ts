import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';

const script = join(import.meta.dirname, 'failing-fork.ts');
const run = promisify(execFile);

describe('a worker that cannot be started', () => {
  for (const why of ['ENOENT', 'ENOMEM', 'EMFILE']) {
    it(`${why}: its slot hears once that it has ended, and the primary lives on`, async () => {
      const { stdout } = await run('sh', [
        '-c',
        'ulimit -n 100; exec "$@"',
        'sh',
        process.execPath,
        script,
        why,
      ]);
      const said = stdout.trim().split('\n');
      expect(said).to.have.length(1);
      expect(said[0])
        .to.match(/^it could not be started: /)
        .and.to.contain(why);
    });
  }
});
