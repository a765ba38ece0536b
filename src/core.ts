import type { Socket } from 'node:net';
import { type StatusScopes, statusScopes } from './admin/csds.ts';
import { sampleOf } from './admin/local-clients.ts';
import { Staleness } from './admin/staleness.ts';
import type { Journal } from './cache/type-table.ts';
import { ClientRules } from './clients.ts';
import type { Config } from './config/config.ts';
import { StreamMetrics } from './downstream/stream-metrics.ts';
import type { XdsStream } from './downstream/xds-server.ts';
import type { LoadServer } from './load/load-server.ts';
import {
  type LoadRole,
  loadServer,
  loadStreams,
  SubscribedUpstreams,
  type TrafficJudge,
} from './load-reports.ts';
import type { TypeUrl } from './model/brand.ts';
import { systemClock } from './model/clock.ts';
import type { Parameters } from './model/parameters.ts';
import type { Variant } from './model/resource.ts';
import type { CohortOf } from './model/rollout.ts';
import { shorten } from './model/text.ts';
import type { Interest } from './model/transaction.ts';
import { typeInfo } from './model/types.ts';
import { Conditions } from './observe/conditions.ts';
import { type Counters, processCounters } from './observe/figures.ts';
import type { Log } from './observe/log.ts';
import { LogLevels } from './observe/log-levels.ts';
import { Metrics } from './observe/metrics.ts';
import { type Spans, UpdateTraces } from './observe/update-traces.ts';
import { Relay, type RelayOptions } from './relay.ts';
import { Checks } from './releases/checks.ts';
import type { Notifications } from './releases/notifications.ts';
import type { Recorder } from './releases/recorder.ts';
import { Rollout } from './releases/rollout.ts';
import type { RolloutFile } from './releases/rollout-file.ts';
import { Traffic } from './releases/traffic.ts';
import type { Fleet } from './releases/waiting.ts';
import { RelayFleet } from './rollout-fleet.ts';
import { notificationsOf, rolloutEvents, whatWaits } from './rollout-news.ts';
import { SessionShares } from './session-shares.ts';
import { SiblingServing } from './sibling-serving.ts';
import { logGrpc } from './upstream/ads/grpc-channel.ts';
import { extensionShare } from './upstream/ads/subscribed-type.ts';
import { claimant } from './upstream/claims.ts';
import { Accounts } from './wire/accounts.ts';
import type { ConnectionBounds } from './wire/client-connections.ts';
import type { StreamPlaces } from './wire/client-stream.ts';
import type { GrpcStatus } from './wire/grpc-status.ts';
import { denied, draining, exhausted, type Refusal } from './wire/refusal.ts';
import type { Peer, ServerStream } from './wire/server-stream.ts';
import { LoopDetection, longestUnverified, newRelayId } from './wire/via.ts';

export interface CoreDependencies {
  readonly log: Log;
  /** Those of `log`; left out: lines at the level debug are not made. */
  readonly logLevels?: LogLevels | undefined;
  /** Undefined: nothing is traced. */
  readonly spans?: Spans | undefined;
  /** The product's. */
  readonly version: string;
  /** Measure the process and its event loop too; only one Core of a process may. */
  readonly processMetrics: boolean;
  /** Is called for every change that has to be persisted. */
  readonly journal?: Journal | undefined;
  /** Undefined: what is frozen is not kept over restarts. */
  readonly rolloutFile?: RolloutFile | undefined;
  /** Undefined: changes are not recorded. */
  readonly recorder?: Recorder | undefined;
  /** Hears of changes, and what clients say to them, in place of a recorder. */
  readonly answers?: Pick<Recorder, 'committed' | 'answered'> | undefined;
}

/** What clients have open. */
export type Load = Pick<Counters, 'streams' | 'connections'>;

