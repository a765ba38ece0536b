import { type ResourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import type { Content } from '../model/change.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';
import type { Side } from '../model/side.ts';
import {
  type Interest,
  interestBytes,
  type Restamp,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { contentIn } from './cached-resource.ts';
import { CatalogReader } from './catalog-reader.ts';
import { CommitChanges } from './commit-changes.ts';
import { HeldNames } from './held-names.ts';
import type { HeldTransaction } from './held-transaction.ts';
import {
  contentOf,
  dropContentOf,
  haveClusters,
  type InterestContent,
  LeftEndpoints,
} from './interest-content.ts';
import type { Journal } from './journal.ts';
import { restamp } from './restamping.ts';
import { disown, type Restored, restoreResource } from './restored.ts';
import { type StoreOptions, type TypeTable, TypeTables } from './type-table.ts';
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

const clusterType = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');

/** The cache: resources in variants, who holds them, and which interests upstream has answered. */
export class Store extends CatalogReader {
  readonly #options: StoreOptions;
  readonly #journal: Journal;
  readonly #leftEndpoints = new LeftEndpoints();
  readonly held: HeldNames;
  /** What the clients of each side see. The store itself has what upstream says. */
  readonly sides: Readonly<Record<Side, CatalogReader>>;

  constructor(options: StoreOptions) {
    super(new TypeTables(options), 'said');
    this.#options = options;
    this.#journal = this.tables.journal;
    this.held = new HeldNames(this.tables);
    this.sides = {
      released: new CatalogReader(this.tables, 'released'),
      canary: new CatalogReader(this.tables, 'canary'),
    };
  }

  /** The bytes of all bodies; equal bodies are counted once. */
  get bodyBytes(): number {
    return this.tables.payloads.bytes;
  }

  /** The bytes of bodies and interests, those of the store beside it included. */
  get bytes(): number {
    return this.bodyBytes + this.tables.counts.interestBytes;
  }

  /** How many variants of a type are cached. */
  variants(type: TypeUrl): number {
    return this.tables.get(type)?.variants ?? 0;
  }

  /** What everybody has of a type. */
  releasedContents(type: TypeUrl): ReadonlyMap<ResourceName, Content> {
    const table = this.tables.get(type);
    const contents = new Map<ResourceName, Content>();
    for (const name of table?.names(WILDCARD) ?? []) {
      const content = contentIn(table?.resource(name, 'released'));
      if (content.length > 0) contents.set(name, content);
    }
    return contents;
  }

  /** What is under a name now. */
  snapshot(type: TypeUrl, name: ResourceName): Snapshot {
    return this.held.snapshot(type, name);
  }

  apply(transaction: Transaction): Commit {
    const receivedAt = transaction.arrivedAt ?? this.#options.clock.monotonic();
    const next = this.tables.nextRevision();
    const { type } = transaction;
    const table = this.tables.of(type);
    const held = this.held.open(table);
    const before = held && table.versions.get(transaction.holder.key);
    this.#setVersion(table, transaction);
    const changes = this.#changesOf(type, held);
    new Update(table, transaction, next, changes).run();
    const commit = this.#commit(type, transaction.version, receivedAt, changes);
    const closed =
      held === undefined ? commit : this.held.close(held, commit, transaction.holder.key, before);
    return withContents(closed, changes);
  }

  restamp(change: Restamp): Commit {
    const { type, unresolved } = change;
    const receivedAt = this.#options.clock.monotonic();
    const table = this.tables.of(type);
    const next = this.tables.nextRevision();
    const changes = restamp(table, change, 'said', next);
    for (const side of ['released', 'canary'] as const) restamp(table, change, side, next);
    this.held.restamped(table, change);
    for (const interest of unresolved) this.#journal.interest(interest);
    return this.#commit(type, undefined, receivedAt, changes);
  }

  /** Ends the variants whose time to live has passed; undefined if there are none (a heartbeat came). */
  expire(variant: Variant): Commit | undefined {
    const { name, type } = variant;
    const table = this.tables.get(type);
    if (table === undefined) return undefined;
    const changes = this.#changesOf(type, undefined);
    const version = this.#dropExpired(table, variant, changes);
    const ofSides = this.held.expire(table, variant, changes);
    if (version === undefined && !ofSides) return undefined;
    this.tables.nextRevision();
    const commit = this.#commit(type, version, this.#options.clock.monotonic(), changes);
    const held = this.held.open(table);
    if (held === undefined) return withContents(commit, changes);
    held.passing(name, ofSides);
    return withContents(this.held.close(held, commit), changes);
  }

  /** From now on the store tracks whether upstream has answered this interest. Restored content of it stays. */
  addInterest(interest: Interest): void {
    const { interests } = this.tables.of(interest.type);
    if (interests.get(interest.selector, interest.parameters) !== undefined) return;
    interests.add(interest);
    this.tables.counts.interestBytes += interestBytes(interest);
    this.#journal.interest(interest);
  }

  /** What would end with an interest. */
  contentOf(interest: Interest): InterestContent {
    const table = this.tables.get(interest.type);
    const content = table === undefined ? { hasContent: false, bytes: 0 } : contentOf(table, interest);
    if (!content.hasContent || !haveClusters(interest.type)) return content;
    const clusters = this.tables.get(clusterType);
    // Of clusters that are held back some clients see others.
    if (clusters === undefined || clusters.held.size > 0) return content;
    const isLeft = this.#leftEndpoints.isLeft(interest, clusters, this.revision);
    return isLeft ? { ...content, hasContent: false } : content;
  }

  /**
   * The interest has ended, and what only this interest saw is dropped. Returns a commit if others can see that: a restored
   * variant was kept for this interest only.
   */
  removeInterest(interest: Interest): Commit | undefined {
    const table = this.tables.of(interest.type);
    const version = this.version(interest);
    if (table.interests.delete(interest)) this.tables.counts.interestBytes -= interestBytes(interest);
    this.#journal.interest(interest);
    const held = this.held.open(table);
    const changes = new CommitChanges(held?.changing);
    dropContentOf(table, interest, changes, (name) => this.#journal.resource(interest.type, name));
    this.held.interestEnded(table, interest);
    this.tables.forgetIfEmpty(table);
    if (changes.names.size === 0) return undefined;
    this.tables.nextRevision();
    const commit = this.#commit(interest.type, version, this.#options.clock.monotonic(), changes);
    return held === undefined ? commit : this.held.close(held, commit);
  }

  /** Takes in what was persisted. What upstream does not deliver again is removed when upstream has answered. */
  restore({ resources, interests, versions }: Restored): void {
    const next = this.tables.nextRevision();
    for (const { interest, answer, holder } of interests) {
      const state = this.tables.of(interest.type).interests.add(interest);
      this.tables.counts.interestBytes += interestBytes(interest);
      state.answer = answer && 'restored';
      state.holder = holder;
    }
    for (const resource of resources) restoreResource(this.tables.of(resource.type), resource, next);
    for (const { type, holder, version } of versions) {
      // Nothing of the type was restored: then nobody needs the version.
      const table = this.tables.get(type);
      if (table === undefined) this.#journal.version(type, holder);
      else table.versions.set(holder, version);
    }
  }

  /**
   * Another upstream takes the place of this one, which will confirm nothing more. What came from it counts as restored,
   * until its new upstream has answered.
   */
  markRestored(upstream: string): void {
    for (const table of this.tables.values()) disown(table, upstream);
  }

  /** The variants of a type that one holder has; others may have them too. */
  *heldBy(type: TypeUrl, holder: string): Iterable<HolderEntry> {
    for (const [name, cached] of this.tables.get(type)?.resources ?? []) {
      for (const { constraints, variant, holders } of cached.variants.values()) {
        const own = holders.find(({ key }) => key === holder);
        if (own === undefined) continue;
        yield { name, constraints, aliases: variant.aliases, restored: own.restored === true };
      }
    }
  }

  /** The answer to this interest was restored. Once it is confirmed, restored variants that came for it are removed. */
  isRestored(interest: Interest): boolean {
    return this.state(interest)?.answer === 'restored';
  }

  /** The version of what has expired; undefined: nothing has. */
  #dropExpired(table: TypeTable, { name, constraints }: Variant, changes: CommitChanges): string | undefined {
    const cached = table.resources.get(name);
    const entry = cached?.variants.get(constraints.key);
    if (cached === undefined || entry?.variant.ttl === undefined) return undefined;
    if (entry.variant.ttl.deadline > this.#options.clock.now()) return undefined;
    // Upstream has not said anything new: its last version stays (protocol §3.10).
    const version = table.versions.get(entry.holders[0]?.key ?? '') ?? '';
    const remover = new VariantRemover(table);
    for (const holder of entry.holders) remover.drop(name, cached, entry, holder, changes);
    return version;
  }

  #commit(type: TypeUrl, version: string | undefined, receivedAt: number, changes: CommitChanges): Commit {
    const { names: changed, resolved } = changes;
    for (const name of changed.keys()) this.#journal.resource(type, name);
    for (const interest of resolved) this.#journal.interest(interest);
    return { revision: this.revision, type, version, receivedAt, changed, resolved };
  }

  #changesOf(type: TypeUrl, held: HeldTransaction | undefined): CommitChanges {
    const snapshot = this.#options.recorded
      ? (name: ResourceName) => this.held.snapshot(type, name)
      : undefined;
    return new CommitChanges(held?.changing, snapshot);
  }

  #setVersion(table: TypeTable, { holder, type, version }: Transaction): void {
    if (table.versions.get(holder.key) === version) return;
    table.versions.set(holder.key, version);
    this.#journal.version(type, holder.key);
  }
}

const withContents = (commit: Commit, { contents }: CommitChanges): Commit =>
  contents === undefined ? commit : { ...commit, contents };
