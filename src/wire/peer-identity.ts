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
export function verifiedIdentity({
  uriSans,
  dnsSans,
}: Pick<PeerNames, 'uriSans' | 'dnsSans'>): string | undefined {
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
