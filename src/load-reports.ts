import { create, fromBinary, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { LRUCache } from 'lru-cache';
import * as z from 'zod';
import { classOf } from './admin/client-list.ts';
import type { ClientRules } from './clients.ts';
import type { AdsUpstreamConfig, Config } from './config/config.ts';
import type { ClientContext } from './downstream/services.ts';
import { NodeSchema } from './gen/envoy/config/core/v3/base_pb.ts';
import { LoadServer, type ReportingClient } from './load/load-server.ts';
import type { Access } from './model/access.ts';
import type { TypeUrl } from './model/brand.ts';
import { systemClock } from './model/clock.ts';
import { clusterType } from './model/cluster.ts';
import { type LoadOutcome, type LoadTarget, type LoadUpstream, loadOutcomes } from './model/load.ts';
import { getOrMake, isEqual, onceFor } from './model/maps.ts';
import { internParameters } from './model/parameters.ts';
import { errorMessage, fail, ok, type Result } from './model/result.ts';
import type { Selection } from './model/selection.ts';
import { canonicalName } from './model/xdstp.ts';
import type { Conditions } from './observe/conditions.ts';
import type { Metrics } from './observe/metrics.ts';
import { parametersLabel } from './observe/problems.ts';
import type { Tally } from './observe/series.ts';
import type { Relay } from './relay.ts';
import type { Traffic } from './releases/traffic.ts';
import { mostOfPeer } from './session-shares.ts';
import { AdsUpstream } from './upstream/ads/ads-upstream.ts';
import { sessionParameters } from './upstream/ads/stamp.ts';
import { claimant } from './upstream/claims.ts';
import { originOfFeatures } from './wire/between-relays.ts';
import type { StreamPlaces } from './wire/client-stream.ts';
import { Code, type GrpcStatus } from './wire/grpc-status.ts';
import type { Refusal } from './wire/refusal.ts';
import type { Peer } from './wire/server-stream.ts';

/**
 * Load reports of this process's clients. A worker has the sums of its own clients and reports them to the primary as a
 * client of it, for each session; the primary has one stream to the control plane for all workers.
 */
export type LoadRole = 'alone' | 'worker' | 'primary';

/** Who judges changes by the traffic of this process's clients (`rollout.traffic`). */
export type TrafficJudge = Pick<Traffic, 'intervalMs' | 'add' | 'left'>;

/** What load reports need of a process. */
interface LoadParts {
  /** In force. */
  readonly config: Config;
  readonly rules: ClientRules;
  readonly relay: Relay;
  readonly metrics: Metrics;
  readonly conditions: Conditions;
  readonly traffic: TrafficJudge;
  readonly subscribedUpstreams: SubscribedUpstreams;
  /** Before the ids of streams, so that no other process has the same. */
  readonly streamPrefix: string;
  /** A client's stream is refused, ends, or is read no further for a while. */
  readonly rejected: (refusal: Omit<Refusal, 'status'>, peer: Peer) => void;
  readonly admission: StreamPlaces;
}

/** Open streams of load reports, as metrics count them: those between workers and their primary are no client's. */
export const loadStreams = ({ size, sessions }: LoadServer, role: LoadRole) => ({
  received: role === 'primary' ? 0 : size,
  sent: role === 'worker' ? 0 : sessions,
});

export function loadServer(core: LoadParts, role: LoadRole): LoadServer {
  const { metrics, conditions, admission } = core;
  const requests = loadOutcomes.map((outcome) => [outcome, metrics.count.loadRequests(outcome)] as const);
  const identify = (node: Buffer, peer: Peer, stream: string): Result<ReportingClient, GrpcStatus> => {
    const read = core.rules.context(node, peer);
    const id = `${core.streamPrefix}${stream}`;
    return read.ok ? ok(reportingClient(core, requests, read.value, peer, id)) : read;
  };
  // From 0: increase() does not see a series' first increment.
  const { upstreams } = core.config;
  for (const { name } of core.traffic.intervalMs === undefined ? reporting(upstreams) : upstreams) {
    if (role !== 'primary') metrics.count.loadReports('received', name);
    if (role !== 'worker') metrics.count.loadReports('sent', name);
  }
  return new LoadServer({
    clock: systemClock,
    identify: role === 'primary' ? workerOf : identify,
    limits: () => core.config.limits,
    maxSessions: () => {
      const { limits, workers, upstreams } = core.config;
      const max = limits.maxUpstreamSessions;
      return { all: max * upstreams.length, ofPeer: mostOfPeer(max, workers) * upstreams.length };
    },
    // Workers ask their clients.
    ownIntervalMs: () => (role === 'primary' ? undefined : core.traffic.intervalMs),
    upstream: (name) => loadUpstream(core, role, name),
    // 100,000 rows have 20 MB as a rule, and the feed takes much more (workers/feed.ts).
    ...(role === 'worker' ? { largestMessage: 64 << 20 } : {}),
    // What a worker has, it has for its clients: the primary holds back.
    holdsBack: (name) =>
      role !== 'worker' && core.relay.gate.pending.some(({ upstream }) => upstream === name),
    places: admission,
    events: {
      rejected: core.rejected,
      // Between a worker and the primary nothing is reported to anybody.
      sent: (upstream) => (role === 'worker' ? notCounted : metrics.count.loadReports('sent', upstream)),
      left: (count) => metrics.count.loadClustersDropped().inc(count),
      malformed: (upstream, reason) =>
        conditions.set(`load ${upstream}`, reason, 'warn', 'what a control plane asks for is ignored', {
          upstream,
          reason,
        }),
    },
  });
}

const notCounted = { inc() {} };

/** Somebody may take load reports. Otherwise the service is UNIMPLEMENTED, and clients know it. */
export const takesLoadReports = ({ config, traffic }: Pick<LoadParts, 'config' | 'traffic'>): boolean =>
  reporting(config.upstreams).length > 0 || traffic.intervalMs !== undefined;

/** The node of a worker's stream, by which the primary knows whose sums these are. */
export function loadNode({ node }: Config, { upstream, parameters }: LoadTarget): Uint8Array {
  const metadata: JsonObject = {
    [targetKey]: { upstream, parameters: Object.fromEntries(parameters.entries) },
  };
  return toBinary(NodeSchema, create(NodeSchema, { id: node.id, cluster: node.cluster, metadata }));
}

const targetKey = 'distributary.load';
const targetNode = z.object({
  [targetKey]: z.object({ upstream: z.string(), parameters: z.record(z.string(), z.string()) }),
});

function workerOf(node: Buffer): Result<ReportingClient, GrpcStatus> {
  try {
    const { metadata, clientFeatures } = fromBinary(NodeSchema, node);
    const { upstream, parameters } = targetNode.parse(metadata)[targetKey];
    const target = { upstream, parameters: internParameters(Object.entries(parameters)) };
    const worker: ReportingClient = {
      of: undefined,
      origin: originOfFeatures(clientFeatures),
      // Its clients' reports are read by their rules.
      mayKnow: undefined,
      targets: () => [target],
      reported: () => {},
      left: () => {},
      byNewRules: () => worker,
    };
    return ok(worker);
  } catch (cause) {
    return fail({ code: Code.INVALID_ARGUMENT, message: errorMessage(cause) });
  }
}

function loadUpstream({ relay }: LoadParts, role: LoadRole, name: string): LoadUpstream | undefined {
  // What is released is always fed; canaries have a feed only with a rollout.
  const found = role === 'worker' ? relay.upstreams[0] : relay.upstreams.find((one) => one.name === name);
  return found instanceof AdsUpstream ? found : undefined;
}

function reporting(upstreams: Config['upstreams']): readonly AdsUpstreamConfig[] {
  return upstreams.filter((one) => one.kind === 'ads').filter((one) => one.loadReports === 'AGGREGATE');
}

/** Which clusters these rules let a client know. A parameter that is trusted decides of variants, and not of names. */
const clustersOf = onceFor((access: Access): ReportingClient['mayKnow'] =>
  access.unrestricted
    ? undefined
    : (cluster) => {
        const name = canonicalName(cluster, clusterType);
        return name.ok && access.allows(clusterType, name.value);
      },
);

function reportingClient(
  core: LoadParts,
  requests: readonly (readonly [LoadOutcome, Tally])[],
  client: ClientContext,
  peer: Peer,
  stream: string,
): ReportingClient {
  const { traffic } = core;
  const { nodeKey: node, classKey, loadOrigin: origin } = client;
  const of = classOf(client);
  const classLabel = parametersLabel(Object.fromEntries(of.parameters.entries));
  let last: {
    readonly config?: Config;
    readonly own: ReadonlySet<string>;
    readonly targets: readonly LoadTarget[];
    /** Of the upstreams that it reports to, or to which it would. */
    readonly received: readonly Tally[];
  } = { own: new Set(), targets: [], received: [] };
  return {
    of,
    origin,
    mayKnow: clustersOf(core.rules.accessOf(peer)),
    reported(totals, milliseconds) {
      for (const [outcome, tally] of requests) tally.inc(totals[outcome]);
      for (const tally of last.received) tally.inc();
      const { success, error: errors } = totals;
      // Of what a first report is about nobody knows since when.
      if (traffic.intervalMs !== undefined && milliseconds > 0)
        traffic.add({
          stream,
          node,
          classKey,
          classLabel,
          origin,
          requests: success + errors,
          errors,
          milliseconds,
        });
    },
    left: () => traffic.left(stream),
    targets() {
      const { config } = core;
      const own = core.subscribedUpstreams.of(client.nodeId, stream);
      if (config === last.config && (own === last.own || isEqual(own, last.own))) return last.targets;
      const { upstreams, parameters } = config;
      const candidates = reporting(upstreams);
      const chosen = own.size === 0 ? candidates.slice(0, 1) : candidates.filter(({ name }) => own.has(name));
      // Where no control plane of its own takes reports, `rollout.traffic` asks for them.
      const isAsked = chosen.length === 0 && traffic.intervalMs !== undefined;
      const receiving = isAsked ? upstreams.filter(({ name }) => own.has(name)) : chosen;
      const received = receiving.map(({ name }) => core.metrics.count.loadReports('received', name));
      const given = client.derived(undefined);
      const targets = chosen.map(({ name, variants }) => ({
        upstream: name,
        parameters: sessionParameters(variants, parameters, given),
      }));
      last = { config, own, targets, received };
      return targets;
    },
    byNewRules() {
      const again = core.rules.reapplyRules(client, peer);
      return again && reportingClient(core, requests, again, peer, stream);
    },
  };
}

/** Bytes of nodes that are remembered, each with so many beside its id. */
const mostRemembered = 16 << 20;
const bytesPerNode = 200;
/** What is known of streams is looked up again after this, and sooner for a node that is not known. Milliseconds. */
const rememberedMs = 1000;
const unknownMs = 50;
/** A look at 500 streams takes a millisecond. Then none is made for so much longer that others have their time. */
const streamsPerMs = 40;

const namesOf = onceFor(
  (upstreams: Config['upstreams']): ReadonlySet<string> => new Set(upstreams.map(({ name }) => name)),
);

/** A selection never changes, and many clients have the same. */
const claiming = onceFor((upstreams: Config['upstreams']) =>
  onceFor(({ entries }: Selection) => {
    const byType = new Map<TypeUrl, ReadonlySet<string>>();
    const claimed = (type: TypeUrl): ReadonlySet<string> =>
      new Set(
        [...entries.values()].flatMap(({ selector }) => claimant(upstreams, type, selector)?.name ?? []),
      );
    return (type: TypeUrl) => getOrMake(byType, type, () => claimed(type));
  }),
);

interface Served extends Pick<LoadParts, 'config'> {
  readonly relay: { readonly server: Pick<Relay['server'], 'size' | 'values'> };
}

/** Of which upstreams clients have subscriptions, by node. */
export class SubscribedUpstreams {
  readonly #core: Served;
  readonly #elsewhere: (nodeId: string, stream: string) => ReadonlySet<string>;
  #byNode = new Map<string, ReadonlySet<string>>();
  #lookedAt = Number.NEGATIVE_INFINITY;
  /**
   * Of which it had some last, by node. Its streams may be away for a moment: a backoff, a worker that is replaced, an
   * outage. And who returns may report before it has subscribed again.
   */
  readonly #last = new LRUCache<string, ReadonlySet<string>>({
    maxSize: mostRemembered,
    sizeCalculation: (_, nodeId) => nodeId.length + bytesPerNode,
  });
  /** `elsewhere`: the names of those of which the node of a stream has subscriptions in other processes. */
  constructor(
    core: Served,
    elsewhere: (nodeId: string, stream: string) => ReadonlySet<string> = () => new Set(),
  ) {
    this.#core = core;
    this.#elsewhere = elsewhere;
  }

  /** Their names, or those of before if there are none. Nobody is asked elsewhere who has something here: the streams of a client are mostly on one connection. */
  of(nodeId: string, stream: string): ReadonlySet<string> {
    const { upstreams } = this.#core.config;
    // Nobody can subscribe to another one.
    if (upstreams.length < 2) return namesOf(upstreams);
    const here = this.here(nodeId);
    const found = here.size > 0 ? here : this.#elsewhere(nodeId, stream);
    const last = this.#last.get(nodeId);
    if (found.size === 0) return last?.intersection(namesOf(upstreams)) ?? found;
    if (last !== found) this.#last.set(nodeId, found);
    return found;
  }

  /** Of this process's streams. */
  here(nodeId: string): ReadonlySet<string> {
    const now = systemClock.monotonic();
    const known = this.#byNode.get(nodeId);
    const unknown = Math.max(unknownMs, Math.min(rememberedMs, this.#core.relay.server.size / streamsPerMs));
    if (now < this.#lookedAt + (known === undefined ? unknown : rememberedMs)) return known ?? new Set();
    this.#lookedAt = now;
    this.#byNode = this.#look();
    return this.#byNode.get(nodeId) ?? new Set();
  }

  #look(): Map<string, ReadonlySet<string>> {
    const byNode = new Map<string, Set<string>>();
    for (const { client, types } of this.#core.relay.server.values()) {
      if (client === undefined) continue;
      const names = getOrMake(byNode, client.nodeId, () => new Set());
      for (const { info, selection } of types)
        for (const name of claiming(this.#core.config.upstreams)(selection)(info.url)) names.add(name);
    }
    return byNode;
  }
}
