import type { AdsUpstreamConfig, Config, UpstreamConfig } from './config/config.ts';
import type { Core } from './core.ts';
import type { TypeUrl } from './model/brand.ts';
import { systemClock } from './model/clock.ts';
import { maxStampedDepth } from './model/constraints.ts';
import { areSame } from './model/maps.ts';
import { systemRandom } from './model/random.ts';
import type { HeldRemovals, UpdateMetrics, Upstream, UpstreamSink } from './model/upstream.ts';
import type { Log } from './observe/log.ts';
import { AdsUpstream } from './upstream/ads/ads-upstream.ts';
import type { AdsUpstreamOptions } from './upstream/ads/connection.ts';
import { CLAIMS_EVERYTHING } from './upstream/claims.ts';
import { FilesystemUpstream } from './upstream/filesystem/filesystem-upstream.ts';
import { ShrinkGuard } from './upstream/shrink-guard.ts';
import { Siblings } from './upstream/siblings.ts';
import { type UpstreamTls, watchUpstreamTls } from './watched-tls.ts';
import { systemLookup } from './wire/address.ts';
import { SIBLING_HEADER } from './wire/between-relays.ts';
import { Code, codeName } from './wire/grpc-status.ts';

interface UpstreamEntry {
  readonly upstream: AdsUpstream | FilesystemUpstream;
  /** Undefined: without max_removal_percent. */
  readonly guard: ShrinkGuard | undefined;
  readonly tls: UpstreamTls;
  /** Everything that it was made from. If that changes, another one is made. */
  readonly fingerprint: string;
}

/** Upstreams, each with everything that it is made from. */
const settingsOf = ({ limits, upstreams }: Config) =>
  upstreams.map((upstream, index) => {
    // Their claims decide which names are left for it, and their kind what its wildcards show: what files have, too.
    const before = upstreams.slice(0, index).map(({ kind, claims }) => ({ kind, claims }));
    const mostBytes = upstream.kind === 'ads' && limits.maxResponseBytes;
    const own = { ...upstream, loadReports: undefined };
    return { upstream, settings: [own, before, limits.maxConstraintDepth, mostBytes] };
  });

/** What becomes of upstreams: the sessions of one that has changed are opened again. */
export function upstreamChanges(before: Config, after: Config) {
  // Headers may be secrets: they are not sent to be compared.
  const text = (settings: unknown): string =>
    JSON.stringify(settings, (key, value: unknown) => (key === 'headers' ? undefined : value));
  const texts = (config: Config) =>
    new Map(settingsOf(config).map(({ upstream, settings }) => [upstream.name, text(settings)]));
  const [was, is] = [texts(before), texts(after)];
  return [...new Set([...was.keys(), ...is.keys()])].flatMap((name) => {
    if (was.get(name) === is.get(name)) return [];
    return { name, change: !was.has(name) ? 'ADDED' : is.has(name) ? 'CHANGED' : 'REMOVED' };
  });
}

/** How long after a start the shrink guard counts removals of files, in milliseconds: one scan reads them all. */
const filesWatchMs = 10_000;

/** The upstreams in force. */
export class UpstreamSet {
  readonly #core: Core;
  #entries: readonly UpstreamEntry[] = [];
  /** It is in force for them, and soon for the rest. */
  #config: Config;

  constructor(core: Core, config: Config) {
    this.#core = core;
    this.#config = config;
  }

  /** Those of the configuration, not started. */
  make(): readonly Upstream[] {
    this.#entries = this.#all();
    return this.#entries.map(({ upstream }) => upstream);
  }

  /**
   * Those of another configuration. The rules change first, while the sessions of the old rules exist. Then upstreams
   * are replaced: what came from the old one stays cached until the new one has answered.
   */
  reload(config: Config): void {
    this.#config = config;
    for (const { upstream } of this.#entries) {
      if ('reconfigure' in upstream) upstream.reconfigure(config.parameters);
    }
    const entries = this.#all();
    const before = this.#entries;
    this.#entries = entries;
    const replaced = before.filter((entry) => !entries.includes(entry));
    this.#core.staleness.carry(replaced.map(({ upstream }) => upstream));
    for (const entry of replaced) {
      entry.guard?.stop();
      entry.tls.close();
    }
    if (!areSame(before, entries)) this.#core.relay.replace(entries.map(({ upstream }) => upstream));
    for (const { upstream } of before)
      if (!config.upstreams.some(({ name }) => name === upstream.name)) {
        this.#core.metrics.forgetUpstream(upstream.name);
        this.#core.staleness.forget(upstream.name);
      }
  }

