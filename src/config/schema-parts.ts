import { isIPv4, isIPv6 } from 'node:net';
import * as z from 'zod';
import { getOrMake } from '../model/maps.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { knownTypes, typeByName, unknownType } from '../model/types.ts';
import { authorityOf } from '../model/xdstp.ts';
import { parseNamePattern } from '../security/pattern.ts';
import { type Address, parseAddress } from '../wire/address.ts';
import { durationPattern, parseDuration } from './duration.ts';
import type { Path } from './source.ts';

/**
 * A string with a syntax of its own; the output is what it says. The error of `parse` says what is wrong and what is
 * accepted.
 */
export const parsed = <T>(parse: (text: string) => Result<T>, meta: Readonly<Record<string, unknown>> = {}) =>
  z.string().meta(meta).transform(parseWith(parse));

const parseWith =
  <T>(parse: (text: string) => Result<T>) =>
  (text: string, context: z.core.$RefinementCtx): T => {
    const result = parse(text);
    if (result.ok) return result.value;
    context.addIssue(result.error);
    return z.NEVER;
  };

/** Anything but the empty string. */
export const name = () => z.string().min(1);

/** Milliseconds. In YAML, 0 is a number: the one that needs no unit. */
const durationBy = (parse: (text: string) => Result<number>, meta: Readonly<Record<string, unknown>> = {}) =>
  z.preprocess((value) => (value === 0 ? '0' : value), parsed(parse, { pattern: durationPattern, ...meta }));

export const duration = () =>
  durationBy(parseDuration, { type: ['string', 'integer'], minimum: 0, maximum: 0 });

/** A duration of 0 would make no sense. */
export const positiveDuration = () =>
  durationBy((text) => {
    const length = parseDuration(text);
    return length.ok && length.value === 0 ? fail('must be longer than 0') : length;
  });

export const count = (least = 1) => z.int().min(least);

/** HOST:PORT. Port 0 is accepted: any free port. */
export const listenAddress = () => parsed(checkTcpAddress);
/** HOST:PORT or unix:PATH. */
export const listenAnywhere = () => parsed(checkAddress);
/** HOST:PORT or unix:PATH; the port is one that can be connected to. */
export const endpoint = () =>
  parsed((text) => {
    const address = checkAddress(text);
    const unreachable = address.ok && address.value.kind === 'tcp' && address.value.port === 0;
    return unreachable ? fail(`${JSON.stringify(text)} has port 0: use 1 to 65535`) : address;
  });

/** A short name such as `cds`, or a type URL. */
export const resourceType = () =>
  parsed(
    (text) => {
      const url = typeByName(text);
      return url === undefined ? fail(unknownType(text)) : ok(url);
    },
    { examples: knownTypes.map((info) => info.short) },
  );

/** The name of a resource, or a prefix of names with a trailing `*`. */
export const resourceNames = () => name().transform(parseWith(parseNamePattern));

