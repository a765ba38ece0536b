import { constants, type Http2Server } from 'node:http2';
import type { Server, Socket } from 'node:net';
import { LRUCache } from 'lru-cache';
import { type Clock, Sweep, type Timer } from '../model/clock.ts';
import { shuffled, systemRandom } from '../model/random.ts';
import { type Account, type Accounts, boundlessAccounts } from './accounts.ts';
import { type CertifiedClient, ClientAuthorities, maxChainLength } from './client-authorities.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import {
  connectionWindow,
  handshakeTimeoutMs,
  idleTimeoutMs,
  idleTimeoutWhenFullMs,
  unixWindow,
} from './http2-settings.ts';
import { ignoreError } from './node-error.ts';
import {
  addressOf,
  beneath,
  type ClientSession,
  isResumed,
  issuersOf,
  nobody,
  type ShownCertificate,
  verifiedCertificate,
} from './peer.ts';
import type { Peer, RefusedReason, ServerStream } from './server-stream.ts';
import type { TlsMaterial } from './tls-material.ts';
import type { TlsSessions } from './tls-sessions.ts';

/** How many connections there may be, and of whom. */
export interface ConnectionBounds {
  /** Asked before anything is read or written; false: it is closed. */
  admits(): boolean;
  /** One was admitted; `closed` follows. */
  opened(connection: Socket): void;
  closed(connection: Socket): void;
  /** The peer of one is known. A text says why it is refused; else `left` follows. */
  joined(peer: Peer): string | undefined;
  left(peer: Peer): void;
}

/** Of a connection: it had no stream, or its client's certificate has ended, is refused, or is missing. */
type EndedReason = 'idle' | `certificate_${'expired' | 'ended' | 'untrusted' | 'missing' | 'unknown_issuer'}`;

/** Where clients connect, and who may. */
export interface ListenerOptions {
  /** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 is any free port. */
  readonly address: string;
  /** Of the socket at `unix:PATH`; undefined: what the umask leaves. */
  readonly unixMode?: number | undefined;
  /** Other processes of this user may listen on the port, too: the kernel shares new connections out among them. */
  readonly reusePort?: boolean | undefined;
  readonly tls?: ListenerTls | undefined;
  readonly clock?: Clock;
  /** In [0, 1). */
  readonly random?: () => number;
  /** A larger request is refused. */
  readonly maxRequestBytes: number;
  /** Asked for each connection, again and again, in milliseconds: how old it may become, give or take a tenth. Undefined: any age. */
  readonly maxConnectionAge?: () => number | undefined;
  /** Milliseconds, asked for when `ca` loses an authority: over so long the connections end that it vouched for. */
  readonly reviewTime?: () => number;
  /** Such a review is over; so many connections ended. */
  readonly reviewed?: (ended: number) => void;
  /** Undefined: any number. */
  readonly bounds?: ConnectionBounds;
  /** Of the peers. Undefined: nothing of a peer is bounded. */
  readonly accounts?: Accounts;
  /** A TLS handshake is done. */
  readonly shookHands?: (how: 'full' | 'resumed') => void;
  /** For metrics: a request that no handler sees is refused, an answer that nobody reads is cut, or a connection is ended. */
  readonly refused?: (reason: RefusedReason | EndedReason) => void;
  /** What went wrong outside of any request, or a bug within one. Repeats are not held back here. */
  readonly report?: (message: string, error: unknown, peer?: string) => void;
}

export interface ListenerTls extends TlsMaterial {
  /** Refuse clients without a certificate of `ca`. Otherwise one is asked for, and believed if it is of `ca`. */
  readonly requireClientCertificate: boolean;
  /** Undefined: none is resumed. */
  readonly sessions?: TlsSessions | undefined;
}

