import { EventEmitter, once } from 'node:events';
import { link, mkdtemp, rm } from 'node:fs/promises';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Client } from '@grpc/grpc-js';
import { expect } from 'chai';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type GrpcServer, listenGrpc } from '../../src/wire/http2-server.ts';
import type { ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { nextMessage, openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { testAccounts } from '../support/peers.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, echo, serve } from './serve.ts';

const path = '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources';
const grpcHeaders: OutgoingHttpHeaders = {
  ':method': 'POST',
  ':path': path,
  'content-type': 'application/grpc',
  te: 'trailers',
};

interface Answer {
  readonly headers: IncomingHttpHeaders;
  readonly trailers: IncomingHttpHeaders;
  readonly resetCode: number;
}

/** What a stream was told when it is over. */
function answerOf(stream: ClientHttp2Stream): Promise<Answer> {
  return new Promise((resolve) => {
    let headers: IncomingHttpHeaders = {};
    let trailers: IncomingHttpHeaders = {};
    stream.on('response', (received) => {
      headers = received;
    });
    stream.on('trailers', (received: IncomingHttpHeaders) => {
      trailers = received;
    });
    stream.on('error', () => undefined);
    stream.on('close', () => resolve({ headers, trailers, resetCode: stream.rstCode }));
    stream.resume();
  });
}

/** A handler that records what it hears. */
class Recorder implements StreamHandler {
  readonly events: string[] = [];
  readonly #waiting = new Map<string, () => void>();

  message(bytes: Buffer): void {
    this.#add(`message ${bytes.length}`);
  }
  ended(): void {
    this.#add('ended');
  }
  drained(): void {
    this.#add('drained');
  }
  closed(): void {
    this.#add('closed');
  }
  heard(event: string): Promise<void> {
    if (this.events.includes(event)) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.set(event, resolve));
  }
  #add(event: string): void {
    this.events.push(event);
    this.#waiting.get(event)?.();
  }
}

/** Serves streams that are kept for the test to act on. */
async function serveOne(): Promise<{
  server: GrpcServer;
  recorder: Recorder;
  accepted: Promise<ServerStream>;
}> {
  const recorder = new Recorder();
  const { promise: accepted, resolve } = Promise.withResolvers<ServerStream>();
  const server = await serve({
    accept: () => (stream) => {
      stream.handle(recorder);
      resolve(stream);
    },
  });
  return { server, recorder, accepted };
}

