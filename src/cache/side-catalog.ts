import type { ResourceName, Revision, TypeUrl } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { CacheEntry } from './cached-resource.ts';
import { CatalogReader } from './catalog-reader.ts';
import type { ReadableTable } from './type-table.ts';

/** What a side needs of the store. */
interface SideSource {
  revision(): Revision;
  table(type: TypeUrl): ReadableTable | undefined;
  ambiguous(type: TypeUrl, name: ResourceName, parameters: Parameters, matches: readonly CacheEntry[]): void;
}

/** The cache as one side sees it. */
export class SideCatalog extends CatalogReader {
  readonly #source: SideSource;

  constructor(source: SideSource) {
    super();
    this.#source = source;
  }

  get revision(): Revision {
    return this.#source.revision();
  }

  protected readable(type: TypeUrl): ReadableTable | undefined {
    return this.#source.table(type);
  }

  protected ambiguous(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    matches: readonly CacheEntry[],
  ): void {
    this.#source.ambiguous(type, name, parameters, matches);
  }
}
