import { zstdDecompressSync } from 'node:zlib';
import {
  createFileRegistry,
  type DescField,
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  type Registry,
  toBinary,
} from '@bufbuild/protobuf';
import { fromText } from '@bufbuild/protobuf/txtpb';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { lazily } from '../model/maps.ts';
import { attempt, errorMessage, fail, type Result } from '../model/result.ts';
import { packageFile } from '../package/files.ts';

/**
 * The whole Envoy API as descriptors: what JSON and text need for the messages inside Any. Loaded when it is first
 * asked for, in about 0.1 s and 13 MB, because gRPC never needs it.
 */
export const envoyRegistry = lazily(() =>
  createFileRegistry(
    fromBinary(FileDescriptorSetSchema, zstdDecompressSync(packageFile('proto/envoy-api.binpb.zst'))),
  ),
);

/**
 * Canonical proto3 JSON (snake_case is accepted too) to the encoded message of this full name. An unknown field is a fault.
 * The error: every fault that was found, at least one.
 */
export function jsonToBytes(typeName: string, json: unknown): Result<Uint8Array, readonly JsonFaultPlace[]> {
  const registry = envoyRegistry();
  const desc = registry.getMessage(typeName);
  if (desc === undefined) return fail([{ path: [], message: unknownType(typeName) }]);
  if (!isJsonValue(json)) return fail([{ path: [], message: 'it is not JSON, or nested too deeply' }]);
  const read = (part: DescMessage, value: JsonValue) => fromJson(part, value, { registry });
  const encoded = attempt(() => toBinary(desc, read(desc, json)), errorMessage);
  return encoded.ok ? encoded : fail(jsonFaults(desc, json, registry, read, encoded.error));
}

/** Protobuf's text format (.pb_text) to the encoded message of this full name. */
export function textToBytes(typeName: string, text: string): Result<Uint8Array> {
  const known = envoyRegistry();
  const desc = known.getMessage(typeName);
  if (desc === undefined) return fail(unknownType(typeName));
  return attempt(() => toBinary(desc, fromText(desc, text, { registry: known })), errorMessage);
}

/** The full name of a message in a type URL: what follows the last slash. */
export function messageName(typeUrl: string): string {
  return typeUrl.slice(typeUrl.lastIndexOf('/') + 1);
}

export function unknownType(typeName: string): string {
  return `the type ${JSON.stringify(typeName)} is not part of the Envoy API that this build knows`;
}

/** The Envoy API for what is inside Any in JSON; loaded once the first Any is written, not with the server. */
export const lazyEnvoyRegistry: Registry = {
  kind: 'registry',
  [Symbol.iterator]: () => envoyRegistry()[Symbol.iterator](),
  get: (name) => envoyRegistry().get(name),
  getMessage: (name) => envoyRegistry().getMessage(name),
  getEnum: (name) => envoyRegistry().getEnum(name),
  getExtension: (name) => envoyRegistry().getExtension(name),
  getExtensionFor: (extendee, no) => envoyRegistry().getExtensionFor(extendee, no),
  getService: (name) => envoyRegistry().getService(name),
};

export type JsonPath = readonly (string | number)[];

/** Why JSON is not a message, and where in it: the keys as they are written, indexes of arrays. */
export interface JsonFaultPlace {
  readonly path: JsonPath;
  readonly message: string;
}

type JsonObject = { readonly [key: string]: JsonValue };

type Read = (desc: DescMessage, json: JsonValue) => unknown;

/** As many faults as anybody reads; the search for more would cost time. */
const mostFaults = 100;

/**
 * Finds the smallest parts of the JSON that `read` refuses, by reading the parts one by one: the decoder itself does
 * not say where it stopped, and stops at the first. Costs the document's size times its depth, and only once something
 * is wrong. At least one, and at most 100.
 */
