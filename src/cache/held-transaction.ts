import type { Cohort } from '../model/access.ts';
import { type ConstraintsKey, type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import { NO_CONTENT } from '../model/change.ts';
import { assignmentType } from '../model/cluster.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Holds } from '../model/holds.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import {
  type HeldVariant,
  type IsQueued,
  isHeldByWildcard,
  isLacking,
  type PendingChange,
} from '../model/rollout.ts';
import { type Holder, type Interest, WILDCARD } from '../model/transaction.ts';
import {
  CachedResource,
  type CacheEntry,
  FROM_WILDCARD,
  isRestored,
  sameVariantContent,
  type VariantsOf,
  variantsOf,
} from './cached-resource.ts';
import type { Interests } from './interests.ts';
import type { HeldName, TypeTable } from './type-table.ts';

const nothing: VariantsOf = new Map();
const bothCohorts: readonly Cohort[] = ['released', 'canary'];
/** Of a name, for those who may come back: any number of clients with constraints of their own may leave while it is held. */
const mostSaidLast = 100;
/** Of a name, for those from whom something is kept back. */
const mostKeptBack = 1000;

/** What one transaction does to the held names of its type. */
export class HeldTransaction {
  readonly table: TypeTable;
  readonly #isGated: boolean;
  readonly #isQueued: IsQueued;
  readonly #holds: Holds;
  readonly #now: number;
  /** Who has said something, and the version of its last response before this one. */
  readonly #said: { readonly holder: string; readonly before: string | undefined } | undefined;
  /** Every name that changes. */
  readonly #names = new Set<ResourceName>();
  /** Of names that were held before: what upstream said, to those who have left too. */
  readonly #before = new Map<ResourceName, VariantsOf>();
  /** Names of which a cohort sees something else, though they are held. */
  readonly #altered = new Set<ResourceName>();
  /** Names that are queued only if upstream removes something of them. */
  readonly #queuedIfRemoved = new Set<ResourceName>();
  /** Names that a rollback has removed, and upstream says anew. */
  readonly #keptAway = new Set<ResourceName>();
  /**
   * What a cohort has to hear, whatever this transaction says of it: another one may have said it when somebody still had
   * something else. What does not wait any more, with errors that waited; what canaries see as upstream has it from now on;
   * what has come into a column.
   */
  readonly #told: Readonly<Record<Cohort, Map<ResourceName, Constraints[]>>> = {
    released: new Map(),
    canary: new Map(),
  };

  constructor(table: TypeTable, isGated: boolean, isQueued: IsQueued, holds: Holds, holder?: string) {
    this.table = table;
    this.#said = holder === undefined ? undefined : { holder, before: table.versions.get(holder) };
    this.#isGated = isGated;
    this.#isQueued = (name, isRemoved) => isGated && isQueued(name, isRemoved);
    this.#holds = holds;
    this.#now = table.all.options.clock.monotonic();
  }

  /** Must be called before the variants of a name change for the first time. */
  readonly changing = (name: ResourceName): void => {
    if (this.#names.has(name)) return;
    this.#names.add(name);
    const live = this.table.resources.get(name);
    const held = this.table.held.get(name);
    if (held !== undefined) {
      this.#changingHeld(name, held, live);
      return;
    }
    const isWithheld = this.#holds.isWithheld(this.table.type, name);
    // Nobody has anything of it: there is nothing to protect, unless a rollback has removed it.
    if (live === undefined || live.variants.size === 0) {
      if (!isWithheld) return;
      this.#keptAway.add(name);
      const released = new CachedResource();
      this.table.hold(name, { since: this.#now, masked: undefined, closed: true, released });
      return;
    }
    if (!this.#waits(live)) return;
    const masked = this.#isFrozen(live) ? 'frozen' : this.#queues(name) ? 'queued' : undefined;
    // From now on everybody sees what is there now, or all but canaries do.
    const canary = masked === undefined ? undefined : live.copy();
    this.table.hold(name, { since: this.#now, masked, closed: isWithheld, released: live.copy(), canary });
  };

  /** Nobody subscribes to it any more, which is no change; but what is frozen stays for who comes back. */
  readonly leaving = ({ constraints, variant, holders }: CacheEntry): void => {
    const { name } = variant;
    const live = this.table.resources.get(name);
    if (live !== undefined && this.#isFrozen(live)) this.changing(name);
    const held = this.table.held.get(name);
    if (held === undefined) return;
    const saidLast = new Map(held.saidLast);
    saidLast.delete(constraints.key);
    saidLast.set(constraints.key, { variant, holders });
    this.table.change(name, held, { saidLast, refused: this.#forget(held, saidLast) });
  };

  /**
   * Clients can send any parameters. What is kept back from those who have left stays: a cohort has another content than
   * upstream said last. Of the rest the oldest go, and before them those with whom nothing is lost: the cohorts have it, or
   * upstream said the same to others of them. Returns what of the refused stays.
   */
  #forget(held: HeldName, saidLast: Map<ConstraintsKey, HeldVariant>): VariantsOf | undefined {
    if (saidLast.size <= mostSaidLast) return held.refused;
    const columns = columnsOf(held).map(([, column]) => column.variants);
    const { keptBack = [], rest = [] } = Object.groupBy(saidLast.values(), (last) =>
      columns.some((column) => isAnother(column.get(keyOf(last)), last)) ? 'keptBack' : 'rest',
    );
    for (const last of keptBack.slice(0, -mostKeptBack)) saidLast.delete(keyOf(last));
    const over = rest.length - mostSaidLast;
    if (over <= 0) return held.refused;
    const isKnown = (last: HeldVariant): boolean =>
      columns.every((column) => column.get(keyOf(last)) !== undefined) || isToOthers(saidLast, last);
    const refused = new Map(held.refused);
    const going = [isKnown, () => true]
      .values()
      .flatMap((mayGo) => rest.values().filter((last) => saidLast.has(keyOf(last)) && mayGo(last)));
    for (const last of going.take(over)) {
      saidLast.delete(keyOf(last));
      // For who comes back it is the first answer again.
      refused.delete(keyOf(last));
      this.#dropFromCohorts(held, last);
    }
    return held.refused && refused;
  }

  #dropFromCohorts(held: HeldName, { variant }: HeldVariant): void {
    const { table } = this;
    const live = table.resources.get(variant.name);
    if (held.closed || table.interests.anySees(variant) || this.#isFrozen(live ?? held.released)) return;
    for (const [cohort, column] of columnsOf(held)) {
      const entry = column.variants.get(variant.constraints.key);
      if (entry !== undefined) table.remove(column, entry, cohort);
    }
  }

  #changingHeld(name: ResourceName, held: HeldName, live: CachedResource | undefined): void {
    this.table.pendingChanges(name);
    this.#before.set(name, new Map([...this.table.saidLast(name), ...variantsOf(live)]));
    if (held.masked !== undefined) return;
    const isFrozen = [live, held.released].some((one) => one !== undefined && this.#isFrozen(one));
    if (!isFrozen && !this.#queues(name)) {
      if (held.canary !== undefined || !this.#queues(name, true)) return;
      this.#queuedIfRemoved.add(name);
    }
    const canary = held.canary ?? this.table.judged(name);
    this.table.change(name, held, { masked: isFrozen ? 'frozen' : undefined, canary });
  }

  /** A name whose change does not wait, as the end of a TTL. */
  passing(name: ResourceName, altered: boolean): void {
    this.table.pendingChanges(name);
    this.#names.add(name);
    if (altered) this.#altered.add(name);
  }

  /**
   * After the transaction: what must not wait goes into the columns of the cohorts, and names that are equal to what
   * upstream has are held no more. `resolved`: interests that it has answered.
   */
  settle(resolved: readonly Interest[]): void {
    const saidFirst = this.table.interests.saidFirst(new Set(resolved));
    const isFirst = (entry: CacheEntry): boolean => saidFirst(entry, NO_CONTENT);
    for (const name of this.#names) this.#settle(name, isFirst);
    const { held, releasedVersions } = this.table;
    if (held.size === 0 || this.#said?.before === undefined) return;
    const { holder, before } = this.#said;
    if (!releasedVersions.has(holder)) releasedVersions.set(holder, before);
  }

  /** For interests that upstream has answered now: what waits may be all that there is for their parameters. */
  admit(resolved: readonly Interest[]): void {
    const names = this.table.held;
    for (const selector of new Set(resolved.map((one) => one.selector))) {
      const seen = selector === WILDCARD ? names : [[selector, names.get(selector)] as const];
      for (const [name, held] of seen) {
        const live = this.table.resources.get(name);
        if (held === undefined || held.closed || live === undefined) continue;
        if (this.#letIn(held, live)) this.table.pendingChanges(name);
      }
    }
  }

  /** What each cohort sees of a commit. */
  split(commit: Commit): Commit {
    const names = this.table.held;
    if (names.size + this.#told.released.size === 0) return commit;
    if (commit.version !== undefined) this.table.heldVersion = commit.version;
    const isHidden = (name: ResourceName): boolean => names.has(name) && !this.#altered.has(name);
    const released = without(commit.changed, isHidden);
    const canary = without(commit.changed, (name) => isHidden(name) && names.get(name)?.canary !== undefined);
    // While something waits it has not got the whole response: the version of the last one stays.
    const version = names.size === 0 ? commit.version : undefined;
    return {
      ...commit,
      cohorts: {
        released: { ...commit, changed: this.#withAll(released, 'released'), version },
        canary: { ...commit, changed: this.#withAll(canary, 'canary') },
      },
    };
  }

  /** What has changed in what is pending; undefined: nothing. */
  pendingChange(receivedAt: number): PendingChange | undefined {
    const { type, held: names } = this.table;
    const joined: ResourceName[] = [];
    const left: ResourceName[] = [];
    for (const name of this.#names) {
      const before = this.#before.get(name);
      const held = names.get(name);
      if (held === undefined || held.masked !== undefined) {
        if (before !== undefined) left.push(name);
      } else if (held.canary !== undefined) {
        // What is judged stays as it is.
      } else if (before === undefined || this.#saysElse(name, before)) {
        this.table.change(name, held, { since: this.#now });
        joined.push(name);
      }
    }
    return joined.length + left.length > 0 ? { receivedAt, type, joined, left } : undefined;
  }

  /**
   * What was discarded stays so until upstream says something else. Who has come since may have come back: what upstream
   * said when they left is nothing else, nor what it says now if that was refused for others. Nor is a variant that it says
   * to nobody who had an answer before: it may have been there all the time.
   */
  #settleDiscarded(
    name: ResourceName,
    held: HeldName,
    live: CachedResource | undefined,
    isFirst: (entry: CacheEntry) => boolean,
  ): void {
    const { refused = nothing, saidLast = nothing } = held;
    const isKnown = (entry: CacheEntry): boolean => {
      const { constraints, variant } = entry;
      const last = saidLast.get(constraints.key)?.variant;
      if (last !== undefined && sameVariantContent(last, variant)) return true;
      if (isFirst(entry)) return true;
      return refused.values().some((one) => sameVariantContent(one.variant, variant));
    };
    if (!this.#saysElse(name, refused, isKnown))
      this.table.change(name, held, { refused: new Map([...refused, ...variantsOf(live, isRestored)]) });
    else if (this.#isFrozen(live ?? held.released)) this.table.change(name, held, { masked: 'frozen' });
    else if (this.#queues(name)) this.table.change(name, held, { masked: 'queued' });
    else {
      this.table.unmask(name, held);
      this.#tellAll(name, ['canary']);
    }
  }

  /**
   * Whether upstream says something else, but for what has come since and does not wait: a client with other parameters
   * changes nothing for those who have judged the others.
   */
  #saysElse(
    name: ResourceName,
    before: VariantsOf,
    isKnown: (entry: CacheEntry) => boolean = () => false,
  ): boolean {
    const released = this.table.held.get(name)?.released.variants;
    return this.table.saysElse(name, before, (entry) => {
      const everybodys = released?.get(entry.constraints.key)?.variant;
      return isKnown(entry) || (everybodys !== undefined && sameVariantContent(everybodys, entry.variant));
    });
  }

  #settle(name: ResourceName, isFirst: (entry: CacheEntry) => boolean): void {
    const live = this.table.resources.get(name);
    if (live !== undefined && this.#keptAway.has(name) && !this.#staysAway(name, live)) return;
    const held = this.table.held.get(name);
    if (held === undefined) return;
    if (this.#endsQueue(name, held)) return;
    this.#follow(name, held, live);
    if (held.masked === undefined && held.canary !== undefined)
      if (this.#isToBeSeen(name, held.canary, live)) this.table.change(name, held, { canary: undefined });
    if (held.masked === 'discarded') this.#settleDiscarded(name, held, live, isFirst);
    const masked = this.table.held.get(name)?.masked;
    if (!this.table.stopHoldingIfEqual(name) || live?.resourceErrors === undefined) return;
    this.#tellAll(name, masked === undefined ? ['released'] : bothCohorts);
  }

  /** Endpoints that were too much for everybody while a change was judged: this is not, and goes to both cohorts. */
  #endsQueue(name: ResourceName, { masked }: HeldName): boolean {
    if (masked !== 'queued' || this.table.type !== assignmentType || this.#isGated) return false;
    // With what everybody loses now.
    this.#tellAll(name, bothCohorts);
    this.table.stopHolding(name);
    return true;
  }

  /** What must not wait goes into the columns of the cohorts. */
  #follow(name: ResourceName, held: HeldName, live: CachedResource | undefined): void {
    const followed = columnsOf(held).filter(([, column]) => followTtls(column, live));
    const grown = !held.closed && live !== undefined && this.#letIn(held, live);
    if (followed.length > 0 || grown) this.#altered.add(name);
  }

  /** What does not wait as those it is for have nothing yet. */
  #letIn(held: HeldName, live: CachedResource): boolean {
    // First: whom a wildcard may show what names have is let no other variant in.
    const joined = columnsOf(held).filter(([, column]) => joinWildcards(column, live, this.table.interests));
    return this.#letNewIn(held, live) || joined.length > 0;
  }

  /** Upstream has gone back to the change that is judged, or what it says is no removal. */
  #isToBeSeen(name: ResourceName, canary: CachedResource, live: CachedResource | undefined): boolean {
    const saidLast = this.table.saidLast(name);
    const isLeft = ({ constraints: { key }, variant }: CacheEntry): boolean => {
      const last = live?.variants.get(key) === undefined ? saidLast.get(key)?.variant : undefined;
      return last !== undefined && sameVariantContent(last, variant);
    };
    const shown = variantsOf(canary, isLeft);
    const isSame = this.table.isSeenAlike(shown, variantsOf(live));
    if (isSame && (live === undefined || canary.hasBindingsOf(live))) return true;
    return this.#queuedIfRemoved.has(name) && !isLacking(live?.variants.all() ?? [], [...shown.values()]);
  }

  /** A change before it is still judged, or it is a removal of what is needed. */
  #queues(name: ResourceName, isRemoved = false): boolean {
    return this.#isQueued({ type: this.table.type, name }, isRemoved);
  }

  /** Whether changes of a name wait, by what it was. */
  #waits(cached: CachedResource): boolean {
    return this.#isGated || this.#isFrozen(cached);
  }

  #isFrozen(cached: CachedResource): boolean {
    return isFrozen(this.#holds, this.table.type, cached);
  }

  /** Only now it is known from which upstream it is. False: nothing is gated or frozen any more. */
  #staysAway(name: ResourceName, live: CachedResource): boolean {
    const held = this.table.held.get(name);
    if (held === undefined) return false;
    if (!this.#waits(live)) {
      this.table.stopHolding(name);
      return false;
    }
    if (this.#isFrozen(live))
      this.table.change(name, held, { masked: 'rolledBack', canary: new CachedResource() });
    return true;
  }

  #withAll(changed: Commit['changed'], cohort: Cohort): Commit['changed'] {
    if (this.#told[cohort].size === 0) return changed;
    const merged = new Map(changed);
    for (const [name, constraints] of this.#told[cohort])
      merged.set(name, [...(merged.get(name) ?? []), ...constraints]);
    return merged;
  }

  #tell(name: ResourceName, constraints: readonly Constraints[], cohorts: readonly Cohort[]): void {
    for (const cohort of cohorts) {
      const told = getOrMake(this.#told[cohort], name, () => []);
      for (const one of constraints) told.push(one);
    }
  }

  /** All of a name, as it is in each column. */
  #tellAll(name: ResourceName, cohorts: readonly Cohort[]): void {
    for (const [shown, constraints] of this.table.changesOf([name])) this.#tell(shown, constraints, cohorts);
  }

  /**
   * A variant for parameter sets that have nothing of the name yet does not wait. Where canaries judge its removal it is
   * no new one, for who asks only then neither: what the others have of it is in `released`.
   */
  #letNewIn(held: HeldName, live: CachedResource): boolean {
    const { table } = this;
    // Looked at in each column before any changes.
    const columns = columnsOf(held).map(([cohort, column]) => {
      const hasSome = hasSomeOf(column);
      const added = live.variants.all().filter((entry) => this.#isNew(entry, column, held, hasSome));
      return { cohort, column, added };
    });
    for (const { cohort, column, added } of columns) {
      if (added.length > 0 && column.empty) column.order = live.order;
      for (const { variant, holders, confirmedIn } of added) {
        table.all.payloads.retain(variant.payload);
        table.add(column, variant, holders, confirmedIn, cohort);
        for (const shown of [variant.name, ...variant.aliases.map(resourceName)])
          this.#tell(shown, [variant.constraints], [cohort]);
      }
    }
    return columns.some(({ added }) => added.length > 0);
  }

  #isNew(
    entry: CacheEntry,
    column: CachedResource,
    held: HeldName,
    hasSome: (interest: Interest) => boolean,
  ): boolean {
    if (column.variants.get(entry.constraints.key) !== undefined) return false;
    const { name, constraints } = entry.variant;
    const seeing = this.table.interests.seeing(name, constraints);
    const all = Array.from(seeing, ({ interest }) => interest);
    const having = all.filter(hasSome).map(({ parameters }) => parameters);
    if (all.length > 0 && having.length === all.length) return false;
    if (isAnother(held.released.variants.get(entry.constraints.key), entry)) return false;
    // What waits for one cohort must not be a difference between the cohorts that nobody judges.
    if (columnsOf(held).some(([cohort]) => this.#isTakenOver(cohort, entry))) return false;
    return keepsOwn(column, having, entry);
  }

  /** Whether who asks by one of its aliases has something, of another resource maybe. */
  #isTakenOver(cohort: Cohort, { variant, constraints }: CacheEntry): boolean {
    const { table } = this;
    return variant.aliases.map(resourceName).some((alias) => {
      const targets = [...table.aliased(alias, cohort)].map((name) => table.resource(name, cohort));
      const states = [...(this.table.interests.named(alias)?.matching(constraints) ?? [])];
      return states.some(({ interest }) => targets.some((one) => matchesAny(one, interest.parameters)));
    });
  }
}

/** What upstream has sent to names alone is nothing that a wildcard shows. Each is looked at once: all variants may match. */
function hasSomeOf(column: CachedResource): (interest: Interest) => boolean {
  const shown = new Map<Parameters, boolean>();
  return ({ selector, parameters }) =>
    selector === WILDCARD
      ? getOrMake(shown, parameters, () => column.variants.match(parameters).some(isHeldByWildcard))
      : matchesAny(column, parameters);
}

/** What the cohorts have apart from what upstream says. */
function columnsOf({ released, canary }: HeldName): readonly (readonly [Cohort, CachedResource])[] {
  const own = [['released', released] as const];
  return canary === undefined ? own : [['canary', canary] as const, ...own];
}

/** Those who have something of a name keep that, although a new variant matches too. False: it would replace it. */
function keepsOwn(cached: CachedResource, having: readonly Parameters[], { holders }: CacheEntry): boolean {
  if (having.length === 0) return true;
  if (holders.some(({ exactParameters }) => exactParameters !== undefined)) return false;
  const own = having.map((parameters) => [parameters, cached.variants.match(parameters, 2)] as const);
  if (own.some(([, matches]) => matches.length > 1)) return false;
  for (const [parameters, [entry]] of own) if (entry !== undefined) cached.bind(parameters, entry);
  return true;
}

const isAnother = (before: CacheEntry | undefined, { variant }: Pick<CacheEntry, 'variant'>): boolean =>
  before !== undefined && !sameVariantContent(before.variant, variant);

const keyOf = ({ variant }: HeldVariant): ConstraintsKey => variant.constraints.key;

/** Whether another of these variants has the same content. */
const isToOthers = (said: VariantsOf, last: HeldVariant): boolean =>
  said
    .entries()
    .some(([key, { variant }]) => key !== keyOf(last) && sameVariantContent(variant, last.variant));

const matchesAny = (cached: CachedResource | undefined, parameters: Parameters): boolean =>
  cached !== undefined && cached.variants.match(parameters, 1).length > 0;

/** Wildcards that have nothing of a name yet get its released content at once. The others keep what they show. */
export function joinWildcards(
  column: CachedResource,
  live: CachedResource | undefined,
  interests: Interests,
): boolean {
  /** All at once: what comes first is nothing that who has nothing yet would keep. */
  const joins: (readonly [entry: CacheEntry, added: readonly Holder[]])[] = [];
  // Each asked for once: of thousands of variants all may match.
  const shows = new Map<Parameters, boolean>();
  const replacements = new Map<Parameters, readonly CacheEntry[]>();
  const hasShown = (parameters: Parameters): boolean =>
    getOrMake(shows, parameters, () => column.variants.match(parameters).some(isHeldByWildcard));
  const replacing = (parameters: Parameters): readonly CacheEntry[] =>
    getOrMake(replacements, parameters, () => shownInPlace(column, live, parameters));
  for (const entry of column.variants.all()) {
    if (isHeldByWildcard(entry)) continue;
    const wildcards = [...(interests.named(WILDCARD)?.matching(entry.constraints) ?? [])];
    const all = wildcards.map(({ interest }) => interest.parameters);
    const having = all.filter(hasShown);
    if (all.length > 0 && having.length === all.length) continue;
    // Who shows it upstream; where it is not there any more, who shows these parameter sets another one in its place.
    const own = live?.variants.get(entry.constraints.key);
    const sources =
      own === undefined ? [...new Set(all).difference(new Set(having))].flatMap(replacing) : [own];
    const holders = new Map(sources.flatMap(({ holders }) => holders).map((holder) => [holder.key, holder]));
    const added = [...holders.values()].filter(({ role }) => role === 'wildcard');
    // Who is shown another than they have chosen by name could be shown this one in its place.
    if (added.length === 0 || !having.every((parameters) => bindShown(column, parameters))) continue;
    joins.push([entry, added]);
  }
  for (const [entry, added] of joins) entry.holders = [...entry.holders, ...added];
  return joins.length > 0;
}

/** What a wildcard shows upstream, unless some of it is in the column. */
function shownInPlace(
  column: CachedResource,
  live: CachedResource | undefined,
  parameters: Parameters,
): readonly CacheEntry[] {
  const shown = live?.variants.match(parameters).filter(isHeldByWildcard) ?? [];
  return shown.some((entry) => column.variants.get(entry.constraints.key) !== undefined) ? [] : shown;
}

/** What a wildcard shows becomes its choice. False: another was chosen before, which stays that of names. */
function bindShown(column: CachedResource, parameters: Parameters): boolean {
  const bound = column.bindings?.get(parameters);
  const chosen = bound === undefined ? undefined : column.variants.get(bound);
  if (chosen !== undefined) return isHeldByWildcard(chosen);
  const shown = column.pick(parameters, () => {}, FROM_WILDCARD);
  if (shown !== undefined) column.bind(parameters, shown);
  return true;
}

function without(
  changed: Commit['changed'],
  isHidden: (name: ResourceName) => boolean,
): ReadonlyMap<ResourceName, readonly Constraints[]> {
  return new Map([...changed].filter(([name]) => !isHidden(name)));
}

/** A name is of one upstream. */
export function isFrozen(holds: Holds, type: TypeUrl, cached: CachedResource): boolean {
  if (holds.freezes.length === 0 || cached.empty) return false;
  const [entry] = cached.variants.all();
  return holds.isFrozen(type, entry?.variant.upstream);
}

/**
 * A heartbeat, or an end of the TTL, is for the columns of the cohorts too. A TTL of other content than a column has says
 * nothing about a column without one.
 */
function followTtls(column: CachedResource, live: CachedResource | undefined): boolean {
  let changed = false;
  for (const entry of column.variants.all()) {
    const now = live?.variants.get(entry.constraints.key)?.variant;
    if (now === undefined || now.ttl === entry.variant.ttl) continue;
    if (entry.variant.ttl === undefined && !sameVariantContent(entry.variant, now)) continue;
    entry.variant = { ...entry.variant, ttl: now.ttl };
    changed = true;
  }
  return changed;
}
