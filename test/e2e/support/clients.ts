import { ok, type Result } from '../../../src/model/result.ts';
import { startBackend } from './backend.ts';
import { Envoy, sourceOf, type Transport } from './envoy.ts';
import { currentEnvoy, envoyBinary } from './envoy-binary.ts';
import { eventually } from './eventually.ts';
import { goBinary } from './go.ts';
import { startGrpcBackend } from './grpc-backend.ts';
import { grpcJavaClient } from './grpc-java.ts';
import { GrpcXdsClient, grpcJsClient } from './grpc-xds.ts';
import { grpcioClient } from './grpcio.ts';
import type { Spawn } from './process.ts';
import { CLUSTER, envoyService, grpcService, listener, type Resource } from './resources.ts';

/** A client that runs, as a test uses it: it has services, and a service is a way to a backend. */
export interface Client extends AsyncDisposable {
  version(): Promise<string>;
  /** Makes requests until the backend of this name answers. */
  answers(service: string, backend: string): Promise<void>;
  /** How often it has rejected listeners, for clients that cannot tell the relay: REST has no NACK. */
  readonly rejections?: () => Promise<number>;
  /** One request: `answer BACKEND`, or what went wrong. It waits a few seconds for its configuration. */
  request(service: string): Promise<string>;
}

interface StartOptions {
  /** HOST:PORT of its xDS server, which for REST is the listener `rest`. */
  readonly xds: string;
  readonly id: string;
}

export type Start = (options: StartOptions) => Promise<Client>;

interface Missing {
  /** As in docs/compatibility.md. */
  readonly name: string;
  readonly outcome: RegExp;
  /** It comes when the client has waited for the name, and not when a request has. */
  readonly waits: boolean;
}

const unavailable: Missing = { name: 'UNAVAILABLE', outcome: /^error 14 /, waits: true };
/** grpc-js 1.14 fails no call because a name does not exist, with or without a relay: each waits for its deadline. */
const deadline: Missing = {
  name: 'DEADLINE_EXCEEDED',
  outcome: /^error 4 .*waiting for name resolution/,
  waits: false,
};
const notFound: Missing = { name: '404', outcome: /^error 404$/, waits: true };

/** A client that people have, and how they let it ask. */
export interface ClientKind {
  /** As in docs/compatibility.md. */
  readonly name: string;
  /** Of clients that are tried in several versions. The page has what a client says of itself. */
  readonly version?: string;
  /** As in docs/compatibility.md. */
  readonly transport: string;
  /** What the titles of the tests call it. */
  readonly title: string;
  /** The labels of its streams in `distributary_downstream_streams`; without them it polls over REST. */
  readonly streams: string | undefined;
  /** Fetches or builds it; the error says why there is none. */
  readonly find: () => Promise<Result<Start>>;
  readonly backend: (name: string) => Promise<{ readonly port: number } & AsyncDisposable>;
  readonly service: (name: string, port: number) => readonly Resource[];
  /** What is wrong with a service: a resource that this client rejects. It replaces one of the service, or is new. */
  readonly rejected: (name: string) => Resource;
  /** What refers to a service that does not exist: gRPC clients need nothing, the target names it. */
  readonly dangling: (name: string) => readonly Resource[];
  /** What a request gets when the service does not exist. */
  readonly missing: Missing;
}

function grpc(name: string, program: () => Promise<Result<Spawn>>, missing = unavailable): ClientKind {
  return {
    name,
    transport: 'ADS, SotW',
    title: name,
    streams: 'transport="sotw",service="ads"',
    find: async () => {
      const found = await program();
      return found.ok ? ok(async (options: StartOptions) => startGrpc(options, found.value)) : found;
    },
    backend: startGrpcBackend,
    service: grpcService,
    // gRPC knows EDS, LOGICAL_DNS and aggregates.
    rejected: (name) => ({
      '@type': CLUSTER,
      name: `${name}-cluster`,
      type: 'STATIC',
      connect_timeout: '1s',
    }),
    dangling: () => [],
    missing,
  };
}

function startGrpc(options: StartOptions, program: Spawn): Client {
  const client = new GrpcXdsClient(options, program);
  return {
    version: () => client.version(),
    answers: (service, backend) => client.answers(service, backend),
    request: (service) => client.call(service),
    [Symbol.asyncDispose]: () => client[Symbol.asyncDispose](),
  };
}

const envoyTransports = {
  'ads-sotw': ['ADS, SotW', 'transport="sotw",service="ads"'],
  'ads-delta': ['ADS, delta', 'transport="delta",service="ads"'],
  grpc: ['a service per type, SotW', 'transport="sotw",service="cds"'],
  'delta-grpc': ['a service per type, delta', 'transport="delta",service="cds"'],
  rest: ['REST', undefined],
} as const;

function envoy(transport: Transport, version: string = currentEnvoy): ClientKind {
  const [asked, streams] = envoyTransports[transport];
  const source = sourceOf(transport);
  return {
    name: 'Envoy',
    transport: asked,
    version,
    title: `Envoy ${version}, ${asked}`,
    streams,
    find: async () => {
      const found = await envoyBinary(version);
      return found.ok ? ok((options: StartOptions) => startEnvoy(found.value, transport, options)) : found;
    },
    backend: startBackend,
    service: (name, port) => envoyService(name, port, source),
    rejected: () => ({
      ...listener('rejected', 'nothing', source),
      filter_chains: [{ filters: [{ name: 'no such filter' }] }],
    }),
    dangling: (name) => [listener(name, `${name}-routes`, source)],
    missing: notFound,
  };
}

/** Within this time, in milliseconds, Envoy asks again: its backoff is random, and grows while the relay is down. */
const reconnect = 60_000;

async function startEnvoy(binary: string, transport: Transport, options: StartOptions): Promise<Client> {
  const envoy = await Envoy.start(binary, { ...options, transport });
  return {
    version: () => envoy.version(),
    ...(transport === 'rest' ? { rejections: () => envoy.stat('listener_manager.lds.update_rejected') } : {}),
    answers: (service, backend) => envoy.answers(service, '/', backend, reconnect),
    request: (service) =>
      eventually(async () => {
        const { status, body } = await envoy.get(service, '/');
        return status === 200 ? `answer ${body}` : `error ${status}`;
      }),
    [Symbol.asyncDispose]: () => envoy[Symbol.asyncDispose](),
  };
}

const grpcGoClient = async (): Promise<Result<Spawn>> => {
  const found = await goBinary('grpcclient');
  return found.ok ? ok({ command: found.value, args: [] }) : found;
};

/** Those of `npm test`. */
export const clientsOfTest: readonly ClientKind[] = [
  grpc('grpc-go', grpcGoClient),
  grpc('grpcio (C-core)', grpcioClient),
  grpc('grpc-js', async () => ok(grpcJsClient), deadline),
  envoy('ads-sotw'),
  envoy('ads-delta'),
];

/** Those of `npm run test:long`. */
export const clientsOfLongTest: readonly ClientKind[] = [
  grpc('grpc-java', grpcJavaClient),
  envoy('grpc'),
  envoy('delta-grpc'),
  envoy('rest'),
  envoy('ads-sotw', '1.38.3'),
  envoy('ads-delta', '1.38.3'),
  envoy('ads-sotw', '1.36.4'),
  envoy('ads-delta', '1.36.4'),
];
