import type { ResourceName, Revision, TypeUrl } from '../model/brand.ts';
import type { Catalog, StoredResourceError, Value } from '../model/catalog.ts';
import type { Parameters } from '../model/parameters.ts';
import { covers } from '../model/selection.ts';
import { type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import {
  type Admits,
  type CachedResource,
  type CacheEntry,
  isHeldByWildcard,
  NO_FILTER,
  type PickFilter,
} from './cached-resource.ts';
import type { InterestState } from './interests.ts';
import type { Column, TypeTable, TypeTables } from './type-table.ts';

type Pick = (
  cached: CachedResource,
  name: ResourceName,
  among: PickFilter,
  table: TypeTable,
) => CacheEntry | undefined;

/** Answers the questions of views from one column of the cache. */
export class CatalogReader implements Catalog {
  readonly tables: TypeTables;
  readonly #column: Column;

  constructor(tables: TypeTables, column: Column) {
    this.tables = tables;
    this.#column = column;
  }

  get revision(): Revision {
    return this.tables.revision;
  }

  /** Undefined: nothing of the type is cached, and nobody is interested. */
  table(type: TypeUrl): TypeTable | undefined {
    return this.tables.get(type);
  }

  /** What `resolve` would give; nothing is recorded or counted. */
  peek(type: TypeUrl, name: ResourceName, parameters: Parameters): Value {
    return this.#value(type, name, parameters, NO_FILTER, (cached, _, among) =>
      cached.peek(parameters, among),
    );
  }

  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Admits,
    fromWildcard = false,
  ): Value {
    const filter = access || fromWildcard ? { access, fromWildcard } : NO_FILTER;
    return this.#value(type, name, parameters, filter, (cached, own, among, table) =>
      cached.pick(parameters, (matches) => table.ambiguous(own, parameters, matches), among),
    );
  }

  *members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName> {
    for (const name of this.table(type)?.names(selector) ?? []) {
      if (
        this.isMember(type, selector, name, parameters) ||
        this.hasErrorFor(type, selector, name, parameters)
      )
        yield name;
    }
  }

  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const cached = this.#resource(type, name);
    if (cached === undefined) return false;
    if (!covers(selector, name)) return false;
    return cached.variants
      .match(parameters)
      .some((entry) => selector !== WILDCARD || isHeldByWildcard(entry));
  }

  hasErrorFor(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const resourceErrors = this.#resource(type, name)?.resourceErrors;
    if (resourceErrors === undefined || !covers(selector, name)) return false;
    for (const { fromWildcard, constraints } of resourceErrors.values()) {
      if ((fromWildcard || selector !== WILDCARD) && constraints.matches(parameters)) return true;
    }
    return false;
  }

  isResolved(interest: Interest): boolean {
    return this.state(interest)?.answer !== undefined;
  }

  version(interest: Interest): string {
    const holder = this.state(interest)?.holder;
    return holder === undefined ? '' : (this.table(interest.type)?.version(holder.key, this.#column) ?? '');
  }

  resourceErrors(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly StoredResourceError[] {
    const resourceErrors = this.#resource(type, name)?.resourceErrors;
    if (resourceErrors === undefined) return [];
    return [...resourceErrors.values()].filter((error) => error.constraints.matches(parameters));
  }

  protected state(interest: Interest): InterestState | undefined {
    return this.table(interest.type)?.interests.get(interest.selector, interest.parameters);
  }

  /** By its own name, else by an alias. */
  #value(type: TypeUrl, name: ResourceName, parameters: Parameters, filter: PickFilter, pick: Pick): Value {
    const table = this.table(type);
    if (table === undefined) return 'unknown';
    const own = table.resource(name, this.#column);
    const entry = own && pick(own, name, filter, table);
    if (entry !== undefined) return entry.variant;
    for (const target of table.aliased(name, this.#column)) {
      const aliased = table.resource(target, this.#column);
      const found = aliased && pick(aliased, target, { ...filter, alias: name }, table);
      if (found !== undefined) return found.variant;
    }
    return table.interests.get(name, parameters)?.answer === undefined ? 'unknown' : 'absent';
  }

  #resource(type: TypeUrl, name: ResourceName): CachedResource | undefined {
    return this.table(type)?.resource(name, this.#column);
  }
}
