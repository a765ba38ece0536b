import { constants, hash } from 'node:crypto';
import type { Socket } from 'node:net';
import { createServer, type SecureContextOptions, type TLSSocket, type Server as TlsServer } from 'node:tls';
import type { Clock } from '../model/clock.ts';
import type { ListenerTls } from './client-connections.ts';
import { handshakeTimeoutMs } from './http2-settings.ts';
import { DerivedKeys, hourOf, sessionTimeout, type TicketKeys, ticketKeyCallback } from './ticket-keys.ts';
import { parseCertificates, secureContextOptions, type TlsMaterial } from './tls-material.ts';

/** TLS of one listener: what it shows, whom it believes, and which sessions are resumed (ADR 180). */
export class TlsAcceptor {
  readonly #tls: ListenerTls;
  readonly #clock: Clock;
  /** Gives tickets, where there are any, and takes none. */
  readonly #fresh: TlsServer;
  /** Undefined: no session is resumed. */
  readonly #resuming: TlsServer | undefined;
  #keys: TicketKeys | undefined;
  /** The hour whose key is the only one. Undefined: those of several hours are taken. */
  #onlyHour: number | undefined;

  /** `secured`, `failed`: what becomes of a handshake. */
  constructor(
    tls: ListenerTls,
    protocols: readonly string[],
    clock: Clock,
    secured: (socket: TLSSocket) => void,
    failed: (error: Error, socket: TLSSocket) => void,
  ) {
    this.#tls = tls;
    this.#clock = clock;
    const server = (): TlsServer => {
      const made = createServer({
        ...secureContextOptions(tls),
        ALPNProtocols: [...protocols],
        handshakeTimeout: handshakeTimeoutMs,
        // Without authorities of our own, Node would believe those of the public web.
        requestCert: tls.ca !== undefined,
        rejectUnauthorized: tls.requireClientCertificate,
      });
      made.on('tlsClientError', failed);
      made.on('secureConnection', secured);
      return made;
    };
    this.#fresh = server();
    this.#resuming = tls.sessions && server();
    this.setMaterial(tls);
  }

  /** `resumes`: false makes the client verify itself anew. It gets a ticket for its new session. */
  accept(socket: Socket, resumes: boolean): void {
    if (this.#onlyHour !== undefined) this.#useKeyOfThisHour();
    const server = resumes ? (this.#resuming ?? this.#fresh) : this.#fresh;
    server.emit('connection', socket);
  }

  /** For handshakes from now on. */
  setMaterial(material: TlsMaterial): void {
    const { sessions } = this.#tls;
    const { ticketSecret } = material;
    this.#keys =
      sessions &&
      (ticketSecret === undefined ? sessions.keys : new DerivedKeys(ticketSecret, sessions.listener));
    this.#set(this.#fresh, material, false);
    if (this.#resuming !== undefined) this.#set(this.#resuming, material, true);
  }

  #set(server: TlsServer, material: TlsMaterial, accepts: boolean): void {
    const { secureOptions = 0, ...shown } = secureContextOptions(material);
    const options = { ...shown, ...this.#sessionOptions(material), secureOptions };
    server.setSecureContext(options);
    const callback = ticketKeyCallback(this.#keys, () => this.#clock.now(), accepts);
    if (callBack(server, callback)) return;
    if (this.#keys === undefined)
      server.setSecureContext({ ...options, secureOptions: secureOptions | constants.SSL_OP_NO_TICKET });
    else if (accepts) this.#onlyHour = Number.NaN;
  }

  /**
   * A session is resumed only where its client would be verified in the same way: by this listener and these authorities,
   * whatever certificate the listener shows.
   */
  #sessionOptions({ ca }: TlsMaterial): SecureContextOptions {
    const { sessions, requireClientCertificate } = this.#tls;
    const parsed = ca && parseCertificates(ca.toString('latin1'), 'ca');
    const authorities = parsed?.ok === true ? parsed.value.map(({ fingerprint256 }) => fingerprint256) : [];
    const verified = [sessions?.listener, requireClientCertificate, ...authorities.toSorted()];
    return { sessionTimeout, sessionIdContext: hash('sha256', JSON.stringify(verified), 'hex').slice(0, 32) };
  }

  #useKeyOfThisHour(): void {
    const hour = hourOf(this.#clock.now());
    const key = this.#keys?.of(hour);
    if (hour === this.#onlyHour || key === undefined) return;
    this.#onlyHour = hour;
    this.#resuming?.setTicketKeys(Buffer.from(key));
  }
}

/**
 * Lets a server ask for the key of each ticket. Node does not document it, and its documented `setTicketKeys` knows one
 * key. False: this Node has no such call.
 */
function callBack(server: TlsServer, callback: ReturnType<typeof ticketKeyCallback>): boolean {
  const context: unknown = Reflect.get(Object(Reflect.get(server, '_sharedCreds')), 'context');
  const enable: unknown = Reflect.get(Object(context), 'enableTicketKeyCallback');
  if (typeof context !== 'object' || context === null || typeof enable !== 'function') return false;
  Reflect.set(context, 'onticketkeycallback', callback);
  Reflect.apply(enable, context, []);
  return true;
}
