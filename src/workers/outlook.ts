import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { type ClaimOptions, claims } from '../upstream/claims.ts';

/** What the primary has cached is here within so many milliseconds. */
const patience = 1000;

interface Claimant {
  readonly name: string;
  readonly claims: ClaimOptions;
}

/**
 * Whether a client of a worker may still hope for what is not there yet (protocol §8, Upstream outage). The primary
 * says which upstreams are down; but what it has cached may be on its way, so a subscription is only hopeless when the
 * primary has had the time to answer it.
 */
export class Outlook {
  #upstreams: readonly Claimant[];
  readonly #clock: Clock;
  readonly #look: () => void;
  /** By name: since when it is down. */
  readonly #down = new Map<string, number>();
  /** What was subscribed while something is down, and when. */
  readonly #asked = new Map<TypeUrl, Map<string, number>>();
  #timer: Timer | undefined;

  /** `look` is called now and then while an upstream is down. */
  constructor(upstreams: readonly Claimant[], clock: Clock, look: () => void) {
    this.#upstreams = upstreams;
    this.#clock = clock;
    this.#look = look;
  }

  reload(upstreams: readonly Claimant[]): void {
    this.#upstreams = upstreams;
  }

  news(down: readonly string[]): void {
    const now = this.#clock.now();
    for (const name of this.#down.keys()) if (!down.includes(name)) this.#down.delete(name);
    for (const name of down) if (!this.#down.has(name)) this.#down.set(name, now);
    if (this.#down.size === 0) this.#asked.clear();
    this.#watch();
  }

  asked(type: TypeUrl, selector: string): void {
    if (this.#down.size === 0) return;
    const selectors = this.#asked.get(type) ?? new Map<string, number>();
    this.#asked.set(type, selectors);
    selectors.set(selector, this.#clock.now());
  }

  hopeless(type: TypeUrl, selector: string): boolean {
    const upstream = this.#upstreams.find((one) => claims(one.claims, type, selector));
    const down = upstream === undefined ? undefined : this.#down.get(upstream.name);
    if (down === undefined) return false;
    const asked = this.#asked.get(type)?.get(selector) ?? 0;
    return this.#clock.now() - Math.max(down, asked) >= patience;
  }

  #watch(): void {
    if (this.#down.size === 0) {
      this.#timer?.cancel();
      this.#timer = undefined;
      return;
    }
    this.#timer ??= this.#clock.after(patience / 2, () => {
      this.#timer = undefined;
      this.#look();
      this.#watch();
    });
  }
}
