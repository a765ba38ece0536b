import { resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { internParameters, NO_PARAMETERS } from '../model/parameters.ts';
import { type Interest, WILDCARD } from '../model/transaction.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { encodeStatus } from './responses.ts';

/**
 * Request header of the streams that a relay opens: the relay itself, then each relay that subscribes to it, directly
 * or through others, as the path that leads down to it: `b/1f, a/77, a/77>c/9`. Who finds itself in there would
 * subscribe to itself.
 */
export const VIA_HEADER = 'x-distributary-via';

/**
 * Client feature of a relay that passes variants through (NATIVE): its plain names are locators without parameters.
 * To any other server they look like everybody's names (protocol §5b); this one must not derive parameters for
 * them, and sends their constraints.
 */
export const PASSES_VARIANTS = 'distributary.passes-variants';

/** node.user_agent_name of a relay. */
export const USER_AGENT = 'distributary';

/** HTTP/2 servers refuse headers that are too large: Envoy from 60 KiB on, grpc-go from 16 MiB, proxies from 8 KiB. */
const longestHeader = 7936;
/**
 * Where nobody is verified, anybody may say that relays are below: so much that a control plane or proxy that takes 8 KiB
 * in all takes it beside the rest.
 */
export const longestUnverified = 2048;
const mostHops = 16;
const longestHop = 64;
const hopPattern = /^[\w.!~*'()%-]+\/[\w-]+$/;

/** Unlike node.id alone, unique: many relays are left with the same default. The beginning of a long node.id will do. */
export function relayId(nodeId: string, instance: string): string {
  const name = encodeURIComponent(nodeId.toWellFormed() || 'distributary');
  const room = longestHop - instance.length - 1;
  const beginning = name.length <= room ? name : name.slice(0, room).replace(/%.?$/, '');
  return `${beginning}/${instance}`;
}

/**
 * The paths below us that a stream announces: to its sender, and on from there. What is not understood is left out, and
 * so is what no relay sends: longer paths, longer hops, and whatever is past the length of a header.
 */
export function pathsBelow(header: string | undefined): readonly string[] {
  if (header === undefined) return [];
  const [sender = '', ...further] = header
    .slice(0, longestHeader)
    .split(',')
    .map((part) => part.trim())
    .filter(isPath);
  if (sender === '') return [];
  return [sender, ...further.map((path) => `${sender}>${path}`).filter(isPath)];
}

function isPath(path: string): boolean {
  const hops = path.split('>');
  return hops.length <= mostHops && hops.every((hop) => hop.length <= longestHop && hopPattern.test(hop));
}

/** The header that our own streams send, in so many bytes. If not all relays fit, the nearer ones come first. */
export function formatVia(own: string, paths: Iterable<string>, longest: number = longestHeader): string {
  const sorted = [...new Set(paths)]
    .map((path) => ({ path, hops: path.split('>').length }))
    .filter(({ hops }) => hops < mostHops)
    .toSorted((a, b) => a.hops - b.hops || (a.path < b.path ? -1 : 1));
  let header = own;
  for (const { path } of sorted) {
    if (header.length + 2 + path.length > longest) break;
    header += `, ${path}`;
  }
  return header;
}

/** Whether a stream that announced `said` has left out something of `now`. */
export function announcesMore(said: string, now: string): boolean {
  const known = new Set(said.split(', '));
  return now.split(', ').some((path) => !known.has(path));
}

/** Why a stream with these paths cannot be taken; undefined if none of them leads to us. */
export function loopOf(own: string, paths: readonly string[]): GrpcStatus | undefined {
  for (const path of paths) {
    const hops = path.split('>');
    const end = hops.indexOf(own);
    if (end < 0) continue;
    const loop = [own, ...hops.slice(0, end + 1)];
    const message = `loop: ${readable(loop).join(' → ')}: this relay would get its resources from itself; look at the upstreams of these relays`;
    return { code: Code.FAILED_PRECONDITION, message };
  }
  return undefined;
}

/** The names alone if they are distinct, else the whole ids. */
function readable(ids: readonly string[]): readonly string[] {
  const names = ids.map((id) => id.slice(0, id.lastIndexOf('/')));
  if (new Set(names).size < new Set(ids).size) return ids;
  try {
    return names.map(decodeURIComponent);
  } catch {
    return names;
  }
}

/**
 * How replicas of a relay ask each other while their control plane is away (docs/adr/0126-siblings.md): over delta ADS,
 * as a relay of variants, on streams with this request header. Its value is the id of the relay that asks. Who answers
 * asks nobody, so no such stream leads in a circle.
 */
export const SIBLING_HEADER = 'x-distributary-sibling';

/**
 * A type that only siblings know: a resource for each interest that a relay can answer, whose name says which. Who
 * subscribes to its wildcard learns what to ask for.
 */
export const INTERESTS_TYPE: TypeUrl = typeUrl('type.googleapis.com/distributary.sibling.v1.Interest');

export const ALL_INTERESTS: Interest = {
  type: INTERESTS_TYPE,
  selector: WILDCARD,
  parameters: NO_PARAMETERS,
};

/** An interest as the name of a resource. */
export function nameOfInterest({ type, selector, parameters }: Interest): string {
  return JSON.stringify([type, selector, ...[...parameters.entries].flat()]);
}

/** Undefined: it is not one. */
export function interestOfName(name: string): Interest | undefined {
  const parts = stringsOf(name);
  const [type, selector, ...rest] = parts ?? [];
  if (type === undefined || type === INTERESTS_TYPE || selector === undefined || rest.length % 2 !== 0)
    return undefined;
  const pairs: [string, string][] = [];
  for (let at = 0; at < rest.length; at += 2) pairs.push([rest[at] ?? '', rest[at + 1] ?? '']);
  return {
    type: typeUrl(type),
    selector: resourceName(selector),
    parameters: internParameters(pairs),
  };
}

function stringsOf(text: string): readonly string[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((part) => typeof part === 'string') ? value : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Client feature of a relay that is told, in full-state SotW responses, which names are unknown: a resource error with
 * UNKNOWN_STATUS for each (protocol §3.13). To it, what such a response lacks and does not say is unknown is absent.
 */
export const UNKNOWN_NAMES = 'distributary.unknown-names';

/** The google.rpc.Status of these resource errors. It goes from a relay to a relay, and never further. */
export const UNKNOWN_STATUS = encodeStatus(Code.UNAVAILABLE, 'distributary: not known yet');

export function isUnknownName({ status }: { readonly status: Uint8Array }): boolean {
  return status.length === UNKNOWN_STATUS.length && Buffer.compare(status, UNKNOWN_STATUS) === 0;
}
