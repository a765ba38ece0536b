import { once } from 'node:events';
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2';
import { createConnection } from 'node:net';
import { Code as ConnectCode, ConnectError } from '@connectrpc/connect';
import { expect } from 'chai';
import { Health, HealthCheckResponse_ServingStatus as Status } from '../../src/gen/health_pb.ts';
import { type CallKind, ConnectPaths, callKey } from '../../src/wire/connect.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { closeServers, serve } from './serve.ts';

const check = '/grpc.health.v1.Health/Check';
const watch = '/grpc.health.v1.Health/Watch';
const list = '/grpc.health.v1.Health/List';
const empty = Buffer.alloc(5);
const stalledMilliseconds = 60_000;

describe('bounds of cold calls', () => {
  const sessions: ClientHttp2Session[] = [];
  let clock: VirtualClock;
  let refused: string[];
  let address: string;
  let paths: ConnectPaths;
  let answer: { size: number; pieces?: readonly Buffer[] };

  const kinds: Readonly<Record<string, CallKind>> = {
    Check: { name: 'checks', max: 4, maxPerPeer: 3, whenExceeded: 'ENDS_OLDEST' },
    Watch: { name: 'watches', max: 4, maxPerPeer: 3, whenExceeded: 'REFUSED' },
    List: { name: 'lists', max: 10, maxPerPeer: 10, whenExceeded: 'REFUSED' },
  };

  beforeEach(async () => {
    clock = new VirtualClock();
    refused = [];
    answer = { size: 0 };
    paths = new ConnectPaths({
      clock,
      stalledMilliseconds: () => stalledMilliseconds,
      services: [
        {
          maxRequestBytes: 1000,
          kindOf: (path) => {
            const kind = kinds[path.slice(path.lastIndexOf('/') + 1)];
            if (kind === undefined) throw new Error(path);
            return kind;
          },
          routes: (router) =>
            router.service(Health, {
              check: () => ({ status: Status.SERVING }),
              async *watch(_, { signal }) {
                yield { status: Status.SERVING };
                await once(signal, 'abort');
                throw new ConnectError('gone', ConnectCode.Canceled);
              },
              list(_, { values }) {
                if (answer.pieces !== undefined) values.get(callKey)?.answerWith(answer.pieces);
                return { statuses: { ['x'.repeat(answer.size)]: { status: Status.SERVING } } };
              },
            }),
        },
      ],
      refused: (reason) => refused.push(reason),
    });
    const server = await serve({ accept: () => undefined, auxiliary: paths });
    address = server.address;
  });

  afterEach(async () => {
    for (const session of sessions.splice(0)) session.destroy();
    await closeServers();
  });

  /** From an address of its own: another peer. */
  function peer(number = 1): ClientHttp2Session {
    const { hostname: host, port } = new URL(`http://${address}`);
    const socket = { host, port: Number(port), localAddress: `127.0.0.${number}` };
    const session = connect(`http://${address}`, { createConnection: () => createConnection(socket) });
    sessions.push(session);
    return session;
  }

  function open(session: ClientHttp2Session, path: string, body?: Buffer): ClientHttp2Stream {
    const stream = session.request(
      { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
      { endStream: false },
    );
    stream.on('error', () => undefined);
    if (body !== undefined) stream.end(body);
    return stream;
  }

  /** Of a stream that says how it ended: in trailers, or in headers alone. */
  async function outcome(stream: ClientHttp2Stream): Promise<number> {
    let status: number | undefined;
    const look = (headers: IncomingHttpHeaders): void => {
      if (headers['grpc-status'] !== undefined) status = Number(headers['grpc-status']);
    };
    stream.on('response', look).on('trailers', look);
    stream.resume();
    if (!stream.closed) await once(stream, 'close');
    if (status === undefined) throw new Error(`reset with ${stream.rstCode}`);
    return status;
  }

  it('when the relay ends, what is open ends, and what comes after is UNAVAILABLE', async () => {
    const session = peer();
    const watching = open(session, watch, empty);
    const ended = outcome(watching);
    await once(watching, 'data');
    paths.shutDown();
    expect(await ended).to.not.equal(Code.OK);
    expect(await outcome(open(session, check, empty))).to.equal(Code.UNAVAILABLE);
  });

  it('the same if nothing is open then', async () => {
    paths.shutDown();
    expect(await outcome(open(peer(), check, empty))).to.equal(Code.UNAVAILABLE);
  });

  it('questions that are never finished: the oldest ends, and each new one that is finished is answered', async () => {
    const session = peer();
    const half = Array.from({ length: 6 }, () => open(session, check));
    expect(await Promise.all(half.slice(0, 3).map(outcome))).to.deep.equal([8, 8, 8]);
    for (let asked = 0; asked < 5; asked++) {
      expect(await outcome(open(session, check, empty))).to.equal(Code.OK);
    }
    expect(refused.every((reason) => reason === 'calls')).to.equal(true);
  });

  it('the same from many peers', async () => {
    for (let number = 1; number <= 6; number++) open(peer(number), check);
    expect(await outcome(open(peer(20), check, empty))).to.equal(Code.OK);
  });

  it('watches: as many as a peer and all peers may have, then RESOURCE_EXHAUSTED until one ends', async () => {
    const session = peer();
    const first = Array.from({ length: 3 }, () => open(session, watch, empty));
    await Promise.all(first.map((stream) => once(stream, 'response')));
    expect(await outcome(open(session, watch, empty))).to.equal(Code.RESOURCE_EXHAUSTED);
    const other = open(peer(2), watch, empty);
    await once(other, 'response');
    expect(await outcome(open(peer(3), watch, empty))).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(await outcome(open(session, check, empty)), 'a check meanwhile').to.equal(Code.OK);
    other.close(constants.NGHTTP2_CANCEL);
    for (;;) {
      const again = open(peer(4), watch, empty);
      const headers = await new Promise<IncomingHttpHeaders>((resolve) => again.once('response', resolve));
      if (headers['grpc-status'] === undefined) break;
    }
    expect(refused).to.include('calls');
  });

  it('a request that is never finished ends after limits.stalled_timeout, however it trickles', async () => {
    const stream = open(peer(), list);
    const ended = outcome(stream);
    await once(stream, 'ready').catch(() => undefined);
    for (let sent = 0; sent < 4; sent++) {
      stream.write(empty.subarray(0, 1));
      await settled(stream);
      clock.advance(stalledMilliseconds / 3);
    }
    clock.advance(1000);
    expect(await ended).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(refused).to.deep.equal(['stalled']);
  });

  it('an answer that is not read ends after limits.stalled_timeout', async () => {
    answer.size = 4 << 20; // more than any window
    const stream = open(peer(), list, empty);
    await once(stream, 'response');
    stream.pause();
    const closed = new Promise((resolve) => stream.once('close', resolve));
    clock.advance(stalledMilliseconds + 2000);
    await closed;
    expect(stream.rstCode).to.equal(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(refused).to.deep.equal(['stalled']);
  });

  it('an answer that is read slowly is read to its end', async () => {
    answer.pieces = Array.from({ length: 12 }, () => Buffer.alloc(1 << 18));
    const stream = open(peer(), list, empty);
    let [size, next] = [0, 0];
    stream.on('data', ({ length }: Buffer) => {
      size += length;
      if (size >= next) stream.pause();
    });
    for (next = 300_000; next < 12 << 18; next += 300_000) {
      if (size < next) await once(stream.resume(), 'pause');
      await settled(stream);
      clock.advance(stalledMilliseconds / 3);
    }
    expect(await outcome(stream)).to.equal(Code.OK);
    expect(refused).to.deep.equal([]);
  });

  it('a watch whose client reads lasts', async () => {
    const stream = open(peer(), watch, empty);
    stream.resume();
    await once(stream, 'data');
    clock.advance(stalledMilliseconds * 5);
    await settled(stream);
    expect(stream.closed).to.equal(false);
    expect(refused).to.deep.equal([]);
  });
});

/** The server has seen all that was sent before. */
async function settled(stream: ClientHttp2Stream): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    stream.session?.ping((error) => (error === null ? resolve() : reject(error)));
  });
}
