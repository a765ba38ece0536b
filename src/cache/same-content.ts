import type { ConstraintsKey } from '../model/brand.ts';
import type { Variant } from '../model/resource.ts';
import type { Put, ResourceError } from '../model/transaction.ts';
import { type CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';

/** Bytes decide, not versions: equal versions do not prove equal content, nor different ones a change (protocol §3.10). */
export function sameContent(variant: Variant, put: Put): boolean {
  if (put.payload !== undefined && put.payload.hash !== variant.payload?.hash) return false;
  return (
    sameBytes(variant.payload?.bytes, put.any) &&
    variant.doNotCache === put.doNotCache &&
    sameBytes(variant.metadata, put.metadata) &&
    variant.aliases.length === put.aliases.length &&
    variant.aliases.every((alias, index) => alias === put.aliases[index])
  );
}

/** Whether clients see the same of both; their TTLs may differ. */
export function sameVariantContent(a: Variant, b: Variant): boolean {
  return (
    (a === b || a.payload?.hash === b.payload?.hash) &&
    sameBytes(a.payload?.bytes, b.payload?.bytes) &&
    a.doNotCache === b.doNotCache &&
    sameBytes(a.metadata, b.metadata) &&
    a.aliases.length === b.aliases.length &&
    a.aliases.every((alias, index) => alias === b.aliases[index])
  );
}

export function sameError(a: ResourceError, b: ResourceError): boolean {
  return a.code === b.code && a.message === b.message && sameBytes(a.status, b.status);
}

function sameBytes(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined || a === b) return a === b;
  return a.length === b.length && Buffer.compare(a, b) === 0;
}

/** The variants of a name at one moment. */
export type VariantsOf = ReadonlyMap<ConstraintsKey, { readonly variant: Variant; readonly member: boolean }>;

const nothing: VariantsOf = new Map();

/** `except`: those to leave out. */
export function variantsOf(
  cached: CachedResource | undefined,
  except: (entry: CacheEntry) => boolean = () => false,
): VariantsOf {
  if (cached === undefined || cached.variants.size === 0) return nothing;
  return new Map(
    cached.variants
      .all()
      .filter((entry) => !except(entry))
      .map((entry) => [entry.constraints.key, { variant: entry.variant, member: isHeldByWildcard(entry) }]),
  );
}

/** Whether clients see the same of both. Errors are no content: they come through when the variants are equal. */
export function sameVariants(a: VariantsOf, b: VariantsOf): boolean {
  if (a.size !== b.size) return false;
  for (const [key, { variant, member }] of a) {
    const other = b.get(key);
    if (other === undefined || other.member !== member || !sameVariantContent(variant, other.variant))
      return false;
  }
  return true;
}
