import {
  createServer as createHttp1,
  type IncomingHttpHeaders,
  IncomingMessage,
  ServerResponse,
} from 'node:http';
import { createServer as createHttp2, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';
import type { Socket } from 'node:net';
import type { Charged } from '../model/brand.ts';
import { type Clock, Sweep } from '../model/clock.ts';
import type { Result } from '../model/result.ts';
import { tooMuchWaits } from './accounts.ts';
import type { Address } from './address.ts';
import { type ClientConnection, headerBytes, type ListenerOptions } from './client-connections.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { BodyPieces, type Gatherer, mostDiscarded, pieceMs, tooSmallMessage } from './half-sent.ts';
import { endAfter, type HttpAnswer, problem, refusal, refusedHead } from './http-answer.ts';
import { handshakeTimeoutMs, largestPiece, sessionOptions } from './http2-settings.ts';
import { Listener, listen } from './listener.ts';
import { ignoreError, isDisconnect } from './node-error.ts';
import type { ClientSession } from './peer.ts';
import type { FaultReason, Peer, RefusedReason } from './server-stream.ts';

interface HttpServerOptions extends ListenerOptions {
  /** An answer refuses a request before its body is read. */
  readonly route: (head: HttpHead) => HttpHandler | HttpAnswer;
  /** Milliseconds: how long a request may take to arrive, and an answer to be read. */
  readonly stalledTimeout: () => number;
}

/** A client that does not wait for answers holds up itself, not the relay's memory. */
const maxOpenPerConnection = 100;
/** So many requests of a connection are open, then it is read no further: HTTP/1.1 answers them in order anyway. */
const mostPipelined = 10;
const maxHeaderBytes = 32 << 10;
const stalledCheckMs = 1000;
/** What Node spends on a request and its answer, beside the handler: milliseconds, measured. */
const requestMs = 0.05;

/** HTTP/1.1 and HTTP/2 on one port, with TLS and without. The error is for the operator. */
export function listenHttp(options: HttpServerOptions): Promise<Result<HttpServer>> {
  return listen(options, (at) => new HttpServer(at, options));
}

/** Connections come in by one listener, and go to the server of the HTTP that is spoken on them. */
export class HttpServer extends Listener {
  readonly options: HttpServerOptions;
  readonly #http1: ReturnType<typeof createHttp1>;
  readonly #http2: ReturnType<typeof createHttp2>;
  readonly #sessions = new WeakMap<Socket, Http1Session>();
  /** They have said nothing yet, so there is nothing to end on them. */
  readonly #silent = new Set<Socket>();
  /** Those whose client has something to do, and since when; the oldest first. */
  readonly #waiting = new Map<HttpExchange, number>();
  readonly #stalled = new Sweep(this.clock, stalledCheckMs, () => {
    const milliseconds = this.options.stalledTimeout();
    const latest = this.clock.monotonic() - milliseconds;
    for (const [exchange, since] of this.#waiting) {
      if (since > latest) break;
      exchange.expire(milliseconds);
    }
    return this.#waiting.size > 0;
  });

  constructor(at: Address, options: HttpServerOptions) {
    super(at, ['h2', 'http/1.1'], options);
    this.options = options;
    const http1 = { keepAliveTimeout: 0, maxHeaderSize: maxHeaderBytes, requireHostHeader: false };
    this.#http1 = createHttp1(http1, (request, response) => this.#onHttp1(request, response));
    this.#http1.on('checkExpectation', (request, response) => this.#onHttp1(request, response));
    const { settings } = sessionOptions;
    const onHttp2 = (request: Http2ServerRequest, response: Http2ServerResponse): void =>
      this.#onHttp2(request, response);
    this.#http2 = createHttp2(
      { ...sessionOptions, settings: { ...settings, maxConcurrentStreams: maxOpenPerConnection } },
      onHttp2,
    );
    this.#http2.on('checkExpectation', onHttp2);
    this.#http2.on('connect', onHttp2);
    // Left to itself, Node throws if the stream was reset in the same segment.
    this.#http2.on('checkContinue', (request: Http2ServerRequest, response: Http2ServerResponse) => {
      if (!request.stream.closed && !request.stream.destroyed) response.writeContinue();
      this.#onHttp2(request, response);
    });
    this.clients.follow(this.#http2);
    this.#http2.on('sessionError', () => {}); // the session ends
    this.#http1.on('clientError', (error: Error, socket: Socket) => {
      // The parser fails again with each chunk that follows.
      if (socket.writableEnded && !isDisconnect(error)) return;
      if (socket.writable && !isDisconnect(error)) this.farewell(socket, notHttp);
      else socket.destroy();
    });
  }

  protected override connected(socket: Socket, alpn: string | undefined): void {
    if (alpn === undefined) this.#sniff(socket);
    else this.#handOn(socket, alpn === 'h2' ? 'http2' : 'http1');
  }

  /** Connections end with what is under way. */
  protected override async end(): Promise<void> {
    for (const socket of this.#silent) socket.destroy();
  }

  /** The client has to send its body now, or to read its answer: that may not take for ever. */
  waitsForClient(exchange: HttpExchange): void {
    this.#waiting.delete(exchange);
    this.#waiting.set(exchange, this.clock.monotonic());
    this.#stalled.start();
  }

  /** It is the relay's turn, or over. */
  waitsNoMore(exchange: HttpExchange): void {
    this.#waiting.delete(exchange);
  }

  #sniff(socket: Socket): void {
    this.#silent.add(socket);
    socket.once('close', () => this.#silent.delete(socket));
    sniffVersion(socket, this.clock, (version) => {
      this.#silent.delete(socket);
      this.#handOn(socket, version);
    });
  }

  #handOn(socket: Socket, version: 'http1' | 'http2'): void {
    if (version === 'http2') {
      this.#http2.emit('connection', socket);
      return;
    }
    const session = new Http1Session(socket);
    const refusal = this.clients.opened(session, socket);
    if (refusal !== undefined || socket.destroyed) {
      if (refusal === undefined) socket.destroy();
      else this.farewell(socket, raw('429 Too Many Requests', problem(429, 'resource_exhausted', refusal)));
      return;
    }
    this.#sessions.set(socket, session);
    this.#http1.emit('connection', socket);
  }

  #onHttp1(request: IncomingMessage, response: ServerResponse): void {
    const session = this.#sessions.get(request.socket);
    const connection = this.clients.of(session);
    // Those past the last one too: Node makes requests of all that it has read.
    connection?.arrived(requestMs);
    if (session === undefined || connection === undefined || session.open >= maxOpenPerConnection) {
      request.socket.destroy();
      return;
    }
    session.begin(response);
    if (session.open >= mostPipelined) connection.full();
    this.#serve(request, response, connection);
  }

  #onHttp2(request: Http2ServerRequest, response: Http2ServerResponse): void {
    const connection = this.clients.of(request.stream.session);
    connection?.arrived(requestMs);
    if (connection === undefined) request.stream.destroy();
    else this.#serve(request, response, connection);
  }

  #serve(request: Request, response: Response, connection: ClientConnection): void {
    const kept = headerBytes(request.rawHeaders);
    const excess = connection.opened(kept);
    if (excess === undefined) response.once('close', () => connection.closed(kept));
    const { method = '', url = '/', headers } = request;
    const head: HttpHead = { method, path: pathOf(url), headers, peer: connection };
    connection.account.work(() => {
      const exchange = new HttpExchange(request, response, head, this);
      try {
        if (excess !== undefined) {
          exchange.refuse(429, { code: Code.RESOURCE_EXHAUSTED, message: excess }, 'held_bytes');
          return;
        }
        const routed = refusedHead(request) ?? this.options.route(head);
        if (typeof routed === 'function') exchange.read(routed);
        else exchange.answer(routed);
      } catch (error) {
        exchange.fails(error);
      }
    });
  }
}

