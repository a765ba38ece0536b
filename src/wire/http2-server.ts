import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type SecureServerOptions,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createListener, type ListenOptions, type Server } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type Clock, systemClock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { type Accounts, boundlessAccounts, tooMuchWaits } from './accounts.ts';
import { formatHostPort, parseAddress } from './address.ts';
import type { ClientConnection } from './client-connection.ts';
import { ClientConnections, type ConnectionBounds } from './client-connections.ts';
import { DRAINING, spread } from './drain.ts';
import { refusalOf, refuse, refuseUnknown } from './grpc-requests.ts';
import type { GrpcStatus } from './grpc-status.ts';
import { HalfSent, halfSentBudget } from './half-sent.ts';
import { backlog, handshakeTimeoutMs, sessionOptions, tcpKeepAlive, unixWindow } from './http2-settings.ts';
import { Http2ServerStream, type StreamOwner } from './http2-stream.ts';
import { explainError, isDisconnect } from './node-error.ts';
import { addressOf } from './peer.ts';
import type { Peer, ServerStream } from './server-stream.ts';
import { checkTlsMaterial, serverContextOptions, type TlsMaterial } from './tls-material.ts';
import { explainSocket, removeStaleSocket } from './unix-socket.ts';
import { UnreadRequests } from './unread-requests.ts';

export interface ListenerTls extends TlsMaterial {
  /** Refuse clients without a certificate of `ca`. Otherwise one is asked for, and believed if it is of `ca`. */
  readonly requireClientCertificate: boolean;
}

/** The paths that are not hot: connect-node's (connect.ts). */
export interface AuxiliaryPaths {
  serves(path: string): boolean;
  /** It costs less to answer than to have it wait for the turn of its peer. */
  isAtOnce(headers: IncomingHttpHeaders): boolean;
  handle(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
    peer: Peer,
  ): void;
  /** Ends what is open there, such as health watches. */
  shutDown(): void;
}

export interface GrpcServerOptions {
  /** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 is any free port. */
  readonly address: string;
  readonly tls?: ListenerTls;
  /**
   * Called for each call. A function takes it (a hot path), a status refuses it, undefined leaves it to the auxiliary paths.
   */
  readonly accept: (path: string) => ((stream: ServerStream) => void) | GrpcStatus | undefined;
  readonly auxiliary?: AuxiliaryPaths;
  readonly maxRequestBytes: number;
  /** Asked for each connection, in milliseconds: how old it may become, give or take a tenth. Undefined: any age. */
  readonly maxConnectionAge?: () => number | undefined;
  /** Milliseconds, asked for when `ca` loses an authority: over so long the connections end that it vouched for. */
  readonly reviewTime?: () => number;
  /** Such a review is over; so many connections ended. */
  readonly reviewed?: (ended: number) => void;
  readonly bounds?: ConnectionBounds;
  /** Of the peers; left out: nothing is bounded. */
  readonly accounts?: Accounts;
  /** Asked when it is looked at, in milliseconds: how long a request may take to arrive. Left out: any time. */
  readonly messageTimeout?: () => number;
  readonly clock?: Clock;
  /** In [0, 1), for the order in which a drain ends streams. */
  readonly random?: () => number;
  /** What went wrong outside of any call, or a bug within one. Repeats are not held back here. */
  readonly report?: (message: string, error: unknown, peer?: string) => void;
  /** A client's connection ended other than HTTP/2 has it: cut, or with something that is no HTTP/2. */
  readonly connectionFailed?: (address: string, reason: string) => void;
}

/** What Node spends on a stream, most of it before it tells of it and after it has ended: milliseconds, measured. */
const streamMs = 0.03;

/** Of the time to drain, what is left for the last trailers to arrive. */
const drainShare = 0.9;

