import type { Peer } from '../wire/server-stream.ts';
import { compileGlob } from './pattern.ts';

const dnsPrefix = 'dns:';

/**
 * Whether a peer is one of these: a URI SAN (`spiffe://example.com/*`), or with `dns:` a DNS SAN (`dns:*.example.com`,
 * whatever its case); `*` stands for any characters. A peer without a verified certificate is nobody.
 */
export function compilePrincipals(
  patterns: readonly string[],
): (peer: Pick<Peer, 'uriSans' | 'dnsSans'>) => boolean {
  const dns: ((name: string) => boolean)[] = [];
  const uris: ((uri: string) => boolean)[] = [];
  for (const pattern of patterns) {
    if (pattern.startsWith(dnsPrefix)) dns.push(compileGlob(pattern.slice(dnsPrefix.length).toLowerCase()));
    else uris.push(compileGlob(pattern));
  }
  return (peer) =>
    peer.uriSans.some((uri) => uris.some((matches) => matches(uri))) ||
    peer.dnsSans.some((name) => dns.some((matches) => matches(name.toLowerCase())));
}
