import type { Clock } from '../../model/clock.ts';
import { Code } from '../../wire/grpc-status.ts';

/** A proxy ends a stream that it cannot pass on by its own connect timeout: 5 s, where nothing else is said. */
const longestRefusalMs = 10_000;

/** Of who has read what a stream asks. */
const answers: ReadonlySet<Code> = new Set([
  Code.INVALID_ARGUMENT,
  Code.NOT_FOUND,
  Code.PERMISSION_DENIED,
  Code.RESOURCE_EXHAUSTED,
  Code.FAILED_PRECONDITION,
  Code.OUT_OF_RANGE,
  Code.UNIMPLEMENTED,
]);

interface OpenStream {
  readonly since: number;
  /** It has had a response. */
  answered: boolean;
}

/**
 * What the streams of one connection say about its endpoint (protocol §8.4). It may be a proxy whose control plane is gone.
 * Times are milliseconds, by `Clock.monotonic()`.
 */
export class EndpointHealth {
  readonly #clock: Clock;
  readonly #resourceTimeoutMs: number | undefined;
  readonly #open = new Map<object, OpenStream>();
  /** When a stream that is not open any more worked last. */
  #workedAt = 0;
  /** Streams that ended before any response, and since when each ends so. */
  readonly #refused = new Map<object, number>();

  constructor(clock: Clock, resourceTimeoutMs: number | undefined) {
    this.#clock = clock;
    this.#resourceTimeoutMs = resourceTimeoutMs;
  }

  /** How many streams ended before any response, and have had none since. */
  get refused(): number {
    return this.#refused.size;
  }

  /** When a stream worked last: now, if one does. The start, if none did. */
  get workedAt(): number {
    const works = this.#open.values().some((one) => this.#works(one));
    return works ? this.#clock.monotonic() : this.#workedAt;
  }

  /** A connection begins. */
  startOver(): void {
    this.#open.clear();
    this.#refused.clear();
    this.#workedAt = this.#clock.monotonic();
  }

  /** One that the relay itself opens anew goes on. */
  opening(stream: object): void {
    if (!this.#open.has(stream)) this.#open.set(stream, { since: this.#clock.monotonic(), answered: false });
  }

  answered(stream: object): void {
    const open = this.#open.get(stream);
    if (open !== undefined) open.answered = true;
  }

  /** True: it has worked. */
  ended(stream: object): boolean {
    const open = this.#open.get(stream);
    this.#open.delete(stream);
    if (open === undefined || !this.#works(open)) return false;
    this.#workedAt = this.#clock.monotonic();
    return true;
  }

  /** That it was refused does not count any more. */
  forget(stream: object): void {
    this.#refused.delete(stream);
  }

  /**
   * A stream ended before any response. True: the endpoint has failed. If it has never `answered`, once no other stream may
   * still be answered. Else control planes restart, and proxies end what is idle: when this stream has ended so for
   * `resource_timeout`, and no other has worked meanwhile. `code`: of a stream that asks for what may be the cause.
   */
  refuses(stream: object, answered: boolean, code: Code | undefined): boolean {
    const now = this.#clock.monotonic();
    const worked = this.ended(stream);
    const since = (worked ? undefined : this.#refused.get(stream)) ?? now;
    this.#refused.set(stream, since);
    if (!answered) return this.#open.keys().every((one) => this.#refused.has(one));
    if (this.#resourceTimeoutMs === undefined || (code !== undefined && answers.has(code))) return false;
    return now - Math.max(since, this.workedAt) >= this.#resourceTimeoutMs;
  }

  /** In delta, a control plane that has nothing new is silent. */
  #works({ since, answered }: OpenStream): boolean {
    const half = (this.#resourceTimeoutMs ?? 0) / 2;
    return answered || this.#clock.monotonic() - since >= Math.min(half, longestRefusalMs);
  }
}
