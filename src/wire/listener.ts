import { chmodSync, existsSync, lstatSync } from 'node:fs';
import { lstat, unlink } from 'node:fs/promises';
import { createConnection, createServer, type ListenOptions, Socket } from 'node:net';
import { dirname } from 'node:path';
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { type Clock, systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { boundlessAccounts } from './accounts.ts';
import { type Address, formatHostPort, parseAddress } from './address.ts';
import { ClientConnections, type ClientConnectionsOptions } from './client-connections.ts';
import { backlog, handshakeTimeoutMs, tcpKeepAlive } from './http2-settings.ts';
import { errorCode, explainError, isDisconnect } from './node-error.ts';
import { addressOf } from './peer.ts';
import { checkTlsMaterial, serverContextOptions, type TlsMaterial } from './tls-material.ts';

export interface ListenerTls extends TlsMaterial {
  /** Refuse clients without a certificate of `ca`. Otherwise one is asked for, and believed if it is of `ca`. */
  readonly requireClientCertificate: boolean;
}

/** Where clients connect, and who may. Without accounts nothing of a peer is bounded. */
export interface ListenerOptions extends Partial<Omit<ClientConnectionsOptions, 'unixPath' | 'ca'>> {
  /** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`; port 0 is any free port. */
  readonly address: string;
  /** Of the socket at `unix:PATH`; undefined: what the umask leaves. */
  readonly unixMode?: number | undefined;
  readonly tls?: ListenerTls | undefined;
  /** What went wrong outside of any request, or a bug within one. Repeats are not held back here. */
  readonly report?: (message: string, error: unknown, peer?: string) => void;
}

/** What is spoken on a connection is up to the owner. `alpn`: what TLS has agreed on; undefined without TLS. */
type Connected = (socket: Socket, alpn: string | undefined) => void;

/**
 * Listens. `serve`: what answers on the listener, made before there can be a connection; drained if the listener cannot
 * listen. The error says which address, what is wrong, and is for the operator.
 */
export async function listen<S extends { drain(milliseconds: number): Promise<void> }>(
  options: ListenerOptions,
  protocols: readonly string[],
  serve: (listener: Listener) => S,
): Promise<Result<S>> {
  const { address, tls } = options;
  const at = parseAddress(address);
  if (!at.ok) return at;
  const checked = tls === undefined ? undefined : checkListenerTls(tls);
  if (checked?.ok === false) return fail(`${address}: ${checked.error}`);
  const listener = new Listener(at.value, protocols, options);
  const server = serve(listener);
  const listening = await listener.listen();
  if (listening.ok) return ok(server);
  await server.drain(0);
  return listening;
}

function checkListenerTls(tls: ListenerTls): Result<TlsMaterial> {
  if (tls.requireClientCertificate && tls.ca === undefined)
    return fail('require_client_certificate needs ca');
  if (tls.certificate === undefined) return fail('TLS needs certificate and private_key');
  return checkTlsMaterial(tls);
}

/** One address: its TLS, its connections, and their end. */
export class Listener {
  readonly unixPath: string | undefined;
  readonly clock: Clock;
  readonly connections: ClientConnections;
  readonly #at: Address;
  /** What TLS and HTTP cost is only for connections that are admitted: their servers listen nowhere themselves. */
  readonly #server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: tcpKeepAlive });
  readonly #tls: TlsServer | undefined;
  readonly #options: ListenerOptions;
  #address: string;
  #connected: Connected | undefined;

  constructor(at: Address, protocols: readonly string[], options: ListenerOptions) {
    const { tls, clock = systemClock, accounts = boundlessAccounts(clock) } = options;
    this.#at = at;
    this.#options = options;
    this.#address = options.address;
    this.unixPath = at.kind === 'unix' ? at.path : undefined;
    this.clock = clock;
    this.#tls = tls && this.#createTls(tls, protocols);
    this.connections = new ClientConnections(this.#server, (socket) => this.#admitted(socket), {
      ...options,
      clock,
      accounts,
      unixPath: this.unixPath,
      ca: tls?.ca,
    });
  }

  /** As `listening` reports it: HOST:PORT with the port that was bound, or unix:PATH. */
  get address(): string {
    return this.#address;
  }

  /** Must be called before `listen`: node:cluster may hand over a connection before it says that this process listens. */
  connected(run: Connected): void {
    this.#connected = run;
  }

  async listen(): Promise<Result<undefined>> {
    const { address, unixMode } = this.#options;
    const at = this.#at;
    const target: ListenOptions = at.kind === 'tcp' ? { host: at.host, port: at.port } : { path: at.path };
    if (at.kind === 'unix') await removeStaleSocket(at.path);
    const server = this.#server;
    return new Promise((resolve) => {
      const refused = (error: Error): void => {
        const why = (at.kind === 'unix' ? explainSocket(at.path) : undefined) ?? explainError(error);
        resolve(fail(`cannot listen on ${address}: ${why}`));
      };
      server.once('error', refused);
      server.listen({ ...target, backlog }, () => {
        server.off('error', refused);
        server.on('error', (error) => this.report('cannot accept connections', error));
        if (at.kind === 'unix' && unixMode !== undefined) chmodSync(at.path, unixMode);
        const bound = server.address();
        if (typeof bound === 'object' && bound !== null)
          this.#address = formatHostPort(bound.address, bound.port);
        resolve(ok(undefined));
      });
    });
  }

  /**
   * The new certificate holds for connections from now on. Those that are open stay, unless the authority that vouched
   * for the client's certificate is gone: they end, spread over `reviewTime`. Without TLS: an error.
   */
  setTls(material: TlsMaterial): Result<undefined> {
    if (this.#tls === undefined) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    this.#tls.setSecureContext(serverContextOptions(material));
    if (material.ca !== undefined) this.connections.replaceAuthorities(material.ca);
    return ok(undefined);
  }

  /**
   * Stops listening and sends GOAWAY on every connection. Resolves when `finished` has, and everything is closed; what is
   * open after the time given is cut.
   */
  async drain(milliseconds: number, finished: () => Promise<void>): Promise<void> {
    const closed = new Promise((resolve) => {
      // Its callback comes when the last connection has closed.
      this.#server.close(resolve);
    });
    this.connections.beginDrain();
    const deadline = this.clock.after(milliseconds, () => this.connections.destroyAll());
    await finished();
    await closed;
    deadline.cancel();
    this.connections.stop();
  }

  /** Clients that leave are no fault. */
  report(message: string, error: unknown, peer?: string): void {
    if (!isDisconnect(error)) this.#options.report?.(message, error, peer);
  }

  #createTls(tls: ListenerTls, protocols: readonly string[]): TlsServer {
    const server = createTlsServer({
      ...serverContextOptions(tls),
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
    server.on('secureConnection', (socket: TLSSocket) =>
      this.#connected?.(socket, socket.alpnProtocol === false ? '' : (socket.alpnProtocol ?? '')),
    );
    return server;
  }

  /** Node closes the socket of a client whose certificate it refuses, and then says of it only that it was closed. */
  #handshakeFailed(error: Error, socket: TLSSocket): void {
    // A string, whatever its type is declared to be.
    const code: unknown = socket.authorizationError;
    const peer = addressOf(beneath(socket));
    if (typeof code !== 'string') {
      if (errorCode(error) === 'ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE')
        this.#options.bounds?.refusedCertificate('missing');
      if (!isDisconnect(error)) this.report(handshakeFailed, explainError(error), peer);
      return;
    }
    this.#options.bounds?.refusedCertificate(code === 'CERT_HAS_EXPIRED' ? 'expired' : 'untrusted');
    const why = `the client's certificate is refused: ${explainError({ code })}`;
    this.report(handshakeFailed, why, peer);
  }

  #admitted(socket: Socket): void {
    if (this.#tls === undefined) this.#connected?.(socket, undefined);
    else this.#tls.emit('connection', socket);
  }
}

const handshakeFailed = 'a TLS handshake failed';

/**
 * The socket that TLS is spoken on: it knows the other end when it is closed too. It is not documented: where it is
 * missing, the other end is unknown.
 */
function beneath(socket: TLSSocket): Socket {
  const parent: unknown = Reflect.get(socket, '_parent');
  return parent instanceof Socket ? parent : socket;
}

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
