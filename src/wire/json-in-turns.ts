import {
  create,
  type DescField,
  type DescMessage,
  type DescOneof,
  fromBinary,
  type JsonValue,
  type MessageShape,
  ScalarType,
  toJson,
} from '@bufbuild/protobuf';
import { type Any, AnySchema, hasCustomJsonRepresentation } from '@bufbuild/protobuf/wkt';
import { errorMessage } from '../model/result.ts';
import type { InTurns, Pace } from '../model/time-slices.ts';
import { asBuffer, bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { envoyRegistry, messageName, unknownType } from './registry.ts';
import { readAny } from './response-reader.ts';

/** How messages are written. */
export interface JsonForm {
  /** Hears of the types that had to be shown as bytes. */
  readonly unreadable?: (typeUrl: string) => void;
  /** Names of fields as in the API's files: `route_config`. Otherwise as clients read them: `routeConfig`. */
  readonly useProtoFieldName?: boolean;
}

type Bytes = Pick<Any, 'typeUrl' | 'value'>;

/** Of so many bytes JSON is made at once, in a few milliseconds. */
export const bytesAtOnce = 32 << 10;
/** So many fields are looked at in one turn. */
const fieldsPerTurn = 10_000;
/** Base64 writes three bytes in four characters. */
const base64Step = 3 << 14;
const deepest = 100;
/** Nothing is small enough to be written at once. */
const divideAll = -1;

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

/** The entries of a list or a map, which is this field of a message. */
interface Items {
  readonly desc: DescMessage;
  readonly field: DescField;
  readonly bytes: Buffer;
  readonly depth: number;
}

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
 * The JSON of encoded messages, as text. Small ones are written by protobuf's own writer. Of a large one it writes the
 * parts: message by message, and of long lists and maps some entries at a time. Nothing is ever a whole tree of objects.
 *
 * JSON needs the descriptor of every Any. One that this build does not know, or whose bytes are malformed, becomes a
 * Struct {unreadable, type_url, value_base64}: a client can read the bytes back. What has such an Any inside of it is
 * divided until only that is written so.
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

  *any(any: Bytes, depth = 0): InTurns<void> {
    const { typeUrl, value } = any;
    const text = this.#text;
    // As protobuf's writer has it.
    if (typeUrl === '') {
      text.add('{}');
      return;
    }
    const small = value.length <= this.#atOnce ? this.#written(AnySchema, create(AnySchema, any)) : undefined;
    if (small !== undefined) {
      text.add(JSON.stringify(small));
      return;
    }
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
      const known = `"unreadable":${JSON.stringify(errorMessage(error))},"type_url":${JSON.stringify(typeUrl)}`;
      text.add(`{"@type":"type.googleapis.com/google.protobuf.Struct","value":{${known},"value_base64":"`);
      yield* this.#base64(value);
      text.add('"}}');
    }
  }

  /** Undefined: protobuf cannot write it, so it has to be divided. */
  #written<Desc extends DescMessage>(desc: Desc, message: MessageShape<Desc>): JsonValue | undefined {
    const { useProtoFieldName = false } = this.#form;
    try {
      return toJson(desc, message, { registry: envoyRegistry(), useProtoFieldName });
    } catch (error) {
      if (this.#atOnce === divideAll) throw error;
      return undefined;
    }
  }

  #decoded(desc: DescMessage, bytes: Buffer): JsonValue | undefined {
    return this.#written(desc, fromBinary(desc, bytes));
  }

  get #dividing(): JsonInTurns {
    return new JsonInTurns(this.#text, this.#form, divideAll);
  }

  *message(desc: DescMessage, bytes: Buffer, depth = 0): InTurns<void> {
    if (depth > deepest) throw new RangeError(`it is nested deeper than ${deepest} messages`);
    if (bytes.length <= this.#atOnce) {
      yield;
      const json = this.#decoded(desc, bytes);
      if (json === undefined) yield* this.#dividing.message(desc, bytes, depth);
      else this.#text.add(JSON.stringify(json));
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
          yield* this.#entries({ desc, field: found.field, bytes, depth }, found.places);
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
    this.#text.add(JSON.stringify(toJson(desc, fromBinary(desc, bytes))));
  }

  #nameOf({ name, jsonName }: DescField): string {
    return this.#form.useProtoFieldName === true ? name : jsonName;
  }

  /** Those of an object that is open already. Returns what separates them from the next. */
  *#fields(desc: DescMessage, bytes: Buffer, depth: number, separator: string): InTurns<string> {
    const text = this.#text;
    const all = yield* occurrences(desc, bytes, this.#atOnce);
    const isDivided = this.#atOnce === divideAll ? isNested : isDivisible;
    const large = all.filter((one) => one.bytes > this.#atOnce && isDivided(one.field));
    const rest = all.filter((one) => !large.includes(one)).flatMap(({ places }) => places);
    // Of what excludes each other the last one counts.
    const small = whole(
      bytes,
      rest.toSorted(([a], [b]) => a - b),
    );
    const json = this.#decoded(desc, small);
    let comma =
      json === undefined
        ? yield* this.#dividing.#fields(desc, small, depth, separator)
        : this.#addInner(json, separator);
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
        yield* this.#entries({ desc, field, bytes, depth }, one.places);
      }
    }
    return comma;
  }

  /** What is between the brackets of an object or a list. Returns as `#fields` does. */
  #addInner(json: unknown, separator: string): string {
    const inner = json === undefined ? '' : JSON.stringify(json).slice(1, -1);
    if (inner === '') return separator;
    this.#text.add(`${separator}${inner}`);
    return ',';
  }

  /** A list or a map. */
  *#entries(of: Items, places: readonly Place[]): InTurns<void> {
    const isMap = of.field.fieldKind === 'map';
    this.#text.add(isMap ? '{' : '[');
    yield* this.#items(of, isMap ? yield* lastOfEach(of.bytes, places) : places, '');
    this.#text.add(isMap ? '}' : ']');
  }

  /** Without the brackets. Returns as `#fields` does. */
  *#items(of: Items, places: Iterable<Place>, separator: string): InTurns<string> {
    const { desc, field, bytes, depth } = of;
    let comma = separator;
    for (const batch of batches(places, this.#atOnce)) {
      const [[, start, end]] = batch;
      const large = end - start > this.#atOnce ? largeEntry(field, bytes, start, end) : undefined;
      if (large !== undefined) {
        this.#text.add(`${comma}${large.key}`);
        comma = ',';
        yield* this.message(large.desc, large.value, depth + 1);
        continue;
      }
      const json = this.#decoded(desc, whole(bytes, batch));
      comma =
        json === undefined
          ? yield* this.#dividing.#items(of, apart(bytes, batch), comma)
          : this.#addInner(this.#partOf(of, json), comma);
      yield;
    }
    return comma;
  }

  /** What is theirs in the JSON of a message that has nothing else. */
  #partOf({ desc, field }: Items, json: JsonValue): unknown {
    return hasCustomJsonRepresentation(desc) ? json : memberOf(json, this.#nameOf(field));
  }

  *#base64(bytes: Uint8Array): InTurns<void> {
    const all = asBuffer(bytes);
    for (let at = 0; at < all.length; at += base64Step) {
      this.#text.add(all.toString('base64', at, at + base64Step));
      yield;
    }
  }
}

