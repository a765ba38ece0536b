import { type ConstraintsKey, type ResourceName, type Revision, resourceName } from '../model/brand.ts';
import type { Commit, Snapshot, StoredResourceError } from '../model/catalog.ts';
import type { Content } from '../model/change.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import { deltaVersionOf } from '../model/payloads.ts';
import type { Payload, Variant } from '../model/resource.ts';
import { type HeldVariant, isHeldByWildcard } from '../model/rollout.ts';
import { coversResource, isCollection } from '../model/selection.ts';
import {
  type Heartbeat,
  type Holder,
  type Interest,
  type Move,
  type Put,
  type ResourceError,
  type Selector,
  sameError,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { Code } from '../wire/grpc-status.ts';
import {
  type CachedResource,
  type CacheEntry,
  FROM_WILDCARD,
  hasHolder,
  NO_FILTER,
  sameContent,
} from './cached-resource.ts';
import type { InterestState, Interests } from './interests.ts';
import type { Column, TypeTable } from './type-table.ts';

/** What a commit that is recorded is told by. */
export interface Recorded {
  /** What is there now. */
  readonly snapshot: (name: ResourceName) => Snapshot;
  readonly interests: Interests;
}

/** Collects what one transaction changes. */
export class CommitChanges {
  /** Some constraints may be there twice: what looks at one again finds the same. */
  readonly names = new Map<ResourceName, Constraints[]>();
  readonly resolved: Interest[] = [];
  readonly #before = new Map<ResourceName, Snapshot>();
  readonly #changing: ((name: ResourceName) => void) | undefined;
  readonly #recorded: Recorded | undefined;

  /** `changing` is called for each name before it changes. `recorded`: what it was then is taken. */
  constructor(changing?: (name: ResourceName) => void, recorded?: Recorded) {
    this.#changing = changing;
    this.#recorded = recorded;
  }

  /** After both cohorts have taken the changes: what was and what is. Undefined: it is not recorded. */
  get contents(): Commit['contents'] {
    if (this.#recorded === undefined) return undefined;
    const { snapshot, interests } = this.#recorded;
    const isFirst = interests.saidFirst(new Set(this.resolved));
    const changed = this.#before.entries().map(([name, before]) => {
      const after = snapshot(name);
      return [name, { before, after, saidFirst: firstIn(before.released, after.released, isFirst) }] as const;
    });
    return new Map(changed);
  }

  /** To be called before the variants of the name change. */
  touch(name: ResourceName, constraints: Constraints, aliases: readonly string[] = []): void {
    const known = this.names.get(name);
    if (known === undefined) {
      const before = this.#recorded?.snapshot(name);
      if (before !== undefined) this.#before.set(name, before);
      this.#changing?.(name);
      this.names.set(name, [constraints]);
    } else if (known.at(-1) !== constraints) known.push(constraints);
    for (const alias of aliases) this.touch(resourceName(alias), constraints);
  }

  /** The same for all of these. */
  touchAll(changed: Commit['changed']): void {
    for (const [name, all] of changed) for (const constraints of all) this.touch(name, constraints);
  }

  resolve(state: InterestState, answer: 'restored' | 'confirmed' = 'confirmed'): void {
    state.answer = answer;
    this.resolved.push(state.interest);
  }
}

/** How variants leave the cache. */
export class VariantRemover {
  protected readonly table: TypeTable;
  protected readonly changes: CommitChanges;
  /** The errors that the transaction has said, also if they were said before. */
  protected readonly saidErrors = new Set<StoredResourceError>();
  readonly #unwanted: boolean;
  /** Upstream itself has said that the resource does not exist. */
  readonly #saidByUpstream: boolean;
  readonly #unanswered = new Map<Selector, Set<Parameters>>();

