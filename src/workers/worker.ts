import type { Server } from 'node:http';
import { type Client, createClient } from '@connectrpc/connect';
import type { ClientStatusQuery } from '../admin/csds.ts';
import { closeServer } from '../admin/http-listener.ts';
import { type ClientsView, localClients } from '../admin/local-clients.ts';
import { clientRoutes } from '../admin/rpc.ts';
import { type ClientAnswers, type ClientListeners, openClientListeners } from '../client-serving.ts';
import type { Config } from '../config/config.ts';
import { Core, type Load } from '../core.ts';
import { type NodeSubscriptions, WorkerService } from '../gen/distributary/workers/v1/workers_pb.ts';
import { type Clock, Sweep, systemClock } from '../model/clock.ts';
import { ok, type Result } from '../model/result.ts';
import { type Interest, idOf } from '../model/transaction.ts';
import type { Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import type { Spans } from '../observe/update-traces.ts';
import type { WaveRules } from '../releases/canaries.ts';
import { reloadPreview } from '../reload-effect.ts';
import { claimant } from '../upstream/claims.ts';
import { answerGraceMs as siblingsGraceMs } from '../upstream/siblings.ts';
import { TlsSessions } from '../wire/tls-sessions.ts';
import { feedUpstream, workerConfig } from './feed.ts';
import type { Message, ToPrimary, ToWorker } from './ipc-messages.ts';
import {
  answerOf,
  canaryFeedSocket,
  feedSocket,
  listenPrivately,
  primarySocket,
  privateTransport,
  workerSocket,
} from './private-socket.ts';
import { AnswerReporter, CanaryReporter, cohortBy, movedBetween, TrafficReporter } from './reporters.ts';
import { askClientStatus, clientStatusBy } from './worker-client.ts';

type Start = Message<'start'>;
type PrimaryState = Message<'primary_state'>;
type Send = (message: ToPrimary) => void;

/** How long the primary may take to ask all workers, in milliseconds. */
const primaryTimeoutMs = 10_000;

/** More new streams and connections than arrive within `reportDelayMs` milliseconds. */
const farFromLimit = 5000;
const reportDelayMs = 50;

const noWaves: WaveRules = { waves: [], reached: new Map(), named: new Set() };

/** A serving process: a relay with one upstream, the primary. */
export class Worker {
  readonly #start: Start;
  readonly #logLevels: LogLevels;
  readonly #send: Send;
  readonly #core: Core;
  readonly #primary: Client<typeof WorkerService>;
  readonly #clients: ClientsView;
  readonly #outageGate: OutageGate;
  /** With a rollout. */
  #canaries: Message<'canaries'> | undefined;
  /** Its Core has none: it does not judge. */
  #rollout: Config['rollout'];
  readonly #reporter: CanaryReporter;
  readonly #traffic: TrafficReporter;
  /** By listener. */
  readonly #sessions: ReadonlyMap<string, TlsSessions>;
  #primaryState: Pick<PrimaryState, 'ready' | 'served'> = { ready: false, served: new Set() };
  #loadElsewhere: Load = { streams: 0, connections: 0 };
  #reporting = false;
  #listeners: ClientListeners | undefined;
  /** By the primary. */
  #asked: Server | undefined;

  /** `id`: unlike the slot, never used again. */
  constructor(
    id: number,
    start: Start,
    log: Log,
    logLevels: LogLevels,
    send: Send,
    spans: Spans | undefined,
  ) {
    this.#start = start;
    this.#logLevels = logLevels;
    this.#send = send;
    const { config, version, relayId } = start;
    this.#canaries = start.canaries;
    this.#rollout = config.rollout;
    this.#sessions = new Map(
      start.sessions.map(({ listener }) => [
        listener,
        new TlsSessions(listener, ({ raw }) => send({ kind: 'intermediate', listener, certificate: raw })),
      ]),
    );
    this.#take(start.sessions);
    this.#outageGate = new OutageGate(config.upstreams, systemClock, () => this.#core.relay.changed());
    const answers = new AnswerReporter(systemClock, send);
    this.#traffic = new TrafficReporter(config, systemClock, send);
    this.#primary = createClient(
      WorkerService,
      privateTransport(primarySocket(start.directory), primaryTimeoutMs),
    );
    const elsewhere = subscribedElsewhere(
      systemClock,
      async (nodes) => (await this.#primary.subscribedUpstreams({ nodes })).subscribed,
      () => this.#core.loadReports.chooseAgain(),
    );
    this.#core = new Core(
      workerConfig(config, start.ports),
      { log, logLevels, spans, version, processMetrics: true, answers },
      {
        streamPrefix: `${id}-`,
        sharesPort: (listener) => start.ports[listener]?.shared === true,
        loadElsewhere: () => this.#loadElsewhere,
        loadChanged: () => this.#report(),
        loadReports: 'worker',
        subscribedElsewhere: elsewhere,
        isUnavailable: (interest) => this.#outageGate.isUnavailable(interest),
        refusal: (interest) => this.#outageGate.refusal(interest),
        relayId,
        ambiguityReportedElsewhere: true,
        subscribed: (interest) => this.#outageGate.subscribed(interest),
        isServed: (type) => this.#primaryState.served.has(type),
        upstreamPerCohort: this.#canaries !== undefined,
        rollout: {
          fleet: undefined,
          traffic: this.#traffic,
          cohortOf: (client) =>
            this.#canaries === undefined ? 'released' : cohortBy(this.#canaries, client),
          canaryPrincipals: () => this.#rollout?.canaryPrincipals ?? [],
          judge: () => this.#reporter,
        },
      },
    );
    this.#reporter = new CanaryReporter(this.#core.fleet, systemClock, (report) => {
      this.#traffic.tell();
      send(report);
    });
    const preview = reloadPreview(this.#core, (sought) => this.#filesHave(sought));
    this.#clients = localClients(this.#core, preview, () => this.#canaries ?? noWaves);
  }

  receive(message: Exclude<ToWorker, Start>): void {
    switch (message.kind) {
      case 'reload': {
        const hasMoved = this.#outageGate.reload(message.config.upstreams);
        this.#traffic.reload(message.config);
        this.#rollout = message.config.rollout;
        this.#core.reload(workerConfig(message.config, this.#start.ports));
        // The primary has forgotten what others have said of it (Relay.replace), and says so by its silence alone.
        this.#core.relay.askAgain(hasMoved);
        return;
      }
      case 'primary_state': {
        this.#primaryState = message;
        const refusesMore = this.#outageGate.update(message);
        this.#core.changed();
        // Each look costs a step for each name of each stream.
        if (refusesMore) {
          this.#core.relay.server.failRefusedStreams();
          this.#core.relay.polls.failHopeless();
        }
        return;
      }
      case 'load_elsewhere': {
        const { load, most } = message;
        this.#loadElsewhere = load;
        if (most.streams !== undefined) this.#core.keepOldestStreams(most.streams);
        if (most.connections !== undefined) this.#core.admission.keepOldest(most.connections);
        return;
      }
      case 'log_levels':
        this.#logLevels.take(message.overrides);
        return;
      case 'canaries': {
        const moved = this.#canaries && movedBetween(this.#canaries, message);
        this.#canaries = message;
        if (moved === undefined) this.#core.reapplyRules();
        else this.#core.fleet.moved(moved);
        return;
      }
      case 'waiting':
        this.#reporter.ask(message);
        return;
      case 'tls_sessions':
        this.#take(message.sessions);
        return;
      case 'drain':
        return;
      default:
        message satisfies never;
    }
  }

  /** Ends the streams over the time given; then everything is closed. */
  async drain(milliseconds: number): Promise<void> {
    this.#core.beginDrain();
    await this.#listeners?.drain(milliseconds);
    await this.#core.loadReports.drain();
    this.#core.siblings.stop();
    await this.#core.relay.stop();
    await this.#core.traces?.stop();
    if (this.#asked !== undefined) await closeServer(this.#asked);
  }

  #take(sessions: Start['sessions']): void {
    for (const shared of sessions) this.#sessions.get(shared.listener)?.take(shared);
  }

  /** Resolves when it listens, and has said so. */
  async open(): Promise<Result<undefined>> {
    const { directory, slot } = this.#start;
    const { relay, loops } = this.#core;
    const feeds = [feedUpstream(this.#core, feedSocket(directory), relay)];
    if (this.#canaries !== undefined)
      feeds.push(
        feedUpstream(this.#core, canaryFeedSocket(directory), relay.canarySink, 'primary, for canaries'),
      );
    loops.onNewRelaysBelow(() => feeds.filter((feed) => feed.reannounce()).length > 0);
    relay.start(feeds);
    const asked = await this.#listenForPrimary(workerSocket(directory, slot));
    if (!asked.ok) return asked;
    this.#asked = asked.value;
    const answers: ClientAnswers = {
      serving: () => this.#primaryState.ready && !this.#core.isDraining,
      clientStatus: (query) =>
        query.scope.kind === 'connection'
          ? this.#clients.configs(query)
          : answerOf(askClientStatus(this.#primary, query)),
    };
    const listeners = await openClientListeners(this.#core, answers, (listener) =>
      this.#sessions.get(listener),
    );
    if (!listeners.ok) return listeners;
    this.#listeners = listeners.value;
    this.#send({ kind: 'listening', addresses: listeners.value.addresses });
    return ok(undefined);
  }

  /** What AdminService and WorkerService say, of this process only. */
  #listenForPrimary(path: string): Promise<Result<Server>> {
    const clients = this.#clients;
    const core = this.#core;
    const failed = (error: unknown): void => core.log.error('a request of the primary failed', { error });
    const subscriptionsOf = (node: string) => ({
      node,
      upstreams: [...core.subscribedUpstreams.here(node)],
    });
    return listenPrivately(
      path,
      (router) => {
        clientRoutes(router, clients, () => clients.status(), failed);
        router.service(WorkerService, {
          clientStatus: clientStatusBy((query) => this.#clientStatus(query)),
          subscribedUpstreams: ({ nodes }) => ({
            subscribed: nodes.map(subscriptionsOf).filter(({ upstreams }) => upstreams.length > 0),
          }),
          series: async () => ({ value: JSON.stringify(await core.metrics.series()) }),
          counters: () => ({ value: JSON.stringify(core.counters()) }),
        });
      },
      failed,
    );
  }

  /** For the primary. A client that asks is charged for its part of the answer, by each worker. */
  #clientStatus(query: ClientStatusQuery): ReturnType<ClientsView['configs']> {
    if (query.scope.kind !== 'identity') return this.#clients.configs(query);
    const payer = this.#core.accounts.ofIdentity(query.scope.identity);
    // Who has nothing open here has no stream either.
    return payer === undefined ? Promise.resolve(ok([])) : this.#clients.configs({ ...query, payer });
  }

  /** The primary reads the files; this process has what its clients ask for. */
  async #filesHave(sought: readonly Interest[]): Promise<readonly boolean[]> {
    const names = sought.map(({ type, selector, parameters }) => ({
      type,
      name: selector,
      parameters: Object.fromEntries(parameters.entries),
    }));
    const cached = new Set((await this.#primary.cached({ names })).cached);
    return sought.map((_, at) => cached.has(at));
  }

  /** Reports the load once for many changes: after 50 ms while the limits are far away, else at once. */
  #report(): void {
    if (this.#reporting) return;
    this.#reporting = true;
    const { limits } = this.#core.config;
    const { streams, connections } = this.#load;
    const room = Math.min(
      limits.maxStreams - streams - this.#loadElsewhere.streams,
      limits.maxConnections - connections - this.#loadElsewhere.connections,
    );
    systemClock.after(room > farFromLimit ? reportDelayMs : 0, () => {
      this.#reporting = false;
      this.#send({ kind: 'load_here', load: this.#load });
    });
  }

  get #load(): Load {
    const { openStreams: streams, admission } = this.#core;
    return { streams, connections: admission.connections };
  }
}

/** Within this time the primary answers from its cache. Milliseconds. */
const answerGraceMs = 1000;

/** `siblings`: the primary may ask them, and hear their answer later. */
type ClaimingUpstream = Pick<Config['upstreams'][number], 'name' | 'claims'> & {
  readonly siblings?: unknown;
};

const graceMs = ({ siblings }: ClaimingUpstream): number =>
  siblings === undefined ? answerGraceMs : answerGraceMs + siblingsGraceMs;

/**
 * Decides in a worker when a client's stream fails with UNAVAILABLE because an upstream is down (protocol §8,
 * Upstream outage). The primary reports which upstreams are down. It may still have the resource in its cache, so a
 * stream fails only if the primary has had one second to answer, and where siblings are asked their time too. A parameter
 * set without an upstream session fails at once.
 */
export class OutageGate {
  #upstreams: readonly ClaimingUpstream[];
  readonly #clock: Clock;
  /** By name: since when it is down, by `Clock.monotonic()`. */
  readonly #down = new Map<string, number>();
  /** What was subscribed while an upstream is down, by `idOf`: until when the primary has time to answer. */
  readonly #waiting = new Map<string, number>();
  /** By the upstream's name. */
  #refused: PrimaryState['refused'] = new Map();
  readonly #checks: Sweep;

  /** `recheck` is called every half second while an upstream is down. */
  constructor(upstreams: readonly ClaimingUpstream[], clock: Clock, recheck: () => void) {
    this.#upstreams = upstreams;
    this.#clock = clock;
    this.#checks = new Sweep(clock, answerGraceMs / 2, () => {
      this.#forget();
      recheck();
      return this.#down.size > 0;
    });
  }

  /** Returns whether another upstream than before serves an interest. */
  reload(upstreams: readonly ClaimingUpstream[]): (interest: Interest) => boolean {
    const before = this.#upstreams;
    this.#upstreams = upstreams;
    return ({ type, selector }) => {
      const now = claimant(upstreams, type, selector);
      return now !== undefined && now.name !== claimant(before, type, selector)?.name;
    };
  }

  /** True: an upstream refuses parameter sets that it has not refused before. */
  update({ down, refused }: Pick<PrimaryState, 'down' | 'refused'>): boolean {
    const refusesMore = refused
      .entries()
      .some(([name, { parameters }]) =>
        parameters.values().some((key) => this.#refused.get(name)?.parameters.has(key) !== true),
      );
    this.#refused = refused;
    this.#updateDown(down);
    return refusesMore;
  }

  #updateDown(down: readonly string[]): void {
    const now = this.#clock.monotonic();
    for (const name of this.#down.keys()) if (!down.includes(name)) this.#down.delete(name);
    for (const name of down) if (!this.#down.has(name)) this.#down.set(name, now);
    if (this.#down.size > 0) {
      this.#checks.start();
      return;
    }
    this.#waiting.clear();
    this.#checks.stop();
  }

  /** Why the primary's upstream does not take this interest; undefined: it does. */
  refusal(interest: Interest): string | undefined {
    const isRefused = (of: { readonly parameters: ReadonlySet<string> } | undefined): boolean =>
      of?.parameters.has(interest.parameters.key) === true;
    // Nearly always: which upstream it is costs more.
    if (!this.#refused.values().some(isRefused)) return undefined;
    const refused = this.#refused.get(this.#upstreamOf(interest)?.name ?? '');
    return isRefused(refused) ? refused?.message : undefined;
  }

  subscribed(interest: Interest): void {
    const upstream = this.#upstreamOf(interest);
    if (upstream === undefined || !this.#down.has(upstream.name)) return;
    this.#waiting.set(idOf(interest), this.#clock.monotonic() + graceMs(upstream));
  }

  isUnavailable(interest: Interest): boolean {
    const upstream = this.#upstreamOf(interest);
    const down = upstream && this.#down.get(upstream.name);
    if (upstream === undefined || down === undefined) return false;
    // What was subscribed just before that waits too.
    const until = Math.max(down + graceMs(upstream), this.#waiting.get(idOf(interest)) ?? 0);
    return this.#clock.monotonic() >= until;
  }

  /** Subscriptions that the primary still has time to answer. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** What is older decides nothing. */
  #forget(): void {
    const now = this.#clock.monotonic();
    for (const [id, until] of this.#waiting) if (until <= now) this.#waiting.delete(id);
  }

  #upstreamOf({ type, selector }: Interest): ClaimingUpstream | undefined {
    return claimant(this.#upstreams, type, selector);
  }
}

type Upstreams = ReadonlySet<string>;
const nothing: Upstreams = new Set();

/** How often it is asked about those who report, in milliseconds. */
const askAgainMs = 1000;
/** A stream of which nothing was heard for so long reports no more, in milliseconds. */
const forgottenMs = 15_000;

/** The primary and each worker answer in one turn. */
const mostAsked = 20_000;

interface Reporting {
  readonly node: string;
  /** By `Clock.monotonic()`: the last time. */
  reportedAt: number;
  /** In other workers, as far as it is known. */
  upstreams: Upstreams;
}

/**
 * A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
 * be in another worker than these: then its worker asks the primary, which asks all workers. Returns the names of upstreams
 * of which a node, the last one of its stream, has subscriptions in other workers, as far as it is known. `changed`: clients
 * may report to others from now on.
 */
export function subscribedElsewhere(
  clock: Clock,
  ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>,
  changed: () => void,
): (node: string, stream: string) => Upstreams {
  /** By the stream that reports: those whose node was asked about last are the last. */
  const streams = new Map<string, Reporting>();
  let isAsking = false;
  const looks = new Sweep(clock, askAgainMs, () => {
    const now = clock.monotonic();
    for (const [stream, { reportedAt }] of streams)
      if (now - reportedAt >= forgottenMs) streams.delete(stream);
    if (!isAsking && streams.size > 0) void look();
    return streams.size > 0;
  });

  return (node, stream) => {
    const reportedAt = clock.monotonic();
    const before = streams.get(stream);
    if (before?.node === node) {
      before.reportedAt = reportedAt;
      return before.upstreams;
    }
    streams.set(stream, { node, reportedAt, upstreams: nothing });
    looks.start();
    return nothing;
  };

  /** A primary that does not answer is asked again: what was known stays. */
  async function look(): Promise<void> {
    const asked = streams.entries().take(mostAsked).toArray();
    for (const [stream, one] of asked) {
      streams.delete(stream);
      streams.set(stream, one);
    }
    isAsking = true;
    const found = await ask([...new Set(asked.map(([, { node }]) => node))]).catch(() => undefined);
    isAsking = false;
    if (found === undefined) return;
    const upstreamsOf = new Map(found.map((one) => [one.node, new Set(one.upstreams)]));
    let isChanged = false;
    for (const [, one] of asked) {
      const upstreams = upstreamsOf.get(one.node) ?? nothing;
      if (one.upstreams.symmetricDifference(upstreams).size === 0) continue;
      one.upstreams = upstreams;
      isChanged = true;
    }
    if (isChanged) changed();
  }
}
