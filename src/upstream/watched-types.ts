import type { TypeUrl } from '../model/brand.ts';
import type { Timer } from '../model/clock.ts';
import type { Holder, Interest } from '../model/transaction.ts';
import type { VariantSet } from './variant-set.ts';

/** What is held back of one type of one session. */
export interface HeldBack {
  readonly since: number;
  readonly variants: VariantSet;
  /** Interests whose confirmation would remove restored variants. */
  readonly resolved: Set<Interest>;
  deadline: Timer;
  quietTimer: Timer | undefined;
  version: string;
}

/** One type of one session since its last stream was opened. */
export interface WatchedType {
  readonly type: TypeUrl;
  readonly holder: Holder;
  readonly until: number;
  /** How many variants there were before the first response. */
  readonly before: number;
  /** Removed since. */
  removed: number;
  pending: HeldBack | undefined;
}

/** Bounds on what is remembered: clients decide which parameter sets have sessions, and which types those have. */
const maxHolders = 10_000;
const maxTypes = 256;

/** The types that the shrink guard watches, by session. What is held back is never forgotten. */
export class WatchedTypes {
  readonly #byHolder = new Map<string, Map<TypeUrl, WatchedType>>();

  find(holder: Holder, type: TypeUrl): WatchedType | undefined {
    return this.#byHolder.get(holder.key)?.get(type);
  }

  add(watched: WatchedType): void {
    const { holder, type } = watched;
    const types = this.#byHolder.get(holder.key) ?? new Map<TypeUrl, WatchedType>();
    if (types.size >= maxTypes) forgetOldest(types, holdsNothing);
    types.set(type, watched);
    if (!this.#byHolder.has(holder.key) && this.#byHolder.size >= maxHolders) {
      forgetOldest(this.#byHolder, (others) => others.values().every(holdsNothing));
    }
    this.#byHolder.set(holder.key, types);
  }

  all(): Iterable<WatchedType> {
    return this.#byHolder.values().flatMap((types) => types.values());
  }

  /** A stream of the session was opened anew. */
  forget(holder: string): void {
    const types = this.#byHolder.get(holder);
    if (types === undefined) return;
    for (const [type, watched] of types) if (holdsNothing(watched)) types.delete(type);
  }

  clear(): void {
    this.#byHolder.clear();
  }
}

const holdsNothing = ({ pending }: WatchedType): boolean => pending === undefined;

function forgetOldest<K, V>(map: Map<K, V>, may: (value: V) => boolean): void {
  for (const [key, value] of map) {
    if (!may(value)) continue;
    map.delete(key);
    return;
  }
}