/** A process that is not the only one of its relay: the primary of workers, or a worker. What is left out is as in that one. */
export interface ProcessRole
  extends Pick<
    RelayOptions,
    'streamPrefix' | 'isUnavailable' | 'refusal' | 'isServed' | 'upstreamPerCohort'
  > {
  /** Other processes of this relay listen on the port, too. */
  readonly sharesPort?: (listener: 'xds' | 'rest') => boolean;
  /** What clients have open in other processes of this relay. */
  readonly loadElsewhere?: () => Load;
  /** Whose load reports it takes; left out: those of clients, for control planes. */
  readonly loadReports?: LoadRole;
  /** Names of upstreams of which clients of this node, the last one of a stream, have subscriptions in other processes. */
  readonly subscribedElsewhere?: (nodeId: string, stream: string) => ReadonlySet<string>;
  /** The number of streams or connections of this process has changed. */
  readonly loadChanged?: () => void;
  /** The relay's id in `x-distributary-via`; left out: a new one. */
  readonly relayId?: string;
  /** The primary reports ambiguous matches, so this process does not. */
  readonly ambiguityReportedElsewhere?: boolean;
  /** The first client subscribed to this. */
  readonly subscribed?: (interest: Interest) => void;
  /** Judge and clients are in different processes. */
  readonly rollout?: {
    readonly cohortOf: CohortOf;
    /** Who may be a canary, by the configuration in force; left out: this process has it. */
    readonly canaryPrincipals?: () => readonly string[];
    /** The clients that the judge of this process observes; undefined: its own. */
    readonly fleet: Fleet | undefined;
    /** Left out: the judge is in this process. */
    readonly traffic?: TrafficJudge;
    /** Hears of its canaries, and says what waits, as far as this process knows. */
    readonly judge: () => Pick<Rollout, 'answered' | 'waiting' | 'canaryEnded'>;
  };
}

/** The clients of this process, as they concern the judge. */
type JudgedClients = NonNullable<ProcessRole['rollout']>;

/** How much of what peers name goes into one log line: items, and characters of each. */
const logLimits = { items: 16, text: 256 };

/** The data path of one process, by the configuration in force, and what it counts and logs. */
export class Core {
  readonly relay: Relay;
  readonly log: Log;
  readonly logLevels: LogLevels;
  readonly version: string;
  readonly spans: Spans | undefined;
  readonly traces: UpdateTraces | undefined;
  readonly metrics: Metrics;
  readonly conditions: Conditions;
  readonly accounts: Accounts;
  readonly admission: Admission;
  readonly loops: LoopDetection;
  readonly staleness: Staleness;
  readonly rollout: Rollout;
  readonly checks: Checks;
  readonly notifications: Notifications;
  /** The clients of this process, as a rollout sees them. */
  readonly fleet: RelayFleet;
  /** Answers the other replicas. */
  readonly siblings: SiblingServing;
  readonly loadReports: LoadServer;
  readonly subscribedUpstreams: SubscribedUpstreams;
  /** Types of which there is a resource, for whomever. */
  readonly servedTypes = new Set<TypeUrl>();
  /** Undefined: changes are not recorded. */
  readonly recorder: Recorder | undefined;
  readonly #traffic: Traffic;
  readonly #streamMetrics: StreamMetrics;
  readonly #role: ProcessRole;
  readonly #judged: JudgedClients;
  readonly #listeners = new Set<() => void>();
  #inForce: ReturnType<typeof madeOf>;
  readonly #sessionShares: SessionShares;
  /** From now on no stream is taken. */
  isDraining = false;
  /** Clients are sent elsewhere, or will be. */
  isLeaving = false;

