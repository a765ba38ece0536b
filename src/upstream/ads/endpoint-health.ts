import type { Clock } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';

/** A proxy ends a stream that it cannot pass on by its own connect timeout: 5 s, where nothing else is said. */
const longestRefusalMs = 10_000;

const leastRefusals = 3;

/** A stream from its first opening until nobody needs it any more. Times are milliseconds, by `Clock.monotonic()`. */
class Known {
  /** Undefined: it waits to be opened again. */
  openSince: number | undefined;
  /** The open one has had a response. */
  answered = false;
  /** It has not ended yet. */
  isNew = true;
  /** Since when it ends without a response, when it did so last, and how often; undefined: it worked. */
  refused: { readonly since: number; readonly last: number; readonly count: number } | undefined;
  /** Its last end says nothing about the endpoint. */
  isItsOwnFault = false;
}

/**
 * What the streams of one connection say about its endpoint (protocol §8.4). It may be a proxy whose control plane is gone.
 * Control planes also restart, proxies end what is idle, and single requests may be refused for ever.
 */
export class EndpointHealth {
  readonly #clock: Clock;
  readonly #resourceTimeoutMs: number | undefined;
  readonly #streams = new Map<object, Known>();
  readonly #unanswered = new Set<object>();
  #workedAt = 0;

  constructor(clock: Clock, resourceTimeoutMs: number | undefined) {
    this.#clock = clock;
    this.#resourceTimeoutMs = resourceTimeoutMs;
  }

  /** How many streams ended before any response, and have had none since. */
  get refused(): number {
    return this.#unanswered.size;
  }

  /** When a stream worked last: now, if one does. The start, if none did. */
  get workedAt(): number {
    const works = this.#streams.values().some((one) => this.#works(one));
    return works ? this.#clock.monotonic() : this.#workedAt;
  }

  /** A connection begins. */
  startOver(): void {
    this.#streams.clear();
    this.#unanswered.clear();
    this.#workedAt = this.#clock.monotonic();
  }

  /** One that the relay itself opens anew goes on. */
  opening(stream: object): void {
    const known = this.known(stream);
    if (known.openSince !== undefined) return;
    known.openSince = this.#clock.monotonic();
    known.isItsOwnFault = false;
  }

  /** It has a response. True: it was refused before. */
  answered(stream: object): boolean {
    const known = this.#streams.get(stream);
    if (known !== undefined) known.answered = true;
    return this.#unanswered.delete(stream);
  }

  /** A stream that had responses. */
  ended(stream: object): void {
    const known = this.#streams.get(stream);
    if (known === undefined) return;
    this.#end(known);
    known.refused = undefined;
  }

  /** Nobody needs it any more. */
  closed(stream: object): void {
    const known = this.#streams.get(stream);
    if (known !== undefined) this.#end(known);
    this.#streams.delete(stream);
    this.#unanswered.delete(stream);
  }

  /**
   * A stream ended before any response. True: the endpoint has failed. `hasWorked`: something on this connection has. If not,
   * it fails once no open stream may still be answered. `isItsOwnFault`: whoever ended it had read what it asks.
   */
  refuses(stream: object, hasWorked: boolean, isItsOwnFault: boolean): boolean {
    const known = this.known(stream);
    const now = this.#clock.monotonic();
    const { isNew } = known;
    const worked = this.#end(known);
    const isRefusal = !worked && !isItsOwnFault;
    known.isItsOwnFault = isItsOwnFault;
    const { since, count } = known.refused ?? (isNew ? this.#witnessed(now) : { since: now, count: 0 });
    known.refused = isRefusal ? { since, last: now, count: count + 1 } : undefined;
    this.#unanswered.add(stream);
    if (!hasWorked)
      return this.#streams
        .entries()
        .every(([one, { openSince }]) => openSince === undefined || this.#unanswered.has(one));
    return isRefusal && this.#refusesAll();
  }

  /** Of one that is open, or waits to be opened for the first time. */
  known(stream: object): Known {
    return getOrMake(this.#streams, stream, () => new Known());
  }

  /** A new stream that is refused is one more witness of what began when the others were refused, if none has worked since. */
  #witnessed(now: number): { readonly since: number; readonly count: number } {
    const { workedAt } = this;
    const all = this.#streams.values().map(({ refused }) => refused?.since ?? now);
    const since = all.reduce((first, one) => (one >= workedAt && one < first ? one : first), now);
    return { since, count: since < now ? leastRefusals - 1 : 0 };
  }

  /**
   * Each stream that it may be judged by was refused again after `resource_timeout`, and has not worked meanwhile. Two
   * refusals may be of one bad replica among many.
   */
  #refusesAll(): boolean {
    const longest = this.#resourceTimeoutMs ?? Number.POSITIVE_INFINITY;
    return this.#streams.values().every((one) => {
      if (one.isItsOwnFault) return true;
      const { since, last, count } = one.refused ?? neverRefused;
      return count >= leastRefusals && last - since >= longest && !this.#works(one);
    });
  }

  /** True: it has worked. */
  #end(known: Known): boolean {
    const worked = this.#works(known);
    if (worked) this.#workedAt = this.#clock.monotonic();
    known.openSince = undefined;
    known.answered = false;
    known.isNew = false;
    return worked;
  }

  /** In delta, a control plane that has nothing new is silent. */
  #works({ openSince, answered }: Known): boolean {
    if (openSince === undefined) return false;
    const half = (this.#resourceTimeoutMs ?? Number.POSITIVE_INFINITY) / 2;
    return answered || this.#clock.monotonic() - openSince >= Math.min(half, longestRefusalMs);
  }
}

const neverRefused = { since: 0, last: 0, count: 0 };