  /** What of an upstream's removals is held back. */
  heldRemovals(name: string): readonly HeldRemovals[] {
    return this.#entries.find(({ upstream }) => upstream.name === name)?.guard?.held() ?? [];
  }

  /** Removes what is held back of one type, or of all; how many that were. Undefined: there is no such upstream. */
  releaseRemovals(name: string, type: TypeUrl | undefined): number | undefined {
    const entry = this.#entries.find(({ upstream }) => upstream.name === name);
    return entry === undefined ? undefined : (entry.guard?.release(type) ?? 0);
  }

  /** x-distributary-via has changed: opens the streams again that must show it. Whether there were any. */
  reannounce(): boolean {
    const reopened = this.#entries.filter(
      ({ upstream }) => 'reannounce' in upstream && upstream.reannounce(),
    );
    return reopened.length > 0;
  }

  /** Follows no files any more. The upstreams themselves are the relay's. */
  close(): void {
    for (const { guard, tls } of this.#entries) {
      guard?.stop();
      tls.close();
    }
  }

  #all(): readonly UpstreamEntry[] {
    return settingsOf(this.#config).map(({ upstream, settings }): UpstreamEntry => {
      const fingerprint = JSON.stringify(settings);
      const known = this.#entries.find((entry) => entry.fingerprint === fingerprint);
      return known ?? this.#one(upstream, fingerprint);
    });
  }

  #one(upstream: UpstreamConfig, fingerprint: string): UpstreamEntry {
    const { relay, metrics, log } = this.#core;
    const tls = watchUpstreamTls(upstream, this.#core);
    const { name, maxRemovalPercent, maxRemovalHoldMs } = upstream;
    const guard =
      maxRemovalPercent === undefined
        ? undefined
        : new ShrinkGuard(relay, {
            cache: relay.store,
            // With `rollout`, too many removals of its types are held by it.
            guards: (type) => this.#config.rollout?.types.includes(type) !== true,
            maxRemovalPercent,
            maxRemovalHoldMs,
            watchMs: upstream.kind === 'ads' ? 2 * upstream.resourceTimeoutMs : filesWatchMs,
            // What is wrong with another file says nothing of what these have lost.
            current: () =>
              upstream.kind === 'ads' ? made.state().staleSince === undefined : made.state().connected,
            clock: systemClock,
            log: log.child({ upstream: name }),
            held: (type, count) => {
              metrics.set.heldRemovals(name, type).value = count;
            },
          });
    const made = this.#upstream(upstream, guard ?? relay, tls);
    return { upstream: made, guard, tls, fingerprint };
  }

  /** An upstream of a configuration, not started. */
  #upstream(
    upstream: UpstreamConfig,
    sink: UpstreamSink,
    tls: UpstreamTls,
  ): AdsUpstream | FilesystemUpstream {
    const { name, claims } = upstream;
    const core = this.#core;
    const { log, metrics, loops, version } = core;
    const { node, parameters, limits } = this.#config;
    const { maxConstraintDepth, maxResponseBytes } = limits;
    const clock = systemClock;
    if (upstream.kind === 'filesystem') {
      const { path } = upstream;
      // It adds its name to lines of the log itself.
      const around = { clock, log, metrics: updateMetrics(core, name) };
      const replaced = this.#entries.find((entry) => entry.upstream.name === name)?.upstream;
      const before = replaced instanceof FilesystemUpstream ? replaced : undefined;
      return new FilesystemUpstream({ name, path, claims, maxConstraintDepth, before, ...around }, sink);
    }
    // From 0: increase() does not see a series' first increment.
    const reconnects = metrics.count.reconnects(name);
    for (const code of [Code.OK, Code.UNAVAILABLE]) metrics.count.streamEnds(name, codeName(code));
    return new AdsUpstream(
      {
        ...upstream,
        tls: tls.ads,
        maxResponseBytes,
        rules: parameters,
        node,
        version,
        via: () => loops.via(),
        maxConstraintDepth,
        maxSessions: () => this.#config.limits.maxUpstreamSessions,
        clock,
        random: systemRandom,
        log: log.child({ upstream: name }),
        metrics: {
          ...updateMetrics(core, name),
          reconnect: () => reconnects.inc(),
          streamEnd: (code) => metrics.count.streamEnds(name, codeName(code)).inc(),
          refused: () => metrics.count.rejected('upstream_sessions').inc(),
        },
      },
      sink,
      upstream.siblings && siblingsOf(core, maxResponseBytes, upstream, upstream.siblings, tls.siblings),
    );
  }
}

