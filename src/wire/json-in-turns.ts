import { type DescField, type DescMessage, type DescOneof, ScalarType } from '@bufbuild/protobuf';
import { AnySchema, hasCustomJsonRepresentation } from '@bufbuild/protobuf/wkt';
import { errorMessage } from '../model/result.ts';
import type { InTurns, Pace } from '../model/time-slices.ts';
import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { type Bytes, type JsonForm, messageToJson, unreadableForm } from './readable-any.ts';
import { envoyRegistry, messageName, unknownType } from './registry.ts';

/** Of so many bytes JSON is made at once, in a few milliseconds. */
export const bytesAtOnce = 32 << 10;
/** So many fields are looked at in one turn. */
const fieldsPerTurn = 10_000;
/** Base64 writes three bytes in four characters. */
const base64Step = 3 << 14;
const deepest = 100;

/** JSON under way, encoded. */
export class JsonText {
  #open = '';
  #bytes = 0;
  readonly #parts: Buffer[] = [];

  /** All of it. */
  get parts(): readonly Buffer[] {
    this.#flush();
    return this.#parts;
  }

  /** So far, in about. */
  get bytes(): number {
    return this.#bytes + this.#open.length;
  }

  add(text: string): void {
    this.#open += text;
    if (this.#open.length > bytesAtOnce) this.#flush();
  }

  addParts(parts: readonly Buffer[]): void {
    this.#flush();
    for (const part of parts) this.#push(part);
  }

  /** Takes back what was added since there were so many parts. */
  cut(count: number): void {
    this.#flush();
    for (const { length } of this.#parts.splice(count)) this.#bytes -= length;
  }

  #flush(): void {
    if (this.#open !== '') this.#push(Buffer.from(this.#open));
    this.#open = '';
  }

  #push(part: Buffer): void {
    this.#parts.push(part);
    this.#bytes += part.length;
  }
}

/** A field as it stands in a message: where it begins, where its content begins, where it ends. Or a run of short ones. */
type Place = readonly [begin: number, content: number, end: number];

/** All places of one field in a message. */
interface Occurrences {
  readonly field: DescField | undefined;
  readonly places: Place[];
  bytes: number;
}

/** What JSON calls a part of a message. */
type PartOf = (json: unknown) => unknown;

/** Lets the text be written, in slices. False: it has more bytes than that. */
export async function writtenWithin(
  maxBytes: number,
  text: JsonText,
  turns: InTurns<void>,
  pace: Pace,
): Promise<boolean> {
  for (;;) {
    const isWhole = turns.next().done === true;
    if (text.bytes > maxBytes) return false;
    if (isWhole) return true;
    await pace.yieldIfDue();
  }
}

/** An encoded message as text. Undefined: it has more bytes than that. */
export async function messageText(
  desc: DescMessage,
  bytes: Uint8Array,
  maxBytes: number,
  pace: Pace,
  form: JsonForm,
): Promise<string | undefined> {
  const text = new JsonText();
  const turns = new JsonInTurns(text, form).message(desc, asBuffer(bytes));
  return (await writtenWithin(maxBytes, text, turns, pace))
    ? Buffer.concat(text.parts).toString()
    : undefined;
}

/**
 * `messageToJson` of a large message, as text: message by message, and of long lists and maps some entries at a time,
 * from the encoded bytes. Nothing of it is ever a whole tree of objects.
 */
export class JsonInTurns {
  readonly #text: JsonText;
  readonly #form: JsonForm;
  readonly #atOnce: number;

  /** `atOnce`: of so many bytes. */
  constructor(text: JsonText, form: JsonForm, atOnce = bytesAtOnce) {
    this.#text = text;
    this.#form = form;
    this.#atOnce = atOnce;
  }

  *any({ typeUrl, value }: Bytes, depth = 0): InTurns<void> {
    const text = this.#text;
    const { length } = text.parts;
    try {
      const name = messageName(typeUrl);
      const desc = envoyRegistry().getMessage(name);
      if (desc === undefined) throw new Error(unknownType(name));
      text.add(`{"@type":${JSON.stringify(typeUrl)}`);
      if (hasCustomJsonRepresentation(desc)) {
        text.add(',"value":');
        yield* this.message(desc, asBuffer(value), depth);
      } else {
        yield* this.#fields(desc, asBuffer(value), depth, ',');
      }
      text.add('}');
    } catch (error) {
      text.cut(length);
      this.#form.unreadable?.(typeUrl);
      const [before, after] = unreadableForm(typeUrl, errorMessage(error));
      text.add(before);
      yield* this.#base64(value);
      text.add(after);
    }
  }