/** Listens. The error says which address, what is wrong, and is for the operator. */
export async function listenGrpc(options: GrpcServerOptions): Promise<Result<GrpcServer>> {
  const parsed = parseAddress(options.address);
  if (!parsed.ok) return parsed;
  const { tls } = options;
  if (tls !== undefined) {
    if (tls.requireClientCertificate && tls.ca === undefined) {
      return fail(`${options.address}: require_client_certificate needs ca`);
    }
    if (tls.certificate === undefined)
      return fail(`${options.address}: TLS needs certificate and private_key`);
    const checked = checkTlsMaterial(tls);
    if (!checked.ok) return fail(`${options.address}: ${checked.error}`);
  }
  const at = parsed.value;
  const target: ListenOptions = at.kind === 'tcp' ? { host: at.host, port: at.port } : { path: at.path };
  if (at.kind === 'unix') await removeStaleSocket(at.path);
  // What HTTP/2 and TLS cost is only for connections that are admitted: they listen nowhere themselves.
  const listener = createListener({
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: tcpKeepAlive,
  });
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(
        fail(
          `cannot listen on ${options.address}: ${(at.kind === 'unix' ? explainSocket(at.path) : undefined) ?? explainError(error)}`,
        ),
      );
    listener.once('error', refused);
    listener.listen({ ...target, backlog }, () => {
      listener.off('error', refused);
      const unixPath = at.kind === 'unix' ? at.path : undefined;
      resolve(ok(new GrpcServer(listener, createNodeServer(tls, unixPath !== undefined), unixPath, options)));
    });
  });
}

function createNodeServer(tls: ListenerTls | undefined, unix: boolean): Http2Server | Http2SecureServer {
  const options: SecureServerOptions = {
    ...sessionOptions,
    ...(unix ? { settings: { ...sessionOptions.settings, initialWindowSize: unixWindow } } : {}),
  };
  if (tls === undefined) return createServer(options);
  return createSecureServer({
    ...options,
    ...serverContextOptions(tls),
    ALPNProtocols: ['h2'],
    handshakeTimeout: handshakeTimeoutMs,
    // Without authorities of our own, Node would believe those of the public web.
    requestCert: tls.ca !== undefined,
    rejectUnauthorized: tls.requireClientCertificate,
  });
}

/** gRPC on one listener: hot calls as `ServerStream`, the rest to connect-node. */
export class GrpcServer implements StreamOwner {
  readonly clock: Clock;
  readonly maxRequestBytes: number;
  readonly halfSent: HalfSent;
  readonly unreadRequests: UnreadRequests;
  /** As `listening` reports it: HOST:PORT with the port that was bound, or unix:PATH. */
  readonly address: string;
  readonly #listener: Server;
  readonly #http2: Http2Server | Http2SecureServer;
  readonly #options: GrpcServerOptions;
  readonly #connections: ClientConnections;
  readonly #streams = new Map<Http2ServerStream, ClientConnection>();
  #whenIdle: (() => void) | undefined;
  #drained: Promise<void> | undefined;

