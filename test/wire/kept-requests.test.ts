import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import type { Account, Accounts } from '../../src/wire/accounts.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { problem } from '../../src/wire/http-answer.ts';
import { type HttpServer, listenHttp } from '../../src/wire/http-server.ts';
import { VIA_HEADER } from '../../src/wire/via.ts';
import {
  block,
  callFields,
  data,
  frame,
  headers,
  PREFACE,
  reset,
  settings,
  Type,
} from '../attacks/support/frames.ts';
import { RawConnection } from '../attacks/support/raw-connection.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { testAccounts } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const most = 10_000;
const body = Buffer.alloc(8000, 0x20);

async function dialHttp2(address: string): Promise<ClientHttp2Session> {
  const session = connectHttp2(`http://${address}`);
  session.on('error', () => undefined);
  await once(session, 'remoteSettings');
  return session;
}

function request(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  data: Buffer | string = '',
): ClientHttp2Stream {
  const stream = session.request({
    ':method': 'POST',
    ':path': '/a/b',
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  });
  stream.on('error', () => undefined);
  stream.write(data);
  return stream;
}

describe('what requests bring and is kept counts as held', () => {
  const sockets: Socket[] = [];
  let clock: VirtualClock;
  let account: Account;
  let rest: HttpServer | undefined;

  /** Of a peer that no turn comes for. */
  function accounts() {
    clock = new VirtualClock();
    const made = testAccounts({ heldPerPeer: most }, clock);
    account = made.of({ address: '127.0.0.1:1', unix: false, uriSans: [], dnsSans: [] });
    account.enter('test');
    return { accounts: made, clock };
  }

  async function serveRest(): Promise<string> {
    const listening = await listenHttp({
      ...accounts(),
      address: '127.0.0.1:0',
      maxRequestBytes: 1 << 20,
      stalledTimeout: () => 60_000,
      route: () => () => () => undefined,
    });
    if (!listening.ok) throw new Error(listening.error);
    rest = listening.value;
    return rest.address;
  }

  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await rest?.drain(0);
    rest = undefined;
    await closeServers();
  });

  for (const pieces of [1, 2]) {
    it(`a poll that waits for its turn, whose body came in pieces: ${pieces}`, async () => {
      const [host, port] = (await serveRest()).split(':');
      const dial = async (): Promise<Socket> => {
        const socket = connect({ host, port: Number(port), noDelay: true });
        sockets.push(socket);
        socket.write('GET / HTTP/1.1\r\nhost: x\r\n');
        await once(socket, 'connect');
        await eventually(() => expect(rest?.connections).to.equal(sockets.length));
        return socket;
      };
      const [first, second] = [await dial(), await dial()];
      account.spent(1000);
      const head = `content-length: ${body.length}\r\n\r\n`;
      const size = body.length / pieces;
      first.write(Buffer.concat([Buffer.from(head), body.subarray(0, size)]));
      await eventually(() => expect(account.held).to.equal(body.length));
      for (let sent = size; sent < body.length; sent += size) {
        first.write(body.subarray(sent, sent + size));
        await eventually(() => expect(first.bytesWritten - first.writableLength).to.be.above(sent));
      }
      second.write(Buffer.concat([Buffer.from(head), body]));
      const answer: unknown[] = await once(second, 'data');
      expect(String(answer[0])).to.match(/^HTTP\/1.1 429 [^]*limits.max_held_bytes_per_peer/);
      expect(account.held).to.equal(body.length);
      first.destroy();
      await eventually(() => expect(account.held).to.equal(0));
    });
  }

  for (const [what, header, data] of [
    ['all that its client has sent', '', body],
    ['its headers', 'x'.repeat(8000 + 1024), ''],
  ] as const)
    it(`a call that waits for its turn, with ${what}`, async () => {
      const server = await serve(accounts());
      const session = await dialHttp2(server.address);
      account.spent(1000);
      const call = () => request(session, { header }, data);
      call();
      await eventually(() => {
        clock.advance(100);
        expect(account.held).to.be.within(body.length, most);
      });
      const refused: Promise<unknown[]> = once(call(), 'response');
      const ticks = setInterval(() => clock.advance(100), 20);
      const [headers] = await refused.finally(() => clearInterval(ticks));
      expect(headers).to.include({ 'grpc-status': String(Code.RESOURCE_EXHAUSTED) });
      expect(account.held).to.be.within(body.length, most);
      session.destroy();
      await eventually(() => expect(account.held).to.equal(0));
    });

  describe('of calls that wait for their turn', () => {
    let connection: RawConnection;

    beforeEach(async () => {
      const server = await serve(accounts());
      const [host, port] = server.address.split(':');
      const socket = connect({ host, port: Number(port), noDelay: true });
      sockets.push(socket);
      connection = new RawConnection(socket);
      await connection.send(PREFACE, settings());
      await connection.until(() => connection.count(Type.SETTINGS) > 1, 'SETTINGS, and ACK');
      account.spent(1000);
    });

    const call = (stream: number): Buffer => headers(stream, block(callFields('/a/b')));
    const holds = (least: number): Promise<void> =>
      eventually(() => {
        clock.advance(100);
        expect(account.held).to.be.within(least, least + 400);
      });

    it('each piece of what came, and all that was read with it', async () => {
      const pieces = 40;
      await connection.send(call(1), ...Array.from({ length: pieces }, () => data(1, Buffer.of(0))));
      await holds(pieces * (128 + 10));
      await connection.send(data(1, Buffer.of(0)), frame(0xaa, 0, 0, Buffer.alloc(2000)));
      await holds((pieces + 1) * (128 + 10) + 2000);
      sockets[0]?.destroy();
      await eventually(() => expect(account.held).to.equal(0));
    });

    it('what was read at once, of which several have a piece: it counts once, and until the last of them ends', async () => {
      const read = [call(1), call(3), data(1, Buffer.of(0)), data(3, Buffer.of(0))];
      await connection.send(...read, frame(0xaa, 0, 0, Buffer.alloc(3000)));
      await holds(2 * 128 + 3000);
      await connection.send(reset(1));
      await holds(128 + 3000);
      await connection.send(reset(3));
      await eventually(() => expect(account.held).to.equal(0));
    });
  });

  for (const name of [':authority', ':scheme', VIA_HEADER]) {
    it(`what is kept of the headers of open calls: ${name}`, async () => {
      const server = await serve(accounts());
      const session = await dialHttp2(server.address);
      const headers = { [name]: 'x'.repeat(6000) };
      const first = request(session, headers);
      await eventually(() => expect(account.held).to.be.within(4000, 6000));
      const second: unknown[] = await once(request(session, headers), 'response');
      expect(second[0]).to.include({ 'grpc-status': String(Code.RESOURCE_EXHAUSTED) });
      first.close();
      await eventually(() => expect(account.held).to.equal(0));
      request(session, { x: 'x'.repeat(6000) });
      await eventually(() => expect(server.streams).to.equal(1));
      expect(account.held).to.equal(0);
      session.destroy();
    });
  }

  it('the headers of polls', async () => {
    const address = await serveRest();
    const session = await dialHttp2(address);
    request(session, { x: 'x'.repeat(6000) });
    await eventually(() => expect(account.held).to.be.within(4000, 6000));
    const second: unknown[] = await once(request(session, { x: 'x'.repeat(6000) }), 'response');
    expect(second[0]).to.include({ ':status': 429 });
    session.destroy();
    await eventually(() => expect(account.held).to.equal(0));
  });
});

