import type { Cohort } from '../model/access.ts';
import {
  type ConstraintsKey,
  type ResourceName,
  type Revision,
  resourceName,
  type TypeUrl,
} from '../model/brand.ts';
import type { Catalog, Commit, StoredResourceError, Value } from '../model/catalog.ts';
import type { Content } from '../model/change.ts';
import { assignmentType, clusterType } from '../model/cluster.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant, VariantKey } from '../model/resource.ts';
import { type HeldVariant, isHeldByWildcard } from '../model/rollout.ts';
import { covers, isCollection } from '../model/selection.ts';
import {
  type Holder,
  type Interest,
  interestBytes,
  type Restamp,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { globMatches } from '../model/xdstp.ts';
import {
  type Admits,
  type CachedResource,
  type CacheEntry,
  contentIn,
  NO_FILTER,
  type PickFilter,
} from './cached-resource.ts';
import { HeldNames } from './held-names.ts';
import type { HeldTransaction } from './held-transaction.ts';
import type { InterestState } from './interests.ts';
import { type Column, type StoreOptions, type TypeTable, TypeTables } from './type-table.ts';
import { CommitChanges, restamp, Update, VariantRemover } from './update.ts';

const columns = ['said', 'released', 'canary'] as const;

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

  /** What `resolve` would give; nothing is recorded or counted. */
  peek(type: TypeUrl, name: ResourceName, parameters: Parameters, access?: Admits): Value {
    const filter = access === undefined ? NO_FILTER : { access, fromWildcard: false };
    return this.#value(type, name, parameters, filter, false);
  }

  /** Every variant of a name, then those of other resources that have it as an alias. */
  named(type: TypeUrl, name: ResourceName): readonly HeldVariant[] {
    const table = this.tables.get(type);
    const aliased = Iterator.from(table?.aliased(name, this.#column) ?? [])
      .filter((target) => target !== name)
      .flatMap((target) => contentIn(table?.resource(target, this.#column)))
      .filter(({ variant }) => variant.aliases.includes(name));
    return [...contentIn(this.#resource(type, name)), ...aliased];
  }

  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Admits,
    fromWildcard = false,
  ): Value {
    const filter = access || fromWildcard ? { access, fromWildcard } : NO_FILTER;
    return this.#value(type, name, parameters, filter, true);
  }

  *members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName> {
    for (const name of this.tables.get(type)?.names(selector) ?? []) {
      if (
        this.isMember(type, selector, name, parameters) ||
        this.#hasErrorFor(type, selector, name, parameters)
      )
        yield name;
    }
    // An error may be about all of a glob.
    if (selector !== WILDCARD && this.#hasErrorFor(type, selector, selector, parameters)) yield selector;
  }

  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const cached = this.#resource(type, name);
    if (cached === undefined) return false;
    if (selector !== WILDCARD && !globMatches(selector, name)) return false;
    return cached.variants
      .match(parameters)
      .some((entry) => selector !== WILDCARD || isHeldByWildcard(entry));
  }

  /** Whether upstream gave a wildcard or glob a reason for the state of this name (resource_errors, protocol §8). */
  #hasErrorFor(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
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
    return holder === undefined
      ? ''
      : (this.tables.get(interest.type)?.version(holder.key, this.#column) ?? '');
  }

  resourceErrors(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly StoredResourceError[] {
    const resourceErrors = this.#resource(type, name)?.resourceErrors;
    if (resourceErrors === undefined) return [];
    return [...resourceErrors.values()].filter((error) => error.constraints.matches(parameters));
  }

  protected state(interest: Interest): InterestState | undefined {
    return this.tables.get(interest.type)?.interests.get(interest.selector, interest.parameters);
  }

  /** By its own name, else by an alias. `records`: a choice between several that is made now. */
  #value(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    filter: PickFilter,
    records: boolean,
  ): Value {
    const table = this.tables.get(type);
    if (table === undefined) return 'unknown';
    const pick = (own: ResourceName, among: PickFilter): CacheEntry | undefined => {
      const ambiguous = (matches: readonly CacheEntry[]): void => table.ambiguous(own, parameters, matches);
      return table.resource(own, this.#column)?.pick(parameters, records ? ambiguous : undefined, among);
    };
    const entry = pick(name, filter);
    if (entry !== undefined) return entry.variant;
    for (const target of table.aliased(name, this.#column)) {
      const found = pick(target, { ...filter, alias: name });
      if (found !== undefined) return found.variant;
    }
    return table.interests.get(name, parameters)?.answer === undefined ? 'unknown' : 'absent';
  }

  #resource(type: TypeUrl, name: ResourceName): CachedResource | undefined {
    return this.tables.get(type)?.resource(name, this.#column);
  }
}

/** The content of a store at the end of one revision. */
export interface Restored {
  /** With restored holders. The store keeps the payloads as they are. */
  readonly resources: readonly {
    readonly type: TypeUrl;
    readonly name: ResourceName;
    readonly variants: readonly HeldVariant[];
    /** Which of several matching variants a parameter set had (protocol §5, Ambiguity). */
    readonly bindings: readonly (readonly [Parameters, ConstraintsKey])[];
  }[];
  /** Their answers are restored ones from then on. */
  readonly interests: readonly InterestState[];
  readonly versions: readonly { readonly type: TypeUrl; readonly holder: string; readonly version: string }[];
}

/** The cache: resources in variants, who holds them, and which interests upstream has answered. */
export class Store extends CatalogReader {
  readonly held: HeldNames;
  /** What the clients of each cohort see. The store itself has what upstream says. */
  readonly cohorts: Readonly<Record<Cohort, CatalogReader>>;
  readonly #cohort: Cohort | undefined;

  /** `cohort`: only its clients see it; left out: all do. */
  constructor(options: StoreOptions, cohort?: Cohort) {
    super(new TypeTables(options), 'said');
    this.#cohort = cohort;
    this.held = new HeldNames(this.tables);
    this.cohorts = {
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

  apply(transaction: Transaction): Commit {
    const receivedAt = transaction.arrivedAt ?? this.tables.options.clock.monotonic();
    const next = this.tables.nextRevision();
    const { type } = transaction;
    const table = this.tables.of(type);
    const held = this.held.open(table, transaction);
    if (transaction.version !== undefined) table.setVersion(transaction.holder.key, transaction.version);
    const changes = this.#changesOf(table, held);
    new Update(table, transaction, next, changes).run();
    return this.#commit(table, changes, transaction.version, held, receivedAt);
  }

  restamp(change: Restamp): Commit {
    const receivedAt = this.tables.options.clock.monotonic();
    const { type, moves, unresolved } = change;
    const table = this.tables.of(type);
    const next = this.tables.nextRevision();
    const changes = restamp(table, moves, 'said', next);
    for (const cohort of ['released', 'canary'] as const) restamp(table, moves, cohort, next);
    this.held.restamped(table, change);
    new VariantRemover(table, changes).forgetAnswers(unresolved);
    for (const interest of unresolved) this.tables.journal.interest(interest);
    return this.#commit(table, changes, undefined, undefined, receivedAt);
  }

  /**
   * Ends those of these variants whose time to live has passed: a heartbeat may have come. A commit for each type and
   * version, with their number; the next one is made once the last was taken.
   */
  *expire(variants: readonly VariantKey[]): Iterable<{ readonly commit: Commit; readonly count: number }> {
    const now = this.tables.options.clock.monotonic();
    for (const [type, ofType] of Map.groupBy(variants, (variant) => variant.type)) {
      for (const [version, same] of Map.groupBy(ofType, (variant) => this.#versionAtEnd(variant, now))) {
        const expired = this.#expire(type, same, version, now);
        if (expired !== undefined) yield expired;
      }
    }
  }

  /** Whether something is cached for an interest, whoever sees it. */
  holds(interest: Interest): boolean {
    const table = this.tables.get(interest.type);
    return columns.some((column) => table?.hasVariant(interest, column) === true);
  }

  /** Upstream has said it, and its time to live has not passed. */
  has({ type, name, constraints }: VariantKey): boolean {
    return this.tables.get(type)?.resources.get(name)?.variants.get(constraints.key) !== undefined;
  }

  /** When the first of these expires: what upstream says, and what the cohorts see. Infinity: none does. */
  deadline({ type, name, constraints }: VariantKey): number {
    const table = this.tables.get(type);
    const deadlines = columns.map(
      (column) => table?.own(name, column)?.variants.get(constraints.key)?.variant.ttl?.deadline,
    );
    return Math.min(...deadlines.map((deadline = Number.POSITIVE_INFINITY) => deadline));
  }

  /** From now on the store tracks whether upstream has answered this interest. Restored content of it stays. */
  addInterest(interest: Interest): void {
    const { interests } = this.tables.of(interest.type);
    if (interests.get(interest.selector, interest.parameters) !== undefined) return;
    interests.add(interest);
    this.tables.counts.interestBytes += interestBytes(interest);
    this.tables.journal.interest(interest);
  }

  /** What would end with an interest. */
  contentOf(interest: Interest) {
    const table = this.tables.get(interest.type);
    const content = table === undefined ? { hasContent: false, bytes: 0 } : contentOf(table, interest);
    if (!content.hasContent || interest.type !== assignmentType) return content;
    if (this.tables.options.leavesBehind?.(interest) === false) return content;
    return this.#isLeft(interest) ? { ...content, hasContent: false } : content;
  }

  /**
   * Endpoints to which no cluster leads any more. A control plane over SotW cannot say that they are gone: it only stops to
   * send them. What nobody subscribes to and no cluster leads to is kept no longer than what is absent. False also where it
   * is not known: clients with these parameters do not have all clusters from here, or some cluster is of an extension,
   * which may name its endpoints in its own way.
   */
  #isLeft({ selector, parameters }: Interest): boolean {
    const clusters = this.tables.get(clusterType);
    const isKnown = clusters?.interests.get(WILDCARD, parameters)?.answer !== undefined;
    return isKnown && !isCollection(selector) && !clusters.mayLeadTo(selector);
  }

  /**
   * The interest has ended, and what only this interest saw is dropped. Returns a commit if others can see that: a restored
   * variant was kept for this interest only.
   */
  removeInterest(interest: Interest): Commit | undefined {
    const table = this.tables.of(interest.type);
    const version = this.version(interest);
    if (table.interests.delete(interest)) this.tables.counts.interestBytes -= interestBytes(interest);
    this.tables.journal.interest(interest);
    const held = this.held.open(table);
    const changes = new CommitChanges(held?.changing);
    dropContentOf(table, interest, changes, held?.leaving);
    this.held.interestEnded(table, interest);
    this.tables.forgetIfEmpty(table);
    if (changes.names.size === 0) return undefined;
    this.tables.nextRevision();
    return this.#commit(table, changes, version, held);
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
    for (const { type, name, variants, bindings } of resources) {
      const table = this.tables.of(type);
      const cached = table.place(name);
      for (const { holders, variant: persisted } of variants) {
        const payload = persisted.payload && table.all.payloads.share(persisted.payload);
        const variant: Variant = { ...persisted, payload, revision: next };
        table.add(cached, variant, holders, next);
        table.expiring(variant);
      }
      cached.restoreBindings(bindings);
    }
    for (const { type, holder, version } of versions) {
      // Nothing of the type was restored: then nobody needs the version.
      const table = this.tables.get(type);
      if (table === undefined) this.tables.journal.version(type, holder);
      else table.versions.set(holder, version);
    }
  }

  /**
   * Another upstream takes the place of this one, which will confirm nothing more. What came from it counts as restored,
   * until its new upstream has answered. `servedBy`: whose a name is now; undefined: nobody's.
   */
  markRestored(upstream: string, servedBy: (type: TypeUrl, name: ResourceName) => string | undefined): void {
    for (const table of this.tables.values()) {
      this.#dropUnasked(table, upstream);
      for (const now of table.disown(upstream, (name) => servedBy(table.type, name) ?? upstream))
        this.held.holds.follow(upstream, now, table.type);
      this.tables.forgetIfEmpty(table);
    }
  }

  /** What nobody subscribes to, and goes to who says what it is asked: no answer would ever be about it. */
  #dropUnasked(table: TypeTable, upstream: string): void {
    const dropping = this.held.open(table)?.leaving;
    const { publishedAs } = this.tables.options;
    const isOf = ({ holders }: CacheEntry): boolean => holders.some((one) => one.upstream === upstream);
    for (const [name, cached] of table.resources) {
      const left = cached.variants.all().filter((entry) => isOf(entry) && !isKept(table, name, entry));
      if (left.length === 0 || publishedAs?.(table.type, name) !== undefined) continue;
      for (const entry of left) drop(table, cached, entry, dropping);
    }
  }

  /**
   * The variants of a type that one holder has; others may have them too. `restored`: its present upstream has not confirmed
   * it. Without `isOwn` it came from siblings, or from an upstream before this one: its interests' answers remove it.
   */
  *heldBy(type: TypeUrl, { key, upstream, role }: Holder) {
    for (const [name, cached] of this.tables.get(type)?.resources ?? []) {
      for (const { constraints, variant, holders } of cached.variants.all()) {
        const own = holders.find((one) => one.key === key);
        const isLeft = (one: Holder) =>
          one.restored === true && one.upstream === upstream && one.role === role;
        if (own === undefined && !holders.some(isLeft)) continue;
        const restored = own === undefined || own.restored === true;
        yield { name, constraints, aliases: variant.aliases, restored, isOwn: own !== undefined };
      }
    }
  }

  /** The types of which this holder had something, and has not said since whether it has. */
  *restoredOf({ key }: Holder): Iterable<TypeUrl> {
    const isOf = ({ holders }: CacheEntry): boolean =>
      holders.some((one) => one.key === key && one.restored === true);
    for (const [type, { restored }] of this.tables) if (restored.values().some(isOf)) yield type;
  }

  /** The answer to this interest was restored. Once it is confirmed, restored variants that came for it are removed. */
  isRestored(interest: Interest): boolean {
    return this.state(interest)?.answer === 'restored';
  }

  /** The interests in exactly this name that see a variant with these constraints. */
  naming(type: TypeUrl, name: ResourceName, constraints: Constraints): readonly Interest[] {
    const states = this.tables.get(type)?.interests.named(name)?.matching(constraints) ?? [];
    return Array.from(states, ({ interest }) => interest);
  }

  #expire(type: TypeUrl, variants: readonly VariantKey[], version: string | undefined, now: number) {
    const table = this.tables.get(type);
    if (table === undefined) return undefined;
    const changes = this.#changesOf(table, undefined);
    const remover = new VariantRemover(table, changes);
    const ended: (readonly [ResourceName, ofCohorts: boolean])[] = [];
    for (const variant of variants) {
      const { name } = variant;
      const cached = table.resources.get(name);
      const entry = expiredEntry(cached, variant, now);
      if (cached !== undefined && entry !== undefined)
        for (const holder of entry.holders) remover.drop(cached, entry, holder);
      const ofCohorts = this.held.expire(table, variant, changes, now);
      if (entry !== undefined || ofCohorts) ended.push([name, ofCohorts]);
    }
    if (ended.length === 0) return undefined;
    this.tables.nextRevision();
    const held = this.held.open(table);
    for (const [name, ofCohorts] of ended) held?.passing(name, ofCohorts);
    return { commit: this.#commit(table, changes, version, held), count: ended.length };
  }

  /** Upstream says nothing new: its last version stays (protocol §3.10). Undefined: upstream's own has not expired. */
  #versionAtEnd(variant: VariantKey, now: number): string | undefined {
    const table = this.tables.get(variant.type);
    const entry = expiredEntry(table?.resources.get(variant.name), variant, now);
    return entry && (table?.versions.get(entry.holders[0]?.key ?? '') ?? '');
  }

  /** `held`: where something is, each cohort sees its part. */
  #commit(
    { type }: TypeTable,
    changes: CommitChanges,
    version: string | undefined,
    held: HeldTransaction | undefined,
    receivedAt = this.tables.options.clock.monotonic(),
  ): Commit {
    const { names: changed, resolved } = changes;
    for (const name of changed.keys()) this.tables.journal.resource(type, name);
    for (const interest of resolved) this.tables.journal.interest(interest);
    const commit: Commit = { revision: this.revision, type, version, receivedAt, changed, resolved };
    const closed = held === undefined ? commit : this.held.close(held, commit);
    const { contents } = changes;
    const made = contents === undefined ? closed : { ...closed, contents };
    if (this.#cohort === undefined) return made;
    // The views of the other cohort see nothing of it.
    const nothing: Commit = { ...made, changed: new Map(), resolved: [] };
    return { ...made, cohorts: { released: nothing, canary: nothing, [this.#cohort]: made } };
  }

  #changesOf(table: TypeTable, held: HeldTransaction | undefined): CommitChanges {
    const recorded = this.tables.options.recorded ? this.held.recordedOf(table) : undefined;
    return new CommitChanges(held?.changing, recorded);
  }
}

function expiredEntry(
  cached: CachedResource | undefined,
  { constraints }: VariantKey,
  now: number,
): CacheEntry | undefined {
  const entry = cached?.variants.get(constraints.key);
  return (entry?.variant.ttl?.deadline ?? Number.POSITIVE_INFINITY) > now ? undefined : entry;
}

function contentOf(table: TypeTable, interest: Interest) {
  const { selector, parameters } = interest;
  let bytes = 0;
  for (const name of table.namesOf(selector)) {
    for (const entry of table.resources.get(name)?.variants.match(parameters) ?? []) {
      if (selector === WILDCARD && !isHeldByWildcard(entry)) continue;
      const { payload } = entry.variant;
      if (payload === undefined || !table.all.payloads.isOnce(payload)) continue;
      if (!isKept(table, name, entry, interest)) bytes += payload.bytes.length;
    }
  }
  return { hasContent: table.hasContent(interest), bytes };
}

/** Nobody subscribes to it any more. `dropping` is called before. */
function drop(
  table: TypeTable,
  cached: CachedResource,
  entry: CacheEntry,
  dropping: ((entry: CacheEntry) => void) | undefined,
): void {
  dropping?.(entry);
  table.remove(cached, entry);
  table.all.journal.resource(table.type, entry.variant.name);
}

/** Removes what was kept for this interest only, which has ended. `dropping`: as of `drop`. */
function dropContentOf(
  table: TypeTable,
  interest: Interest,
  changes: CommitChanges,
  dropping: ((entry: CacheEntry) => void) | undefined,
): void {
  const { selector, parameters } = interest;
  const remover = new VariantRemover(table, changes, { unwanted: true, unanswered: [] });
  for (const name of table.namesOf(selector)) {
    const cached = table.resources.get(name);
    if (cached === undefined) continue;
    for (const entry of cached.variants.match(parameters)) {
      if (!isKept(table, name, entry)) drop(table, cached, entry, dropping);
    }
    // Clients can send any parameters: the choices made for them end with them.
    if (cached.isBound(parameters) && !table.interests.sees(name, parameters)) {
      cached.unbind(parameters);
      table.all.journal.resource(table.type, name);
    }
    if (cached.variants.size === 0 && !hasErrorSubscriber(table, name, cached)) table.resources.delete(name);
  }
  remover.releaseRestored(interest);
}

/**
 * Whether an interest other than `except` sees a variant, or its upstream has published it. That is said once, and not
 * asked for when a wildcard of another upstream shows it.
 */
function isKept(table: TypeTable, name: ResourceName, entry: CacheEntry, except?: Interest): boolean {
  for (const { interest } of table.interests.seeing(name, entry.constraints)) {
    if (interest === except) continue;
    if (interest.selector !== WILDCARD || isHeldByWildcard(entry)) return true;
  }
  if (entry.variant.aliases.some((alias) => table.interests.named(resourceName(alias)) !== undefined))
    return true;
  return entry.holders.some((holder) => holder.restored !== true && table.isPublished(name, holder));
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

/**
 * The store of both cohorts; or two, where each cohort has an upstream of its own (docs/adr/0130). Each of the two has every
 * interest, so a client that moves to the other cohort finds what it subscribes to.
 */
export function cohortStores(options: StoreOptions, separate: boolean): Readonly<Record<Cohort, Store>> {
  const released = new Store(options, separate ? 'released' : undefined);
  if (!separate) return { released, canary: released };
  return { released, canary: new Store({ ...options, beside: released.tables }, 'canary') };
}
