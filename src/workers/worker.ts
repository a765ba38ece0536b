import type { Load } from '../assembly/admission.ts';
import { ClientListeners } from '../assembly/client-serving.ts';
import { Core } from '../assembly/core.ts';
import { openTraces } from '../assembly/open-traces.ts';
import { inForce, reloadPreview } from '../assembly/reload-effect.ts';
import type { Config } from '../config/config.ts';
import { parseConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { LocalClients } from '../inspect/local-clients.ts';
import type { TypeUrl } from '../model/brand.ts';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Interest } from '../model/transaction.ts';
import type { Log } from '../observe/log.ts';
import type { LogLevels } from '../observe/log-levels.ts';
import type { Spans } from '../observe/update-traces.ts';
import { startWatchdog } from '../observe/watchdog.ts';
import { type ClaimOptions, claims } from '../upstream/claims.ts';
import { AnswerReporter } from './answer-reporter.ts';
import { CanaryNodes, CanaryReporter } from './canary-reporter.ts';
import { fetchClientStatus } from './client-status-rpc.ts';
import { FeedsOfSides, feedUpstream, workerConfig } from './feed.ts';
import type { PrimaryState, Start, ToPrimary, ToWorker } from './ipc-messages.ts';
import {
  attempt,
  canaryFeedSocket,
  feedSocket,
  primarySocket,
  privateTransport,
  workerSocket,
} from './private-socket.ts';
import { listenForPrimary } from './worker-listener.ts';

/** How long the primary may take to ask all workers, in milliseconds. */
const primaryTimeoutMs = 10_000;

/** More new streams and connections than arrive within `reportDelayMs` milliseconds. */
const farFromLimit = 5000;
const reportDelayMs = 50;

export interface WorkerOptions {
  /** Unlike the number, never used again. */
  readonly id: number;
  readonly start: Start;
  readonly log: Log;
  readonly logLevels: LogLevels;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly send: (message: ToPrimary) => void;
}

