import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import type { Account } from '../../src/wire/accounts.ts';
import { jsonAnswer } from '../../src/wire/http-answer.ts';
import { type HttpServer, listenHttp } from '../../src/wire/http-server.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { testAccounts } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const heldPerPeer = 100_000;
const maxRequestBytes = 1000;
const stalledMs = 60_000;

describe('what a listener refuses is counted once, by its reason', () => {
  const sockets: Socket[] = [];
  let reasons: string[];
  let clock: VirtualClock;
  let account: Account;
  let rest: HttpServer | undefined;

  function options() {
    clock = new VirtualClock();
    const accounts = testAccounts({ heldPerPeer }, clock);
    account = accounts.of({ address: '127.0.0.1:1', unix: false, uriSans: [], dnsSans: [] });
    account.enter('test');
    reasons = [];
    return { accounts, clock, refused: (reason: string) => void reasons.push(reason) };
  }

  /** A request with this head and body; the function gives what is answered. */
  async function post(head: string, body: Buffer | string): Promise<Socket> {
    const listening = await listenHttp({
      ...options(),
      address: '127.0.0.1:0',
      maxRequestBytes,
      stalledTimeout: () => stalledMs,
      route: () => (_body, answered) => {
        answered(jsonAnswer(Buffer.alloc(64 << 20)));
        return () => undefined;
      },
    });
    if (!listening.ok) throw new Error(listening.error);
    rest = listening.value;
    const [host, port] = rest.address.split(':');
    const socket = connect({ host, port: Number(port) });
    sockets.push(socket);
    await eventually(() => expect(rest?.connections).to.equal(1));
    socket.on('error', () => undefined);
    socket.write(`POST / HTTP/1.1\r\nhost: x\r\n${head}\r\n\r\n`);
    socket.write(body);
    return socket;
  }

  async function isAnswered(socket: Socket, status: number): Promise<void> {
    const answer: unknown[] = await once(socket, 'data');
    expect(String(answer[0])).to.match(new RegExp(`^HTTP/1.1 ${status} `));
  }

  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await rest?.drain(0);
    rest = undefined;
    await closeServers();
  });

  it('a body that says it is too large', async () => {
    await isAnswered(await post(`content-length: ${maxRequestBytes + 1}`, '{'), 413);
    clock.advance(stalledMs + 1000);
    expect(reasons, 'the rest of a refused body is not missed').to.deep.equal(['request_bytes']);
  });

  it('a body that becomes too large', async () => {
    const chunk = `64\r\n${'x'.repeat(100)}\r\n`;
    await isAnswered(await post('transfer-encoding: chunked', chunk.repeat(11)), 413);
    expect(reasons).to.deep.equal(['request_bytes']);
  });

  it('a body that does not arrive', async () => {
    const socket = await post('content-length: 1000', '{');
    await eventually(() => expect(account.held).to.be.above(0));
    clock.advance(stalledMs + 1000);
    await isAnswered(socket, 408);
    expect(reasons).to.deep.equal(['half_sent']);
  });

  it('a body in part, of a peer that holds too much', async () => {
    const socket = await post('content-length: 100', '');
    account.keeps(heldPerPeer);
    socket.write('x');
    await isAnswered(socket, 429);
    expect(reasons).to.deep.equal(['held_bytes']);
  });

  it('a body for which there is no place to wait', async () => {
    const socket = await post('content-length: 1', '');
    account.spent(1000);
    while (account.waitOnArrival(() => undefined) !== undefined);
    socket.write('x');
    await isAnswered(socket, 429);
    expect(reasons).to.deep.equal(['waiting']);
  });

  it('an answer that is not read', async () => {
    const socket = await post('content-length: 1', 'x');
    socket.pause();
    await eventually(() => expect(account.held).to.be.above(1 << 20));
    clock.advance(stalledMs + 1000);
    expect(reasons).to.deep.equal(['stalled']);
  });

  for (const reason of ['waiting', 'held_bytes']) {
    it(`a gRPC call that has to wait: ${reason}`, async () => {
      const server = await serve(options());
      const session = connectHttp2(`http://${server.address}`);
      session.on('error', () => undefined);
      await once(session, 'remoteSettings');
      account.spent(1000);
      if (reason === 'waiting') while (account.waitOnArrival(() => undefined) !== undefined);
      const stream = session.request({
        ':method': 'POST',
        ':path': '/a/b',
        'content-type': 'application/grpc',
      });
      stream.on('error', () => undefined);
      stream.write(Buffer.alloc(heldPerPeer + 1));
      await eventually(() => {
        clock.advance(100);
        expect(reasons).to.deep.equal([reason]);
      });
      session.destroy();
    });
  }
});
