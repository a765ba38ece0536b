import { X509Certificate } from 'node:crypto';
import type { Http2Session } from 'node:http2';
import { Socket } from 'node:net';
import { type DetailedPeerCertificate, type PeerCertificate, TLSSocket } from 'node:tls';
import { unquoted } from '../model/text.ts';
import { formatHostPort } from './address.ts';

/** Who is at the other end of a connection, as far as the connection says it. */
export interface PeerNames {
  /** HOST:PORT, or the path of a Unix socket. */
  readonly address: string;
  readonly unix: boolean;
  /** SANs of the verified client certificate; empty without one. */
  readonly uriSans: readonly string[];
  readonly dnsSans: readonly string[];
}

/**
 * The identity that a client certificate vouches for: its URI SANs, else its DNS SANs. Undefined without a verified
 * certificate, or if it names nobody. Two certificates of one workload have one identity.
 */
export function verifiedIdentity({ uriSans, dnsSans }: SubjectAltNames): string | undefined {
  if (uriSans.length > 0) return combined(uriSans);
  return dnsSans.length > 0 ? `dns:${combined(dnsSans)}` : undefined;
}

/** A client's node: its id, which anybody can say, with the identity that its certificate vouches for. */
export const nodeKeyOf = (nodeId: string, identity: string | undefined): string =>
  JSON.stringify([nodeId, identity]);

/**
 * What bounds per peer count by: the verified identity, else the address without its port. Of IPv6 addresses the first
 * 64 bits count, as one host may have all the others.
 */
export function peerKey(peer: PeerNames): string {
  const identity = verifiedIdentity(peer);
  if (identity !== undefined) return identityKey(identity);
  const { address, unix } = peer;
  return `address ${unix ? address : network(address.slice(0, address.lastIndexOf(':')))}`;
}

export const identityKey = (identity: string): string => `identity ${identity}`;

/** A name may contain anything, so several are not just joined. */
function combined(names: readonly string[]): string {
  const [only, ...others] = names;
  return only !== undefined && others.length === 0 ? only : JSON.stringify(names.toSorted());
}

/** `[2001:db8::1]` → `2001:db8:0:0/64`; anything else as it is. */
function network(host: string): string {
  if (!host.startsWith('[')) return host;
  const [head = '', tail] = host.slice(1, -1).split('::');
  const groups = head === '' ? [] : head.split(':');
  const last = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array.from({ length: 8 - groups.length - last.length }, () => '0');
  return `${[...groups, ...zeros, ...last].slice(0, 4).join(':')}/64`;
}

export type SubjectAltNames = Pick<PeerNames, 'uriSans' | 'dnsSans'>;

/** Of whom no certificate says anything. */
export const nobody: SubjectAltNames = { uriSans: [], dnsSans: [] };

/**
 * Reads Node's text form of a certificate's subject alternative names: `DNS:a, URI:b`. A value that could be mistaken
 * for several is quoted there as a JSON string, so a comma inside a URI cannot invent another name. What does not parse
 * to the end gives nothing at all: an identity is never guessed.
 */
export function parseSubjectAltNames(text: string): SubjectAltNames {
  const uriSans: string[] = [];
  const dnsSans: string[] = [];
  const entry = /([A-Za-z0-9 ]+):("(?:[^"\\]|\\.)*"|[^",]*)(?:, |$)/y;
  while (entry.lastIndex < text.length) {
    const found = entry.exec(text);
    const [, kind, said = ''] = found ?? [];
    const value = said.startsWith('"') ? unquoted(said) : said;
    if (kind === undefined || value === undefined) return nobody;
    if (kind === 'URI') uriSans.push(value);
    else if (kind === 'DNS') dnsSans.push(value);
  }
  return { uriSans, dnsSans };
}

/** As a client has shown it: whether it is known is asked with each connection, and to parse it takes longer. */
export type ShownCertificate = Pick<X509Certificate, 'fingerprint256' | 'raw'>;

/**
 * Read anew for each call; undefined without TLS, where it proves nothing, and where the connection is over. After a full
 * handshake not by `getPeerX509Certificate()`, which takes a tenth of the time: in a server, Node loses the memory of each
 * certificate that a client has shown behind its own (nodejs/node#65579), and a client may show a hundred. A ticket has none.
 */
export function verifiedCertificate(socket: Socket | undefined): ShownCertificate | undefined {
  if (!(socket instanceof TLSSocket) || !socket.authorized) return undefined;
  if (socket.isSessionReused()) return socket.getPeerX509Certificate();
  const shown: Partial<PeerCertificate> | null = socket.getPeerCertificate();
  if (shown?.raw === undefined || shown.fingerprint256 === undefined) return undefined;
  return { fingerprint256: shown.fingerprint256, raw: shown.raw };
}

/** At most so many of those that issued its certificate, the last one first: its client has shown them, or they are known. */
export function issuersOf(socket: Socket | undefined, most: number): readonly X509Certificate[] {
  const issuers: X509Certificate[] = [];
  if (!(socket instanceof TLSSocket)) return issuers;
  let one: Partial<DetailedPeerCertificate> | null | undefined = socket.getPeerCertificate(true);
  for (
    let next = one?.issuerCertificate;
    next?.raw !== undefined && next !== one && issuers.length < most;
  ) {
    issuers.unshift(new X509Certificate(next.raw));
    one = next;
    next = one.issuerCertificate;
  }
  return issuers;
}

/** Whether its TLS session began with another connection: then its client has shown nothing but that. */
export function isResumed(socket: Socket | undefined): socket is TLSSocket {
  return socket instanceof TLSSocket && socket.isSessionReused();
}

/**
 * The socket that TLS is spoken on; without TLS the socket itself. It knows the other end when it is closed too. It is not
 * documented: where it is missing, it is not known.
 */
export function beneath(socket: Socket): Socket {
  const parent: unknown = socket instanceof TLSSocket ? Reflect.get(socket, '_parent') : undefined;
  return parent instanceof Socket ? parent : socket;
}

/** Of the other end, as far as it is known: a socket that is closed may have forgotten it. */
export function addressOf({ remoteAddress = 'unknown', remotePort }: Partial<Socket>): string {
  return addressText(remoteAddress, remotePort);
}

/** HOST:PORT. A listener on `[::]` sees IPv4 clients as ::ffff:1.2.3.4. */
export function addressText(address: string, port = 0): string {
  const isMapped = address.startsWith('::ffff:') && address.includes('.');
  return formatHostPort(isMapped ? address.slice('::ffff:'.length) : address, port);
}

/**
 * HTTP on a connection, whichever version: node:http2's sessions are such, and `Http1Session`. `close` lets what is under way
 * end, and takes nothing new; then it is `closed`, and ends when what is under way is done.
 */
export type ClientSession = Pick<Http2Session, 'closed' | 'destroyed' | 'close' | 'destroy'> & {
  on(event: 'close', listener: () => void): unknown;
};