describe('requests that Node would answer itself', () => {
  let accounts: Accounts;
  let rest: HttpServer;
  let socket: Socket;

  beforeEach(async () => {
    const clock = new VirtualClock();
    accounts = testAccounts({}, clock);
    const listening = await listenHttp({
      accounts,
      clock,
      address: '127.0.0.1:0',
      maxRequestBytes: 1000,
      stalledTimeout: () => 60_000,
      route: () => problem(404, 'not_found', 'nothing is here'),
    });
    if (!listening.ok) throw new Error(listening.error);
    rest = listening.value;
    const [host, port] = rest.address.split(':');
    socket = connect({ host, port: Number(port) });
    socket.on('error', () => undefined);
  });

  afterEach(async () => {
    socket.destroy();
    await rest.drain(0);
  });

  const work = (): number => accounts.heaviest(1)[0]?.workPerSecond ?? 0;

  for (const [what, status, head] of [
    ['without Host', 400, ''],
    ['with an expectation', 417, 'host: x\r\nexpect: x\r\n'],
  ] as const) {
    const request = `GET / HTTP/1.1\r\n${head}\r\n`;

    it(`are answered and charged: ${what}`, async () => {
      const before = work();
      socket.write(request);
      const answer: unknown[] = await once(socket, 'data');
      expect(String(answer[0])).to.match(new RegExp(`^HTTP/1.1 ${status} [^]*"code":`));
      expect(work()).to.be.above(before);
    });

    it(`end their connection if more than a hundred are open: ${what}`, async () => {
      const before = work();
      socket.write(request.repeat(200));
      await once(socket.resume(), 'close');
      expect((work() - before) * 5, 'each of them is charged').to.be.within(9, 100);
    });
  }

  for (const [what, status, headers] of [
    ['with an expectation', 417, { expect: 'x' }],
    ['CONNECT', 404, { ':method': 'CONNECT', ':authority': 'x' }],
  ] as const)
    it(`are answered and charged over HTTP/2: ${what}`, async () => {
      const session = await dialHttp2(rest.address);
      const before = work();
      const answer: unknown[] = await once(session.request(headers), 'response');
      expect(answer[0]).to.include({ ':status': status });
      expect(work()).to.be.above(before);
      session.destroy();
    });
});
