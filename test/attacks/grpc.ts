/** Attacks by what gRPC adds to HTTP/2: message prefixes, compression, metadata, calls that never go on. */
import { gzipSync } from 'node:zlib';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import type { Attack } from './support/attack.ts';
import { rawCall } from './support/calls.ts';
import { ADS, block, callFields, data, type Fields, Flag, headers, uint32 } from './support/frames.ts';
import type { RawConnection } from './support/raw-connection.ts';

const DELTA = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const CSDS = '/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
const CHECK = '/grpc.health.v1.Health/Check';
const MB = 1024 * 1024;

/** What a message says of its length; the first byte says whether it is compressed. */
const prefix = (compressed: number, length: number): Buffer =>
  Buffer.concat([Buffer.of(compressed), uint32(length)]);

/** Calls that the relay must end at once with one of these codes. */
const refused = (name: string, calls: readonly Wrong[]): Attack => ({
  name,
  async run(arena) {
    const session = arena.session();
    for (const { what, path = ADS, more = {}, bytes, codes } of calls) {
      const { stream, ended } = rawCall(session, path, more);
      stream.write(bytes);
      const status = await ended;
      if (!codes.map(String).includes(status))
        throw new Error(`${what}: ${status}, not ${codes.join(' or ')}`);
    }
  },
});

interface Wrong {
  readonly what: string;
  readonly path?: string;
  readonly more?: Readonly<Record<string, string>>;
  readonly bytes: Buffer;
  readonly codes: readonly number[];
}

