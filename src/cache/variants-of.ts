import type { ConstraintsKey } from '../model/brand.ts';
import type { Variant } from '../model/resource.ts';
import { type CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';
import { sameVariantContent } from './same-content.ts';

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
