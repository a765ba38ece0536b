import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { temporaryDirectory } from '../e2e/support/paths.ts';

describe('the searching attacker', function () {
  this.timeout(120_000);

  it('ends by itself with a report of what was dearest', async function () {
    if (process.platform !== 'linux') this.skip();
    using directory = temporaryDirectory();
    const report = join(directory.path, 'report.md');
    const main = join(import.meta.dirname, 'search.ts');
    const bounds = ['--minutes', '1', '--count', '12', '--report', report];
    await promisify(execFile)(process.execPath, [main, ...bounds]);
    const text = readFileSync(report, 'utf8');
    expect(text).to.match(/^12 sequences, seed 0$/m);
    expect(text.match(/^\| 1 × call xds /gm)).to.have.length.at.least(5);
  });
});
