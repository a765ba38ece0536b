import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import type { Interest } from '../model/transaction.ts';
import { type ClaimOptions, claims } from '../upstream/claims.ts';
import type { News } from './messages.ts';

/** What the primary has cached is here within so many milliseconds. */
const patience = 1000;

interface Claimant {
  readonly name: string;
  readonly claims: ClaimOptions;
}

/**
 * Whether a client of a worker may still hope for what is not there yet (protocol §8, Upstream outage). The primary
 * says which upstreams are down; but what it has cached may be on its way, so a subscription is only hopeless when the
 * primary has had the time to answer it. What the primary refuses for want of upstream sessions is hopeless at once.
 */
export class Outlook {
  #upstreams: readonly Claimant[];
  readonly #clock: Clock;
  readonly #look: () => void;
  /** By name: since when it is down. */
  readonly #down = new Map<string, number>();
  /** What was subscribed while something is down, and when. */
  readonly #asked = new Map<TypeUrl, Map<string, number>>();
  /** By the upstream's name. */
  #refused: ReadonlyMap<string, { readonly message: string; readonly keys: ReadonlySet<string> }> = new Map();
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

  news({ down, refused }: Pick<News, 'down' | 'refused'>): void {
    this.#refused = new Map(
      refused.map(({ upstream, message, parameters }) => [upstream, { message, keys: new Set(parameters) }]),
    );
    const now = this.#clock.now();
    for (const name of this.#down.keys()) if (!down.includes(name)) this.#down.delete(name);
    for (const name of down) if (!this.#down.has(name)) this.#down.set(name, now);
    if (this.#down.size === 0) this.#asked.clear();
    this.#watch();
  }

  /** Why the primary's upstream does not take this interest; undefined: it does. */
  refusal({ type, selector, parameters }: Interest): string | undefined {
    if (this.#refused.size === 0) return undefined;
    const refused = this.#refused.get(this.#claimant(type, selector)?.name ?? '');
    return refused?.keys.has(parameters.key) === true ? refused.message : undefined;
  }

  asked(type: TypeUrl, selector: string): void {
    if (this.#down.size === 0) return;
    const selectors = this.#asked.get(type) ?? new Map<string, number>();
    this.#asked.set(type, selectors);
    selectors.set(selector, this.#clock.now());
  }

  hopeless(type: TypeUrl, selector: string): boolean {
    const upstream = this.#claimant(type, selector);
    const down = upstream === undefined ? undefined : this.#down.get(upstream.name);
    if (down === undefined) return false;
    const asked = this.#asked.get(type)?.get(selector) ?? 0;
    return this.#clock.now() - Math.max(down, asked) >= patience;
  }

  #claimant(type: TypeUrl, selector: string): Claimant | undefined {
    return this.#upstreams.find((one) => claims(one.claims, type, selector));
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
