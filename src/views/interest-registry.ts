import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { ParameterIndex } from '../model/parameter-index.ts';
import type { Interest, Selector } from '../model/transaction.ts';

/** Why an interest ends: it has lingered, room is needed, or it must not be cached. */
export type Unwanted = 'idle' | 'size' | 'uncached';

/** Where interest goes: left, to the cache and upstream. */
export interface InterestPort {
  /** Somebody is new to this, and it must not be cached (protocol §5, do_not_cache). */
  again(interest: Interest): void;
  /** Somebody wants this now, and nobody did. */
  want(interest: Interest): void;
  /** Nobody wants it any more. */
  unwant(interest: Interest, why: Unwanted): void;
  /** Nobody subscribes to it now; it is kept for a while. */
  idle(interest: Interest): void;
  /** Somebody subscribes again to what was idle. */
  live(interest: Interest): void;
}

interface Entry {
  readonly interest: Interest;
  views: number;
  linger: Timer | undefined;
}

/**
 * Who wants what, counted by views: one subscription upstream for each distinct interest, however many clients have
 * it. What nobody wants any more stays for a while, so that a client that reconnects finds it.
 */
export class InterestRegistry {
  readonly #port: InterestPort;
  readonly #clock: Clock;
  readonly #lingerMilliseconds: number;
  readonly #entries = new Map<TypeUrl, Map<Selector, ParameterIndex<Entry>>>();
  /** In the order in which they fell idle: the first is the least recently used. */
  readonly #idle = new Set<Entry>();

  constructor(port: InterestPort, clock: Clock, lingerMilliseconds: number) {
    this.#port = port;
    this.#clock = clock;
    this.#lingerMilliseconds = lingerMilliseconds;
  }

  acquire(interest: Interest): void {
    const selectors = this.#entries.get(interest.type) ?? new Map<Selector, ParameterIndex<Entry>>();
    this.#entries.set(interest.type, selectors);
    const index = selectors.get(interest.selector) ?? new ParameterIndex<Entry>();
    selectors.set(interest.selector, index);
    const known = index.get(interest.parameters);
    if (known !== undefined) {
      if (known.views++ > 0) return;
      known.linger?.cancel();
      known.linger = undefined;
      this.#idle.delete(known);
      this.#port.live(known.interest);
      return;
    }
    index.set(interest.parameters, { interest, views: 1, linger: undefined });
    this.#port.want(interest);
  }

  /** `now`: without lingering (a resource that must not be cached). */
  release(interest: Interest, now = false): void {
    const entry = this.#entry(interest);
    if (entry === undefined || --entry.views > 0) return;
    if (now) {
      this.#end(entry, 'uncached');
      return;
    }
    this.#idle.add(entry);
    this.#port.idle(entry.interest);
    entry.linger = this.#clock.after(this.#lingerMilliseconds, () => this.#end(entry, 'idle'));
  }

  /** Ends the least recently used of what nobody wants; false if there is nothing left to end. */
  evict(): boolean {
    const [oldest] = this.#idle;
    if (oldest === undefined) return false;
    this.#end(oldest, 'size');
    return true;
  }

  /** Nobody subscribes to it now, and it has not ended. */
  isIdle(interest: Interest): boolean {
    return this.#entry(interest)?.views === 0;
  }

  /** Ends it now, if nobody subscribes to it. */
  lapse(interest: Interest): void {
    const entry = this.#entry(interest);
    if (entry?.views === 0) this.#end(entry, 'idle');
  }

  /** Every interest that has not ended. */
  *all(): Iterable<Interest> {
    for (const selectors of this.#entries.values()) {
      for (const index of selectors.values()) {
        for (const { interest } of index.values()) yield interest;
      }
    }
  }

  stop(): void {
    for (const entry of this.#idle) entry.linger?.cancel();
    this.#idle.clear();
  }

  #entry({ type, selector, parameters }: Interest): Entry | undefined {
    return this.#entries.get(type)?.get(selector)?.get(parameters);
  }

  #end(entry: Entry, why: Unwanted): void {
    const { type, selector, parameters } = entry.interest;
    entry.linger?.cancel();
    this.#idle.delete(entry);
    const selectors = this.#entries.get(type);
    const index = selectors?.get(selector);
    index?.delete(parameters);
    if (index?.size === 0) selectors?.delete(selector);
    if (selectors?.size === 0) this.#entries.delete(type);
    this.#port.unwant(entry.interest, why);
  }
}
