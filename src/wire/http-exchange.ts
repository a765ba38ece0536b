import { type IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { Charged } from '../model/brand.ts';
import { tooMuchWaits } from './accounts.ts';
import { BodyPieces, pieceMs, tooSmallMessage } from './body-pieces.ts';
import { Code, codeName, type GrpcStatus } from './grpc-status.ts';
import type { Gatherer, HalfSent } from './half-sent.ts';
import { type HttpAnswer, problem } from './http-answer.ts';
import type { Peer } from './server-stream.ts';

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

export interface ExchangeOwner {
  readonly halfSent: HalfSent;
  readonly maxRequestBytes: number;
  /** An answer is for this handler's bug. */
  threw(error: unknown, path: string): void;
  /** The client has to send its body now, or to read its answer: that may not take for ever. */
  waitsForClient(exchange: HttpExchange): void;
  /** It is the relay's turn, or over. */
  waitsNoMore(exchange: HttpExchange): void;
}

type Request = IncomingMessage | Http2ServerRequest;
type Response = ServerResponse | Http2ServerResponse;

/** What a client sends after it was refused is thrown away, so that it reads the answer; but not without end. */
const mostDiscarded = 16 << 20;

/** One request and its answer, over either version of HTTP. */
export class HttpExchange implements Gatherer {
  readonly head: HttpHead;
  readonly #request: Request;
  readonly #response: Response;
  readonly #owner: ExchangeOwner;
  readonly #body = new BodyPieces();
  #declared: number | undefined;
  #cancel: (() => void) | undefined;
  #answered = false;
  /** Bytes of the answer that its client has not taken at once. */
  #unread = 0;

  constructor(request: Request, response: Response, head: HttpHead, owner: ExchangeOwner) {
    this.#request = request;
    this.#response = response;
    this.head = head;
    this.#owner = owner;
    response.on('close', () => this.#closed());
    request.on('error', ignore);
    request.on('data', (chunk: Buffer) => this.peer.account.work(() => this.#take(chunk)));
    response.on('error', ignore);
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
    else if (response instanceof ServerResponse && headers?.['connection'] !== 'close')
      endAfter(this.#request, response, body);
    else response.end(body);
    // What was not read would be taken for the next request.
    this.#request.resume();
    this.#unread = response.writableLength;
    this.peer.account.keeps(this.#unread);
  }

  /** For HalfSent. */
  abandon(status: GrpcStatus): void {
    this.#refuse(429, status);
  }

  /** The client has done nothing for so long: it has not sent its body, or does not read its answer. */
  expire(milliseconds: number): void {
    if (this.#answered) {
      this.#destroy();
      return;
    }
    const message = `the body did not arrive within ${milliseconds} ms (limits.stalled_timeout)`;
    this.#refuse(408, { code: Code.DEADLINE_EXCEEDED, message });
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
      if (body.bytes > mostDiscarded || body.areTooSmall) this.#destroy();
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
    if (body.areTooSmall) this.#refuse(413, { code: Code.RESOURCE_EXHAUSTED, message: tooSmallMessage });
    // Most bodies come whole, in one piece.
    else if (body.held !== before && body.bytes !== this.#declared) halfSent.resize(this, body.held);
  }

  /** The client has done its part. */
  #runInTurn(handler: HttpHandler): void {
    this.#owner.waitsNoMore(this);
    const { account } = this.peer;
    if (!account.mustWait) this.#run(handler);
    else if (account.waitOnArrival(() => this.#run(handler)) === undefined)
      this.#refuse(429, tooMuchWaits(account));
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
      this.#owner.threw(error, this.head.path);
      this.answer(problem(500, 'internal', 'this is a bug: see the log'));
    }
  }

  #refuseSize(): void {
    const { maxRequestBytes } = this.#owner;
    const message = `the body is larger than ${maxRequestBytes} bytes (limits.max_poll_bytes)`;
    const status = { code: Code.RESOURCE_EXHAUSTED, message };
    if ((this.#declared ?? 0) > mostDiscarded) this.#refuse(413, status);
    else this.answer(problem(413, codeName(status.code).toLowerCase(), message));
  }

  /** The rest of the body does not come, or is not waited for. */
  #refuse(http: number, { code, message }: GrpcStatus): void {
    this.answer(problem(http, codeName(code).toLowerCase(), message, last(this.#request)));
  }

  #drop(): void {
    this.#body.drop();
    this.#owner.halfSent.resize(this, 0);
  }

  #closed(): void {
    this.#drop();
    this.peer.account.keeps(-this.#unread);
    this.#unread = 0;
    this.#owner.waitsNoMore(this);
    if (this.#answered) return;
    this.#answered = true;
    this.#cancel?.();
  }
}

/** HTTP/1.1 alone can end its connection with an answer; HTTP/2 ends the stream. */
const last = ({ httpVersionMajor }: Request): Readonly<Record<string, string>> =>
  httpVersionMajor === 1 ? { connection: 'close' } : {};

/**
 * Over HTTP/1.1 the connection may end with the answer. Many clients send all of a body before they read: to them a
 * connection that ends meanwhile is an error without a status.
 */
function endAfter(request: Request, response: ServerResponse, body: string | Buffer): void {
  if (request.complete) {
    response.end(body);
    return;
  }
  response.write(body);
  request.once('end', () => response.end());
}

function ignore(): void {}
