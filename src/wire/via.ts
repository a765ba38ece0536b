import { Code, type GrpcStatus } from './grpc-status.ts';

/**
 * Request header of the streams that a relay opens: the relay itself, then each relay that subscribes to it, directly
 * or through others, as the path that leads down to it: `b/1f, a/77, a/77>c/9`. Who finds itself in there would
 * subscribe to itself.
 */
export const VIA_HEADER = 'x-distributary-via';

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
