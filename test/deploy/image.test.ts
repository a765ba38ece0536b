import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { ResourceFiles } from '../e2e/support/files.ts';
import { root } from '../e2e/support/paths.ts';
import { outcome } from '../e2e/support/process.ts';
import { RelayProcess } from '../e2e/support/relay.ts';

const file = readFileSync(join(root, 'deploy/Dockerfile'), 'utf8');

describe('deploy/Dockerfile', () => {
  it('copies files that exist', () => {
    const copied = Array.from(file.matchAll(/^COPY (?!--from)(.+) \S+$/gm), ([, paths = '']) =>
      paths.split(' '),
    );
    expect(copied.flat()).to.include.members(['package.json', 'scripts/build.ts']);
    for (const path of copied.flat()) expect(existsSync(join(root, path)), path).to.equal(true);
  });

  it('copies each script that the build is made of', () => {
    const copied = file.match(/scripts\/\S+\.ts/g) ?? [];
    for (const path of copied) {
      const text = readFileSync(join(root, path), 'utf8');
      for (const [, name] of text.matchAll(/(?:from '\.\/|root, 'scripts\/)([\w-]+\.ts)'/g))
        expect(copied).to.include(`scripts/${name}`);
    }
  });

  it('has a health check that says whether a relay is there', async () => {
    const [, text = ''] = /^HEALTHCHECK .* CMD (\[.+\])$/m.exec(file) ?? [];
    const [, ...args] = z.array(z.string()).parse(JSON.parse(text));
    const check = async (address: string) =>
      (await outcome({ command: process.execPath, args, env: { HEALTH_ADDRESS: address } })).code;
    using files = new ResourceFiles();
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], drain_timeout: '100ms' });
    expect(await check(relay.admin)).to.equal(0);
    await relay.stop();
    expect(await check(relay.admin)).to.equal(1);
  });
});