  constructor(
    listener: Server,
    http2: Http2Server | Http2SecureServer,
    unixPath: string | undefined,
    options: GrpcServerOptions,
  ) {
    this.#listener = listener;
    this.#http2 = http2;
    this.#options = options;
    this.clock = options.clock ?? systemClock;
    this.maxRequestBytes = options.maxRequestBytes;
    this.unreadRequests = new UnreadRequests(this.clock);
    this.halfSent = new HalfSent({
      clock: this.clock,
      budget: halfSentBudget(options.maxRequestBytes),
      timeout: options.messageTimeout,
    });
    const bound = listener.address();
    this.address =
      typeof bound === 'object' && bound !== null
        ? formatHostPort(bound.address, bound.port)
        : options.address;
    this.#connections = new ClientConnections(listener, (socket) => http2.emit('connection', socket), {
      clock: this.clock,
      random: options.random,
      unixPath,
      maxAge: options.maxConnectionAge,
      ca: options.tls?.ca,
      reviewTime: () => (options.reviewTime?.() ?? 0) * drainShare,
      reviewed: options.reviewed,
      bounds: options.bounds,
      accounts: options.accounts ?? boundlessAccounts(this.clock),
    });
    this.#connections.follow(http2);
    http2.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#onStream(stream, headers, raw),
    );
    listener.on('error', (error) => this.#report('cannot accept connections', error));
    http2.on('sessionError', (error, session) =>
      options.connectionFailed?.(this.#connections.of(session)?.address ?? '', explainError(error)),
    );
    http2.on('tlsClientError', (error: Error, socket: TLSSocket) =>
      this.#report('a TLS handshake failed', error, addressOf(socket)),
    );
  }

  /** Open connections, those that are within their TLS handshake too. */
  get connections(): number {
    return this.#connections.size;
  }

  /** Open hot calls. */
  get streams(): number {
    return this.#streams.size;
  }

  /**
   * The new certificate holds for connections from now on. Those that are open stay, unless the authority that vouched
   * for the client's certificate is gone: they end, spread over `reviewTime`. Without TLS: an error.
   */
  setTls(material: TlsMaterial): Result<undefined> {
    const server = this.#http2;
    if (!('setSecureContext' in server)) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    server.setSecureContext(serverContextOptions(material));
    if (material.ca !== undefined) this.#connections.replaceAuthorities(material.ca);
    return ok(undefined);
  }

  /**
   * Stops listening, sends GOAWAY on every connection, has `end` end the streams one by one over the time given, and
   * cuts what is left. Resolves when everything is closed. Later calls get the first one's promise.
   */
  drain(
    milliseconds: number,
    end: (stream: ServerStream) => void = (stream) => stream.end(DRAINING),
  ): Promise<void> {
    this.#drained ??= this.#drain(milliseconds, end);
    return this.#drained;
  }

  async #drain(milliseconds: number, end: (stream: ServerStream) => void): Promise<void> {
    const { auxiliary, random = systemRandom } = this.#options;
    const listenerClosed = new Promise((resolve) => {
      // Its callback comes when the last connection has closed.
      this.#listener.close(resolve);
    });
    this.#connections.beginDrain();
    const ending = spread(this.#streams.keys(), milliseconds * drainShare, this.clock, random, end);
    const deadline = this.clock.after(milliseconds, () => this.#connections.destroyAll());
    await this.#idle();
    // Watches of the health service would otherwise always last until the deadline.
    auxiliary?.shutDown();
    await listenerClosed;
    this.#connections.stop();
    this.halfSent.stop();
    ending.cancel();
    deadline.cancel();
  }

  /** Resolves when no hot call is open. */
  #idle(): Promise<void> {
    if (this.#streams.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  /** For Http2ServerStream. */
  closed(stream: Http2ServerStream): void {
    const connection = this.#streams.get(stream);
    connection?.calls?.delete(stream);
    connection?.closed(this.clock.now());
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.#whenIdle?.();
  }

  /** For Http2ServerStream. */
  unserved(stream: Http2ServerStream): void {
    this.#streams.get(stream)?.unserved();
  }

  /** For Http2ServerStream. */
  threw(error: unknown, path: string): void {
    this.#report(`the handler of ${path} failed`, error);
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: readonly string[]): void {
    stream.on('error', ignore);
    const connection = this.#connections.of(stream.session);
    // Its connection was lost before it came here.
    if (connection === undefined) return;
    const { account } = connection.peer;
    account.spent(streamMs);
    if (account.mustWait) connection.unserved();
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
    const waiting = account.waitOnArrival(begin);
    if (waiting === undefined) refuse(stream, tooMuchWaits(account));
    else stream.once('close', () => waiting.cancel());
  }

  #route(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
    connection: ClientConnection,
  ): void {
    const { peer } = connection;
    const path = headers[':path'] ?? '';
    const accepted = this.#options.accept(path);
    if (accepted === undefined) {
      if (this.#options.auxiliary?.serves(path) === true) {
        connection.opened();
        stream.once('close', () => connection.closed(this.clock.now()));
        this.#options.auxiliary.handle(stream, headers, rawHeaders, peer);
      } else refuseUnknown(stream, headers);
      return;
    }
    const refusal = refusalOf(headers);
    if (refusal !== undefined) {
      refuse(stream, refusal.status, refusal.http);
    } else if (typeof accepted === 'function') {
      const call = new Http2ServerStream(stream, headers, peer, this);
      this.#streams.set(call, connection);
      connection.opened();
      connection.calls?.add(call);
      call.open(accepted);
    } else {
      refuse(stream, accepted);
    }
  }

  #report(message: string, error: unknown, peer?: string): void {
    if (!isDisconnect(error)) this.#options.report?.(message, error, peer);
  }
}

/** Of a stream or its connection: `close` follows, and whoever owns the stream hears that. */
function ignore(): void {}
