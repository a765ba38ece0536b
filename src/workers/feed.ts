import { chmodSync } from 'node:fs';
import type { Core } from '../assembly/core.ts';
import type { Config } from '../config/config.ts';
import { routes } from '../downstream/xds-server.ts';
import type { TypeUrl } from '../model/brand.ts';
import { systemClock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import type { Result } from '../model/result.ts';
import type { Interest } from '../model/transaction.ts';
import { ADS_SERVICE } from '../model/types.ts';
import type { Refusals, Suspect, Upstream, UpstreamSink, UpstreamState } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import { AdsUpstream } from '../upstream/ads/ads-upstream.ts';
import { CLAIMS_EVERYTHING } from '../upstream/claims.ts';
import { type GrpcServer, listenGrpc } from '../wire/http2-server.ts';
import type { Start } from './ipc-messages.ts';
import { socketMode } from './private-socket.ts';

/**
 * How the primary feeds its workers: with TP2 delta over a Unix socket that only this user can reach, as a relay feeds a
 * relay. Parameters are derived and rules applied where the clients are, so the primary has none for its workers.
 */

const path = `/${ADS_SERVICE}/DeltaAggregatedResources`;
/** A worker that reconnects may name everything that it has in one request. */
const maxRequestBytes = 1 << 28;
/** How long a worker keeps idle interests, for clients that come back. */
const workerIdleMilliseconds = 2000;

/** The configuration by which the primary serves its workers. */
export function feedConfig(config: Config): Config {
  return {
    ...config,
    parameters: [],
    xds: {
      ...config.xds,
      authorization: [],
      plainClients: 'WITH_CONSTRAINTS',
      sotwVersions: 'VERBATIM',
      legacyWildcard: undefined,
    },
    limits: {
      ...config.limits,
      maxStreams: Number.POSITIVE_INFINITY,
      firstRequestTimeoutMs: Number.POSITIVE_INFINITY,
    },
  };
}

/** The configuration by which a worker serves clients. */
export function workerConfig(config: Config, { port, restPort }: Pick<Start, 'port' | 'restPort'>): Config {
  const { rest } = config;
  const { address } = config.xds;
  return {
    ...config,
    // The primary judges, and says who is a canary.
    rollout: undefined,
    xds: {
      ...config.xds,
      address: address.kind === 'tcp' && port !== undefined ? { ...address, port } : address,
    },
    rest:
      rest !== undefined && restPort !== undefined
        ? { ...rest, address: { ...rest.address, port: restPort } }
        : rest,
    // The primary keeps idle interests for the configured time. An idle interest of a worker looks used to the primary,
    // so its session could not make room for another one.
    cache: { ...config.cache, idleTtlMs: Math.min(config.cache.idleTtlMs / 10, workerIdleMilliseconds) },
  };
}

/** The primary's end of the socket. */
export async function openFeed(core: Core, socket: string): Promise<Result<GrpcServer>> {
  const listening = await listenGrpc({
    address: `unix:${socket}`,
    accept: (asked) => {
      const route = asked === path ? routes.get(path) : undefined;
      if (route === undefined) return undefined;
      return (stream) => {
        // The worker has looked for loops, and both processes are one relay.
        const refusal = core.relay.server.accept(stream, route);
        if (refusal === undefined) core.loops.streamAccepted(stream);
        else stream.end(refusal);
      };
    },
    maxRequestBytes,
    report: (message, error) =>
      core.conditions.set('feed', `${message}: ${String(error)}`, 'warn', message, { error }),
  });
  if (listening.ok) chmodSync(socket, socketMode);
  return listening;
}

/** No timeout in practice: the primary decides how long to wait for control planes. Milliseconds. */
const longestTimeoutMs = 2 ** 31 - 1;
const backoff = { initialMs: 20, maxMs: 1000 };

/** A worker's one upstream: the primary, at the socket given. */
export function feedUpstream(core: Core, socket: string, sink: UpstreamSink, name = 'primary'): AdsUpstream {
  const { config, metrics, version, log, loops } = core;
  return new AdsUpstream(
    {
      name,
      claims: CLAIMS_EVERYTHING,
      endpoints: [{ kind: 'unix', path: socket }],
      protocol: 'DELTA',
      variants: 'NATIVE',
      sessionPerParameters: true,
      tls: undefined,
      connectTimeoutMs: 10_000,
      maxResponseBytes: -1,
      resourceTimeoutMs: longestTimeoutMs,
      keepalive: { timeMs: longestTimeoutMs, timeoutMs: longestTimeoutMs },
      backoff,
      failbackAfterMs: 0,
      rules: [],
      node: config.node,
      version,
      via: () => loops.via(),
      maxConstraintDepth: config.limits.maxConstraintDepth,
      maxSessions: config.limits.maxUpstreamSessions,
      clock: systemClock,
      random: systemRandom,
      log: atDebugLevel(log.child({ upstream: name })),
      metrics: {
        accepted: (type) => metrics.updates(name, type, 'accepted').inc(),
        rejected: (type, reason) => metrics.refusedUpdate(name, type, reason),
        reconnect: () => metrics.reconnects(name).inc(),
      },
    },
    sink,
  );
}

/** The connection to the primary is logged at the level debug only. */
function atDebugLevel(log: Log): Log {
  return {
    debug: (message, fields) => log.debug(message, fields),
    info: (message, fields) => log.debug(message, fields),
    warn: (message, fields) => log.warn(message, fields),
    error: (message, fields) => log.error(message, fields),
    child: (fields) => atDebugLevel(log.child(fields)),
  };
}

/** The feeds of both sides as one upstream: each gets every interest (docs/adr/0130). */
export class FeedsOfSides implements Upstream {
  readonly name: string;
  readonly #released: AdsUpstream;
  readonly #canary: AdsUpstream;

  constructor(released: AdsUpstream, canary: AdsUpstream) {
    this.name = released.name;
    this.#released = released;
    this.#canary = canary;
  }

  claims(type: TypeUrl, selector: string): boolean {
    return this.#released.claims(type, selector);
  }

  subscribe(interest: Interest): void {
    this.#each((feed) => feed.subscribe(interest));
  }

  resubscribe(interest: Interest): void {
    this.#each((feed) => feed.resubscribe(interest));
  }

  unsubscribe(interest: Interest): void {
    this.#each((feed) => feed.unsubscribe(interest));
  }

  markIdle(interest: Interest): void {
    this.#each((feed) => feed.markIdle(interest));
  }

  markActive(interest: Interest): void {
    this.#each((feed) => feed.markActive(interest));
  }

  refusal(interest: Interest): string | undefined {
    return this.#released.refusal(interest) ?? this.#canary.refusal(interest);
  }

  refusals(): Refusals | undefined {
    return this.#released.refusals() ?? this.#canary.refusals();
  }

  /** The worse of the two. */
  state(): UpstreamState {
    const [released, canary] = [this.#released.state(), this.#canary.state()];
    return {
      ...(released.connected ? canary : released),
      everConnected: released.everConnected && canary.everConnected,
      down: released.down || canary.down,
    };
  }

  suspects(): readonly Suspect[] {
    return [...this.#released.suspects(), ...this.#canary.suspects()];
  }

  /** See AdsUpstream. */
  reannounce(): boolean {
    const released = this.#released.reannounce();
    return this.#canary.reannounce() || released;
  }

  start(): void {
    this.#each((feed) => feed.start());
  }

  async stop(): Promise<void> {
    await Promise.all([this.#released.stop(), this.#canary.stop()]);
  }

  #each(act: (feed: AdsUpstream) => void): void {
    act(this.#released);
    act(this.#canary);
  }
}
