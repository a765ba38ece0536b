import {
  constants,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import { Sweep, type Timer } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import type { Result } from '../model/result.ts';
import { tooMuchWaits } from './accounts.ts';
import type { Address } from './address.ts';
import {
  type ClientConnection,
  drainShare,
  headerBytes,
  type ListenerOptions,
  spread,
} from './client-connections.ts';
import type { ConnectPaths } from './connect.ts';
import { Deframer, type MessageSink } from './grpc-frames.ts';
import { beginAnswer, endAnswer, refusalOf, refuse, refuseUnknown } from './grpc-requests.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { type Gatherer, pieceMs, UnreadPieces } from './half-sent.ts';
import { largestPiece, sessionOptions, unixWindow } from './http2-settings.ts';
import { Listener, listen } from './listener.ts';
import { explainError, ignoreError } from './node-error.ts';
import { draining } from './refusal.ts';
import type { FaultReason, ServerStream, StreamHandler } from './server-stream.ts';
import { VIA_HEADER } from './via.ts';

export interface GrpcServerOptions extends ListenerOptions {
  /**
   * Called for each call. A function takes it (a hot path), a status refuses it, undefined leaves it to the auxiliary paths.
   */
  readonly accept: (path: string) => ((stream: ServerStream) => void) | GrpcStatus | undefined;
  readonly auxiliary?: ConnectPaths;
  /** Asked when it is looked at, in milliseconds: how long a request may take to arrive. Left out: any time. */
  readonly messageTimeout?: () => number;
  /** A client's connection ended other than HTTP/2 has it: cut, or with something that is no HTTP/2. */
  readonly connectionFailed?: (address: string, reason: string) => void;
}

/** What Node spends on a stream, most of it before it tells of it and after it has ended: milliseconds, measured. */
const streamMs = 0.03;

/** Node says nothing when a stream receives that is not read, so it is looked at. Milliseconds. */
const unreadCheckMs = 100;

/** Listens. The error says which address, what is wrong, and is for the operator. */
export function listenGrpc(options: GrpcServerOptions): Promise<Result<GrpcServer>> {
  return listen(options, (at) => new GrpcServer(at, options));
}

const noHttp2 =
  'HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\nthis port speaks HTTP/2: offer h2 by ALPN\n';

/** A stream of which nothing is read. */
interface Unread extends Gatherer {
  /** Bytes that are kept for it beside what Node has. */
  readonly keptBytes: number;
}

/** gRPC on one listener: hot calls as `ServerStream`, the rest to connect-node. */
export class GrpcServer extends Listener {
  readonly #options: GrpcServerOptions;
  readonly #http2: Http2Server;
  readonly #streams = new Set<Http2ServerStream>();
  /** While it drains: no hot call is open any more. */
  #whenIdle: (() => void) | undefined;
  /** What they have received meanwhile: a client may send as much as its window allows. */
  readonly #unread = new Map<Unread, UnreadPieces>();
  readonly #unreadChecks = new Sweep(this.clock, unreadCheckMs, () => {
    for (const [stream, pieces] of this.#unread) {
      const excess = pieces.look(stream.keptBytes);
      if (excess !== undefined)
        stream.abandon({ code: Code.RESOURCE_EXHAUSTED, message: excess }, 'held_bytes');
    }
    return this.#unread.size > 0;
  });

  constructor(at: Address, options: GrpcServerOptions) {
    super(at, ['h2'], options, options.messageTimeout);
    this.#options = options;
    const { settings } = sessionOptions;
    this.#http2 = createServer(
      at.kind === 'tcp'
        ? sessionOptions
        : { ...sessionOptions, settings: { ...settings, initialWindowSize: unixWindow } },
    );
    this.clients.follow(this.#http2);
    this.#http2.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#onStream(stream, headers, raw),
    );
    this.#http2.on('sessionError', (error, session) =>
      options.connectionFailed?.(this.clients.of(session)?.address ?? '', explainError(error)),
    );
  }

  protected override connected(socket: Socket, alpn: string | undefined): void {
    if (alpn === undefined || alpn === 'h2') this.#http2.emit('connection', socket);
    else this.farewell(socket, noHttp2);
  }

  /** Open hot calls. */
  get streams(): number {
    return this.#streams.size;
  }

  /** Streams one by one. */
  protected override async end(milliseconds: number): Promise<void> {
    const { auxiliary, random = systemRandom } = this.#options;
    const ending = spread(this.#streams, milliseconds * drainShare, this.clock, random, (stream) =>
      stream.end(draining.status),
    );
    if (this.#streams.size > 0)
      await new Promise<void>((resolve) => {
        this.#whenIdle = resolve;
      });
    ending.cancel();
    // Watches of the health service would otherwise always last until the deadline.
    auxiliary?.shutDown();
  }

  /** For Http2ServerStream. */
  closed(stream: Http2ServerStream): void {
    // It was refused.
    if (!this.#streams.delete(stream)) return;
    stream.peer.calls?.delete(stream);
    stream.peer.closed(stream.headerBytes);
    if (this.#streams.size === 0) this.#whenIdle?.();
  }

  /** It is not read from now on. */
  stopsReading(unread: Unread, stream: ServerHttp2Stream): void {
    if (!this.#unread.has(unread)) this.#unread.set(unread, new UnreadPieces(stream, unread.peer.account));
    this.#unreadChecks.start();
  }

  /** It is read again, or has ended. */
  readsOn(unread: Unread): void {
    this.#unread.get(unread)?.release();
    this.#unread.delete(unread);
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: readonly string[]): void {
    stream.on('error', ignoreError);
    const connection = this.clients.of(stream.session);
    // Its connection was lost before it came here.
    if (connection === undefined) return;
    const { account } = connection;
    connection.arrived(streamMs);
    // Reset.
    if (stream.destroyed) return;
    const begin = (): void => {
      if (stream.destroyed || stream.closed) return;
      try {
        account.work(() => this.#route(stream, headers, rawHeaders, connection));
      } catch (error) {
        this.threw(error, headers[':path'] ?? '');
        stream.destroy();
      }
    };
    if (!account.mustWait || this.#options.auxiliary?.isAtOnce(headers) === true) {
      begin();
      return;
    }
    const waiting = account.waitOnArrival(() => {
      this.readsOn(arrival);
      // It would keep the headers as long as the stream.
      stream.off('close', giveUp);
      begin();
    });
    if (waiting === undefined) {
      this.#options.refused?.('waiting');
      refuse(stream, tooMuchWaits(account));
      return;
    }
    const giveUp = (): void => {
      waiting.cancel();
      this.readsOn(arrival);
    };
    const { refused } = this.#options;
    const arrival: Unread = {
      peer: connection,
      keptBytes: headerBytes(rawHeaders),
      abandon(status, why) {
        giveUp();
        refused?.(why);
        refuse(stream, status);
      },
    };
    this.stopsReading(arrival, stream);
    stream.once('close', giveUp);
  }

  /** The call counts from now on, with so many bytes of headers. False: it is refused. */
  #opens(stream: ServerHttp2Stream, connection: ClientConnection, headers: number): boolean {
    const excess = connection.opened(headers);
    if (excess === undefined) return true;
    this.#options.refused?.('held_bytes');
    refuse(stream, { code: Code.RESOURCE_EXHAUSTED, message: excess });
    return false;
  }

  #route(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
    connection: ClientConnection,
  ): void {
    const path = headers[':path'] ?? '';
    const accepted = this.#options.accept(path);
    if (accepted === undefined) {
      if (this.#options.auxiliary?.serves(path) === true) {
        const kept = headerBytes(rawHeaders);
        if (!this.#opens(stream, connection, kept)) return;
        stream.once('close', () => connection.closed(kept));
        this.#options.auxiliary.handle(stream, headers, rawHeaders, connection);
      } else refuseUnknown(stream, headers);
      return;
    }
    const refusal = refusalOf(headers);
    if (refusal !== undefined) {
      refuse(stream, refusal.status, refusal.http);
    } else if (typeof accepted === 'function') {
      const call = new Http2ServerStream(stream, headers, connection, this);
      if (!this.#opens(stream, connection, call.headerBytes)) return;
      this.#streams.add(call);
      connection.calls?.add(call);
      call.open(accepted);
    } else {
      refuse(stream, accepted);
    }
  }
}

/** How long the trailers wait behind data that the client does not take; then the stream is reset. Milliseconds. */
const trailersTimeoutMs = 5000;

const noHeaders = {};

/**
 * One gRPC call on an HTTP/2 stream: the hot path. Thousands of them are open at once and each update is one `write`
 * on each, so writing allocates nothing here, and the listeners are made once.
 *
 * The server listens for errors of the stream; `close` follows them. The response headers are sent with the first write,
 * because an end before that is a trailers-only response.
 */
class Http2ServerStream implements ServerStream, MessageSink, Unread {
  readonly path: string;
  readonly peer: ClientConnection;
  /** Of those that are kept as long as the stream: by Node the authority and the scheme, which may be as long. */
  readonly headerBytes: number;
  readonly #stream: ServerHttp2Stream;
  #headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly #owner: GrpcServer;
  #handler: StreamHandler | undefined;
  #deframer: Deframer | undefined;
  #requestEnded = false;
  /** `write` has returned false once: from then on `drain` is listened for. */
  #mayBlock = false;
  /** Of a large frame, what is not written yet. */
  #rest: Buffer | undefined;
  /** The same of `pause` and `aborted`. */
  #hearsAborts = false;
  /** Why nothing is read: the handler has paused, or the peer has to wait for its turn. */
  #paused = false;
  #waiting: Timer | undefined;
  #waitingSince = 0;
  /** Before that. */
  #waitedMilliseconds = 0;
  /** Set by the first `end`. */
  #status: GrpcStatus | undefined;

  constructor(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    peer: ClientConnection,
    owner: GrpcServer,
  ) {
    this.path = headers[':path'] ?? '';
    this.peer = peer;
    this.#stream = stream;
    this.#headers = headers;
    this.#owner = owner;
    const { ':authority': authority, ':scheme': scheme = '', host, [VIA_HEADER]: via } = headers;
    this.headerBytes = headerBytes([authority ?? host ?? '', scheme, String(via ?? '')]);
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
    const { maxRequestBytes } = this.#owner;
    this.#deframer = new Deframer(
      this,
      maxRequestBytes,
      'limits.max_request_bytes',
      this.header('grpc-encoding'),
    );
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
    if (!stream.headersSent) beginAnswer(stream);
    const more = this.#writePiece(frame);
    if (!more && !this.#mayBlock) {
      this.#mayBlock = true;
      stream.on('drain', () => this.#drained());
    }
    return more;
  }

  /** Node says nothing before all of a write is taken: a client that reads slowly would be one that does not read. */
  #writePiece(frame: Buffer): boolean {
    const isLast = frame.length <= largestPiece;
    this.#rest = isLast ? undefined : frame.subarray(largestPiece);
    return this.#stream.write(isLast ? frame : frame.subarray(0, largestPiece));
  }

  pause(): void {
    this.#paused = true;
    this.#stopReading();
    if (this.#stream.aborted) this.#drop();
    else if (!this.#hearsAborts) {
      this.#hearsAborts = true;
      this.#stream.on('aborted', () => {
        if (this.#paused) this.#drop();
      });
    }
  }

  /** The client has gone. Node closes a stream only when all that it brought is read, which a paused one never is. */
  #drop(): void {
    this.#deframer?.stop();
    this.#stream.resume();
  }

  resume(): void {
    this.#paused = false;
    this.#readOn();
  }

  get waitedMilliseconds(): number {
    if (this.#waiting === undefined) return this.#waitedMilliseconds;
    return this.#waitedMilliseconds + this.#owner.clock.monotonic() - this.#waitingSince;
  }

  /** For the deframer. */
  message(bytes: Buffer): void {
    const handler = this.#handler;
    if (handler === undefined) return;
    const { account } = this.peer;
    account.charge(bytes, (message) => handler.message(message));
    if (account.mustWait) this.#waitForTurn();
  }

  /** For the deframer. */
  holds(bytes: number): void {
    this.#owner.halfSent.resize(this, bytes);
  }

  #waitForTurn(): void {
    if (this.#waiting !== undefined || this.#status !== undefined) return;
    this.#stopReading();
    this.peer.unserved();
    this.#waitingSince = this.#owner.clock.monotonic();
    this.#waiting = this.peer.account.wait(() => {
      this.#waitedMilliseconds = this.waitedMilliseconds;
      this.#waiting = undefined;
      this.#readOn();
    });
  }

  #stopReading(): void {
    this.#deframer?.pause();
    this.#stream.pause();
    if (this.#status === undefined) this.#owner.stopsReading(this, this.#stream);
  }

  #readOn(): void {
    const deframer = this.#deframer;
    if (this.#paused || this.#waiting !== undefined) return;
    if (deframer === undefined || this.#status !== undefined) return;
    this.#guard(() => deframer.resume());
    // It may be paused again within the messages that were held.
    if (deframer.paused) return;
    this.#owner.readsOn(this);
    this.#stream.resume();
    this.#checkEnded();
  }

  get keptBytes(): number {
    return this.#deframer?.heldBytes ?? 0;
  }

  /** For HalfSent and GrpcServer. */
  abandon(status: GrpcStatus, why: FaultReason): void {
    this.#handler?.faulted?.(status, why);
    this.end(status);
  }

  end(status: GrpcStatus): void {
    if (this.#status !== undefined) return;
    this.#status = status;
    this.#waiting?.cancel();
    this.#deframer?.stop();
    this.#owner.readsOn(this);
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    // A paused stream would never hear that its client has gone. What still comes is dropped.
    stream.resume();
    if (!stream.headersSent) {
      refuse(stream, status);
      return;
    }
    if (this.#rest !== undefined) stream.write(this.#rest);
    if (stream.writableLength > 0) this.#limitTrailersWait(status);
    endAnswer(stream, status);
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
      // A last piece that Node takes at once brings no more 'drain'.
      if (this.#rest === undefined || this.#writePiece(this.#rest)) this.#handler?.drained();
      else this.#handler?.progressed?.();
    } catch (error) {
      this.#threw(error);
    }
  }

  #closed(): void {
    this.#waiting?.cancel();
    this.#deframer?.stop();
    this.#owner.readsOn(this);
    this.#owner.closed(this);
    const handler = this.#handler;
    this.#handler = undefined;
    this.#rest = undefined;
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
