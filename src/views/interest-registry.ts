import { LRUCache } from 'lru-cache';
import type { TypeUrl } from '../model/brand.ts';
import type { Clock, Timer } from '../model/clock.ts';
import { deleteIn, getOrMake } from '../model/maps.ts';
import { ParameterIndex } from '../model/parameter-index.ts';
import { isCollection } from '../model/selection.ts';
import { type InTurns, ReadingPace } from '../model/time-slices.ts';
import { type Interest, interestBytes, type Selector } from '../model/transaction.ts';

/**
 * Why an interest ends: it was idle for too long or upstream no longer updates it, the cache is full, or the resource
 * must not be cached.
 */
export type EndReason = 'idle' | 'size' | 'uncached';

export interface InterestRegistryOptions {
  /** Where interest goes: left, to the cache and upstream. */
  readonly interests: {
    /** Somebody is new to this, and it must not be cached (protocol §5, do_not_cache). */
    resubscribe(interest: Interest): void;
    /** The first view has this interest. */
    subscribe(interest: Interest): void;
    /** The interest has ended. */
    unsubscribe(interest: Interest, why: EndReason): void;
    /** Nobody subscribes to it now; it stays for a while. */
    markIdle(interest: Interest): void;
    /** Somebody subscribes again to what was idle. */
    markActive(interest: Interest): void;
    /**
     * What would end with it: whether there is a resource for it, or upstream has answered a wildcard; and the bytes of the
     * bodies that no other interest sees. A body that several interests see counts for none of them, so the sum over all
     * interests is never more than the cache.
     */
    contentOf(interest: Interest): { readonly hasContent: boolean; readonly bytes: number };
  };
  readonly clock: Clock;
  /** How long what nobody subscribes to stays (cache.idle_ttl), in milliseconds. */
  readonly idleMilliseconds: number;
  /** What of that may take how many bytes (cache.max_bytes). Asked each time, as the configuration can be reloaded. */
  readonly maxCacheBytes: () => number;
  /** Runs soon, after other events had their turn; for tests, at once. */
  readonly defer: (run: () => void) => void;
}

interface RegisteredInterest {
  readonly interest: Interest;
  views: number;
  /** Something is on its way, which may come when nobody subscribes to it yet. Until it has lingered for once. */
  isAwaited: boolean;
}

/** Everything lingers for so long, in milliseconds: until a client whose stream has ended has connected again. */
const returnMilliseconds = 2000;
/** So many begin or end in one turn of the event loop, where there are more: 3 ms. */
const perTurn = 2000;

/**
 * The interests, counted by views: one subscription upstream for each distinct interest, however many clients have it.
 * An interest without views lingers (docs/adr/0007): a moment in any case, and if there is something under its
 * name, for `idleMilliseconds`.
 */
export class InterestRegistry {
  readonly #options: InterestRegistryOptions;
  /** What ends in turns. */
  readonly #releasing: InTurns<void>[] = [];
  readonly #entries = new Map<TypeUrl, Map<Selector, ParameterIndex<RegisteredInterest>>>();
  /** Whose last subscriber has just gone. */
  readonly #justLeft: IdleCache;
  /** Under which something is there. */
  readonly #idleWithContent: IdleCache;

  constructor(options: InterestRegistryOptions) {
    const { interests, idleMilliseconds } = options;
    this.#options = options;
    const longer = idleMilliseconds - returnMilliseconds;
    const left = (entry: RegisteredInterest): void => {
      const kept = longer > 0 ? interests.contentOf(entry.interest) : undefined;
      if (kept === undefined || !(kept.hasContent || entry.isAwaited)) this.#end(entry, 'idle');
      else this.#idleWithContent.add(entry, interestBytes(entry.interest) + kept.bytes);
      entry.isAwaited = false;
    };
    const evicted = (entry: RegisteredInterest): void => this.#end(entry, 'size');
    this.#justLeft = new IdleCache(options, Math.min(idleMilliseconds, returnMilliseconds), left, evicted);
    this.#idleWithContent = new IdleCache(options, longer, (entry) => this.#end(entry, 'idle'), evicted);
  }