  /** `unwanted`: nobody subscribes to it any more; that says nothing about what upstream has. */
  constructor(table: TypeTable, changes: CommitChanges, said?: Pick<Transaction, 'unwanted' | 'unanswered'>) {
    this.table = table;
    this.changes = changes;
    this.#unwanted = said?.unwanted === true;
    this.#saidByUpstream = said !== undefined && !this.#unwanted;
    for (const { selector, parameters } of said?.unanswered ?? [])
      getOrMake(this.#unanswered, selector, () => new Set()).add(parameters);
  }

  /** This holder does not have the variant any more. Without holders, it is removed. */
  drop(cached: CachedResource, entry: CacheEntry, holder: Holder): void {
    if (!hasHolder(entry, holder)) return;
    // Who else sees it may have no answer yet, as upstream is away: it stays, as what is restored does.
    if (this.#unwanted && entry.holders.length === 1 && isNeeded(this.table, cached, entry, holder, true)) {
      this.table.addHolder(entry, { ...holder, restored: true });
      return;
    }
    const { name, aliases } = entry.variant;
    this.changes.touch(name, entry.constraints, aliases);
    this.table.removeHolder(entry, holder);
    if (entry.holders.length > 0) return;
    this.missing(name, cached, entry.constraints);
    this.table.remove(cached, entry);
    // Interests in the name that are not resolved yet may still get another variant. That the wildcard lost this one
    // does not resolve them. Nor does it those in its aliases: another resource may have these.
    if (holder.role !== 'wildcard') this.resolveNamed(name, entry.constraints, holder);
  }

  /** An interest was confirmed or has ended: restored variants that it sees and no other interest needs are removed. */
  releaseRestored({ selector, parameters }: Interest): void {
    const { restored, resources } = this.table;
    if (restored.size === 0) return;
    const candidates =
      selector === WILDCARD
        ? [...restored].filter(({ constraints }) => constraints.matches(parameters))
        : this.table
            .namesOf(selector)
            .flatMap((name) => resources.get(name)?.variants.match(parameters) ?? []);
    for (const entry of candidates) {
      const cached = resources.get(entry.variant.name);
      if (cached === undefined || !coversResource(selector, entry.variant)) continue;
      for (const holder of entry.holders.filter(({ restored: is }) => is))
        if (!isNeeded(this.table, cached, entry, holder, this.#unwanted)) this.drop(cached, entry, holder);
    }
  }

  /**
   * Others will answer these. What is cached stays until then; of what is not, nothing is known, and what was said to be
   * wrong with it counts no more.
   */
  forgetAnswers(interests: readonly Interest[]): void {
    const { interests: all, resources } = this.table;
    for (const interest of interests) all.forgetAnswer(interest);
    const isForgotten = (selector: Selector, constraints: Constraints): boolean =>
      Iterator.from(all.named(selector)?.matching(constraints) ?? []).every(
        ({ answer }) => answer === undefined,
      );
    for (const { selector, parameters } of interests) {
      this.changes.touch(selector, UNCONSTRAINED);
      const cached = resources.get(selector);
      if (cached?.resourceErrors === undefined || cached.variants.match(parameters).length > 0) continue;
      this.endErrors(
        selector,
        cached,
        (constraints) => constraints.matches(parameters) && isForgotten(selector, constraints),
      );
    }
  }

  /** An error beside a missing resource would mean that it is not deleted (protocol §8). */
  protected missing(name: ResourceName, cached: CachedResource, constraints: Constraints): void {
    if (this.#saidByUpstream && cached.resourceErrors !== undefined)
      this.endErrors(name, cached, isOf(constraints));
  }

  /** Errors of a name that are over, but for those that the same transaction says. */
  protected endErrors(
    name: ResourceName,
    cached: CachedResource,
    isOver: (constraints: Constraints) => boolean,
  ): void {
    for (const error of cached.resourceErrors?.values() ?? []) {
      if (this.saidErrors.has(error) || !isOver(error.constraints)) continue;
      this.changes.touch(name, error.constraints);
      cached.clearError(error.constraints);
    }
    if (cached.empty) this.table.resources.delete(name);
  }

  /**
   * Resolves the interests in this name: the resource is absent. Of other parameters their own session says so. That nobody
   * subscribes to something does not say it.
   */
  protected resolveNamed(name: ResourceName, constraints: Constraints, { exactParameters }: Holder): void {
    if (this.#unwanted) return;
    for (const state of this.table.interests.named(name)?.matching(constraints) ?? []) {
      const { selector, parameters } = state.interest;
      const isOfOther = exactParameters !== undefined && exactParameters !== parameters;
      const isPending = isOfOther || this.#unanswered.get(selector)?.has(parameters) === true;
      if (state.answer === undefined && !isPending) this.changes.resolve(state);
    }
  }
}

/** Of errors: those with these constraints, and those for everybody. */
const isOf =
  (constraints: Constraints) =>
  ({ key }: Constraints): boolean =>
    key === constraints.key || key === UNCONSTRAINED.key;

/**
 * Whether a restored holder still keeps a variant: an interest of its role sees it and has no answer yet from its present
 * upstream. So what is not delivered again goes when upstream has answered, and not before. That a wildcard, a glob or an
 * alias is answered says nothing about a resource with an error other than NOT_FOUND (protocol §8.2). What a sibling or
 * another upstream has said goes all the same: no removal of this upstream would ever reach it. Nor does an answer say
 * anything about what is published: the wildcard that shows it may be of another upstream.
 */
function isNeeded(
  table: TypeTable,
  { resourceErrors }: CachedResource,
  { variant }: CacheEntry,
  restored: Holder,
  unwanted: boolean,
): boolean {
  if (table.isPublished(variant.name, restored)) return true;
  const { role, key } = restored;
  const isAbout = isOf(variant.constraints);
  const isLeftOpen =
    resourceErrors
      ?.values()
      .some(({ code, constraints }) => code !== Code.NOT_FOUND && isAbout(constraints)) === true;
  return table.interests.seeingVariant(variant).some(({ interest, answer, holder }) => {
    const isOfRole = (interest.selector === WILDCARD) === (role === 'wildcard');
    const staysOpen = isLeftOpen && holder?.key === key && interest.selector !== variant.name;
    // Another interest has ended, and the upstream of this one is away: its own answer will let go of it.
    const waits = unwanted && answer === undefined && (isOfRole || !isCollection(interest.selector));
    return waits || (isOfRole && (answer === 'restored' || staysOpen));
  });
}

/** The variant that a parameter set had before another one came that matches it too. */
type PreviousChoice = readonly [cached: CachedResource, parameters: Parameters, before: CacheEntry];

/** One transaction on its way into a table. */
export class Update extends VariantRemover {
  readonly #transaction: Transaction;
  readonly #holder: Holder;
  readonly #revision: Revision;
  /** What comes together is over together. */
  readonly #now: number;

  constructor(table: TypeTable, transaction: Transaction, revision: Revision, changes: CommitChanges) {
    super(table, changes, transaction);
    this.#now = table.all.options.clock.monotonic();
    this.#transaction = transaction;
    this.#holder = transaction.holder;
    this.#revision = revision;
  }

  /** Confirms first, then removes, then adds: a swap of variants must not look ambiguous on the way (protocol §5). */
  run(): void {
    const { puts, complete, cannotDelete, heartbeats, resourceErrors } = this.#transaction;
    const choices = this.#confirmAll();
    this.#removeAll();
    if (complete) this.#sweep();
    for (const put of puts) this.#put(put);
    for (const choice of choices) this.#keepChoice(choice);
    if (cannotDelete) this.#lastWins();
    for (const beat of heartbeats) this.#heartbeat(beat);
    for (const error of resourceErrors) this.#resourceError(error);
    if (this.#holder.restored) this.#resolveForNow();
    else this.#resolveInterests();
  }

  /**
   * Marks the variants that are cached already and stay. A new variant changes nothing for parameter sets that have a
   * match (protocol §5, Ambiguity). Returns what these have now.
   */
  #confirmAll(): readonly PreviousChoice[] {
    const choices: PreviousChoice[] = [];
    /** Nothing changes meanwhile: one choice for each resource and parameter set. */
    const remembered = new Map<CachedResource, Set<Parameters>>();
    for (const put of this.#transaction.puts) {
      const cached = this.table.resources.get(put.name);
      const entry = cached?.variants.get(put.constraints.key);
      if (entry !== undefined) entry.confirmedIn = this.#revision;
      // One that has been there for names alone is new to wildcards.
      const isNew = entry === undefined || (this.#holder.role === 'wildcard' && !isHeldByWildcard(entry));
      if (cached !== undefined && isNew && !this.#transaction.cannotDelete)
        this.#remember(cached, put, remembered, choices);
    }
    for (const { name, constraints } of this.#transaction.heartbeats) {
      const entry = this.table.resources.get(name)?.variants.get(constraints.key);
      if (entry !== undefined) entry.confirmedIn = this.#revision;
    }
    return choices;
  }

  #remember(
    cached: CachedResource,
    put: Put,
    remembered: Map<CachedResource, Set<Parameters>>,
    choices: PreviousChoice[],
  ): void {
    const seen = getOrMake(remembered, cached, () => new Set());
    for (const { interest } of this.table.interests.seeingVariant(put)) {
      const { selector, parameters } = interest;
      if (seen.has(parameters)) continue;
      const isWildcard = selector === WILDCARD;
      const before = this.#pick(cached, put.name, parameters, isWildcard ? FROM_WILDCARD : NO_FILTER);
      if (before === undefined || (isWildcard && !isHeldByWildcard(before))) continue;
      seen.add(parameters);
      choices.push([cached, parameters, before]);
    }
  }

  #keepChoice([cached, parameters, before]: PreviousChoice): void {
    if (cached.variants.get(before.constraints.key) !== before) return;
    const matches = cached.variants.match(parameters);
    const bound = cached.bindings?.get(parameters) ?? before.constraints.key;
    if (matches.length < 2 || bound !== before.constraints.key) return;
    cached.bind(parameters, before);
    const others = matches.filter((entry) => entry !== before);
    this.table.ambiguous(before.variant.name, parameters, [before, ...others]);
  }

  #removeAll(): void {
    for (const { name, constraints } of this.#transaction.removals) {
      const cached = this.table.resources.get(name);
      const entry = cached?.variants.get(constraints.key);
      if (cached === undefined || entry === undefined) {
        // Its time to live may have passed here.
        if (cached !== undefined) this.missing(name, cached, constraints);
        // What the wildcard lacks may still be got by name.
        if (this.#holder.role !== 'wildcard') this.resolveNamed(name, constraints, this.#holder);
      } else if (entry.confirmedIn !== this.#revision) this.drop(cached, entry, this.#holder);
    }
  }

  /** Full state: what this holder has not confirmed is removed. */
  #sweep(): void {
    for (const cached of this.table.resources.values()) {
      for (const entry of cached.variants.all())
        if (entry.confirmedIn !== this.#revision) this.drop(cached, entry, this.#holder);
    }
  }

  #put(put: Put): void {
    const known = this.table.resources.get(put.name);
    if (known?.resourceErrors !== undefined) this.endErrors(put.name, known, isOf(put.constraints));
    const cached = this.table.place(put.name);
    const entry = cached.variants.get(put.constraints.key);
    if (entry !== undefined && this.#holder.restored) {
      this.#keep(entry);
    } else if (entry !== undefined && sameContent(entry.variant, put)) {
      entry.confirmedIn = this.#revision;
      this.#confirm(put, entry);
    } else {
      const variant = this.#variant(put);
      this.changes.touch(put.name, put.constraints, put.aliases);
      if (entry === undefined) this.table.add(cached, variant, [this.#holder], this.#revision);
      else this.#replace(entry, variant);
      this.table.expiring(variant);
    }
  }

  /** The same content again: there may be one more holder, or another TTL. */
  #confirm(put: Put, entry: CacheEntry): void {
    // It may have become a member of the wildcard.
    if (!hasHolder(entry, this.#holder)) this.changes.touch(put.name, put.constraints);
    this.table.addHolder(entry, this.#holder);
    this.#setTtl(entry, put.ttlMilliseconds);
  }

  /** Clients with a running TTL must get the new one, or learn that there is none. */
  #setTtl(entry: CacheEntry, milliseconds: number | undefined): void {
    const { name, constraints, aliases, ttl } = entry.variant;
    if (ttl === undefined && milliseconds === undefined) return;
    this.changes.touch(name, constraints, aliases);
    entry.variant = { ...entry.variant, ttl: this.#ttl(milliseconds) };
    this.table.expiring(entry.variant);
  }

  #variant(put: Put): Variant {
    const { name, constraints, version, aliases, doNotCache } = put;
    const payload = this.#payload(put);
    const metadata = put.metadata === undefined ? undefined : Buffer.from(put.metadata);
    return {
      type: this.#transaction.type,
      name,
      constraints,
      version,
      deltaVersion: deltaVersionOf(version, constraints, payload, aliases, metadata),
      payload,
      aliases,
      ttl: this.#ttl(put.ttlMilliseconds),
      doNotCache,
      metadata,
      responseVersion: this.#transaction.version ?? '',
      upstream: this.#holder.upstream,
      cachedSince: this.table.all.options.clock.now(),
      revision: this.#revision,
    };
  }

  #payload({ any, payload }: Put): Payload | undefined {
    if (payload !== undefined) return this.table.all.payloads.share(payload);
    return any === undefined ? undefined : this.table.all.payloads.acquire(any);
  }

  #ttl(milliseconds: number | undefined): Variant['ttl'] {
    if (milliseconds === undefined) return undefined;
    return { milliseconds, deadline: this.#now + milliseconds };
  }

  #replace(entry: CacheEntry, variant: Variant): void {
    const before = entry.variant;
    this.table.unlinkAndRelease(before);
    entry.variant = variant;
    entry.confirmedIn = this.#revision;
    this.table.link(variant);
    this.table.addHolder(entry, this.#holder);
    if (before.aliases.length === 0) return;
    const kept = new Set(variant.aliases);
    for (const alias of before.aliases)
      if (!kept.has(alias)) this.changes.touch(resourceName(alias), variant.constraints);
  }

  /**
   * Upstream cannot delete the predecessors of what it sends: who matches several variants gets the last received
   * (protocol §5). Nothing is dropped before all of the response is in: it may deliver the same variant again.
   */
  #lastWins(): void {
    const latest = new Map<CachedResource, CacheEntry>();
    for (const put of this.#transaction.puts) {
      const cached = this.table.resources.get(put.name);
      const entry = cached?.variants.get(put.constraints.key);
      if (cached === undefined || entry === undefined || cached.variants.size < 2) continue;
      this.changes.touch(put.name, put.constraints, put.aliases);
      for (const { interest } of this.table.interests.seeingVariant(put)) {
        // What only names have no wildcard has chosen.
        const isShown = interest.selector !== WILDCARD || isHeldByWildcard(entry);
        if (isShown && cached.hasChoice(interest.parameters)) cached.bind(interest.parameters, entry);
      }
      latest.set(cached, entry);
    }
    for (const [cached, entry] of latest) this.#dropUnbound(cached, entry);
  }

  /** Each session of a parameter set has a variant of its own: those of others are not looked at. */
  #dropUnbound(cached: CachedResource, latest: CacheEntry): void {
    const { name } = latest.variant;
    // Once for each parameter set: of thousands of variants each may match.
    const picked = new Map<Parameters, CacheEntry | undefined>();
    const isBound = (entry: CacheEntry): boolean =>
      Iterator.from(this.table.interests.seeing(name, entry.constraints)).some(
        ({ interest: { parameters } }) =>
          getOrMake<Parameters, CacheEntry | undefined>(picked, parameters, () =>
            this.#pick(cached, name, parameters),
          ) === entry,
      );
    const own = cached.variants.all().filter((entry) => entry !== latest && hasHolder(entry, this.#holder));
    for (const entry of own.filter((one) => !isBound(one))) this.drop(cached, entry, this.#holder);
  }

  #heartbeat({ name, constraints, ttlMilliseconds }: Heartbeat): void {
    const entry = this.table.resources.get(name)?.variants.get(constraints.key);
    if (entry !== undefined) this.#setTtl(entry, ttlMilliseconds);
  }

  #resourceError(error: ResourceError): void {
    const { name, constraints, code } = error;
    if (code === Code.NOT_FOUND) this.resolveNamed(name, constraints, this.#holder);
    const [somebody] = this.table.interests.seeing(name, constraints);
    if (somebody === undefined) return; // nobody would get it
    const cached = this.table.place(name);
    cached.resourceErrors ??= new Map();
    const known = cached.resourceErrors.get(constraints.key);
    const again = known !== undefined && sameError(known, error);
    const fromWildcard =
      (again && known.fromWildcard) || this.#holder.role === 'wildcard' || name === WILDCARD;
    // Each error is forwarded once (protocol §8). Upstreams that send their whole state repeat it in each response.
    if (again && known.fromWildcard === fromWildcard) {
      this.saidErrors.add(known);
      return;
    }
    const status = Buffer.from(error.status);
    const revision = { released: this.#revision, canary: this.#revision };
    const stored = { ...error, status, revision, fromWildcard };
    this.changes.touch(name, constraints);
    cached.resourceErrors.set(constraints.key, stored);
    this.saidErrors.add(stored);
  }

  /**
   * An answer ends the errors before it, as that of `max_upstream_sessions`, unless it says them again. Those beside what
   * is there end with the resource (protocol §8.2). An interest is answered again when upstream says something after an error.
   */
  #answer({ interest: { selector, parameters }, answer, holder }: InterestState): void {
    const cached = this.table.resources.get(selector);
    if (cached?.resourceErrors === undefined || cached.variants.match(parameters).length > 0) return;
    const isNewer = answer === 'confirmed' && holder?.key === this.#holder.key;
    const isOver = (constraints: Constraints): boolean =>
      constraints.matches(parameters) && (isNewer || !this.#hasAnswered(selector, constraints));
    this.endErrors(selector, cached, isOver);
  }

  /** Then an interest that has its answer now only joins others, and an error for these is newer than their answer. */
  #hasAnswered(selector: Selector, constraints: Constraints): boolean {
    return Iterator.from(this.table.interests.named(selector)?.matching(constraints) ?? []).some(
      ({ answer, holder }) => answer === 'confirmed' && holder?.key === this.#holder.key,
    );
  }

  #resolveInterests(): void {
    const { resolved, resourceErrors } = this.#transaction;
    // Nothing but NOT_FOUND drops what is cached (protocol §8).
    const failed = new Set(
      resourceErrors.filter(({ code }) => code !== Code.NOT_FOUND).map(({ name }) => name),
    );
    const confirmed: Interest[] = [];
    for (const interest of resolved) {
      const state = this.table.interests.get(interest.selector, interest.parameters);
      if (state === undefined || (state.answer === 'restored' && failed.has(interest.selector))) continue;
      this.#answer(state);
      if (state.holder?.key !== this.#holder.key) this.table.all.journal.interest(interest);
      state.holder = this.#holder;
      confirmed.push(interest);
      if (state.answer === undefined) this.changes.resolve(state);
      else state.answer = 'confirmed';
    }
    // Only when all interests are confirmed: restored variants that none of them needs are removed.
    for (const interest of confirmed) this.releaseRestored(interest);
  }

  /**
   * What another relay has in its cache, while upstream is away (docs/adr/0126-siblings.md), is as good as what was
   * restored from disk: upstream's own answer takes its place. It is never better than what this relay has: a variant
   * that is cached stays as it is. It may have become a member of the wildcard, or be subscribed by name.
   */
  #keep(entry: CacheEntry): void {
    if (entry.holders.some(({ role }) => role === this.#holder.role)) return;
    this.changes.touch(entry.variant.name, entry.constraints);
    this.table.addHolder(entry, this.#holder);
  }

  /** Resolves the interests that upstream has not answered, until it does. */
  #resolveForNow(): void {
    for (const interest of this.#transaction.resolved) {
      const state = this.table.interests.get(interest.selector, interest.parameters);
      if (state === undefined || state.answer !== undefined) continue;
      // That another relay does not have it says nothing.
      if (!isCollection(interest.selector) && !this.table.hasContent(interest)) continue;
      state.holder = this.#holder;
      this.table.all.journal.interest(state.interest);
      this.changes.resolve(state, 'restored');
    }
  }

  #pick(
    cached: CachedResource,
    name: ResourceName,
    parameters: Parameters,
    among = NO_FILTER,
  ): CacheEntry | undefined {
    return cached.pick(parameters, (matches) => this.table.ambiguous(name, parameters, matches), among);
  }
}

/**
 * Gives the variants of a holder in one column other constraints. All are taken out first and then put back, so that no two
 * variants match the same parameters on the way. Nothing becomes absent: a variant has new constraints, or its new
 * session has not answered yet.
 */
export function restamp(
  table: TypeTable,
  moves: readonly Move[],
  column: Column,
  revision: Revision,
): CommitChanges {
  const changes = new CommitChanges();
  const arrivals: (readonly [variant: Variant, to: Constraints, holder: Holder])[] = [];
  for (const { holder, name, from, to } of moves) {
    const cached = table.own(name, column);
    const entry = cached?.variants.get(from.key);
    if (cached === undefined || entry === undefined || !hasHolder(entry, holder)) continue;
    changes.touch(name, from, entry.variant.aliases);
    if (to !== undefined) arrivals.push([entry.variant, to, holder]);
    table.removeHolder(entry, holder, column);
    if (entry.holders.length === 0) table.remove(cached, entry, column);
  }
  for (const [variant, to, holder] of arrivals) {
    const { name, version, aliases, metadata } = variant;
    const cached = table.place(name, column);
    const known = cached.variants.get(to.key);
    if (known === undefined) {
      const payload = variant.payload && table.all.payloads.share(variant.payload);
      const deltaVersion = deltaVersionOf(version, to, payload, aliases, metadata);
      const moved = { ...variant, payload, constraints: to, deltaVersion, revision };
      table.add(cached, moved, [holder], revision, column);
      // Its timer is for the variant with these constraints.
      table.expiring(moved);
    } else {
      table.addHolder(known, holder, column);
      table.expiring(known.variant);
    }
    changes.touch(name, to, aliases);
  }
  return changes;
}

/** What is new in `now`, and is said first. */
function firstIn(
  before: Content,
  now: Content,
  isFirst: (held: HeldVariant, before: Content) => boolean,
): ReadonlySet<ConstraintsKey> {
  // As it is where contents change.
  if (before.length === now.length && now.every((held, at) => keyOf(held) === keyOf(before[at] ?? held)))
    return none;
  const known = new Set(before.map(keyOf));
  return new Set(now.filter((held) => !known.has(keyOf(held)) && isFirst(held, before)).map(keyOf));
}

const none: ReadonlySet<ConstraintsKey> = new Set();

const keyOf = ({ variant }: HeldVariant): ConstraintsKey => variant.constraints.key;
