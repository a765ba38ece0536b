import {
  create,
  type DescMessage,
  fromBinary,
  isMessage,
  type JsonValue,
  type JsonWriteOptions,
  toBinary,
  toJson,
} from '@bufbuild/protobuf';
import { isReflectMessage, type ReflectMessage, reflect } from '@bufbuild/protobuf/reflect';
import { type Any, AnySchema, anyPack, StructSchema } from '@bufbuild/protobuf/wkt';
import { errorMessage } from '../model/result.ts';
import { envoyRegistry, messageName, unknownType } from './registry.ts';

export type Bytes = Pick<Any, 'typeUrl' | 'value'>;

/** Hears of the types that had to be shown as bytes. */
type Unreadable = (typeUrl: string) => void;

/** How messages are written. */
export interface JsonForm {
  readonly unreadable?: Unreadable;
  /** Names of fields as in the API's files: `route_config`. Otherwise as clients read them: `routeConfig`. */
  readonly useProtoFieldName?: boolean;
}

/**
 * JSON needs the descriptor of every Any, also of those inside others. One that this build does not know, or whose
 * bytes are malformed, becomes a Struct {unreadable, type_url, value_base64}: the rest stays readable, and a client can
 * read the bytes back.
 */
export function anyToJson(any: Bytes, form: JsonForm = {}): JsonValue {
  try {
    return write(any, form);
  } catch (error) {
    return write(readableForm(any, error, form), form);
  }
}

/** The same of a part of a message; what is not inside of an Any and cannot be written throws. */
export function messageToJson(desc: DescMessage, bytes: Uint8Array, form: JsonForm): JsonValue {
  const message = fromBinary(desc, bytes);
  if (isMessage(message, AnySchema)) return message.typeUrl === '' ? {} : anyToJson(message, form);
  const options = optionsOf(form);
  try {
    return toJson(desc, message, options);
  } catch {
    mend(reflect(desc, message), form);
    return toJson(desc, message, options);
  }
}

/** The Struct for what is unreadable as JSON text: what stands before its bytes in base64, and behind them. */
export function unreadableForm(typeUrl: string, why: string): readonly [before: string, after: string] {
  const known = `"unreadable":${JSON.stringify(why)},"type_url":${JSON.stringify(typeUrl)}`;
  return [`{"@type":"type.googleapis.com/google.protobuf.Struct","value":{${known},"value_base64":"`, '"}}'];
}

const optionsOf = ({ useProtoFieldName = false }: JsonForm): Partial<JsonWriteOptions> => ({
  registry: envoyRegistry(),
  useProtoFieldName,
});

const write = (any: Bytes, form: JsonForm): JsonValue =>
  toJson(AnySchema, create(AnySchema, any), optionsOf(form));

/** Of an Any that cannot be written: with what is inside of it made readable if that helps, else as bytes. */
function readableForm(any: Bytes, why: unknown, form: JsonForm): Bytes {
  const mended = mendAny(any, form);
  try {
    write(mended, form);
    return mended;
  } catch {
    return asStruct(any, errorMessage(why), form);
  }
}

function mendAny(any: Bytes, form: JsonForm): Bytes {
  const { typeUrl, value } = any;
  const name = messageName(typeUrl);
  const desc = envoyRegistry().getMessage(name);
  if (desc === undefined) {
    return asStruct(any, unknownType(name), form);
  }
  try {
    const message = fromBinary(desc, value);
    return mend(reflect(desc, message), form) ? { typeUrl, value: toBinary(desc, message) } : any;
  } catch (error) {
    return asStruct(any, errorMessage(error), form);
  }
}

function asStruct({ typeUrl, value }: Bytes, why: string, { unreadable }: JsonForm): Any {
  unreadable?.(typeUrl);
  const text = (value: string) => ({ kind: { case: 'stringValue' as const, value } });
  const fields = {
    unreadable: text(why),
    type_url: text(typeUrl),
    value_base64: text(Buffer.from(value).toString('base64')),
  };
  return anyPack(StructSchema, create(StructSchema, { fields }));
}

/** Makes each Any below a message readable; true: it changed something. */
function mend(message: ReflectMessage, form: JsonForm): boolean {
  // Struct and the like hold no Any, and are no messages to reflection.
  if (message.desc.typeName.startsWith('google.protobuf.')) return false;
  let changed = false;
  const visit = (part: unknown, replace: (by: ReflectMessage) => void): void => {
    if (!isReflectMessage(part)) return;
    if (!isMessage(part.message, AnySchema)) {
      changed = mend(part, form) || changed;
      return;
    }
    const readable = mendAny(part.message, form);
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
