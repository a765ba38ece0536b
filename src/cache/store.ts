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
  type CachedResource,
  type CacheEntry,
  isHeldByWildcard,
  isRestored,
  NO_FILTER,
  type PickFilter,
} from './cached-resource.ts';
import { CommitChanges } from './commit-changes.ts';
import { contentOf, dropContentOf, type InterestContent } from './interest-content.ts';
import type { InterestState } from './interests.ts';
import { type Journal, NO_JOURNAL } from './journal.ts';
import { Payloads } from './payloads.ts';
import { restamp } from './restamping.ts';
import { disown, type Restored, restoreResource } from './restored.ts';
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
}

type Pick = (cached: CachedResource, name: ResourceName, among: PickFilter) => CacheEntry | undefined;

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

  /** The bytes of all bodies; equal bodies are counted once. */
  get bodyBytes(): number {
    return this.#payloads.bytes;
  }

  /** The bytes of bodies and interests. */
  get bytes(): number {
    return this.bodyBytes + this.#interestBytes;
  }

  /** How many variants of a type are cached. */
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

  /** From now on the store tracks whether upstream has answered this interest. Restored content of it stays. */
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
   * The interest has ended, and what only this interest saw is dropped. Returns a commit if others can see that: a restored
   * variant was kept for this interest only.
   */
  removeInterest(interest: Interest): Commit | undefined {
    const table = this.#table(interest.type);
    const version = this.version(interest);
    if (table.interests.delete(interest)) this.#interestBytes -= interestBytes(interest);
    this.#journal.interest(interest);
    const changes = dropContentOf(table, interest, this.#payloads, (name) =>
      this.#journal.resource(interest.type, name),
    );
    // Clients can name any type: what is empty goes.
    if (table.empty) {
      this.#tables.delete(interest.type);
      for (const holder of table.versions.keys()) this.#journal.version(interest.type, holder);
    }
    if (changes.names.size === 0) return undefined;
    this.nextRevision();
    return this.#commit(interest.type, version, performance.now(), changes);
  }

  /** Takes in what was persisted. What upstream does not deliver again is removed when upstream has answered. */
  restore({ resources, interests, versions }: Restored): void {
    const next = this.nextRevision();
    for (const { interest, resolved, holder } of interests) {
      const state = this.#table(interest.type).interests.add(interest);
      this.#interestBytes += interestBytes(interest);
      state.resolved = resolved;
      state.restored = resolved;
      state.holder = holder;
    }
    const { expiring } = this.#options;
    for (const resource of resources)
      restoreResource(this.#table(resource.type), resource, next, this.#payloads, expiring);
    for (const { type, holder, version } of versions) {
      // Nothing of the type was restored: then nobody needs the version.
      const table = this.#tables.get(type);
      if (table === undefined) this.#journal.version(type, holder);
      else table.versions.set(holder, version);
    }
  }

  /**
   * Another upstream takes the place of this one, which will confirm nothing more. What came from it counts as restored,
   * until its new upstream has answered.
   */
  markRestored(upstream: string): void {
    for (const table of this.#tables.values()) disown(table, upstream);
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
    return this.#value(type, name, parameters, filter, (cached, own, among) =>
      cached.pick(parameters, (matches) => this.#ambiguous(type, own, parameters, matches), among),
    );
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

  /** The variants of a type that one holder has; others may have them too. */
  *heldBy(type: TypeUrl, holder: string): Iterable<HolderEntry> {
    for (const [name, cached] of this.#tables.get(type)?.resources ?? []) {
      for (const { constraints, variant, holders } of cached.variants.values()) {
        const own = holders.find(({ key }) => key === holder);
        if (own === undefined) continue;
        yield { name, constraints, aliases: variant.aliases, restored: isRestored(own) };
      }
    }
  }

  /** The answer to this interest was restored. Once it is confirmed, restored variants that came for it are removed. */
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

  /** By its own name, else by an alias. */
  #value(type: TypeUrl, name: ResourceName, parameters: Parameters, filter: PickFilter, pick: Pick): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const own = table.resources.get(name);
    const entry = own && pick(own, name, filter);
    if (entry !== undefined) return entry.variant;
    for (const target of table.aliased(name)) {
      const aliased = table.resources.get(target);
      const found = aliased && pick(aliased, target, { ...filter, alias: name });
      if (found !== undefined) return found.variant;
    }
    return table.interests.get(name, parameters)?.resolved === true ? 'absent' : 'unknown';
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
