import { resourceName, type TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { covers, isCollection } from '../model/selection.ts';
import {
  type Holder,
  type Interest,
  type Removal,
  type Restamp,
  type Transaction,
  transaction,
} from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import type { HeldRemovals, UpstreamSink } from '../model/upstream.ts';
import type { Log } from '../observe/log.ts';
import { VariantSet } from './variant-set.ts';

interface GuardedVariant extends Removal {
  readonly aliases: readonly string[];
  /** Its present upstream has not confirmed it. */
  readonly restored: boolean;
  /** False: it came from siblings, or from an upstream before this one, and goes with the answers that it is kept for. */
  readonly isOwn: boolean;
}

/** Times are milliseconds. */
interface ShrinkGuardOptions {
  readonly cache: {
    /** The variants of a type that one holder has, and what is kept for its upstream's answers. */
    heldBy(type: TypeUrl, holder: Holder): Iterable<GuardedVariant>;
  };
  /** The types whose removals it holds back. */
  readonly guards: (type: TypeUrl) => boolean;
  /** More than this share of what a session has of a type is held back. */
  readonly maxRemovalPercent: number;
  /** After this time it is removed. */
  readonly maxRemovalHoldMs: number;
  /** How long after the first answer of a new stream removals are counted: names expire that late (protocol §3.9). */
  readonly watchMs: number;
  /** The upstream is connected and answers: nothing is removed during an outage. */
  readonly current: () => boolean;
  readonly clock: Clock;
  /** With the upstream's name in each line. */
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** So many removals of a type are held back now. */
  readonly held: (type: TypeUrl, count: number) => void;
}

type EndOfHold = 'came again' | 'released' | 'held for too long' | 'within the limit';

/**
 * The missing resources may come again in several responses. The limit is checked again when nothing has come for
 * this long.
 */
const quietPeriodMs = 3000;

/**
 * Stands between an upstream and the relay. A control plane that comes back with little of what it had (it was started
 * with an empty database, it has not read everything yet) must not empty a region: removals past a share are held back,
 * while what is new or changed goes through. What comes again is not held any more; the rest is removed when an operator
 * says so, or after a time (docs/adr/0040-shrink-guard.md).
 */
export class ShrinkGuard implements UpstreamSink {
  readonly #sink: UpstreamSink;
  readonly #options: ShrinkGuardOptions;
  /** By session. What is held back is never forgotten. */
  readonly #watched = new Map<string, Map<TypeUrl, WatchedType>>();

  constructor(sink: UpstreamSink, options: ShrinkGuardOptions) {
    this.#sink = sink;
    this.#options = options;
  }

  held(): readonly HeldRemovals[] {
    const byType = new Map<TypeUrl, HeldRemovals>();
    for (const { type, pending } of this.#all()) {
      if (pending === undefined) continue;
      const known = byType.get(type);
      byType.set(type, {
        type,
        count: pending.variants.size + (known?.count ?? 0),
        since: Math.min(pending.since, known?.since ?? pending.since),
      });
    }
    return [...byType.values()];
  }

  /** Removes what is held back, of one type or of all. Returns the number of removals. */
  release(type?: TypeUrl): number {
    let count = 0;
    for (const watched of this.#all()) {
      if (type === undefined || watched.type === type) count += this.#release(watched, 'released');
    }
    return count;
  }

  /** Forgets what is held back, without removing it. */
  stop(): void {
    for (const { type, pending } of this.#all()) {
      if (pending === undefined) continue;
      pending.deadline.cancel();
      pending.quietTimer?.cancel();
      this.#options.held(type, 0);
    }
    this.#watched.clear();
  }

  streamReopened(holders: readonly string[]): void {
    for (const holder of holders) {
      const types = this.#watched.get(holder);
      for (const [type, watched] of types ?? []) {
        if (watched.pending === undefined) types?.delete(type);
        else {
          watched.pending.isFromBefore = true;
          Object.assign(watched, { until: undefined, most: 0, removed: 0 });
        }
      }
    }
    this.#sink.streamReopened?.(holders);
  }

  changed(): void {
    this.#sink.changed();
  }

  endIfIdle(interest: Interest): void {
    this.#sink.endIfIdle?.(interest);
  }

  /** When upstream confirms it, restored resources that upstream did not send again are removed. */
  isRestored(interest: Interest): boolean {
    return this.#sink.isRestored?.(interest) === true;
  }

  restoredOf(holder: Holder): Iterable<TypeUrl> {
    return this.#sink.restoredOf?.(holder) ?? [];
  }

  /**
   * New rules change the constraints of all variants. The removals that were held back name the old constraints, so
   * they are applied now.
   */
  restamp(restamp: Restamp): void {
    this.release(restamp.type);
    this.#sink.restamp(restamp);
  }

  apply(incoming: Transaction): void {
    const { holder, type } = incoming;
    // What a restored holder says removes nothing.
    const isWatched = !incoming.unwanted && holder.restored !== true && this.#options.guards(type);
    const watched = isWatched ? this.#watch(holder, type) : undefined;
    if (watched === undefined) {
      this.#sink.apply(incoming);
      return;
    }
    const { pending } = watched;
    if (pending === undefined && !this.#mayRemove(incoming)) {
      this.#sink.apply(incoming);
      return;
    }
    if (pending !== undefined) for (const put of incoming.puts) pending.variants.delete(put);
    const cached = this.#mayRemove(incoming) ? this.#cached(incoming) : [];
    watched.most = Math.max(watched.most, cached.length);
    const removed = this.#removedBy(incoming, cached);
    // One variant instead of another is a change, no removal: both at once would be ambiguous (protocol §5).
    const renewed = new Set(incoming.puts.map(({ name }) => name));
    const missing = removed.filter(({ name }) => !renewed.has(name));
    if (pending === undefined && !this.#isTooMuch(watched, missing.length)) {
      watched.removed += missing.length;
      this.#sink.apply(incoming);
      return;
    }
    const replaced = removed.filter(({ name }) => renewed.has(name));
    this.#hold(watched, { ...incoming, removals: replaced, complete: false }, missing, cached);
  }

  /** Most responses remove nothing: for those nothing is looked up in the cache. */
  #mayRemove({ complete, removals, resolved }: Transaction): boolean {
    if (complete || removals.length > 0) return true;
    return resolved.some((interest) => this.isRestored(interest));
  }

  /** What is its session's, and what was restored for whoever has the parameters of an answer in it. */
  #cached({ type, holder, resolved }: Transaction): readonly GuardedVariant[] {
    const answered = [...new Set(resolved.map(({ parameters }) => parameters))];
    const all = [...this.#options.cache.heldBy(type, holder)];
    return all.filter(
      ({ isOwn, constraints }) => isOwn || answered.some((parameters) => constraints.matches(parameters)),
    );
  }

  /** Undefined: removals of this type are not counted now. */
  #watch(holder: Holder, type: TypeUrl): WatchedType | undefined {
    const { clock, watchMs } = this.#options;
    const types = this.#watched.get(holder.key) ?? new Map<TypeUrl, WatchedType>();
    const known = types.get(type);
    if (known !== undefined) {
      known.until ??= clock.monotonic() + watchMs;
      const over = known.pending === undefined && clock.monotonic() > known.until;
      return over ? undefined : known;
    }
    const watched = new WatchedType(type, holder, clock.monotonic() + watchMs);
    if (types.size >= maxTypes) forgetOldest(types, holdsNothing);
    types.set(type, watched);
    if (!this.#watched.has(holder.key) && this.#watched.size >= maxHolders)
      forgetOldest(this.#watched, (others) => others.values().every(holdsNothing));
    this.#watched.set(holder.key, types);
    return watched;
  }

  #all(): IteratorObject<WatchedType, undefined> {
    return this.#watched.values().flatMap((types) => types.values());
  }

  /** The cached variants that a transaction would remove. */
  #removedBy(incoming: Transaction, cached: readonly GuardedVariant[]): readonly Removal[] {
    const { puts, heartbeats, removals, complete, resolved } = incoming;
    const stays = new VariantSet([...puts, ...heartbeats]);
    const named = new VariantSet(removals);
    const confirmed = this.#restoredOf(resolved);
    const isRemoved = (one: GuardedVariant): boolean => one.isOwn && (complete || named.has(one));
    return cached.filter(
      (one) => !stays.has(one) && (isRemoved(one) || (one.restored && confirmed(one).length > 0)),
    );
  }

  /** Those of these interests that see a variant, and whose answer was restored. */
  #restoredOf(interests: readonly Interest[]): (variant: GuardedVariant) => readonly Interest[] {
    const restored = interests.filter((interest) => this.isRestored(interest));
    const collections = restored.filter(({ selector }) => isCollection(selector));
    const bySelector = Map.groupBy(restored, ({ selector }) => selector);
    return ({ name, aliases, constraints }) => {
      const named = [...new Set([name, ...aliases.map(resourceName)])].flatMap(
        (one) => bySelector.get(one) ?? [],
      );
      const collecting = collections.filter(({ selector }) => covers(selector, name));
      return [...named, ...collecting].filter(({ parameters }) => constraints.matches(parameters));
    };
  }

  #isTooMuch({ removed, most }: WatchedType, more: number): boolean {
    return more > 0 && (removed + more) * 100 > this.#options.maxRemovalPercent * most;
  }

  /** Holds back these removals and passes on the rest. */
  #hold(
    watched: WatchedType,
    incoming: Transaction,
    missing: readonly Removal[],
    cached: readonly GuardedVariant[],
  ): void {
    const { type, version } = incoming;
    const { clock, current, log } = this.#options;
    const known = watched.pending;
    const pending: NonNullable<WatchedType['pending']> = known ?? {
      since: clock.now(),
      isFromBefore: false,
      variants: new VariantSet(),
      resolved: new Set(),
      deadline: this.#deadline(watched),
      quietTimer: undefined,
      version,
    };
    watched.pending = pending;
    pending.version = version;
    for (const removal of missing) pending.variants.add(removal);
    const restored = this.#restoredOf(incoming.resolved);
    const waiting = new Set(cached.filter((one) => pending.variants.has(one)).flatMap(restored));
    for (const interest of waiting) pending.resolved.add(interest);
    const resolved = incoming.resolved.filter((interest) => !waiting.has(interest));
    this.#sink.apply({ ...incoming, resolved });
    this.#options.held(type, this.#count(type));
    // A change of state, not each removal.
    if (known === undefined)
      log.warn('removals are held back: they exceed max_removal_percent', {
        type: typeInfo(type).short,
        removals: pending.variants.size,
        cached: watched.most,
      });
    if (pending.variants.size === 0) {
      this.#release(watched, 'came again');
      return;
    }
    pending.quietTimer?.cancel();
    pending.quietTimer = clock.after(quietPeriodMs, () => {
      if (!current() || this.#isTooMuch(watched, pending.variants.size)) return;
      this.#release(watched, 'within the limit');
    });
  }

  #deadline(watched: WatchedType): Timer {
    const { clock, maxRemovalHoldMs, current } = this.#options;
    return clock.after(maxRemovalHoldMs, () => {
      if (current()) this.#release(watched, 'held for too long');
      else if (watched.pending !== undefined) watched.pending.deadline = this.#deadline(watched);
    });
  }

  #release(watched: WatchedType, how: EndOfHold): number {
    const { type, pending, holder } = watched;
    if (pending === undefined) return 0;
    watched.pending = undefined;
    pending.deadline.cancel();
    pending.quietTimer?.cancel();
    // Interests may have ended meanwhile: only what is still cached is removed.
    const removals: Removal[] = [];
    for (const one of this.#options.cache.heldBy(type, holder)) {
      if (pending.variants.has(one)) removals.push({ name: one.name, constraints: one.constraints });
    }
    if (!pending.isFromBefore) watched.removed += removals.length;
    const { version } = pending;
    const resolved = [...pending.resolved];
    if (removals.length > 0 || resolved.length > 0) {
      this.#sink.apply(transaction({ holder, type, version, removals, resolved }));
    }
    this.#options.held(type, this.#count(type));
    const fields = { type: typeInfo(type).short, how, removed: removals.length };
    this.#options.log.info('no removals are held back any more', fields);
    return removals.length;
  }

  #count(type: TypeUrl): number {
    return this.held().find((held) => held.type === type)?.count ?? 0;
  }
}

