import type { Readable } from 'node:stream';
import { type Clock, Sweep } from '../model/clock.ts';
import type { Account } from './accounts.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { FaultReason, Peer } from './server-stream.ts';

/** The stream of a message that has arrived in part. */
export interface Gatherer {
  readonly peer: Peer;
  /** Gives up the message, and the call with it. */
  abandon(status: GrpcStatus, why: FaultReason): void;
}

/**
 * The bytes that messages in part may hold: room for 16 of the largest at the default of
 * limits.max_request_bytes, and always for four. A fleet's requests of 61 KB that are on their way fit a thousand times.
 */
export function halfSentBudget(maxRequestBytes: number): number {
  return Math.max(64 << 20, 4 * maxRequestBytes);
}

/** Making room ends at this part of the budget: it looks at all messages, so it must be rare. */
const targetShare = 0.75;
const lateCheckMs = 1000;

/** The messages of all connections of which a part has arrived, and the memory that they hold. */
export class HalfSent {
  readonly #clock: Clock;
  readonly #budget: number;
  /** The oldest first. */
  readonly #messages = new Map<Gatherer, { readonly since: number; readonly bytes: number }>();
  #bytes = 0;
  readonly #late: Sweep | undefined;

  /**
   * `budget`: bytes that all of them may hold together. `timeout`: milliseconds in which a message must have arrived once
   * it has begun; undefined: any.
   */
  constructor(clock: Clock, budget: number, timeout?: () => number) {
    this.#clock = clock;
    this.#budget = budget;
    this.#late = timeout && new Sweep(clock, lateCheckMs, () => this.#abandonLate(timeout()));
  }

  /** So many bytes are held for the message that this one gathers; 0: it has arrived, or was given up. */
  resize(gatherer: Gatherer, bytes: number): void {
    const known = this.#messages.get(gatherer);
    const more = bytes - (known?.bytes ?? 0);
    const excess = gatherer.peer.account.hold(more);
    if (excess !== undefined) {
      gatherer.abandon({ code: Code.RESOURCE_EXHAUSTED, message: excess }, 'held_bytes');
      return;
    }
    this.#bytes += more;
    if (bytes === 0) this.#messages.delete(gatherer);
    else this.#messages.set(gatherer, { since: known?.since ?? this.#clock.monotonic(), bytes });
    if (bytes > 0) this.#late?.start();
    if (this.#bytes > this.#budget) this.#makeRoom();
  }

  stop(): void {
    this.#late?.stop();
  }

  /** The peer that holds most loses first, and of it the largest message, then the oldest. */
  #makeRoom(): void {
    const budget = this.#budget;
    const message = `unfinished messages of clients hold more than ${budget} bytes together, and this one is among the largest: send it again, all at once`;
    const victims = [...this.#messages]
      .map(([victim, { bytes }]) => ({ victim, bytes, held: victim.peer.account.held }))
      .toSorted((a, b) => b.held - a.held || b.bytes - a.bytes);
    for (const { victim } of victims) {
      if (this.#bytes <= budget * targetShare) return;
      victim.abandon({ code: Code.RESOURCE_EXHAUSTED, message }, 'half_sent');
    }
  }

  /** False: none is left. */
  #abandonLate(milliseconds: number): boolean {
    const latest = this.#clock.monotonic() - milliseconds;
    const message = `a request did not arrive within ${milliseconds} ms of its first bytes (limits.stalled_timeout)`;
    for (const [gatherer, { since }] of this.#messages) {
      if (since > latest) break;
      gatherer.abandon({ code: Code.DEADLINE_EXCEEDED, message }, 'half_sent');
    }
    return this.#messages.size > 0;
  }
}

/**
 * A piece costs Node so long before we see it, in milliseconds: measured with pieces of one byte. The account of its
 * sender is charged with that, as nothing else would be for a body that never ends.
 */
export const pieceMs = 0.002;

/** Bodies come in frames and segments of kilobytes. Pieces of a few bytes each cost a thousand times as much. */
const leastPieceBytes = 64;
/** So many may be of any size. */
const freePieces = 10_000;
const firstRoom = 4096;
/** What a client sends after it was refused is thrown away, so that it reads the answer; but not without end. */
export const mostDiscarded = 16 << 20;

export const tooSmallMessage = `it comes in pieces of less than ${leastPieceBytes} bytes: send it in fewer pieces`;

/** A body as it arrives. What it holds is one buffer: a Buffer for each piece takes hundreds of bytes more than it has. */
export class BodyPieces {
  #room: Buffer;
  #bytes = 0;
  #pieces = 0;

