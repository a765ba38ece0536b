import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { fail, ok, type Result } from '../../src/model/result.ts';
import { run } from '../e2e/support/process.ts';

const root = join(import.meta.dirname, '../..');
const unit = join(root, 'deploy/systemd/distributary.service');

/** What systemd-analyze says; the error says why it could not be asked. Machines without systemd have none. */
async function exposure(): Promise<Result<string>> {
  try {
    return ok(await run({ command: 'systemd-analyze', args: ['security', '--offline=true', unit] }));
  } catch (error) {
    return fail(String(error));
  }
}

describe('deploy/systemd', () => {
  it('is as little exposed as docs/operations.md says', async function () {
    const said = await exposure();
    if (!said.ok) {
      process.stdout.write(`  skipped: ${said.error}\n`);
      this.skip();
      return;
    }
    const found = /Overall exposure level for distributary\.service: ([\d.]+)/.exec(said.value)?.[1];
    expect(Number(found)).to.be.at.most(1.5);
    const page = readFileSync(join(root, 'docs/operations.md'), 'utf8');
    expect(page).to.include('exposure level of 1.3');
  });

  it('starts whatever `run` would serve with, and does not give up', () => {
    const text = readFileSync(unit, 'utf8');
    // `validate` refuses what `run` only warns about.
    expect(text).to.not.match(/^ExecStartPre=/m);
    expect(text).to.match(/^\[Unit\]\n(?:(?!\[).*\n)*StartLimitIntervalSec=0$/m);
  });

  it('stops a relay only after its drain, and reloads it by SIGHUP', () => {
    const text = readFileSync(unit, 'utf8');
    expect(text).to.match(/^TimeoutStopSec=40s$/m);
    expect(text).to.match(/^ExecReload=\/bin\/kill -HUP \$MAINPID$/m);
  });
});
