import { constants, hash } from 'node:crypto';
import { chmodSync, existsSync, lstatSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import { createConnection, createServer, type ListenOptions, type Server, type Socket } from 'node:net';
import { dirname } from 'node:path';
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { type Clock, systemClock } from '../model/clock.ts';
import { attempt, fail, ok, type Result } from '../model/result.ts';
import { type Address, formatHostPort, parseAddress } from './address.ts';
import {
  ClientConnections,
  drainShare,
  type ListenerOptions,
  type ListenerTls,
  leastForTrailersMs,
} from './client-connections.ts';
import { HalfSent, halfSentBudget } from './half-sent.ts';
import { backlog, handshakeTimeoutMs, tcpKeepAlive } from './http2-settings.ts';
import { errorCode, explainError, ignoreError, isDisconnect } from './node-error.ts';
import { addressOf, beneath } from './peer.ts';
import { parseCertificates, secureContextOptions, type TlsMaterial } from './tls-material.ts';
import { derivedKeys, sessionTimeout, type TicketKeys, ticketKeyCallback } from './tls-sessions.ts';

/** Listens. The error says which address, what is wrong, and is for the operator. */
export async function listen<S extends Listener>(
  options: ListenerOptions,
  make: (at: Address) => S,
): Promise<Result<S>> {
  const at = parseAddress(options.address);
  if (!at.ok) return at;
  const listener = make(at.value);
  const listening = await listener.listen();
  if (listening.ok) return ok(listener);
  await listener.drain(0);
  return listening;
}

/** Returns the address that is bound: HOST:PORT with its port. `failed`: what comes later. */
export function listenOn(
  server: Server,
  target: ListenOptions,
  address: string,
  failed: (error: Error) => void,
): Promise<Result<string>> {
  return new Promise((resolve) => {
    const refused = (error: Error): void => resolve(fail(cannotListen(address, target, error)));
    server.once('error', refused);
    server.listen(target, () => {
      server.off('error', refused);
      server.on('error', failed);
      const bound = server.address();
      const isTcp = typeof bound === 'object' && bound !== null;
      resolve(ok(isTcp ? formatHostPort(bound.address, bound.port) : address));
    });
  });
}

const cannotListen = (address: string, { path }: ListenOptions, error: unknown): string =>
  `cannot listen on ${address}: ${(path && explainSocket(path)) ?? explainError(error)}`;

/** One address: its TLS, its connections, and their end. What is spoken on them is up to its classes. */
export abstract class Listener {
  readonly clock: Clock;
  readonly maxRequestBytes: number;
  readonly halfSent: HalfSent;
  protected readonly clients: ClientConnections;
  readonly #at: Address;
  /** What TLS and HTTP cost is only for connections that are admitted: their servers listen nowhere themselves. */
  readonly #server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: tcpKeepAlive });
  /** Gives tickets, where there are any, and takes none. Undefined: there is no TLS. */
  readonly #fresh: TlsServer | undefined;
  /** Undefined: no session is resumed. */
  readonly #resuming: TlsServer | undefined;
  readonly #options: ListenerOptions;
  #address: string;
  #drained: Promise<void> | undefined;

  /** `messageTimeout`: milliseconds in which a message must have arrived once it has begun; undefined: any. */
  constructor(
    at: Address,
    protocols: readonly string[],
    options: ListenerOptions,
    messageTimeout?: () => number,
  ) {
    const { tls, clock = systemClock, maxRequestBytes, address } = options;
    this.#at = at;
    this.#options = options;
    this.#address = address;
    this.clock = clock;
    this.maxRequestBytes = maxRequestBytes;
    this.halfSent = new HalfSent(clock, halfSentBudget(maxRequestBytes), messageTimeout);
    this.#fresh = tls && this.#tlsServer(tls, protocols);
    this.#resuming = tls?.sessions && this.#tlsServer(tls, protocols);
    if (tls !== undefined) this.#show(tls, tls);
    this.clients = new ClientConnections(
      this.#server,
      (socket) => this.#admitted(socket),
      at.kind === 'unix' ? at.path : undefined,
      clock,
      options,
    );
  }

  /** `alpn`: what TLS has agreed on; undefined without TLS. */
  protected abstract connected(socket: Socket, alpn: string | undefined): void;

  /** Ends what is under way, over the time given; then it resolves. */
  protected abstract end(milliseconds: number): Promise<void>;

  /** As `listening` reports it: HOST:PORT with the port that was bound, or unix:PATH. */
  get address(): string {
    return this.#address;
  }

  /** Open connections, those that are within their TLS handshake too. */
  get connections(): number {
    return this.clients.size;
  }

  async listen(): Promise<Result<void>> {
    const { address, unixMode, reusePort = false } = this.#options;
    const at = this.#at;
    const target: ListenOptions =
      at.kind === 'tcp' ? { host: at.host, port: at.port, reusePort } : { path: at.path };
    if (at.kind === 'unix') await removeStaleSocket(at.path);
    const bound = await listenOn(this.#server, { ...target, backlog }, address, (error) =>
      this.#report('cannot accept connections', error),
    );
    if (!bound.ok) return bound;
    this.#address = bound.value;
    return attempt(
      () => {
        if (at.kind === 'unix' && unixMode !== undefined) chmodSync(at.path, unixMode);
      },
      (error) => cannotListen(address, target, error),
    );
  }

  /**
   * The new certificate holds for connections from now on. Those that are open stay, unless the authority that vouched
   * for the client's certificate is gone: they end, spread over `reviewTime`. It was checked when it was read.
   */
  setTls(material: TlsMaterial): void {
    const { tls } = this.#options;
    if (tls !== undefined) this.#show(material, tls);
    if (material.ca !== undefined) this.clients.replaceAuthorities(material.ca);
  }

  /**
   * Stops listening, sends GOAWAY on every connection, lets end what is under way, and cuts what is left after the time
   * given. Resolves when everything is closed. Later calls get the first one's promise.
   */
  drain(milliseconds: number): Promise<void> {
    this.#drained ??= this.#drain(milliseconds);
    return this.#drained;
  }

  async #drain(milliseconds: number): Promise<void> {
    const closed = new Promise((resolve) => {
      // Its callback comes when the last connection has closed.
      this.#server.close(resolve);
    });
    this.clients.beginDrain();
    const last = Math.max(milliseconds, milliseconds * drainShare + leastForTrailersMs);
    const deadline = this.clock.after(last, () => this.clients.destroyAll());
    await this.end(milliseconds);
    this.halfSent.stop();
    await closed;
    deadline.cancel();
    this.clients.stop();
  }

  /** The last that is said on a connection that is not served. What its client still sends is thrown away, for a while. */
  protected farewell(socket: Socket, text: string): void {
    const timer = this.clock.after(farewellMs, () => socket.destroy());
    socket.once('close', () => timer.cancel());
    socket.resume().end(text);
  }

  /** A bug: something of ours threw in a handler. */
  threw(error: unknown, path: string): void {
    this.#report(`the handler of ${path} failed`, error);
  }

  /** Clients that leave are no fault. */
  #report(message: string, error: unknown, peer?: string): void {
    if (!isDisconnect(error)) this.#options.report?.(message, error, peer);
  }

  #secured(socket: TLSSocket): void {
    socket.on('error', ignoreError);
    this.#options.shookHands?.(socket.isSessionReused() ? 'resumed' : 'full');
    this.connected(socket, socket.alpnProtocol === false ? '' : (socket.alpnProtocol ?? ''));
  }

  /** Node closes the socket of a client whose certificate it refuses, and then says of it only that it was closed. */
  #handshakeFailed(error: Error, socket: TLSSocket): void {
    // A string, whatever its type is declared to be.
    const code: unknown = socket.authorizationError;
    const peer = addressOf(beneath(socket));
    if (typeof code !== 'string') {
      if (errorCode(error) === 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE')
        this.#options.refused?.('certificate_missing');
      if (!isDisconnect(error)) this.#report(handshakeFailed, explainError(error), peer);
      return;
    }
    this.#options.refused?.(code === 'CERT_HAS_EXPIRED' ? 'certificate_expired' : 'certificate_untrusted');
    const why = `the client's certificate is refused: ${explainError({ code })}`;
    this.#report(handshakeFailed, why, peer);
  }

  #admitted(socket: Socket): void {
    // Else the client verifies itself anew. It gets a ticket for its new session.
    const resuming = this.clients.mayResume(socket) ? this.#resuming : undefined;
    const server = resuming ?? this.#fresh;
    if (server === undefined) this.connected(socket, undefined);
    else server.emit('connection', socket);
  }

  #tlsServer(tls: ListenerTls, protocols: readonly string[]): TlsServer {
    const server = createTlsServer({
      ...secureContextOptions(tls),
      ALPNProtocols: [...protocols],
      handshakeTimeout: handshakeTimeoutMs,
      // Without authorities of our own, Node would believe those of the public web.
      requestCert: tls.ca !== undefined,
      rejectUnauthorized: tls.requireClientCertificate,
    });
    server.on('tlsClientError', (error, socket) => {
      this.#handshakeFailed(error, socket);
      socket.destroy(); // one that was not done in time goes on else
    });
    return server.on('secureConnection', (socket) => this.#secured(socket));
  }

  /** For handshakes from now on (ADR 180). */
  #show(material: TlsMaterial, { sessions, requireClientCertificate }: ListenerTls): void {
    const { ticketSecret, ca } = material;
    const keys: TicketKeys | undefined =
      sessions &&
      (ticketSecret === undefined
        ? (hour) => sessions.keys.of(hour)
        : derivedKeys(ticketSecret, sessions.listener));
    const parsed = ca && parseCertificates(ca.toString('latin1'), 'ca');
    const authorities = parsed?.ok === true ? parsed.value.map(({ fingerprint256 }) => fingerprint256) : [];
    // A session is resumed only where its client would be verified in the same way: by this listener and these authorities,
    // whatever certificate the listener shows.
    const verified = [sessions?.listener, requireClientCertificate, ...authorities.toSorted()];
    const sessionIdContext = hash('sha256', JSON.stringify(verified), 'hex').slice(0, 32);
    const { secureOptions = 0, ...shown } = secureContextOptions(material);
    const options = { ...shown, sessionTimeout, sessionIdContext, secureOptions };
    for (const server of [this.#fresh, this.#resuming]) {
      if (server === undefined) continue;
      server.setSecureContext(options);
      const callback = ticketKeyCallback(keys, () => this.clock.now(), server === this.#resuming);
      if (!callBack(server, callback))
        server.setSecureContext({ ...options, secureOptions: secureOptions | constants.SSL_OP_NO_TICKET });
    }
  }
}

