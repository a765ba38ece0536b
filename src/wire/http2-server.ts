import { randomInt } from 'node:crypto';
import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type Http2Session,
  type IncomingHttpHeaders,
  type SecureServerOptions,
  type ServerHttp2Stream,
} from 'node:http2';
import type { ListenOptions, Socket } from 'node:net';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { formatHostPort, parseAddress } from './address.ts';
import { spread } from './drain.ts';
import { refusalOf, refuse, refuseUnknown } from './grpc-requests.ts';
import {
  backlog,
  connectionWindow,
  firstStreamPatience,
  handshakePatience,
  sessionOptions,
  tcpKeepAlive,
  unixWindow,
} from './http2-settings.ts';
import { Http2ServerStream, type StreamOwner } from './http2-stream.ts';
import { explainError, isDisconnect } from './node-error.ts';
import { peerOf } from './peer.ts';
import { Code, type GrpcStatus } from './status.ts';
import { checkTlsMaterial, secureContextOptions, type TlsMaterial } from './tls-material.ts';
import type { Peer, ServerStream } from './transport.ts';
import { explainSocket, removeStaleSocket } from './unix-socket.ts';

export interface ListenerTls extends TlsMaterial {
  /** Refuse clients without a certificate of `ca`. Otherwise one is asked for, and believed if it is of `ca`. */
  readonly requireClientCertificate: boolean;
}

/** The paths that are not hot: connect-node's (connect.ts). */
export interface ColdPaths {
  serves(path: string): boolean;
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
   * Called for each call. A function takes it (a hot path), a status refuses it, undefined leaves it to the cold paths.
   */
  readonly accept: (path: string) => ((stream: ServerStream) => void) | GrpcStatus | undefined;
  readonly cold?: ColdPaths;
  readonly maxRequestBytes: number;
  /** Asked for each connection, in milliseconds: how old it may become, give or take a tenth. Undefined: any age. */
  readonly maxConnectionAge?: () => number | undefined;
  readonly clock?: Clock;
  /** In [0, 1), for the order in which a drain ends streams. */
  readonly random?: () => number;
  /** What went wrong outside of any call, or a bug within one. Repeats are not held back here. */
  readonly report?: (message: string, error: unknown) => void;
}

const aged: GrpcStatus = {
  code: Code.UNAVAILABLE,
  message: 'this connection is older than xds.max_connection_age: connect again',
};
/** After GOAWAY, what is under way on an old connection has so long; a tenth of short ages. Milliseconds. */
const longestGrace = 5000;

const draining: GrpcStatus = { code: Code.UNAVAILABLE, message: 'draining: connect to another replica' };

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
  const server = createNodeServer(tls, at.kind === 'unix');
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(
        fail(
          `cannot listen on ${options.address}: ${(at.kind === 'unix' ? explainSocket(at.path) : undefined) ?? explainError(error)}`,
        ),
      );
    server.once('error', refused);
    server.listen({ ...target, backlog }, () => {
      server.off('error', refused);
      resolve(ok(new GrpcServer(server, at.kind === 'unix' ? at.path : undefined, options)));
    });
  });
}

function createNodeServer(tls: ListenerTls | undefined, unix: boolean): Http2Server | Http2SecureServer {
  // node:http2 passes them on to node:net, which its types do not say of the plain server.
  const options: SecureServerOptions = {
    ...sessionOptions,
    ...(unix ? { settings: { ...sessionOptions.settings, initialWindowSize: unixWindow } } : {}),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: tcpKeepAlive,
  };
  if (tls === undefined) return createServer(options);
  return createSecureServer({
    ...options,
    ...secureContextOptions(tls),
    ALPNProtocols: ['h2'],
    handshakeTimeout: handshakePatience,
    // Without authorities of our own, Node would believe those of the public web.
    requestCert: tls.ca !== undefined,
    rejectUnauthorized: tls.requireClientCertificate,
  });
}

/** What is known of a connection, for all its streams. */
interface Connection {
  readonly peer: Peer;
  readonly since: number;
  /** It has opened a stream. From then on a silent connection is a calm one: streams live for months. */
  used: boolean;
  /** Only where connections have an age to end at: its calls, and when that is looked at next. */
  age: { readonly calls: Set<Http2ServerStream>; timer: Timer } | undefined;
}

/** How often connections that open no stream are looked for, in milliseconds. */
const patrolPeriod = 10_000;

/** gRPC on one listener: hot calls as `ServerStream`, the rest to connect-node. */
export class GrpcServer implements StreamOwner {
  readonly clock: Clock;
  readonly maxRequestBytes: number;
  /** As `listening` reports it: HOST:PORT with the port that was bound, or unix:PATH. */
  readonly address: string;
  readonly #server: Http2Server | Http2SecureServer;
  readonly #unixPath: string | undefined;
  readonly #options: GrpcServerOptions;
  readonly #connections = new Map<Http2Session, Connection>();
  readonly #sockets = new Set<Socket>();
  readonly #streams = new Map<Http2ServerStream, Connection>();
  #whenIdle: (() => void) | undefined;
  #watch: Timer | undefined;
  #drained: Promise<void> | undefined;

