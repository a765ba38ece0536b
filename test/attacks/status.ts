/** Attacks by the services beside xDS: health, reflection, CSDS. */
import { create, toBinary } from '@bufbuild/protobuf';
import { ClientStatusRequestSchema } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import type { Attack } from './support/attack.ts';
import { WELL_BEHAVED } from './support/bystander-messages.ts';
import { answerOf, rawCall } from './support/calls.ts';
import { data, Setting } from './support/frames.ts';
import { SECRET } from './support/tenants.ts';

const WATCH = '/grpc.health.v1.Health/Watch';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const CSDS = '/envoy.service.status.v3.ClientStatusDiscoveryService';
const empty = frameOf(Buffer.alloc(0));

export const status: readonly Attack[] = [
  {
    name: 'a hundred watches of the health service that read nothing',
    async run(arena) {
      const connection = arena.session();
      connection.settings({ initialWindowSize: 0 });
      for (let each = 0; each < 100; each++) rawCall(connection, WATCH).stream.write(empty);
      const { stream, ended } = rawCall(arena.session(), '/grpc.health.v1.Health/Check');
      stream.end(empty);
      await ended;
    },
  },
  {
    name: 'reflection: thousands of questions for the largest file on one stream',
    async run(arena) {
      const { stream, ended } = rawCall(arena.session(), REFLECTION);
      const symbol = Buffer.from('envoy.service.discovery.v3.AggregatedDiscoveryService');
      const question = frameOf(Buffer.concat([Buffer.of(0x22, symbol.length), symbol]));
      stream.end(Buffer.concat(Array.from({ length: 500 }, () => question)));
      await ended;
    },
  },
  {
    name: 'reflection: the same, and no answer is read',
    async run(arena) {
      const connection = await arena.raw({ settings: [[Setting.INITIAL_WINDOW_SIZE, 0]] });
      const stream = await connection.call(REFLECTION);
      const symbol = Buffer.from('envoy.service.discovery.v3.AggregatedDiscoveryService');
      const question = frameOf(Buffer.concat([Buffer.of(0x22, symbol.length), symbol]));
      await connection.flood(
        dataOf(
          stream,
          Array.from({ length: 100 }, () => question),
        ),
        { bytes: 200_000, milliseconds: 300 },
      );
    },
  },
  {
    name: 'CSDS with 10,000 matchers, and of paths of 1,000 keys',
    async run(arena) {
      const exact = { nodeId: { matchPattern: { case: 'exact' as const, value: 'x'.repeat(100) } } };
      const path = Array.from({ length: 1000 }, () => ({ segment: { case: 'key' as const, value: 'k' } }));
      const deep = {
        nodeMetadatas: [{ path, value: { matchPattern: { case: 'presentMatch' as const, value: true } } }],
      };
      for (const nodeMatchers of [
        Array.from({ length: 10_000 }, () => exact),
        Array.from({ length: 100 }, () => deep),
      ]) {
        const call = arena.call(arena.channel(), `${CSDS}/FetchClientStatus`);
        call.write(
          Buffer.from(
            toBinary(ClientStatusRequestSchema, create(ClientStatusRequestSchema, { nodeMatchers })),
          ),
        );
        call.end();
        await answerOf(call);
      }
    },
  },
  {
    name: 'CSDS: thousands of questions on one stream',
    async run(arena) {
      const { stream, ended } = rawCall(arena.session(), `${CSDS}/StreamClientStatus`);
      stream.end(Buffer.concat(Array.from({ length: 2000 }, () => empty)));
      await ended;
    },
  },
  {
    name: 'CSDS with regular expressions that become huge programs',
    async run(arena) {
      for (const regex of ['x{1000}'.repeat(1000), '(x{1000}){1000}', '((a{1,30}){1,30}){1,30}']) {
        const value = { regex };
        const pattern = { nodeId: { matchPattern: { case: 'safeRegex' as const, value } } };
        const request = { nodeMatchers: Array.from({ length: 8 }, () => pattern) };
        const call = arena.call(arena.channel(), `${CSDS}/FetchClientStatus`);
        call.write(
          Buffer.from(toBinary(ClientStatusRequestSchema, create(ClientStatusRequestSchema, request))),
        );
        call.end();
        const { code } = await answerOf(call);
        if (code !== Code.INVALID_ARGUMENT && code !== Code.PERMISSION_DENIED)
          throw new Error(`${regex.slice(0, 30)}: ${code}`);
      }
    },
  },
  {
    name: 'CSDS of another connection: no stream of anybody else, nothing of the relay itself',
    async run(arena) {
      const matcher = { nodeId: { matchPattern: { case: 'prefix' as const, value: '' } } };
      for (const request of [
        {},
        { node: { id: WELL_BEHAVED, cluster: 'tenants' } },
        { nodeMatchers: [matcher] },
      ]) {
        const call = arena.call(arena.channel(), `${CSDS}/FetchClientStatus`);
        call.write(
          Buffer.from(toBinary(ClientStatusRequestSchema, create(ClientStatusRequestSchema, request))),
        );
        call.end();
        const { bytes } = await answerOf(call);
        for (const secret of [WELL_BEHAVED, SECRET, 'red-', 'relay'])
          if (bytes.includes(secret))
            throw new Error(`the answer of ${bytes.length} bytes tells of ${secret}`);
      }
    },
  },
];

const dataOf = (stream: number, messages: readonly Buffer[]): Buffer => data(stream, Buffer.concat(messages));