const tooOld: GrpcStatus = {
  code: Code.UNAVAILABLE,
  message: 'this connection is older than xds.max_connection_age: connect again',
};
const authorityRemoved: GrpcStatus = {
  code: Code.UNAVAILABLE,
  message:
    "the authority of this client's certificate is no longer in xds.tls.ca: connect with a certificate of another authority",
};
const certificateEnded: GrpcStatus = {
  code: Code.UNAUTHENTICATED,
  message: "this client's certificate is no longer valid: connect with a new one",
};
/** After GOAWAY, what is under way on an old connection has so long; a tenth of short ages. Milliseconds. */
const longestGraceMs = 5000;
/** At the least, the trailers of what ended have so long. Milliseconds. */
const leastGraceMs = 1000;

/** To verify one takes a tenth of a millisecond or two: however short the time of a review, it leaves some for the others. */
const signaturesPerMs = 4;

/** For how long an address is not asked for its TLS session, when one was not taken. Clients wait up to two minutes to try again. Milliseconds. */
const freshMs = 600_000;
const mostFresh = 10_000;

/** How often idle connections are looked for, in milliseconds. */
const idleCheckMs = 10_000;

/** The connections of one listener, from the first byte to the last, and what ends them. */
export class ClientConnections {
  readonly #options: ListenerOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #accounts: Accounts;
  /** The path that is listened on, if it is a Unix socket. */
  readonly #unixPath: string | undefined;
  /** All of them, those that are within their TLS handshake too. */
  readonly #sockets = new Map<Socket, Arrival>();
  readonly #sessions = new Map<ClientSession, ClientConnection>();
  readonly #authorities: ClientAuthorities | undefined;
  /** Addresses whose TLS sessions are not resumed for a while: without that such a client would bring the same session again. */
  readonly #fresh: LRUCache<string, true>;
  /** Until then a handshake may complete that began with authorities that are gone. */
  #handshakesUntil = 0;
  #review: { cancel(): void } | undefined;
  /** The socket of the next session. Node creates the session while it emits the event of the socket. */
  #arriving: Socket | undefined;
  /** One check of all connections every 10 s costs less than a timer for each. */
  readonly #checks: Sweep;
  #draining = false;
  #lastRoomMadeAt = 0;

