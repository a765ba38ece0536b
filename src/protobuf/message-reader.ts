import { isUtf8 } from 'node:buffer';
import { type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { WireType } from '@bufbuild/protobuf/wire';

/** As numbers, to be compared with those of a message. */
const varint: number = WireType.Varint;
const bit64: number = WireType.Bit64;
const lengthDelimited: number = WireType.LengthDelimited;
const startGroup: number = WireType.StartGroup;
const endGroup: number = WireType.EndGroup;
const bit32: number = WireType.Bit32;
/** Instead of a wire type: the tag is no single byte, or none at all. */
const unusual = -1;
const longestOneByte = 0x7f;

/** What `MessageReader.tag` is for a field of this number and wire type. */
export const bytesTag = (field: number): number => ((field << 3) | lengthDelimited) >>> 0;
export const varintTag = (field: number): number => ((field << 3) | varint) >>> 0;
export const doubleTag = (field: number): number => ((field << 3) | bit64) >>> 0;

/**
 * Reads a message field by field, without its schema and without a copy:
 *
 *     for (const reader = new MessageReader(bytes); reader.next(); ) {
 *       if (reader.tag === nameTag) name = reader.text();
 *     }
 *
 * Fields that nobody asks for are skipped, and so are known numbers with another wire type, as protobuf has it. Of a
 * field that is not repeated the last one counts. `next` throws a RangeError if the message is cut off or malformed.
 */
export class MessageReader {
  /** The current field's number and wire type, as encoded. */
  tag = 0;
  /** Where the current field begins. */
  fieldStart = 0;
  /** Where the content of the current field begins: behind the tag, and behind the length if it has one. */
  start = 0;
  /** Where the current field ends. */
  end: number;
  readonly #bytes: Buffer;
  #limit: number;

  constructor(bytes: Uint8Array, start = 0, end: number = bytes.length) {
    if (end > bytes.length) throw new RangeError('premature EOF');
    this.#bytes = asBuffer(bytes);
    this.#limit = end;
    this.end = start;
  }

  get field(): number {
    return this.tag >>> 3;
  }

  /** Goes to the next field; false at the end of the message. */
  next(): boolean {
    const bytes = this.#bytes;
    const at = this.end;
    if (at >= this.#limit) return false;
    this.fieldStart = at;
    const tag = bytes[at] ?? 0;
    const type = tag > longestOneByte || tag < 8 ? unusual : tag & 7;
    if (type === varint) {
      this.tag = tag;
      this.start = at + 1;
      this.end = behindVarint(bytes, at + 1, this.#limit);
      return true;
    }
    if (type !== lengthDelimited) {
      this.#anyField(at);
      return true;
    }
    this.tag = tag;
    const first = bytes[at + 1] ?? 0;
    const isShort = first <= longestOneByte;
    this.start = isShort ? at + 2 : contentOf(bytes, at + 1);
    this.end = this.start + (isShort ? first : lengthAt(bytes, at + 1));
    if (this.end > this.#limit) throw new RangeError('premature EOF');
    return true;
  }

  /** A string. An error if it is not UTF-8, or two names could become one. */
  text(): string {
    return textOf(this.#bytes, this.start, this.end);
  }

  /** A string that is only shown or compared with what an operator wrote: what is not UTF-8 is replaced. Its beginning. */
  lossyText(mostBytes = Number.POSITIVE_INFINITY): string {
    return this.#bytes.toString('utf8', this.start, Math.min(this.end, this.start + mostBytes));
  }

  /** The whole field as it is encoded, a character for each byte. */
  encoded(): string {
    return this.#bytes.toString('latin1', this.fieldStart, this.end);
  }

  /** A view of the content, valid as long as the message's buffer. */
  view(): Buffer {
    return this.#bytes.subarray(this.start, this.end);
  }

  /** A reader of the message that the field holds. */
  message(): MessageReader {
    return new MessageReader(this.#bytes, this.start, this.end);
  }

  /**
   * Goes on with the fields between these two positions, without a reader of their own. What it returns is for `leave`,
   * which goes on behind them.
   */
  enter(start: number, end: number): number {
    const limit = this.#limit;
    this.#limit = end;
    this.end = start;
    return limit;
  }

  leave(limit: number): void {
    this.end = this.#limit;
    this.#limit = limit;
  }

  int32(): number {
    return lowBits(this.#bytes, this.start) | 0;
  }

  uint32(): number {
    return lowBits(this.#bytes, this.start);
  }

  /** Beyond 2^53 it is rounded. */
  uint64(): number {
    if (this.end - this.start <= shortVarint) return lowBits(this.#bytes, this.start);
    let value = 0;
    let scale = 1;
    for (let at = this.start; at < this.end; at++, scale *= 128) {
      value += ((this.#bytes[at] ?? 0) & longestOneByte) * scale;
    }
    return value;
  }

  /** Beyond 2^53 the nearest double. */
  int64(): number {
    let value = 0n;
    for (let at = this.start, shift = 0n; at < this.end; at++, shift += 7n) {
      value |= BigInt((this.#bytes[at] ?? 0) & longestOneByte) << shift;
    }
    return Number(BigInt.asIntN(64, value));
  }

  bool(): boolean {
    return this.#bytes.subarray(this.start, this.end).some((byte) => (byte & longestOneByte) !== 0);
  }

  double(): number {
    return this.#bytes.readDoubleLE(this.start);
  }

  /** A field of another wire type, or whose tag is not a single byte. */
  #anyField(at: number): void {
    const bytes = this.#bytes;
    this.end = skipField(bytes, at, this.#limit);
    this.tag = lowBits(bytes, at);
    const content = contentOf(bytes, at);
    this.start = (this.tag & 7) === lengthDelimited ? contentOf(bytes, content) : content;
  }
}

/** The length that is written at `position`. A RangeError if it has more than five bytes. */
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

/** Where the varint at `position` ends. For a length that is where its content begins. */
export function contentOf(bytes: Buffer, position: number): number {
  let last = position;
  while ((bytes[last] ?? 0) > longestOneByte) last++;
  return last + 1;
}

const longestVarint = 10;
const longestTag = 5;
/** A varint of so many bytes has 28 bits. */
const shortVarint = 4;

/** The position behind a field, whatever it is. A RangeError if it is cut off or malformed. */
export function skipField(bytes: Buffer, position: number, end: number): number {
  let depth = 0;
  let at = position;
  do {
    const tag = lowBits(bytes, at);
    at = behindTag(bytes, at, end);
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

function behindTag(bytes: Buffer, position: number, end: number): number {
  if (lowBits(bytes, position) >>> 3 === 0) throw new RangeError('illegal tag: field no 0');
  const behind = behindVarint(bytes, position, end);
  const length = behind - position;
  if (length > longestTag || (length === longestTag && (bytes[behind - 1] ?? 0) > 0x0f))
    throw new RangeError('illegal tag: more than 32 bits');
  return behind;
}

/** The low 32 bits of a varint. */
function lowBits(bytes: Buffer, position: number): number {
  let value = 0;
  for (let at = position, shift = 0; shift < 32; at++, shift += 7) {
    const byte = bytes[at] ?? 0;
    value |= (byte & longestOneByte) << shift;
    if (byte <= longestOneByte) break;
  }
  return value >>> 0;
}

/** A RangeError if it has more than 64 bits: Go refuses it, and others cut it off. */
function behindVarint(bytes: Buffer, position: number, end: number): number {
  const last = Math.min(end, position + longestVarint);
  for (let at = position; at < last; at++) {
    const byte = bytes[at] ?? 0;
    if (byte <= 1 || (byte <= longestOneByte && at < position + longestVarint - 1)) return at + 1;
  }
  throw new RangeError(last === position + longestVarint ? 'invalid varint' : 'premature EOF');
}

/** A TypeError if it is not UTF-8. */
export function textOf(bytes: Buffer, start: number, end: number): string {
  if (isAscii(bytes, start, end)) return bytes.toString('latin1', start, end);
  if (!isUtf8(bytes.subarray(start, end))) throw new TypeError('a string is not valid UTF-8');
  return bytes.toString('utf8', start, end);
}

/** Names are ASCII as a rule, and that is found sooner here than in a decoder. */
function isAscii(bytes: Buffer, start: number, end: number): boolean {
  for (let index = start; index < end; index++) {
    if ((bytes[index] ?? 0) > longestOneByte) return false;
  }
  return true;
}

export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** As deep as C++ and Java decode. */
const maxDepth = 100;

/**
 * Checks that every decoder takes these bytes: what is passed on unread must not make anybody refuse the message that it
 * is in, so many levels below its top. Looks at nested messages, and at strings for UTF-8. Throws a RangeError or a
 * TypeError if not.
 */
export function checkMessage(desc: DescMessage, bytes: Uint8Array, level: number): void {
  check(desc, new MessageReader(bytes), maxDepth - level);
}

function check(desc: DescMessage, reader: MessageReader, depth: number): void {
  if (depth <= 0) throw new RangeError(`nested more than ${maxDepth} levels deep`);
  const fields = fieldsOf(desc);
  while (nextPassedOn(reader)) {
    const field = fields.get(reader.tag);
    if (field === undefined) continue;
    if (field.fieldKind === 'map') checkEntry(field, reader.message(), depth - 1);
    else if (field.message === undefined) reader.text();
    else check(field.message, reader.message(), depth - 1);
  }
}

/** No API of Envoy has groups. A decoder counts them as levels, and compares the numbers at both ends. */
function nextPassedOn(reader: MessageReader): boolean {
  const isField = reader.next();
  if (isField && (reader.tag & 7) === startGroup) throw new RangeError('it has a group');
  return isField;
}

/** An entry of a map is a message: the key is its field 1, the value its field 2. */
function checkEntry(field: DescField & { fieldKind: 'map' }, reader: MessageReader, depth: number): void {
  while (nextPassedOn(reader)) {
    if (reader.tag === bytesTag(1) && field.mapKey === ScalarType.STRING) reader.text();
    else if (reader.tag !== bytesTag(2)) continue;
    else if (field.message !== undefined) check(field.message, reader.message(), depth - 1);
    else if (field.scalar === ScalarType.STRING) reader.text();
  }
}

const known = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>();

/** The fields that hold strings or messages, by tag. */
function fieldsOf(desc: DescMessage): ReadonlyMap<number, DescField> {
  const found = known.get(desc);
  if (found !== undefined) return found;
  const fields = new Map(
    desc.fields
      .filter((field) => field.message !== undefined || field.fieldKind === 'map' || isText(field))
      .map((field) => [bytesTag(field.number), field] as const),
  );
  known.set(desc, fields);
  return fields;
}

const isText = (field: DescField): boolean => 'scalar' in field && field.scalar === ScalarType.STRING;
