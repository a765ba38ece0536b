import { type ResourceName, resourceName, type TypeUrl } from './brand.ts';
import { deleteIn, getOrMake } from './maps.ts';
import { fail, ok, type Result } from './result.ts';
import { quote } from './text.ts';

/** As many context parameters, and characters, as anybody has use for: what is longer is refused. */
const mostParameters = 128;
const longest = 65_536;

/** Names that are URIs, `xdstp://[authority]/type/id…?params[#directives]` (TP1, protocol §6). */
const scheme = 'xdstp:';
const prefix = 'xdstp://';

export function isXdstp(name: string): boolean {
  return name.startsWith(scheme);
}

/**
 * The one spelling of a name, for the cache: a plain name as it is; of an xdstp name every part decoded and encoded
 * again, context parameters sorted by key, directives dropped (they say how to read a resource, not which one). The
 * error says what is wrong with the name, duplicate keys and a type that is not the stream's included. Undefined: whatever
 * type.
 */
export function canonicalName(name: string, type: TypeUrl | undefined): Result<ResourceName> {
  if (!isXdstp(name)) return ok(resourceName(name));
  const read = canonicalUri(name);
  if (!read.ok) return read;
  if (type === undefined) return ok(read.value.name);
  const expected = type.slice(type.lastIndexOf('/') + 1);
  if (read.value.type !== expected && read.value.type !== `${expected}Collection`) {
    const why = `its type is ${JSON.stringify(read.value.type)}, not ${expected} or ${expected}Collection`;
    return fail(`xdstp name ${JSON.stringify(name)}: ${why}`);
  }
  return ok(read.value.name);
}

/** `canonicalName` of what stands in a body, of whatever type. What is no xdstp name, though it begins like one, stays. */
export function canonicalInBody(name: string): ResourceName {
  const canonical = canonicalName(name, undefined);
  return canonical.ok ? canonical.value : resourceName(name);
}

/** `canonicalName` of several; the error is that of the first that is wrong. */
export function canonicalNames(names: readonly string[], type: TypeUrl): Result<readonly ResourceName[]> {
  const canonical: ResourceName[] = [];
  for (const name of names) {
    const one = canonicalName(name, type);
    if (!one.ok) return one;
    canonical.push(one.value);
  }
  return ok(canonical);
}

/** Of an xdstp name, and its type. */
export function canonicalUri(
  name: string,
): Result<{ readonly type: string | undefined; readonly name: ResourceName }> {
  const bad = (why: string): Result<never> => fail(`xdstp name ${JSON.stringify(name)}: ${why}`);
  if (name.length > longest) {
    return fail(
      `xdstp name ${quote(name, 80)} has ${name.length} characters: at most ${longest} are accepted`,
    );
  }
  const match = form.exec(name);
  if (match === null) return bad('it is not of the form xdstp://[authority]/type/id');
  const [, authority = '', segments = '', parameters = ''] = match;
  const path = segments.split('/');
  return decoding(bad, () => {
    const [type, ...id] = path.map(decode);
    if (id.join('') === '') return bad('it has no id after the type');
    const query = canonicalQuery(parameters);
    if (!query.ok) return bad(query.error);
    const start = `${prefix}${canonicalAuthority(authority)}`;
    return ok({ type, name: resourceName(`${start}${canonicalPath(path)}${query.value}`) });
  });
}

/**
 * The canonical spelling of a prefix: a name begins with `start`, in any spelling, exactly if its canonical spelling
 * begins with the result. Not possible for a prefix that ends within a percent-encoded character, or within the
 * parameters, whose order does not matter.
 */
