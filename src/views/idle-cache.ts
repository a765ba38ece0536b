import { LRUCache } from 'lru-cache';
import type { Clock, Timer } from '../model/clock.ts';

/** The work of one turn of the event loop. Clients can leave hundreds of thousands of names behind. */
const workPerTurn = 5000;
/** lru-cache's lists do not shrink: after more than this, an empty one is replaced. */
const large = 10_000;

export interface IdleCacheOptions<T> {
  readonly clock: Clock;
  readonly milliseconds: number;
  /** Of all entries together. Asked each time, as the configuration can be reloaded. */
  readonly maxBytes: () => number;
  /** What it takes to end an entry, in work: 1 for most. */
  readonly work: (entry: T) => number;
  /** The idle time of an entry is over. */
  readonly over: (entry: T) => void;
  /** An entry is dropped before its idle time is over, for room. */
  readonly evicted: (entry: T) => void;
}

/** What nobody uses any more, kept for a while: past `maxBytes` the least recently used goes first. */
export class IdleCache<T extends object> {
  readonly #options: IdleCacheOptions<T>;
  #cache: LRUCache<T, T>;
  #timer: Timer | undefined;
  #most = 0;

  constructor(options: IdleCacheOptions<T>) {
    this.#options = options;
    this.#cache = this.#create(this.#maxSize());
  }

  add(entry: T, bytes: number): void {
    this.#resize();
    // An entry that is larger than everything may be is not taken at all.
    this.#cache.set(entry, entry, { size: Math.max(1, Math.ceil(bytes)) });
    this.#most = Math.max(this.#most, this.#cache.size);
    if (this.#cache.has(entry)) this.#schedule();
    else this.#options.evicted(entry);
  }

  /** It is used again. */
  delete(entry: T): void {
    this.#cache.delete(entry);
  }

  /** Ends the least recently used one; false if there is none. */
  evict(): boolean {
    return this.#cache.pop() !== undefined;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#clear();
  }

  #clear(): void {
    this.#most = 0;
    this.#cache = this.#create(this.#maxSize());
  }

  #create(maxSize: number): LRUCache<T, T> {
    return new LRUCache<T, T>({
      maxSize,
      ttl: Math.max(1, this.#options.milliseconds),
      // The injected clock, asked each time: lru-cache would remember its answer by a timer of its own.
      perf: this.#options.clock,
      ttlResolution: 0,
      // What is over stays until `#expire` has come to it.
      allowStale: true,
      // After the removal and not during it: what ends may let others in.
      disposeAfter: (entry, _, reason) => {
        if (reason === 'evict') this.#options.evicted(entry);
      },
    });
  }

  #maxSize(): number {
    return Math.max(1, Math.floor(this.#options.maxBytes()));
  }

  #resize(): void {
    const maxSize = this.#maxSize();
    if (maxSize === this.#cache.maxSize) return;
    const before = this.#cache;
    this.#cache = this.#create(maxSize);
    this.#cache.load(before.dump());
  }

  /** All have the same time, so the least recently used is the next one. */
  get #next(): T | undefined {
    const { value } = this.#cache.rkeys().next();
    return value ?? undefined;
  }

  #schedule(): void {
    if (this.#timer !== undefined) return;
    const next = this.#next;
    if (next === undefined) return;
    this.#timer = this.#options.clock.after(Math.max(0, this.#cache.getRemainingTTL(next)), () => {
      this.#timer = undefined;
      this.#expire();
    });
  }

  #expire(): void {
    let left = workPerTurn;
    for (let next = this.#next; next !== undefined && left > 0; next = this.#next) {
      if (this.#cache.getRemainingTTL(next) > 0) break;
      this.#cache.delete(next);
      left -= this.#options.work(next);
      this.#options.over(next);
    }
    if (this.#cache.size === 0 && this.#most > large) this.#clear();
    this.#schedule();
  }
}
