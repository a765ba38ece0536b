import { create, fromBinary, type MessageInitShape, toBinary } from '@bufbuild/protobuf';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { type Any, AnySchema, anyUnpack } from '@bufbuild/protobuf/wkt';
import type { StreamEvents } from '../../src/downstream/services.ts';
import type { StreamMetrics } from '../../src/downstream/stream-metrics.ts';
import { routes } from '../../src/downstream/xds-server.ts';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryRequestSchema,
  type DeltaDiscoveryResponse,
  DeltaDiscoveryResponseSchema,
  DiscoveryRequestSchema,
  type DiscoveryResponse,
  DiscoveryResponseSchema,
  DynamicParameterConstraintsSchema,
  type Resource,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import type { Access } from '../../src/model/access.ts';
import { resourceName, type TypeUrl } from '../../src/model/brand.ts';
import { type Constraints, parseConstraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { ok } from '../../src/model/result.ts';
import {
  type Holder,
  type Interest,
  type Put,
  type Transaction,
  transaction,
} from '../../src/model/transaction.ts';
import { typeByName, typeInfo } from '../../src/model/types.ts';
import type { Upstream, UpstreamState } from '../../src/model/upstream.ts';
import { Relay, type RelayOptions } from '../../src/relay.ts';
import { ALLOW_ALL } from '../../src/security/authorization.ts';
import { readClientNode } from '../../src/security/client-node.ts';
import { compileParameterRules, type ParameterRule } from '../../src/security/derive-parameters.ts';
import { unstamped } from '../../src/upstream/ads/stamp.ts';
import { StreamMachine } from '../../src/upstream/ads/stream-machine.ts';
import {
  originOfFeatures,
  PASSES_VARIANTS,
  UNKNOWN_NAMES,
  USER_AGENT,
} from '../../src/wire/between-relays.ts';
import type { GrpcStatus } from '../../src/wire/grpc-status.ts';
import type { Peer, ServerStream, StreamHandler } from '../../src/wire/server-stream.ts';
import { deltaResponse, parseItem, sotwResponse } from '../upstream/ads/responses.ts';
import { testPeer } from './peers.ts';
import { VirtualClock } from './virtual-clock.ts';

const peer = testPeer();

/** The type URL of a short name. */
export function type(short: string): TypeUrl {
  const url = typeByName(short);
  if (url === undefined) throw new Error(`no type ${short}`);
  return url;
}

/** The field of `any` for the content: no known type has it. */
const contentField = 1023;

/** An Any whose message has `name` in field 1 and `content` in a field that no known type has. */
export function any(url: TypeUrl, name: string, content: string): Any {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string(name);
  writer.tag(contentField, WireType.LengthDelimited).string(content);
  return create(AnySchema, { typeUrl: url, value: writer.finish() });
}

/** A Cluster whose endpoints go by another name than its own. */
export function cluster(name: string, content: string, serviceName: string): Put {
  const { value } = any(type('cds'), name, content);
  const service = Buffer.concat([Buffer.from([0x12, serviceName.length]), Buffer.from(serviceName)]);
  const config = Buffer.concat([Buffer.from([0x1a, service.length]), service]);
  const message = create(AnySchema, { typeUrl: type('cds'), value: Buffer.concat([value, config]) });
  return put(type('cds'), name, content, { any: toBinary(AnySchema, message) });
}

/** The content that `any` put in. */
export const contentOf = (value: Any | undefined): string => textOf(value, contentField);

export const nameOf = (value: Any | undefined): string => textOf(value, 1);

function textOf(value: Any | undefined, wanted: number): string {
  const reader = new BinaryReader(value?.value ?? new Uint8Array());
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === wanted && wire === WireType.LengthDelimited) return reader.string();
    reader.skip(wire, field);
  }
  return '';
}

/** key == value, all of them. */
export function when(pairs: Readonly<Record<string, string>>): Constraints {
  const constraints = Object.entries(pairs).map(([key, value]) => ({
    type: { case: 'constraint' as const, value: { key, constraintType: { case: 'value' as const, value } } },
  }));
  const message = create(
    DynamicParameterConstraintsSchema,
    constraints.length === 1 ? constraints[0] : { type: { case: 'andConstraints', value: { constraints } } },
  );
  const parsed = parseConstraints(toBinary(DynamicParameterConstraintsSchema, message), 64);
  if (!parsed.ok) throw new Error(parsed.error);
  return parsed.value;
}

