import { createServer as createHttp1, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2';
import { createServer as createListener, type Server, type Socket } from 'node:net';
import { createServer as createTls, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { type Accounts, boundlessAccounts } from './accounts.ts';
import { formatHostPort } from './address.ts';
import type { ClientConnection } from './client-connection.ts';
import { ClientConnections, type ConnectionBounds } from './client-connections.ts';
import { HalfSent, halfSentBudget } from './half-sent.ts';
import { type HttpAnswer, problem } from './http-answer.ts';
import { HttpExchange, type HttpHandler, type HttpHead } from './http-exchange.ts';
import { sniffVersion } from './http-version.ts';
import { Http1Session } from './http1-session.ts';
import type { ListenerTls } from './http2-server.ts';
import { backlog, handshakeTimeoutMs, sessionOptions, tcpKeepAlive } from './http2-settings.ts';
import { explainError, isDisconnect } from './node-error.ts';
import { addressOf } from './peer.ts';
import { checkTlsMaterial, serverContextOptions, type TlsMaterial } from './tls-material.ts';

export interface HttpServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly tls?: ListenerTls | undefined;
  /** An answer refuses a request before its body is read. */
  readonly route: (head: HttpHead) => HttpHandler | HttpAnswer;
  readonly maxRequestBytes: number;
  readonly bounds?: ConnectionBounds;
  /** Of the peers; left out: nothing is bounded. */
  readonly accounts?: Accounts;
  /** Milliseconds: how long a request may take to arrive, and an answer to be read. */
  readonly stalledTimeout: () => number;
  readonly maxConnectionAge?: () => number | undefined;
  readonly reviewTime?: () => number;
  readonly reviewed?: (ended: number) => void;
  readonly clock?: Clock;
  readonly report: (message: string, error: unknown, peer?: string) => void;
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
export async function listenHttp(options: HttpServerOptions): Promise<Result<HttpServer>> {
  const { host, port, tls } = options;
  const address = formatHostPort(host, port);
  if (tls?.requireClientCertificate === true && tls.ca === undefined) {
    return fail(`${address}: require_client_certificate needs ca`);
  }
  const checked = tls === undefined ? undefined : checkTlsMaterial(tls);
  if (checked?.ok === false) return fail(`${address}: ${checked.error}`);
  const listener = createListener({ noDelay: true, keepAlive: true, keepAliveInitialDelay: tcpKeepAlive });
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(fail(`cannot listen on ${address}: ${explainError(error)}`));
    listener.once('error', refused);
    listener.listen({ host, port, backlog }, () => {
      listener.off('error', refused);
      resolve(ok(new HttpServer(listener, options)));
    });
  });
}

function createTlsServer(tls: ListenerTls): TlsServer {
  return createTls({
    ...serverContextOptions(tls),
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: handshakeTimeoutMs,
    // Without authorities of our own, Node would believe those of the public web.
    requestCert: tls.ca !== undefined,
    rejectUnauthorized: tls.requireClientCertificate,
  });
}

/** Connections come in by one listener, and go to the server of the HTTP that is spoken on them. */
export class HttpServer {
  readonly address: string;
  readonly halfSent: HalfSent;
  readonly maxRequestBytes: number;
  readonly #listener: Server;
  readonly #tls: TlsServer | undefined;
  readonly #options: HttpServerOptions;
  readonly #clock: Clock;
  readonly #connections: ClientConnections;
  readonly #http1: ReturnType<typeof createHttp1>;
  readonly #http2: ReturnType<typeof createHttp2>;
  readonly #sessions = new WeakMap<Socket, Http1Session>();
  /** They have said nothing yet, so there is nothing to end on them. */
  readonly #silent = new Set<Socket>();
  /** Those whose client has something to do, and since when; the oldest first. */
  readonly #waiting = new Map<HttpExchange, number>();
  #watch: Timer | undefined;
  #drained: Promise<void> | undefined;