export const grpc: readonly Attack[] = [
  refused('messages that promise too much, or cannot be read', [
    { what: '4 GB', bytes: prefix(0, 2 ** 32 - 1), codes: [Code.RESOURCE_EXHAUSTED] },
    { what: '64 MB', path: DELTA, bytes: prefix(0, 64 * MB), codes: [Code.RESOURCE_EXHAUSTED] },
    { what: 'compressed by nothing', bytes: prefix(1, 10), codes: [Code.INTERNAL, Code.UNIMPLEMENTED] },
    {
      what: 'an encoding that nobody knows',
      more: { 'grpc-encoding': 'zip-of-death' },
      bytes: Buffer.concat([prefix(1, 4), Buffer.alloc(4)]),
      codes: [Code.UNIMPLEMENTED, Code.INTERNAL],
    },
    { what: 'a flag of 7', bytes: prefix(7, 1), codes: [Code.INTERNAL, Code.UNIMPLEMENTED] },
    { what: 'noise', bytes: frameOf(Buffer.alloc(1000, 0xff)), codes: [Code.INVALID_ARGUMENT] },
  ]),
  {
    name: 'gzip bombs: 64 KB that become 64 MB',
    async run(arena) {
      const bomb = gzipSync(Buffer.alloc(64 * MB));
      const session = arena.session();
      for (const path of [ADS, DELTA, CHECK]) {
        const { stream, ended } = rawCall(session, path, { 'grpc-encoding': 'gzip' });
        stream.end(Buffer.concat([prefix(1, bomb.length), bomb]));
        const status = await ended;
        if (status === String(Code.OK)) throw new Error(`${path} took it`);
      }
    },
  },
  {
    name: 'hundreds of thousands of messages of 0 bytes',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await connection.call(ADS);
      const portion = data(stream, Buffer.alloc(16_000));
      await connection.flood(portion, { bytes: 4 * MB, milliseconds: 400 });
    },
  },
  {
    name: 'messages byte by byte, each in a frame of its own',
    async run(arena) {
      const connection = await arena.raw();
      const stream = await connection.call(ADS);
      const message = frameOf(Buffer.alloc(4000, 0x0a));
      const portion = Buffer.concat([...message].map((byte) => data(stream, Buffer.of(byte))));
      await connection.flood(portion, { bytes: 4 * MB, milliseconds: 400 });
    },
  },
  {
    name: 'calls that are no gRPC: methods, content types, without trailers, paths of 20 KB',
    async run(arena) {
      const connection = await arena.raw();
      const base = callFields(ADS);
      const without = (name: string): Fields => base.filter(([key]) => key !== name);
      const odd: readonly Fields[] = [
        ...['GET', 'PUT', 'CONNECT', 'OPTIONS', 'x'.repeat(1000)].map(
          (method): Fields => [[':method', method], ...without(':method')],
        ),
        ...['text/html', 'application/grpc-web', '', 'application/json'].map(
          (type): Fields => [...without('content-type'), ['content-type', type]],
        ),
        without('te'),
        without('content-type'),
        callFields(`/${'x'.repeat(20_000)}`),
        callFields('/envoy.api.v2.ClusterDiscoveryService/StreamClusters'),
        callFields('/../../etc/passwd'),
        callFields('//\0/%00'),
        callFields(CHECK, [['grpc-timeout', '999999999999999H']]),
        callFields(ADS, [['grpc-timeout', '-1n']]),
        callFields(ADS, [['x-strange-bin', '!!!not base64!!!']]),
        callFields(ADS, [['content-length', '5']]),
      ];
      for (let round = 0; round < 5; round++) {
        for (const fields of odd) {
          const flags = Flag.END_HEADERS | Flag.END_STREAM;
          if (!(await connection.send(headers(connection.next(), block(fields), flags)))) return;
        }
      }
      await connection.until(
        () => connection.goaway !== undefined || connection.closed || connection.ended.size >= 5 * odd.length,
        'answers',
      );
    },
  },
  {
    name: 'streams that are reset within a message',
    async run(arena) {
      const session = arena.session();
      for (let round = 0; round < 10; round++) {
        const calls = Array.from({ length: 20 }, () => rawCall(session, ADS));
        for (const { stream } of calls) stream.write(Buffer.concat([prefix(0, MB), Buffer.alloc(10_000)]));
        for (const { stream } of calls) stream.close(8);
        await Promise.all(calls.map(({ ended }) => ended));
      }
    },
  },
  {
    name: 'x-distributary-via of 28 KB, and another one on each of a hundred streams',
    async run(arena) {
      const session = arena.session();
      const paths = ['x'.repeat(28_000), ...Array.from({ length: 100 }, (_, at) => `relay-${at}`)];
      for (const via of paths) {
        const { stream } = rawCall(session, ADS, { 'x-distributary-via': via });
        const type = Buffer.from('type.googleapis.com/envoy.config.cluster.v3.Cluster');
        stream.write(frameOf(Buffer.concat([Buffer.of(0x12, 0, 0x22, type.length), type])));
      }
      // One that is answered after all of them were read.
      const { stream, ended } = rawCall(session, CHECK);
      stream.end(frameOf(Buffer.alloc(0)));
      await ended;
    },
  },
  {
    name: 'forty requests of 4 MB that never end',
    async run(arena) {
      const most = prefix(0, 4 * MB - 1);
      const half = Buffer.concat([most, Buffer.alloc(4 * MB - 100)]);
      const calls = Array.from({ length: 40 }, () => rawCall(arena.session(), ADS));
      for (const { stream } of calls) stream.write(half);
      await Promise.all(calls.map(({ ended }) => ended));
    },
  },
  {
    name: 'calls of every service beside xDS that never end',
    async run(arena) {
      const session = arena.session();
      const calls = [CHECK, '/grpc.health.v1.Health/List', CSDS, REFLECTION].flatMap((path) =>
        Array.from({ length: 50 }, () => rawCall(session, path)),
      );
      for (const { stream } of calls) stream.write(prefix(0, 1000));
      await Promise.all(calls.map(({ ended }) => ended));
    },
  },
  {
    name: 'five hundred calls of the health service at once',
    async run(arena) {
      const session = arena.session();
      const calls = Array.from({ length: 500 }, () => rawCall(session, CHECK));
      for (const { stream } of calls) stream.end(frameOf(Buffer.alloc(0)));
      await Promise.all(calls.map(({ ended }) => ended));
    },
  },
  {
    name: 'two thousand watches of the health service',
    async run(arena) {
      for (let each = 0; each < 4; each++) {
        const session = arena.session();
        for (let call = 0; call < 500; call++)
          rawCall(session, '/grpc.health.v1.Health/Watch').stream.end(frameOf(Buffer.alloc(0)));
      }
      const { stream, ended } = rawCall(arena.session(), CHECK);
      stream.end(frameOf(Buffer.alloc(0)));
      const status = await ended;
      if (status !== String(Code.OK)) throw new Error(`Check says ${status}`);
    },
  },
  {
    name: 'a thousand streams that say nothing: each is ended',
    async run(arena) {
      const silent = await arena.raws(10);
      const calls = (connection: RawConnection): readonly Buffer[] =>
        Array.from({ length: 100 }, () => headers(connection.next(), block(callFields(ADS))));
      for (const connection of silent) await connection.send(...calls(connection));
      const ended = (connection: RawConnection): boolean => connection.ended.size === 100;
      await Promise.all(silent.map((each) => each.until(() => ended(each), 'end of the streams', 20_000)));
    },
  },
];