export function put(url: TypeUrl, name: string, content: string, more: Partial<Put> = {}): Put {
  return {
    name: resourceName(name),
    constraints: UNCONSTRAINED,
    version: `v-${content}`,
    any: toBinary(AnySchema, any(url, name, content)),
    aliases: [],
    ttlMilliseconds: undefined,
    doNotCache: false,
    metadata: undefined,
    ...more,
  };
}

/** An upstream that says what the test says. */
export class ScriptedUpstream implements Upstream {
  readonly name: string = 'script';
  readonly interests = new Set<Interest>();
  /** Those that nobody subscribes to. */
  readonly idling = new Set<Interest>();
  /** Every subscribe and unsubscribe, in order. */
  readonly journal: string[] = [];
  down = false;
  /** Nobody subscribes to something any more. */
  unsubscribed: () => void = () => {};
  #claims: (url: TypeUrl, selector: string) => boolean = () => true;

  claimOnly(claims: (url: TypeUrl, selector: string) => boolean): void {
    this.#claims = claims;
  }

  claims(url: TypeUrl, selector: string): boolean {
    return this.#claims(url, selector);
  }

  subscribe(interest: Interest): void {
    this.interests.add(interest);
    this.journal.push(
      `+${typeInfo(interest.type).short} ${interest.selector} ${interest.parameters.key}`.trim(),
    );
  }

  resubscribe(interest: Interest): void {
    this.journal.push(
      `again ${typeInfo(interest.type).short} ${interest.selector} ${interest.parameters.key}`.trim(),
    );
  }

  unsubscribe(interest: Interest): void {
    for (const known of this.interests) {
      if (
        known.selector === interest.selector &&
        known.parameters === interest.parameters &&
        known.type === interest.type
      ) {
        this.interests.delete(known);
        this.idling.delete(known);
      }
    }
    this.journal.push(
      `-${typeInfo(interest.type).short} ${interest.selector} ${interest.parameters.key}`.trim(),
    );
    this.unsubscribed();
  }

  markIdle(interest: Interest): void {
    this.idling.add(interest);
  }

  markActive(interest: Interest): void {
    this.idling.delete(interest);
  }

  refusals(): undefined {
    return undefined;
  }

  suspects(): readonly [] {
    return [];
  }

  refusal(): undefined {
    return undefined;
  }

  state(): UpstreamState {
    return {
      kind: 'ads',
      connected: !this.down,
      everConnected: !this.down,
      down: this.down,
      endpoint: 'script',
      sessions: 1,
      staleSince: undefined,
      lastError: '',
      refusedStreams: 0,
    };
  }

  start(): void {}

  stop(): Promise<void> {
    return Promise.resolve();
  }
}

export const wildcardHolder: Holder = { key: 'script wildcard', upstream: 'script', role: 'wildcard' };
export const namedHolder: Holder = { key: 'script named', upstream: 'script', role: 'named' };

export interface InMemoryRelayOptions {
  readonly rules?: readonly ParameterRule[];
  readonly access?: (client: Peer) => Access;
  /** Instead of `rules` and `access`: as the product makes them of a configuration. */
  readonly clients?: () => Pick<RelayOptions['downstream'], 'context' | 'reapplyRules'>;
  readonly limits?: Partial<ReturnType<RelayOptions['downstream']['limits']>>;
  readonly constrained?: boolean;
  readonly contentVersions?: boolean;
  readonly maxCacheBytes?: number;
  readonly idleMilliseconds?: number;
  /** What counts responses and ACKs, by the relay's clock. */
  readonly measure?: (clock: VirtualClock) => Pick<StreamMetrics, 'response' | 'acknowledged'>;
  /** What hears of streams. */
  readonly streams?: Partial<RelayOptions['streams']>;
  readonly touched?: StreamEvents['touched'];
  readonly published?: RelayOptions['published'];
}

/** `env` and `version` from node.metadata. */
export const envAndVersion: readonly ParameterRule[] = ['env', 'version'].map((key) => ({
  key,
  from: `node.metadata.${key}`,
  authorities: [],
  pattern: undefined,
  default: undefined,
  values: [],
  trusted: false,
}));