/** Without the query. */
export function pathOf(url: string): string {
  const target = url.startsWith('/') ? url : (URL.parse(url)?.pathname ?? url);
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

const notHttp = raw('400 Bad Request', problem(400, 'invalid_argument', 'this is not HTTP/1.1 or HTTP/2'));

/** For connections on which no request was read. */
function raw(status: string, { type, body }: HttpAnswer): string {
  const headers = `content-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close`;
  return `HTTP/1.1 ${status}\r\n${headers}\r\n\r\n${String(body)}`;
}

/** An HTTP/1.1 connection, as node:http2 shows its sessions. */
export class Http1Session implements ClientSession {
  readonly #socket: Socket;
  readonly #responses = new Set<ServerResponse>();
  #closed = false;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get destroyed(): boolean {
    return this.#socket.destroyed;
  }

  /** Requests that are not answered yet: a client may send several at once. */
  get open(): number {
    return this.#responses.size;
  }

  /** The connection does not end before this response. */
  begin(response: ServerResponse): void {
    this.#responses.add(response);
    if (this.#closed) response.shouldKeepAlive = false;
    response.once('close', () => {
      this.#responses.delete(response);
      if (this.#closed && this.#responses.size === 0) this.#socket.end();
    });
  }

  /** HTTP/1.1 has no GOAWAY: the next response is the last, and without one it ends now. */
  close(): void {
    this.#closed = true;
    for (const response of this.#responses) response.shouldKeepAlive = false;
    if (this.#responses.size === 0) this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  on(event: 'close', listener: () => void): this {
    this.#socket.on(event, listener);
    return this;
  }
}

/** What every HTTP/2 connection without TLS begins with (RFC 9113 §3.4). No method of HTTP/1.1 begins so. */
const preface = Buffer.from('PRI ');

/** Tells by its first bytes which HTTP is spoken on a plaintext connection. They are there to be read again. */
function sniffVersion(socket: Socket, clock: Clock, found: (version: 'http1' | 'http2') => void): void {
  const timer = clock.after(handshakeTimeoutMs, () => socket.destroy());
  const done = (): void => {
    timer.cancel();
    socket.off('readable', look);
    socket.off('close', done);
  };
  // Given back only when it is decided: what is given back is readable at once, and would be looked at for ever.
  let first = Buffer.alloc(0);
  const look = (): void => {
    const more: unknown = socket.read();
    if (!Buffer.isBuffer(more)) return;
    first = Buffer.concat([first, more]);
    const length = Math.min(first.length, preface.length);
    const begins = first.subarray(0, length).equals(preface.subarray(0, length));
    if (begins && length < preface.length) return;
    done();
    socket.unshift(first);
    found(begins ? 'http2' : 'http1');
  };
  socket.on('readable', look);
  socket.on('close', done);
}

/** A request without its body. */
export interface HttpHead {
  readonly method: string;
  /** Without its query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly peer: Peer;
}

/** Takes the body of a request, and answers once, at once or later. The function returned gives it up. */
export type HttpHandler = (body: Charged, answered: (answer: HttpAnswer) => void) => () => void;

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

/** One request and its answer, over either version of HTTP. */
class HttpExchange implements Gatherer {
  readonly head: HttpHead;
  readonly #request: Request;
  readonly #response: Response;
  readonly #owner: HttpServer;
  readonly #body = new BodyPieces();
  #declared: number | undefined;
  #cancel: (() => void) | undefined;
  #answered = false;
  /** Bytes that its peer pays for beside a body in part. */
  #kept = 0;

  constructor(request: Request, response: Response, head: HttpHead, owner: HttpServer) {
    this.#request = request;
    this.#response = response;
    this.head = head;
    this.#owner = owner;
    response.on('close', () => this.#closed());
    request.on('error', ignoreError);
    request.on('data', (chunk: Buffer) => this.peer.account.work(() => this.#take(chunk)));
    response.on('error', ignoreError);
  }

  get peer(): Peer {
    return this.head.peer;
  }

  /** Reads the body for the handler. */
  read(handler: HttpHandler): void {
    const declared = this.head.headers['content-length'];
    this.#declared = declared === undefined ? undefined : Number(declared);
    if (this.#declared !== undefined && this.#declared > this.#owner.maxRequestBytes) {
      this.#refuseSize();
      return;
    }
    this.#owner.waitsForClient(this);
    this.#request.on('end', () => this.#runInTurn(handler));
  }

  answer({ status, type, body, headers }: HttpAnswer): void {
    if (this.#answered) return;
    this.#answered = true;
    this.#drop();
    this.#owner.waitsForClient(this);
    const response = this.#response;
    if (response.destroyed || response.headersSent) return;
    const bodiless = body.length === 0;
    const all = {
      ...(bodiless ? {} : { 'content-type': type, 'x-content-type-options': 'nosniff' }),
      ...(status === 304 ? {} : { 'content-length': Buffer.byteLength(body) }),
      'cache-control': 'no-store',
      ...headers,
    };
    if (response instanceof ServerResponse) response.writeHead(status, all);
    else response.writeHead(status, all);
    if (bodiless || this.head.method === 'HEAD') response.end();
    else this.#send(body, headers?.['connection'] !== 'close');
    // What was not read would be taken for the next request.
    this.#request.resume();
  }

  /** A large body in pieces, so that a client that reads slowly is known from one that does not read. */
  #send(body: string | Buffer, isAfterRequest: boolean): void {
    const response = this.#response;
    const size = Buffer.byteLength(body);
    if (size <= largestPiece) {
      if (response instanceof ServerResponse && isAfterRequest) endAfter(response, body);
      else response.end(body);
      this.#keep(response.writableLength);
      return;
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    const piece = bytes.subarray(0, largestPiece);
    if (response instanceof ServerResponse) response.write(piece);
    else response.write(piece);
    this.#keep(response.writableLength + size - largestPiece);
    response.once('drain', () => {
      this.#owner.waitsForClient(this);
      this.#send(bytes.subarray(largestPiece), isAfterRequest);
    });
  }

  /** Of a body that waits for its peer's turn, or of an answer that its client has not taken at once. */
  #keep(bytes: number): void {
    this.peer.account.keeps(bytes - this.#kept);
    this.#kept = bytes;
  }

  /** For HalfSent. */
  abandon(status: GrpcStatus, why: FaultReason): void {
    this.refuse(429, status, why);
  }

  /** The client has done nothing for so long: it has not sent its body, or does not read its answer. */
  expire(milliseconds: number): void {
    // Over HTTP/1.1 its answer may stand behind another one, which the client reads.
    if (this.#answered && this.#response instanceof ServerResponse && this.#response.socket === null) {
      if (this.#request.socket.destroyed) this.#closed();
      else this.#owner.waitsForClient(this);
      return;
    }
    if (this.#answered) {
      // Else it is refused already, and has not sent the rest of its body.
      if (this.#response.writableLength > 0) this.#owner.options.refused?.('stalled');
      this.#owner.waitsNoMore(this); // counted once, however late it closes
      this.#destroy();
      return;
    }
    const message = `the body did not arrive within ${milliseconds} ms (limits.stalled_timeout)`;
    this.refuse(408, { code: Code.DEADLINE_EXCEEDED, message }, 'half_sent');
  }

  #destroy(): void {
    if (this.#request instanceof IncomingMessage) this.#request.socket.destroy();
    else this.#request.stream.destroy();
  }

  #take(chunk: Buffer): void {
    const body = this.#body;
    this.peer.account.spent(pieceMs);
    if (this.#answered) {
      body.skip(chunk);
      if (body.areTooMany) this.#destroy();
      return;
    }
    const { maxRequestBytes, halfSent } = this.#owner;
    if (body.bytes + chunk.length > maxRequestBytes) {
      body.skip(chunk);
      this.#refuseSize();
      return;
    }
    const before = body.held;
    body.add(chunk, this.#declared ?? maxRequestBytes);
    if (body.areTooSmall)
      this.refuse(413, { code: Code.RESOURCE_EXHAUSTED, message: tooSmallMessage }, 'request_bytes');
    // Most bodies come whole, in one piece.
    else if (body.held !== before && body.bytes !== this.#declared) halfSent.resize(this, body.held);
  }

  /** The client has done its part. */
  #runInTurn(handler: HttpHandler): void {
    this.#owner.waitsNoMore(this);
    const { account } = this.peer;
    if (!account.mustWait) {
      this.#run(handler);
      return;
    }
    this.#owner.halfSent.resize(this, 0);
    this.#keep(this.#body.held);
    const { excess } = account;
    if (excess !== undefined)
      this.refuse(429, { code: Code.RESOURCE_EXHAUSTED, message: excess }, 'held_bytes');
    else if (account.waitOnArrival(() => this.#run(handler)) === undefined)
      this.refuse(429, tooMuchWaits(account), 'waiting');
  }

  #run(handler: HttpHandler): void {
    if (this.#answered) return;
    const body = this.#body.take();
    this.#drop();
    try {
      this.#cancel = this.peer.account.charge(body, (charged) =>
        handler(charged, (answer) => this.answer(answer)),
      );
    } catch (error) {
      this.fails(error);
    }
  }

  /** A bug. */
  fails(error: unknown): void {
    this.#owner.threw(error, this.head.path);
    this.answer(problem(500, 'internal', 'this is a bug: see the log'));
  }

  #refuseSize(): void {
    const { maxRequestBytes } = this.#owner;
    const message = `the body is larger than ${maxRequestBytes} bytes (limits.max_poll_bytes)`;
    const status = { code: Code.RESOURCE_EXHAUSTED, message };
    this.refuse(413, status, 'request_bytes', (this.#declared ?? 0) > mostDiscarded);
  }

  /** `isLast`: the rest of the body does not come, or is not waited for. */
  refuse(http: number, status: GrpcStatus, why: RefusedReason, isLast = true): void {
    if (this.#answered) return;
    this.#owner.options.refused?.(why);
    // HTTP/1.1 alone can end its connection with an answer; HTTP/2 ends the stream.
    const ends = isLast && this.#request.httpVersionMajor === 1;
    this.answer(refusal(status, http, ends ? { connection: 'close' } : {}));
  }

  #drop(): void {
    this.#body.drop();
    this.#owner.halfSent.resize(this, 0);
    this.#keep(0);
  }

  #closed(): void {
    this.#drop();
    this.#owner.waitsNoMore(this);
    if (this.#answered) return;
    this.#answered = true;
    this.#cancel?.();
  }
}