  constructor(
    server: Http2Server | Http2SecureServer,
    unixPath: string | undefined,
    options: GrpcServerOptions,
  ) {
    this.#server = server;
    this.#unixPath = unixPath;
    this.#options = options;
    this.clock = options.clock ?? systemClock;
    this.maxRequestBytes = options.maxRequestBytes;
    const bound = server.address();
    this.address =
      typeof bound === 'object' && bound !== null
        ? formatHostPort(bound.address, bound.port)
        : options.address;
    server.on('connection', (socket: Socket) => this.#onConnection(socket));
    server.on('session', (session) => this.#onSession(session));
    server.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#onStream(stream, headers, raw),
    );
    this.#patrol();
    server.on('error', (error) => this.#report('cannot accept connections', error));
    server.on('sessionError', (error) => this.#report('a connection failed', error));
    server.on('tlsClientError', (error) => this.#report('a TLS handshake failed', error));
  }

  /** Open hot calls. */
  get streams(): number {
    return this.#streams.size;
  }

  /** The new certificate holds for connections from now on; those that are open stay. Without TLS: an error. */
  setTls(material: TlsMaterial): Result<undefined> {
    const server = this.#server;
    if (!('setSecureContext' in server)) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    server.setSecureContext(secureContextOptions(material));
    return ok(undefined);
  }

  /**
   * Stops listening, sends GOAWAY on every connection, has `end` end the streams one by one over the time given, and
   * cuts what is left. Resolves when everything is closed. Later calls get the first one's promise.
   */
  drain(
    milliseconds: number,
    end: (stream: ServerStream) => void = (stream) => stream.end(draining),
  ): Promise<void> {
    this.#drained ??= this.#drain(milliseconds, end);
    return this.#drained;
  }

  async #drain(milliseconds: number, end: (stream: ServerStream) => void): Promise<void> {
    const { cold, random = systemRandom } = this.#options;
    const listenerClosed = new Promise((resolve) => {
      // Sends GOAWAY too. Its callback comes when the last connection has closed.
      this.#server.close(resolve);
    });
    const ending = spread(this.#streams.keys(), milliseconds * drainShare, this.clock, random, end);
    const deadline = this.clock.after(milliseconds, () => {
      for (const socket of this.#sockets) socket.destroy();
    });
    await this.#idle();
    // Watches of the health service would otherwise always last until the deadline.
    cold?.shutDown();
    await listenerClosed;
    this.#watch?.cancel();
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
    this.#streams.get(stream)?.age?.calls.delete(stream);
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.#whenIdle?.();
  }

  /** For Http2ServerStream. */
  threw(error: unknown, path: string): void {
    this.#report(`the handler of ${path} failed`, error);
  }

  #onConnection(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
  }

  #onSession(session: Http2Session): void {
    const peer = peerOf(session, this.#unixPath);
    const connection: Connection = { peer, since: this.clock.now(), used: false, age: undefined };
    this.#connections.set(session, connection);
    session.on('close', () => {
      this.#connections.delete(session);
      connection.age?.timer.cancel();
    });
    session.setLocalWindowSize(this.#unixPath === undefined ? connectionWindow : unixWindow);
    // There is no other replica behind a Unix socket.
    if (!peer.unix) this.#limitAge(session, connection);
  }

  /** So that clients spread again over replicas that have come since (contract, xds.max_connection_age). */
  #limitAge(session: Http2Session, connection: Connection): void {
    const oldest = this.#options.maxConnectionAge?.();
    if (oldest === undefined) return;
    const { random = systemRandom } = this.#options;
    const grace = Math.min(longestGrace, oldest / 10);
    const calls = new Set<Http2ServerStream>();
    const timer = this.clock.after(oldest * (0.9 + 0.2 * random()), () => {
      session.close(); // GOAWAY: what is open goes on
      age.timer = this.clock.after(grace, () => {
        for (const call of calls) call.end(aged);
        // Whatever still does not end, such as a watch of the health service.
        age.timer = this.clock.after(grace, () => session.destroy());
      });
    });
    const age = { calls, timer };
    connection.age = age;
  }

  /** One look at all of them from time to time costs less than a timer for each. */
  #patrol(): void {
    this.#watch = this.clock.after(patrolPeriod, () => {
      const latest = this.clock.now() - firstStreamPatience;
      for (const [session, { used, since }] of this.#connections)
        if (!used && since <= latest) session.close();
      this.#patrol();
    });
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: readonly string[]): void {
    stream.on('error', ignore);
    const { session } = stream;
    const connection = session && this.#connections.get(session);
    // Reset, or its connection lost, before it came here.
    if (stream.destroyed || session === undefined || connection === undefined) return;
    connection.used = true;
    try {
      this.#route(stream, headers, rawHeaders, connection);
    } catch (error) {
      this.threw(error, headers[':path'] ?? '');
      stream.destroy();
    }
  }

  #route(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    rawHeaders: readonly string[],
    connection: Connection,
  ): void {
    const { peer } = connection;
    const path = headers[':path'] ?? '';
    const accepted = this.#options.accept(path);
    if (accepted === undefined) {
      if (this.#options.cold?.serves(path) === true)
        this.#options.cold.handle(stream, headers, rawHeaders, peer);
      else refuseUnknown(stream, headers);
      return;
    }
    const refusal = refusalOf(headers);
    if (refusal !== undefined) {
      refuse(stream, refusal.status, refusal.http);
    } else if (typeof accepted === 'function') {
      const call = new Http2ServerStream(stream, headers, peer, this);
      this.#streams.set(call, connection);
      connection.age?.calls.add(call);
      call.open(accepted);
    } else {
      refuse(stream, accepted);
    }
  }

  #report(message: string, error: unknown): void {
    if (!isDisconnect(error)) this.#options.report?.(message, error);
  }
}

function systemRandom(): number {
  return randomInt(2 ** 32) / 2 ** 32;
}

/** Of a stream or its connection: `close` follows, and whoever owns the stream hears that. */
function ignore(): void {}
