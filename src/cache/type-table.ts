import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Variant } from '../model/resource.ts';
import { type Holder, type Selector, WILDCARD } from '../model/transaction.ts';
import { GlobIndex } from '../model/xdstp.ts';
import { CachedResource, type CacheEntry } from './cached-resource.ts';
import { Interests } from './interests.ts';

const none: readonly never[] = [];

/** The cached resources, by name and by the globs that cover them. */
class CachedResources extends Map<ResourceName, CachedResource> {
  readonly #globs = new GlobIndex();

  override set(name: ResourceName, cached: CachedResource): this {
    if (!this.has(name)) this.#globs.add(name);
    return super.set(name, cached);
  }

  override delete(name: ResourceName): boolean {
    this.#globs.delete(name);
    return super.delete(name);
  }

  under(glob: Selector): Iterable<ResourceName> {
    return this.#globs.under(glob);
  }
}

/** The names of these resources in their order. */
export function inOrder(
  names: Iterable<ResourceName>,
  resource: (name: ResourceName) => CachedResource | undefined,
): readonly ResourceName[] {
  const orderOf = (name: ResourceName): number => resource(name)?.order ?? 0;
  return [...names].toSorted((a, b) => orderOf(a) - orderOf(b));
}

/** What readers need of a table. */
export interface ReadableTable {
  readonly interests: Interests;
  resource(name: ResourceName): CachedResource | undefined;
  /** The resources that have an alias, in their order. */
  aliased(alias: ResourceName): Iterable<ResourceName>;
  /** All names, or those under a glob. */
  names(selector: Selector): Iterable<ResourceName>;
  /** The version of a holder's last response. */
  version(holder: string): string | undefined;
  /** Its released state is not what upstream says. */
  isHeld(name: ResourceName): boolean;
  /** The holders that have a version. */
  holders(): Iterable<string>;
}

/** Everything of one type. */
export class TypeTable implements ReadableTable {
  readonly resources = new CachedResources();
  readonly interests = new Interests();
  /** Alias → the resources that have it (protocol §4.8), and how many of their variants do. */
  readonly #aliases = new Map<ResourceName, Map<ResourceName, number>>();
  /** Version of each holder's last response. */
  readonly versions = new Map<string, string>();
  variants = 0;
  /** Variants that some holder has as restored. */
  readonly restored = new Set<CacheEntry>();

  resource(name: ResourceName): CachedResource | undefined {
    return this.resources.get(name);
  }

  names(selector: Selector): Iterable<ResourceName> {
    return selector === WILDCARD ? this.resources.keys() : this.resources.under(selector);
  }

  version(holder: string): string | undefined {
    return this.versions.get(holder);
  }

  isHeld(): boolean {
    return false;
  }

  holders(): Iterable<string> {
    return this.versions.keys();
  }

  /** What is cached under a name; made where nothing is yet. */
  place(name: ResourceName): CachedResource {
    const known = this.resources.get(name);
    if (known !== undefined) return known;
    const created = new CachedResource();
    this.resources.set(name, created);
    return created;
  }

  add(cached: CachedResource, entry: CacheEntry): void {
    cached.variants.add(entry);
    this.variants++;
    this.link(entry.variant);
    this.#indexRestored(entry);
  }

  remove(name: ResourceName, cached: CachedResource, entry: CacheEntry): void {
    cached.remove(entry);
    this.variants--;
    this.unlink(entry.variant);
    this.restored.delete(entry);
    if (cached.empty) this.resources.delete(name);
  }

  /** Adds a holder, or replaces the one with the same key. */
  addHolder(entry: CacheEntry, holder: Holder): void {
    const at = entry.holders.findIndex((known) => known.key === holder.key);
    if (at < 0) entry.holders = [...entry.holders, holder];
    else if (entry.holders[at] !== holder) entry.holders = entry.holders.with(at, holder);
    this.#indexRestored(entry);
  }

  removeHolder(entry: CacheEntry, holder: Holder): void {
    entry.holders = entry.holders.filter((known) => known.key !== holder.key);
    this.#indexRestored(entry);
  }

  #indexRestored(entry: CacheEntry): void {
    if (entry.holders.some(({ restored }) => restored)) this.restored.add(entry);
    else if (this.restored.size > 0) this.restored.delete(entry);
  }

  get empty(): boolean {
    return this.resources.size === 0 && this.interests.empty;
  }

  /** How many names have a variant; the others have only an error. */
  get resourceCount(): number {
    let count = 0;
    for (const { variants } of this.resources.values()) if (variants.size > 0) count++;
    return count;
  }

  /** Distinct (name, parameters) that more than one variant matches. */
  get ambiguousCount(): number {
    let count = 0;
    for (const cached of this.resources.values()) count += cached.ambiguousCount;
    return count;
  }

  aliased(alias: ResourceName): Iterable<ResourceName> {
    const names = this.#aliases.get(alias);
    if (names === undefined) return none;
    return names.size === 1 ? names.keys() : inOrder(names.keys(), (name) => this.resources.get(name));
  }

  link(variant: Variant): void {
    for (const alias of variant.aliases) {
      const key = resourceName(alias);
      const names = this.#aliases.get(key) ?? new Map<ResourceName, number>();
      names.set(variant.name, (names.get(variant.name) ?? 0) + 1);
      this.#aliases.set(key, names);
    }
  }

  /** Another variant of the name may have the same alias: the alias goes with the last one. */
  unlink(variant: Variant): void {
    for (const alias of variant.aliases) {
      const key = resourceName(alias);
      const names = this.#aliases.get(key);
      const left = (names?.get(variant.name) ?? 0) - 1;
      if (left > 0) names?.set(variant.name, left);
      else names?.delete(variant.name);
      if (names?.size === 0) this.#aliases.delete(key);
    }
  }
}
