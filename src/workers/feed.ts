import type { Config } from '../config/config.ts';
import type { Core } from '../core.ts';
import { routes } from '../downstream/xds-server.ts';
import { loadNode } from '../load-reports.ts';
import { LOAD_PATH } from '../model/load.ts';
import type { Result } from '../model/result.ts';
import { ADS_SERVICE } from '../model/types.ts';
import type { UpstreamSink } from '../model/upstream.ts';
import type { AdsUpstream } from '../upstream/ads/ads-upstream.ts';
import { relayUpstream } from '../upstream-set.ts';
import { type GrpcServer, listenGrpc } from '../wire/http2-server.ts';
import type { Message } from './ipc-messages.ts';
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
export function workerConfig(config: Config, ports: Message<'start'>['ports']): Config {
  const { rest } = config;
  const { address } = config.xds;
  const xdsPort = address.kind === 'tcp' ? ports.xds : undefined;
  return {
    ...config,
    // The primary judges, and says who is a canary, of those that may be one (`canary_principals`).
    rollout: undefined,
    xds: { ...config.xds, address: { ...address, ...(xdsPort && { port: xdsPort.port }) } },
    rest: rest && { ...rest, address: { ...rest.address, ...(ports.rest && { port: ports.rest.port }) } },
    // The primary keeps idle interests for the configured time. An idle interest of a worker looks used to the primary,
    // so its session could not make room for another one.
    cache: { ...config.cache, idleTtlMs: Math.min(config.cache.idleTtlMs / 10, workerIdleMilliseconds) },
  };
}

/** The primary's end of the socket. */
export function openFeed(core: Core, socket: string): Promise<Result<GrpcServer>> {
  return listenGrpc({
    address: `unix:${socket}`,
    unixMode: socketMode,
    accept: (asked) => {
      if (asked === LOAD_PATH) return (stream) => core.loadReports.accept(stream);
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
}

const backoff = { initialMs: 20, maxMs: 1000 };
/** No ping in practice: the system says when a process has ended. Milliseconds. */
const neverMs = 2 ** 31 - 1;

/**
 * A worker's upstream: the primary, at the socket given. The primary decides how long to wait for control planes, and what
 * happens to the connection is no event for operators; a response that is rejected is.
 */
export function feedUpstream(core: Core, socket: string, sink: UpstreamSink, name = 'primary'): AdsUpstream {
  const { metrics, log, loops } = core;
  const own = log.child({ upstream: name });
  return relayUpstream(
    core,
    {
      name,
      endpoints: [{ kind: 'unix', path: socket }],
      tls: undefined,
      connectTimeoutMs: 10_000,
      maxResponseBytes: -1,
      keepalive: { timeMs: neverMs, timeoutMs: neverMs },
      backoff,
      failbackAfterMs: 0,
      via: () => loops.via(),
      loadNode: (target) => loadNode(core.config, target),
      log: { ...own, info: (message, fields) => own.debug(message, fields) },
      metrics: {
        accepted: (type) => metrics.count.updates(name, type, 'accepted').inc(),
        rejected: (type, reason) => metrics.refusedUpdate(name, type, reason),
        reconnect: () => metrics.count.reconnects(name).inc(),
      },
    },
    sink,
  );
}
