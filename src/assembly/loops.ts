import { randomBytes } from 'node:crypto';
import type { Clock, Timer } from '../model/clock.ts';
import type { GrpcStatus } from '../wire/status.ts';
import type { ServerStream } from '../wire/transport.ts';
import { announcesMore, formatVia, loopOf, pathsBelow, relayId, VIA_HEADER } from '../wire/via.ts';

/** Relays that start together are announced together. Milliseconds. */
const gatheringMilliseconds = 100;
/** To be announced, a relay costs a new stream upstream: whoever pretends to be many must not cost more. Milliseconds. */
const restMilliseconds = 5000;

type Stream = Pick<ServerStream, 'header'>;

/** Knows which relays are below this one, so that none of them can be above it as well (x-distributary-via). */
export class Loops {
  /** Who this relay is, all its processes alike. */
  readonly own: string;
  readonly #streams: () => Iterable<Stream>;
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  #announced: string;
  #timer: Timer | undefined;
  #restUntil = 0;

  /** `streams`: those that are open. */
  constructor(own: string, streams: () => Iterable<Stream>, clock: Clock) {
    this.own = own;
    this.#streams = streams;
    this.#clock = clock;
    this.#announced = this.own;
  }

  /** Why this stream cannot be taken; undefined if it leads to no loop. */
  refusal(stream: Stream): GrpcStatus | undefined {
    return loopOf(this.own, pathsBelow(stream.header(VIA_HEADER)));
  }

  /** A stream was taken. If a relay is behind it that no stream upstream has told of, the listeners are called soon. */
  taken(stream: Stream): void {
    const paths = this.#below(stream);
    if (paths.length === 0 || this.#timer !== undefined) return;
    if (!announcesMore(this.#announced, formatVia(this.own, paths))) return;
    const now = this.#clock.now();
    const wait = Math.max(gatheringMilliseconds, this.#restUntil - now);
    this.#timer = this.#clock.after(wait, () => {
      this.#timer = undefined;
      this.#restUntil = this.#clock.now() + restMilliseconds;
      for (const listener of this.#listeners) listener();
    });
  }

  /** What the streams upstream say. */
  via(): string {
    const paths = [...this.#streams()].flatMap((stream) => this.#below(stream));
    this.#announced = formatVia(this.own, paths);
    return this.#announced;
  }

  /** `via` has more to say. */
  onGrowth(listener: () => void): void {
    this.#listeners.add(listener);
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /** What a worker of this relay says is below it, is below us: the hop between us is none. */
  #below(stream: Stream): readonly string[] {
    const inside = `${this.own}>`;
    return pathsBelow(stream.header(VIA_HEADER)).flatMap((path) => {
      if (path === this.own) return [];
      return path.startsWith(inside) ? path.slice(inside.length) : path;
    });
  }
}

/** Of one run of a relay: another run may be somebody else. */
export function newRelayId(nodeId: string): string {
  return relayId(nodeId, randomBytes(8).toString('hex'));
}