  /**
   * `listener` accepts; what is admitted is handed on, to servers that listen nowhere themselves.
   */
  constructor(
    listener: Server,
    handOn: (socket: Socket) => void,
    unixPath: string | undefined,
    clock: Clock,
    options: ListenerOptions,
  ) {
    const { tls, random = systemRandom, accounts = boundlessAccounts(clock) } = options;
    this.#options = options;
    this.#unixPath = unixPath;
    this.#clock = clock;
    this.#random = random;
    this.#accounts = accounts;
    // A bound by `max` would take its memory at once.
    const size = { maxSize: mostFresh, sizeCalculation: () => 1 };
    this.#fresh = new LRUCache({
      ...size,
      ttl: freshMs,
      ttlResolution: 0,
      perf: { now: () => clock.monotonic() },
    });
    this.#authorities = tls?.ca && new ClientAuthorities(tls.ca, tls.sessions?.intermediates);
    listener.on('connection', (socket) => {
      const arrival = this.#accepted(socket);
      if (arrival !== undefined) this.#inTurn(socket, arrival.account, () => handOn(socket));
    });
    this.#checks = new Sweep(clock, idleCheckMs, () => {
      this.#endIdle(idleTimeoutMs);
      for (const [session, connection] of this.#sessions) {
        if (session.destroyed) {
          connection.cutSoon();
          continue;
        }
        this.#limitAge(session, connection);
        this.#endInTime(session, connection);
      }
      return this.#sessions.size > 0;
    });
  }

  /** Takes in the sessions of a server that connections are handed on to. */
  follow(http2: Http2Server): void {
    http2.prependListener('connection', (socket: Socket) => {
      this.#arriving = socket;
    });
    http2.on('session', (session) => {
      const socket = this.#arriving;
      this.#arriving = undefined;
      const refusal = this.opened(session, socket);
      if (refusal !== undefined) {
        session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from(refusal));
        session.destroy();
      } else if (!session.destroyed) {
        session.setLocalWindowSize(this.#unixPath === undefined ? connectionWindow : unixWindow);
      }
      // Node passes it to the session in the next tick, and throws if the session has ended.
      if (session.destroyed) socket?.read();
    });
  }

  /** How many are open. */
  get size(): number {
    return this.#sockets.size;
  }

  of(session: ClientSession | undefined): ClientConnection | undefined {
    return session && this.#sessions.get(session);
  }

  /** GOAWAY on all of them. What is open there goes on. */
  beginDrain(): void {
    this.#draining = true;
    for (const session of this.#sessions.keys()) session.close();
  }

  /**
   * If an authority is gone, every connection is checked, and ends if nobody vouches for its certificate any more: in
   * random order and spread over `reviewTime`, so that neither blocks the process.
   */
  replaceAuthorities(ca: Buffer): void {
    const authorities = this.#authorities;
    if (authorities?.replace(ca) !== true) return;
    this.#handshakesUntil = this.#clock.monotonic() + handshakeTimeoutMs;
    let left = this.#sessions.size;
    let ended = 0;
    const milliseconds = Math.max(this.#reviewMs * drainShare, left / signaturesPerMs);
    this.#review?.cancel();
    this.#review = spread(
      this.#sessions,
      milliseconds,
      this.#clock,
      this.#random,
      ([session, connection]) => {
        const { certificate } = connection;
        // A client without one stays: it got nothing by a certificate.
        if (certificate !== undefined && !authorities.clientOf(certificate, () => []).knowsIssuers) {
          ended++;
          this.#retire(session, connection, authorityRemoved, 0);
        }
        if (--left === 0) this.#options.reviewed?.(ended);
      },
    );
  }

  get #reviewMs(): number {
    return this.#options.reviewTime?.() ?? 0;
  }

  /** Cuts what is left. */
  destroyAll(): void {
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  stop(): void {
    this.#checks.stop();
    this.#review?.cancel();
  }

  #accepted(socket: Socket): Arrival | undefined {
    const { bounds } = this.#options;
    if (bounds?.admits() === false) {
      socket.destroy();
      this.#makeRoom();
      return undefined;
    }
    const arrival = this.#arrival(socket);
    this.#sockets.set(socket, arrival);
    bounds?.opened(socket);
    socket.on('error', ignoreError);
    socket.on('close', () => {
      this.#sockets.delete(socket);
      bounds?.closed(socket);
    });
    return arrival;
  }

  #arrival(socket: Partial<Socket>): Arrival {
    const unixPath = this.#unixPath;
    // Asked at once, as a socket that is closed has forgotten it. That is a system call.
    const address = unixPath ?? addressOf(socket);
    return { address, account: this.#accounts.of({ address, unix: unixPath !== undefined, ...nobody }) };
  }

  #arrivalOf(socket: Socket | undefined): Arrival {
    const known = socket && this.#sockets.get(beneath(socket));
    return known ?? this.#arrival(socket ?? {});
  }

  /** What HTTP and TLS cost to begin with is the address's, as nobody else is known yet. */
  #inTurn(socket: Socket, account: Account, handOn: () => void): void {
    if (!account.mustWait) {
      account.work(handOn);
      return;
    }
    stopReading(socket);
    const waiting = account.readLater(() => {
      startReading(socket);
      account.work(handOn);
    });
    socket.once('close', () => waiting.cancel());
  }

  /** HTTP is spoken on it from now on. A text says why it must not be. */
  opened(session: ClientSession, socket: Socket | undefined): string | undefined {
    const { bounds } = this.#options;
    const unixPath = this.#unixPath;
    const certificate = verifiedCertificate(socket);
    const client = certificate && this.#acceptedClient(certificate, socket);
    if (certificate !== undefined && client === undefined) {
      if (isResumed(socket)) this.#mustBeFresh(socket);
      session.destroy();
      return undefined;
    }
    const calls = unixPath !== undefined && client === undefined ? undefined : new Set<ServerStream>();
    const connection = new ClientConnection(
      socket,
      this.#arrivalOf(socket),
      unixPath !== undefined,
      client,
      this.#accounts,
      this.#clock,
      calls,
    );
    const refusal = bounds?.joined(connection);
    if (refusal !== undefined) return refusal;
    this.#sessions.set(session, connection);
    this.#checks.start();
    session.on('close', () => {
      bounds?.left(connection);
      this.#sessions.delete(session);
      connection.ended();
    });
    if (this.#draining) session.close();
    else this.#limitAge(session, connection);
    this.#endInTime(session, connection);
    return undefined;
  }

  /**
   * What a certificate says of its client; undefined: a connection with it is not taken. A resumed TLS session began when
   * its certificate was valid, and a handshake with the authorities of its time.
   */
  #acceptedClient(certificate: ShownCertificate, socket: Socket | undefined): CertifiedClient | undefined {
    const authorities = this.#authorities;
    const isReplaced = this.#clock.monotonic() < this.#handshakesUntil;
    const client = authorities?.clientOf(certificate, () => issuersOf(socket, maxChainLength));
    if (client === undefined || (isReplaced && !client.knowsIssuers)) return undefined;
    if (isResumed(socket) && !client.knowsIssuers) {
      // One of them may have ended. In a full handshake the client shows them.
      this.#options.refused?.('certificate_unknown_issuer');
      return undefined;
    }
    if (client.validUntil > this.#clock.now()) return client;
    // The client may have another one by now, which it shows in a full handshake.
    this.#options.refused?.(isResumed(socket) ? 'certificate_ended' : 'certificate_expired');
    return undefined;
  }

  #mustBeFresh({ remoteAddress }: Socket): void {
    this.#fresh.set(this.#unixPath ?? remoteAddress ?? '', true);
  }

  /** Whether its TLS session may be resumed. */
  mayResume({ remoteAddress }: Socket): boolean {
    return !this.#fresh.has(this.#unixPath ?? remoteAddress ?? '');
  }

  /**
   * Clients connect again, and so spread over replicas that were added later (xds.max_connection_age). Where a reload makes
   * many too old, they end one after the other.
   */
  #limitAge(session: ClientSession, connection: ClientConnection): void {
    // There is no other replica behind a Unix socket.
    const oldest = this.#unixPath === undefined ? this.#options.maxConnectionAge?.() : undefined;
    if (oldest === connection.oldest || connection.isEnding) return;
    connection.oldest = oldest;
    connection.timer?.cancel();
    if (oldest === undefined) return;
    const jitter = 0.2 * oldest * this.#random();
    const left = 0.9 * oldest + connection.openedAt - this.#clock.monotonic();
    const grace = Math.min(longestGraceMs, oldest / 10);
    connection.timer = this.#clock.after(Math.max(0, left) + jitter, () =>
      this.#retire(session, connection, tooOld, grace),
    );
  }

  /** Ends it with its certificate, if that is before the next check: later than the other certificates of its time. */
  #endInTime(session: ClientSession, connection: ClientConnection): void {
    const clock = this.#clock;
    const { validUntil } = connection;
    if (validUntil === undefined || validUntil > clock.now() + idleCheckMs || connection.isEnding) return;
    connection.isEnding = true;
    connection.timer?.cancel();
    const milliseconds = validUntil - clock.now() + this.#random() * this.#reviewMs;
    connection.timer = clock.after(milliseconds, () => {
      this.#options.refused?.('certificate_ended');
      this.#retire(session, connection, certificateEnded, 0);
    });
  }

  /** GOAWAY; what is open goes on for a while, ends with `why`, and what still does not end then is cut. */
  #retire(session: ClientSession, connection: ClientConnection, why: GrpcStatus, milliseconds: number): void {
    const clock = this.#clock;
    connection.isEnding = true;
    session.close(); // GOAWAY
    connection.timer?.cancel();
    connection.timer = clock.after(milliseconds, () => {
      for (const call of connection.calls ?? []) call.end(why);
      // Such as a watch of the health service.
      connection.timer = clock.after(Math.max(milliseconds, leastGraceMs), () => connection.destroy());
    });
  }

  /** Ends idle connections with GOAWAY, and cuts those that are still there at the next check. Clients connect again. */
  #endIdle(idleMs: number): void {
    const latest = this.#clock.monotonic() - idleMs;
    for (const [session, connection] of this.#sessions) {
      if (!connection.isIdleSince(latest)) continue;
      if (session.closed || session.destroyed) {
        connection.destroy();
        continue;
      }
      session.close();
      this.#options.refused?.('idle');
    }
  }

  /** A connection was refused because of max_connections: idle connections end sooner now. At most once a second. */
  #makeRoom(): void {
    const now = this.#clock.monotonic();
    if (now - this.#lastRoomMadeAt < 1000) return;
    this.#lastRoomMadeAt = now;
    this.#endIdle(idleTimeoutWhenFullMs);
  }
}

