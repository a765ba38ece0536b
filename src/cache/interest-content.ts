import { type ResourceName, resourceName } from '../model/brand.ts';
import { type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import { type CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';
import type { TypeTable } from './type-table.ts';

/** What would end with an interest. */
export interface InterestContent {
  /** There is a resource for it, or upstream has answered a wildcard. */
  readonly hasContent: boolean;
  /**
   * Of the bodies that no other interest sees. What several keep counts for none of them, so the sum over all interests
   * is never more than what there is.
   */
  readonly bytes: number;
}

export function contentOf(table: TypeTable, interest: Interest): InterestContent {
  const { selector, parameters } = interest;
  const isWildcard = selector === WILDCARD;
  let hasContent = isWildcard && table.interests.get(selector, parameters)?.resolved === true;
  let bytes = 0;
  for (const name of namesOf(table, selector)) {
    for (const entry of table.resources.get(name)?.variants.match(parameters) ?? []) {
      if (isWildcard && !isHeldByWildcard(entry)) continue;
      hasContent = true;
      if (!isWanted(table, name, entry, interest)) bytes += entry.variant.payload?.bytes.length ?? 0;
    }
  }
  return { hasContent, bytes };
}

/** Whether an interest other than `except` sees a variant. */
export function isWanted(
  table: TypeTable,
  name: ResourceName,
  entry: CacheEntry,
  except?: Interest,
): boolean {
  for (const { interest } of table.interests.seeing(name, entry.constraints)) {
    if (interest === except) continue;
    if (interest.selector !== WILDCARD || isHeldByWildcard(entry)) return true;
  }
  return entry.variant.aliases.some((alias) => table.interests.named(resourceName(alias)) !== undefined);
}

/** Whether somebody is there to be told of its faults. */
export function isTold(
  { interests }: TypeTable,
  name: ResourceName,
  { resourceErrors }: CachedResource,
): boolean {
  for (const { constraints, fromWildcard } of resourceErrors?.values() ?? []) {
    for (const { interest } of interests.seeing(name, constraints)) {
      if (fromWildcard || interest.selector !== WILDCARD) return true;
    }
  }
  return false;
}

/** The names of which a selector may show something. */
export function namesOf(table: TypeTable, selector: Selector): ResourceName[] {
  if (selector === WILDCARD) return [...table.resources.keys()];
  return [selector, ...table.aliased(selector), ...table.resources.under(selector)];
}
