import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import type { Interest } from '../model/transaction.ts';
import { type ClaimOptions, claims } from '../upstream/claims.ts';
import type { PrimaryState } from './ipc-messages.ts';

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
