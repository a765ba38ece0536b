import type { Peer } from './transport.ts';

/**
 * The identity that a client certificate vouches for: its URI SANs, else its DNS SANs. Undefined without a verified
 * certificate, or if it names nobody. Two certificates of one workload have one identity.
 */
export function verifiedIdentity({
  uriSans,
  dnsSans,
}: Pick<Peer, 'uriSans' | 'dnsSans'>): string | undefined {
  if (uriSans.length > 0) return combined(uriSans);
  return dnsSans.length > 0 ? `dns:${combined(dnsSans)}` : undefined;
}

/** What bounds per peer count by: the verified identity, else the address without its port. */
export function peerKey(peer: Peer): string {
  return verifiedIdentity(peer) ?? (peer.unix ? peer.address : withoutPort(peer.address));
}

/** A name may contain anything, so several are not just joined. */
function combined(names: readonly string[]): string {
  const [only, ...others] = names;
  return only !== undefined && others.length === 0 ? only : JSON.stringify(names.toSorted());
}

function withoutPort(address: string): string {
  return address.slice(0, address.lastIndexOf(':'));
}