  constructor(config: Config, dependencies: CoreDependencies, role: ProcessRole = {}) {
    const { log, spans, rolloutFile, recorder, answers = recorder } = dependencies;
    this.recorder = recorder;
    this.#role = role;
    this.#judged = role.rollout ?? {
      cohortOf: (client) => this.rollout.canaries.cohortOf(client),
      fleet: undefined,
      judge: () => this.rollout,
    };
    this.#inForce = madeOf(config, this.#judged);
    this.log = log;
    logGrpc(log);
    this.logLevels = dependencies.logLevels ?? new LogLevels();
    this.version = dependencies.version;
    this.metrics = new Metrics((type) => this.relay.store.variants(type) > 0, {
      process: dependencies.processMetrics,
    });
    this.conditions = new Conditions(log);
    this.#sessionShares = new SessionShares(config);
    this.spans = spans;
    this.traces = spans && new UpdateTraces(spans, systemClock);
    this.#streamMetrics = new StreamMetrics(this, systemClock, (stream, isOfCanary) => {
      this.fleet.touched(stream);
      if (isOfCanary) this.#judged.judge().answered();
    });
    this.accounts = new Accounts(
      systemClock,
      () => this.#inForce.accountBounds,
      (peer) => this.rules.isRelay(peer),
    );
    this.admission = new Admission(this, role);
    this.relay = new Relay({
      ...role,
      clock: systemClock,
      controlPlane: config.node.id,
      idleMilliseconds: config.cache.idleTtlMs,
      maxCacheBytes: () => this.config.cache.maxBytes,
      defer: (run) => setImmediate(run),
      journal: dependencies.journal,
      published: (commit) => {
        this.siblings.publish(commit);
        this.fleet.committed(commit);
        answers?.committed(commit);
        this.#served(commit.type);
      },
      recorded: answers !== undefined,
      traces: this.traces,
      streams: {
        opened: (stream) => this.#streamMetrics.opened(stream),
        changing: (stream) => this.fleet.changing(stream, this.#judged.judge().waiting()),
        closed: (stream) => {
          this.loops.streamEnded(stream.transport);
          this.#streamMetrics.ended(stream);
          // It still has its types.
          if (stream.client?.access.cohort === 'canary') this.#canaryEnded(stream);
          this.fleet.touched(stream.id);
        },
      },
      fetchMilliseconds: () => fetchMilliseconds(this.config),
      leavesBehind: ({ type, selector }) => {
        const upstream = claimant(this.config.upstreams, type, selector);
        if (upstream?.kind !== 'ads' || upstream.protocol !== 'SOTW') return false;
        // Clients of an outage come back, and those of a relay that drains have not left what it saves.
        const { name } = upstream;
        return (
          !this.isLeaving && this.staleness.sinceOf(this.relay.servedBy(type, selector) ?? name) === undefined
        );
      },
      downstream: {
        events: this.#streamMetrics,
        limits: () => this.#inForce.limits,
        constrained: () => this.config.xds.plainClients === 'WITH_CONSTRAINTS',
        contentVersions: () => this.config.xds.sotwVersions === 'CONTENT',
        legacyWildcard: (type) =>
          this.config.xds.legacyWildcard?.includes(type) ?? typeInfo(type).legacyWildcard,
        wantedMetadata: () => this.rules.wantedMetadata,
        context: (node, peer) => this.rules.context(node, peer),
        reapplyRules: (client, peer) => this.rules.reapplyRules(client, peer),
        sessions: this.#sessionShares,
        places: this.admission,
      },
      events: {
        ambiguous: (type, name, parameters, choices) => this.#ambiguous(type, name, parameters, choices),
        lookedUp: (type, hits, misses) => this.#streamMetrics.lookedUp(type, hits, misses),
        answered: (type, { receivedAt, isAccepted, isRepeated }) => {
          if (isAccepted) this.#streamMetrics.acknowledged(type, receivedAt);
          if (!isRepeated) answers?.answered(receivedAt, isAccepted);
        },
        evicted: (reason, count) => this.metrics.count.evictions(reason).inc(count),
        upstreamChanged: () => this.changed(),
        subscribed: (interest) => role.subscribed?.(interest),
      },
    });
    this.fleet = new RelayFleet(this.relay, systemClock, () => this.#judged.judge().answered());
    this.checks = new Checks(config.rollout?.checks ?? [], {
      clock: systemClock,
      subject: () => whatWaits(this.rollout.report()),
      changed: () => this.rollout.answered(),
    });
    this.#traffic = new Traffic(config.rollout, systemClock);
    this.notifications = notificationsOf(config, this);
    this.rollout = new Rollout(config.rollout, {
      checks: this.checks,
      traffic: this.#traffic,
      gate: this.relay.gate,
      fleet: this.#judged.fleet ?? this.fleet,
      clock: systemClock,
      saved: rolloutFile?.load(),
      hashOf: rolloutFile?.hashOf,
      removalLimits: () => this.config.upstreams,
      events: rolloutEvents(this, rolloutFile),
    });
    this.loops = new LoopDetection(
      role.relayId ?? newRelayId(config.node.id),
      (peer) => this.rules.mayBeRelay(peer),
      systemClock,
      config.xds.tls?.ca === undefined ? longestUnverified : undefined,
    );
    this.siblings = new SiblingServing(config, {
      clock: systemClock,
      defer: (run) => setImmediate(run),
      relay: this.relay,
      relayId: this.loops.relayId,
      events: this.#streamMetrics,
      limits: () => this.#inForce.limits,
      places: this.admission,
    });
    const loadRole = role.loadReports ?? 'alone';
    this.subscribedUpstreams = new SubscribedUpstreams(this, role.subscribedElsewhere);
    this.loadReports = loadServer(this, loadRole);
    this.staleness = new Staleness(() => this.relay.upstreams);
    this.metrics.sampleFrom(() => sampleOf(this, loadStreams(this.loadReports, loadRole)));
  }

  get config(): Config {
    return this.#inForce.config;
  }

  /** Who judges by the traffic of this process's clients. */
  get traffic(): TrafficJudge {
    return this.#judged.traffic ?? this.#traffic;
  }

  /** Before the ids of this process's streams. */
  get streamPrefix(): string {
    return this.#role.streamPrefix ?? '';
  }

  sharesPort(listener: 'xds' | 'rest'): boolean {
    return this.#role.sharesPort?.(listener) === true;
  }

  beginDrain(): void {
    this.isLeaving = true;
    this.isDraining = true;
    this.rollout.stop();
    this.notifications.stop();
    this.fleet.stop();
    this.relay.polls.drain();
    this.changed();
  }

  /** The parts of a new version of the configuration that need no restart. */
  reload(config: Config): void {
    this.#inForce = madeOf(config, this.#judged);
    this.checks.reload(config.rollout?.checks ?? []);
    this.#traffic.reload(config.rollout);
    this.notifications.reload(config.rollout?.notify ?? []);
    this.rollout.reload(config.rollout);
    this.siblings.reload(config);
    this.accounts.reload();
    this.#sessionShares.reload(config);
    this.loadReports.reload();
    this.relay.makeRoom();
    this.reapplyRules();
    this.changed();
  }

  /** Any client may be in another cohort, or may see something else. */
  reapplyRules(): void {
    this.relay.server.reidentify();
    this.relay.polls.reidentify();
  }

  /** Which streams CSDS shows to whom, by the configuration in force. */
  get statusScopes(): StatusScopes {
    return this.#inForce.statusScopes;
  }

  get rules(): ClientRules {
    return this.#inForce.rules;
  }

  /** A client's stream of load reports, with the admission of any stream. Why it is not taken, if so. */
  acceptReports(stream: ServerStream): GrpcStatus | undefined {
    const refusal = this.admission.refusal(stream.peer, undefined);
    if (refusal === undefined) this.loadReports.accept(stream);
    else this.rejected(refusal, stream.peer);
    return refusal?.status;
  }

  /** For load reports. */
  readonly rejected = ({ reason, logged }: Omit<Refusal, 'status'>, peer: Peer): void =>
    this.#streamMetrics.rejected(reason, logged, peer);

  /** Of clients. */
  get streams(): number {
    return this.relay.server.size + this.loadReports.size;
  }

  /** Those that limits.max_streams counts: of siblings, and calls of Fetch, too. */
  get openStreams(): number {
    return this.#open.reduce((sum, { size }) => sum + size, 0);
  }

  /** Processes took more than the limit at the same time: this one keeps so many, first those that serve clients. */
  keepOldestStreams(count: number): void {
    let left = count;
    for (const streams of this.#open) {
      const kept = Math.min(streams.size, left);
      streams.keepOldest(kept);
      left -= kept;
    }
  }

  get #open() {
    return [this.relay.server, this.loadReports, this.siblings.server, this.relay.polls.fetches];
  }

  /** A stream is refused because this relay already subscribes to the relay that opened it. */
  refuseLoop(peer: Peer, { message }: GrpcStatus): void {
    this.metrics.count.rejected('loop').inc();
    this.conditions.set('loop', message, 'warn', 'a relay is refused', {
      peer: peer.address,
      reason: message,
    });
  }

  /** Whether the relay is ready, its upstreams' state, or the types or services that it serves, may have changed. */
  changed(): void {
    this.staleness.observe();
    for (const listener of this.#listeners) listener();
  }

  /** The first resource of a type has come, or the last one has gone: workers hear of it. */
  #served(type: TypeUrl): void {
    const isServed = this.relay.store.variants(type) > 0;
    if (isServed === this.servedTypes.has(type)) return;
    if (isServed) this.servedTypes.add(type);
    else this.servedTypes.delete(type);
    this.changed();
  }

  /** Calls back after each such change until the function returned is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** For the charts of the status page. */
  counters(): Counters {
    const { connections } = this.admission;
    return { ...this.metrics.counted(), ...processCounters(), streams: this.streams, connections };
  }

  #canaryEnded(stream: XdsStream): void {
    const judge = this.#judged.judge();
    const waiting = judge.waiting();
    const canary = waiting.size === 0 ? undefined : this.fleet.canary(stream, waiting);
    if (canary !== undefined) judge.canaryEnded(canary);
  }

  #ambiguous(type: TypeUrl, name: string, parameters: Parameters, choices: readonly Variant[]): void {
    if (this.#role.ambiguityReportedElsewhere) return;
    this.metrics.count.ambiguous(type).inc();
    const short = this.metrics.typeLabel(type);
    const given = [...parameters.entries];
    this.conditions.set(
      `ambiguous ${short} ${name}`, // not the parameters: clients may invent them
      choices.map(({ constraints }) => constraints.key).join(),
      'warn',
      `several variants of ${short} ${shorten(name, logLimits.text)} match the same parameters`,
      {
        parameters: Object.fromEntries(
          given.slice(0, logLimits.items).map((pair) => pair.map((text) => shorten(text, logLimits.text))),
        ),
        variants: choices.slice(0, logLimits.items).map(({ constraints, version }) => ({
          constraints: shorten(constraints.key, logLimits.text),
          version: shorten(version, logLimits.text),
        })),
      },
    );
  }
}

