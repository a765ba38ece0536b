import { type ResourceName, type Revision, resourceName, revision, type TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import type { Parameters } from '../model/parameters.ts';
import { Payloads } from '../model/payloads.ts';
import type { Variant } from '../model/resource.ts';
import type { MaskReason } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { type Holder, type Selector, WILDCARD } from '../model/transaction.ts';
import { GlobIndex } from '../model/xdstp.ts';
import { CachedResource, type CacheEntry } from './cached-resource.ts';
import { Interests } from './interests.ts';
import { type Journal, NO_JOURNAL } from './journal.ts';
import type { VariantsOf } from './same-content.ts';

/** What is under a name is kept in columns: what upstream says, and what the clients of each side see (docs/adr/0154). */
export type Column = 'said' | Side;

/** A name whose released state is not what upstream says. A column without variants is absent. */
export interface HeldName {
  readonly since: number;
  /** Undefined: canaries see what upstream says. */
  readonly masked: MaskReason | undefined;
  /** Discarded: what was refused. */
  readonly refused: VariantsOf | undefined;
  /** Something was taken out of its columns: what upstream has instead does not show. */
  readonly closed: boolean;
  readonly released: CachedResource;
  /** Undefined: as upstream says, since it is not masked. */
  readonly canary: CachedResource | undefined;
}

const none: readonly never[] = [];

/** What upstream says, by name and by the globs that cover it. The globs cover what is held too. */
class CachedResources extends Map<ResourceName, CachedResource> {
  readonly #globs: GlobIndex;
  readonly #held: ReadonlyMap<ResourceName, unknown>;

  constructor(globs: GlobIndex, held: ReadonlyMap<ResourceName, unknown>) {
    super();
    this.#globs = globs;
    this.#held = held;
  }

  override set(name: ResourceName, cached: CachedResource): this {
    if (!this.has(name)) this.#globs.add(name);
    return super.set(name, cached);
  }

  override delete(name: ResourceName): boolean {
    if (!this.#held.has(name)) this.#globs.delete(name);
    return super.delete(name);
  }
}

export interface StoreOptions {
  readonly clock: Clock;
  /** Several variants of a name match one parameter set: called once for each choice made. */
  readonly ambiguous: (
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    choices: readonly Variant[],
  ) => void;
  /** A variant has a TTL, or a new one: call `expire` when it has passed. */
  readonly expiring: (variant: Variant) => void;
  readonly journal?: Journal | undefined;
  /** Shows a commit that no transaction made to the views: what waited is let through, or taken back. */
  readonly publish?: (commit: Commit) => void;
  /** Commits say what was there before, and what is there now. */
  readonly recorded?: boolean | undefined;
  /** Of a store in the same process with nearly the same content: both count revisions together, and share bodies. */
  readonly beside?: TypeTables;
}

/** The tables of all types that somebody is interested in, or of which something is cached. */
export class TypeTables extends Map<TypeUrl, TypeTable> {
  readonly options: StoreOptions;
  readonly journal: Journal;
  readonly payloads: Payloads;
  readonly counts: { revision: number; interestBytes: number };

  constructor(options: StoreOptions) {
    super();
    const { journal = NO_JOURNAL, beside } = options;
    this.options = options;
    this.journal = journal;
    this.payloads = beside?.payloads ?? new Payloads();
    this.counts = beside?.counts ?? { revision: 0, interestBytes: 0 };
  }

  get revision(): Revision {
    return revision(this.counts.revision);
  }

  nextRevision(): Revision {
    return revision(++this.counts.revision);
  }

  /** Made if there is none. */
  of(type: TypeUrl): TypeTable {
    const known = this.get(type);
    if (known !== undefined) return known;
    const created = new TypeTable(type, this);
    this.set(type, created);
    return created;
  }

  /** Clients can name any type: what is empty goes. */
  forgetIfEmpty({ type, empty, versions }: TypeTable): void {
    if (!empty || !this.delete(type)) return;
    for (const holder of versions.keys()) this.journal.version(type, holder);
  }
}

/** Everything of one type. */
export class TypeTable {
  readonly type: TypeUrl;
  readonly all: TypeTables;
  /** Names with something in any column. */
  readonly #globs = new GlobIndex();
  readonly #held = new Map<ResourceName, HeldName>();
  /** What upstream says. */
  readonly resources = new CachedResources(this.#globs, this.#held);
  readonly interests = new Interests();
  /** Alias → the resources that have it (protocol §4.8), and how many of their variants do, in all columns. */
  readonly #aliases = new Map<ResourceName, Map<ResourceName, number>>();
  /** Version of each holder's last response. */
  readonly versions = new Map<string, string>();
  /** The released versions of holders that have said something since, while something is held. */
  readonly releasedVersions = new Map<string, string>();
  /** version_info of the last commit of which something is held. */
  heldVersion: string | undefined;
  /** Of what upstream says. */
  variants = 0;
  /** Variants that some holder has as restored. */
  readonly restored = new Set<CacheEntry>();

  constructor(type: TypeUrl, all: TypeTables) {
    this.type = type;
    this.all = all;
  }

  get payloads(): Payloads {
    return this.all.payloads;
  }

  /** Several variants match, and one of them was chosen now. */
  ambiguous(name: ResourceName, parameters: Parameters, matches: readonly CacheEntry[]): void {
    this.all.journal.resource(this.type, name); // the choice that was made
    const choices = matches.map((entry) => entry.variant);
    this.all.options.ambiguous(this.type, name, parameters, choices);
  }

  /** A variant that came, or has another TTL. */
  expiring(variant: Variant): void {
    if (variant.ttl !== undefined) this.all.options.expiring(variant);
  }

  /** The names whose released state is not what upstream says. */
  get held(): ReadonlyMap<ResourceName, HeldName> {
    return this.#held;
  }

  resource(name: ResourceName, column: Column = 'said'): CachedResource | undefined {
    return this.own(name, column) ?? this.resources.get(name);
  }

  /** What a column has of its own under a name. Undefined: a side sees what upstream says, or upstream says nothing. */
  own(name: ResourceName, column: Column): CachedResource | undefined {
    if (column === 'said') return this.resources.get(name);
    return this.#held.size === 0 ? undefined : this.#held.get(name)?.[column];
  }

  /** All names with something in any column, or those under a glob. */
  names(selector: Selector): Iterable<ResourceName> {
    if (selector !== WILDCARD) return this.#globs.under(selector);
    return this.#held.size === 0 ? this.resources.keys() : this.#allNames();
  }

  *#allNames(): Iterable<ResourceName> {
    yield* this.resources.keys();
    for (const name of this.#held.keys()) if (!this.resources.has(name)) yield name;
  }

  /** The version of a holder's last response. */
  version(holder: string, column: Column = 'said'): string | undefined {
    const before = column === 'released' ? this.releasedVersions.get(holder) : undefined;
    return before ?? this.versions.get(holder);
  }

  /** What upstream says under a name, or what a side has of its own; made where upstream says nothing yet. */
  place(name: ResourceName, column: Column = 'said'): CachedResource {
    const known = this.own(name, column);
    if (known !== undefined) return known;
    const created = new CachedResource();
    this.resources.set(name, created);
    return created;
  }

  /** The variant's body has a reference. */
  add(cached: CachedResource, entry: CacheEntry, column: Column = 'said'): void {
    cached.variants.add(entry);
    this.link(entry.variant);
    if (column !== 'said') return;
    this.variants++;
    this.#indexRestored(entry);
  }

  /** A name that is held stays so. */
  remove(name: ResourceName, cached: CachedResource, entry: CacheEntry, column: Column = 'said'): void {
    cached.remove(entry);
    this.#unlinkAndRelease(entry);
    if (column !== 'said') return;
    this.variants--;
    this.restored.delete(entry);
    if (cached.empty) this.resources.delete(name);
  }

  /** Adds a holder, or replaces the one with the same key. */
  addHolder(entry: CacheEntry, holder: Holder, column: Column = 'said'): void {
    const at = entry.holders.findIndex((known) => known.key === holder.key);
    if (at < 0) entry.holders = [...entry.holders, holder];
    else if (entry.holders[at] !== holder) entry.holders = entry.holders.with(at, holder);
    if (column === 'said') this.#indexRestored(entry);
  }

  removeHolder(entry: CacheEntry, holder: Holder, column: Column = 'said'): void {
    entry.holders = entry.holders.filter((known) => known.key !== holder.key);
    if (column === 'said') this.#indexRestored(entry);
  }

  #indexRestored(entry: CacheEntry): void {
    if (entry.holders.some(({ restored }) => restored)) this.restored.add(entry);
    else if (this.restored.size > 0) this.restored.delete(entry);
  }

  get empty(): boolean {
    return this.resources.size === 0 && this.#held.size === 0 && this.interests.empty;
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

  /** The resources that have an alias, in their order. */
  aliased(alias: ResourceName, column: Column = 'said'): Iterable<ResourceName> {
    const names = this.#aliases.get(alias);
    if (names === undefined) return none;
    if (names.size === 1 && this.#held.size === 0) return names.keys();
    const all = [...names.keys()].filter((name) => !this.#held.has(name) || this.#has(name, alias, column));
    const orderOf = (name: ResourceName): number => this.resource(name, column)?.order ?? 0;
    return all.toSorted((a, b) => orderOf(a) - orderOf(b));
  }

  #has(name: ResourceName, alias: ResourceName, column: Column): boolean {
    const all = this.resource(name, column)?.variants.all() ?? [];
    return all.some(({ variant }) => variant.aliases.includes(alias));
  }

  /** The sides see this of a name from now on. */
  hold(name: ResourceName, held: HeldName): void {
    const before = this.#held.get(name);
    for (const column of ['released', 'canary'] as const) {
      if (before?.[column] === held[column]) continue;
      for (const entry of held[column]?.variants.all() ?? []) {
        this.payloads.retain(entry.variant.payload);
        this.link(entry.variant);
      }
      for (const entry of before?.[column]?.variants.all() ?? []) this.#unlinkAndRelease(entry);
    }
    this.#held.set(name, held);
    this.#globs.add(name);
  }

  /** Both sides see what upstream says. */
  letGo(name: ResourceName): void {
    const held = this.#held.get(name);
    for (const cached of [held?.released, held?.canary])
      for (const entry of cached?.variants.all() ?? []) this.#unlinkAndRelease(entry);
    this.#held.delete(name);
    if (!this.resources.has(name)) this.#globs.delete(name);
  }

  #unlinkAndRelease({ variant }: CacheEntry): void {
    this.unlink(variant);
    this.payloads.release(variant.payload);
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
