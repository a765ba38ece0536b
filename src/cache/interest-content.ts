import { type ResourceName, type Revision, resourceName, type TypeUrl } from '../model/brand.ts';
import { clusterFacts } from '../model/cluster.ts';
import { isCollection } from '../model/selection.ts';
import { type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import { canonicalName } from '../model/xdstp.ts';
import { type CachedResource, type CacheEntry, isHeldByWildcard } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import type { Column, TypeTable } from './type-table.ts';
import { VariantRemover } from './variant-remover.ts';

/** What would end with an interest. */
export interface InterestContent {
  /** There is a resource for it, or upstream has answered a wildcard. */
  readonly hasContent: boolean;
  /**
   * The bytes of the bodies that no other interest sees. A body that several interests see counts for none of them, so
   * the sum over all interests is never more than the cache.
   */
  readonly bytes: number;
}

export function contentOf(table: TypeTable, interest: Interest): InterestContent {
  const { selector, parameters } = interest;
  const isWildcard = selector === WILDCARD;
  let hasContent = isWildcard && table.interests.get(selector, parameters)?.answer !== undefined;
  let bytes = 0;
  for (const name of namesOf(table, selector)) {
    for (const entry of table.resources.get(name)?.variants.match(parameters) ?? []) {
      if (isWildcard && !isHeldByWildcard(entry)) continue;
      hasContent = true;
      if (!isSeen(table, name, entry, interest)) bytes += entry.variant.payload?.bytes.length ?? 0;
    }
  }
  return { hasContent, bytes };
}

/** Whether there is a resource for an interest, or upstream has answered a wildcard. */
export function hasContent(
  table: TypeTable,
  { selector, parameters }: Interest,
  column: Column = 'said',
): boolean {
  const isWildcard = selector === WILDCARD;
  if (isWildcard && table.interests.get(selector, parameters)?.answer !== undefined) return true;
  for (const name of namesOf(table, selector, column)) {
    const matches = table.resource(name, column)?.variants.match(parameters) ?? [];
    if (matches.some((entry) => !isWildcard || isHeldByWildcard(entry))) return true;
  }
  return false;
}

/** Removes what only this interest saw, which has ended. `dropped` is called for each name that is not as it was. */
export function dropContentOf(
  table: TypeTable,
  interest: Interest,
  changes: CommitChanges,
  dropped: (name: ResourceName) => void,
): void {
  const { selector, parameters } = interest;
  const remover = new VariantRemover(table, { unwanted: true, unanswered: [] });
  for (const name of namesOf(table, selector)) {
    const cached = table.resources.get(name);
    if (cached === undefined) continue;
    for (const entry of cached.variants.match(parameters)) {
      if (isSeen(table, name, entry)) continue;
      table.remove(name, cached, entry);
      dropped(name);
    }
    // Clients can send any parameters: the choices made for them end with them.
    if (cached.ambiguousCount > 0 && !table.interests.sees(name, parameters)) {
      cached.unbind(parameters);
      dropped(name);
    }
    if (cached.variants.size === 0 && !hasErrorSubscriber(table, name, cached)) table.resources.delete(name);
  }
  remover.releaseRestored(interest, changes);
}

/** Whether an interest other than `except` sees a variant. */
function isSeen(table: TypeTable, name: ResourceName, entry: CacheEntry, except?: Interest): boolean {
  for (const { interest } of table.interests.seeing(name, entry.constraints)) {
    if (interest === except) continue;
    if (interest.selector !== WILDCARD || isHeldByWildcard(entry)) return true;
  }
  return entry.variant.aliases.some((alias) => table.interests.named(resourceName(alias)) !== undefined);
}

/** Whether some interest gets the errors of a name. */
function hasErrorSubscriber(
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

/** The names that a selector covers, and those of resources that have it as an alias. */
export function namesOf(table: TypeTable, selector: Selector, column: Column = 'said'): ResourceName[] {
  if (selector === WILDCARD) return [...table.names(WILDCARD)];
  return [selector, ...table.aliased(selector, column), ...table.names(selector)];
}

/**
 * Endpoints to which no cluster leads any more. A control plane over SotW cannot say that they are gone: it only stops to
 * send them. What nobody subscribes to and no cluster leads to is kept no longer than what is absent.
 */
export class LeftEndpoints {
  #names: ReadonlySet<string> | undefined;
  /** Of `#names`. */
  #revision: Revision | undefined;

  /**
   * False also where it is not known: clients with these parameters do not have all clusters from here, or some cluster is
   * of an extension, which may name its endpoints in its own way.
   */
  isLeft({ type, selector, parameters }: Interest, clusters: TypeTable, revision: Revision): boolean {
    if (isCollection(selector) || clusters.interests.get(WILDCARD, parameters)?.answer === undefined)
      return false;
    if (this.#revision !== revision) this.#names = namesIn(clusters, type);
    this.#revision = revision;
    return this.#names?.has(selector) === false;
  }
}

export const haveClusters = (type: TypeUrl): boolean => typeInfo(type).short === 'eds';

/** Of all variants. Undefined: not all of them can be known. */
function namesIn(clusters: TypeTable, type: TypeUrl): ReadonlySet<string> | undefined {
  const names = new Set<string>();
  for (const { variants } of clusters.resources.values()) {
    for (const { variant } of variants.values()) {
      const { service, extended } = clusterFacts(variant);
      if (extended) return undefined;
      const canonical = canonicalName(service, type);
      names.add(canonical.ok ? canonical.value : service);
    }
  }
  return names;
}
