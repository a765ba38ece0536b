import type {
  DiscardedFacts,
  DiskFacts,
  PageFacts,
  PageSource,
  RefusedConfiguration,
  Usage,
} from '../admin/service.ts';
import type { Config } from '../config/config.ts';
import { typeUrl } from '../model/brand.ts';
import { typeByName } from '../model/types.ts';
import type { Figure, Figures } from '../observe/figures.ts';
import type { RecentLine, RecentLines } from '../observe/recent-lines.ts';
import type { Relay } from '../relay.ts';

export interface RelayPageOptions {
  readonly relay: Relay;
  readonly config: () => Config;
  readonly configuredAt: () => number;
  readonly refusedConfiguration: () => RefusedConfiguration | undefined;
  readonly disk: () => DiskFacts | undefined;
  readonly discarded: () => DiscardedFacts | undefined;
  readonly figures: Figures;
  readonly lines: RecentLines;
}

/** What the status page shows of the relay, beside what the commands ask for. */
export class RelayPage implements PageSource {
  readonly #options: RelayPageOptions;
  readonly #startedAt = Date.now();

  constructor(options: RelayPageOptions) {
    this.#options = options;
  }

  facts(): PageFacts {
    const { config, configuredAt, refusedConfiguration, disk, discarded, figures } = this.#options;
    const { source, admin, limits, rollout, upstreams } = config();
    return {
      configuration: source.digest,
      configuredAt: configuredAt(),
      startedAt: this.#startedAt,
      readOnly: admin.readOnly,
      usage: this.#usage(),
      workPerPeerMs: limits.maxWorkPerPeerMs,
      certificates: figures.counters.flatMap(({ certificates }) => certificates),
      refusedConfiguration: refusedConfiguration(),
      disk: disk(),
      discarded: discarded(),
      recent: figures.recent(),
      rolloutMaxWaitMs: rollout?.maxWaitMs,
      removalHoldMs: new Map(
        upstreams.flatMap((one) => (one.kind === 'ads' ? [[one.name, one.maxRemovalHoldMs] as const] : [])),
      ),
      perParameters: new Set(
        upstreams
          .filter((one) => one.kind === 'ads' && one.variants === 'PER_PARAMETERS')
          .map(({ name }) => name),
      ),
      upstreamTls: new Map(
        upstreams.flatMap((one) =>
          one.kind === 'ads' && one.tls !== undefined ? [[one.name, one.tls] as const] : [],
        ),
      ),
    };
  }

  figures(): readonly Figure[] {
    return this.#options.figures.points;
  }

  lines(): readonly RecentLine[] {
    return this.#options.lines.lines;
  }

  upstreamOf(type: string, selector: string): string | undefined {
    return this.#options.relay.servedBy(typeByName(type) ?? typeUrl(type), selector);
  }

  #usage(): readonly Usage[] {
    const { relay, config, figures } = this.#options;
    const { limits, cache } = config();
    const counters = figures.counters;
    const streams = counters.reduce((sum, one) => sum + one.streams, 0);
    const connections = counters.reduce((sum, one) => sum + one.connections, 0);
    const sessions = Math.max(0, ...relay.upstreams.map((upstream) => upstream.state().sessions));
    return [
      { name: 'limits.max_streams', used: streams, limit: limits.maxStreams },
      { name: 'limits.max_connections', used: connections, limit: limits.maxConnections },
      { name: 'limits.max_upstream_sessions', used: sessions, limit: limits.maxUpstreamSessions },
      { name: 'cache.max_bytes', used: relay.store.bytes, limit: cache.maxBytes },
    ];
  }
}