export function canonicalPrefix(start: string): Result<string> {
  if (!isXdstp(start) || prefix.startsWith(start)) return ok(start);
  const bad = (why: string): Result<never> => fail(`xdstp prefix ${JSON.stringify(start)}: ${why}`);
  if (!start.startsWith(prefix)) return bad('no name begins like this: use xdstp://[authority]/type/id');
  if (/[?#]/.test(start)) {
    return bad(
      'it ends after the path: the order of parameters does not count, so give the path or a whole name',
    );
  }
  const [authority = '', ...path] = start.slice(prefix.length).split('/');
  return decoding(bad, () => ok(`${prefix}${canonicalAuthority(authority)}${canonicalPath(path)}`));
}

/** decodeURIComponent throws on a bare % and on bytes that are not UTF-8, encodeURIComponent on lone surrogates. */
function decoding<T>(bad: (why: string) => Result<never>, read: () => Result<T>): Result<T> {
  try {
    return read();
  } catch (error) {
    if (error instanceof URIError) return bad('its percent-encoding is not valid UTF-8');
    throw error;
  }
}

const decode = (text: string): string => (text.includes('%') ? decodeURIComponent(text) : text);

const canonicalAuthority = (authority: string): string => encode(decode(authority), literalInAuthority);

const canonicalPath = (path: readonly string[]): string =>
  path.map((segment) => `/${encode(decode(segment), literalInPath)}`).join('');

/** The authority, the path with the type first, and the query, all still encoded. */
const form = /^xdstp:\/\/([^/?#]*)\/([^?#]*)(?:\?([^#]*))?/;

function canonicalQuery(query: string): Result<string> {
  if (query === '') return ok('');
  const params = new Map<string, string>();
  for (const part of query.split('&')) {
    if (part === '') continue;
    const equals = part.indexOf('=');
    // A plus sign is itself: this is a URI, not a form.
    const key = decode(equals < 0 ? part : part.slice(0, equals));
    if (key === '') return fail('a context parameter has no key');
    if (params.has(key)) return fail(`the context parameter ${JSON.stringify(key)} is given twice`);
    if (params.size >= mostParameters) {
      return fail(`it has more than ${mostParameters} context parameters`);
    }
    params.set(key, equals < 0 ? '' : decode(part.slice(equals + 1)));
  }
  if (params.size === 0) return ok('');
  const pairs = [...params]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${encode(key, literalInQuery)}=${encode(value, literalInQuery)}`);
  return ok(`?${pairs.join('&')}`);
}

/**
 * RFC 3986 lets more stand for itself than encodeURIComponent does. Names keep it, as gRPC writes them, so that the
 * canonical spelling is mostly the one that a control plane knows.
 */
const literalInPath = /%(?:24|26|2B|2C|3A|3B|3D|40)/g; // $ & + , : ; = @
const literalInAuthority = /%(?:24|26|2B|2C|3A|3B|3D|40|5B|5D)/g; // and [ ] of an IPv6 address
const literalInQuery = /%(?:24|2B|2C|2F|3A|3B|3F|40)/g; // / ? too, but not & =

/** Nothing in it is encoded or has to be, in whatever part of a name. */
const unreserved = /^[\w.~-]*$/;

function encode(text: string, literal: RegExp): string {
  if (unreserved.test(text)) return text;
  return encodeURIComponent(text).replace(literal, decodeURIComponent);
}

/** Of an xdstp name, `''` if it is empty; undefined for plain names. */
export function authorityOf(name: string): string | undefined {
  const authority = form.exec(name)?.[1];
  if (authority === undefined || !authority.includes('%')) return authority;
  try {
    return decodeURIComponent(authority);
  } catch {
    return authority;
  }
}

/**
 * Whether it selects a collection, `xdstp://…/*`. `*` is the wildcard and no glob; a plain name that ends in `/*` is
 * just a name, as that of the virtual host for all domains is.
 */
export function isGlob(name: string): boolean {
  return isXdstp(name) && pathOf(name).endsWith('/*');
}

/** Whether the glob selects the name: one level, context parameters exactly equal. Both in canonical spelling. */
export function globMatches(glob: ResourceName, name: ResourceName): boolean {
  return parentGlob(name) === glob;
}

/** The one glob that selects a name (`globMatches`), whether or not anybody subscribes to it; in canonical spelling. */
export function parentGlob(name: ResourceName): ResourceName | undefined {
  if (!isXdstp(name)) return undefined;
  const path = pathOf(name);
  const slash = path.lastIndexOf('/');
  const last = path.slice(slash + 1);
  if (last === '' || last === '*') return undefined;
  return resourceName(`${path.slice(0, slash)}/*${name.slice(path.length)}`);
}

/** What comes before the context parameters and directives. */
function pathOf(name: string): string {
  const end = name.search(/[?#]/);
  return end < 0 ? name : name.slice(0, end);
}

/** Names by the one glob that selects each: no glob has to be held against all names. Plain names are in none. */
export class GlobIndex {
  readonly #names = new Map<ResourceName, Set<ResourceName>>();

  add(name: ResourceName): void {
    const glob = parentGlob(name);
    if (glob !== undefined) getOrMake(this.#names, glob, () => new Set()).add(name);
  }

  delete(name: ResourceName): void {
    const glob = parentGlob(name);
    if (glob !== undefined) deleteIn(this.#names, glob, name);
  }

  clear(): void {
    this.#names.clear();
  }

  under(glob: ResourceName): Iterable<ResourceName> {
    return this.#names.get(glob) ?? [];
  }
}
