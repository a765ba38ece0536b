import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Account, Accounts } from './accounts.ts';
import { formatHostPort } from './address.ts';
import type { Peer } from './server-stream.ts';

type SubjectAltNames = Readonly<Record<'uris' | 'dns', readonly string[]>>;

const none: SubjectAltNames = { uris: [], dns: [] };

/**
 * Reads Node's text form of a certificate's subject alternative names: `DNS:a, URI:b`. A value that could be mistaken
 * for several is quoted there as a JSON string, so a comma inside a URI cannot invent another name. What does not parse
 * to the end gives nothing at all: an identity is never guessed.
 */
export function parseSubjectAltNames(text: string): SubjectAltNames {
  const uris: string[] = [];
  const dns: string[] = [];
  const entry = /([A-Za-z0-9 ]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
  while (entry.lastIndex < text.length) {
    const found = entry.exec(text);
    const kind = found?.[1];
    const value = found?.[2] === undefined ? undefined : unquote(found[2]);
    if (kind === undefined || value === undefined) return none;
    if (kind === 'URI') uris.push(value);
    else if (kind === 'DNS') dns.push(value);
  }
  return { uris, dns };
}

function unquote(value: string): string | undefined {
  if (!value.startsWith('"')) return value;
  try {
    const parsed: unknown = JSON.parse(value);
    return typeof parsed === 'string' ? parsed : undefined;
  } catch {
    return undefined;
  }
}

type Session = Pick<ClientSession, 'destroyed' | 'encrypted' | 'socket'>;

/** Who is at the other end of a session. `listener` is the path of the Unix socket, if it came in there. */
export function peerOf(
  session: Session,
  listener: string | undefined,
  accounts: Accounts,
  certificate: X509Certificate | undefined = verifiedCertificate(session),
): Peer {
  const names = certificate?.subjectAltName;
  return new SessionPeer(
    session,
    listener,
    names === undefined ? none : parseSubjectAltNames(names),
    accounts,
  );
}

/** Read anew for each call; undefined without TLS, and where it proves nothing. */
export function verifiedCertificate(session: Session): X509Certificate | undefined {
  // Session.socket is a proxy, which only TLS should pay for.
  if (session.encrypted !== true || session.destroyed) return undefined;
  const { socket } = session;
  return socket instanceof TLSSocket && socket.authorized ? socket.getPeerX509Certificate() : undefined;
}

class SessionPeer implements Peer {
  readonly account: Account;
  readonly unix: boolean;
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
  readonly #session: Session;
  #address: string | undefined;

  constructor(session: Session, listener: string | undefined, names: SubjectAltNames, accounts: Accounts) {
    this.#session = session;
    this.#address = listener;
    this.unix = listener !== undefined;
    this.uriSans = names.uris;
    this.dnsSans = names.dns;
    this.account = accounts.of(this);
  }

  get address(): string {
    const session = this.#session;
    this.#address ??= session.destroyed ? 'unknown:0' : addressOf(session.socket);
    return this.#address;
  }
}

/** Of the other end, as far as it is known: a socket that is closed may have forgotten it. */
export function addressOf({
  remoteAddress,
  remotePort,
}: Pick<Socket, 'remoteAddress' | 'remotePort'>): string {
  return addressText(remoteAddress ?? 'unknown', remotePort);
}

/** HOST:PORT. A listener on `[::]` sees IPv4 clients as ::ffff:1.2.3.4. */
export function addressText(address: string, port = 0): string {
  const isMapped = address.startsWith('::ffff:') && address.includes('.');
  return formatHostPort(isMapped ? address.slice('::ffff:'.length) : address, port);
}

/** HTTP on a connection, whichever version: node:http2's sessions are such, and `Http1Session`. */
export interface ClientSession {
  /** It ends when what is under way is done. */
  readonly closed: boolean;
  readonly destroyed: boolean;
  /** By TLS. */
  readonly encrypted?: boolean | undefined;
  readonly socket: Socket;
  /** Lets what is under way end, and takes nothing new. */
  close(): void;
  destroy(): void;
  on(event: 'close', listener: () => void): unknown;
}
