import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import type { Account } from '../../src/wire/accounts.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type HttpServer, listenHttp } from '../../src/wire/http-server.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { testAccounts } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const most = 10_000;
const body = Buffer.alloc(8000, 0x20);

describe('requests that wait for the turn of their peer count as held', () => {
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

  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await rest?.drain(0);
    await closeServers();
  });

  for (const pieces of [1, 2]) {
    it(`a poll whose body came in pieces: ${pieces}`, async () => {
      const listening = await listenHttp({
        ...accounts(),
        address: '127.0.0.1:0',
        maxRequestBytes: 1 << 20,
        stalledTimeout: () => 60_000,
        route: () => () => () => undefined,
      });
      if (!listening.ok) throw new Error(listening.error);
      rest = listening.value;
      const [host, port] = rest.address.split(':');
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

  it('a call, with all that its client has sent', async () => {
    const server = await serve(accounts());
    const session = connectHttp2(`http://${server.address}`);
    session.on('error', () => undefined);
    await once(session, 'remoteSettings');
    account.spent(1000);
    const call = () => {
      const stream = session.request({
        ':method': 'POST',
        ':path': '/a/b',
        'content-type': 'application/grpc',
      });
      stream.on('error', () => undefined);
      stream.write(body);
      return stream;
    };
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
});
