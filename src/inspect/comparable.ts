import { type JsonValue, toBinary } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import type { Plain } from '../admin/plain.ts';
import type { NameDifference, VariantDifference } from '../gen/distributary/admin/v1/changes_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import { type Content, contentHash } from '../model/change.ts';
import { formatConstraints } from '../model/constraints.ts';
import { contentHash as payloadHash } from '../model/content-hash.ts';
import type { Variant } from '../model/resource.ts';
import { typeInfo } from '../model/types.ts';
import { redactedJson } from '../wire/redaction.ts';
import { fieldDifferences } from './field-differences.ts';

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

/** Variants by names, by types. */
export type ComparableSide = ReadonlyMap<TypeUrl, ReadonlyMap<string, Comparables>>;

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

/** Undefined: nothing differs. `withFields`: says what does. */
export function differenceOf(
  type: TypeUrl,
  name: string,
  sides: { readonly from: Comparables; readonly to: Comparables },
  withFields: boolean,
): Plain<NameDifference> | undefined {
  const { from, to } = sides;
  const change = changeOf(from.length > 0, to.length > 0);
  const variants = variantDifferences(type, from, to, withFields);
  if (variants.length === 0) return undefined;
  return { type: typeInfo(type).short, name, change, variants: withFields ? variants : [] };
}

function variantDifferences(
  type: TypeUrl,
  from: Comparables,
  to: Comparables,
  withFields: boolean,
): Plain<VariantDifference>[] {
  const [before] = from;
  const [after] = to;
  // One variant on each side: what differs are its fields, even if it is for others now.
  if (before !== undefined && after !== undefined && from.length === 1 && to.length === 1) {
    const constraints =
      before.constraints === after.constraints
        ? after.constraints
        : `${before.constraints} → ${after.constraints}`;
    return variantDifference(type, constraints, before, after, withFields);
  }
  const all = new Set([...from, ...to].map(({ constraints }) => constraints));
  const of = (side: Comparables, text: string): Comparable | undefined =>
    side.find(({ constraints }) => constraints === text);
  return [...all].flatMap((text) => variantDifference(type, text, of(from, text), of(to, text), withFields));
}

function variantDifference(
  type: TypeUrl,
  constraints: string,
  from: Comparable | undefined,
  to: Comparable | undefined,
  withFields: boolean,
): Plain<VariantDifference>[] {
  if (from?.hash === to?.hash) return [];
  const change = changeOf(from !== undefined, to !== undefined);
  return [{ constraints, change, yaml: withFields ? yamlOf(type, from?.body, to?.body) : '' }];
}

function changeOf(before: boolean, after: boolean): 'ADDED' | 'CHANGED' | 'REMOVED' {
  if (before && after) return 'CHANGED';
  return after ? 'ADDED' : 'REMOVED';
}

function yamlOf(type: TypeUrl, from: Uint8Array | undefined, to: Uint8Array | undefined): string {
  if (typeInfo(type).short === 'sds') return '# secrets are not shown\n';
  const fields = fieldDifferences(jsonOf(from), jsonOf(to));
  return fields === '' ? '# nothing that is shown differs\n' : fields;
}

const jsonOf = (body: Uint8Array | undefined): JsonValue => (body === undefined ? {} : redactedJson(body));
