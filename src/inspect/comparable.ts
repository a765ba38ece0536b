import { create, type JsonValue, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import {
  type NameDifference,
  NameDifferenceSchema,
  type VariantDifference,
  VariantDifferenceSchema,
} from '../gen/distributary/admin/v1/changes_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import { type Content, contentHash } from '../model/change.ts';
import { formatConstraints } from '../model/constraints.ts';
import { contentHash as payloadHash } from '../model/content-hash.ts';
import type { Variant } from '../model/resource.ts';
import { counted } from '../model/text.ts';
import type { Pace } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import { yamlText } from '../observe/yaml-text.ts';
import { isJsonValue } from '../wire/json-fault.ts';
import { redactedJson } from '../wire/redaction.ts';

/** Of a resource's JSON that is compared field by field: it is parsed at once. */
const maxCharacters = 2 << 20;

/** One variant as it is compared. */
interface Comparable {
  /** Variants with the same text are compared. */
  readonly constraints: string;
  /** Equal: nothing differs. */
  readonly hash: string;
  /** The encoded Any; undefined: not there, or not shown. */
  readonly body: Uint8Array | undefined;
}

/** The variants of a name. */
export type Comparables = readonly Comparable[];

export function comparablesOf(content: Content): Comparables {
  return content.map(({ variant }) => ({
    constraints: formatConstraints(variant.constraints.expression),
    hash: contentHash(variant),
    body: variant.payload?.bytes,
  }));
}

/** What one client gets: its constraints do not matter, because another client has others. */
export function comparableOf(variant: Variant): Comparables {
  const { constraints, payload } = variant;
  const text = formatConstraints(constraints.expression);
  return [{ constraints: text, hash: payload?.hash ?? '', body: payload?.bytes }];
}

/** What a client was sent. Without a body (secrets) the version is compared. */
export function receivedComparable(version: string, body: Any | undefined): Comparables {
  const bytes = body === undefined ? undefined : toBinary(AnySchema, body);
  const hash = bytes === undefined ? version : payloadHash(bytes);
  return [{ constraints: '', hash, body: bytes }];
}

/** A name that is not the same on both sides. */
export interface Difference {
  readonly type: TypeUrl;
  readonly name: string;
  readonly change: ChangeKind;
  readonly variants: readonly ComparedVariants[];
  /** Nobody has it before the change that is judged has ended. Absent: false. */
  readonly queued?: boolean;
}

interface ComparedVariants {
  readonly constraints: string;
  readonly from: Comparable | undefined;
  readonly to: Comparable | undefined;
}

type ChangeKind = 'ADDED' | 'CHANGED' | 'REMOVED';

/** Undefined: nothing differs. */
export function differenceOf(
  type: TypeUrl,
  name: string,
  from: Comparables,
  to: Comparables,
): Difference | undefined {
  const variants = compared(from, to).filter((one) => one.from?.hash !== one.to?.hash);
  if (variants.length === 0) return undefined;
  return { type, name, change: changeOf(from.length > 0, to.length > 0), variants };
}

function compared(from: Comparables, to: Comparables): readonly ComparedVariants[] {
  const [before] = from;
  const [after] = to;
  // One variant on each side: what differs are its fields, even if it is for others now.
  if (before !== undefined && after !== undefined && from.length === 1 && to.length === 1) {
    const constraints =
      before.constraints === after.constraints
        ? after.constraints
        : `${before.constraints} → ${after.constraints}`;
    return [{ constraints, from: before, to: after }];
  }
  const all = new Set([...from, ...to].map(({ constraints }) => constraints));
  const of = (side: Comparables, text: string): Comparable | undefined =>
    side.find(({ constraints }) => constraints === text);
  return [...all].map((text) => ({ constraints: text, from: of(from, text), to: of(to, text) }));
}

export const differenceRow = ({ type, name, change, queued }: Difference): NameDifference =>
  create(NameDifferenceSchema, { type: typeInfo(type).short, name, change, queued: queued === true });

/** What differs in each variant. */
export async function fieldsOf({ type, variants }: Difference, pace: Pace): Promise<VariantDifference[]> {
  const found: VariantDifference[] = [];
  for (const { constraints, from, to } of variants) {
    const change = changeOf(from !== undefined, to !== undefined);
    const yaml = await yamlOf(type, from?.body, to?.body, pace);
    found.push(create(VariantDifferenceSchema, { constraints, change, yaml }));
  }
  return found;
}

function changeOf(before: boolean, after: boolean): ChangeKind {
  if (before && after) return 'CHANGED';
  return after ? 'ADDED' : 'REMOVED';
}

async function yamlOf(
  type: TypeUrl,
  from: Uint8Array | undefined,
  to: Uint8Array | undefined,
  pace: Pace,
): Promise<string> {
  if (typeInfo(type).short === 'sds') return '# secrets are not shown\n';
  const before = await jsonOf(from, pace);
  const after = await jsonOf(to, pace);
  if (before === undefined || after === undefined) {
    return `# more than ${maxCharacters} characters as JSON are not compared: distributary get shows both\n`;
  }
  const fields = await fieldDifferences(parsed(before), parsed(after), pace);
  return fields === '' ? '# nothing that is shown differs\n' : fields;
}

async function jsonOf(body: Uint8Array | undefined, pace: Pace): Promise<string | undefined> {
  return body === undefined ? '{}' : redactedJson(body, pace, maxCharacters);
}

function parsed(text: string): JsonValue {
  const value: unknown = JSON.parse(text);
  return isJsonValue(value) ? value : {};
}

/** What is shown of a difference: YAML costs most, so each field is written by itself. */
const most = { fields: 10_000, characters: 4 << 20 };
/** What has more characters as JSON, and is on one side only, is shown part by part. */
const longestPart = 16 << 10;

/**
 * The fields that differ, as YAML: each path with what it was and what it is. A field that one side does not have has no
 * `from` or no `to`.
 *
 *     connect_timeout: { from: 1s, to: 5s }
 */
async function fieldDifferences(from: JsonValue, to: JsonValue, pace: Pace): Promise<string> {
  const parts: string[] = [];
  let [characters, left] = [0, 0];
  for (const [path, difference] of differences('', from, to)) {
    await pace.yieldIfDue();
    if (parts.length >= most.fields || characters >= most.characters) {
      left++;
      continue;
    }
    const text = yamlText(new Map([[path, difference]]));
    parts.push(text);
    characters += text.length;
  }
  return left === 0 ? parts.join('') : `${parts.join('')}# and ${counted(left, 'more field')}\n`;
}

type FieldDifference = { readonly from?: JsonValue; readonly to?: JsonValue };
type Found = readonly [path: string, FieldDifference];

function* differences(path: string, from: JsonValue, to: JsonValue): Iterable<Found> {
  if (Array.isArray(from) && Array.isArray(to)) {
    for (let index = 0; index < Math.max(from.length, to.length); index++) {
      yield* ofPart(`${path}[${index}]`, from[index], to[index]);
    }
  } else if (isObject(from) && isObject(to)) {
    for (const key of new Set([...Object.keys(from), ...Object.keys(to)])) {
      yield* ofPart(path === '' ? key : `${path}.${key}`, from[key], to[key]);
    }
  } else if (from !== to) yield [path, { from, to }];
}

function* ofPart(path: string, from: JsonValue | undefined, to: JsonValue | undefined): Iterable<Found> {
  const only = from ?? to;
  if (from !== undefined && to !== undefined) yield* differences(path, from, to);
  else if (only !== undefined && isLong(only))
    yield* differences(path, from ?? emptyAs(only), to ?? emptyAs(only));
  else if (only !== undefined) yield [path, from === undefined ? { to: only } : { from: only }];
}

const isLong = (value: JsonValue): boolean =>
  typeof value === 'object' && value !== null && JSON.stringify(value).length > longestPart;
const emptyAs = (value: JsonValue): JsonValue => (Array.isArray(value) ? [] : {});

function isObject(json: JsonValue): json is { [key: string]: JsonValue } {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}
