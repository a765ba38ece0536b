import type { AdsUpstreamConfig, Config } from '../config/config.ts';
import type { Clock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import type { Upstream, UpstreamSink } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import { AdsUpstream } from '../upstream/ads/ads-upstream.ts';
import { CLAIMS_EVERYTHING } from '../upstream/claims.ts';
import type { SiblingsOptions } from '../upstream/siblings.ts';
import { type Address, systemLookup } from '../wire/address.ts';
import { SIBLING_HEADER } from '../wire/via.ts';
import type { UpstreamTls } from './watched-tls.ts';

interface SiblingDependencies {
  readonly clock: Clock;
  readonly log: Log;
  readonly version: string;
  /** This relay's own id. */
  readonly relayId: string;
  readonly tls: UpstreamTls;
}

/** A sibling that does not have something says nothing, for however long. Milliseconds. */
const longestTimeoutMs = 2 ** 31 - 1;
/** A replica that starts is asked soon. */
const backoff = { initialMs: 250, maxMs: 5000 };

/** How the siblings of an upstream are reached: as relays of variants, with a stream for each parameter set. */
export function siblingsOptions(
  config: Config,
  upstream: AdsUpstreamConfig,
  { address }: NonNullable<AdsUpstreamConfig['siblings']>,
  dependencies: SiblingDependencies,
): SiblingsOptions {
  const { name } = upstream;
  const { clock, relayId, version } = dependencies;
  const tls = dependencies.tls.siblings;
  const log = dependencies.log.child({ upstream: name });
  const serverName = tls?.serverName ?? (address.kind === 'tcp' ? address.host : undefined);
  const connect = (at: Address, sink: UpstreamSink): Upstream =>
    new AdsUpstream(
      {
        name,
        claims: CLAIMS_EVERYTHING,
        endpoints: [at],
        protocol: 'DELTA',
        variants: 'NATIVE',
        sessionPerParameters: true,
        tls: tls && { ...tls, serverName },
        headers: [[SIBLING_HEADER, relayId]],
        connectTimeoutMs: upstream.connectTimeoutMs,
        maxResponseBytes: config.limits.maxResponseBytes,
        resourceTimeoutMs: longestTimeoutMs,
        keepalive: upstream.keepalive,
        backoff,
        failbackAfterMs: upstream.failbackAfterMs,
        rules: [],
        node: config.node,
        version,
        // Relays below this one are not told of: who answers a sibling asks nobody.
        via: () => relayId,
        maxConstraintDepth: config.limits.maxConstraintDepth,
        maxSessions: config.limits.maxUpstreamSessions,
        clock,
        random: systemRandom,
        log: atDebugLevel(log),
        metrics: {},
      },
      sink,
    );
  return {
    name,
    address,
    lookup: systemLookup,
    random: systemRandom,
    clock,
    connect,
    lookupFailed: (host, error) =>
      log.debug('the siblings are not found', {
        host,
        error: error instanceof Error ? error.message : error,
      }),
  };
}

/** Siblings come and go: what happens to one of them is no event for operators. */
function atDebugLevel(log: Log): Log {
  const debug: Log['debug'] = (message, fields) => log.debug(`sibling: ${message}`, fields);
  return {
    debug,
    info: debug,
    warn: debug,
    error: debug,
    child: (fields) => atDebugLevel(log.child(fields)),
  };
}
