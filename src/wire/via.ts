import { randomBytes } from 'node:crypto';
import type { Clock, Timer } from '../model/clock.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { Peer, ServerStream } from './server-stream.ts';

/**
 * Request header of the streams that a relay opens: the relay itself, then each relay that subscribes to it, directly
 * or through others, as the path that leads down to it: `b/1f, a/77, a/77>c/9`. Who finds itself in there would
 * subscribe to itself.
 */
export const VIA_HEADER = 'x-distributary-via';

/**
 * HTTP/2 servers refuse headers that are too large: Envoy from 60 KiB on, grpc-go from 16 MiB, grpc-java and proxies from
 * 8 KiB in all. So much they take beside the rest, of which a token may be 2 KiB.
 */
const longestHeader = 4096;
/** Where nobody is verified, anybody may say that relays are below. */
export const longestUnverified = 2048;
const mostHops = 16;
const longestHop = 64;
const hopPattern = /^[\w.!~*'()%-]+\/[\w-]+$/;

/** Unlike node.id alone, unique: many relays are left with the same default. The beginning of a long node.id will do. */
export function relayId(nodeId: string, instance: string): string {
  const name = encodeURIComponent(nodeId.toWellFormed() || 'distributary');
  const room = longestHop - instance.length - 1;
  const beginning = name.length <= room ? name : name.slice(0, room).replace(/%.?$/, '');
  return `${beginning}/${instance}`;
}

/**
 * The paths below us that a stream announces: to its sender, and on from there. What is not understood is left out, and
 * so is what no relay sends: longer paths, longer hops, and whatever is past the length of a header.
 */
export function pathsBelow(header: string | undefined): readonly string[] {
  if (header === undefined) return [];
  const [sender = '', ...further] = header
    .slice(0, longestHeader)
    .split(',')
    .map((part) => part.trim())
    .filter(isPath);
  if (sender === '') return [];
  return [sender, ...further.map((path) => `${sender}>${path}`).filter(isPath)];
}

function isPath(path: string): boolean {
  const hops = path.split('>');
  return hops.length <= mostHops && hops.every((hop) => hop.length <= longestHop && hopPattern.test(hop));
}

/** The header that our own streams send, in so many bytes. If not all relays fit, the nearer ones come first. */
export function formatVia(own: string, paths: Iterable<string>, longest: number = longestHeader): string {
  const sorted = [...new Set(paths)]
    .map((path) => ({ path, hops: path.split('>').length }))
    .filter(({ hops }) => hops < mostHops)
    .toSorted((a, b) => a.hops - b.hops || (a.path < b.path ? -1 : 1));
  let header = own;
  for (const { path } of sorted) {
    if (header.length + 2 + path.length > longest) break;
    header += `, ${path}`;
  }
  return header;
}

/** Whether a stream that announced `said` has left out something of `now`. */
export function announcesMore(said: string, now: string): boolean {
  const known = new Set(said.split(', '));
  return now.split(', ').some((path) => !known.has(path));
}

/** Why a stream with these paths cannot be taken; undefined if none of them leads to us. */
export function loopOf(own: string, paths: readonly string[]): GrpcStatus | undefined {
  for (const path of paths) {
    const hops = path.split('>');
    const end = hops.indexOf(own);
    if (end < 0) continue;
    const loop = [own, ...hops.slice(0, end + 1)];
    const message = `loop: ${readable(loop).join(' → ')}: this relay would get its resources from itself; look at the upstreams of these relays`;
    return { code: Code.FAILED_PRECONDITION, message };
  }
  return undefined;
}

/** The names alone if they are distinct, else the whole ids. */
function readable(ids: readonly string[]): readonly string[] {
  const names = ids.map((id) => id.slice(0, id.lastIndexOf('/')));
  if (new Set(names).size < new Set(ids).size) return ids;
  try {
    return names.map(decodeURIComponent);
  } catch {
    return names;
  }
}

/** Relays that start together are announced together. Milliseconds. */
const gatherMs = 100;
/**
 * At least this long between two announcements. Each one opens the streams upstream again, and a client could pretend
 * to be many relays. Milliseconds.
 */
const announceIntervalMs = 60_000;
/**
 * A relay whose stream has ended counts as below for so long: it tries again within its backoff. After a loop is
 * undone, its relays refuse each other for no longer than this. Milliseconds.
 */
const rememberedMs = 30_000;
/** Paths are read from at most so many streams: no fleet has more relays. */
const mostStreams = 1000;

type AnnouncingStream = Pick<ServerStream, 'header' | 'peer'>;

/** Knows which relays are below this one, so that none of them can be above it as well (x-distributary-via). */
export class LoopDetection {
  /** Who this relay is, all its processes alike. */
  readonly relayId: string;
  /** Those that are open and say something. Of 20,000 clients nearly none does, and each stream upstream asks. */
  readonly #streams = new Set<AnnouncingStream>();
  readonly #mayBeRelay: (peer: Peer) => boolean;
  readonly #clock: Clock;
  readonly #longest: number | undefined;
  readonly #listeners = new Set<() => boolean>();
  /** Paths of streams that have ended, and until when they count. */
  readonly #remembered = new Map<string, number>();
  #announced: string;
  #timer: Timer | undefined;
  #nextAnnouncementAt = 0;

  /** `mayBeRelay`: whether a peer's header is believed. `longest`: of the header, in bytes. */
  constructor(own: string, mayBeRelay: (peer: Peer) => boolean, clock: Clock, longest?: number) {
    this.#longest = longest;
    this.relayId = own;
    this.#mayBeRelay = mayBeRelay;
    this.#clock = clock;
    this.#announced = this.relayId;
  }

  /** Why this stream cannot be taken; undefined if it leads to no loop. */
  refusal(stream: AnnouncingStream): GrpcStatus | undefined {
    const refusal = loopOf(this.relayId, this.#said(stream));
    if (refusal !== undefined) this.streamEnded(stream);
    return refusal;
  }

  /**
   * Two cold relays that subscribe to each other end each other's streams at once: when the next one is opened, none is
   * there, so neither would see the loop without what is remembered here.
   */
  streamEnded(stream: AnnouncingStream): void {
    if (stream.header(VIA_HEADER) === undefined) return;
    this.#streams.delete(stream);
    const until = this.#clock.monotonic() + rememberedMs;
    for (const path of this.#below(stream)) {
      if (path.split('>').includes(this.relayId)) continue;
      this.#remembered.delete(path);
      if (this.#remembered.size >= mostStreams) break;
      this.#remembered.set(path, until);
    }
  }

  /**
   * A stream was accepted. If it comes from a relay that no upstream stream has announced, the listeners are called
   * soon.
   */
  streamAccepted(stream: AnnouncingStream): void {
    if (stream.header(VIA_HEADER) === undefined) return;
    this.#streams.add(stream);
    const paths = this.#below(stream);
    if (paths.length === 0 || this.#timer !== undefined) return;
    if (!announcesMore(this.#announced, formatVia(this.relayId, paths, this.#longest))) return;
    const now = this.#clock.monotonic();
    const wait = Math.max(gatherMs, this.#nextAnnouncementAt - now);
    this.#timer = this.#clock.after(wait, () => {
      this.#timer = undefined;
      const reopened = [...this.#listeners].filter((listener) => listener());
      if (reopened.length > 0) this.#nextAnnouncementAt = this.#clock.monotonic() + announceIntervalMs;
    });
  }

  /** The header of upstream streams. */
  via(): string {
    const paths = Iterator.from(this.#streams)
      .map((stream) => this.#below(stream))
      .filter((below) => below.length > 0)
      .take(mostStreams)
      .toArray()
      .flat();
    this.#announced = formatVia(this.relayId, [...paths, ...this.#lately()], this.#longest);
    return this.#announced;
  }

  /** Calls back when `via` has changed. The listener returns whether it opened streams again. */
  onNewRelaysBelow(listener: () => boolean): void {
    this.#listeners.add(listener);
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #lately(): readonly string[] {
    const now = this.#clock.monotonic();
    for (const [path, until] of this.#remembered) if (until <= now) this.#remembered.delete(path);
    return [...this.#remembered.keys()];
  }

  #said(stream: AnnouncingStream): readonly string[] {
    const header = stream.header(VIA_HEADER);
    return header === undefined || !this.#mayBeRelay(stream.peer) ? [] : pathsBelow(header);
  }

  /** The paths that a worker of this relay announces, without the worker: primary and workers are one relay. */
  #below(stream: AnnouncingStream): readonly string[] {
    const inside = `${this.relayId}>`;
    return this.#said(stream).flatMap((path) => {
      if (path === this.relayId) return [];
      return path.startsWith(inside) ? path.slice(inside.length) : path;
    });
  }
}

/** Another one for each run: the next run with this node id may be another relay. */
export function newRelayId(nodeId: string): string {
  return relayId(nodeId, randomBytes(8).toString('hex'));
}