function jsonFaults(
  desc: DescMessage,
  json: JsonValue,
  registry: Registry,
  read: Read,
  message: string,
): readonly JsonFaultPlace[] {
  return [...faultsIn(desc, json, message).take(mostFaults)];

  function* faultsIn(desc: DescMessage, json: JsonValue, message: string): Faults {
    if (!isJsonObject(json)) yield { path: [], message: hinted(desc, json, message) };
    else if (desc.typeName === 'google.protobuf.Any') yield* faultsInAny(json, message);
    else yield* faultsInFields(desc, json, message);
  }

  function* faultsInFields(desc: DescMessage, json: JsonObject, message: string): Faults {
    let found = false;
    for (const [key, value] of Object.entries(json)) {
      const readPart = attempt(() => read(desc, { [key]: value }), errorMessage);
      if (readPart.ok) continue;
      found = true;
      const field = desc.fields.find((candidate) => candidate.name === key || candidate.jsonName === key);
      yield* faultsInField(field, key, value, readPart.error);
    }
    // Every key is good by itself: two of them contradict each other (a oneof set twice, say).
    if (!found) yield { path: [], message };
  }

  function* faultsInField(
    field: DescField | undefined,
    key: string,
    value: JsonValue,
    refusal: string,
  ): Faults {
    const part = field?.message;
    let found = false;
    for (const [inner, element] of part === undefined ? [] : parts(field?.fieldKind, value)) {
      const readPart = part && attempt(() => read(part, element), errorMessage);
      if (part === undefined || readPart?.ok !== false) continue;
      found = true;
      for (const fault of faultsIn(part, element, readPart.error))
        yield { path: [key, ...inner, ...fault.path], message: fault.message };
    }
    if (!found) yield { path: [key], message: refusal };
  }

  function* faultsInAny(json: JsonObject, message: string): Faults {
    const url = json['@type'];
    if (typeof url !== 'string' || url === '') {
      const missing = '"@type" is missing: it says which message this is, as type.googleapis.com/…';
      yield { path: [], message: missing };
      return;
    }
    const desc = registry.getMessage(url.slice(url.lastIndexOf('/') + 1));
    if (desc === undefined) {
      const known = 'it is not part of the Envoy API that this build knows';
      yield { path: ['@type'], message: `unknown "@type" ${JSON.stringify(url)}: ${known}` };
      return;
    }
    const { '@type': _type, ...body } = json;
    const readBody = attempt(() => read(desc, body), errorMessage);
    if (readBody.ok) yield { path: [], message };
    else yield* faultsIn(desc, body, readBody.error);
  }
}

type Faults = Generator<JsonFaultPlace, void, undefined>;

function hinted(desc: DescMessage, json: JsonValue, message: string): string {
  if (desc.typeName !== 'google.protobuf.Duration') return message;
  return `${JSON.stringify(json)} is not a duration: use seconds, as in "5s" or "0.25s"`;
}

/** The messages in a field's value, each with its path below the field. */
function* parts(kind: string | undefined, value: JsonValue): Generator<[JsonPath, JsonValue]> {
  if (kind === 'list' && Array.isArray(value)) {
    for (const [index, element] of value.entries()) yield [[index], element];
  } else if (kind === 'map' && isJsonObject(value)) {
    for (const [key, element] of Object.entries(value)) yield [[key], element];
  } else if (kind === 'message') {
    yield [[], value];
  }
}

/** Far more than the decoder's own limit of messages inside each other. */
const maxDepth = 400;

/** Whether parsed JSON or YAML is JSON, and of a depth that the decoder can be given. */
export function isJsonValue(value: unknown, depth = 0): value is JsonValue {
  if (depth > maxDepth) return false;
  if (Array.isArray(value)) return value.every((element) => isJsonValue(element, depth + 1));
  if (typeof value === 'object' && value !== null) {
    return Object.values(value).every((element) => isJsonValue(element, depth + 1));
  }
  return value === null || ['string', 'number', 'boolean'].includes(typeof value);
}

export function isJsonObject(json: JsonValue | undefined): json is JsonObject {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}