function updateMetrics({ metrics, traces }: Core, name: string): UpdateMetrics {
  return {
    accepted: (type) => {
      metrics.count.updates(name, type, 'accepted').inc();
      metrics.set.lastUpdate(name, type).value = systemClock.now() / 1000;
    },
    rejected: (type, reason, arrivedAt) => {
      metrics.refusedUpdate(name, type, reason);
      traces?.refused(name, type, arrivedAt);
    },
  };
}

/** A replica that starts is asked soon. */
const siblingBackoff = { initialMs: 250, maxMs: 5000 };

/** How the siblings of an upstream are reached. What comes from them removes nothing, so no guard sees it. */
function siblingsOf(
  core: Core,
  maxResponseBytes: number,
  { name, connectTimeoutMs, keepalive, failbackAfterMs }: AdsUpstreamConfig,
  { address }: NonNullable<AdsUpstreamConfig['siblings']>,
  tls: UpstreamTls['siblings'],
): Siblings {
  const { relayId } = core.loops;
  const log = core.log.child({ upstream: name });
  const serverName = tls?.serverName ?? (address.kind === 'tcp' ? address.host : undefined);
  const options = {
    name,
    tls: tls && { ...tls, serverName },
    headers: [[SIBLING_HEADER, relayId]] as const,
    connectTimeoutMs,
    maxResponseBytes,
    keepalive,
    backoff: siblingBackoff,
    failbackAfterMs,
    // Relays below this one are not told of: who answers a sibling asks nobody.
    via: () => relayId,
    // They come and go: what happens to one of them is no event for operators.
    log: atDebugLevel(log, 'sibling: '),
    metrics: {},
  };
  return new Siblings(
    {
      name,
      address,
      lookup: systemLookup,
      random: systemRandom,
      clock: systemClock,
      connect: (at, sink) => relayUpstream(core, { ...options, endpoints: [at] }, sink),
      lookupFailed: (host, error) =>
        log.debug('the siblings are not found', {
          host,
          error: error instanceof Error ? error.message : error,
        }),
    },
    core.relay,
  );
}

const ofRelays = {
  claims: CLAIMS_EVERYTHING,
  protocol: 'DELTA',
  variants: 'NATIVE',
  sessionPerParameters: true,
  // A relay that does not know something says nothing, for however long.
  resourceTimeoutMs: undefined,
  rules: [],
  // It has judged what it passes on, by its own limit. What is deeper by now has its stamp.
  maxConstraintDepth: maxStampedDepth,
  clock: systemClock,
  random: systemRandom,
} as const;

/** A relay of ours as an upstream: a sibling, or a worker's primary. It has all variants, and a stream for each parameter set. */
export function relayUpstream(
  core: Core,
  its: Omit<AdsUpstreamOptions, keyof typeof ofRelays | 'node' | 'version' | 'maxSessions'>,
  sink: UpstreamSink,
): AdsUpstream {
  return new AdsUpstream(
    {
      ...its,
      ...ofRelays,
      node: core.config.node,
      version: core.version,
      // A worker keeps its upstream over a reload.
      maxSessions: () => core.config.limits.maxUpstreamSessions,
    },
    sink,
  );
}

/** All lines at the level debug. */
function atDebugLevel(log: Log, prefix: string): Log {
  const debug: Log['debug'] = (message, fields) => log.debug(prefix + message, fields);
  const child: Log['child'] = (fields) => atDebugLevel(log.child(fields), prefix);
  return { debug, info: debug, warn: debug, error: debug, child };
}
