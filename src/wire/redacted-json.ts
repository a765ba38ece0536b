import {
  create,
  type DescExtension,
  fromBinary,
  hasOption,
  isMessage,
  type JsonValue,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import { isReflectMessage, type ReflectMessage, reflect } from '@bufbuild/protobuf/reflect';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { readableAny } from './readable-any.ts';
import { envoyRegistry, messageName } from './registry.ts';

type Bytes = Pick<Any, 'typeUrl' | 'value'>;

/**
 * An Any as JSON for people: fields as in the API, and without those that the API marks as sensitive
 * (udpa.annotations.sensitive: keys, passwords).
 */
export function redactedJson(any: Bytes): JsonValue {
  const registry = envoyRegistry();
  const sensitive = registry.getExtension('udpa.annotations.sensitive');
  const readable = readableAny(any);
  const shown = sensitive === undefined ? readable : redacted(readable, sensitive);
  return toJson(AnySchema, create(AnySchema, shown), { registry, useProtoFieldName: true });
}

function redacted(any: Bytes, sensitive: DescExtension): Bytes {
  const desc = envoyRegistry().getMessage(messageName(any.typeUrl));
  if (desc === undefined) return any;
  const message = fromBinary(desc, any.value);
  redact(reflect(desc, message), sensitive);
  return { typeUrl: any.typeUrl, value: toBinary(desc, message) };
}

function redact(message: ReflectMessage, sensitive: DescExtension): void {
  // Struct and the like hold no Any, and are no messages to reflection.
  if (message.desc.typeName.startsWith('google.protobuf.')) return;
  for (const field of message.fields) {
    if (!message.isSet(field)) continue;
    if (hasOption(field, sensitive)) {
      message.clear(field);
      continue;
    }
    if (field.fieldKind === 'message') {
      const part = message.get(field);
      redactPart(part, sensitive, (by) => message.set(field, by));
    } else if (field.fieldKind === 'list' && field.listKind === 'message') {
      const list = message.get(field);
      for (const [index, part] of [...list].entries())
        redactPart(part, sensitive, (by) => list.set(index, by));
    } else if (field.fieldKind === 'map' && field.mapKind === 'message') {
      const map = message.get(field);
      for (const [key, part] of [...map]) redactPart(part, sensitive, (by) => map.set(key, by));
    }
  }
}

function redactPart(part: unknown, sensitive: DescExtension, replace: (by: ReflectMessage) => void): void {
  if (!isReflectMessage(part)) return;
  if (!isMessage(part.message, AnySchema)) {
    redact(part, sensitive);
    return;
  }
  replace(reflect(AnySchema, create(AnySchema, redacted(part.message, sensitive))));
}
