import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

const lengthDelimited: number = WireType.LengthDelimited;
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
  const reader = new BinaryReader(bytes);
  reader.pos = position;
  const [field, wire] = reader.tag();
  if (wire === WireType.LengthDelimited) {
    const length = reader.uint32();
    const from = reader.pos;
    if (from + length > end) throw new RangeError('premature EOF');
    visit(field, from, from + length);
    return from + length;
  }
  reader.skip(wire, field);
  if (reader.pos > end) throw new RangeError('premature EOF');
  return reader.pos;
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
