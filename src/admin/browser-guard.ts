import type { IncomingMessage } from 'node:http';
import { isIP, SocketAddress } from 'node:net';
import { quote } from '../model/text.ts';
import { compileGlob } from '../security/pattern.ts';
import { isLoopback } from '../wire/address.ts';

/**
 * What a web page could make its reader's browser do to this listener (ADR 71). DNS rebinding: the page's own name is
 * made to point here, so that the browser lets the page read answers; the Host header still says that name. And requests
 * that a page sends to another origin without reading the answers: browsers mark them.
 */
export interface ServedHosts {
  /** As configured in admin.address. */
  readonly bound: string;
  /** admin.hosts: names and addresses, `*` stands for any characters. */
  readonly hosts: readonly string[];
}

/** They reveal little, and a probe through a NAT names an address that is not the relay's own. */
const probes: ReadonlySet<string> = new Set(['/healthz', '/ready', '/metrics']);

/** Why a request for such a host is refused; undefined: it is served. Browsers always send a host. */
export function refusedHost(request: IncomingMessage, path: string, served: ServedHosts): string | undefined {
  const refused = namedHosts(request).find((named) => {
    const host = hostOf(named);
    return host === undefined || !isServed(host, request, path, served);
  });
  if (refused === undefined) return undefined;
  const hosts = served.hosts.length === 0 ? 'none yet' : served.hosts.join(', ');
  return `the host ${quote(refused, 100)} is refused (DNS rebinding): expected localhost, a loopback address, ${served.bound} (admin.address), the address that was connected to, or a name in admin.hosts: ${hosts}`;
}

/** Why a request that may change something is refused: a page of another origin made it. Undefined: it is served. */
export function refusedOrigin({ headers }: IncomingMessage): string | undefined {
  const site = headers['sec-fetch-site'];
  const crossSite = site !== undefined && site !== 'same-origin' && site !== 'none';
  const { origin } = headers;
  const crossOrigin =
    origin !== undefined && URL.parse(origin)?.host.toLowerCase() !== headers.host?.toLowerCase();
  if (!crossSite && !crossOrigin) return undefined;
  const from = origin === undefined ? 'another site' : quote(origin, 100);
  return `a web page of ${from} may not call this: only pages of this listener may, and clients that are not browsers`;
}

/** A request as to a proxy (RFC 9112 §3.2.2) names a host in its target, too: both must be served. */
function namedHosts({ url = '', headersDistinct }: IncomingMessage): readonly string[] {
  const named = headersDistinct['host'] ?? [];
  return url.startsWith('/') || url === '*' ? named : [...named, URL.parse(url)?.host ?? url];
}

function isServed(host: string, { socket }: IncomingMessage, path: string, served: ServedHosts): boolean {
  // DNS rebinding needs a name: a page from an address belongs to whoever has the address.
  if (probes.has(path) && isIP(host) !== 0) return true;
  if (isLoopback(host) || host === canonical(socket.localAddress ?? '')) return true;
  if (host === canonical(served.bound)) return true;
  return served.hosts.some((pattern) => compileGlob(canonical(pattern))(host));
}

/** Without the port: it may be a forwarded one. Undefined: it is no host at all. */
function hostOf(authority: string): string | undefined {
  const [, address, name] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d*)?$/i.exec(authority) ?? [];
  const host = address ?? name;
  return host === undefined ? undefined : canonical(host);
}

/** In lower case, without the root's dot; addresses in their one spelling, mapped ones (::ffff:10.0.0.1) as IPv4. */
function canonical(host: string): string {
  const plain = host
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
  if (isIP(plain) !== 6) return plain;
  const { address } = new SocketAddress({ address: plain, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1] ?? address;
}
