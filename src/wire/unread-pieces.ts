import type { Readable } from 'node:stream';
import type { Account } from './accounts.ts';
import { pieceMs } from './body-pieces.ts';

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
