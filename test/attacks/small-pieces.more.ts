import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { eventually } from '../e2e/support/eventually.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { cpuSeconds } from '../e2e/support/process-figures.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { slower } from '../support/cpu.ts';
import {
  ADS,
  block,
  callFields,
  type Fields,
  frame,
  headers,
  PREFACE,
  settings,
  Type,
} from './support/frames.ts';

const MB = 1 << 20;
const connections = 10;
/** Of one byte each, on every connection; the relay may end it before. */
const pieces = 200_000;
/** Each of them kept, they take 800 MB over HTTP/1.1 and 240 MB over HTTP/2. */
const most = { bytes: 120 * MB, cpuSeconds: 2 };

const rest = '/v3/discovery:clusters';
const rpc = '/distributary.admin.v1.AdminService/ListClients';
const json: Fields = [['content-type', 'application/json']];

const chunks = Buffer.from('1\r\na\r\n'.repeat(1000));
const dataFrames = Buffer.concat(
  Array.from({ length: 1000 }, () => frame(Type.DATA, 0, 1, Buffer.from('a'))),
);

const chunked = (path: string): Buffer =>
  Buffer.from(
    `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`,
  );
const streamed = (fields: Fields): Buffer => Buffer.concat([PREFACE, settings(), headers(1, block(fields))]);
const restFields = callFields(rest).filter(([name]) => name !== 'content-type' && name !== 'te');
/** 0x20000 bytes are promised. */
const grpcPrefix = frame(Type.DATA, 0, 1, Buffer.from([0, 0, 2, 0, 0]));

const doors = [
  ['REST over HTTP/1.1', 'rest', chunked(rest), chunks],
  ['REST over HTTP/2', 'rest', streamed([...restFields, ...json]), dataFrames],
  ['xDS', 'xds', Buffer.concat([streamed(callFields(ADS)), grpcPrefix]), dataFrames],
  ['an admin RPC', 'admin', chunked(rpc), chunks],
  ['a path that the admin listener does not have', 'admin', chunked('/nothing'), chunks],
] as const;

/** Sends until the relay takes no more of it. */
async function send(address: string, head: Buffer, thousand: Buffer, open: Socket[]): Promise<string> {
  const [host = '', port = ''] = address.split(':');
  const socket = connect({ host, port: Number(port) });
  open.push(socket);
  let heard = '';
  socket.on('error', () => {}).on('data', (bytes) => (heard += bytes.toString('latin1')));
  await once(socket, 'connect');
  socket.write(head);
  for (let sent = 0; sent < pieces && !socket.destroyed; sent += 1000) {
    if (socket.write(thousand)) continue;
    await Promise.race([once(socket, 'drain'), once(socket, 'close'), sleep(1000)]).catch(() => {});
  }
  return heard;
}

/** It has taken all that was sent. */
async function idle(pid: number): Promise<void> {
  for (let before = Number.NEGATIVE_INFINITY; cpuSeconds(pid) - before > 0.05; await sleep(300)) {
    before = cpuSeconds(pid);
    await sleep(300);
  }
}

describe('bodies in pieces of one byte', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  const open: Socket[] = [];

  beforeEach(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    relay = await RelayProcess.startMeasurable({ upstreams: [files.upstream], rest: {} });
  });

  const opened = async (address: string): Promise<Socket> => {
    const [host = '', port = ''] = address.split(':');
    const socket = connect({ host, port: Number(port) }).on('error', () => undefined);
    open.push(socket);
    await once(socket, 'connect');
    return socket;
  };

  afterEach(async () => {
    for (const socket of open.splice(0)) socket.destroy();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  for (const [name, door, head, thousand] of doors) {
    it(`hold no more than they have, and end: ${name}`, async () => {
      const before = { ...(await relay.memory()), cpu: cpuSeconds(relay.pid) };
      await Promise.all(Array.from({ length: connections }, () => send(relay[door], head, thousand, open)));
      await idle(relay.pid);
      const cpu = cpuSeconds(relay.pid) - before.cpu;
      // The system has back what was taken for pieces a moment later.
      const bytes = await eventually(async () => {
        const taken = (await relay.memory()).rss - before.rss;
        expect(taken).to.be.below(most.bytes);
        return taken;
      });
      if (process.env['FIGURES'] === '1') {
        process.stdout.write(`${(bytes / MB).toFixed()} MB, ${cpu.toFixed(2)} s  ${name}\n`);
      }
      expect(cpu / slower()).to.be.below(most.cpuSeconds);
    });
  }

  it('are refused with the reason', async () => {
    const socket = await opened(relay.rest);
    let answer = '';
    socket.on('data', (bytes) => (answer += bytes.toString()));
    socket.write(Buffer.concat([chunked(rest), Buffer.from('1\r\n{\r\n'.repeat(10_159))]));
    await once(socket, 'close');
    expect(answer).to.match(/^HTTP\/1.1 413 /);
    expect(answer).to.contain('pieces of less than 64 bytes');
  });

  it('a body in small pieces is answered as a whole one is', async () => {
    const body = JSON.stringify({ node: { id: 'n' }, resource_names: [] });
    const socket = await opened(relay.rest);
    socket.write(
      `POST ${rest} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n`,
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
    const socket = await opened(relay.admin);
    socket.resume();
    const ended = once(socket, 'close');
    socket.write(`GET /metrics HTTP/1.1\r\nhost: ${relay.admin}\r\n\r\n`.repeat(500));
    await ended;
    expect((await fetch(`http://${relay.admin}/healthz`)).status).to.equal(200);
  });
});