/** The whole relay without sockets, files and real time: only its two seams are the test's. */
export class InMemoryRelay {
  readonly clock = new VirtualClock();
  readonly upstream = new ScriptedUpstream();
  readonly relay: Relay;
  /** What streams said of themselves. */
  readonly events: string[] = [];
  readonly ambiguous: string[] = [];
  /** Why variants left the cache, and how many. */
  readonly evicted: string[] = [];
  /** How often a client's node was decoded. */
  contexts = 0;
  readonly #deferred: (() => void)[] = [];

  constructor(options: InMemoryRelayOptions = {}) {
    const derivation = compileParameterRules(options.rules ?? envAndVersion);
    const access = options.access ?? (() => ALLOW_ALL);
    const short = (url: TypeUrl): string => typeInfo(url).short;
    const measured = options.measure?.(this.clock);
    const events: StreamEvents = {
      request: (url, kind) => this.events.push(`request ${short(url)} ${kind}`),
      response: (url, transport, response) => {
        this.events.push(`response ${short(url)}`);
        measured?.response(url, transport, response);
      },
      coalesced: (url, count) => this.events.push(`overtaken ${short(url)} ${count}`),
      overdue: (url, what, names) =>
        this.events.push(`overdue ${short(url)} ${what} ${names.join(' ')}`.trim()),
      rejected: (reason) => this.events.push(`rejected ${reason}`),
      nack: (url, _node, version, error) =>
        this.events.push(`nack ${short(url)} ${version} ${error.message}`),
      touched: options.touched ?? (() => undefined),
    };
    this.relay = new Relay({
      clock: this.clock,
      controlPlane: 'lab',
      idleMilliseconds: options.idleMilliseconds ?? 600_000,
      maxCacheBytes: () => options.maxCacheBytes ?? 2 ** 30,
      streams: {
        opened: () => {},
        changing: () => {},
        closed: () => {},
        ...options.streams,
      },
      published: options.published,
      defer: (run) => this.#deferred.push(run),
      events: {
        ambiguous: (_url, name) => this.ambiguous.push(name),
        lookedUp: () => undefined,
        answered: (url, { receivedAt, isAccepted }) => {
          if (isAccepted) measured?.acknowledged(url, receivedAt);
        },
        evicted: (reason, count) => this.evicted.push(`${reason} ${count}`),
        upstreamChanged: () => undefined,
      },
      downstream: {
        events,
        limits: () => ({
          maxSubscriptions: 100_000,
          changesPerSecond: 1_000_000,
          stalledMilliseconds: 60_000,
          firstRequestMilliseconds: 10_000,
          ...options.limits,
        }),
        constrained: () => options.constrained ?? false,
        contentVersions: () => options.contentVersions ?? false,
        legacyWildcard: (url) => typeInfo(url).legacyWildcard,
        reapplyRules: (client, from) =>
          options.clients === undefined
            ? { ...client, access: access(from) }
            : options.clients().reapplyRules(client, from),
        context: (bytes, from) => {
          if (options.clients !== undefined) return options.clients().context(bytes, from);
          this.contexts++;
          const node = readClientNode(bytes);
          if (!node.ok) return { ok: false, error: { code: 3, message: node.error } };
          const derived = derivation.of(node.value, from);
          return ok({
            selectionGroup: derived,
            nodeId: node.value.id,
            nodeKey: node.value.id,
            place: node.value.place,
            classKey: derived.for(undefined).key,
            mayBeCanary: true,
            cluster: node.value.cluster,
            wrapped: node.value.clientFeatures.includes('xds.config.resource-in-sotw'),
            ttl: node.value.clientFeatures.includes('xds.config.supports-resource-ttl'),
            access: access(from),
            exempt: false,
            relay: node.value.userAgentName === USER_AGENT,
            isEnvoy: node.value.userAgentName === 'envoy',
            unknownNames: node.value.clientFeatures.includes(UNKNOWN_NAMES),
            passesVariants: node.value.clientFeatures.includes(PASSES_VARIANTS),
            loadOrigin: originOfFeatures(node.value.clientFeatures),
            derived: (authority) => derived.for(authority),
            merged: (own, authority) => derived.merge(own, authority),
          });
        },
      },
    });
    this.relay.start([this.upstream]);
  }

