import { type ResourceName, type Revision, revision, type TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit, StoredResourceError, Value } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import type { Constraints } from '../model/constraints.ts';
import { interestBytes } from '../model/interest-bytes.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { covers } from '../model/selection.ts';
import {
  type Interest,
  type Restamp,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import {
  type Admits,
  CachedResource,
  type CacheEntry,
  isHeldByWildcard,
  isRestored,
  NO_FILTER,
  type PickFilter,
  type RestoredHolder,
} from './cached-resource.ts';
import { CommitChanges } from './commit-changes.ts';
import { contentOf, type InterestContent, isTold, isWanted, namesOf } from './interest-content.ts';
import type { InterestState } from './interests.ts';
import { type Journal, NO_JOURNAL } from './journal.ts';
import { deltaVersionOf, Payloads } from './payloads.ts';
import { restamp } from './restamping.ts';
import type { Restored, RestoredVariant } from './restored.ts';
import { TypeTable } from './type-table.ts';
import { Update } from './update.ts';
import { VariantRemover } from './variant-remover.ts';

/** A variant as one of its holders has it. */
export interface HolderEntry {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  readonly aliases: readonly string[];
  /** From before a restart, and not confirmed since. */
  readonly restored: boolean;
}

export interface StoreOptions {
  readonly clock: Clock;
  /** Two variants of a name match one parameter set, told once for each choice made. */
  readonly ambiguous: (
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    choices: readonly Variant[],
  ) => void;
  /** A variant has a time to live (again): ask for `expire` when it has passed. */
  readonly expiring: (variant: Variant) => void;
  readonly journal?: Journal | undefined;
}

/** The cache: resources in variants, who holds them, and which interests upstream has answered. */
export class Store implements Catalog {
  readonly #options: StoreOptions;
  readonly #journal: Journal;
  readonly #tables = new Map<TypeUrl, TypeTable>();
  readonly #payloads = new Payloads();
  #revision = 0;
  #interestBytes = 0;

  constructor(options: StoreOptions) {
    this.#options = options;
    this.#journal = options.journal ?? NO_JOURNAL;
  }

  get revision(): Revision {
    return revision(this.#revision);
  }

  /** Of all bodies, equal ones counted once. */
  get bodyBytes(): number {
    return this.#payloads.bytes;
  }

  /** Of bodies, and what interests take by themselves. */
  get bytes(): number {
    return this.bodyBytes + this.#interestBytes;
  }

  /** How many of a type are cached. */
  variants(type: TypeUrl): number {
    return this.#tables.get(type)?.variants ?? 0;
  }

  tables(): Iterable<[TypeUrl, TypeTable]> {
    return this.#tables;
  }

  /** A new revision that no transaction made: for changes of what is visible without a change of content. */
  nextRevision(): Revision {
    return revision(++this.#revision);
  }

  apply(transaction: Transaction): Commit {
    const receivedAt = performance.now();
    const next = this.nextRevision();
    const { type } = transaction;
    const table = this.#table(type);
    this.#setVersion(table, transaction);
    const update = new Update(table, transaction, next, {
      clock: this.#options.clock,
      payloads: this.#payloads,
      ambiguous: (name, parameters, choices) => this.#ambiguous(type, name, parameters, choices),
      expiring: this.#options.expiring,
      holderChanged: (interest) => this.#journal.interest(interest),
    });
    update.run();
    return this.#commit(type, transaction.version, receivedAt, update.changes);
  }

  restamp(change: Restamp): Commit {
    const { type, unresolved } = change;
    const receivedAt = performance.now();
    const changes = restamp(this.#table(type), change, this.nextRevision(), this.#payloads);
    for (const interest of unresolved) this.#journal.interest(interest);
    return this.#commit(type, undefined, receivedAt, changes);
  }

  /** Ends the variants whose time to live has passed; undefined if there are none (a heartbeat came). */
  expire(variant: Variant): Commit | undefined {
    const table = this.#tables.get(variant.type);
    const cached = table?.resources.get(variant.name);
    const entry = cached?.variants.get(variant.constraints.key);
    if (table === undefined || cached === undefined || entry?.variant.ttl === undefined) return undefined;
    if (entry.variant.ttl.deadline > this.#options.clock.now()) return undefined;
    const changes = new CommitChanges();
    // Upstream has not said anything new: its last version stays (protocol §3.10).
    const version = table.versions.get(entry.holders[0]?.key ?? '') ?? '';
    const remover = new VariantRemover(table, this.#payloads);
    for (const holder of [...entry.holders]) remover.drop(variant.name, cached, entry, holder, changes);
    this.nextRevision();
    return this.#commit(variant.type, version, performance.now(), changes);
  }

  /** From now on this is wanted: whether it is answered is tracked. What was restored of it is kept. */
  addInterest(interest: Interest): void {
    const { interests } = this.#table(interest.type);
    if (interests.get(interest.selector, interest.parameters) !== undefined) return;
    interests.add(interest);
    this.#interestBytes += interestBytes(interest);
    this.#journal.interest(interest);
  }

  /** What would end with an interest. */
  contentOf(interest: Interest): InterestContent {
    const table = this.#tables.get(interest.type);
    return table === undefined ? { hasContent: false, bytes: 0 } : contentOf(table, interest);
  }

  /**
   * Nobody wants it any more: what only this interest saw is dropped. A commit if that can be seen: something restored
   * was kept for this interest only.
   */
  removeInterest(interest: Interest): Commit | undefined {
    const table = this.#table(interest.type);
    const version = this.version(interest);
    if (table.interests.delete(interest)) this.#interestBytes -= interestBytes(interest);
    this.#journal.interest(interest);
    const remover = new VariantRemover(table, this.#payloads, { unwanted: true, unanswered: [] });
    for (const name of namesOf(table, interest.selector)) {
      const cached = table.resources.get(name);
      if (cached === undefined) continue;
      for (const entry of cached.variants.match(interest.parameters)) {
        if (isWanted(table, name, entry)) continue;
        remover.forget(name, cached, entry);
        this.#journal.resource(interest.type, name);
      }
      // Clients can ask with any parameters: the choices made for them go with them.
      if (cached.ambiguousCount > 0 && !table.interests.sees(name, interest.parameters)) {
        cached.unbind(interest.parameters);
        this.#journal.resource(interest.type, name);
      }
      if (cached.variants.size === 0 && !isTold(table, name, cached)) table.resources.delete(name);
    }
    const changes = new CommitChanges();
    remover.releaseRestored(interest, changes);
    // Clients can name any type: what is empty goes.
    if (table.empty) {
      this.#tables.delete(interest.type);
      for (const holder of table.versions.keys()) this.#journal.version(interest.type, holder);
    }
    if (changes.names.size === 0) return undefined;
    this.nextRevision();
    return this.#commit(interest.type, version, performance.now(), changes);
  }

  /** Takes in what was kept from before a restart. What upstream does not deliver again goes when it has answered. */
  restore({ resources, interests, versions }: Restored): void {
    const next = this.nextRevision();
    for (const { interest, resolved, holder } of interests) {
      const state = this.#table(interest.type).interests.add(interest);
      this.#interestBytes += interestBytes(interest);
      state.resolved = resolved;
      state.restored = resolved;
      state.holder = holder;
    }
    for (const { type, name, variants, bindings } of resources) {
      const table = this.#table(type);
      const cached = new CachedResource();
      table.resources.set(name, cached);
      for (const variant of variants) this.#restore(table, cached, variant, next);
      cached.restoreBindings(bindings);
    }
    for (const { type, holder, version } of versions) {
      // Of what was not kept nobody needs the version.
      const table = this.#tables.get(type);
      if (table === undefined) this.#journal.version(type, holder);
      else table.versions.set(holder, version);
    }
  }

  /**
   * This upstream will confirm nothing more, as another one takes its place: what came from it is kept as if it had
   * been restored, until whoever serves it from now on has answered.
   */
  markRestored(upstream: string): void {
    for (const table of this.#tables.values()) {
      for (const cached of table.resources.values()) {
        for (const entry of cached.variants.values()) {
          for (const [at, holder] of entry.holders.entries()) {
            if (holder.upstream !== upstream) continue;
            const disowned: RestoredHolder = { ...holder, restored: true };
            entry.holders[at] = disowned;
            table.restored.add(entry);
          }
        }
      }
      for (const state of table.interests.all()) {
        if (state.resolved && state.holder?.upstream === upstream) state.restored = true;
      }
    }
  }

  /** What `resolve` would give; nothing is recorded or counted. */
  peek(type: TypeUrl, name: ResourceName, parameters: Parameters): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const own = table.resources.get(name)?.peek(parameters);
    if (own !== undefined) return own.variant;
    for (const target of table.aliased(name)) {
      const aliased = table.resources.get(target)?.peek(parameters, { ...NO_FILTER, alias: name });
      if (aliased !== undefined) return aliased.variant;
    }
    return table.interests.get(name, parameters)?.resolved === true ? 'absent' : 'unknown';
  }

  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Admits,
    fromWildcard = false,
  ): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const entry = this.#pick(
      table,
      type,
      name,
      parameters,
      access || fromWildcard ? { access, fromWildcard } : NO_FILTER,
    );
    if (entry !== undefined) return entry.variant;
    return table.interests.get(name, parameters)?.resolved === true ? 'absent' : 'unknown';
  }

  *members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName> {
    const table = this.#tables.get(type);
    const names = selector === WILDCARD ? table?.resources.keys() : table?.resources.under(selector);
    for (const name of names ?? []) {
      if (
        this.isMember(type, selector, name, parameters) ||
        this.hasErrorFor(type, selector, name, parameters)
      )
        yield name;
    }
  }

  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const cached = this.#tables.get(type)?.resources.get(name);
    if (cached === undefined) return false;
    if (!covers(selector, name)) return false;
    return cached.variants
      .match(parameters)
      .some((entry) => selector !== WILDCARD || isHeldByWildcard(entry));
  }

  hasErrorFor(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const resourceErrors = this.#tables.get(type)?.resources.get(name)?.resourceErrors;
    if (resourceErrors === undefined || !covers(selector, name)) return false;
    for (const { fromWildcard, constraints } of resourceErrors.values()) {
      if ((fromWildcard || selector !== WILDCARD) && constraints.matches(parameters)) return true;
    }
    return false;
  }

  isResolved(interest: Interest): boolean {
    return this.#state(interest)?.resolved === true;
  }

  version(interest: Interest): string {
    const holder = this.#state(interest)?.holder;
    return holder === undefined ? '' : (this.#tables.get(interest.type)?.versions.get(holder.key) ?? '');
  }

  resourceErrors(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly StoredResourceError[] {
    const resourceErrors = this.#tables.get(type)?.resources.get(name)?.resourceErrors;
    if (resourceErrors === undefined) return [];
    return [...resourceErrors.values()].filter((error) => error.constraints.matches(parameters));
  }

  /** The variants of a type that one holder has, whoever else does. */
  *heldBy(type: TypeUrl, holder: string): Iterable<HolderEntry> {
    for (const [name, cached] of this.#tables.get(type)?.resources ?? []) {
      for (const { constraints, variant, holders } of cached.variants.values()) {
        const own = holders.find(({ key }) => key === holder);
        if (own === undefined) continue;
        yield { name, constraints, aliases: variant.aliases, restored: isRestored(own) };
      }
    }
  }

  /** Its answer is from before a restart: once it is confirmed, what was restored for it goes. */
  isRestored(interest: Interest): boolean {
    return this.#state(interest)?.restored === true;
  }

  #commit(type: TypeUrl, version: string | undefined, receivedAt: number, changes: CommitChanges): Commit {
    const { names: changed, resolved } = changes;
    for (const name of changed.keys()) this.#journal.resource(type, name);
    for (const interest of resolved) this.#journal.interest(interest);
    return { revision: this.revision, type, version, receivedAt, changed, resolved };
  }

  #setVersion(table: TypeTable, { holder, type, version }: Transaction): void {
    if (table.versions.get(holder.key) === version) return;
    table.versions.set(holder.key, version);
    this.#journal.version(type, holder.key);
  }

  #restore(table: TypeTable, cached: CachedResource, kept: RestoredVariant, next: Revision): void {
    const { type, name, constraints, version, aliases, ttl, doNotCache, metadata } = kept;
    const { responseVersion, upstream, cachedSince, holders } = kept;
    const payload =
      kept.payload === undefined ? undefined : this.#payloads.adopt(kept.payload.bytes, kept.payload.hash);
    const deltaVersion = deltaVersionOf(version, constraints, payload, aliases, metadata);
    const variant: Variant = {
      type,
      name,
      constraints,
      version,
      deltaVersion,
      payload,
      aliases,
      ttl,
      doNotCache,
      metadata,
      responseVersion,
      upstream,
      cachedSince,
      revision: next,
    };
    const entry: CacheEntry = { constraints, variant, holders: [...holders], confirmedIn: next };
    cached.variants.add(entry);
    table.variants++;
    table.link(variant);
    table.restored.add(entry);
    if (variant.ttl !== undefined) this.#options.expiring(variant);
  }

  #state(interest: Interest): InterestState | undefined {
    return this.#tables.get(interest.type)?.interests.get(interest.selector, interest.parameters);
  }

  #table(type: TypeUrl): TypeTable {
    const known = this.#tables.get(type);
    if (known !== undefined) return known;
    const created = new TypeTable();
    this.#tables.set(type, created);
    return created;
  }

  #pick(
    table: TypeTable,
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    among: PickFilter,
  ): CacheEntry | undefined {
    const own = this.#pickFrom(table.resources.get(name), type, name, parameters, among);
    if (own !== undefined) return own;
    for (const target of table.aliased(name)) {
      const aliased = this.#pickFrom(table.resources.get(target), type, target, parameters, {
        ...among,
        alias: name,
      });
      if (aliased !== undefined) return aliased;
    }
    return undefined;
  }

  #pickFrom(
    cached: CachedResource | undefined,
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    among: PickFilter,
  ): CacheEntry | undefined {
    const ambiguous = (matches: readonly CacheEntry[]): void =>
      this.#ambiguous(type, name, parameters, matches);
    return cached?.pick(parameters, ambiguous, among);
  }

  #ambiguous(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    matches: readonly CacheEntry[],
  ): void {
    this.#journal.resource(type, name); // the choice that was made
    this.#options.ambiguous(
      type,
      name,
      parameters,
      matches.map((entry) => entry.variant),
    );
  }
}
