import {
  create,
  type DescExtension,
  type DescField,
  type DescMessage,
  hasOption,
  toBinary,
} from '@bufbuild/protobuf';
import { type Any, AnySchema, anyPack, StructSchema } from '@bufbuild/protobuf/wkt';
import { onceFor } from '../model/maps.ts';
import type { Pace } from '../model/time-slices.ts';
import { headOf } from '../protobuf/field-writer.ts';
import { asBuffer, bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { messageText } from './json-in-turns.ts';
import { envoyRegistry, messageName } from './registry.ts';

/** What becomes of a field: it is left out, or looked into. Another field is copied. */
type Part = 'sensitive' | (() => Plan);
/** By the fields' numbers. An Any is looked into by the type that it names. */
type Plan = 'any' | ReadonlyMap<number, Part>;

/** How each PEM of a private key ends its first line, whatever its kind. */
const keyMarker = Buffer.from('PRIVATE KEY-----');
const typeUrlTag = bytesTag(1);
const lengthDelimited = 2;

/**
 * An encoded Any as operators may see it, whoever asks and however: without the fields that the API marks as sensitive
 * (udpa.annotations.sensitive: keys, passwords), at any depth, and without any other field that holds a private key as
 * PEM. All other bytes are as they came. What cannot be read is not shown at all.
 */
export const redactedBody = onceFor((body: Uint8Array): Uint8Array => {
  try {
    const shown = redactAny(body, asBuffer(body).includes(keyMarker));
    return shown instanceof Pieces ? shown.joined() : shown;
  } catch {
    return toBinary(AnySchema, notShown());
  }
});

/** The same as JSON for people: fields as in the API. Undefined: it has more bytes than that. */
export function redactedJson(body: Uint8Array, pace: Pace, maxBytes: number): Promise<string | undefined> {
  return messageText(AnySchema, redactedBody(body), maxBytes, pace, { useProtoFieldName: true });
}

/** Bytes one behind the other. They are joined once: messages may be inside each other a hundred times, and large. */
class Pieces {
  length = 0;
  readonly #parts: Shown[] = [];

  add(part: Shown): this {
    this.#parts.push(part);
    this.length += part.length;
    return this;
  }

  joined(): Uint8Array {
    const bytes = Buffer.allocUnsafeSlow(this.length); // it is kept as long as the body
    this.#write(bytes, 0);
    return bytes;
  }

  #write(target: Buffer, start: number): void {
    let at = start;
    for (const part of this.#parts) {
      if (part instanceof Pieces) part.#write(target, at);
      else target.set(part, at);
      at += part.length;
    }
  }
}

/** What is shown of a message or of a field: the same bytes, if nothing was left out. */
type Shown = Uint8Array | Pieces;

function redactAny(body: Uint8Array, hasKey: boolean): Shown {
  let typeUrl = '';
  for (const reader = new MessageReader(body); reader.next(); )
    if (reader.tag === typeUrlTag) typeUrl = reader.lossyText();
  const desc = envoyRegistry().getMessage(messageName(typeUrl));
  if (desc !== undefined) return redactFields(body, new Map([[2, () => planOf(desc)]]), hasKey);
  return hasKey ? redactFields(body, new Map(), hasKey) : body;
}

/** The message without what is sensitive. A RangeError if it is malformed. */
function redactFields(message: Uint8Array, plan: Plan, hasKey: boolean): Shown {
  if (plan === 'any') return redactAny(message, hasKey);
  const pieces = new Pieces();
  let copied = 0;
  for (const reader = new MessageReader(message); reader.next(); ) {
    const part = plan.get(reader.field);
    const field = message.subarray(reader.fieldStart, reader.end);
    const shown = part === 'sensitive' ? undefined : shownField(field, reader, part, hasKey);
    if (shown === field) continue;
    pieces.add(message.subarray(copied, reader.fieldStart));
    if (shown !== undefined) pieces.add(shown);
    copied = reader.end;
  }
  return copied === 0 ? message : pieces.add(message.subarray(copied));
}

/** Undefined: it is left out. */
function shownField(
  field: Uint8Array,
  reader: MessageReader,
  part: (() => Plan) | undefined,
  hasKey: boolean,
): Shown | undefined {
  if (part === undefined || (reader.tag & 7) !== lengthDelimited)
    return hasKey && asBuffer(field).includes(keyMarker) ? undefined : field;
  const content = reader.view();
  const shown = redactFields(content, part(), hasKey);
  if (shown === content) return field;
  return new Pieces().add(headOf(reader.tag, shown.length)).add(shown);
}

const planOf = onceFor((desc: DescMessage): Plan => {
  const sensitive = envoyRegistry().getExtension('udpa.annotations.sensitive');
  return desc.typeName === AnySchema.typeName ? 'any' : new Map(partsOf(desc, sensitive));
});

function* partsOf(desc: DescMessage, sensitive: DescExtension | undefined): Iterable<[number, Part]> {
  for (const field of desc.fields) {
    const { message } = field;
    if (sensitive !== undefined && hasOption(field, sensitive)) yield [field.number, 'sensitive'];
    else if (message !== undefined) yield [field.number, () => partOf(field, message)];
  }
}

/** The entry of a map is a message: its key, and its value as field 2. */
const partOf = (field: DescField, message: DescMessage): Plan =>
  field.fieldKind === 'map' ? new Map([[2, () => planOf(message)]]) : planOf(message);

function notShown(): Any {
  const unreadable = 'its bytes are malformed, so nobody knows whether a key is among them';
  const text = { kind: { case: 'stringValue' as const, value: unreadable } };
  return anyPack(StructSchema, create(StructSchema, { fields: { unreadable: text } }));
}
