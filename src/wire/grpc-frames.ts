import { Code, type GrpcStatus } from './grpc-status.ts';
import { BodyPieces, tooSmallMessage } from './half-sent.ts';

/** A gRPC message on the wire: a compressed flag, the length in 4 bytes big-endian, the message. */
export const prefixLength = 5;

/** Of an uncompressed message of `length` bytes. */
export function prefixOf(length: number): Buffer {
  const prefix = Buffer.alloc(prefixLength);
  prefix.writeUInt32BE(length, 1);
  return prefix;
}

/** A copy of the message with its prefix. Encoders that care make room for the prefix themselves. */
export function frameOf(message: Uint8Array): Buffer {
  return Buffer.concat([prefixOf(message.length), message]);
}

export interface MessageSink {
  /** The bytes are only valid during the call. */
  message(bytes: Buffer): void;
  /** So many bytes are held for a message that has arrived in part; 0: none. May stop the deframer. */
  holds?(bytes: number): void;
}

/**
 * Cuts a request's bytes into messages, however they are chunked. A message inside one chunk is a view of it; one that
 * spans chunks is gathered in a buffer that grows with what has come, not with what the prefix promises.
 * After a fault nothing more is delivered.
 */
export class Deframer {
  readonly #sink: MessageSink;
  readonly #maxBytes: number;
  readonly #limitName: string;
  readonly #encoding: string | undefined;
  /** Bytes of the current prefix that have been read; at `prefixLength` the message follows. */
  #prefixRead = 0;
  #compressed = false;
  #length = 0;
  /** What has arrived of the message, if that is not all of it. */
  #body: BodyPieces | undefined;
  /** What had arrived when the owner paused. */
  #held: Buffer | undefined;
  #mode: 'running' | 'paused' | 'stopped' = 'running';

  /**
   * `maxBytes`: of a message; a larger one is refused before any of it is kept. `limitName`: what the operator sets it
   * by. `encoding`: the request's `grpc-encoding`, for the error of a compressed message.
   */
  constructor(sink: MessageSink, maxBytes: number, limitName: string, encoding?: string) {
    this.#sink = sink;
    this.#maxBytes = maxBytes;
    this.#limitName = limitName;
    this.#encoding = encoding;
  }