  /** `room`: where it may begin. */
  constructor(room: Buffer = none) {
    this.#room = room;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Bytes of memory that are held for what has come. */
  get held(): number {
    return this.#room.length;
  }

  get room(): Buffer {
    return this.#room;
  }

  /** Nobody sends so many pieces for so few bytes who does not mean to cost much. */
  get areTooSmall(): boolean {
    return this.#pieces > freePieces + this.#bytes / leastPieceBytes;
  }

  /** It is thrown away, and will be for too long. */
  get areTooMany(): boolean {
    return this.#bytes > mostDiscarded || this.areTooSmall;
  }

  /** All that has come. */
  get whole(): Buffer {
    return this.#room.subarray(0, this.#bytes);
  }

  /** `most`: so long the body may be. A piece that is all of it is kept as it is. */
  add(piece: Buffer, most: number): void {
    const start = this.#bytes;
    this.skip(piece);
    if (piece.length === most) {
      this.#room = piece;
      return;
    }
    if (this.#room === none || this.#bytes > this.#room.length) {
      const room = Math.max(this.#bytes, Math.min(most, Math.max(2 * this.#bytes, firstRoom)));
      const grown = Buffer.allocUnsafeSlow(room);
      this.#room.copy(grown, 0, 0, start);
      this.#room = grown;
    }
    piece.copy(this.#room, start);
  }

  /** It is counted, and not kept. */
  skip(piece: Buffer): void {
    this.#pieces++;
    this.#bytes += piece.length;
  }

  take(): Buffer {
    const { whole } = this;
    this.drop();
    return whole;
  }

  drop(): void {
    this.#room = none;
  }
}

const none = Buffer.alloc(0);

/** What each piece takes beside its bytes, a Buffer and a place in Node's list: measured. */
const pieceBytes = 128;

/** How many streams have unread pieces of what was read from a socket at once. */
const streamsWith = new WeakMap<ArrayBufferLike, number>();

/**
 * What Node keeps of a stream that is not read. A piece of one byte keeps all that was read from the socket with it, up to
 * 64 KB, as it is a part of that: so that is what its peer holds, and once, however many streams have parts of it.
 */
export class UnreadPieces {
  readonly #stream: Readable;
  readonly #account: Account;
  /** So many of the pieces were looked at; and of what they are parts. */
  #seen = 0;
  readonly #reads: ArrayBufferLike[] = [];
  /** What is charged beside those. */
  #bytes = 0;

  constructor(stream: Readable, account: Account) {
    this.#stream = stream;
    this.#account = account;
  }

  /**
   * Charges what has come since the last look. `beside`: bytes that are kept for the stream elsewhere. A text says that its
   * peer holds too much.
   */
  look(beside: number): string | undefined {
    const pieces = piecesOf(this.#stream);
    const come = pieces?.slice(this.#seen) ?? [];
    this.#seen += come.length;
    let more = come.reduce<number>((sum, piece) => sum + this.#keep(piece), 0);
    // To receive them costs as much as to read them, and nobody may ever do that.
    if (come.length > 0) this.#account.spent(pieceMs * come.length);
    const bytes = beside + (pieces === undefined ? this.#stream.readableLength : pieceBytes * pieces.length);
    more += bytes - this.#bytes;
    this.#bytes = bytes;
    this.#account.keeps(more);
    return more > 0 ? this.#account.excess : undefined;
  }

  /** It is read again, or has ended. */
  release(): void {
    let bytes = this.#bytes;
    for (const read of this.#reads) {
      const others = (streamsWith.get(read) ?? 1) - 1;
      streamsWith.set(read, others);
      if (others === 0) bytes += read.byteLength;
    }
    this.#account.keeps(-bytes);
  }

  /** Bytes that are kept by this piece, and were not before. */
  #keep(piece: unknown): number {
    if (!Buffer.isBuffer(piece)) return 0;
    const { buffer } = piece;
    // What came together follows one another.
    if (buffer === this.#reads.at(-1)) return 0;
    this.#reads.push(buffer);
    const others = streamsWith.get(buffer) ?? 0;
    streamsWith.set(buffer, others + 1);
    return others === 0 ? buffer.byteLength : 0;
  }
}

/** They are not documented: where they are missing, a stream keeps the bytes that can be read. */
function piecesOf(stream: Readable): readonly unknown[] | undefined {
  const state: unknown = Reflect.get(stream, '_readableState');
  const pieces: unknown =
    typeof state === 'object' && state !== null ? Reflect.get(state, 'buffer') : undefined;
  return Array.isArray(pieces) ? pieces : undefined;
}
