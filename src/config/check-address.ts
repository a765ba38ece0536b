import { isIPv4, isIPv6 } from 'node:net';
import { fail, ok, type Result } from '../model/result.ts';
import { type Address, parseAddress } from '../wire/address.ts';

export type TcpAddress = Extract<Address, { readonly kind: 'tcp' }>;

const hostName = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?$/i;

/** What sockaddr_un holds on Linux, less the terminating zero. */
const longestUnixPath = 107;

/** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`, with what would otherwise only fail when it is used. */
export function checkAddress(text: string): Result<Address> {
  const parsed = parseAddress(text);
  if (!parsed.ok) {
    return fail(`${parsed.error}${hintFor(text)}`);
  }
  const address = parsed.value;
  if (address.kind === 'unix') {
    const bytes = Buffer.byteLength(address.path);
    if (bytes <= longestUnixPath) return parsed;
    return fail(`the path of a Unix socket may have at most ${longestUnixPath} bytes: this one has ${bytes}`);
  }
  return validHost(address.host, text.startsWith('['))
    ? parsed
    : fail(`${JSON.stringify(address.host)} is neither a host name nor an IP address`);
}

/** What was probably meant by a text that is no address. */
function hintFor(text: string): string {
  if (text.startsWith(':')) return ' (use 0.0.0.0 or [::] as the host for all interfaces)';
  const url = /^\w+:\/\//.test(text) ? URL.parse(text) : undefined;
  if (url && url.hostname !== '') {
    const tls = url.protocol === 'https:' || url.protocol === 'grpcs:';
    const address = `${url.hostname}:${url.port || (tls ? '443' : '80')}`;
    return `: this is a URL: write ${JSON.stringify(address)}${tls ? ' and set tls' : ''}`;
  }
  return /^[\w.-]+$/.test(text) ? ': the port is missing' : '';
}

function validHost(host: string, bracketed: boolean): boolean {
  if (bracketed) return isIPv6(host);
  // Nothing but digits and dots is meant as an IPv4 address: a resolver would look for a host of that name.
  return /^[\d.]+$/.test(host) ? isIPv4(host) : hostName.test(host);
}

/** A host name or an IP address without a port; each `*` in a name stands for any characters. */
export function checkHost(text: string): Result<string> {
  const bare = /^\[(.*)\]$/.exec(text)?.[1];
  const valid =
    bare === undefined ? isIPv6(text) || validHost(text.replaceAll('*', 'x'), false) : isIPv6(bare);
  if (valid) return ok(text);
  return fail(
    `${JSON.stringify(text)} is not a host: use a name without a port, as in "relay.example.com" or "*.relays.svc", or an IP address`,
  );
}

/** `HOST:PORT` or `[IPV6]:PORT`. */
export function checkTcpAddress(text: string): Result<TcpAddress> {
  const checked = checkAddress(text);
  if (!checked.ok) return checked;
  const address = checked.value;
  return address.kind === 'tcp'
    ? ok(address)
    : fail('a Unix socket cannot be used here: use HOST:PORT, as in "127.0.0.1:19000"');
}