  /** Delivers the messages that the chunk completes. What is returned ends the call. */
  push(chunk: Buffer): GrpcStatus | undefined {
    let at = 0;
    while (at < chunk.length) {
      if (this.#mode === 'stopped') return undefined;
      if (this.#mode === 'paused') {
        const rest = chunk.subarray(at);
        this.#held = this.#held === undefined ? compact(rest) : Buffer.concat([this.#held, rest]);
        return undefined;
      }
      if (this.#prefixRead < prefixLength) {
        at = this.#readPrefix(chunk, at);
        if (this.#prefixRead < prefixLength) return undefined;
        const refusal = this.#checkPrefix();
        if (refusal !== undefined) {
          this.stop();
          return refusal;
        }
      }
      at = this.#readMessage(chunk, at);
      if (this.#body?.areTooSmall === true) {
        this.stop();
        return { code: Code.RESOURCE_EXHAUSTED, message: `a message is refused, because ${tooSmallMessage}` };
      }
    }
    return undefined;
  }

  /** No message is delivered until `resume`; chunks pushed meanwhile are held. */
  pause(): void {
    if (this.#mode === 'running') this.#mode = 'paused';
  }

  resume(): GrpcStatus | undefined {
    if (this.#mode !== 'paused') return undefined;
    this.#mode = 'running';
    const held = this.#held;
    this.#held = undefined;
    return held === undefined ? undefined : this.push(held);
  }

  /** What has come since it was paused. */
  get heldBytes(): number {
    return this.#held?.length ?? 0;
  }

  get paused(): boolean {
    return this.#mode === 'paused';
  }

  stop(): void {
    this.#mode = 'stopped';
    this.#held = undefined;
    this.#release();
  }

  /** The client has sent its last byte: a fault if that was within a message. */
  end(): GrpcStatus | undefined {
    if (this.#mode === 'stopped' || this.#prefixRead === 0) return undefined;
    const missing =
      this.#prefixRead < prefixLength
        ? `after ${this.#prefixRead} of the ${prefixLength} bytes of a message's prefix`
        : `after ${this.#body?.bytes ?? 0} of the ${this.#length} bytes of a message`;
    this.stop();
    return { code: Code.INVALID_ARGUMENT, message: `the request ends ${missing}` };
  }

  #readPrefix(chunk: Buffer, start: number): number {
    let at = start;
    while (at < chunk.length && this.#prefixRead < prefixLength) {
      const byte = chunk[at++] ?? 0;
      if (this.#prefixRead === 0) this.#compressed = byte !== 0;
      else this.#length = ((this.#length << 8) | byte) >>> 0;
      this.#prefixRead++;
    }
    return at;
  }

  #checkPrefix(): GrpcStatus | undefined {
    if (this.#compressed) {
      const encoding = this.#encoding;
      if (encoding === undefined || encoding === 'identity') {
        return {
          code: Code.INTERNAL,
          message:
            'a message has the compressed flag, but the request has no grpc-encoding: not gRPC framing?',
        };
      }
      return {
        code: Code.UNIMPLEMENTED,
        message: `requests compressed with ${encoding} are not supported: send them uncompressed (identity)`,
      };
    }
    if (this.#length > this.#maxBytes) {
      return {
        code: Code.RESOURCE_EXHAUSTED,
        message: `a request message of ${this.#length} bytes is over the limit of ${this.#maxBytes} bytes (${this.#limitName})`,
      };
    }
    return undefined;
  }

  #readMessage(chunk: Buffer, start: number): number {
    const missing = this.#length - (this.#body?.bytes ?? 0);
    const end = Math.min(start + missing, chunk.length);
    const piece = chunk.subarray(start, end);
    if (this.#body === undefined && piece.length === missing) {
      this.#deliver(piece);
      return end;
    }
    // Behind a prefix that came alone, all of the message may come at once.
    if (piece.length === 0) return end;
    const held = this.#body?.held ?? 0;
    const body = (this.#body ??= new BodyPieces(borrow(this.#length)));
    body.add(piece, this.#length);
    if (body.held !== held) this.#sink.holds?.(body.held);
    // Else it was given up, as all messages that are half sent hold too much together.
    if (this.#mode !== 'stopped' && body.bytes === this.#length) this.#deliver(body.whole);
    return end;
  }

  #release(): void {
    const body = this.#body;
    if (body === undefined) return;
    this.#body = undefined;
    this.#sink.holds?.(0);
    giveBack(body.room);
  }

  #deliver(bytes: Buffer): void {
    const body = this.#body;
    if (body !== undefined) this.#sink.holds?.(0);
    this.#prefixRead = 0;
    this.#length = 0;
    this.#body = undefined;
    try {
      this.#sink.message(bytes);
    } finally {
      giveBack(body?.room);
    }
  }
}

/** A small part would keep all that it is a part of: the chunk, and what was read from the socket with that. */
function compact(part: Buffer): Buffer {
  if (2 * part.length >= part.buffer.byteLength) return part;
  const own = Buffer.allocUnsafeSlow(part.length);
  part.copy(own);
  return own;
}

/**
 * Buffers to gather in, shared by all streams: a fleet of Envoys with their node in each request (protocol §3.1) needs
 * one for every request, and fresh memory costs more than the copying. Their number is fixed, so clients that hold one
 * by sending slowly cost the others only speed.
 */
const pool: Buffer[] = [];
const pooledBytes = 128 << 10;
const maxPooled = 32;
let made = 0;

function borrow(bytes: number): Buffer | undefined {
  if (bytes > pooledBytes) return undefined;
  const idle = pool.pop();
  if (idle !== undefined || made === maxPooled) return idle;
  made++;
  return Buffer.allocUnsafeSlow(pooledBytes);
}

function giveBack(buffer: Buffer | undefined): void {
  if (buffer?.length === pooledBytes && pool.length < maxPooled) pool.push(buffer);
}
