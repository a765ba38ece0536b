import type { StaleUpstream } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Upstream, UpstreamState } from '../model/upstream.ts';
import type { Plain } from './service.ts';

/** Since when the resources of each upstream may be out of date. A restart does not reset it. */
export class Staleness {
  readonly #upstreams: () => readonly Upstream[];
  /** Of upstreams that have not been current since the start, or since a reload that has replaced them. */
  readonly #before = new Map<string, number>();
  /** Names of which a replaced upstream was connected. */
  readonly #served = new Set<string>();
  #restored = false;

  constructor(upstreams: () => readonly Upstream[]) {
    this.#upstreams = upstreams;
  }

  /**
   * A persisted cache was loaded: the relay can serve before any upstream is there (docs/operations.md, /ready).
   * Milliseconds since the epoch, by upstream.
   */
  restore(before: ReadonlyMap<string, number>): void {
    this.#restored = true;
    for (const [name, since] of before) this.#before.set(name, since);
  }

  /** To be called before a reload replaces these: what they have brought goes on to be served, and is no newer for that. */
  carry(replaced: Iterable<Upstream>): void {
    for (const upstream of replaced) {
      const { name } = upstream;
      if (upstream.state().everConnected) this.#served.add(name);
      const since = this.since(upstream);
      if (since !== undefined) this.#before.set(name, since);
    }
  }

  /** A reload has removed it. Another one may get its name later. */
  forget(name: string): void {
    this.#served.delete(name);
    this.#before.delete(name);
  }

  /** It is connected, or was once, or the relay can serve without it: what it has brought is served. */
  hasServed(upstream: Upstream): boolean {
    return this.#restored || this.#served.has(upstream.name) || upstream.state().everConnected;
  }

  /** To be called whenever the state of an upstream changes. */
  observe(): void {
    if (this.#before.size === 0) return;
    for (const upstream of this.#upstreams()) {
      const { staleSince, everConnected } = upstream.state();
      if (staleSince === undefined && everConnected) this.#before.delete(upstream.name);
    }
  }

  /** Milliseconds since the epoch; undefined while it is current. */
  since(upstream: Upstream): number | undefined {
    const { staleSince } = upstream.state();
    const before = this.#before.get(upstream.name);
    return before === undefined ? staleSince : Math.min(before, staleSince ?? before);
  }

  /** Those that may be out of date, if there are any. */
  get stale(): readonly Plain<StaleUpstream>[] {
    return this.#upstreams().flatMap((upstream) => {
      const since = this.since(upstream);
      if (since === undefined) return [];
      const state = upstream.state();
      const { connected } = state;
      const reason = staleReason(state);
      return [{ name: upstream.name, since: new Date(since).toISOString(), reason, connected }];
    });
  }

  sinceOf(name: string): number | undefined {
    const upstream = this.#upstreams().find((one) => one.name === name);
    return upstream === undefined ? undefined : this.since(upstream);
  }
}

/** Why what came from an upstream may be out of date, in words. Only for one that is stale. */
export function staleReason({ kind, connected, everConnected, endpoint, lastError }: UpstreamState): string {
  if (lastError !== '') return lastError;
  if (kind === 'filesystem') return `${endpoint} has not been read yet`;
  // A connection is no answer yet: what is cached is confirmed by responses.
  if (connected) return `connected to ${endpoint}, which has not responded yet`;
  return everConnected
    ? `the connection ended; reconnecting to ${endpoint}`
    : `not connected yet: connecting to ${endpoint}`;
}