/** Files are read when they are asked for first. */
const leastFetchMs = 1000;

/** Upstream is asked a little later than the relay is: what becomes absent after its timeout is answered as absent. */
const fetchGraceMs = 250;

/** After that long no upstream answers any more what it does not know (protocol §3.9). */
function fetchMilliseconds({ upstreams }: Config): number {
  const waits = upstreams.map((one) => {
    if (one.kind !== 'ads') return 0;
    const extension = one.protocol === 'SOTW' ? one.resourceTimeoutMs / extensionShare : 0;
    return one.resourceTimeoutMs + extension + fetchGraceMs;
  });
  return Math.max(leastFetchMs, ...waits);
}

/** What is made once for each configuration: every response reads some of it. */
function madeOf(config: Config, { cohortOf, canaryPrincipals }: JudgedClients) {
  const { limits, xds, rollout } = config;
  const rules = new ClientRules(config, cohortOf, canaryPrincipals?.() ?? rollout?.canaryPrincipals);
  return {
    config,
    rules,
    statusScopes: statusScopes(config, (peer) => rules.accessOf(peer)),
    limits: {
      maxSubscriptions: limits.maxSubscriptionsPerStream,
      maxNamesLength: limits.maxRequestBytes,
      changesPerSecond: limits.subscriptionChangesPerSecond,
      stalledMilliseconds: limits.stalledTimeoutMs,
      firstRequestMilliseconds: limits.firstRequestTimeoutMs,
      maxResponseBytes: limits.maxResponseBytes,
      removalGraceMilliseconds: xds.removalGraceMs,
    },
    /** What a peer may use (ADR 81). */
    accountBounds: {
      heldPerPeer: limits.maxHeldBytesPerPeer,
      held: limits.maxHeldBytes,
      workPerSecond: limits.maxWorkPerPeerMs,
      changesPerSecond: limits.subscriptionChangesPerSecond,
    },
  };
}