/**
 * So many requests that have to wait may come on a connection before it is read no further. Clients have fewer streams,
 * so a region that comes back from one address at once is read as it comes.
 */
const mostUnserved = 8;

/** For each name and value, beside its characters. With both a field costs what HTTP/2 counts for it. */
const headerOverhead = 16;
const usualHeaders = 1024;

/** What is charged for headers as long as they are kept: beyond what usual ones have, which is part of any call. */
export function headerBytes(texts: readonly string[]): number {
  const bytes = texts.reduce((sum, { length }) => sum + length + headerOverhead, 0);
  return Math.max(0, bytes - usualHeaders);
}

/** Who connects, as long as nobody has said more of it: the account is that of the address. */
type Arrival = Pick<Peer, 'address' | 'account'>;

/** A connection, and who is at its other end: for all its streams. */
export class ClientConnection implements Peer {
  readonly account: Account;
  readonly address: string;
  readonly unix: boolean;
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  /** Its hot calls, only where it may have to end before them: at an age, or when its authority goes. */
  readonly calls: Set<ServerStream> | undefined;
  /** The next step towards its end. */
  timer: Timer | undefined;
  /** `timer` is its end: nothing else may take its place. */
  isEnding = false;
  /** By `Clock.monotonic()`. */
  readonly openedAt: number;
  /** Of `maxConnectionAge`: `timer` is for that. */
  oldest: number | undefined;
  /** When its certificate ends, by the clock. */
  readonly validUntil: number | undefined;
  readonly #socket: Socket | undefined;
  readonly #clock: Clock;
  #calls = 0;
  /** Requests that had to wait since it was read on. */
  #unserved = 0;
  #reading: Timer | undefined;
  #isFull = false;
  /** At the last look its session had ended. */
  #wasOver = false;
  /** Since when it has no call, if it has none. */
  #idleSince: number;

