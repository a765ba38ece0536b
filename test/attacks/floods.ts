/** Every door at full speed, from one peer: what `fairness.alone.more.ts` has a well-behaved client wait beside. */
import { once } from 'node:events';
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { create, toBinary } from '@bufbuild/protobuf';
import {
  DeltaDiscoveryRequestSchema,
  DiscoveryRequestSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { frameOf } from '../../src/wire/grpc-frames.ts';
import { attacks as largest } from '../e2e/support/largest-requests.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import type { Arena, Attack } from './support/attack.ts';
import { rawCall } from './support/calls.ts';
import { ADS, block, callFields, headers, reset } from './support/frames.ts';
import { headOf, restSocket } from './support/rest-calls.ts';
import { type Target, tlsOptions } from './support/target.ts';

const DELTA = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources';
const FETCH = '/envoy.service.endpoint.v3.EndpointDiscoveryService/FetchEndpoints';
const CSDS = '/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
const CHECK = '/grpc.health.v1.Health/Check';
const WATCH = '/grpc.health.v1.Health/Watch';
const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
const symbol = Buffer.from('envoy.service.discovery.v3.AggregatedDiscoveryService');
const question = frameOf(Buffer.concat([Buffer.of(0x22, symbol.length), symbol]));
const empty = frameOf(Buffer.alloc(0));
/** So many calls are under way at once. */
const atOnce = 20;

const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));
let invented = 0;
const invent = (): string => `invented-${invented++}`;

/** Goes on until it is told to stop. */
const flood = (
  name: string,
  run: (arena: Arena, going: () => boolean) => Promise<unknown>,
  needs: Attack['needs'] = [],
): Flood => ({ name, needs, run });

export interface Flood extends Pick<Attack, 'name' | 'needs'> {
  readonly run: (arena: Arena, going: () => boolean) => Promise<unknown>;
}

/** A session, or another one when the relay has ended it. */
function sessions(arena: Arena): () => ClientHttp2Session {
  let session = arena.session();
  return () => {
    if (session.closed || session.destroyed) session = arena.session();
    return session;
  };
}

/** Calls, one after the other, of which each ends by itself. */
const calls = (name: string, path: string, message: () => Buffer): Flood =>
  flood(name, async (arena, going) => {
    const session = sessions(arena);
    await Promise.all(
      times(atOnce, async () => {
        while (going()) {
          const { stream, ended } = rawCall(session(), path);
          stream.end(message());
          await ended;
        }
      }),
    );
  });

/** Polls on keep-alive connections: as many at once on each as a connection may have. */
const polls = (name: string, path: string, body: () => string): Flood =>
  flood(
    name,
    async (arena, going) => {
      await Promise.all(
        times(atOnce, async () => {
          let socket: Socket | undefined;
          while (going()) {
            if (socket?.writable !== true) socket = (await restSocket(arena)).resume();
            const text = times(10, body)
              .map((each) => `${headOf(each.length, path)}${each}`)
              .join('');
            await written(socket, text);
          }
        }),
      );
    },
    ['REST'],
  );

/** Has been taken by the system, or never will be. */
async function written(stream: Socket | ClientHttp2Stream, bytes: string | Buffer): Promise<void> {
  if (stream.destroyed || !stream.writable) return;
  const closing = new AbortController();
  const { signal } = closing;
  const events = ['close', 'drain'].map((event) => once(stream, event, { signal }));
  if (!stream.write(bytes)) await Promise.race(events).catch(() => undefined);
  closing.abort();
  await Promise.allSettled(events);
  // The loop of the attacker itself must turn.
  await new Promise((resolve) => setImmediate(resolve));
}

const node = { id: 'attacker' };
const typeUrl = typeOf('eds');
const fetchRequest = (): Buffer =>
  frameOf(
    toBinary(
      DiscoveryRequestSchema,
      create(DiscoveryRequestSchema, { node, typeUrl, resourceNames: [invent()] }),
    ),
  );

/** Requests of one stream that change what it subscribes to, and take nothing more. */
function changes(): Buffer {
  const requests = times(50, () => {
    const names = [invent()];
    return [
      create(DeltaDiscoveryRequestSchema, { node, typeUrl, resourceNamesSubscribe: names }),
      create(DeltaDiscoveryRequestSchema, { typeUrl, resourceNamesUnsubscribe: names }),
    ];
  }).flat();
  return Buffer.concat(requests.map((each) => frameOf(toBinary(DeltaDiscoveryRequestSchema, each))));
}

async function handshake(target: Target): Promise<void> {
  const socket = connectTls({ ...tlsOptions(target), session: undefined });
  await once(socket, 'secureConnect').catch(() => undefined);
  socket.destroy();
}

export const floods: readonly Flood[] = [
  flood('small requests that change what 200 streams subscribe to', async (arena, going) => {
    const streams = (session: () => ClientHttp2Session): Promise<void>[] =>
      times(50, async () => {
        let stream: ClientHttp2Stream | undefined;
        while (going()) {
          if (stream?.writable !== true) stream = rawCall(session(), DELTA).stream;
          await written(stream, changes());
        }
      });
    await Promise.all(times(4, () => streams(sessions(arena))).flat());
  }),
  flood('requests of 4 MiB, of every kind', async (arena, going) => {
    const session = sessions(arena);
    while (going()) {
      for (const { protocol, requests } of largest) {
        if (!going()) return;
        const { stream, ended } = rawCall(session(), protocol === 'sotw' ? ADS : DELTA);
        for (const message of requests()) await written(stream, frameOf(message));
        stream.end();
        await ended;
      }
    }
  }),
  flood('streams that are opened and reset', async (arena, going) => {
    await Promise.all(
      times(4, async () => {
        while (going()) {
          const connection = await arena.raw();
          const call = block(callFields(ADS));
          const portion = (): Buffer[] =>
            times(50, () => {
              const stream = connection.next();
              return Buffer.concat([headers(stream, call), reset(stream)]);
            });
          while (going() && (await connection.send(...portion()))) {
            await new Promise((resolve) => setImmediate(resolve));
          }
          connection[Symbol.dispose]();
        }
      }),
    );
  }),
  calls('Fetch of ever different names', FETCH, fetchRequest),
  calls('CSDS', CSDS, () => empty),
  calls('Health/Check', CHECK, () => empty),
  calls('reflection', REFLECTION, () => question),
  flood('Health/Watch, opened and given up', async (arena, going) => {
    const session = sessions(arena);
    await Promise.all(
      times(atOnce, async () => {
        while (going()) {
          const { stream, ended } = rawCall(session(), WATCH);
          stream.write(empty);
          stream.once('data', () => stream.close(8));
          await ended;
        }
      }),
    );
  }),
  polls('polls of ever different names', '/v3/discovery:endpoints', () =>
    JSON.stringify({ node, resource_names: [invent()] }),
  ),
  polls('polls of 900 KB', '/v3/discovery:endpoints', () =>
    JSON.stringify({ node: { ...node, metadata: { a: times(60_000, () => ({ b: 1 })) } } }),
  ),
  polls('CSDS over REST', '/v3/discovery:client_status', () => '{}'),
  flood(
    'TLS handshakes',
    async ({ target }, going) => {
      await Promise.all(
        times(atOnce, async () => {
          while (going()) await handshake(target);
        }),
      );
    },
    ['TLS'],
  ),
];
