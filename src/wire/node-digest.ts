import { crc32 } from 'node:zlib';

/** Node.extensions (9), length-delimited. Nearly all of the 61 KB that Envoy sends with each request are these. */
const extensionsTag = (9 << 3) | 2;

/**
 * A checksum of an encoded Node without its extensions, which nobody here looks at. Together with the length it tells
 * whether a client's node has changed (protocol §3.1). Of bytes that are no message, all are summed up.
 *
 * It has a loop of its own because clients may send their node with every ACK: to pass over 600 extensions takes 2.4 µs
 * here, 4.6 with a `MessageReader`, and 11 would be needed to sum them up.
 */
export function nodeDigest(node: Buffer): number {
  let sum = 0;
  let from = 0;
  let at = 0;
  while (at < node.length) {
    const start = at;
    const tag = node[at++] ?? 0;
    if (tag > 0x7f || (tag & 7) !== 2) return crc32(node);
    let length = 0;
    let shift = 0;
    let byte: number;
    do {
      byte = node[at++] ?? 0;
      length |= (byte & 0x7f) << shift;
      shift += 7;
    } while (byte > 0x7f && shift < 28);
    at += length;
    if (byte > 0x7f || at > node.length) return crc32(node);
    if (tag !== extensionsTag) continue;
    if (from < start) sum = crc32(node.subarray(from, start), sum);
    from = at;
  }
  return from < node.length ? crc32(node.subarray(from), sum) : sum;
}
