import type { Cohort } from '../model/access.ts';
import { type ResourceName, type Revision, resourceName, revision, type TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import { clusterFacts } from '../model/cluster.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import { includes, nameKey, type Scope } from '../model/holds.ts';
import { countIn, getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import { Payloads } from '../model/payloads.ts';
import type { Variant, VariantKey } from '../model/resource.ts';
import { type HeldVariant, isHeldByWildcard, type MaskReason, type PendingName } from '../model/rollout.ts';
import { type Holder, type Interest, type Selector, sameError, WILDCARD } from '../model/transaction.ts';
import { GlobIndex } from '../model/xdstp.ts';
import {
  CachedResource,
  type CacheEntry,
  isRestored,
  isShownAlike,
  sameVariantContent,
  sameVariants,
  type VariantsOf,
  variantsOf,
} from './cached-resource.ts';
import { Interests } from './interests.ts';

/** Is called for every change in the store that persistence has to write. */
export interface Journal {
  /** Variants of this name, who has them, or which of them a parameter set is bound to. */
  resource(type: TypeUrl, name: ResourceName): void;
  /** It was added, removed or answered. */
  interest(interest: Interest): void;
  /** The version of a holder's last response. */
  version(type: TypeUrl, holder: string): void;
}

/** Nothing is written. */
const NO_JOURNAL: Journal = { resource: () => {}, interest: () => {}, version: () => {} };

/** What is under a name is kept in columns: what upstream says, and what the clients of each cohort see (docs/adr/0154). */
export type Column = 'said' | Cohort;

/** A name whose released state is not what upstream says. A column without variants is absent. */
export interface HeldName {
  /** When it last became pending, by `Clock.monotonic()`. */
  readonly since: number;
  /** Undefined: canaries see a change that waits, which is what upstream says unless `canary` says otherwise. */
  readonly masked: MaskReason | undefined;
  /** Discarded: what was refused. */
  readonly refused?: VariantsOf | undefined;
  /** What upstream said last to those who have left. */
  readonly saidLast?: VariantsOf | undefined;
  /** Something was taken out of its columns: what upstream has instead does not show. */
  readonly closed: boolean;
  readonly released: CachedResource;
  /** Undefined: as upstream says. Not masked: the change that is judged, and what upstream has said since is queued. */
  readonly canary?: CachedResource | undefined;
}

const none: readonly never[] = [];
const nothing: VariantsOf = new Map();
/** Versions of so many holders need no look at which are needed: as many as upstreams have sessions. */
const fewVersions = 1000;

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
  /** A variant has a TTL, or a new one: call `expire` at its deadline. */
  readonly expiring: (deadline: number, variant: VariantKey) => void;
  readonly journal?: Journal | undefined;
  /** Shows a commit that no transaction made to the views: what waited is let through, or taken back. */
  readonly publish?: (commit: Commit) => void;
  /** Commits say what was there before, and what is there now. */
  readonly recorded?: boolean | undefined;
  /** The holder as which who serves a name publishes it, asked or not. Left out: nobody publishes anything. */
  readonly publishedAs?: ((type: TypeUrl, name: ResourceName) => Holder | undefined) | undefined;
  /** Who serves this may not say that it is gone; left out: nobody does. */
  readonly leavesBehind?: ((interest: Interest) => boolean) | undefined;
  /** Of a store in the same process with nearly the same content: both count revisions together, and share bodies. */
  readonly beside?: TypeTables;
}

/** The tables of all types that somebody is interested in, or of which something is cached. */
export class TypeTables extends Map<TypeUrl, TypeTable> {
  readonly options: StoreOptions;
  readonly journal: Journal;
  readonly payloads: Payloads;
  readonly counts: { revision: number; interestBytes: number };
  /** Of all types; undefined: something of it has changed. */
  pending: readonly PendingName[] | undefined;

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
    return getOrMake(this, type, () => new TypeTable(type, this));
  }

  /** Clients can name any type: what is empty goes. */
  forgetIfEmpty({ type, empty, versions }: TypeTable): void {
    if (!empty || !this.delete(type)) return;
    for (const holder of versions.keys()) this.journal.version(type, holder);
  }
}

/**
 * Wildcards and names are answered apart, by different upstreams maybe: each keeps it until then. Who publishes it answers
 * for both.
 */
