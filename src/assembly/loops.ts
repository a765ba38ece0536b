import { randomBytes } from 'node:crypto';
import type { Clock, Timer } from '../model/clock.ts';
import type { GrpcStatus } from '../wire/status.ts';
import type { Peer, ServerStream } from '../wire/transport.ts';
import { announcesMore, formatVia, loopOf, pathsBelow, relayId, VIA_HEADER } from '../wire/via.ts';

/** Relays that start together are announced together. Milliseconds. */
const gatheringMilliseconds = 100;
/** To be announced, a relay costs new streams upstream: whoever pretends to be many must not cost more. Milliseconds. */
const restMilliseconds = 60_000;
/** Of so many streams paths are gathered; what they say is bounded, and no fleet has as many relays. */
const mostStreams = 1000;

type Stream = Pick<ServerStream, 'header' | 'peer'>;

/** Knows which relays are below this one, so that none of them can be above it as well (x-distributary-via). */
export class Loops {
  /** Who this relay is, all its processes alike. */
  readonly own: string;
  readonly #streams: () => Iterable<Stream>;
  readonly #mayBeRelay: (peer: Peer) => boolean;
  readonly #clock: Clock;
  readonly #listeners = new Set<() => boolean>();
  #announced: string;
  #timer: Timer | undefined;
  #restUntil = 0;

  /** `streams`: those that are open. `mayBeRelay`: whose word is taken for who is below. */
  constructor(
    own: string,
    streams: () => Iterable<Stream>,
    mayBeRelay: (peer: Peer) => boolean,
    clock: Clock,
  ) {
    this.own = own;
    this.#streams = streams;
    this.#mayBeRelay = mayBeRelay;
    this.#clock = clock;
    this.#announced = this.own;
  }

  /** Why this stream cannot be taken; undefined if it leads to no loop. */
  refusal(stream: Stream): GrpcStatus | undefined {
    return loopOf(this.own, this.#said(stream));
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
      const reopened = [...this.#listeners].filter((listener) => listener());
      if (reopened.length > 0) this.#restUntil = this.#clock.now() + restMilliseconds;
    });
  }

  /** What the streams upstream say. */
  via(): string {
    const paths = Iterator.from(this.#streams())
      .map((stream) => this.#below(stream))
      .filter((below) => below.length > 0)
      .take(mostStreams)
      .toArray()
      .flat();
    this.#announced = formatVia(this.own, paths);
    return this.#announced;
  }

  /** `via` has more to say. The listener returns whether that took new streams. */
  onGrowth(listener: () => boolean): void {
    this.#listeners.add(listener);
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #said(stream: Stream): readonly string[] {
    const header = stream.header(VIA_HEADER);
    return header === undefined || !this.#mayBeRelay(stream.peer) ? [] : pathsBelow(header);
  }

  /** What a worker of this relay says is below it, is below us: the hop between us is none. */
  #below(stream: Stream): readonly string[] {
    const inside = `${this.own}>`;
    return this.#said(stream).flatMap((path) => {
      if (path === this.own) return [];
      return path.startsWith(inside) ? path.slice(inside.length) : path;
    });
  }
}

/** Of one run of a relay: another run may be somebody else. */
export function newRelayId(nodeId: string): string {
  return relayId(nodeId, randomBytes(8).toString('hex'));
}
