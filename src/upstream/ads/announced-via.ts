import type { Clock } from '../../model/clock.ts';
import { Code } from '../../wire/grpc-status.ts';

/** How long the paths are left out before they are tried again, in milliseconds. */
const leftOutMs = 3_600_000;

/**
 * What servers and proxies answer to a header that is too large, as grpc-js has it (431 is UNKNOWN). Not what relays
 * say: FAILED_PRECONDITION is a loop, which must not be hidden, and UNAVAILABLE is a cold cache.
 */
const tooLarge: ReadonlySet<Code | undefined> = new Set([
  Code.UNKNOWN,
  Code.INTERNAL,
  Code.RESOURCE_EXHAUSTED,
  Code.INVALID_ARGUMENT,
]);

/**
 * What the streams of an upstream say in x-distributary-via. When streams are refused since it grew, they say only which
 * relay this is: without the paths below it a loop may be found late, but with them the relay is cut off.
 */
export class AnnouncedVia {
  readonly #via: () => string;
  readonly #clock: Clock;
  /** The longest header of a stream that was answered. */
  #taken = 0;
  /** Bytes of the header that was not sent when a stream was opened last; 0: it was. */
  #leftOut = 0;
  #refused: { readonly length: number; readonly until: number } | undefined;

  constructor(via: () => string, clock: Clock) {
    this.#via = via;
    this.#clock = clock;
  }

  /** Of a stream that is opened now. */
  text(): string {
    const all = this.#via();
    this.#leftOut = this.#isRefused(all) ? all.length : 0;
    return this.#leftOut > 0 ? ownOf(all) : all;
  }

  /** What the operator should know; empty: nothing. */
  get warning(): string {
    if (this.#leftOut === 0) return '';
    return `streams with a header x-distributary-via of ${this.#leftOut} bytes were refused: it is sent without the relays below this one, so a loop of relays may go unnoticed`;
  }

  answered(via: string): void {
    this.#taken = Math.max(this.#taken, via.length);
  }

  /** A stream that said this was ended before any response. */
  unanswered(via: string, code: Code | undefined): void {
    if (via === ownOf(via)) {
      // It is not the header.
      this.#refused = undefined;
    } else if (via.length > this.#taken && tooLarge.has(code)) {
      this.#refused = { length: via.length, until: this.#clock.now() + leftOutMs };
    }
  }

  #isRefused(all: string): boolean {
    if (this.#refused === undefined || all === ownOf(all)) return false;
    return all.length >= this.#refused.length && this.#clock.now() < this.#refused.until;
  }
}

function ownOf(via: string): string {
  const end = via.indexOf(',');
  return end < 0 ? via : via.slice(0, end);
}