  *message(desc: DescMessage, bytes: Buffer, depth = 0): InTurns<void> {
    if (depth > deepest) throw new RangeError(`it is nested deeper than ${deepest} messages`);
    if (bytes.length <= this.#atOnce) {
      yield;
      this.#text.add(JSON.stringify(messageToJson(desc, bytes, this.#form)));
      return;
    }
    switch (desc.typeName) {
      case AnySchema.typeName:
        yield* this.any(readAny(bytes), depth + 1);
        return;
      // These are what their only field is, and a Value is its only one.
      case 'google.protobuf.Struct':
      case 'google.protobuf.ListValue':
      case 'google.protobuf.Value': {
        const found = (yield* occurrences(desc, bytes, this.#atOnce)).find(({ field }) => isNested(field));
        if (found?.field === undefined) break;
        if (found.field.fieldKind === 'message') {
          yield* this.message(found.field.message, content(bytes, found), depth + 1);
        } else {
          yield* this.#entries(desc, found, bytes, depth, (json) => json);
        }
        return;
      }
      default:
        if (hasCustomJsonRepresentation(desc)) break;
        this.#text.add('{');
        yield* this.#fields(desc, bytes, depth, '');
        this.#text.add('}');
        return;
    }
    this.#text.add(JSON.stringify(messageToJson(desc, bytes, this.#form)));
  }

  #nameOf({ name, jsonName }: DescField): string {
    return this.#form.useProtoFieldName === true ? name : jsonName;
  }

  /** Those of an object that is open already. */
  *#fields(desc: DescMessage, bytes: Buffer, depth: number, separator: string): InTurns<void> {
    const text = this.#text;
    const all = yield* occurrences(desc, bytes, this.#atOnce);
    const large = all.filter((one) => one.bytes > this.#atOnce && isDivisible(one.field));
    const rest = all.filter((one) => !large.includes(one)).flatMap(({ places }) => places);
    // Of what excludes each other the last one counts.
    const small = whole(
      bytes,
      rest.toSorted(([a], [b]) => a - b),
    );
    let comma = separator;
    const members = JSON.stringify(messageToJson(desc, small, this.#form)).slice(1, -1);
    if (members !== '') {
      text.add(`${comma}${members}`);
      comma = ',';
    }
    yield;
    for (const one of large) {
      const { field } = one;
      if (field === undefined) continue;
      text.add(`${comma}${JSON.stringify(this.#nameOf(field))}:`);
      comma = ',';
      if (field.fieldKind === 'message') {
        yield* this.message(field.message, content(bytes, one), depth + 1);
      } else if (field.fieldKind === 'scalar') {
        text.add('"');
        yield* this.#base64(content(bytes, { ...one, places: one.places.slice(-1) }));
        text.add('"');
      } else {
        yield* this.#entries(desc, one, bytes, depth, (json) => memberOf(json, this.#nameOf(field)));
      }
    }
  }

  /** A list or a map, of which `part` is what belongs to it in the JSON of a message with nothing else. */
  *#entries(
    desc: DescMessage,
    { field, places }: Occurrences,
    bytes: Buffer,
    depth: number,
    part: PartOf,
  ): InTurns<void> {
    const isMap = field?.fieldKind === 'map';
    const text = this.#text;
    text.add(isMap ? '{' : '[');
    let comma = '';
    let batch: Place[] = [];
    let size = 0;
    const write = (): void => {
      if (batch.length === 0) return;
      const json = part(messageToJson(desc, whole(bytes, batch), this.#form));
      const inner = json === undefined ? '' : JSON.stringify(json).slice(1, -1);
      if (inner !== '') {
        text.add(`${comma}${inner}`);
        comma = ',';
      }
      batch = [];
      size = 0;
    };
    for (const place of isMap ? yield* lastOfEach(bytes, places) : places) {
      const [begin, start, end] = place;
      const large = end - start > this.#atOnce ? largeEntry(field, bytes, place) : undefined;
      if (large !== undefined) {
        write();
        text.add(`${comma}${large.key}`);
        comma = ',';
        yield* this.message(large.desc, large.value, depth + 1);
        continue;
      }
      batch.push(place);
      size += end - begin;
      if (size < this.#atOnce) continue;
      write();
      yield;
    }
    write();
    text.add(isMap ? '}' : ']');
  }

  *#base64(bytes: Uint8Array): InTurns<void> {
    const all = asBuffer(bytes);
    for (let at = 0; at < all.length; at += base64Step) {
      this.#text.add(all.toString('base64', at, at + base64Step));
      yield;
    }
  }
}

/** The fields of a message in the order of their first places. Of a oneof only what counts is left. */
function* occurrences(desc: DescMessage, bytes: Buffer, atOnce: number): InTurns<readonly Occurrences[]> {
  const known = new Map(desc.fields.map((field) => [field.number, field]));
  const found = new Map<number, Occurrences>();
  const chosen = new Map<DescOneof, number>();
  let count = 0;
  for (const reader = new MessageReader(bytes); reader.next(); ) {
    const field = known.get(reader.field);
    // Where it is not encoded as it should be, it is as unknown as to any other reader.
    const isOdd = (isNested(field) || isBytes(field)) && reader.tag !== bytesTag(reader.field);
    const key = isOdd ? -reader.field : reader.field;
    if (field?.oneof !== undefined && !isOdd) {
      const before = chosen.get(field.oneof);
      if (before !== undefined && before !== key) found.delete(before);
      chosen.set(field.oneof, key);
    }
    let one = found.get(key);
    if (one === undefined) {
      one = { field: isOdd ? undefined : field, places: [], bytes: 0 };
      found.set(key, one);
    }
    addPlace(one, reader, atOnce / 8);
    if (++count % fieldsPerTurn === 0) yield;
  }
  return [...found.values()];
}

/** A place for each of a million entries would have more memory than they: short ones are one run. */
function addPlace(one: Occurrences, { fieldStart, start, end }: MessageReader, longestRun: number): void {
  const { field, places } = one;
  one.bytes += end - fieldStart;
  const last = places.at(-1);
  const isRun = field?.fieldKind === 'list' && last?.[2] === fieldStart && end - last[0] <= longestRun;
  if (isRun) places[places.length - 1] = [last[0], last[1], end];
  else places.push([fieldStart, start, end]);
}

/** Of the entries of a map those that count: the last one of each key. */
function* lastOfEach(bytes: Buffer, places: readonly Place[]): InTurns<Iterable<Place>> {
  const last = new Map<string, Place>();
  let count = 0;
  for (const place of places) {
    const [, start, end] = place;
    let key = '';
    for (const reader = new MessageReader(bytes, start, end); reader.next(); ) {
      if (reader.field === 1) key = bytes.toString('latin1', reader.start, reader.end);
    }
    last.set(key, place);
    if (++count % fieldsPerTurn === 0) yield;
  }
  return last.values();
}

interface LargeEntry {
  /** What stands before the value. */
  readonly key: string;
  readonly desc: DescMessage;
  readonly value: Buffer;
}

/** Undefined: it cannot be divided. */
function largeEntry(
  field: DescField | undefined,
  bytes: Buffer,
  [, start, end]: Place,
): LargeEntry | undefined {
  if (field?.fieldKind === 'list' && field.listKind === 'message') {
    return { key: '', desc: field.message, value: bytes.subarray(start, end) };
  }
  if (field?.fieldKind !== 'map' || field.mapKind !== 'message' || field.mapKey !== ScalarType.STRING) {
    return undefined;
  }
  let key = '';
  let value: Buffer | undefined;
  for (const reader = new MessageReader(bytes, start, end); reader.next(); ) {
    if (reader.tag === bytesTag(1)) key = reader.text();
    else if (reader.tag === bytesTag(2)) value = reader.view();
  }
  return value && { key: `${JSON.stringify(key)}:`, desc: field.message, value };
}

const isNested = (field: DescField | undefined): boolean =>
  field?.fieldKind === 'message' ||
  field?.fieldKind === 'map' ||
  (field?.fieldKind === 'list' && field.listKind === 'message');

/** Texts and packed numbers are not: they cost little for each byte. */
const isDivisible = (field: DescField | undefined): boolean =>
  isNested(field) || field?.fieldKind === 'list' || isBytes(field);

const isBytes = (field: DescField | undefined): boolean =>
  field?.fieldKind === 'scalar' && field.scalar === ScalarType.BYTES;

/** What these fields hold, one behind the other: the bytes of a message that came in parts are the parts. */
const content = (bytes: Buffer, { places }: Occurrences): Buffer =>
  joined(places.map(([, start, end]) => bytes.subarray(start, end)));

/** These fields, one behind the other. */
const whole = (bytes: Buffer, places: readonly Place[]): Buffer =>
  joined(places.map(([begin, , end]) => bytes.subarray(begin, end)));

function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

function readAny(bytes: Buffer): Bytes {
  let typeUrl = '';
  let value: Uint8Array = Buffer.alloc(0);
  for (const reader = new MessageReader(bytes); reader.next(); ) {
    if (reader.tag === bytesTag(1)) typeUrl = reader.text();
    else if (reader.tag === bytesTag(2)) value = reader.view();
  }
  return { typeUrl, value };
}

function memberOf(json: unknown, name: string): unknown {
  return typeof json === 'object' && json !== null ? Reflect.get(json, name) : undefined;
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