/** Who may connect and open streams, and how many, on all listeners together: by the rules and limits in force. */
class Admission implements ConnectionBounds, StreamPlaces {
  readonly #core: Core;
  readonly #role: ProcessRole;
  /** Those that are within their TLS handshake too; the oldest first. */
  readonly #connections = new Set<Socket>();
  #full = false;

  constructor(core: Core, role: ProcessRole) {
    this.#core = core;
    this.#role = role;
  }

  /** How many are open. */
  get connections(): number {
    return this.#connections.size;
  }

  denial(peer: Peer, type: TypeUrl | undefined): Refusal | undefined {
    return this.#core.rules.accessOf(peer).deniesEverything(type) ? denied(type ?? 'anything') : undefined;
  }

  refusal(peer: Peer, type: TypeUrl | undefined): Refusal | undefined {
    const { account } = peer;
    // The streams of a primary are its workers', which drain by themselves: their clients are served to the end.
    if (this.#core.isDraining && this.#role.loadReports !== 'primary') return draining;
    const denial = this.denial(peer, type);
    if (denial !== undefined) return denial;
    const { maxStreams, maxStreamsPerPeer } = this.#core.config.limits;
    const open = this.#core.openStreams + this.#elsewhere.streams;
    if (open >= maxStreams) {
      const message = `${maxStreams} streams are open, the maximum of this relay (limits.max_streams)`;
      return exhausted('streams', message);
    }
    if (maxStreamsPerPeer === 0 || account.exempt) return undefined;
    if (account.count('streams') < maxStreamsPerPeer) return undefined;
    const message = `${account.key} has ${maxStreamsPerPeer} streams open, the maximum for one peer (limits.max_streams_per_peer)`;
    return exhausted('streams_per_peer', message, message);
  }

  streamOpened(peer: Peer): void {
    peer.account.enter('streams');
    this.#role.loadChanged?.();
  }

  streamClosed(peer: Peer): void {
    peer.account.leave('streams');
    this.#role.loadChanged?.();
  }

  admits(): boolean {
    const { maxConnections } = this.#core.config.limits;
    const taken = this.connections + this.#elsewhere.connections < maxConnections;
    if (!taken) this.#core.metrics.count.rejected('connections').inc();
    if (taken === this.#full) this.#logFull(!taken, maxConnections);
    return taken;
  }

  opened(connection: Socket): void {
    this.#connections.add(connection);
    this.#role.loadChanged?.();
  }

  closed(connection: Socket): void {
    if (this.#connections.delete(connection)) this.#role.loadChanged?.();
  }

  /** Processes took more than the limit at the same time: this one keeps so many. */
  keepOldest(count: number): void {
    for (const connection of [...this.#connections].slice(count)) {
      this.#core.metrics.count.rejected('connections').inc();
      this.closed(connection);
      connection.destroy();
    }
  }

  joined({ account, address }: Peer): string | undefined {
    const { config, metrics, conditions } = this.#core;
    const { maxConnectionsPerPeer } = config.limits;
    const bounded = maxConnectionsPerPeer > 0 && !account.exempt;
    if (bounded && account.count('connections') >= maxConnectionsPerPeer) {
      const message = `${account.key} has ${maxConnectionsPerPeer} connections open, the maximum for one peer (limits.max_connections_per_peer)`;
      metrics.count.rejected('connections_per_peer').inc();
      conditions.set('rejected connections_per_peer', message, 'warn', message, { peer: address });
      return message;
    }
    account.enter('connections');
    return undefined;
  }

  left({ account }: Peer): void {
    account.leave('connections');
  }

  get #elsewhere(): Load {
    return this.#role.loadElsewhere?.() ?? { streams: 0, connections: 0 };
  }

  #logFull(full: boolean, maxConnections: number): void {
    this.#full = full;
    const message = full
      ? `${maxConnections} connections are open, the maximum of this relay (limits.max_connections): others are refused`
      : 'connections are accepted again (limits.max_connections)';
    this.#core.conditions.set('connections', String(full), full ? 'warn' : 'info', message);
  }
}

/**
 * Where this process sends its spans; `worker`: the number of a worker. Returns undefined where nothing is traced: then
 * OpenTelemetry's SDK is not even loaded.
 */
export async function openTraces(
  { tracing, node }: Config,
  log: Log,
  version: string,
  worker?: number,
): Promise<Spans | undefined> {
  const { otlpEndpoint: endpoint, ratio } = tracing;
  if (endpoint === undefined) return undefined;
  const { otlpSpans } = await import('./observe/otlp-spans.ts');
  const instance = worker === undefined ? node.id : `${node.id}/worker-${worker}`;
  return otlpSpans(endpoint, ratio, version, instance, new Conditions(log));
}