  /** `client`: what a verified certificate says. */
  constructor(
    socket: Socket | undefined,
    { address, account }: Arrival,
    unix: boolean,
    client: CertifiedClient | undefined,
    accounts: Accounts,
    clock: Clock,
    calls: Set<ServerStream> | undefined,
  ) {
    this.address = address;
    this.unix = unix;
    const { uriSans, dnsSans } = client?.names ?? nobody;
    this.uriSans = uriSans;
    this.dnsSans = dnsSans;
    this.account = client === undefined ? accounts.again(account) : accounts.of(this);
    this.calls = calls;
    this.#socket = socket;
    this.validUntil = client?.validUntil;
    this.#clock = clock;
    this.openedAt = clock.monotonic();
    this.#idleSince = this.openedAt;
  }

  /** Verified, and read anew for each call. */
  get certificate(): ShownCertificate | undefined {
    return verifiedCertificate(this.#socket);
  }

  /** A call, for which so many bytes of headers are kept: see `headerBytes`. A text says why they may not be. */
  opened(headers: number): string | undefined {
    const excess = this.account.hold(headers);
    if (excess === undefined) this.#calls++;
    return excess;
  }

  closed(headers: number): void {
    this.account.keeps(-headers);
    if (--this.#calls === 0) this.#idleSince = this.#clock.monotonic();
    if (!this.#isFull || this.#socket === undefined) return;
    this.#isFull = false;
    this.#readLater(this.#socket);
  }

  /** A request has come, on which so many milliseconds were spent before anybody saw it. */
  arrived(milliseconds: number): void {
    this.account.spent(milliseconds);
    if (this.account.mustWait) this.unserved();
  }

  /**
   * A request came while its peer had to wait. HTTP/2 and HTTP/1.1 make requests of all that is read, which is up to
   * 64 KB at once, before anybody sees the first: where many come, nothing more is read until the peer's turn.
   */
  unserved(): void {
    if (++this.#unserved <= mostUnserved || this.#socket === undefined) return;
    // Node itself may have begun to read again meanwhile.
    stopReading(this.#socket);
    if (!this.#isFull) this.#readLater(this.#socket);
  }

  /** Pipelining: so many requests are open that nothing more is read before some are answered. */
  full(): void {
    this.#isFull = true;
    this.#reading?.cancel();
    this.#reading = undefined;
    if (this.#socket !== undefined) stopReading(this.#socket);
  }

  #readLater(socket: Socket): void {
    this.#reading ??= this.account.readLater(() => {
      this.#reading = undefined;
      this.#unserved = 0;
      startReading(socket);
    });
  }

  /** Streams live for months: a silent connection that has one is a calm one. */
  isIdleSince(time: number): boolean {
    return this.#calls === 0 && this.#idleSince <= time;
  }

  /**
   * Its session has ended by itself. Node closes the socket when all is written, and reads nothing meanwhile: over TLS it may
   * never hear that the peer has gone. At the second call the socket is cut.
   */
  cutSoon(): void {
    if (this.#wasOver) this.destroy();
    this.#wasOver = true;
  }

  /** Node would wait for a peer that takes nothing before it closes the socket of a session. */
  destroy(): void {
    this.#socket?.destroy();
  }

  /** The connection is over. */
  ended(): void {
    this.timer?.cancel();
    this.#reading?.cancel();
  }
}

/**
 * Node's HTTP servers read from the handle below the socket, whose `pause` means nothing to them. It is not documented:
 * where it is missing, nothing is stopped.
 */
function callHandle(socket: Socket, method: 'readStart' | 'readStop'): void {
  const handle: unknown = Reflect.get(socket, '_handle');
  if (typeof handle !== 'object' || handle === null) return;
  const run: unknown = Reflect.get(handle, method);
  // Where Node itself has stopped, it begins again itself.
  const isNodes = method === 'readStart' && Reflect.get(handle, 'reading') === false;
  if (typeof run === 'function' && !isNodes) Reflect.apply(run, handle, []);
}

const stopReading = (socket: Socket): void => callHandle(socket, 'readStop');
const startReading = (socket: Socket): void => callHandle(socket, 'readStart');

/** Of the time that streams have to end, this part. The rest is for the last trailers to arrive. */
export const drainShare = 0.9;

/** The rest is at least so long, in milliseconds: what is cut earlier has no status, and a client takes that for a fault. */
export const leastForTrailersMs = 200;

/** Milliseconds between two batches. */
const step = 50;

/**
 * Ends streams in random order, evenly spread over `milliseconds`, so that a fleet does not reconnect to the other
 * replicas in one instant. Streams that closed by themselves meanwhile are skipped by `end` doing nothing.
 */
export function spread<T>(
  items: Iterable<T>,
  milliseconds: number,
  clock: Clock,
  random: () => number,
  end: (item: T) => void,
): { cancel(): void } {
  const waiting = shuffled(items, random);
  const total = waiting.length;
  const started = clock.monotonic();
  let timer = clock.after(0, tick);

  function tick(): void {
    const elapsed = clock.monotonic() - started;
    const due = elapsed >= milliseconds ? total : Math.ceil((total * elapsed) / milliseconds);
    while (total - waiting.length < due) {
      const item = waiting.pop();
      if (item === undefined) return;
      end(item);
    }
    if (waiting.length > 0) timer = clock.after(Math.min(step, milliseconds), tick);
  }

  return { cancel: () => timer.cancel() };
}