  acquire(interest: Interest): void {
    const selectors = getOrMake(this.#entries, interest.type, () => new Map());
    const index = getOrMake(selectors, interest.selector, () => new ParameterIndex());
    const known = index.get(interest.parameters);
    if (known === undefined) {
      index.set(interest.parameters, { interest, views: 1, isAwaited: false });
      this.#options.interests.subscribe(interest);
      return;
    }
    if (known.views++ > 0) return;
    this.#justLeft.delete(known);
    this.#idleWithContent.delete(known);
    this.#options.interests.markActive(known.interest);
  }

  /**
   * For clients that may come, where somebody can answer it. It lingers as if that were there already: an answer may take
   * longer than a client takes to come back.
   */
  prefetch(interest: Interest): void {
    this.acquire(interest);
    const entry = this.#entry(interest);
    if (entry !== undefined) entry.isAwaited = true;
    this.release(interest);
  }

  /** All of them; what was acquired is released if the turns end early. They are held until `releaseAll`. */
  *acquireAll(interests: readonly Interest[]): InTurns<void> {
    const pace = new ReadingPace(perTurn);
    let acquired = 0;
    try {
      for (const interest of interests) {
        if (pace.isTurnOver(0)) yield;
        this.acquire(interest);
        acquired++;
      }
    } finally {
      if (acquired < interests.length) this.releaseAll(lingering(interests.slice(0, acquired)));
    }
  }

  /** Each with what `release` takes. Of many the rest is released in later turns: it would linger anyway. */
  releaseAll(interests: Iterable<readonly [Interest, now: boolean]>): void {
    this.#releasing.push(this.#release(interests));
    if (this.#releasing.length === 1) this.#releaseNext();
  }

  readonly #releaseNext = (): void => {
    if (this.#releasing[0]?.next().done === true) this.#releasing.shift();
    if (this.#releasing.length > 0) this.#options.defer(this.#releaseNext);
  };

  *#release(interests: Iterable<readonly [Interest, boolean]>): InTurns<void> {
    const pace = new ReadingPace(perTurn);
    for (const [interest, now] of interests) {
      if (pace.isTurnOver(0)) yield;
      this.release(interest, now);
    }
  }

  /** `now`: without lingering (a resource that must not be cached). */
  release(interest: Interest, now = false): void {
    const entry = this.#entry(interest);
    if (entry === undefined || entry.views === 0 || --entry.views > 0) return;
    if (now) {
      this.#end(entry, 'uncached');
      return;
    }
    this.#justLeft.add(entry, interestBytes(entry.interest));
    if (this.#entry(interest) === entry) this.#options.interests.markIdle(entry.interest);
  }

  /** Ends the least recently used idle interest; undefined: there is none. */
  evict(): Interest | undefined {
    return this.#idleWithContent.evict() ?? this.#justLeft.evict();
  }

  /** Of what nobody subscribes to: so many would go if there were no room. */
  get idleBytes(): number {
    return this.#justLeft.bytes + this.#idleWithContent.bytes;
  }

  /** Nobody subscribes to it now, and it has not ended. */
  isIdle(interest: Interest): boolean {
    return this.#entry(interest)?.views === 0;
  }

  /** Ends it now, if nobody subscribes to it. */
  endIfIdle(interest: Interest): void {
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
    this.#justLeft.stop();
    this.#idleWithContent.stop();
  }

  #entry({ type, selector, parameters }: Interest): RegisteredInterest | undefined {
    return this.#entries.get(type)?.get(selector)?.get(parameters);
  }

  #end(entry: RegisteredInterest, why: EndReason): void {
    const { type, selector, parameters } = entry.interest;
    const selectors = this.#entries.get(type);
    if (selectors?.get(selector)?.get(parameters) !== entry) return;
    this.#justLeft.delete(entry);
    this.#idleWithContent.delete(entry);
    deleteIn(selectors, selector, parameters);
    if (selectors.size === 0) this.#entries.delete(type);
    this.#options.interests.unsubscribe(entry.interest, why);
  }
}

export const lingering = (interests: readonly Interest[]): Iterable<readonly [Interest, now: boolean]> =>
  interests.values().map((interest) => [interest, false]);

/** The work of one turn of the event loop. Clients can leave hundreds of thousands of names behind. */
const workPerTurn = 5000;

/** What nobody uses any more, kept for a while: past `maxCacheBytes` the least recently used goes first. */
class IdleCache {
  readonly #options: InterestRegistryOptions;
  readonly #milliseconds: number;
  /** The idle time of an entry is over. */
  readonly #over: (entry: RegisteredInterest) => void;
  /** An entry is dropped before its idle time is over, for room. */
  readonly #evicted: (entry: RegisteredInterest) => void;
  #cache: LRUCache<RegisteredInterest, RegisteredInterest>;
  #timer: Timer | undefined;

