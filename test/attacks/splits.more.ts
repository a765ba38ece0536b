import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { expect } from 'chai';
import {
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { ResourceFiles } from '../e2e/support/files.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import {
  ADS,
  block,
  callFields,
  data,
  Flag,
  frameHeader,
  headers,
  PREFACE,
  settings,
  Type,
} from './support/frames.ts';
import { clusters } from './support/rest-calls.ts';
import { TenantFiles, tenantsTls } from './support/tenants.ts';

type Door = 'xds' | 'rest' | 'admin' | 'metrics';

interface Request {
  readonly name: string;
  readonly door: Door;
  readonly protocol: 'http/1.1' | 'h2';
  readonly bytes: Buffer;
  /** What is the same in each answer, once all of it is there. */
  readonly answer: (received: Buffer, ended: boolean) => string | undefined;
}

/** How long the relay has to read what came, before more comes. Milliseconds. */
const pause = 5;
const atOnce = 25;

/** Status, type and body of a connection that ends with its answer. */
const wholeAnswer = (received: Buffer, ended: boolean): string | undefined => {
  if (!ended) return undefined;
  const [head = '', ...body] = received.toString('latin1').split('\r\n\r\n');
  const [status = '', ...fields] = head.split('\r\n');
  return [status, ...fields.filter((field) => /^content-type/i.test(field)), ...body].join('\n');
};

/** The samples of metrics change from one scrape to the next. */
const namesOfMetrics = (received: Buffer, ended: boolean): string | undefined =>
  wholeAnswer(received, ended)
    ?.split('\n')
    .filter((line, at) => at < 2 || line.startsWith('# TYPE distributary_'))
    .join('\n');

/** The payload of DATA on stream 1, and whether the stream has ended. */
function stream1(received: Buffer): { readonly payload: Buffer; readonly ended: boolean } {
  const payload: Buffer[] = [];
  let ended = false;
  for (let at = 0; at + frameHeader <= received.length; ) {
    const length = received.readUIntBE(at, 3);
    const end = at + frameHeader + length;
    if (end > received.length) break;
    const [type, flags = 0] = received.subarray(at + 3);
    if (received.readUInt32BE(at + 5) === 1) {
      if (type === Type.DATA) payload.push(received.subarray(at + frameHeader, end));
      const ends = type === Type.DATA || type === Type.HEADERS;
      ended ||= type === Type.RST_STREAM || (ends && (flags & Flag.END_STREAM) !== 0);
    }
    at = end;
  }
  return { payload: Buffer.concat(payload), ended };
}

const bodyOfStream = (received: Buffer, closed: boolean): string | undefined => {
  const { payload, ended } = stream1(received);
  return ended || closed ? payload.toString() : undefined;
};

const grpcPrefix = 5;

/** Version and resources of the first response, or how the stream ended without one. */
const firstResponse = (received: Buffer, closed: boolean): string | undefined => {
  const { payload, ended } = stream1(received);
  const end = payload.length < grpcPrefix ? Number.NaN : grpcPrefix + payload.readUInt32BE(1);
  if (payload.length < end || Number.isNaN(end)) return ended || closed ? 'no response' : undefined;
  const { versionInfo, resources } = fromBinary(DiscoveryResponseSchema, payload.subarray(grpcPrefix, end));
  return JSON.stringify([versionInfo, resources.map(({ value }) => Buffer.from(value).toString('latin1'))]);
};