/** A client that is refused has so long to read why, in milliseconds. */
const farewellMs = 1000;
const handshakeFailed = 'a TLS handshake failed';

/**
 * Removes the file of a Unix socket that nobody listens on any more: a process that was killed leaves it behind, and
 * it would be "in use" for ever. Anything that is not a socket stays, and so does one that answers.
 */
async function removeStaleSocket(path: string): Promise<void> {
  const info = await lstat(path).catch(() => undefined);
  if (info?.isSocket() !== true) return;
  if (await refuses(path)) await unlink(path).catch(() => undefined);
}

/** What the system's own error would not tell of a path that cannot be listened on. */
function explainSocket(path: string): string | undefined {
  const directory = dirname(path);
  if (!existsSync(directory)) return `there is no directory ${directory}`;
  const info = lstatSync(path, { throwIfNoEntry: false });
  return info === undefined || info.isSocket() ? undefined : 'something else with that name is in the way';
}

function refuses(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ path });
    socket.on('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', (error) => resolve(errorCode(error) === 'ECONNREFUSED'));
  });
}

/**
 * Lets a server ask for the key of each ticket. Node does not document it, and its documented `setTicketKeys` knows one
 * key. False: this Node has no such call, and no session is resumed.
 */
function callBack(server: TlsServer, callback: ReturnType<typeof ticketKeyCallback>): boolean {
  const context: unknown = Reflect.get(Object(Reflect.get(server, '_sharedCreds')), 'context');
  const enable: unknown = Reflect.get(Object(context), 'enableTicketKeyCallback');
  if (typeof context !== 'object' || context === null || typeof enable !== 'function') return false;
  Reflect.set(context, 'onticketkeycallback', callback);
  Reflect.apply(enable, context, []);
  return true;
}
