import {
  create,
  type DescField,
  type DescMessage,
  type DescOneof,
  fromBinary,
  type JsonValue,
  type JsonWriteOptions,
  toJson,
} from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import type { Pace } from '../model/time-slices.ts';
import { MessageReader } from '../protobuf/message-reader.ts';
import { readableAny } from './readable-any.ts';
import { envoyRegistry, messageName } from './registry.ts';

/** What is shorter is written at once, in about 1 ms. */
const shortBytes = 16 << 10;

/** Ends the writing. */
class TooLong extends Error {}

/**
 * Canonical proto3 JSON of an encoded message, written part by part: a resource of megabytes would hold up the event loop
 * for a second. What no descriptor is known of, or what is malformed, is shown as in readableAny.
 */
export class SlicedJson {
  readonly #pace: Pace;
  readonly #options: Partial<JsonWriteOptions>;
  readonly #parts: string[] = [];
  #left: number;

  constructor(pace: Pace, useProtoFieldName: boolean, maxCharacters: number) {
    this.#pace = pace;
    this.#left = maxCharacters;
    this.#options = { useProtoFieldName, registry: envoyRegistry() };
  }

  /** Undefined: it has more characters than it may have. */
  async written(desc: DescMessage, bytes: Uint8Array): Promise<string | undefined> {
    try {
      await this.#message(desc, bytes);
    } catch (error) {
      if (error instanceof TooLong) return undefined;
      throw error;
    }
    return this.#parts.join('');
  }

  async #message(desc: DescMessage, bytes: Uint8Array): Promise<void> {
    if (bytes.length <= shortBytes || (isWellKnown(desc) && desc.typeName !== AnySchema.typeName)) {
      this.#push(JSON.stringify(this.#short(desc, bytes)));
    } else if (desc.typeName === AnySchema.typeName) await this.#any(bytes);
    else await this.#parted(desc, bytes, '');
    await this.#pace.yieldIfDue();
  }

  async #any(bytes: Uint8Array): Promise<void> {
    const any = fromBinary(AnySchema, bytes);
    const desc = envoyRegistry().getMessage(messageName(any.typeUrl));
    const before = { parts: this.#parts.length, left: this.#left };
    try {
      if (desc !== undefined && !isWellKnown(desc)) {
        await this.#parted(desc, any.value, `"@type":${JSON.stringify(any.typeUrl)}`);
        return;
      }
    } catch (error) {
      if (error instanceof TooLong) throw error;
      // Malformed: what is written of it does not count.
      this.#parts.length = before.parts;
      this.#left = before.left;
    }
    this.#push(JSON.stringify(toJson(AnySchema, create(AnySchema, readableAny(any)), this.#options)));
  }

  /** Field by field; `first`: what comes before the fields. */
  async #parted(desc: DescMessage, bytes: Uint8Array, first: string): Promise<void> {
    const { fields, rest } = await this.#fieldsOf(desc, bytes);
    this.#push(`{${first}`);
    let separator = first === '' ? '' : ',';
    for (const [name, value] of entriesOf(this.#short(desc, Buffer.concat(rest)))) {
      this.#push(`${separator}${JSON.stringify(name)}:${JSON.stringify(value)}`);
      separator = ',';
    }
    for (const [field, contents] of fields) {
      this.#push(
        `${separator}${JSON.stringify(this.#options.useProtoFieldName === true ? field.name : field.jsonName)}:`,
      );
      separator = ',';
      await this.#field(desc, field, contents);
    }
    this.#push('}');
  }

  async #field(desc: DescMessage, field: DescField, contents: readonly Uint8Array[]): Promise<void> {
    if (field.fieldKind === 'list' && field.message !== undefined) {
      for (const [index, content] of contents.entries()) {
        this.#push(index === 0 ? '[' : ',');
        await this.#message(field.message, content);
      }
      this.#push(']');
    } else if (field.fieldKind === 'map') {
      for (const [index, entry] of contents.entries()) {
        const [value] = entriesOf(this.#short(desc, entry)).map(([, map]) => map);
        this.#push(`${index === 0 ? '{' : ','}${JSON.stringify(value).slice(1, -1)}`);
        await this.#pace.yieldIfDue();
      }
      this.#push('}');
    } else if (field.message !== undefined) {
      // A message that comes twice is merged: so are their bytes, one after the other.
      await this.#message(
        field.message,
        contents.length === 1 ? (contents[0] ?? empty) : Buffer.concat(contents),
      );
    }
  }

  /** Messages by their fields, in the order of the descriptor; `rest`: all other fields as they are. */
  async #fieldsOf(desc: DescMessage, bytes: Uint8Array) {
    const byNumber = new Map(desc.fields.map((field) => [field.number, field]));
    const found = new Map<DescField, Uint8Array[]>();
    const oneofs = new Map<DescOneof, DescField>();
    const scalars: { readonly field: DescField | undefined; readonly bytes: Uint8Array }[] = [];
    for (const reader = new MessageReader(bytes); reader.next(); ) {
      const field = byNumber.get(reader.field);
      if (field?.oneof !== undefined) oneofs.set(field.oneof, field);
      const whole = bytes.subarray(reader.fieldStart, reader.end);
      const isMessage = field?.message !== undefined || field?.fieldKind === 'map';
      if (field === undefined || !isMessage || (reader.tag & 7) !== 2) scalars.push({ field, bytes: whole });
      else {
        const contents = found.get(field) ?? [];
        found.set(field, contents);
        contents.push(field.fieldKind === 'map' ? whole : reader.view());
      }
      await this.#pace.yieldIfDue();
    }
    // Of a oneof the last one counts.
    const counts = (field: DescField | undefined): boolean =>
      field?.oneof === undefined || oneofs.get(field.oneof) === field;
    return {
      fields: [...found].filter(([field]) => counts(field)).toSorted(([a], [b]) => a.number - b.number),
      rest: scalars.filter(({ field }) => counts(field)).map((part) => part.bytes),
    };
  }

  #short(desc: DescMessage, bytes: Uint8Array): JsonValue {
    try {
      return toJson(desc, fromBinary(desc, bytes), this.#options);
    } catch {
      const typeUrl = `type.googleapis.com/${desc.typeName}`;
      const isAny = desc.typeName === AnySchema.typeName;
      const any: Pick<Any, 'typeUrl' | 'value'> = isAny
        ? fromBinary(AnySchema, bytes)
        : { typeUrl, value: bytes };
      const value = toJson(AnySchema, create(AnySchema, readableAny(any)), this.#options);
      return isAny ? value : Object.fromEntries(entriesOf(value));
    }
  }

  #push(text: string): void {
    this.#left -= text.length;
    if (this.#left < 0) throw new TooLong();
    this.#parts.push(text);
  }
}

const empty = new Uint8Array();

/** Of a message: the type that an Any says is none of its fields. */
const entriesOf = (value: JsonValue): readonly (readonly [string, JsonValue])[] =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.entries(value).filter(([name]) => name !== '@type')
    : [];
const isWellKnown = ({ typeName }: DescMessage): boolean => typeName.startsWith('google.protobuf.');
