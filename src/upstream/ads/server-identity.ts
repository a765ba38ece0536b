import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { shorten } from '../../model/text.ts';
import { compilePrincipals } from '../../security/pattern.ts';
import { parseSubjectAltNames } from '../../wire/peer.ts';

/** Who a control plane has to be. */
export interface ServerIdentity {
  /** The name or address that its certificate must be for, unless there are `identities`. */
  readonly host: string;
  /** URIs and `dns:NAME`s, `*` stands for any characters: its certificate must have one of them. Empty: `host` counts. */
  readonly identities: readonly string[];
}

/**
 * Why a certificate, whose chain has been verified, is not one of the control plane that is meant; undefined if it is.
 * Only subject alternative names count (RFC 9525): Node would take the common name where there is no DNS name, which an
 * authority that vouches for URIs need not have looked at.
 */
export function identityError(
  { host, identities }: ServerIdentity,
  peer: PeerCertificate,
): Error | undefined {
  const names = peer.subjectaltname ?? '';
  const { uris, dns } = parseSubjectAltNames(names);
  const has = `the control plane's certificate has ${names === '' ? 'no subject alternative name' : shorten(names, 300)}`;
  const isFor = (name: string): boolean =>
    (isIP(name) !== 0 || dns.length > 0) && checkServerIdentity(name, peer) === undefined;
  if (identities.length === 0) {
    if (isFor(host)) return undefined;
    return new Error(`${has}: it is not for ${host} (see server_name and server_identities)`);
  }
  const named = compilePrincipals(identities)({ uriSans: uris, dnsSans: dns });
  // A certificate may have wildcards of its own, which stand for one label.
  if (named || identities.some((identity) => identity.startsWith('dns:') && isFor(identity.slice(4)))) {
    return undefined;
  }
  return new Error(`${has}: none of it is in server_identities: ${identities.join(', ')}`);
}
