import { createServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Clock } from '../model/clock.ts';
import { systemRandom } from '../model/random.ts';
import { ok, type Result } from '../model/result.ts';
import { tooMuchWaits } from './accounts.ts';
import type { ClientConnection } from './client-connections.ts';
import { DRAINING, drainShare, spread } from './drain.ts';
import { refusalOf, refuse, refuseUnknown } from './grpc-requests.ts';
import type { GrpcStatus } from './grpc-status.ts';
import { HalfSent, halfSentBudget, UnreadRequests } from './half-sent.ts';
import { sessionOptions, unixWindow } from './http2-settings.ts';
import { Http2ServerStream, type StreamOwner } from './http2-stream.ts';
import { type Listener, type ListenerOptions, listen } from './listener.ts';
import { explainError } from './node-error.ts';
import type { Peer, ServerStream } from './server-stream.ts';
import type { TlsMaterial } from './tls-material.ts';

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

export interface GrpcServerOptions extends ListenerOptions {
  /**
   * Called for each call. A function takes it (a hot path), a status refuses it, undefined leaves it to the auxiliary paths.
   */
  readonly accept: (path: string) => ((stream: ServerStream) => void) | GrpcStatus | undefined;
  readonly auxiliary?: AuxiliaryPaths;
  readonly maxRequestBytes: number;
  /** Asked when it is looked at, in milliseconds: how long a request may take to arrive. Left out: any time. */
  readonly messageTimeout?: () => number;
  /** A client's connection ended other than HTTP/2 has it: cut, or with something that is no HTTP/2. */
  readonly connectionFailed?: (address: string, reason: string) => void;
}

/** What Node spends on a stream, most of it before it tells of it and after it has ended: milliseconds, measured. */
const streamMs = 0.03;

/** Listens. The error says which address, what is wrong, and is for the operator. */
export async function listenGrpc(options: GrpcServerOptions): Promise<Result<GrpcServer>> {
  const listening = await listen(options, ['h2']);
  return listening.ok ? ok(new GrpcServer(listening.value, options)) : listening;
}

const noHttp2 =
  'HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\nthis port speaks HTTP/2: offer h2 by ALPN\n';

/** gRPC on one listener: hot calls as `ServerStream`, the rest to connect-node. */
export class GrpcServer implements StreamOwner {
  readonly clock: Clock;
  readonly maxRequestBytes: number;
  readonly halfSent: HalfSent;
  readonly unreadRequests: UnreadRequests;
  readonly #listener: Listener;
  readonly #options: GrpcServerOptions;
  readonly #streams = new Map<Http2ServerStream, ClientConnection>();
  #whenIdle: (() => void) | undefined;
  #drained: Promise<void> | undefined;

  constructor(listener: Listener, options: GrpcServerOptions) {
    this.#listener = listener;
    this.#options = options;
    this.clock = listener.clock;
    this.maxRequestBytes = options.maxRequestBytes;
    this.unreadRequests = new UnreadRequests(this.clock);
    this.halfSent = new HalfSent({
      clock: this.clock,
      budget: halfSentBudget(options.maxRequestBytes),
      timeout: options.messageTimeout,
    });
    const { settings } = sessionOptions;
    const http2 = createServer(
      listener.unixPath === undefined
        ? sessionOptions
        : { ...sessionOptions, settings: { ...settings, initialWindowSize: unixWindow } },
    );
    listener.connections.follow(http2);
    listener.connected((socket, alpn) => {
      if (alpn === undefined || alpn === 'h2') http2.emit('connection', socket);
      else socket.end(noHttp2);
    });
    http2.on(
      'stream',
      (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, _flags: number, raw: string[]) =>
        this.#onStream(stream, headers, raw),
    );
    http2.on('sessionError', (error, session) =>
      options.connectionFailed?.(listener.connections.of(session)?.address ?? '', explainError(error)),
    );
  }

  /** As `listening` reports it: HOST:PORT with the port that was bound, or unix:PATH. */
  get address(): string {
    return this.#listener.address;
  }

  /** Open connections, those that are within their TLS handshake too. */
  get connections(): number {
    return this.#listener.connections.size;
  }

  /** Open hot calls. */
  get streams(): number {
    return this.#streams.size;
  }

  setTls(material: TlsMaterial): Result<undefined> {
    return this.#listener.setTls(material);
  }

  /**
   * Stops listening, sends GOAWAY on every connection, has `end` end the streams one by one over the time given, and
   * cuts what is left. Resolves when everything is closed. Later calls get the first one's promise.
   */
  drain(
    milliseconds: number,
    end: (stream: ServerStream) => void = (stream) => stream.end(DRAINING),
  ): Promise<void> {
    const { auxiliary, random = systemRandom } = this.#options;
    this.#drained ??= this.#listener.drain(milliseconds, async () => {
      const ending = spread(this.#streams.keys(), milliseconds * drainShare, this.clock, random, end);
      await this.#idle();
      ending.cancel();
      // Watches of the health service would otherwise always last until the deadline.
      auxiliary?.shutDown();
      this.halfSent.stop();
    });
    return this.#drained;
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
    this.#listener.report(`the handler of ${path} failed`, error);
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, rawHeaders: readonly string[]): void {
    stream.on('error', ignore);
    const connection = this.#listener.connections.of(stream.session);
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
}

/** Of a stream or its connection: `close` follows, and whoever owns the stream hears that. */
function ignore(): void {}