  constructor(
    options: InterestRegistryOptions,
    milliseconds: number,
    over: (entry: RegisteredInterest) => void,
    evicted: (entry: RegisteredInterest) => void,
  ) {
    this.#options = options;
    this.#milliseconds = milliseconds;
    this.#over = over;
    this.#evicted = evicted;
    this.#cache = this.#create();
  }

  add(entry: RegisteredInterest, bytes: number): void {
    const room = this.#options.maxCacheBytes();
    const size = Math.max(1, Math.ceil(bytes));
    // An entry that is larger than everything may be is not taken at all.
    const isTaken = size <= room;
    if (isTaken) this.#cache.set(entry, entry, { size });
    while (this.#cache.calculatedSize > room && this.evict() !== undefined);
    if (isTaken) this.#schedule();
    else this.#evicted(entry);
  }

  get bytes(): number {
    return this.#cache.calculatedSize;
  }

  /** It is used again. */
  delete(entry: RegisteredInterest): void {
    this.#cache.delete(entry);
  }

  /** Ends the least recently used one; undefined: there is none. */
  evict(): Interest | undefined {
    return this.#cache.pop()?.interest;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#cache = this.#create();
  }

  #create(): LRUCache<RegisteredInterest, RegisteredInterest> {
    return new LRUCache<RegisteredInterest, RegisteredInterest>({
      maxSize: Number.MAX_SAFE_INTEGER, // sizes are added up; `add` knows the bound, which a reload may change
      ttl: Math.max(1, this.#milliseconds),
      // The injected clock, asked each time: lru-cache would remember its answer by a timer of its own.
      perf: { now: () => this.#options.clock.monotonic() },
      ttlResolution: 0,
      // What is over stays until `#expire` has come to it.
      allowStale: true,
      // After the removal and not during it: what ends may let others in.
      disposeAfter: (entry, _, reason) => {
        if (reason === 'evict') this.#evicted(entry);
      },
    });
  }

  /** All have the same time, so the least recently used is the next one. */
  get #next(): RegisteredInterest | undefined {
    const { value } = this.#cache.rkeys().next();
    return value ?? undefined;
  }

  #schedule(): void {
    if (this.#timer !== undefined) return;
    const next = this.#next;
    if (next === undefined) return;
    this.#timer = this.#options.clock.after(this.#cache.getRemainingTTL(next), () => {
      this.#timer = undefined;
      this.#expire();
    });
  }

  #expire(): void {
    let left = workPerTurn;
    for (let next = this.#next; next !== undefined && left > 0; next = this.#next) {
      if (this.#cache.getRemainingTTL(next) > 0) break;
      this.#cache.delete(next);
      // All names are looked through for the end of a wildcard or glob.
      left -= isCollection(next.interest.selector) ? left : 1;
      this.#over(next);
    }
    // lru-cache's lists do not shrink.
    if (this.#cache.size === 0) this.#cache = this.#create();
    this.#schedule();
  }
}