  /** Lets everything that was deferred happen. */
  settle(): void {
    while (this.#deferred.length > 0) this.turn();
  }

  /** Lets what is deferred now happen, and nothing that it defers itself. */
  turn(): void {
    for (const run of this.#deferred.splice(0)) run();
  }

  /** Upstream says something. Interests in it that are wildcards of the type are settled unless `resolved` is given. */
  says(part: Partial<Transaction> & { readonly type: TypeUrl }): void {
    const holder = part.holder ?? wildcardHolder;
    const resolved = part.resolved ?? [...this.upstream.interests].filter((one) => one.type === part.type);
    this.relay.apply(transaction({ holder, version: '1', ...part, resolved }));
    this.settle();
  }

  /** The full state of a type. */
  full(short: string, resources: Readonly<Record<string, string>>, version = '1'): void {
    const url = type(short);
    const puts = Object.entries(resources).map(([name, content]) => put(url, name, content));
    this.says({ type: url, puts, complete: true, version });
  }

  sotw(
    path = '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources',
  ): SotwClient {
    return new SotwClient(this, path);
  }

  delta(
    path = '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources',
  ): DeltaClient {
    return new DeltaClient(this, path);
  }
}

/** A control plane's stream as the relay reads it. All that is subscribed when it opens is in its first requests. */
export class UpstreamStream {
  readonly #lab: InMemoryRelay;
  readonly #machine: StreamMachine;
  readonly #encode: typeof deltaResponse;
  #nonce = 0;

  constructor(lab: InMemoryRelay, protocol: 'DELTA' | 'SOTW') {
    this.#lab = lab;
    this.#encode = protocol === 'DELTA' ? deltaResponse : sotwResponse;
    this.#machine = new StreamMachine({
      protocol,
      holders: { wildcard: wildcardHolder, named: namedHolder },
      locators: false,
      stamp: unstamped,
      maxConstraintDepth: 8,
      entriesPerTurn: 1000,
      resourceTimeoutMs: 15_000,
      isRestored: () => false,
    });
    for (const interest of lab.upstream.interests) this.#machine.subscribe(interest);
    this.#machine.connect(false);
    this.#run();
  }

  /** Items in the notation of responses.ts. */
  says(short: string, ...items: readonly string[]): void {
    const nonce = String(++this.#nonce);
    this.#machine.receive(this.#encode(type(short), nonce, nonce, items.map(parseItem)));
    this.#run();
  }

  #run(): void {
    for (const effect of this.#machine.ready()) {
      if (effect.kind === 'apply') this.#lab.relay.apply(effect.transaction);
      if (effect.kind !== 'timer' || effect.milliseconds === undefined) continue;
      const { timer, milliseconds } = effect;
      this.#lab.clock.after(milliseconds, () => {
        this.#machine.fire(timer);
        this.#run();
      });
    }
    this.#lab.settle();
  }
}

class LabClient implements ServerStream {
  readonly path: string;
  peer: Peer = peer;
  waitedMilliseconds = 0;
  /** How the stream ended. */
  status: GrpcStatus | undefined;
  /** Frames written and not looked at yet. */
  readonly inbox: Buffer[] = [];
  paused = false;
  /** What the client does not read: writes are taken and refused further. */
  blocked = false;
  readonly lab: InMemoryRelay;
  #handler: StreamHandler | undefined;

  constructor(relay: InMemoryRelay, path: string) {
    this.lab = relay;
    this.path = path;
  }

