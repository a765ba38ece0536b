import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { listenGrpc } from '../../src/wire/http2-server.ts';
import { listenPrivately } from '../../src/workers/private-socket.ts';

describe('a socket between the processes', () => {
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'private-'));
  });

  afterEach(() => rmSync(directory, { recursive: true }));

  it('that cannot accept a connection says so each time, and goes on', async () => {
    const failed: unknown[] = [];
    const listening = await listenPrivately(
      join(directory, 'a'),
      () => {},
      (error) => failed.push(error),
    );
    if (!listening.ok) throw new Error(listening.error);
    await using server = listening.value;
    for (let time = 0; time < 2; time++) server.emit('error', new Error('accept EMFILE'));
    expect(failed).to.have.length(2);
  });

  it('that is gone before it has its mode is not listened on', async () => {
    const path = join(directory, 'a');
    const listening = listenPrivately(
      path,
      () => {},
      () => {},
    );
    rmSync(path);
    const result = await listening;
    expect(result.ok ? '' : result.error).to.match(/^cannot listen on .* no such file/);
  });

  it('of clients, whose mode cannot be set, is not listened on', async () => {
    const address = `unix:${join(directory, 'a')}`;
    const result = await listenGrpc({ address, unixMode: -1, maxRequestBytes: 1, accept: () => undefined });
    expect(result.ok ? '' : result.error).to.match(/^cannot listen on unix:/);
  });
});