const http1 = (method: string, path: string, body = ''): Buffer =>
  Buffer.from(
    `${method} ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );

const poll = '{"node":{"id":"cut"}}';
const subscribe = toBinary(
  DiscoveryRequestSchema,
  create(DiscoveryRequestSchema, { node: { id: 'cut' }, typeUrl: typeOf('cds') }),
);
const connection = Buffer.concat([PREFACE, settings()]);
const pollFields = callFields(clusters).map(([name, value]): [string, string] => [
  name,
  name === 'content-type' ? 'application/json' : value,
]);

const requests: readonly Request[] = [
  {
    name: 'a stream on ADS',
    door: 'xds',
    protocol: 'h2',
    bytes: Buffer.concat([connection, headers(1, block(callFields(ADS))), data(1, frameOf(subscribe))]),
    answer: firstResponse,
  },
  {
    name: 'a poll over HTTP/1.1',
    door: 'rest',
    protocol: 'http/1.1',
    bytes: http1('POST', clusters, poll),
    answer: wholeAnswer,
  },
  {
    name: 'a poll over HTTP/2',
    door: 'rest',
    protocol: 'h2',
    bytes: Buffer.concat([
      connection,
      headers(1, block(pollFields)),
      data(1, Buffer.from(poll), Flag.END_STREAM),
    ]),
    answer: bodyOfStream,
  },
  {
    name: 'GET /healthz',
    door: 'admin',
    protocol: 'http/1.1',
    bytes: http1('GET', '/healthz'),
    answer: wholeAnswer,
  },
  {
    name: 'AdminService by Connect',
    door: 'admin',
    protocol: 'http/1.1',
    bytes: http1('POST', '/distributary.admin.v1.AdminService/ListResources', '{"type":"cds"}'),
    answer: wholeAnswer,
  },
  {
    name: 'GET /metrics',
    door: 'metrics',
    protocol: 'http/1.1',
    bytes: http1('GET', '/metrics'),
    answer: namesOfMetrics,
  },
];

async function connectTo(address: string): Promise<Socket> {
  const [host = '', port = ''] = address.split(':');
  const socket = connect({ host, port: Number(port), noDelay: true });
  await once(socket, 'connect');
  return socket;
}

/** The answer to what comes in these pieces. */
async function answerTo(stream: Duplex, { answer }: Request, pieces: readonly Buffer[]): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const received: Buffer[] = [];
  const look = (ended: boolean): void => {
    const whole = answer(Buffer.concat(received), ended);
    if (whole !== undefined) resolve(whole);
  };
  stream.on('data', (chunk: Buffer) => {
    received.push(chunk);
    look(false);
  });
  stream.on('error', () => {});
  stream.on('close', () => {
    look(true);
    resolve('the connection closed');
  });
  for (const [at, piece] of pieces.entries()) {
    if (at > 0) await sleep(pieces.length > 2 ? 1 : pause);
    stream.write(piece);
  }
  const answered = await promise;
  stream.destroy();
  return answered;
}

/** So long bytes come slowly, of each flight: the relay gives a handshake 15 s. Milliseconds. */
const slowlyMs = 5000;

/** Sends each byte by itself. */
function trickling(socket: Socket): Duplex {
  const stream = new Duplex({
    read: () => {
      socket.resume();
    },
    write: (chunk: Buffer, _encoding, done) => {
      void (async () => {
        const began = performance.now();
        for (const byte of chunk) {
          socket.write(Buffer.of(byte));
          await (performance.now() - began < slowlyMs ? sleep(1) : turn());
        }
        done();
      })();
    },
    destroy: (error, done) => {
      socket.destroy();
      done(error);
    },
  });
  socket.on('data', (chunk: Buffer) => stream.push(chunk));
  socket.on('end', () => stream.push(null));
  socket.on('error', () => {});
  socket.on('close', () => stream.destroy());
  return stream;
}

/**
 * Left out: the sockets between the primary and its workers, which only this user reaches and which Node's own server
 * reads; TLS on `metrics`, which has none.
 */
for (const workers of [0, 1]) {
  describe(`requests in pieces, with workers: ${workers}`, () => {
    let stack: AsyncDisposableStack;
    let plain: RelayProcess;
    let secure: RelayProcess;

    before(async () => {
      stack = new AsyncDisposableStack();
      const files = stack.use(new ResourceFiles());
      files.write('cds', new Map([['shop', '1']]));
      const { tls } = stack.use(new TenantFiles());
      const config = { upstreams: [files.upstream], workers };
      plain = stack.use(await RelayProcess.start({ ...config, rest: {}, metrics: {} }));
      const { require_client_certificate: _, ...admin } = tls;
      const listeners = { xds: { tls }, rest: { tls }, admin: { tls: admin } };
      secure = stack.use(await RelayProcess.start({ ...config, ...listeners }));
    });

    after(() => stack.disposeAsync());

    for (const request of requests) {
      const { name, door, bytes, protocol } = request;
      // The admin and metrics listeners are those of the primary: the same without workers.
      if (workers > 0 && door !== 'xds' && door !== 'rest') continue;

      it(`${door}: ${name}: cut at every byte, and byte by byte`, async () => {
        const ask = async (...pieces: readonly Buffer[]): Promise<string> =>
          answerTo(await connectTo(plain[door]), request, pieces);
        const whole = await ask(bytes);
        expect(whole).to.match(/^HTTP\/1\.1 200|shop/);
        const wrong: string[] = [];
        for (let from = 1; from < bytes.length; from += atOnce) {
          const cuts = Array.from({ length: Math.min(atOnce, bytes.length - from) }, (_, at) => from + at);
          const answers = cuts.map((at) => ask(bytes.subarray(0, at), bytes.subarray(at)));
          for (const [index, answer] of (await Promise.all(answers)).entries())
            if (answer !== whole) wrong.push(`cut at ${cuts[index] ?? 0}: ${answer.slice(0, 200)}`);
        }
        expect(wrong).to.deep.equal([]);
        expect(await ask(...Array.from(bytes, (byte) => Buffer.of(byte)))).to.equal(whole);
      });

      if (door === 'metrics') continue;
      it(`${door}: ${name}: through TLS, byte by byte, the handshake too`, async () => {
        const ask = async (slow: boolean): Promise<string> => {
          const socket = await connectTo(secure[door]);
          const { ca, serverName = '', attacker } = tenantsTls;
          const stream = connectTls({
            socket: slow ? trickling(socket) : socket,
            ca,
            servername: serverName,
            cert: attacker?.certificate,
            key: attacker?.privateKey,
            ALPNProtocols: [protocol],
          });
          await once(stream, 'secureConnect');
          return answerTo(stream, request, [bytes]);
        };
        const whole = await ask(false);
        expect(whole).to.match(/^HTTP\/1\.1 200|shop/);
        expect(await ask(true)).to.equal(whole);
      });
    }
  });
}
