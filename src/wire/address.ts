import { lookup as lookUp } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { fail, ok, type Result } from '../model/result.ts';

/** A TCP or Unix socket address: to listen on, or to connect to. */
export type Address =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string };

/** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`. Port 0 is any free port. */
export function parseAddress(text: string): Result<Address> {
  if (text.startsWith('unix:')) {
    const path = text.slice('unix:'.length);
    return path === '' ? fail(`address "${text}" has no path after unix:`) : ok({ kind: 'unix', path });
  }
  const parts = /^(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text);
  const host = parts?.[1] ?? parts?.[2];
  const port = Number(parts?.[3]);
  if (host === undefined || port > 65_535) {
    return fail(`address "${text}" must be HOST:PORT, [IPV6]:PORT or unix:PATH, with a port up to 65535`);
  }
  return ok({ kind: 'tcp', host, port });
}

/** The same text. */
export function formatAddress(address: Address): string {
  return address.kind === 'unix' ? `unix:${address.path}` : formatHostPort(address.host, address.port);
}

export function formatHostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Whether only this machine can reach it. */
export function isLoopback(host: string): boolean {
  const family = isIP(host);
  return family === 0 ? host === 'localhost' : loopback.check(host, family === 4 ? 'ipv4' : 'ipv6');
}

/** The addresses of a host name; rejects if there are none. The seam to DNS. */
export type Lookup = (host: string) => Promise<readonly string[]>;

/** As the system resolves names, /etc/hosts included. */
export const systemLookup: Lookup = async (host) =>
  (await lookUp(host, { all: true })).map(({ address }) => address);
