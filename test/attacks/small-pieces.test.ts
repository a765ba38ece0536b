import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';

const any = { address: '127.0.0.1:0' };
const path = '/v3/discovery:clusters';
/** What pieces of one byte cost before, kept as they came: some 400 bytes each. */
const pieces = 200_000;

describe('bodies and requests in small pieces', function () {
  this.timeout(60_000);
  let files: ResourceFiles;
  let relay: RelayProcess;
  let sockets: Socket[] = [];

  const open = async (address: string): Promise<Socket> => {
    const [host = '', port = ''] = address.split(':');
    const socket = connect({ host, port: Number(port) }).on('error', () => undefined);
    sockets.push(socket);
    await once(socket, 'connect');
    return socket;
  };

  beforeEach(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '0']]));
    relay = await RelayProcess.startMeasurable({ upstreams: [files.upstream], rest: any, metrics: any });
  });

  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    sockets = [];
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('a body in chunks of one byte holds its bytes, and not a piece of memory for each', async () => {
    const { used } = await relay.memory();
    const head = `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
    for (let at = 0; at < 5; at++) (await open(relay.rest)).write(head + '1\r\n \r\n'.repeat(pieces));
    // Each body counts with a buffer of at least its bytes: they have come when that is held.
    await eventually(async () => expect(await relay.metric('peer_held_bytes')).to.be.at.least(5 * pieces));
    // It was 400 MB.
    expect(((await relay.memory()).used - used) / (1 << 20)).to.be.below(50);
    expect(await relay.metric('peer_held_bytes')).to.be.at.most(10 * pieces + 65_536);
  });

  it('a body in small pieces is answered as a whole one is', async () => {
    const body = JSON.stringify({ node: { id: 'n' }, resource_names: [] });
    const socket = await open(relay.rest);
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    for (const byte of body) socket.write(`1\r\n${byte}\r\n`);
    socket.write('0\r\n\r\n');
    let answer = '';
    for await (const text of socket.setEncoding('utf8')) answer += String(text);
    expect(answer)
      .to.match(/^HTTP\/1\.1 200 /)
      .and.to.include('"shop"');
  });

  it('a connection to the admin listener with more than 16 open requests ends', async () => {
    const socket = await open(relay.admin);
    socket.resume();
    const ended = once(socket, 'close');
    socket.write(`GET /metrics HTTP/1.1\r\nhost: ${relay.admin}\r\n\r\n`.repeat(500));
    await ended;
    expect((await fetch(`http://${relay.admin}/healthz`)).status).to.equal(200);
  });
});