/** An xdstp authority: the part between `xdstp://` and the next slash. */
export const authority = () =>
  parsed((text) => {
    // As in names, it is the same in every spelling.
    if (text !== '' && !/[/?#\s]/.test(text)) return ok(authorityOf(`xdstp://${text}/`) ?? text);
    return fail(
      `${JSON.stringify(text)} is not an authority: use the part after "xdstp://", as in "example.com"`,
    );
  });

/** A subject alternative name: a URI, or `dns:NAME`; either may have a `*`. */
export const principal = () =>
  parsed((text) => {
    if (/^[a-z][a-z0-9+.-]*:./i.test(text)) return ok(text);
    return fail(
      `${JSON.stringify(text)} is not a principal: use a URI as in "spiffe://example.com/*", or "dns:*.example.com"`,
    );
  });

/**
 * A check of several keys of one mapping or list. It also runs when some of them are wrong in themselves, so that every
 * problem is reported at once: it must not assume any types, and reads values with `read`.
 */
export const evenIfWrong = {
  when: ({ value }: { readonly value: unknown }) => typeof value === 'object' && value !== null,
};

/** Keys of durations: in code they are in milliseconds, and end in `Ms`. */
// biome-ignore format: a list
const durations = [
  'removal_grace', 'max_connection_age', 'drain_delay', 'drain_timeout', 'time', 'timeout', 'bake', 'max_wait',
  'max_age', 'initial', 'max', 'connect_timeout', 'resource_timeout', 'failback_after', 'max_removal_hold',
  'idle_ttl', 'stalled_timeout', 'first_request_timeout', 'max_work_per_peer', 'interval',
] as const;

type Camel<Key extends string> = Key extends `${infer Start}_${infer Rest}`
  ? `${Start}${Capitalize<Camel<Rest>>}`
  : Key;
type KeyInCode<Key extends string> = Key extends (typeof durations)[number] ? `${Camel<Key>}Ms` : Camel<Key>;
type InCode<T> = { [Key in keyof T as Key extends string ? KeyInCode<Key> : never]: T[Key] };

const camel = (key: string): string => key.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
const keysInCode = new Map<string, string>(durations.map((key) => [key, `${camel(key)}Ms`]));

/** `idle_ttl` is `idleTtlMs`. */
export const keyInCode = (key: string): string => keysInCode.get(key) ?? camel(key);

/** A mapping of the file as the program uses it: its keys in camelCase, durations as `…Ms`. */
export function inCode<T extends object>(mapping: T): InCode<T>;
export function inCode(mapping: object): object {
  const entries = Object.entries<unknown>({ ...mapping });
  return Object.fromEntries(entries.map(([key, value]) => [keyInCode(key), value]));
}

/** A field of a value that may be anything. */
export const read = (value: unknown, key: string | number): unknown =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? Reflect.get(value, key)
    : undefined;

/** Undefined where there is nothing. */
export const valueAt = (value: unknown, path: Path): unknown =>
  path.reduce((inner: unknown, key) => read(inner, key), value);

/** In place, where there is something around it. */
export function putAt(value: unknown, path: Path, replacement: unknown): void {
  Reflect.set(Object(valueAt(value, path.slice(0, -1))), path.at(-1) ?? '', replacement);
}

export const readText = (value: unknown, key: string): string | undefined => {
  const field = read(value, key);
  return typeof field === 'string' ? field : undefined;
};

export const readList = (value: unknown, key: string): readonly unknown[] => {
  const field = read(value, key);
  return Array.isArray(field) ? field : [];
};

/** Where the relay is the client. */
// biome-ignore format: a table, one key a line
export const clientTls = (server: string, defaultName: string) => z.strictObject({
  ca: name().optional().describe(`PEM file of the authorities that the ${server}'s certificate is verified against; default: those that come with Node`),
  certificate: name().optional().describe("PEM file of the relay's own certificate chain, for mutual TLS"),
  private_key: name().optional().describe('PEM file of its key'),
  server_name: name().optional().describe(`Name to ask for (SNI) and to verify; default: the ${defaultName}'s host`),
});

export function certificateWithKey(given: unknown, context: z.core.$RefinementCtx): void {
  if ((read(given, 'certificate') === undefined) === (read(given, 'private_key') === undefined)) return;
  const missing = read(given, 'certificate') === undefined ? 'certificate' : 'private_key';
  context.addIssue(`certificate and private_key belong together: ${missing} is missing`);
}

export const tlsOf = ({
  ca,
  certificate,
  private_key: privateKey,
  server_name,
}: z.output<ReturnType<typeof clientTls>>) => ({
  ca,
  identity: certificate === undefined || privateKey === undefined ? undefined : { certificate, privateKey },
  serverName: server_name,
});

/** A check of a list. `say`: that an entry has the name, in quotation marks, of the one at `first`. */
export const uniqueNames =
  (say: (name: string, first: number) => string) =>
  (list: unknown, context: z.core.$RefinementCtx): void => {
    const firsts = new Map<string, number>();
    for (const [index, entry] of (Array.isArray(list) ? list : []).entries()) {
      const name = readText(entry, 'name');
      const first = name === undefined ? index : getOrMake(firsts, name, () => index);
      if (first === index) continue;
      context.addIssue({ code: 'custom', path: [index, 'name'], message: say(JSON.stringify(name), first) });
    }
  };

/** A check of an entry that has one of two keys. */
export const exactlyOne =
  (what: string, one: string, other: string) =>
  (entry: unknown, context: z.core.$RefinementCtx): void => {
    const isSet = read(entry, one) !== undefined;
    if (isSet !== (read(entry, other) !== undefined)) return;
    context.addIssue(`expected either ${one} or ${other}: this ${what} has ${isSet ? 'both' : 'neither'}`);
  };

type TcpAddress = Extract<Address, { readonly kind: 'tcp' }>;

const hostName = /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?$/i;

/** What sockaddr_un holds on Linux, less the terminating zero. */
const longestUnixPath = 107;

/** `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`, with what would otherwise only fail when it is used. */
function checkAddress(text: string): Result<Address> {
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
function checkTcpAddress(text: string): Result<TcpAddress> {
  const checked = checkAddress(text);
  if (!checked.ok) return checked;
  const address = checked.value;
  return address.kind === 'tcp'
    ? ok(address)
    : fail('a Unix socket cannot be used here: use HOST:PORT, as in "127.0.0.1:19000"');
}
