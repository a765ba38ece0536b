import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { distributary } from './support/relay.ts';

describe('a relay whose log and output are on a full disk', () => {
  let home: string;

  before(() => {
    home = mkdtempSync(join(tmpdir(), 'lost-output-'));
  });

  after(() => rmSync(home, { recursive: true }));

  it('serves, and ends in order when it is told to', async function () {
    if (!existsSync('/dev/full')) this.skip();
    const config = join(home, 'relay.json');
    const socket = join(home, 'xds');
    const upstreams = [{ name: 'files', filesystem: { path: home } }];
    const listeners = { xds: { address: `unix:${socket}` }, admin: { address: '127.0.0.1:0' } };
    writeFileSync(config, JSON.stringify({ node: { id: 'relay' }, upstreams, ...listeners }));
    const full = openSync('/dev/full', 'w');
    const { command, args } = distributary('run', '--config', config);
    const relay = spawn(command, args, { stdio: ['ignore', full, full] });
    const ended = once(relay, 'exit');
    try {
      await eventually(() => expect(existsSync(socket)).to.equal(true));
      relay.kill('SIGTERM');
      await eventually(() => expect(relay.exitCode).to.equal(0));
    } finally {
      relay.kill('SIGKILL');
      await ended;
    }
  });
});