/** Each by itself, also those of a run. */
function* apart(bytes: Buffer, places: readonly Place[]): Iterable<Place> {
  for (const [begin, , end] of places)
    for (const reader = new MessageReader(bytes, begin, end); reader.next(); )
      yield [reader.fieldStart, reader.start, reader.end];
}

/** As many as have so many bytes together, but at least one. */
function* batches(places: Iterable<Place>, bytes: number): Iterable<readonly [Place, ...Place[]]> {
  let batch: [Place, ...Place[]] | undefined;
  let size = 0;
  for (const place of places) {
    const length = place[2] - place[0];
    size += length;
    if (batch !== undefined && size <= bytes) {
      batch.push(place);
      continue;
    }
    if (batch !== undefined) yield batch;
    [batch, size] = [[place], length];
  }
  if (batch !== undefined) yield batch;
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

/** Its value, and what stands before that. Undefined: it cannot be divided. */
function largeEntry(
  field: DescField,
  bytes: Buffer,
  start: number,
  end: number,
): { readonly key: string; readonly desc: DescMessage; readonly value: Buffer } | undefined {
  if (field.fieldKind === 'list' && field.listKind === 'message') {
    return { key: '', desc: field.message, value: bytes.subarray(start, end) };
  }
  if (field.fieldKind !== 'map' || field.mapKind !== 'message' || field.mapKey !== ScalarType.STRING) {
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

/** One part as it is. */
function joined(parts: readonly Buffer[]): Buffer {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

function memberOf(json: unknown, name: string): unknown {
  return typeof json === 'object' && json !== null ? Reflect.get(json, name) : undefined;
}