/** One type of one session since its last stream was opened. */
class WatchedType {
  readonly type: TypeUrl;
  readonly holder: Holder;
  /** Undefined: a new stream has said nothing yet, and it is watched from then on. */
  until: number | undefined;
  /** How many variants there were, at most, before a response that may remove some. */
  most = 0;
  /** Removed since. */
  removed = 0;
  /** What is held back. */
  pending:
    | {
        readonly since: number;
        /** An earlier stream has removed some of it. */
        isFromBefore: boolean;
        readonly variants: VariantSet;
        /** Interests whose confirmation would remove restored variants. */
        readonly resolved: Set<Interest>;
        deadline: Timer;
        quietTimer: Timer | undefined;
        version: string | undefined;
      }
    | undefined;

  constructor(type: TypeUrl, holder: Holder, until: number) {
    this.type = type;
    this.holder = holder;
    this.until = until;
  }
}

/** Bounds on what is remembered: clients decide which parameter sets have sessions, and which types those have. */
const maxHolders = 10_000;
const maxTypes = 256;

const holdsNothing = ({ pending }: WatchedType): boolean => pending === undefined;

function forgetOldest<K, V>(map: Map<K, V>, may: (value: V) => boolean): void {
  for (const [key, value] of map) {
    if (!may(value)) continue;
    map.delete(key);
    return;
  }
}
