import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { root } from '../e2e/support/paths.ts';
import { outcome } from '../e2e/support/process.ts';
import { distributary } from '../e2e/support/relay.ts';

const directory = join(root, 'docs/runbooks');
const pages = globSync('*.md', { cwd: directory });

describe('runbooks', function () {
  this.timeout(60_000);

  it('are all in their list', () => {
    const list = readFileSync(join(directory, 'README.md'), 'utf8');
    for (const page of pages) if (page !== 'README.md') expect(list).to.include(`(${page})`);
  });

  it('name commands that exist, with flags that they take', async () => {
    const named = new Map<string, Set<string>>();
    for (const page of pages) {
      const text = readFileSync(join(directory, page), 'utf8');
      for (const [, command = '', rest = ''] of text.matchAll(/`distributary ([a-z]+)([^`]*)`/g)) {
        const flags = named.get(command) ?? new Set();
        for (const [flag] of rest.matchAll(/--[a-z-]+/g)) flags.add(flag);
        named.set(command, flags);
      }
    }
    expect(named.size).to.be.above(8);
    for (const [command, flags] of named) {
      const { code, output } = await outcome(distributary(command, '--help'));
      expect(code, command).to.equal(0);
      for (const flag of flags) expect(output, command).to.include(`${flag} `);
    }
  });
});