  open(): void {
    const route = routes.get(this.path);
    if (route === undefined) throw new Error(`no route ${this.path}`);
    if (this.#handler === undefined) this.lab.relay.server.accept(this, route);
  }

  raw(bytes: Buffer): void {
    this.open();
    this.peer.account.charge(bytes, (message) => this.#handler?.message(message));
    this.lab.settle();
  }

  header(): string | undefined {
    return undefined;
  }

  handle(handler: StreamHandler): void {
    this.#handler = handler;
  }

  write(frame: Buffer): boolean {
    this.inbox.push(frame);
    return !this.blocked;
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  end(status: GrpcStatus): void {
    if (this.status !== undefined) return;
    this.status = status;
    this.#handler?.closed();
  }

  /** The client reads again. */
  unblock(): void {
    this.blocked = false;
    this.#handler?.drained();
    this.lab.settle();
  }

  /** The client takes a part of a large response. */
  readPart(): void {
    this.#handler?.progressed?.();
  }

  /** The client takes one response, and no more. */
  readOne(): void {
    this.blocked = true;
    this.#handler?.drained();
    this.lab.settle();
  }

  /** It asks for nothing more. */
  halfClose(): void {
    this.#handler?.ended();
    this.lab.settle();
  }

  disconnect(): void {
    if (this.status !== undefined) return;
    this.status = { code: 1, message: 'client went away' };
    this.#handler?.closed();
  }
}

export const node = (metadata: Record<string, string> = {}, features: readonly string[] = []) => ({
  id: 'envoy-1',
  cluster: 'fleet',
  metadata,
  clientFeatures: [...features],
});

export class SotwClient extends LabClient {
  #nodeSent = false;

  /** Sends a request of a type; the node goes with the first. */
  send(short: string, request: MessageInitShape<typeof DiscoveryRequestSchema> = {}): void {
    const message = create(DiscoveryRequestSchema, {
      typeUrl: short.includes('/') ? short : type(short),
      ...(this.#nodeSent ? {} : { node: create(NodeSchema, node()) }),
      ...request,
    });
    this.#nodeSent = true;
    this.raw(Buffer.from(toBinary(DiscoveryRequestSchema, message)));
  }

  /** The responses since the last look. */
  received(): DiscoveryResponse[] {
    return this.inbox.splice(0).map((frame) => fromBinary(DiscoveryResponseSchema, frame.subarray(5)));
  }

  /** The one response there is. */
  one(): DiscoveryResponse {
    const [response, ...more] = this.received();
    if (response === undefined || more.length > 0) {
      throw new Error(`expected one response, got ${more.length + (response === undefined ? 0 : 1)}`);
    }
    return response;
  }

  ack(short: string, response: DiscoveryResponse, names: readonly string[] = []): void {
    this.send(short, {
      versionInfo: response.versionInfo,
      responseNonce: response.nonce,
      resourceNames: [...names],
    });
  }

  nack(short: string, response: DiscoveryResponse, names: readonly string[] = [], version = ''): void {
    this.send(short, {
      versionInfo: version,
      responseNonce: response.nonce,
      resourceNames: [...names],
      errorDetail: { code: 13, message: 'rejected' },
    });
  }
}

export class DeltaClient extends LabClient {
  #nodeSent = false;

  send(short: string, request: MessageInitShape<typeof DeltaDiscoveryRequestSchema> = {}): void {
    const message = create(DeltaDiscoveryRequestSchema, {
      typeUrl: short.includes('/') ? short : type(short),
      ...(this.#nodeSent ? {} : { node: create(NodeSchema, node()) }),
      ...request,
    });
    this.#nodeSent = true;
    this.raw(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, message)));
  }

  received(): DeltaDiscoveryResponse[] {
    return this.inbox.splice(0).map((frame) => fromBinary(DeltaDiscoveryResponseSchema, frame.subarray(5)));
  }

  one(): DeltaDiscoveryResponse {
    const [response, ...more] = this.received();
    if (response === undefined || more.length > 0) {
      throw new Error(`expected one response, got ${more.length + (response === undefined ? 0 : 1)}`);
    }
    return response;
  }

  ack(short: string, response: DeltaDiscoveryResponse): void {
    this.send(short, { responseNonce: response.nonce });
  }

  nack(short: string, response: DeltaDiscoveryResponse): void {
    this.send(short, { responseNonce: response.nonce, errorDetail: { code: 13, message: 'rejected' } });
  }
}

const anyOrResource = (one: Any | Resource): Any | Resource =>
  (one.$typeName === 'google.protobuf.Any' ? anyUnpack(one, ResourceSchema) : undefined) ?? one;

/** Name → content of a response, whatever its form. */
export function resources(response: DiscoveryResponse | DeltaDiscoveryResponse): Record<string, string> {
  const found: Record<string, string> = {};
  for (const one of response.resources) {
    const resource = anyOrResource(one);
    if (resource.$typeName === 'google.protobuf.Any') found[nameOf(resource)] = contentOf(resource);
    else found[resource.name || (resource.resourceName?.name ?? '')] = contentOf(resource.resource);
  }
  return found;
}
