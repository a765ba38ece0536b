import { createHash } from 'node:crypto';
import { create, fromBinary, type JsonObject, toBinary } from '@bufbuild/protobuf';
import { NodeSchema } from '../../gen/envoy/config/core/v3/base_pb.ts';
import { fillTemplate, nodePath, parseShown } from '../../model/node-path.ts';
import type { Parameters } from '../../model/parameters.ts';
import { quote } from '../../model/text.ts';
import { PASSES_VARIANTS, UNKNOWN_NAMES, USER_AGENT } from '../../wire/between-relays.ts';
import { isJsonObject } from '../../wire/registry.ts';

/** The node of the configuration. */
export interface RelayNode {
  readonly id: string;
  readonly cluster: string;
  readonly metadata: JsonObject;
  readonly locality: { readonly region: string; readonly zone: string; readonly subZone: string };
}

/** What of a parameter rule a session of PER_PARAMETERS needs. */
export interface SessionRule {
  readonly key: string;
  /** Where the session's node shows it: `node.id`, `node.cluster`, `node.locality.…` or `node.metadata.…`; `=TEMPLATE`. */
  readonly to: string;
}

/** Characters of a part of a node in a message. */
const longestShown = 200;

const CLIENT_FEATURES = ['xds.config.resource-in-sotw', 'xds.config.supports-resource-ttl', UNKNOWN_NAMES];

/**
 * The encoded Node that a session shows. A key that the session does not have leaves the relay's own value there. Where
 * no rule writes node.id, it is made of the parameters: two sessions of one id would get each other's resources from a
 * control plane that keeps them by id. `version`: the product's; `passesVariants`: NATIVE, see wire/via.ts.
 */
export function encodeNode(
  node: RelayNode,
  rules: readonly SessionRule[],
  parameters: Parameters,
  version: string,
  passesVariants: boolean,
): Uint8Array {
  const keys = rules.map(({ key }) => key);
  let shown: RelayNode = { ...node, id: sessionId(node.id, keys, parameters) };
  for (const { key, to } of rules) {
    const { path, template } = parseShown(to);
    const { entries } = parameters;
    const value = template === undefined ? entries.get(key) : fillTemplate(template, entries);
    if (value !== undefined) shown = write(shown, nodePath(path) ?? [], value);
  }
  const { id, cluster, metadata, locality } = shown;
  const hasLocality = locality.region !== '' || locality.zone !== '' || locality.subZone !== '';
  return toBinary(
    NodeSchema,
    create(NodeSchema, {
      id,
      cluster,
      ...(Object.keys(metadata).length > 0 ? { metadata } : {}),
      ...(hasLocality ? { locality } : {}),
      userAgentName: USER_AGENT,
      userAgentVersionType: { case: 'userAgentVersion', value: version },
      clientFeatures: passesVariants ? [...CLIENT_FEATURES, PASSES_VARIANTS] : CLIENT_FEATURES,
    }),
  );
}

/** Of encoded nodes, for a message: what most control planes go by. */
export function nodesText([first, ...more]: readonly Uint8Array[]): string {
  if (first === undefined) return '';
  const { id, cluster } = fromBinary(NodeSchema, first);
  // Not how many: the same reason must be the same text, or each try would be logged.
  const others = more.length === 0 ? '' : ', and to others';
  return ` to the node with id ${quote(id, longestShown)} and cluster ${quote(cluster, longestShown)}${others}`;
}

/** `path`: below metadata, a part of the locality, or one of the other fields. No configuration has another one. */
function write(node: RelayNode, [field = '', ...rest]: readonly string[], value: string): RelayNode {
  if (field === 'metadata') return { ...node, metadata: inside(node.metadata, rest, value) };
  const [part] = rest;
  if (part === undefined) return { ...node, [field]: value };
  return { ...node, locality: { ...node.locality, [part === 'sub_zone' ? 'subZone' : part]: value } };
}

/** A computed key makes a property of its own even of `__proto__`. */
function inside(object: JsonObject, [key = '', ...rest]: readonly string[], value: string): JsonObject {
  if (rest.length === 0) return { ...object, [key]: value };
  const below = Object.hasOwn(object, key) ? object[key] : undefined;
  return { ...object, [key]: inside(isJsonObject(below) ? below : {}, rest, value) };
}

/** A longer value, once escaped, becomes its beginning and a hash. */
const longestValue = 64;
const keptLength = 36;
/** Base64url of SHA-256: 132 bits, so nobody finds a second value with the same one. */
const hashLength = 22;

/**
 * The node id of a session of PER_PARAMETERS: `<id>~<values>`, the values in the order of the rules' keys. It is unique
 * to the parameter set, because control planes keep what they have for a node under its id. An absent value is left
 * empty, at the end it is left out: a rule more at the end changes no id.
 */
export function sessionId(id: string, keys: readonly string[], parameters: Parameters): string {
  const values = [...new Set(keys)].map((key) => part(parameters.entries.get(key)));
  while (values.at(-1) === '') values.pop();
  return [id, ...values].join('~');
}

/** Escaped values hold no `~` and no `*`, and no `%` that does not begin an escape: so no two values look the same. */
function part(value: string | undefined): string {
  if (value === undefined) return '';
  if (value === '') return '%';
  const text = escape(value.toWellFormed());
  if (text.length <= longestValue) return text;
  const hash = createHash('sha256').update(value).digest('base64url').slice(0, hashLength);
  return `${text.slice(0, keptLength).replace(/%.?$/, '')}*${hash}`;
}

function escape(value: string): string {
  return value.replace(/[^\w./:@+-]/gu, (character) =>
    [...Buffer.from(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  );
}
