import {
  create,
  type DescMessage,
  fromBinary,
  isMessage,
  type JsonValue,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import { isReflectMessage, type ReflectMessage, reflect } from '@bufbuild/protobuf/reflect';
import { type Any, AnySchema, anyPack, StructSchema } from '@bufbuild/protobuf/wkt';
import { errorMessage } from '../model/result.ts';
import { envoyRegistry, messageName, unknownType } from './registry.ts';

export type Bytes = Pick<Any, 'typeUrl' | 'value'>;

/** Hears of the types that had to be shown as bytes. */
export type Unreadable = (typeUrl: string) => void;

const nobody: Unreadable = () => {};

/**
 * JSON needs the descriptor of every Any, also of those inside others. One that this build does not know, or whose
 * bytes are malformed, becomes a Struct {unreadable, type_url, value_base64}: the rest stays readable, and a client can
 * read the bytes back.
 */
export function anyToJson(any: Bytes, unreadable: Unreadable = nobody): JsonValue {
  try {
    return write(any);
  } catch (error) {
    return write(readableForm(any, error, unreadable));
  }
}

/** The same of a part of a message; what is not inside of an Any and cannot be written throws. */
export function messageToJson(desc: DescMessage, bytes: Uint8Array, unreadable: Unreadable): JsonValue {
  const message = fromBinary(desc, bytes);
  if (isMessage(message, AnySchema)) return message.typeUrl === '' ? {} : anyToJson(message, unreadable);
  const registry = envoyRegistry();
  try {
    return toJson(desc, message, { registry });
  } catch {
    mend(reflect(desc, message), unreadable);
    return toJson(desc, message, { registry });
  }
}

/** The Struct for what is unreadable as JSON text: what stands before its bytes in base64, and behind them. */
export function unreadableForm(typeUrl: string, why: string): readonly [before: string, after: string] {
  const known = `"unreadable":${JSON.stringify(why)},"type_url":${JSON.stringify(typeUrl)}`;
  return [`{"@type":"type.googleapis.com/google.protobuf.Struct","value":{${known},"value_base64":"`, '"}}'];
}

/** The same as a message. */
export function readableAny(any: Bytes): Bytes {
  try {
    write(any);
    return any;
  } catch (error) {
    return readableForm(any, error, nobody);
  }
}

const write = (any: Bytes): JsonValue =>
  toJson(AnySchema, create(AnySchema, any), { registry: envoyRegistry() });

/** Of an Any that cannot be written: with what is inside of it made readable if that helps, else as bytes. */
function readableForm(any: Bytes, why: unknown, unreadable: Unreadable): Bytes {
  const mended = mendAny(any, unreadable);
  try {
    write(mended);
    return mended;
  } catch {
    return asStruct(any, errorMessage(why), unreadable);
  }
}

function mendAny(any: Bytes, unreadable: Unreadable): Bytes {
  const { typeUrl, value } = any;
  const name = messageName(typeUrl);
  const desc = envoyRegistry().getMessage(name);
  if (desc === undefined) {
    return asStruct(any, unknownType(name), unreadable);
  }
  try {
    const message = fromBinary(desc, value);
    return mend(reflect(desc, message), unreadable) ? { typeUrl, value: toBinary(desc, message) } : any;
  } catch (error) {
    return asStruct(any, errorMessage(error), unreadable);
  }
}

function asStruct({ typeUrl, value }: Bytes, why: string, unreadable: Unreadable): Any {
  unreadable(typeUrl);
  const text = (value: string) => ({ kind: { case: 'stringValue' as const, value } });
  const fields = {
    unreadable: text(why),
    type_url: text(typeUrl),
    value_base64: text(Buffer.from(value).toString('base64')),
  };
  return anyPack(StructSchema, create(StructSchema, { fields }));
}

/** Makes each Any below a message readable; true: it changed something. */
function mend(message: ReflectMessage, unreadable: Unreadable): boolean {
  // Struct and the like hold no Any, and are no messages to reflection.
  if (message.desc.typeName.startsWith('google.protobuf.')) return false;
  let changed = false;
  const visit = (part: unknown, replace: (by: ReflectMessage) => void): void => {
    if (!isReflectMessage(part)) return;
    if (!isMessage(part.message, AnySchema)) {
      changed = mend(part, unreadable) || changed;
      return;
    }
    const readable = mendAny(part.message, unreadable);
    if (readable === part.message) return;
    changed = true;
    replace(reflect(AnySchema, create(AnySchema, readable)));
  };
  for (const field of message.fields) {
    if (!message.isSet(field)) continue;
    if (field.fieldKind === 'message') {
      visit(message.get(field), (by) => message.set(field, by));
    } else if (field.fieldKind === 'list' && field.listKind === 'message') {
      const list = message.get(field);
      for (const [index, part] of [...list].entries()) visit(part, (by) => list.set(index, by));
    } else if (field.fieldKind === 'map' && field.mapKind === 'message') {
      const map = message.get(field);
      for (const [key, part] of [...map]) visit(part, (by) => map.set(key, by));
    }
  }
  return changed;
}