/** A serving process: a relay with one upstream, the primary. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #core: Core;
  readonly #clients: LocalClients;
  readonly #outageGate: OutageGate;
  /** With a rollout. */
  readonly #canaries: CanaryNodes | undefined;
  readonly #reporter: CanaryReporter;
  #primaryState: Pick<PrimaryState, 'ready' | 'served'> = { ready: false, served: [] };
  #loadElsewhere: Load = { streams: 0, connections: 0 };
  #reporting = false;
  #listeners: ClientListeners | undefined;

  private constructor(config: Config, options: WorkerOptions, spans: Spans | undefined) {
    this.#options = options;
    const { id, log, logLevels, start, send } = options;
    this.#canaries = start.canaries && new CanaryNodes(start.canaries);
    this.#outageGate = new OutageGate(config.upstreams, systemClock, () => this.#core.relay.changed());
    this.#core = new Core(
      workerConfig(config, start),
      {
        log,
        logLevels,
        spans,
        version: start.version,
        processMetrics: true,
        answers: new AnswerReporter(systemClock, send),
      },
      {
        streamPrefix: `${id}-`,
        loadElsewhere: () => this.#loadElsewhere,
        loadChanged: () => this.#report(),
        isUnavailable: (type, selector) => this.#outageGate.isUnavailable(type, selector),
        refusal: (interest) => this.#outageGate.refusal(interest),
        relayId: start.relayId,
        ambiguityReportedElsewhere: true,
        subscribed: ({ type, selector }) => this.#outageGate.subscribed(type, selector),
        isServed: (type) => this.#primaryState.served.includes(type),
        upstreamPerSide: this.#canaries !== undefined,
        rollout: {
          fleet: undefined,
          sideOf: (client) => this.#canaries?.sideOf(client) ?? 'released',
          canaryAnswered: () => this.#reporter.answered(),
          canaryEnded: (stream) => this.#reporter.ended(stream),
        },
      },
    );
    const { relay } = this.#core;
    this.#reporter = new CanaryReporter({
      fleet: this.#core.rollout.fleet,
      clock: systemClock,
      send,
    });
    this.#clients = new LocalClients(
      relay,
      this.#core.accounts,
      reloadPreview(this.#core),
      () => this.#canaries?.rules,
    );
  }

  /** Resolves with the worker when it listens, and has said so. */
  static async start(options: WorkerOptions): Promise<Result<Worker>> {
    const config = readConfig(options);
    if (!config.ok) return config;
    const { log, id, start, send } = options;
    const spans = await openTraces(config.value, { log, version: start.version, worker: id });
    const worker = new Worker(config.value, options, spans);
    const listening = await worker.#open();
    if (!listening.ok) return listening;
    startWatchdog(config.value.watchdog, {
      format: start.logFormat,
      fields: { worker: id },
      turned: () => send({ kind: 'turned' }),
      failed: (error) => log.error('the watchdog has exited', { error }),
    });
    return ok(worker);
  }

  receive(message: Exclude<ToWorker, Start>): void {
    switch (message.kind) {
      case 'reload':
        this.#reload(message.text);
        return;
      case 'primary_state':
        this.#primaryState = message;
        this.#outageGate.update(message);
        this.#core.changed();
        if (message.refused.length > 0) {
          this.#core.relay.server.failRefusedStreams();
          this.#core.relay.polls.failHopeless();
        }
        return;
      case 'load_elsewhere':
        this.#loadElsewhere = message.load;
        if (message.mostStreams !== undefined) this.#core.relay.server.keepOldest(message.mostStreams);
        return;
      case 'log_levels':
        this.#options.logLevels.take(message.overrides);
        return;
      case 'canaries': {
        const moved = this.#canaries?.update(message);
        if (moved === undefined) this.#core.reapplyRules();
        else this.#core.rollout.fleet.moved(moved);
        return;
      }
      case 'waiting':
        this.#reporter.ask(message);
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
    this.#core.siblings.stop();
    await this.#core.relay.stop();
    await this.#core.traces?.stop();
  }

  async #open(): Promise<Result<undefined>> {
    const { start, send } = this.#options;
    const { relay, loops } = this.#core;
    const released = feedUpstream(this.#core, feedSocket(start.directory), relay);
    const feed =
      this.#canaries === undefined
        ? released
        : new FeedsOfSides(
            released,
            feedUpstream(
              this.#core,
              canaryFeedSocket(start.directory),
              relay.canarySink,
              'primary, for canaries',
            ),
          );
    loops.onNewRelaysBelow(() => feed.reannounce());
    relay.start([feed]);
    const answers = await listenForPrimary(
      workerSocket(start.directory, start.slot),
      this.#core,
      this.#clients,
    );
    if (!answers.ok) return answers;
    const primary = privateTransport(primarySocket(start.directory), primaryTimeoutMs);
    const listeners = await ClientListeners.open(this.#core, {
      serving: () => this.#primaryState.ready && !this.#core.isDraining,
      clientStatus: (query) =>
        query.scope.kind === 'connection'
          ? this.#clients.configs(query)
          : attempt(fetchClientStatus(primary, query)),
    });
    if (!listeners.ok) return listeners;
    this.#listeners = listeners.value;
    send({ kind: 'listening', addresses: [...listeners.value.addresses] });
    return ok(undefined);
  }

  #reload(text: string): void {
    const config = readConfig({ ...this.#options, start: { ...this.#options.start, text } });
    if (!config.ok) {
      // The primary has read the same text.
      this.#options.log.error('a worker cannot read the new configuration', { error: config.error });
      return;
    }
    this.#outageGate.reload(config.value.upstreams);
    this.#core.reload(workerConfig(config.value, this.#options.start));
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
      this.#options.send({ kind: 'load_here', load: this.#load });
    });
  }

  get #load(): Load {
    const { relay, admission } = this.#core;
    return { streams: relay.server.size, connections: admission.connections };
  }
}

