import type { Core } from '../assembly/core.ts';
import { systemClock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import type { UpstreamSink } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import { AdsUpstream } from '../upstream/ads/ads-upstream.ts';
import { CLAIMS_EVERYTHING } from '../upstream/claims.ts';

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
        updates: (type, result) => metrics.updates(name, type, result).inc(),
        lastUpdate: () => {},
        reconnect: () => metrics.reconnects(name).inc(),
        streamEnd: () => {},
        refused: () => {},
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
