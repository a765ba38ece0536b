import type { AdsUpstreamConfig, Config, UpstreamConfig } from '../config/config.ts';
import type { Clock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import type { UpdateMetrics, UpstreamSink } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { UpdateTraces } from '../observe/update-traces.ts';
import { AdsUpstream } from '../upstream/ads/ads-upstream.ts';
import { FilesystemUpstream } from '../upstream/filesystem/filesystem-upstream.ts';
import { Siblings, type SiblingsSink } from '../upstream/siblings.ts';
import { Code, codeName } from '../wire/grpc-status.ts';
import { siblingsOptions } from './siblings-options.ts';
import type { UpstreamTls } from './watched-tls.ts';

export interface UpstreamDependencies {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Undefined: nothing is traced. */
  readonly traces: UpdateTraces | undefined;
  readonly version: string;
  /** `x-distributary-via`. */
  readonly via: () => string;
  /** This relay's own id. */
  readonly relayId: string;
}

interface OneUpstreamDependencies extends UpstreamDependencies {
  readonly tls: UpstreamTls;
}

/** An upstream of a configuration, not started. */
export function makeUpstream(
  config: Config,
  upstream: UpstreamConfig,
  sink: UpstreamSink,
  dependencies: OneUpstreamDependencies,
  relay: SiblingsSink,
): AdsUpstream | FilesystemUpstream {
  const log = dependencies.log.child({ upstream: upstream.name });
  switch (upstream.kind) {
    case 'ads':
      return makeAds(config, upstream, sink, dependencies, log, relay);
    case 'filesystem':
      return new FilesystemUpstream(
        {
          name: upstream.name,
          path: upstream.path,
          claims: upstream.claims,
          maxConstraintDepth: config.limits.maxConstraintDepth,
          clock: dependencies.clock,
          log: dependencies.log, // it adds the upstream's name itself
          metrics: updateMetrics(upstream.name, dependencies),
        },
        sink,
      );
    default:
      return upstream satisfies never;
  }
}

function updateMetrics(name: string, { metrics, traces, clock }: UpstreamDependencies): UpdateMetrics {
  return {
    accepted: (type) => {
      metrics.updates(name, type, 'accepted').inc();
      metrics.lastUpdate(name, type, clock.now());
    },
    rejected: (type, reason, arrivedAt) => {
      metrics.refusedUpdate(name, type, reason);
      traces?.refused(name, type, arrivedAt);
    },
  };
}

function makeAds(
  config: Config,
  upstream: AdsUpstreamConfig,
  sink: UpstreamSink,
  dependencies: OneUpstreamDependencies,
  log: Log,
  relay: SiblingsSink,
): AdsUpstream {
  const { clock, metrics, version, via, tls } = dependencies;
  const { name, siblings } = upstream;
  // From 0: increase() does not see a series' first increment.
  const reconnects = metrics.reconnects(name);
  for (const code of [Code.OK, Code.UNAVAILABLE]) metrics.streamEnds(name, codeName(code));
  return new AdsUpstream(
    {
      ...upstream,
      tls: tls.ads,
      maxResponseBytes: config.limits.maxResponseBytes,
      rules: config.parameters,
      node: config.node,
      version,
      via,
      maxConstraintDepth: config.limits.maxConstraintDepth,
      maxSessions: config.limits.maxUpstreamSessions,
      clock,
      random: systemRandom,
      log,
      metrics: {
        ...updateMetrics(name, dependencies),
        reconnect: () => reconnects.inc(),
        streamEnd: (code) => metrics.streamEnds(name, codeName(code)).inc(),
        refused: () => metrics.rejected('upstream_sessions').inc(),
      },
    },
    sink,
    // What comes from siblings removes nothing, so no guard sees it.
    siblings && new Siblings(siblingsOptions(config, upstream, siblings, dependencies), relay),
  );
}