function readConfig({ start, environment }: Pick<WorkerOptions, 'start' | 'environment'>): Result<Config> {
  const read = parseConfig(start.text, start.file, environment);
  const started = parseConfig(start.startedText, start.file, environment);
  if (read.ok) return ok(started.ok ? inForce(started.value, read.value) : read.value);
  return fail(read.error.map((problem) => problemLine(start.file, problem)).join('; '));
}

/** Within this time the primary answers from its cache. Milliseconds. */
const answerGraceMs = 1000;

interface ClaimingUpstream {
  readonly name: string;
  readonly claims: ClaimOptions;
}

/**
 * Decides in a worker when a client's stream fails with UNAVAILABLE because an upstream is down (protocol §8,
 * Upstream outage). The primary reports which upstreams are down. It may still have the resource in its cache, so a
 * stream fails only if the primary has had one second to answer. A parameter set without an upstream session fails at
 * once.
 */
export class OutageGate {
  #upstreams: readonly ClaimingUpstream[];
  readonly #clock: Clock;
  readonly #recheck: () => void;
  /** By name: since when it is down. */
  readonly #down = new Map<string, number>();
  /** What was subscribed while an upstream is down, and when. */
  readonly #subscribedAt = new Map<TypeUrl, Map<string, number>>();
  /** By the upstream's name. */
  #refused: ReadonlyMap<string, { readonly message: string; readonly keys: ReadonlySet<string> }> = new Map();
  #timer: Timer | undefined;

  /** `recheck` is called every half second while an upstream is down. */
  constructor(upstreams: readonly ClaimingUpstream[], clock: Clock, recheck: () => void) {
    this.#upstreams = upstreams;
    this.#clock = clock;
    this.#recheck = recheck;
  }

  reload(upstreams: readonly ClaimingUpstream[]): void {
    this.#upstreams = upstreams;
  }

  update({ down, refused }: Pick<PrimaryState, 'down' | 'refused'>): void {
    this.#refused = new Map(
      refused.map(({ upstream, message, parameters }) => [upstream, { message, keys: new Set(parameters) }]),
    );
    const now = this.#clock.now();
    for (const name of this.#down.keys()) if (!down.includes(name)) this.#down.delete(name);
    for (const name of down) if (!this.#down.has(name)) this.#down.set(name, now);
    if (this.#down.size === 0) this.#subscribedAt.clear();
    this.#watch();
  }

  /** Why the primary's upstream does not take this interest; undefined: it does. */
  refusal({ type, selector, parameters }: Interest): string | undefined {
    if (this.#refused.size === 0) return undefined;
    const refused = this.#refused.get(this.#upstreamOf(type, selector)?.name ?? '');
    return refused?.keys.has(parameters.key) === true ? refused.message : undefined;
  }

  subscribed(type: TypeUrl, selector: string): void {
    if (this.#down.size === 0) return;
    const selectors = this.#subscribedAt.get(type) ?? new Map<string, number>();
    this.#subscribedAt.set(type, selectors);
    selectors.set(selector, this.#clock.now());
  }

  isUnavailable(type: TypeUrl, selector: string): boolean {
    const upstream = this.#upstreamOf(type, selector);
    const down = upstream === undefined ? undefined : this.#down.get(upstream.name);
    if (down === undefined) return false;
    const subscribedAt = this.#subscribedAt.get(type)?.get(selector) ?? 0;
    return this.#clock.now() - Math.max(down, subscribedAt) >= answerGraceMs;
  }

  #upstreamOf(type: TypeUrl, selector: string): ClaimingUpstream | undefined {
    return this.#upstreams.find((one) => claims(one.claims, type, selector));
  }

  #watch(): void {
    if (this.#down.size === 0) {
      this.#timer?.cancel();
      this.#timer = undefined;
      return;
    }
    this.#timer ??= this.#clock.after(answerGraceMs / 2, () => {
      this.#timer = undefined;
      this.#recheck();
      this.#watch();
    });
  }
}
