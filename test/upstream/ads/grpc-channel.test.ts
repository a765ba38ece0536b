import { once } from 'node:events';
import { createServer, type ServerHttp2Stream, type Settings } from 'node:http2';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'chai';
import { systemClock } from '../../../src/model/clock.ts';
import { LOAD_PATH } from '../../../src/model/load.ts';
import { ok } from '../../../src/model/result.ts';
import type { Channel } from '../../../src/upstream/ads/grpc-channel.ts';
import { type AdsTls, grpcTransport } from '../../../src/upstream/ads/grpc-channel.ts';
import { frameOf } from '../../../src/wire/grpc-frames.ts';
import { Code, codeName } from '../../../src/wire/grpc-status.ts';
import { eventually } from '../../e2e/support/eventually.ts';
import { LoadPlane } from '../../e2e/support/load-plane.ts';

/** Once it is connected. */
async function channelTo(
  address: string,
  { keepaliveMs = 60_000, connectTimeoutMs = 10_000 } = {},
): Promise<Channel> {
  const [host = '', port] = address.split(':');
  const transport = grpcTransport({
    tls: undefined,
    connectTimeoutMs,
    keepalive: { timeMs: keepaliveMs, timeoutMs: keepaliveMs },
    clock: systemClock,
  });
  const { promise: connected, resolve, reject } = Promise.withResolvers<void>();
  const channel = transport({ kind: 'tcp', host, port: Number(port) }, { connected: resolve, lost: reject });
  await connected;
  return channel;
}

