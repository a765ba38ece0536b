import { once } from 'node:events';
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2';
import { expect } from 'chai';
import { type HttpServer, listenHttp } from '../../src/wire/http-server.ts';
import type { ServerStream } from '../../src/wire/server-stream.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { testAccounts } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

// Node takes the last piece at once: no 'drain' follows it.
const large = Buffer.from(Array.from({ length: 5 * (1 << 18) + 100 }, (_, at) => at % 251));

describe('a client that reads a large answer slowly', () => {
  let session: ClientHttp2Session;
  let rest: HttpServer | undefined;

  /** It has a window of 64 KB, and reads nothing by itself. */
  async function ask(address: string): Promise<ClientHttp2Stream> {
    session = connect(`http://${address}`, { settings: { initialWindowSize: 65_535 } });
    session.on('error', () => undefined);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/a/b',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.on('error', () => undefined);
    stream.end();
    await once(stream, 'response');
    return stream;
  }

  /** All of it, in steps. `read`: so many bytes are read. */
  async function readSlowly(
    stream: ClientHttp2Stream,
    read: (bytes: number) => Promise<unknown>,
  ): Promise<Buffer> {
    const chunks: Buffer[] = [];
    let size = 0;
    let next = 300_000;
    stream.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= next) stream.pause();
    });
    for (; next < large.length; next += 300_000) {
      if (size < next) await once(stream.resume(), 'pause');
      await read(size);
    }
    stream.resume();
    await eventually(() => expect(size).to.equal(large.length));
    return Buffer.concat(chunks);
  }

  afterEach(async () => {
    session.destroy();
    await rest?.drain(0);
    await closeServers();
  });

  it('is known from one that does not read: the owner of its stream hears of each part', async () => {
    const events: string[] = [];
    const server = await serve({
      accept: () => (stream: ServerStream) => {
        stream.handle({
          message: () => undefined,
          ended: () => events.push(`writes ${stream.write(large)}`),
          progressed: () => events.push('progressed'),
          drained: () => events.push('drained'),
          closed: () => undefined,
        });
      },
    });
    const stream = await ask(server.address);
    expect(events).to.deep.equal(['writes false']);
    const got = await readSlowly(stream, (bytes) =>
      eventually(() => expect(events.length).to.be.above(Math.floor(bytes / (1 << 18)))),
    );
    expect(got.equals(large)).to.equal(true);
    await eventually(() => expect(events.at(-1)).to.equal('drained'));
    expect(events.slice(1, -1)).to.deep.equal(Array.from({ length: 4 }, () => 'progressed'));
  });

  it('gets the answer to its poll, and one that does not read is cut', async () => {
    const clock = new VirtualClock();
    const accounts = testAccounts({}, clock);
    const account = accounts.of({ address: '127.0.0.1:1', unix: false, uriSans: [], dnsSans: [] });
    account.enter('test');
    const listening = await listenHttp({
      clock,
      accounts,
      address: '127.0.0.1:0',
      maxRequestBytes: 1000,
      stalledTimeout: () => 60_000,
      route: () => ({ status: 200, type: 'text/plain', body: large }),
    });
    if (!listening.ok) throw new Error(listening.error);
    rest = listening.value;
    const stream = await ask(rest.address);
    const got = await readSlowly(stream, async (bytes) => {
      await eventually(() => expect(account.held).to.be.below(large.length - bytes + (1 << 18)));
      clock.advance(40_000);
    });
    expect(got.equals(large)).to.equal(true);
    await eventually(() => expect(account.held).to.equal(0));
    await ask(rest.address);
    expect(account.held).to.be.above(large.length - (1 << 18));
    clock.advance(61_000);
    await eventually(() => expect(account.held).to.equal(0));
  });
});
