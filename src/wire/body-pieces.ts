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