  constructor(listener: Server, options: HttpServerOptions) {
    const { clock = systemClock, tls, maxRequestBytes } = options;
    this.#listener = listener;
    this.#options = options;
    this.#clock = clock;
    this.maxRequestBytes = maxRequestBytes;
    this.halfSent = new HalfSent({ clock, budget: halfSentBudget(maxRequestBytes), timeout: undefined });
    const bound = listener.address();
    this.address =
      typeof bound === 'object' && bound !== null ? formatHostPort(bound.address, bound.port) : options.host;
    this.#http1 = createHttp1({ keepAliveTimeout: 0, maxHeaderSize: maxHeaderBytes }, (request, response) =>
      this.#onHttp1(request, response),
    );
    const { settings } = sessionOptions;
    this.#http2 = createHttp2(
      { ...sessionOptions, settings: { ...settings, maxConcurrentStreams: maxOpenPerConnection } },
      (request, response) => this.#onHttp2(request, response),
    );
    this.#tls = tls === undefined ? undefined : createTlsServer(tls);
    this.#connections = new ClientConnections(listener, (socket) => this.#accepted(socket), {
      clock,
      unixPath: undefined,
      maxAge: options.maxConnectionAge,
      ca: tls?.ca,
      reviewTime: options.reviewTime,
      reviewed: options.reviewed,
      bounds: options.bounds,
      accounts: options.accounts ?? boundlessAccounts(clock),
    });
    this.#connections.follow(this.#http2);
    this.#listenToFaults();
    this.#checkStalled();
  }

  /** The new certificate holds for connections from now on: see GrpcServer. */
  setTls(material: TlsMaterial): Result<undefined> {
    if (this.#tls === undefined) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    this.#tls.setSecureContext(serverContextOptions(material));
    if (material.ca !== undefined) this.#connections.replaceAuthorities(material.ca);
    return ok(undefined);
  }

  /** Stops listening. Connections end with what is under way, and what is left is cut after the time given. */
  drain(milliseconds: number): Promise<void> {
    this.#drained ??= this.#drain(milliseconds);
    return this.#drained;
  }

  async #drain(milliseconds: number): Promise<void> {
    const closed = new Promise((resolve) => {
      this.#listener.close(resolve); // its callback comes when the last connection has closed
    });
    this.#connections.beginDrain();
    for (const socket of this.#silent) socket.destroy();
    const deadline = this.#clock.after(milliseconds, () => this.#connections.destroyAll());
    await closed;
    deadline.cancel();
    this.#watch?.cancel();
    this.#connections.stop();
    this.halfSent.stop();
  }

  /** For HttpExchange. */
  threw(error: unknown, path: string): void {
    this.#options.report(`the handler of ${path} failed`, error);
  }

  /** For HttpExchange. */
  waitsForClient(exchange: HttpExchange): void {
    this.#waiting.delete(exchange);
    this.#waiting.set(exchange, this.#clock.now());
  }

  /** For HttpExchange. */
  waitsNoMore(exchange: HttpExchange): void {
    this.#waiting.delete(exchange);
  }

  #accepted(socket: Socket): void {
    if (this.#tls !== undefined) this.#tls.emit('connection', socket);
    else this.#sniff(socket);
  }

  #sniff(socket: Socket): void {
    this.#silent.add(socket);
    socket.once('close', () => this.#silent.delete(socket));
    sniffVersion(socket, this.#clock, (version) => {
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
    const refusal = this.#connections.opened(session, socket);
    if (refusal !== undefined || socket.destroyed) {
      if (refusal === undefined) socket.destroy();
      else socket.end(tooMany(refusal));
      return;
    }
    this.#sessions.set(socket, session);
    this.#http1.emit('connection', socket);
  }

  #onHttp1(request: IncomingMessage, response: ServerResponse): void {
    const session = this.#sessions.get(request.socket);
    const connection = this.#connections.of(session);
    if (session === undefined || connection === undefined || session.open >= maxOpenPerConnection) {
      request.socket.destroy();
      return;
    }
    session.begin(response);
    if (session.open >= mostPipelined) connection.full();
    this.#serve(request, response, connection);
  }

  #onHttp2(request: Http2ServerRequest, response: Http2ServerResponse): void {
    const connection = this.#connections.of(request.stream.session);
    if (connection === undefined) request.stream.destroy();
    else this.#serve(request, response, connection);
  }

  #serve(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
    connection: ClientConnection,
  ): void {
    connection.opened();
    response.once('close', () => connection.closed(this.#clock.now()));
    const { method = '', url = '/', headers } = request;
    const { peer } = connection;
    const head: HttpHead = { method, path: pathOf(url), headers, peer };
    peer.account.spent(requestMs);
    if (peer.account.mustWait) connection.unserved();
    peer.account.work(() => {
      const exchange = new HttpExchange(request, response, head, this);
      const routed = this.#options.route(head);
      if (typeof routed === 'function') exchange.read(routed);
      else exchange.answer(routed);
    });
  }

  #listenToFaults(): void {
    const report = (message: string, error: unknown, peer?: string): void => {
      if (!isDisconnect(error)) this.#options.report(message, error, peer);
    };
    this.#listener.on('error', (error) => report('cannot accept connections', error));
    this.#tls?.on('tlsClientError', (error, socket) =>
      report('a TLS handshake failed', error, addressOf(socket)),
    );
    this.#tls?.on('secureConnection', (socket: TLSSocket) => {
      this.#handOn(socket, socket.alpnProtocol === 'h2' ? 'http2' : 'http1');
    });
    this.#http2.on('sessionError', () => {}); // the session ends
    this.#http1.on('clientError', (error: Error, socket: Socket) => {
      if (socket.writable && !isDisconnect(error)) socket.end(notHttp);
      else socket.destroy();
    });
  }

  #checkStalled(): void {
    this.#watch = this.#clock.after(stalledCheckMs, () => {
      const milliseconds = this.#options.stalledTimeout();
      const latest = this.#clock.now() - milliseconds;
      for (const [exchange, since] of this.#waiting) {
        if (since > latest) break;
        exchange.expire(milliseconds);
      }
      this.#checkStalled();
    });
  }
}

function pathOf(url: string): string {
  const target = url.startsWith('/') ? url : (URL.parse(url)?.pathname ?? url);
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}

const notHttp = raw('400 Bad Request', problem(400, 'invalid_argument', 'this is not HTTP/1.1 or HTTP/2'));
const tooMany = (message: string): string =>
  raw('429 Too Many Requests', problem(429, 'resource_exhausted', message));

/** For connections on which no request was read. */
function raw(status: string, { type, body }: HttpAnswer): string {
  const headers = `content-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close`;
  return `HTTP/1.1 ${status}\r\n${headers}\r\n\r\n${String(body)}`;
}
