import { constants, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../model/clock.ts';
import type { Waiting } from './accounts.ts';
import { pieceMs } from './body-pieces.ts';
import { Deframer, type MessageSink } from './grpc-frames.ts';
import { closeSoon, refuse, statusTrailers } from './grpc-requests.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { Gatherer, HalfSent, UnreadRequests, UnreadStream } from './half-sent.ts';
import type { Peer, ServerStream, StreamHandler } from './server-stream.ts';
import { VIA_HEADER } from './via.ts';

/** What a stream needs of its server. One object for all streams. */
export interface StreamOwner {
  readonly clock: Clock;
  readonly maxRequestBytes: number;
  readonly halfSent: HalfSent;
  readonly unreadRequests: UnreadRequests;
  /** A bug: something of ours threw in a handler. The stream is ended. */
  threw(error: unknown, path: string): void;
  /** What it brought has to wait for its peer's turn. */
  unserved(stream: Http2ServerStream): void;
  closed(stream: Http2ServerStream): void;
}

/** How long the trailers wait behind data that the client does not take; then the stream is reset. Milliseconds. */
const trailersTimeoutMs = 5000;

/** A list, because Node copies an object for each response. */
const responseHeaders: readonly string[] = [':status', '200', 'content-type', 'application/grpc'];
const noHeaders = {};
const respondOptions = { waitForTrailers: true, sendDate: false } as const;

/**
 * One gRPC call on an HTTP/2 stream: the hot path. Thousands of them are open at once and each update is one `write`
 * on each, so writing allocates nothing here, and the listeners are made once.
 *
 * The server listens for errors of the stream; `close` follows them. The response headers are sent with the first write,
 * because an end before that is a trailers-only response.
 */
export class Http2ServerStream implements ServerStream, Gatherer, UnreadStream, MessageSink {
  readonly path: string;
  readonly peer: Peer;
  readonly #stream: ServerHttp2Stream;
  #headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly #owner: StreamOwner;
  #handler: StreamHandler | undefined;
  #deframer: Deframer | undefined;
  #requestEnded = false;
  /** `write` has returned false once: from then on `drain` is listened for. */
  #mayBlock = false;
  /** Why nothing is read: the handler has paused, or the peer has to wait for its turn. */
  #paused = false;
  #waiting: Waiting | undefined;
  #waitingSince = 0;
  /** Before that. */
  #waitedMilliseconds = 0;
  /** Set by the first `end`. */
  #status: GrpcStatus | undefined;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: Peer, owner: StreamOwner) {
    this.path = headers[':path'] ?? '';
    this.peer = peer;
    this.#stream = stream;
    this.#headers = headers;
    this.#owner = owner;
    stream.on('close', () => this.#closed());
  }

  /** Runs the owner's handler, which must take the stream with `handle` or end it. */
  open(accept: (stream: ServerStream) => void): void {
    try {
      accept(this);
    } catch (error) {
      this.#threw(error);
    }
    if (this.#handler === undefined) this.end({ code: Code.INTERNAL, message: 'the call was not handled' });
    // There are as many as streams, and they live as long: only what is asked for later stays.
    const via = this.#headers[VIA_HEADER];
    this.#headers = via === undefined ? noHeaders : { [VIA_HEADER]: via };
  }

  header(name: string): string | undefined {
    const value = Object.hasOwn(this.#headers, name) ? this.#headers[name] : undefined;
    return Array.isArray(value) ? value.join(', ') : value;
  }

  handle(handler: StreamHandler): void {
    this.#handler = handler;
    if (this.#status !== undefined || this.#stream.destroyed) return;
    this.#deframer = new Deframer(this, {
      maxBytes: this.#owner.maxRequestBytes,
      limitName: 'limits.max_request_bytes',
      encoding: this.header('grpc-encoding'),
      holds: (bytes) => this.#owner.halfSent.resize(this, bytes),
    });
    const stream = this.#stream;
    stream.on('data', (chunk: Buffer | string) => this.#read(chunk));
    stream.on('end', () => {
      this.#requestEnded = true;
      this.#checkEnded();
    });
  }

  write(frame: Buffer): boolean {
    const stream = this.#stream;
    if (this.#status !== undefined || stream.destroyed || stream.closed) return false;
    if (!stream.headersSent) stream.respond(responseHeaders, respondOptions);
    const more = stream.write(frame);
    if (!more && !this.#mayBlock) {
      this.#mayBlock = true;
      stream.on('drain', () => this.#drained());
    }
    return more;
  }

  pause(): void {
    this.#paused = true;
    this.#stopReading();
  }

  resume(): void {
    this.#paused = false;
    this.#readOn();
  }

  get waitedMilliseconds(): number {
    if (this.#waiting === undefined) return this.#waitedMilliseconds;
    return this.#waitedMilliseconds + this.#owner.clock.now() - this.#waitingSince;
  }

  /** For the deframer. */
  message(bytes: Buffer): void {
    const handler = this.#handler;
    if (handler === undefined) return;
    const { account } = this.peer;
    account.deliver(bytes, handler);
    if (account.mustWait) this.#waitForTurn();
  }

  #waitForTurn(): void {
    if (this.#waiting !== undefined || this.#status !== undefined) return;
    this.#stopReading();
    this.#owner.unserved(this);
    this.#waitingSince = this.#owner.clock.now();
    this.#waiting = this.peer.account.wait(() => {
      this.#waitedMilliseconds = this.waitedMilliseconds;
      this.#waiting = undefined;
      this.#readOn();
    });
  }

  #stopReading(): void {
    this.#deframer?.pause();
    this.#stream.pause();
    if (this.#status === undefined) this.#owner.unreadRequests.add(this);
  }

  #readOn(): void {
    const deframer = this.#deframer;
    if (this.#paused || this.#waiting !== undefined) return;
    if (deframer === undefined || this.#status !== undefined) return;
    this.#guard(() => deframer.resume());
    // It may be paused again within the messages that were held.
    if (deframer.paused) return;
    this.#owner.unreadRequests.delete(this);
    this.#stream.resume();
    this.#checkEnded();
  }

  /** For UnreadRequests. */
  get unreadBytes(): number {
    return this.#stream.readableLength + (this.#deframer?.heldBytes ?? 0);
  }

  /** For UnreadRequests. */
  refuse(status: GrpcStatus): void {
    this.#handler?.faulted?.(status, 'held_bytes');
    this.end(status);
  }

  /** For HalfSent. */
  abandon(status: GrpcStatus): void {
    this.#handler?.faulted?.(status, 'half_sent');
    this.end(status);
  }

  end(status: GrpcStatus): void {
    if (this.#status !== undefined) return;
    this.#status = status;
    this.#waiting?.cancel();
    this.#deframer?.stop();
    this.#owner.unreadRequests.delete(this);
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    // A paused stream would never hear that its client has gone. What still comes is dropped.
    stream.resume();
    if (!stream.headersSent) {
      refuse(stream, status);
      return;
    }
    stream.once('wantTrailers', () => this.#sendTrailers(status));
    if (stream.writableLength > 0) this.#limitTrailersWait(status);
    stream.end();
  }

  #sendTrailers(status: GrpcStatus): void {
    const stream = this.#stream;
    stream.sendTrailers(statusTrailers(status));
    closeSoon(stream);
  }

  /** Trailers come after all data. A stream whose client takes no data can only be reset. */
  #limitTrailersWait(status: GrpcStatus): void {
    const stream = this.#stream;
    const timer = this.#owner.clock.after(trailersTimeoutMs, () => {
      // The reset code is all that such a client learns: gRPC turns these into RESOURCE_EXHAUSTED and CANCELLED.
      const exhausted = status.code === Code.RESOURCE_EXHAUSTED;
      stream.close(exhausted ? constants.NGHTTP2_ENHANCE_YOUR_CALM : constants.NGHTTP2_CANCEL);
      stream.destroy();
    });
    stream.once('close', () => timer.cancel());
  }

  #read(chunk: Buffer | string): void {
    const deframer = this.#deframer;
    if (deframer === undefined || typeof chunk === 'string') return;
    const { account } = this.peer;
    account.spent(pieceMs);
    if (account.mustWait) this.#waitForTurn();
    try {
      const fault = deframer.push(chunk);
      if (fault !== undefined) this.#fault(fault);
    } catch (error) {
      this.#threw(error);
    }
  }

  #checkEnded(): void {
    const deframer = this.#deframer;
    // Node may report the end while reading is paused: the messages that are held come first.
    if (!this.#requestEnded || this.#status !== undefined || deframer === undefined || deframer.paused)
      return;
    this.#requestEnded = false;
    // Node ends the request of a stream that was reset, too: the owner only hears `closed` then.
    if (this.#stream.closed || this.#stream.destroyed) return;
    this.#guard(() => {
      const fault = deframer.end();
      if (fault === undefined) this.#handler?.ended();
      return fault;
    });
  }

  #drained(): void {
    if (this.#status !== undefined) return;
    try {
      this.#handler?.drained();
    } catch (error) {
      this.#threw(error);
    }
  }

  #closed(): void {
    this.#waiting?.cancel();
    this.#deframer?.stop();
    this.#owner.unreadRequests.delete(this);
    this.#owner.closed(this);
    const handler = this.#handler;
    this.#handler = undefined;
    try {
      handler?.closed();
    } catch (error) {
      this.#owner.threw(error, this.path);
    }
  }

  #guard(run: () => GrpcStatus | undefined): void {
    try {
      const fault = run();
      if (fault !== undefined) this.#fault(fault);
    } catch (error) {
      this.#threw(error);
    }
  }

  #fault(fault: GrpcStatus): void {
    this.#handler?.faulted?.(fault);
    this.end(fault);
  }

  #threw(error: unknown): void {
    this.#owner.threw(error, this.path);
    this.end({ code: Code.INTERNAL, message: 'internal error' });
  }
}