/** A server that takes connections and says nothing, as a process that hangs. */
async function muteServer(stack: AsyncDisposableStack) {
  const server = createTcpServer();
  const open = new Set<Socket>();
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => open.delete(socket));
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stack.defer(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  return {
    address: { kind: 'tcp', host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    open,
  } as const;
}

/** A control plane that reads nothing of a stream before it is told to. */
async function unreadingPlane(stack: AsyncDisposableStack, settings: Settings) {
  const server = createServer({ settings });
  const streams: ServerHttp2Stream[] = [];
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    stream.pause();
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    streams.push(stream);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stack.defer(() => {
    for (const { session } of streams) session?.destroy();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, streams };
}

describe('a stream to a control plane that is finished', () => {
  it('says what was written before it is over', async () => {
    await using plane = await new LoadPlane().listen();
    const channel = await channelTo(plane.address);
    const stream = channel.open(LOAD_PATH, '', {
      message: () => false,
      proceed: () => false,
      closed: () => {},
    });
    const said: string[] = [];
    stream.write(new Uint8Array(), () => said.push('written'));
    await stream.finish();
    said.push('over');
    channel.close();
    expect(said).to.deep.equal(['written', 'over']);
  });
});

describe('a stream to a control plane that reads nothing', () => {
  const message = new Uint8Array(1000);

  /** It sends 100 responses, each of which is answered. What was said of the stream in the end. */
  async function flooded(keepaliveMs: number): Promise<readonly [reason: string, answers: number]> {
    await using stack = new AsyncDisposableStack();
    const plane = await unreadingPlane(stack, { initialWindowSize: 100 });
    const channel = await channelTo(plane.address, { keepaliveMs });
    stack.defer(() => channel.close());
    const { promise: ended, resolve } = Promise.withResolvers<string>();
    let answers = 0;
    const stream = channel.open(LOAD_PATH, '', {
      message: () => {
        stream.write(message);
        answers++;
        return false;
      },
      proceed: () => false,
      closed: resolve,
    });
    stream.write(message);
    const [asked] = await eventually(() => {
      if (plane.streams.length === 0) throw new Error('it was not asked');
      return plane.streams;
    });
    for (let count = 0; count < 100; count++) asked?.write(frameOf(message));
    return [await ended, answers];
  }

  it('ends after a while, and few answers wait by then', async () => {
    const [reason, answers] = await flooded(200);
    expect(reason).to.equal('the control plane has read nothing for 0.4 s');
    expect(answers).to.be.within(15, 50);
  });

  it('has written only what the transport has sent', async () => {
    await using stack = new AsyncDisposableStack();
    const plane = await unreadingPlane(stack, { initialWindowSize: 1500 });
    const channel = await channelTo(plane.address);
    stack.defer(() => channel.close());
    const written: string[] = [];
    const stream = channel.open(LOAD_PATH, '', {
      message: () => false,
      proceed: () => false,
      closed: () => {},
    });
    stream.write(message, () => written.push('first'));
    stream.write(message, () => written.push('second'));
    await eventually(() => expect(written).to.deep.equal(['first']));
    await pause(50);
    expect(written).to.deep.equal(['first']);
    for (const asked of plane.streams) asked.resume();
    await eventually(() => expect(written).to.deep.equal(['first', 'second']));
  });
});

describe('a stream for which a connection to a control plane has no room', () => {
  it('ends: Node would keep it until another one ends, and who waits would take that for an answer', async () => {
    await using stack = new AsyncDisposableStack();
    const plane = await unreadingPlane(stack, { maxConcurrentStreams: 1 });
    const channel = await channelTo(plane.address, { connectTimeoutMs: 200 });
    stack.defer(() => channel.close());
    const ended: unknown[] = [];
    const open = (name: string) => {
      const stream = channel.open(LOAD_PATH, '', {
        message: () => false,
        proceed: () => false,
        closed: (reason, code) => ended.push(name, reason, code),
      });
      stream.write(new Uint8Array(1000));
      return stream;
    };
    const first = open('first');
    await eventually(() => expect(plane.streams.length).to.equal(1));
    open('second');
    const reason =
      'no first request was taken within 0.2 s: the control plane, or a proxy before it, may allow no more streams on a connection';
    await eventually(() => expect(ended).to.deep.equal(['second', reason, undefined]));
    first.end();
    for (const taken of plane.streams) taken.resume();
    await eventually(() => expect(plane.streams[0]?.closed).to.equal(true));
    open('third');
    await eventually(() => expect(plane.streams.length).to.equal(2));
    await pause(300);
    expect(ended).to.have.length(3);
  });
});

describe('a connection that is not made in the end', () => {
  const secure: AdsTls = { material: async () => ok({}), serverName: 'plane.test', serverIdentities: [] };
  for (const [what, tls] of [
    ['TLS', secure],
    ['HTTP/2', undefined],
  ] as const) {
    for (const isLeft of [true, false]) {
      it(`is closed ${isLeft ? 'when its owner closes it' : 'after connect_timeout'}, where the other end is silent about ${what}`, async () => {
        await using stack = new AsyncDisposableStack();
        const { address, open } = await muteServer(stack);
        const connectTimeoutMs = isLeft ? 60_000 : 200;
        const keepalive = { timeMs: 60_000, timeoutMs: 60_000 };
        const { promise: lost, resolve } = Promise.withResolvers<string>();
        const channel = grpcTransport({ tls, connectTimeoutMs, keepalive, clock: systemClock })(address, {
          connected: () => undefined,
          lost: resolve,
        });
        await eventually(() => expect(open.size).to.equal(1));
        if (isLeft) channel.close();
        else expect(await lost).to.equal('no connection within 0.2 s');
        await eventually(() => expect(open.size).to.equal(0));
      });
    }
  }
});

describe('a stream that a control plane ends with an error', () => {
  it('has said before what came before, however long that takes', async () => {
    await using stack = new AsyncDisposableStack();
    const server = createServer();
    server.on('stream', (stream) => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': String(Code.UNAVAILABLE) }));
      for (let each = 1; each <= 3; each++) stream.write(frameOf(new Uint8Array([each])));
      stream.end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    stack.defer(() => void server.close());
    const channel = await channelTo(`127.0.0.1:${(server.address() as AddressInfo).port}`);
    stack.defer(() => channel.close());
    const said: unknown[] = [];
    let turns = 0;
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const stream = channel.open(LOAD_PATH, '', {
      message: (bytes) => {
        said.push(bytes[0]);
        turns = 0;
        return true;
      },
      proceed: () => ++turns < 20,
      closed: (_, code) => {
        said.push(codeName(code ?? Code.OK));
        resolve();
      },
    });
    stream.write(new Uint8Array(10));
    await closed;
    expect(said).to.deep.equal([1, 2, 3, 'UNAVAILABLE']);
  });
});
