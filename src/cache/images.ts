import type { ResourceName } from '../model/brand.ts';
import type { HeldVariant } from '../model/rollout.ts';
import type { Selector } from '../model/transaction.ts';
import { CachedResource, type CacheEntry } from './cached-resource.ts';
import type { Payloads } from './payloads.ts';
import { inOrder, type ReadableTable, TypeTable } from './type-table.ts';
import { VariantRemover } from './variant-remover.ts';

/** Names of one type that one side does not see as upstream has them, and what it sees. Without variants it is absent. */
export class Images {
  readonly table = new TypeTable();
  readonly #names = new Set<ResourceName>();
  readonly #payloads: Payloads;

  constructor(payloads: Payloads) {
    this.#payloads = payloads;
  }

  has(name: ResourceName): boolean {
    return this.#names.has(name);
  }

  names(): Iterable<ResourceName> {
    return this.#names;
  }

  get(name: ResourceName): CachedResource | undefined {
    return this.table.resources.get(name);
  }

  /** Keeps a copy. */
  keep(name: ResourceName, source: CachedResource | undefined): void {
    this.drop(name);
    this.#names.add(name);
    if (source === undefined || source.empty) return;
    const copy = new CachedResource();
    copy.order = source.order;
    this.table.resources.set(name, copy);
    for (const entry of source.variants.all()) this.#add(copy, entry, entry.confirmedIn);
    copy.resourceErrors = source.resourceErrors && new Map(source.resourceErrors);
    copy.restoreBindings(source.bindings ?? []);
  }

  /** Keeps these variants of an earlier time. Their TTLs were for that time. */
  keepVariants(name: ResourceName, variants: readonly HeldVariant[], order: number | undefined): void {
    this.drop(name);
    this.#names.add(name);
    for (const { variant: earlier, holders } of variants) {
      const variant = earlier.ttl === undefined ? earlier : { ...earlier, ttl: undefined };
      const entry = { constraints: variant.constraints, variant, holders, confirmedIn: 0 };
      this.add(name, entry, order);
    }
  }

  /** One more variant of a name that is here. */
  add(name: ResourceName, entry: CacheEntry, order: number | undefined): void {
    const cached = this.table.resources.get(name) ?? new CachedResource();
    if (cached.empty && order !== undefined) cached.order = order;
    this.table.resources.set(name, cached);
    this.#add(cached, entry, entry.confirmedIn);
  }

  /** The name is seen as upstream has it. */
  drop(name: ResourceName): void {
    if (!this.#names.delete(name)) return;
    const cached = this.table.resources.get(name);
    for (const entry of cached?.variants.all() ?? []) {
      this.table.unlink(entry.variant);
      this.table.variants--;
      this.#payloads.release(entry.variant.payload);
    }
    this.table.resources.delete(name);
  }

  /** Removes a variant; the name stays. */
  forget(name: ResourceName, entry: CacheEntry): void {
    const cached = this.table.resources.get(name);
    if (cached !== undefined) new VariantRemover(this.table, this.#payloads).forget(name, cached, entry);
  }

  #add(cached: CachedResource, { constraints, variant, holders }: CacheEntry, confirmedIn: number): void {
    this.#payloads.retain(variant.payload);
    cached.variants.add({ constraints, variant, holders, confirmedIn });
    this.table.variants++;
    this.table.link(variant);
  }
}

/** A type as one side sees it: what upstream has, except for the names that have an image. */
export class SideTable implements ReadableTable {
  readonly #live: () => TypeTable | undefined;
  readonly #images: Images;
  readonly #versions: ReadonlyMap<string, string>;

  /** `versions`: of the holders whose last response this side has not got whole. */
  constructor(live: () => TypeTable | undefined, images: Images, versions: ReadonlyMap<string, string>) {
    this.#live = live;
    this.#images = images;
    this.#versions = versions;
  }

  get interests(): TypeTable['interests'] {
    return (this.#live() ?? this.#images.table).interests;
  }

  resource(name: ResourceName): CachedResource | undefined {
    return this.#images.has(name) ? this.#images.get(name) : this.#live()?.resources.get(name);
  }

  aliased(alias: ResourceName): Iterable<ResourceName> {
    const names = [...this.#images.table.aliased(alias)];
    for (const name of this.#live()?.aliased(alias) ?? []) if (!this.#images.has(name)) names.push(name);
    return names.length > 1 ? inOrder(names, (name) => this.resource(name)) : names;
  }

  *names(selector: Selector): Iterable<ResourceName> {
    yield* this.#images.table.names(selector);
    for (const name of this.#live()?.names(selector) ?? []) if (!this.#images.has(name)) yield name;
  }

  version(holder: string): string | undefined {
    return this.#versions.get(holder) ?? this.#live()?.versions.get(holder);
  }

  isHeld(name: ResourceName): boolean {
    return this.#images.has(name);
  }

  holders(): Iterable<string> {
    return new Set([...this.#versions.keys(), ...(this.#live()?.versions.keys() ?? [])]);
  }
}