function handedOver(holder: Holder, upstream: string, publisher: Holder | undefined): readonly Holder[] {
  if (publisher?.role === holder.role) return [{ ...holder, ...publisher, restored: true }];
  if (upstream === holder.upstream) return [{ ...holder, restored: true }];
  const inRole = (role: Holder['role']): Holder => {
    const key = `${upstream} has as ${role} of ${holder.key}`;
    return { ...holder, key, upstream, role, restored: true };
  };
  return holder.role === 'wildcard' ? [inRole('wildcard'), inRole('named')] : [inRole('named')];
}

/** Several of one upstream may be handed over as one. */
const isFirst = ({ key }: Holder, at: number, all: readonly Holder[]): boolean =>
  all.findIndex((one) => one.key === key) === at;

const isOfWildcard = ({ role }: Holder): boolean => role === 'wildcard';

/** Everything of one type. */
export class TypeTable {
  readonly type: TypeUrl;
  readonly all: TypeTables;
  /** Names with something in any column. */
  readonly #globs = new GlobIndex();
  readonly #held = new Map<ResourceName, HeldName>();
  /** What is pending of those, as it was told last, and is still so. */
  readonly #pending = new Map<ResourceName, PendingName>();
  /** What upstream says. */
  readonly resources = new CachedResources(this.#globs, this.#held);
  readonly interests = new Interests();
  /** Alias → the resources that have it (protocol §4.8), and how many of their variants do, in all columns. */
  readonly #aliases = new Map<ResourceName, Map<ResourceName, number>>();
  /**
   * Of clusters: the name of endpoints → how many variants lead there, in all columns. Under undefined are those of an
   * extension, which may name its endpoints in its own way. Kept from when it is first asked for.
   */
  #services: Map<string | undefined, number> | undefined;
  /** Version of each holder's last response. */
  readonly versions = new Map<string, string>();
  /** The released versions of holders that have said something since, while something is held. */
  readonly releasedVersions = new Map<string, string>();
  #mostVersions = fewVersions;
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

  /** Several variants match, and one of them was chosen now. */
  ambiguous(name: ResourceName, parameters: Parameters, matches: readonly CacheEntry[]): void {
    this.all.journal.resource(this.type, name); // the choice that was made
    const choices = matches.map((entry) => entry.variant);
    this.all.options.ambiguous(this.type, name, parameters, choices);
  }

  /** A variant that came, or has another TTL. */
  expiring(variant: Variant): void {
    if (variant.ttl !== undefined) this.all.options.expiring(variant.ttl.deadline, variant);
  }

  /** The names whose released state is not what upstream says. */
  get held(): ReadonlyMap<ResourceName, HeldName> {
    return this.#held;
  }

  resource(name: ResourceName, column: Column = 'said'): CachedResource | undefined {
    return this.own(name, column) ?? this.resources.get(name);
  }

  /** What a column has of its own under a name. Undefined: a cohort sees what upstream says, or upstream says nothing. */
  own(name: ResourceName, column: Column): CachedResource | undefined {
    if (column === 'said') return this.resources.get(name);
    return this.#held.size === 0 ? undefined : this.#held.get(name)?.[column];
  }

  /** All names with something in any column, or those under a glob. */
  names(selector: Selector): Iterable<ResourceName> {
    if (selector !== WILDCARD) return this.#globs.under(selector);
    return this.#held.size === 0 ? this.resources.keys() : this.#allNames();
  }

  /** One after the other: who looks for the first of a wildcard ends there. */
  *#allNames(): Iterable<ResourceName> {
    yield* this.resources.keys();
    for (const name of this.#held.keys()) if (!this.resources.has(name)) yield name;
  }

  /** The names that a selector covers, and those of resources that have it as an alias. */
  namesOf(selector: Selector, column: Column = 'said'): ResourceName[] {
    if (selector === WILDCARD) return [...this.names(WILDCARD)];
    return [selector, ...this.aliased(selector, column), ...this.names(selector)];
  }

  /** Whether there is a resource for an interest, or upstream has answered a wildcard. */
  hasContent(interest: Interest, column: Column = 'said'): boolean {
    const { selector, parameters } = interest;
    if (selector === WILDCARD && this.interests.get(selector, parameters)?.answer !== undefined) return true;
    return this.hasVariant(interest, column);
  }

  /** Whether there is a resource for an interest. */
  hasVariant({ selector, parameters }: Interest, column: Column): boolean {
    const isWildcard = selector === WILDCARD;
    return this.namesOf(selector, column).some((name) => {
      const matches =
        this.resource(name, column)?.variants.match(parameters, isWildcard ? undefined : 1) ?? [];
      return matches.some((entry) => !isWildcard || isHeldByWildcard(entry));
    });
  }

  /** The version of a holder's last response. */
  version(holder: string, column: Column = 'said'): string | undefined {
    const before = column === 'released' ? this.releasedVersions.get(holder) : undefined;
    return before ?? this.versions.get(holder);
  }

  /** Clients can make holders by their parameters: each time there are twice as many, those that are left behind go. */
  setVersion(holder: string, version: string): void {
    const before = this.versions.get(holder);
    if (before === version) return;
    if (before === undefined && this.versions.size >= this.#mostVersions) this.#dropVersions();
    this.versions.set(holder, version);
    this.all.journal.version(this.type, holder);
  }

  /** Of holders that have nothing and have answered nothing that somebody still asks. */
  #dropVersions(): void {
    const needed = new Set<string>();
    for (const { holder } of this.interests.all()) if (holder !== undefined) needed.add(holder.key);
    for (const { variants } of this.resources.values())
      for (const { holders } of variants.all()) for (const { key } of holders) needed.add(key);
    for (const holder of this.versions.keys()) {
      if (needed.has(holder)) continue;
      this.versions.delete(holder);
      this.releasedVersions.delete(holder);
      this.all.journal.version(this.type, holder);
    }
    this.#mostVersions = Math.max(fewVersions, 2 * this.versions.size);
  }

  /** What upstream says under a name, or what a cohort has of its own; made where upstream says nothing yet. */
  place(name: ResourceName, column: Column = 'said'): CachedResource {
    const known = this.own(name, column);
    if (known !== undefined) return known;
    const created = new CachedResource();
    this.resources.set(name, created);
    return created;
  }

  /** The variant's body has a reference. */
  add(
    cached: CachedResource,
    variant: Variant,
    holders: readonly Holder[],
    confirmedIn: number,
    column: Column = 'said',
  ): void {
    const entry: CacheEntry = { constraints: variant.constraints, variant, holders, confirmedIn };
    if (column === 'said' && cached.variants.size === 0) cached.renew();
    cached.add(entry);
    this.link(variant);
    if (column !== 'said') return;
    this.variants++;
    this.#indexRestored(entry);
  }

  /** A name that is held stays so. */
  remove(cached: CachedResource, entry: CacheEntry, column: Column = 'said'): void {
    cached.remove(entry);
    this.unlinkAndRelease(entry.variant);
    if (column !== 'said') return;
    this.variants--;
    this.restored.delete(entry);
    if (cached.empty) this.resources.delete(entry.variant.name);
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

  /** Whether it is of who publishes the name, and so stays until that says otherwise. */
  isPublished(name: ResourceName, { key }: Holder): boolean {
    return this.all.options.publishedAs?.(this.type, name)?.key === key;
  }

  /**
   * Others take its place: its holders become restored ones, and so its answers. `successor` of a name: who serves it
   * now. Another one than before has it under other keys, so that what the one before says next does not touch it; one
   * that publishes it, under its own.
   */
  disown(upstream: string, successor: (name: ResourceName) => string): Iterable<string> {
    const known = new Map<string, Map<Holder, readonly Holder[]>>();
    const hand = (name: ResourceName, entry: CacheEntry): boolean => {
      if (!entry.holders.some((holder) => holder.upstream === upstream)) return false;
      const now = successor(name);
      const handed = getOrMake(known, now, () => new Map());
      const publisher = this.all.options.publishedAs?.(this.type, name);
      entry.holders = entry.holders
        .flatMap((one) =>
          one.upstream === upstream ? getOrMake(handed, one, () => handedOver(one, now, publisher)) : one,
        )
        .filter(isFirst);
      if (now === upstream) return true;
      if (entry.variant.upstream === upstream) entry.variant = { ...entry.variant, upstream: now };
      this.all.journal.resource(this.type, name);
      this.pendingChanges(name);
      return true;
    };
    for (const [name, { variants }] of this.resources)
      for (const entry of variants.all()) if (hand(name, entry)) this.restored.add(entry);
    // What everybody or canaries go on to have, though upstream says something else.
    for (const [name, { released, canary }] of this.#held)
      for (const column of new Set([released, canary]))
        if (successor(name) !== upstream) for (const entry of column?.variants.all() ?? []) hand(name, entry);
    for (const state of this.interests.all())
      if (state.answer !== undefined && state.holder?.upstream === upstream) state.answer = 'restored';
    return known.keys().filter((now) => now !== upstream);
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

  /** The cohorts see this of a name from now on. Undefined: they see what upstream says. */
  hold(name: ResourceName, held: HeldName | undefined): void {
    const before = this.#held.get(name);
    for (const cohort of ['released', 'canary'] as const) {
      const [from, to] = [before?.[cohort], held?.[cohort]];
      if (from === to) continue;
      // What canaries go back to they have seen.
      if (before !== undefined && (cohort === 'released' || to === undefined))
        this.#tellErrors(cohort, from, to ?? this.resources.get(name));
      this.#replace(from, to);
    }
    if (held !== undefined) {
      this.#held.set(name, held);
      this.#globs.add(name);
    } else {
      this.#held.delete(name);
      if (!this.resources.has(name)) this.#globs.delete(name);
    }
    this.pendingChanges(name);
  }

  /** A column. */
  #replace(before: CachedResource | undefined, after: CachedResource | undefined): void {
    for (const { variant } of after?.variants.all() ?? []) {
      this.all.payloads.retain(variant.payload);
      this.link(variant);
    }
    for (const { variant } of before?.variants.all() ?? []) this.unlinkAndRelease(variant);
  }

  /** Of clusters: whether one leads to endpoints of this name, or that is not known. */
  mayLeadTo(endpoints: string): boolean {
    // Of clusters that are held back some clients see others.
    if (this.#held.size > 0) return true;
    if (this.#services === undefined) {
      this.#services = new Map();
      for (const { variants } of this.resources.values())
        for (const { variant } of variants.all()) this.#countService(variant, 1);
    }
    return this.#services.has(endpoints) || this.#services.has(undefined);
  }

  #countService(variant: Variant, more: 1 | -1): void {
    if (this.#services === undefined) return;
    const { service, extended } = clusterFacts(variant);
    countIn(this.#services, extended ? undefined : service, more);
  }

  link(variant: Variant): void {
    this.#countService(variant, 1);
    for (const alias of variant.aliases) {
      const key = resourceName(alias);
      const names = getOrMake(this.#aliases, key, () => new Map());
      countIn(names, variant.name, 1);
    }
  }

  /** Another variant of the name may have the same alias: the alias goes with the last one. */
  unlinkAndRelease(variant: Variant): void {
    this.all.payloads.release(variant.payload);
    this.#countService(variant, -1);
    for (const alias of variant.aliases) {
      const key = resourceName(alias);
      const names = this.#aliases.get(key);
      if (names === undefined) continue;
      countIn(names, variant.name, -1);
      if (names.size === 0) this.#aliases.delete(key);
    }
  }

  /** What upstream says under a name is another, or what a cohort has of it. */
  pendingChanges(name: ResourceName): void {
    this.all.pending = undefined;
    this.#pending.delete(name);
  }

  /** The same object as long as nothing changes under a name. */
  pending(): Iterable<PendingName> {
    return this.#held
      .entries()
      .map(([name, held]) => getOrMake(this.#pending, name, () => this.#pendingName(name, held)));
  }

  #pendingName(name: ResourceName, { since, masked, released, canary }: HeldName): PendingName {
    const { type } = this;
    const seen = canary === undefined || !sameVariants(variantsOf(canary), variantsOf(released));
    const isBehind = masked === undefined && canary !== undefined;
    const live = isBehind ? canary : this.resources.get(name);
    const removed = live === undefined || live.variants.size === 0;
    const queued = isBehind || masked === 'queued';
    const key = nameKey(type, name);
    return { type, name, key, upstream: this.#upstreamOf(name), since, removed, masked, seen, queued };
  }

  matches(name: ResourceName, scope: Scope): boolean {
    if (scope.upstream === undefined) return scope.type === undefined || scope.type === this.type;
    return includes(scope, { type: this.type, upstream: this.#upstreamOf(name) });
  }

  change(name: ResourceName, held: HeldName, changes: Partial<HeldName>): void {
    this.hold(name, { ...held, ...changes });
  }

  /** Canaries see the released state of a name: what upstream says now is refused. */
  refuse(name: ResourceName, held: HeldName): void {
    const live = this.resources.get(name);
    const canary = held.released.copy();
    // What is restored may be gone since long.
    const restored = variantsOf(live, (entry) => !isRestored(entry));
    const saidLast = restored.size === 0 ? held.saidLast : new Map([...(held.saidLast ?? []), ...restored]);
    this.change(name, held, { masked: 'discarded', refused: variantsOf(live, isRestored), saidLast, canary });
  }

  /** What upstream said last under a name to those who have left and are not back. */
  saidLast(name: ResourceName): VariantsOf {
    const last = this.#held.get(name)?.saidLast;
    return last === undefined ? nothing : new Map([...last].filter(([, one]) => !this.#isAnswered(one)));
  }

  /** What of that is not in a column, and whose time has not passed. */
  saidLastBeside(name: ResourceName, column: CachedResource | undefined): readonly HeldVariant[] {
    const now = this.all.options.clock.monotonic();
    const isLeft = ({ variant: { constraints, ttl } }: HeldVariant): boolean =>
      column?.variants.get(constraints.key) === undefined && (ttl?.deadline ?? Infinity) > now;
    return [...this.saidLast(name).values()].filter(isLeft);
  }

  /**
   * What canaries have under a name, and what those had who have left: it changes apart from that. `back`: with what they
   * have lost of this.
   */
  judged(name: ResourceName, back?: CachedResource): CachedResource {
    const judged = this.resource(name, 'canary')?.copy() ?? new CachedResource();
    for (const { variant, holders } of this.saidLastBeside(name, judged))
      judged.add({ constraints: variant.constraints, variant, holders, confirmedIn: 0 });
    if (back !== undefined && judged.variants.size === 0) return back.copy();
    for (const entry of back?.variants.all() ?? []) {
      const own = judged.variants.get(entry.constraints.key);
      if (own === undefined) judged.add({ ...entry });
      else if (!isHeldByWildcard(own)) own.holders = [...own.holders, ...entry.holders.filter(isOfWildcard)];
    }
    return judged;
  }

  /** Whether upstream says something else now. Who has left, and who asks by a wildcard, is nothing that it has said. */
  saysElse(name: ResourceName, before: VariantsOf, except: (entry: CacheEntry) => boolean): boolean {
    const live = this.resources.get(name)?.variants;
    const isNew = (entry: CacheEntry): boolean => {
      const known = before.get(entry.constraints.key)?.variant;
      return known === undefined ? !except(entry) : !sameVariantContent(known, entry.variant);
    };
    if (live?.all().some(isNew) === true) return true;
    return before.entries().some(([key, one]) => live?.get(key) === undefined && this.#isAnswered(one));
  }

  /** Somebody subscribes to a variant, and upstream has answered: if it is not there, upstream has removed it. */
  #isAnswered(said: HeldVariant): boolean {
    const isMember = isHeldByWildcard(said);
    return this.interests
      .seeingVariant(said.variant)
      .some(({ interest, answer }) => answer !== undefined && (isMember || interest.selector !== WILDCARD));
  }

  /** Canaries see what upstream has under a name. */
  unmask(name: ResourceName, held: HeldName): void {
    this.change(name, held, { masked: undefined, refused: undefined, canary: undefined });
  }

  /** Everybody sees what upstream has under a name. */
  stopHolding(name: ResourceName): void {
    this.hold(name, undefined);
    if (this.#held.size > 0) return;
    for (const holder of this.releasedVersions.keys()) this.all.journal.version(this.type, holder);
    this.releasedVersions.clear();
    this.heldVersion = undefined;
  }

  /** Upstream has gone back, so nothing waits: the name is let through. False: something waits. */
  stopHoldingIfEqual(name: ResourceName): boolean {
    const live = this.resources.get(name);
    const held = this.#held.get(name);
    if (held === undefined) return true;
    const last = this.saidLast(name);
    if (!this.#isEqual(held.released, live, last)) return false;
    if (held.canary !== undefined && !this.#isEqual(held.canary, live, last)) return false;
    // Equal content is no change: the variants that clients have stay, with their versions.
    if (live !== undefined && !held.released.empty) this.#takeBack(live, held.released);
    this.stopHolding(name);
    return true;
  }

  /** What may look different if these names are seen otherwise, under each name and alias. */
  changesOf(names: Iterable<ResourceName>): Map<ResourceName, Constraints[]> {
    const changed = new Map<ResourceName, Constraints[]>();
    for (const name of names) {
      const { released, canary } = this.#held.get(name) ?? {};
      const columns = [released, canary, this.resources.get(name)];
      const entries = columns.flatMap((cached) => cached?.variants.all() ?? []);
      const errors = columns.flatMap((cached) => Array.from(cached?.resourceErrors?.values() ?? []));
      const all = new Map([...entries, ...errors].map(({ constraints: one }) => [one.key, one]));
      const constraints = all.size === 0 ? [UNCONSTRAINED] : [...all.values()];
      const aliases = entries.flatMap(({ variant }) => variant.aliases);
      for (const shown of new Set([name, ...aliases.map(resourceName)])) {
        const own = getOrMake(changed, shown, () => []);
        for (const one of constraints) own.push(one);
      }
    }
    return changed;
  }

  /** Whether some interest sees a variant of a name. */
  isHeldSeen(name: ResourceName): boolean {
    return [this.#held.get(name)?.released, this.resources.get(name)].some((cached) =>
      cached?.variants.all().some(({ variant }) => this.interests.anySees(variant)),
    );
  }

  /** What was dropped because nobody subscribes to it any more is no difference, but for what was kept back until then. */
  #isEqual(column: CachedResource, live: CachedResource | undefined, last: VariantsOf): boolean {
    const isDropped = ({ constraints: { key }, variant }: CacheEntry): boolean => {
      if (live?.variants.get(key) !== undefined || this.interests.anySees(variant)) return false;
      const said = last.get(key)?.variant;
      return said === undefined || sameVariantContent(said, variant);
    };
    if (!this.isSeenAlike(variantsOf(column, isDropped), variantsOf(live))) return false;
    return live === undefined || column.hasBindingsOf(live);
  }

  /** Whether clients see the same of both. Whether a wildcard shows it is no difference where nobody has a wildcard. */
  isSeenAlike(a: VariantsOf, b: VariantsOf): boolean {
    const isAlike = (one: HeldVariant, other: HeldVariant): boolean =>
      isShownAlike(one, other) ||
      (!this.interests.hasWildcard(one.variant.constraints) &&
        sameVariantContent(one.variant, other.variant));
    return sameVariants(a, b, isAlike);
  }

  /** A cohort sees this of a name from now on. Errors that waited are new to it: a client is sent what is newer than it. */
  #tellErrors(cohort: Cohort, before: CachedResource | undefined, seen: CachedResource | undefined): void {
    for (const [key, error] of seen?.resourceErrors ?? []) {
      const known = before?.resourceErrors?.get(key);
      const isKnown = known?.fromWildcard === error.fromWildcard && sameError(known, error);
      const since = isKnown ? known.revision[cohort] : this.all.revision;
      if (since !== error.revision[cohort])
        seen?.resourceErrors?.set(key, { ...error, revision: { ...error.revision, [cohort]: since } });
    }
  }

  #takeBack(live: CachedResource, released: CachedResource): void {
    for (const entry of live.variants.all()) {
      const variant = released.variants.get(entry.constraints.key)?.variant;
      if (variant === undefined || variant === entry.variant) continue;
      this.all.payloads.retain(variant.payload);
      this.all.payloads.release(entry.variant.payload);
      entry.variant = variant;
    }
    live.adoptBindings(released);
    live.order = released.order;
  }

  #upstreamOf(name: ResourceName): string {
    const [live] = this.resources.get(name)?.variants.all() ?? [];
    const [released] = this.#held.get(name)?.released.variants.all() ?? [];
    return (live ?? released)?.variant.upstream ?? '';
  }
}
