import type { DescMessage, JsonValue, Registry } from '@bufbuild/protobuf';
import { errorMessage } from '../model/result.ts';

export type JsonPath = readonly (string | number)[];

interface JsonFaultPlace {
  readonly path: JsonPath;
  readonly message: string;
}

type Read = (desc: DescMessage, json: JsonValue) => unknown;

/**
 * Finds the smallest part of the JSON that `read` refuses, by reading the parts one by one: the decoder itself does
 * not say where it stopped. Costs the document's size times its depth, and only once something is wrong.
 */
export function locateJsonFault(
  desc: DescMessage,
  json: JsonValue,
  registry: Registry,
  read: Read,
  message: string,
): JsonFaultPlace {
  if (!isObject(json)) return { path: [], message };
  if (desc.typeName === 'google.protobuf.Any') return locateInAny(json, registry, read, message);
  for (const [key, value] of Object.entries(json)) {
    const refusal = attempt(() => read(desc, { [key]: value }));
    if (refusal === undefined) continue;
    const field = desc.fields.find((candidate) => candidate.name === key || candidate.jsonName === key);
    const part = field?.message;
    if (part === undefined) return { path: [key], message: refusal };
    for (const [inner, element] of parts(field?.fieldKind, value)) {
      const reason = attempt(() => read(part, element));
      if (reason === undefined) continue;
      const found = locateJsonFault(part, element, registry, read, reason);
      return { path: [key, ...inner, ...found.path], message: found.message };
    }
    return { path: [key], message: refusal };
  }
  // Every key is good by itself: two of them contradict each other (a oneof set twice, say).
  return { path: [], message };
}

function locateInAny(
  json: { readonly [key: string]: JsonValue },
  registry: Registry,
  read: Read,
  message: string,
): JsonFaultPlace {
  const url = json['@type'];
  if (typeof url !== 'string' || url === '') {
    return {
      path: [],
      message: '"@type" is missing: it says which message this is, as type.googleapis.com/…',
    };
  }
  const desc = registry.getMessage(url.slice(url.lastIndexOf('/') + 1));
  if (desc === undefined) {
    return {
      path: ['@type'],
      message: `unknown "@type" ${JSON.stringify(url)}: it is not part of the Envoy API that this build knows`,
    };
  }
  const { '@type': _type, ...body } = json;
  const inner = attempt(() => read(desc, body));
  return inner === undefined ? { path: [], message } : locateJsonFault(desc, body, registry, read, inner);
}

/** The messages in a field's value, each with its path below the field. */
function* parts(kind: string | undefined, value: JsonValue): Generator<[JsonPath, JsonValue]> {
  if (kind === 'list' && Array.isArray(value)) {
    for (const [index, element] of value.entries()) yield [[index], element];
  } else if (kind === 'map' && isObject(value)) {
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

function isObject(json: JsonValue): json is { [key: string]: JsonValue } {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}

function attempt(run: () => unknown): string | undefined {
  try {
    run();
    return undefined;
  } catch (error) {
    return errorMessage(error);
  }
}
