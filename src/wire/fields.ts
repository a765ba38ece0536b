import { WireType } from '@bufbuild/protobuf/wire';

/** As numbers, to be compared with those of a message. */
const varint: number = WireType.Varint;
const bit64: number = WireType.Bit64;
const lengthDelimited: number = WireType.LengthDelimited;
const startGroup: number = WireType.StartGroup;
const endGroup: number = WireType.EndGroup;
const bit32: number = WireType.Bit32;
const longestOneByte = 0x7f;

/**
 * Calls `visit` with the number and the range of each length-delimited field of a message, and skips the others. Throws
 * a RangeError if the message is cut off, as protobuf's readers do.
 */
export function fieldsOf(
  bytes: Buffer,
  start: number,
  end: number,
  visit: (field: number, start: number, end: number) => void,
): void {
  if (end > bytes.length) throw new RangeError('premature EOF');
  let position = start;
  while (position < end) {
    const tag = bytes[position] ?? 0;
    if (tag > longestOneByte || (tag & 7) !== lengthDelimited) {
      position = slowly(bytes, position, end, visit);
      continue;
    }
    const length = lengthAt(bytes, ++position);
    const from = contentOf(bytes, position);
    const to = from + length;
    if (to > end) throw new RangeError('premature EOF');
    visit(tag >>> 3, from, to);
    position = to;
  }
}

/** The length of a field that is written here. A RangeError if it has more than five bytes. */
export function lengthAt(bytes: Buffer, position: number): number {
  let byte = bytes[position] ?? 0;
  let length = byte & longestOneByte;
  for (let shift = 7; byte > longestOneByte; shift += 7) {
    if (shift > 28) throw new RangeError('invalid length');
    byte = bytes[position + shift / 7] ?? 0;
    length += (byte & longestOneByte) * 2 ** shift;
  }
  return length;
}

/** Where the content begins whose length, which `lengthAt` has read, is written here. */
export function contentOf(bytes: Buffer, position: number): number {
  let last = position;
  while ((bytes[last] ?? 0) > longestOneByte) last++;
  return last + 1;
}

/** A field whose tag is no single byte of a length-delimited one. */
function slowly(
  bytes: Buffer,
  position: number,
  end: number,
  visit: (field: number, start: number, end: number) => void,
): number {
  const next = skipField(bytes, position, end);
  const tag = varintAt(bytes, position);
  if ((tag & 7) === lengthDelimited) {
    const content = contentOf(bytes, position);
    visit(tag >>> 3, contentOf(bytes, content), next);
  }
  return next;
}

const longestVarint = 10;

/** The position behind a field, whatever it is. A RangeError if it is cut off or none. */
export function skipField(bytes: Buffer, position: number, end: number): number {
  let depth = 0;
  let at = position;
  do {
    const tag = varintAt(bytes, at);
    if (tag >>> 3 === 0) throw new RangeError('illegal tag: field no 0');
    at = behindVarint(bytes, at, end);
    switch (tag & 7) {
      case varint:
        at = behindVarint(bytes, at, end);
        break;
      case bit64:
        at += 8;
        break;
      case lengthDelimited:
        at = contentOf(bytes, at) + lengthAt(bytes, at);
        break;
      // Groups, by counting and not by recursion: they may be as deep as the message is long.
      case startGroup:
        depth++;
        break;
      case endGroup:
        depth--;
        break;
      case bit32:
        at += 4;
        break;
      default:
        throw new RangeError(`illegal tag: wire type ${tag & 7}`);
    }
    if (depth < 0) throw new RangeError('a group ends that has not begun');
    if (at > end || (at === end && depth > 0)) throw new RangeError('premature EOF');
  } while (depth > 0);
  return at;
}

/** Of a tag: the low 32 bits. */
function varintAt(bytes: Buffer, position: number): number {
  let value = 0;
  for (let at = position, shift = 0; shift < 32; at++, shift += 7) {
    const byte = bytes[at] ?? 0;
    value |= (byte & longestOneByte) << shift;
    if (byte <= longestOneByte) break;
  }
  return value >>> 0;
}

function behindVarint(bytes: Buffer, position: number, end: number): number {
  const last = Math.min(end, position + longestVarint);
  for (let at = position; at < last; at++) if ((bytes[at] ?? 0) <= longestOneByte) return at + 1;
  throw new RangeError(last === end ? 'premature EOF' : 'invalid varint');
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true });
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Short ASCII is the rule; only what is not goes through the decoder. */
export function textOf(bytes: Buffer, start: number, end: number): string {
  return isAscii(bytes, start, end)
    ? bytes.toString('latin1', start, end)
    : utf8.decode(bytes.subarray(start, end));
}

/** The same; a TypeError if it is not UTF-8. */
export function strictTextOf(bytes: Buffer, start: number, end: number): string {
  return isAscii(bytes, start, end)
    ? bytes.toString('latin1', start, end)
    : strictUtf8.decode(bytes.subarray(start, end));
}

function isAscii(bytes: Buffer, start: number, end: number): boolean {
  for (let index = start; index < end; index++) if ((bytes[index] ?? 0) > 0x7f) return false;
  return true;
}
