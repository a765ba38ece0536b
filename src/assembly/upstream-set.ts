import type { Config, UpstreamConfig } from '../config/config.ts';
import type { TypeUrl } from '../model/brand.ts';
import { typeInfo } from '../model/types.ts';
import type { Upstream } from '../model/upstream.ts';
import type { Relay } from '../relay.ts';
import { type HeldRemovals, ShrinkGuard } from '../upstream/shrink-guard.ts';
import { makeUpstream, type UpstreamDependencies } from './upstreams.ts';
import { type UpstreamTls, watchUpstreamTls } from './watched-tls.ts';

interface UpstreamEntry {
  readonly upstream: ReturnType<typeof makeUpstream>;
  /** Undefined: without max_removal_percent. */
  readonly guard: ShrinkGuard | undefined;
  readonly tls: UpstreamTls;
  /** Everything that it was made from. If that changes, another one is made. */
  readonly fingerprint: string;
}

/** How long after a start the shrink guard counts removals of files, in milliseconds: one scan reads them all. */
const filesWatchMs = 10_000;

/** The upstreams in force. */
export class UpstreamSet {
  readonly #relay: Relay;
  readonly #dependencies: UpstreamDependencies;
  #entries: readonly UpstreamEntry[] = [];
  /** With `rollout`, too many removals of these types are held by it. */
  #gated: ReadonlySet<TypeUrl> = new Set();

  constructor(relay: Relay, dependencies: UpstreamDependencies) {
    this.#relay = relay;
    this.#dependencies = dependencies;
  }

  /** Those of a configuration, not started. */
  make(config: Config): readonly Upstream[] {
    this.#entries = this.#all(config);
    return this.#entries.map(({ upstream }) => upstream);
  }

  /**
   * Those of another configuration. The rules change first, while the sessions of the old rules exist. Then upstreams
   * are replaced: what came from the old one stays cached until the new one has answered.
   */
  reload(config: Config): void {
    for (const { upstream } of this.#entries) {
      if ('reconfigure' in upstream) upstream.reconfigure(config.parameters);
    }
    const entries = this.#all(config);
    const before = this.#entries;
    const same = entries.length === before.length && entries.every((entry, at) => entry === before[at]);
    this.#entries = entries;
    for (const entry of before) {
      if (entries.includes(entry)) continue;
      entry.guard?.stop();
      entry.tls.close();
    }
    if (!same) this.#relay.replace(entries.map(({ upstream }) => upstream));
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

  #all(config: Config): readonly UpstreamEntry[] {
    const { limits, upstreams, rollout } = config;
    this.#gated = new Set(rollout?.types);
    return upstreams.map((upstream, index): UpstreamEntry => {
      // The claims of earlier upstreams decide which names are left for it.
      const before = upstreams.slice(0, index).map(({ claims }) => claims);
      const fingerprint = JSON.stringify([
        upstream,
        before,
        limits.maxConstraintDepth,
        limits.maxUpstreamSessions,
        limits.maxResponseBytes,
      ]);
      const known = this.#entries.find((entry) => entry.fingerprint === fingerprint);
      return known ?? Object.assign(this.#one(config, upstream), { fingerprint });
    });
  }

  #one(config: Config, upstream: UpstreamConfig): Omit<UpstreamEntry, 'fingerprint'> {
    const { maxRemovalPercent } = upstream;
    const { clock, metrics, log } = this.#dependencies;
    const tls = watchUpstreamTls(upstream, { metrics, log });
    const dependencies = { ...this.#dependencies, tls };
    if (maxRemovalPercent === undefined) {
      return {
        upstream: makeUpstream(config, upstream, this.#relay, dependencies, this.#relay),
        guard: undefined,
        tls,
      };
    }
    const { name, maxRemovalHoldMs } = upstream;
    const guard = new ShrinkGuard(this.#relay, {
      cache: this.#relay.store,
      guards: (type) => !this.#gated.has(type),
      maxRemovalPercent,
      maxRemovalHoldMs,
      watchMs: upstream.kind === 'ads' ? 2 * upstream.resourceTimeoutMs : filesWatchMs,
      current: () => made.state().staleSince === undefined,
      clock,
      held: (type, count) => metrics.heldRemovals(name, type, count),
      alarm: (type, count, cached) =>
        log.warn('removals are held back: they exceed max_removal_percent', {
          upstream: name,
          type: typeInfo(type).short,
          removals: count,
          cached,
        }),
      over: (type, how, count) =>
        log.info('no removals are held back any more', {
          upstream: name,
          type: typeInfo(type).short,
          how,
          removed: count,
        }),
    });
    const made = makeUpstream(config, upstream, guard, dependencies, this.#relay);
    return { upstream: made, guard, tls };
  }
}