describe('HTTP/2 server', () => {
  const clients: Client[] = [];
  const sessions: ClientHttp2Session[] = [];

  function client(address: string): Client {
    const made = rawClient(address);
    clients.push(made);
    return made;
  }

  function session(server: GrpcServer, settings = {}): ClientHttp2Session {
    const made = connect(`http://${server.address}`, { settings });
    made.on('error', () => undefined);
    sessions.push(made);
    return made;
  }

  afterEach(async () => {
    for (const open of clients.splice(0)) open.close();
    for (const open of sessions.splice(0)) open.destroy();
    await closeServers();
  });

  it('a hot stream exchanges messages of any size and ends with its status', async () => {
    const server = await serve();
    const call = openCall(client(server.address), path);
    const status = statusOf(call);
    for (const size of [0, 1, 61_000, 1_000_000]) {
      const sent = Buffer.alloc(size, size);
      call.write(sent);
      expect((await nextMessage(call)).equals(sent)).to.equal(true);
    }
    expect(server.streams).to.equal(1);
    call.end();
    expect((await status).code).to.equal(Code.OK);
  });

  it('an end before any write is a trailers-only response', async () => {
    const server = await serve({
      accept: () => (stream) => stream.end({ code: Code.PERMISSION_DENIED, message: '100 % “nein”' }),
    });
    const { headers, trailers } = await answerOf(session(server).request(grpcHeaders));
    expect(headers[':status']).to.equal(200);
    expect(headers['content-type']).to.equal('application/grpc');
    expect(headers['grpc-status']).to.equal('7');
    expect(headers['grpc-message']).to.equal('100 %25 %E2%80%9Cnein%E2%80%9D');
    expect(trailers).to.deep.equal({});
    const status = await statusOf(openCall(client(server.address), path));
    expect(status.code).to.equal(Code.PERMISSION_DENIED);
    expect(status.details).to.equal('100 % “nein”');
  });

  it('an end after writes delivers what was written, then the status, though the client goes on', async () => {
    const { server, recorder, accepted } = await serveOne();
    const call = openCall(client(server.address), path);
    const messages: number[] = [];
    call.on('data', (bytes: Buffer) => messages.push(bytes.length));
    const status = statusOf(call);
    const stream = await accepted;
    stream.write(frameOf(Buffer.alloc(300_000)));
    stream.end({ code: Code.RESOURCE_EXHAUSTED, message: 'too fast' });
    stream.end({ code: Code.OK, message: 'a second end does nothing' });
    expect(stream.write(frameOf(Buffer.alloc(1)))).to.equal(false);
    expect(await status).to.include({ code: Code.RESOURCE_EXHAUSTED, details: 'too fast' });
    expect(messages).to.deep.equal([300_000]);
    await recorder.heard('closed');
    expect(recorder.events).to.deep.equal(['closed']);
    expect(server.streams).to.equal(0);
  });

  it('a half-close is told once, and the server may go on', async () => {
    const { server, recorder, accepted } = await serveOne();
    const call = openCall(client(server.address), path);
    call.write(Buffer.alloc(3));
    call.end();
    const stream = await accepted;
    await recorder.heard('ended');
    const message = nextMessage(call);
    stream.write(frameOf(Buffer.from('late')));
    expect((await message).toString()).to.equal('late');
    stream.end({ code: Code.OK, message: '' });
    await recorder.heard('closed');
    expect(recorder.events).to.deep.equal(['message 3', 'ended', 'closed']);
  });

  it('a reset by the client closes, once, and writes afterwards do nothing', async () => {
    const { server, recorder, accepted } = await serveOne();
    const call = openCall(client(server.address), path);
    const stream = await accepted;
    call.cancel();
    await recorder.heard('closed');
    expect(stream.write(frameOf(Buffer.alloc(1)))).to.equal(false);
    stream.end({ code: Code.OK, message: '' });
    stream.resume();
    // Node's client ends its request before it resets it, so `ended` may come; `closed` is last, and once.
    expect(recorder.events.filter((event) => event !== 'ended')).to.deep.equal(['closed']);
    expect(recorder.events.at(-1)).to.equal('closed');
  });

  it('a lost connection closes its streams', async () => {
    const { server, recorder, accepted } = await serveOne();
    const [host, port] = server.address.split(':');
    const socket = createConnection(Number(port), host);
    const lost = connect(`http://${server.address}`, { createConnection: () => socket });
    lost.on('error', () => undefined);
    lost.request(grpcHeaders).on('error', () => undefined);
    await accepted;
    socket.destroy();
    await recorder.heard('closed');
    expect(recorder.events).to.deep.equal(['closed']);
    expect(server.streams).to.equal(0);
  });

  it('a request over the limit is refused, and the connection goes on', async () => {
    const server = await serve({ maxRequestBytes: 1000 });
    const one = client(server.address);
    const big = openCall(one, path);
    const status = statusOf(big);
    big.write(Buffer.alloc(1001));
    expect(await status).to.include({ code: Code.RESOURCE_EXHAUSTED });
    expect((await status).details).to.match(/1001 bytes.*limit of 1000 bytes.*limits\.max_request_bytes/);
    const small = openCall(one, path);
    small.write(Buffer.alloc(1000));
    expect((await nextMessage(small)).length).to.equal(1000);
  });

  it('a request that ends within a message is INVALID_ARGUMENT', async () => {
    const server = await serve();
    const stream = session(server).request(grpcHeaders);
    const answer = answerOf(stream);
    stream.end(frameOf(Buffer.alloc(100)).subarray(0, 50));
    expect((await answer).headers['grpc-status']).to.equal(String(Code.INVALID_ARGUMENT));
  });

  it('compressed requests are refused, naming what is accepted', async () => {
    const server = await serve();
    const stream = session(server).request({ ...grpcHeaders, 'grpc-encoding': 'gzip' });
    const answer = answerOf(stream);
    stream.write(Buffer.from([1, 0, 0, 0, 1, 0]));
    const { headers } = await answer;
    expect(headers['grpc-status']).to.equal(String(Code.UNIMPLEMENTED));
    expect(headers['grpc-accept-encoding']).to.equal('identity');
  });

  it('an unknown path is UNIMPLEMENTED for gRPC and 404 for others', async () => {
    const server = await serve({ accept: () => undefined });
    const status = await statusOf(openCall(client(server.address), '/a.B/C'));
    expect(status.code).to.equal(Code.UNIMPLEMENTED);
    expect(status.details).to.contain('/a.B/C');
    const { headers } = await answerOf(session(server).request({ ':path': '/' }));
    expect(headers[':status']).to.equal(404);
    expect(headers['grpc-status']).to.equal('12');
  });

  it('v2 paths say that v2 was removed', async () => {
    const server = await serve({ accept: () => undefined });
    const one = client(server.address);
    for (const service of [
      'envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources',
      'envoy.api.v2.ClusterDiscoveryService/StreamClusters',
      'envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats',
    ]) {
      const status = await statusOf(openCall(one, `/${service}`));
      expect(status.code).to.equal(Code.UNIMPLEMENTED);
      expect(status.details).to.contain('xDS v2 was removed: use v3');
    }
  });

  it('accept may refuse with a status', async () => {
    const server = await serve({ accept: () => ({ code: Code.RESOURCE_EXHAUSTED, message: 'max_streams' }) });
    const status = await statusOf(openCall(client(server.address), path));
    expect(status).to.include({ code: Code.RESOURCE_EXHAUSTED, details: 'max_streams' });
    expect(server.streams).to.equal(0);
  });

  it('hot paths take POST with application/grpc and te: trailers only', async () => {
    const server = await serve();
    const one = session(server);
    const answers: string[] = [];
    for (const change of [
      { ':method': 'GET' },
      { 'content-type': 'application/json' },
      { 'content-type': 'application/grpc-web' },
      { te: undefined },
    ]) {
      const { headers } = await answerOf(one.request({ ...grpcHeaders, ...change }));
      answers.push(`${String(headers[':status'])} ${String(headers['grpc-status'])}`);
    }
    expect(answers).to.deep.equal(['405 13', '415 13', '415 13', '200 3']);
    const good = one.request({ ...grpcHeaders, 'content-type': 'application/grpc+proto' });
    good.end();
    expect((await answerOf(good)).headers['grpc-status']).to.equal('0');
  });

  it('header() gives a request header by its lower-case name', async () => {
    const { server, accepted } = await serveOne();
    session(server).request({ ...grpcHeaders, 'x-distributary-via': ['a', 'b'] });
    const stream = await accepted;
    expect(stream.header('x-distributary-via')).to.equal('a, b');
    expect(stream.header('constructor')).to.equal(undefined);
    expect(stream.path).to.equal(path);
    expect(stream.peer).to.deep.include({ unix: false, uriSans: [], dnsSans: [] });
    expect(stream.peer.address).to.match(/^127\.0\.0\.1:\d+$/);
  });

  it('write says false to a client with a closed window and drained follows when it opens', async () => {
    const { server, recorder, accepted } = await serveOne();
    const stream = session(server, { initialWindowSize: 100 }).request(grpcHeaders);
    const received = answerOf(stream);
    stream.pause();
    const served = await accepted;
    expect(served.write(frameOf(Buffer.alloc(200_000)))).to.equal(false);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(recorder.events).to.deep.equal([]);
    stream.resume();
    await recorder.heard('drained');
    expect(served.write(frameOf(Buffer.alloc(10)))).to.equal(true);
    served.end({ code: Code.OK, message: '' });
    expect((await received).trailers['grpc-status']).to.equal('0');
  });

  it('a stream says how long it has waited for the turn of its peer', async () => {
    const clock = new VirtualClock();
    const turns: (() => void)[] = [];
    const accounts = testAccounts({}, clock, (run) => turns.push(run));
    const heard = new EventEmitter();
    const { promise: accepted, resolve } = Promise.withResolvers<ServerStream>();
    const server = await serve({
      clock,
      accounts,
      accept: () => (stream) => {
        stream.handle({
          message(bytes) {
            stream.peer.account.spent(1000);
            heard.emit(bytes.toString());
          },
          ended: () => stream.end({ code: Code.OK, message: '' }),
          drained: () => undefined,
          closed: () => undefined,
        });
        resolve(stream);
      },
    });
    const request = session(server).request(grpcHeaders);
    const first = once(heard, 'first');
    request.write(frameOf(Buffer.from('first')));
    const stream = await accepted;
    await first;
    clock.advance(3000);
    expect(stream.waitedMilliseconds, 'it waits').to.equal(3000);
    clock.advance(2000);
    const second = once(heard, 'second');
    for (const run of turns.splice(0)) run();
    clock.advance(10_000);
    expect(stream.waitedMilliseconds, 'it is ready').to.equal(5000);
    request.end(frameOf(Buffer.from('second')));
    await second;
  });

  it('pause holds messages back, those that have arrived too, and the end after them', async () => {
    const events: string[] = [];
    const { promise: accepted, resolve } = Promise.withResolvers<ServerStream>();
    const { promise: first, resolve: heardFirst } = Promise.withResolvers<void>();
    const server = await serve({
      accept: () => (stream) => {
        stream.handle({
          message(bytes) {
            events.push(bytes.toString());
            if (events.length === 1) {
              stream.pause();
              heardFirst();
            }
          },
          ended: () => stream.end({ code: Code.OK, message: '' }),
          drained: () => undefined,
          closed: () => undefined,
        });
        resolve(stream);
      },
    });
    const request = session(server).request(grpcHeaders);
    const answer = answerOf(request);
    request.end(Buffer.concat(['a', 'b', 'c'].map((text) => frameOf(Buffer.from(text)))));
    const stream = await accepted;
    await first;
    await new Promise((elapsed) => setTimeout(elapsed, 30));
    expect(events).to.deep.equal(['a']);
    stream.resume();
    expect((await answer).headers['grpc-status']).to.equal('0');
    expect(events).to.deep.equal(['a', 'b', 'c']);
  });

  it('a call that is ended while it is paused closes, though not all of its request was read', async () => {
    const { server, recorder, accepted } = await serveOne();
    const request = session(server).request(grpcHeaders);
    const answer = answerOf(request);
    const stream = await accepted;
    stream.pause();
    request.end(frameOf(Buffer.alloc(30_000)));
    await new Promise((elapsed) => setTimeout(elapsed, 30));
    stream.end({ code: Code.INVALID_ARGUMENT, message: 'no' });
    expect((await answer).headers['grpc-status']).to.equal('3');
    await recorder.heard('closed');
  });

  it('an end that cannot get past data which the client does not take resets the stream', async () => {
    let late = (): void => undefined;
    const recorder = new Recorder();
    const { promise: accepted, resolve } = Promise.withResolvers<ServerStream>();
    const server = await serve({
      clock: {
        now: () => 0,
        monotonic: () => 0,
        after(_milliseconds, run) {
          late = run;
          return { cancel: () => undefined };
        },
      },
      accept: () => (stream) => {
        stream.handle(recorder);
        resolve(stream);
      },
    });
    const request = session(server, { initialWindowSize: 10 }).request(grpcHeaders);
    const answer = answerOf(request);
    request.pause();
    const stream = await accepted;
    stream.write(frameOf(Buffer.alloc(1000)));
    stream.end({ code: Code.RESOURCE_EXHAUSTED, message: 'stalled' });
    late();
    await recorder.heard('closed');
    request.resume();
    expect((await answer).resetCode).to.equal(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    await Promise.all([closeServers(), new Promise((elapsed) => setTimeout(elapsed, 5)).then(late)]);
  });

  it('a handler that throws ends its stream with INTERNAL and nothing else', async () => {
    const reports: string[] = [];
    const server = await serve({
      report: (message) => reports.push(message),
      accept: () => (stream) => {
        stream.handle({
          message(bytes) {
            if (bytes.length === 0) throw new Error('a bug');
            stream.write(frameOf(bytes));
          },
          ended: () => undefined,
          drained: () => undefined,
          closed: () => undefined,
        });
      },
    });
    const one = client(server.address);
    const good = openCall(one, path);
    const bad = openCall(one, path);
    const status = statusOf(bad);
    bad.write(Buffer.alloc(0));
    expect((await status).code).to.equal(Code.INTERNAL);
    good.write(Buffer.from('still here'));
    expect((await nextMessage(good)).toString()).to.equal('still here');
    expect(reports).to.deep.equal([`the handler of ${path} failed`]);
  });

  it('a call that its owner does not take is INTERNAL', async () => {
    const server = await serve({ accept: () => () => undefined });
    expect((await statusOf(openCall(client(server.address), path))).code).to.equal(Code.INTERNAL);
  });

  it('SETTINGS go out on accept, before the client has said anything', async () => {
    const server = await serve();
    const [host, port] = server.address.split(':');
    const socket = createConnection(Number(port), host);
    const first = await new Promise<Buffer>((resolve) => socket.once('data', resolve));
    socket.destroy();
    expect(first[3]).to.equal(4); // the frame type of SETTINGS
  });

  it('garbage on the port costs the other connections nothing', async () => {
    const [reports, failures]: [string[], string[]] = [[], []];
    const server = await serve({
      report: (message) => reports.push(message),
      connectionFailed: (address, reason) => failures.push(`${address}: ${reason}`),
    });
    const good = openCall(client(server.address), path);
    const [host, port] = server.address.split(':');
    const peers: string[] = [];
    const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    const badFrames = [
      Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n\r\n'),
      Buffer.alloc(1000, 0xff),
      Buffer.concat([preface, Buffer.alloc(100, 0xff)]),
      Buffer.concat([preface, settings, Buffer.from([0, 0, 1, 0, 0, 0, 0, 0, 1, 7])]), // DATA on an idle stream
      Buffer.concat([preface, settings, Buffer.from([0, 0, 1, 1, 5, 0, 0, 0, 1, 0xff])]), // bad HPACK
    ];
    for (const bytes of badFrames) {
      const socket = createConnection(Number(port), host);
      socket.on('error', () => undefined);
      socket.resume();
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.write(bytes);
      socket.once('connect', () => peers.push(`${socket.localAddress}:${socket.localPort}`));
      await closed;
    }
    good.write(Buffer.from('fine'));
    expect((await nextMessage(good)).toString()).to.equal('fine');
    expect(reports, 'a peer’s doing is no fault of the server').to.deep.equal([]);
    expect(failures.map((line) => line.slice(0, line.lastIndexOf(': ')))).to.deep.equal(peers);
  });

  it('a garbage message is delivered as it is, and a garbage prefix ends its stream only', async () => {
    const server = await serve();
    const one = session(server);
    const bad = one.request(grpcHeaders);
    const answer = answerOf(bad);
    bad.write(Buffer.alloc(100, 0xff));
    expect((await answer).headers['grpc-status']).to.equal(String(Code.INTERNAL));
    const good = one.request(grpcHeaders);
    good.end(frameOf(Buffer.from('fine')));
    expect((await answerOf(good)).trailers['grpc-status']).to.equal('0');
  });

  it('streams that are reset at once leave nothing behind', async () => {
    const server = await serve();
    const one = session(server);
    const closed = [];
    for (let n = 0; n < 200; n++) {
      const request = one.request(grpcHeaders);
      closed.push(answerOf(request));
      request.close(constants.NGHTTP2_CANCEL);
    }
    await Promise.all(closed);
    const last = openCall(client(server.address), path);
    last.write(Buffer.from('x'));
    await nextMessage(last);
    expect(server.streams).to.equal(1);
  });

  it('listens on a Unix socket, and over one that a killed process left', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'distributary-'));
    const socket = join(directory, 'xds.sock');
    try {
      const { promise: accepted, resolve } = Promise.withResolvers<ServerStream>();
      const accept = () => (stream: ServerStream) => {
        resolve(stream);
        echo(stream);
      };
      const killed = createServer().listen(join(directory, 'killed.sock'));
      await new Promise((listening) => killed.once('listening', listening));
      await link(join(directory, 'killed.sock'), socket);
      await new Promise((closed) => killed.close(closed));
      const first = await serve({ address: `unix:${socket}`, accept });
      expect(first.address).to.equal(`unix:${socket}`);
      const call = openCall(client(`unix:${socket}`), path);
      call.write(Buffer.from('x'));
      await nextMessage(call);
      const { peer } = await accepted;
      expect(peer).to.include({ address: socket, unix: true });
      expect([peer.uriSans, peer.dnsSans]).to.deep.equal([[], []]);
      const second = await listenGrpc({ address: `unix:${socket}`, accept, maxRequestBytes: 1 });
      expect(second.ok ? '' : second.error).to.match(/in use/);
    } finally {
      await closeServers();
      await rm(directory, { recursive: true });
    }
  });

  it('what cannot be listened on is said in words', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.once('listening', resolve));
    const address = taken.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    const errors: string[] = [];
    for (const wrong of [
      `127.0.0.1:${port}`,
      '203.0.113.1:0',
      'nonsense',
      'unix:',
      'unix:/nowhere/x.sock',
      'a:99999',
      `unix:${import.meta.filename}`,
    ]) {
      const result = await listenGrpc({ address: wrong, accept: () => undefined, maxRequestBytes: 1 });
      errors.push(result.ok ? 'listens' : result.error);
    }
    taken.close();
    expect(errors[0]).to.match(/in use.*EADDRINUSE/);
    expect(errors[1]).to.match(/no interface.*EADDRNOTAVAIL/);
    expect(errors[2]).to.match(/HOST:PORT/);
    expect(errors[3]).to.match(/no path/);
    // Both would be EACCES and EADDRINUSE.
    expect(errors[4]).to.match(/there is no directory \/nowhere$/);
    expect(errors[5]).to.match(/65535/);
    expect(errors[6]).to.match(/something else with that name/);
  });
});
