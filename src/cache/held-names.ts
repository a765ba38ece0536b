import { type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import type { Constraints } from '../model/constraints.ts';
import { type Decision, type Freeze, Holds, isEverything, type Scope } from '../model/holds.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import type { Result } from '../model/result.ts';
import type {
  Contents,
  Gate,
  HeldVariant,
  PendingChange,
  PendingName,
  RemovalCount,
} from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import { type Interest, type Restamp, WILDCARD } from '../model/transaction.ts';
import {
  CachedResource,
  type CacheEntry,
  contentIn,
  isHeldByWildcard,
  sameVariantContent,
  sameVariants,
  type VariantsOf,
  variantsOf,
} from './cached-resource.ts';
import type { Interests } from './interests.ts';
import type { HeldName, TypeTable, TypeTables } from './type-table.ts';
import type { CommitChanges } from './update.ts';

const everything: Scope = {};

/**
 * The names whose released state is not what upstream says, and what each side sees of them (docs/adr/0100). The store
 * has what upstream says. Where nothing is held, both sides read the store, and nothing is kept twice.
 */
export class HeldNames implements Gate {
  readonly #tables: TypeTables;
  readonly #listeners = new Set<(change: PendingChange) => void>();
  #gated: ReadonlySet<TypeUrl> = new Set();
  readonly holds = new Holds();
  /** What listeners have not heard of yet. */
  readonly #changes: PendingChange[] = [];

  constructor(tables: TypeTables) {
    this.#tables = tables;
  }

  get #clock(): Clock {
    return this.#tables.options.clock;
  }

  get pending(): Iterable<PendingName> {
    return this.#pending();
  }

  get size(): number {
    let size = 0;
    for (const { held } of this.#tables.values())
      for (const { masked } of held.values()) if (masked === undefined) size++;
    return size;
  }

  /** Undefined: nothing of the type waits, and nothing will. */
  open(table: TypeTable): HeldTransaction | undefined {
    const gated = this.#gated.has(table.type);
    if (!gated && this.holds.freezes.length === 0 && table.held.size === 0) return undefined;
    return new HeldTransaction(table, gated, this.holds, this.#clock.now());
  }

  /** After the transaction: how each side sees the commit. `released`: the holder's version before. */
  close(opened: HeldTransaction, commit: Commit, holder?: string, released?: string): Commit {
    opened.settle(holder, released);
    opened.admit(commit.resolved);
    const change = opened.pendingChange(commit.receivedAt);
    if (change !== undefined) this.#changes.push(change);
    const split = opened.split(commit);
    this.#tables.forgetIfEmpty(opened.table);
    return split;
  }

  /** After the sides have new constraints too. No content changes. */
  restamped(table: TypeTable, { moves }: Restamp): void {
    for (const name of new Set(moves.map((move) => move.name)))
      if (table.held.has(name)) table.stopHoldingIfEqual(name);
  }

  /** The TTL of a variant may have passed for the sides. True: it has. */
  expire(table: TypeTable, { name, constraints }: Variant, changes: CommitChanges): boolean {
    let expired = false;
    for (const side of ['released', 'canary'] as const) {
      const cached = table.own(name, side);
      const entry = cached?.variants.get(constraints.key);
      const { ttl, aliases = [] } = entry?.variant ?? {};
      if (cached === undefined || entry === undefined || ttl === undefined) continue;
      if (ttl.deadline > this.#clock.now()) continue;
      changes.touch(name, constraints, aliases);
      table.remove(cached, entry, side);
      expired = true;
    }
    const held = table.held.get(name);
    if (expired && held !== undefined) table.hold(name, { ...held, closed: true });
    return expired;
  }

  /** Clients can send any parameters: the choices that were made for them end with them. */
  interestEnded(table: TypeTable, { selector, parameters }: Interest): void {
    const { held, interests } = table;
    if (held.size === 0) return;
    const names = selector === WILDCARD ? held.keys() : table.namesOf(selector, 'released');
    for (const name of names) {
      if (interests.sees(name, parameters)) continue;
      held.get(name)?.released.unbind(parameters);
      held.get(name)?.canary?.unbind(parameters);
    }
  }

  /** Tells listeners what has changed. */
  notify(): void {
    if (this.#changes.length === 0) return;
    for (const change of this.#changes.splice(0)) for (const listener of this.#listeners) listener(change);
  }

  onChanged(listener: (change: PendingChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  gatedTypes(types: ReadonlySet<TypeUrl>): void {
    const before = this.#gated;
    this.#gated = types;
    for (const type of before) if (!types.has(type)) this.release({ type });
  }

  release(filter = everything, names?: ReadonlySet<ResourceName>): void {
    this.#change(filter, ['released'], (table, name, { masked }) => {
      if (names?.has(name) === false) return false;
      if (masked !== undefined || this.#isFrozen(table, name)) return false;
      this.#letThrough(table, name);
      return true;
    });
  }

  discard(filter = everything, reason = '', names?: ReadonlySet<ResourceName>): void {
    const discardOne = (table: TypeTable, name: ResourceName, held: HeldName): boolean => {
      if (names?.has(name) === false) return false;
      // What was pending when it was frozen is taken back, and what upstream says now stays frozen.
      if (held.masked === 'frozen') table.change(name, held, { canary: held.released.copy() });
      else if (held.masked === undefined) table.refuse(name, held);
      else return false;
      return true;
    };
    this.#change(filter, ['canary'], discardOne, { verb: 'discard', reason });
  }

  freeze(scope = everything, decision: Decision = { operator: 'unknown', reason: '' }): Result<undefined> {
    return this.holds.freeze(scope, decision, this.#clock.now());
  }

  unfreeze(scope = everything): Result<readonly Freeze[]> {
    const ended = this.holds.unfreeze(scope);
    // What was rolled back without a freeze ends with everything.
    const open = ended.ok ? ended.value : isEverything(scope) ? [scope] : [];
    for (const one of open) this.#open(one);
    return ended;
  }

  #open(scope: Scope): void {
    this.#change(scope, ['released', 'canary'], (table, name, held) => {
      if (held.masked === undefined || held.masked === 'discarded') return false;
      if (this.#isFrozen(table, name)) return false;
      if (this.#gated.has(table.type)) table.unmask(name, held);
      else this.#letThrough(table, name);
      return true;
    });
    // What does not wait behind the gate needs no gate.
    for (const one of [...this.holds.removed()]) {
      const waits = this.#tables.get(one.type)?.held.has(one.name) === true;
      if ((scope.type ?? one.type) === one.type && !waits) this.holds.setRemoved(one, false);
    }
  }

  replace(type: TypeUrl, contents: Contents, filter = everything, reason = ''): void {
    const table = this.#tables.of(type);
    const others = [...table.names(WILDCARD)].filter((name) => table.matches(name, filter));
    const names = new Set([...contents.keys(), ...others]);
    this.#tables.nextRevision();
    const before = table.changesOf(names);
    const shown = this.#snapshots(type, names);
    for (const name of names) this.#replace(table, name, contents.get(name) ?? []);
    const changed = mergeChanges(before, table.changesOf(names));
    const operation = { verb: 'rollback', reason } as const;
    const receivedAt = this.#commit(type, changed, shown, ['released', 'canary'], undefined, operation);
    this.#changes.push({ receivedAt, type, joined: [], left: [...names] });
    this.#tables.forgetIfEmpty(table);
    this.notify();
  }

  removals(filter = everything): RemovalCount {
    let removed = 0;
    let released = 0;
    for (const table of this.#types()) {
      for (const name of table.names(WILDCARD)) {
        if (!table.matches(name, filter)) continue;
        if ((table.resource(name, 'released')?.variants.size ?? 0) === 0) continue;
        released++;
        const entry = table.held.get(name);
        if (entry === undefined || entry.masked !== undefined) continue;
        if (table.pendingName(name, entry).removed && table.isHeldSeen(name)) removed++;
      }
    }
    return { removed, released };
  }

  contentOf(type: TypeUrl, name: ResourceName, side: Side): readonly HeldVariant[] {
    return contentIn(this.#tables.get(type)?.resource(name, side));
  }

  snapshot(type: TypeUrl, name: ResourceName): Snapshot {
    const table = this.#tables.get(type);
    const said = contentIn(table?.resources.get(name));
    const held = table?.held.get(name);
    if (held === undefined) return { said, released: said, canary: said };
    const canary = held.canary === undefined ? said : contentIn(held.canary);
    return { said, released: contentIn(held.released), canary };
  }

  /** For room in the cache: drops a name that nobody subscribes to. False: there is none. */
  dropUnwanted(): boolean {
    for (const table of this.#types()) {
      for (const name of table.held.keys()) {
        if (table.isHeldSeen(name)) continue;
        table.stopHolding(name);
        this.#tables.journal.resource(table.type, name);
        this.#tables.forgetIfEmpty(table);
        return true;
      }
    }
    return false;
  }

  #isFrozen(table: TypeTable, name: ResourceName): boolean {
    const all = [table.resources.get(name), table.held.get(name)?.released];
    return all.some((cached) => cached !== undefined && isFrozen(this.holds, table.type, cached));
  }

  *#pending(): Iterable<PendingName> {
    for (const table of this.#types())
      for (const [name, entry] of table.held) yield table.pendingName(name, entry);
  }

  /** Each pending name that the filter matches, as one commit of each type. */
  #change(
    filter: Scope,
    sides: readonly Side[],
    change: (table: TypeTable, name: ResourceName, held: HeldName) => boolean,
    operation?: Commit['operation'],
  ): void {
    for (const table of [...this.#types()]) {
      const { type, held } = table;
      const names = [...held.keys()].filter((name) => table.matches(name, filter));
      if (names.length === 0) continue;
      this.#tables.nextRevision();
      const version = sides.includes('released') ? table.heldVersion : undefined;
      const constraints = table.changesOf(names);
      const before = this.#snapshots(type, names);
      const left: ResourceName[] = [];
      const joined: ResourceName[] = [];
      for (const name of names) {
        const entry = held.get(name);
        if (entry === undefined || !change(table, name, entry)) continue;
        const after = held.get(name);
        const isJoined = entry.masked !== undefined && after !== undefined && after.masked === undefined;
        if (isJoined && !table.stopHoldingIfEqual(name)) joined.push(name);
        else left.push(name);
      }
      this.#tables.forgetIfEmpty(table);
      if (left.length + joined.length === 0) continue;
      const receivedAt = this.#commit(type, constraints, before, sides, version, operation);
      this.#changes.push({ receivedAt, type, joined, left });
    }
    this.notify();
  }

  #snapshots(type: TypeUrl, names: Iterable<ResourceName>): ReadonlyMap<ResourceName, Snapshot> {
    return new Map(Iterator.from(names).map((name) => [name, this.snapshot(type, name)]));
  }

  #replace(table: TypeTable, name: ResourceName, variants: readonly HeldVariant[]): void {
    const order = (table.held.get(name)?.released ?? table.resources.get(name))?.order;
    const released = resourceOf(variants, order);
    const since = this.#clock.now();
    table.hold(name, { since, masked: 'rolledBack', closed: true, released, canary: released.copy() });
    const isHeld = !table.stopHoldingIfEqual(name);
    this.holds.setRemoved({ type: table.type, name }, isHeld && variants.length === 0);
  }

  #letThrough(table: TypeTable, name: ResourceName): void {
    this.holds.setRemoved({ type: table.type, name }, false);
    table.stopHolding(name);
  }

  /** Returns when it arrived, as `Clock.monotonic()` says it. */
  #commit(
    type: TypeUrl,
    changed: Commit['changed'],
    before: ReadonlyMap<ResourceName, Snapshot>,
    sides: readonly Side[],
    version?: string,
    operation?: Commit['operation'],
  ): number {
    const { revision, journal } = this.#tables;
    for (const name of changed.keys()) journal.resource(type, name);
    const receivedAt = this.#clock.monotonic();
    const commit: Commit = { revision, type, version, receivedAt, changed, resolved: [], operation };
    const empty: Commit = { ...commit, changed: new Map() };
    const of = (side: Side): Commit => (sides.includes(side) ? commit : empty);
    const contents = new Map(
      [...before].map(([name, was]) => [name, { before: was, after: this.snapshot(type, name) }]),
    );
    this.#tables.options.publish?.({
      ...commit,
      contents,
      sides: { released: of('released'), canary: of('canary') },
    });
    return receivedAt;
  }

  /** Of which something is held. */
  *#types(): Iterable<TypeTable> {
    for (const table of this.#tables.values()) if (table.held.size > 0) yield table;
  }
}

/** These variants of an earlier time. Their TTLs were for that time. */
function resourceOf(variants: readonly HeldVariant[], order: number | undefined): CachedResource {
  const cached = new CachedResource();
  if (order !== undefined) cached.order = order;
  for (const { variant: earlier, holders } of variants) {
    const variant = earlier.ttl === undefined ? earlier : { ...earlier, ttl: undefined };
    cached.variants.add({ constraints: variant.constraints, variant, holders, confirmedIn: 0 });
  }
  return cached;
}

/** What looks different where either of both does. */
function mergeChanges(a: Commit['changed'], b: Commit['changed']): Commit['changed'] {
  const merged = new Map(a);
  for (const [name, constraints] of b)
    merged.set(name, [...new Set([...(merged.get(name) ?? []), ...constraints])]);
  return merged;
}

/** What one transaction does to the held names of its type. */
export class HeldTransaction {
  readonly table: TypeTable;
  readonly #isGated: boolean;
  readonly #holds: Holds;
  readonly #now: number;
  /** Every name that changes. */
  readonly #names = new Set<ResourceName>();
  /** Of names that were held before: what upstream had. */
  readonly #before = new Map<ResourceName, VariantsOf>();
  /** Names of which a side sees something else, though they are held. */
  readonly #altered = new Set<ResourceName>();
  /** Names that a rollback has removed, and upstream says anew. */
  readonly #keptAway = new Set<ResourceName>();
  /** Names that canaries see as upstream has them from now on: for them all of it may be new. */
  readonly #unmasked = new Set<ResourceName>();
  /** Names that do not wait any more, and whose errors waited with them: who has not heard of these. */
  readonly #errors: Readonly<Record<Side, Set<ResourceName>>> = { released: new Set(), canary: new Set() };

  constructor(table: TypeTable, isGated: boolean, holds: Holds, now: number) {
    this.table = table;
    this.#isGated = isGated;
    this.#holds = holds;
    this.#now = now;
  }

  /** Must be called before the variants of a name change for the first time. */
  readonly changing = (name: ResourceName): void => {
    if (this.#names.has(name)) return;
    this.#names.add(name);
    const live = this.table.resources.get(name);
    const held = this.table.held.get(name);
    if (held !== undefined) {
      this.#before.set(name, variantsOf(live));
      if (held.masked !== undefined || live === undefined || !this.#isFrozen(live)) return;
      this.table.change(name, held, { masked: 'frozen', canary: live.copy() });
      return;
    }
    // Nobody has anything of it: there is nothing to protect, unless a rollback has removed it.
    if (live === undefined || live.variants.size === 0) {
      if (this.#holds.isRemoved(this.table.type, name)) this.#keepAway(name);
      return;
    }
    if (!this.#waits(live)) return;
    const masked = this.#isFrozen(live) ? ('frozen' as const) : undefined;
    this.table.holdAsItIs(name, live, this.#now, masked);
  };

  /** A name whose change does not wait, as the end of a TTL. */
  passing(name: ResourceName, altered: boolean): void {
    this.#names.add(name);
    if (altered) this.#altered.add(name);
  }

  /**
   * After the transaction: what must not wait goes into the columns of the sides, and names that are equal to what
   * upstream has are held no more. `released`: the version of the holder's last response before this one.
   */
  settle(holder: string | undefined, released: string | undefined): void {
    for (const name of this.#names) this.#settle(name);
    const { held, releasedVersions } = this.table;
    if (held.size === 0 || holder === undefined || released === undefined) return;
    if (!releasedVersions.has(holder)) releasedVersions.set(holder, released);
  }

  /** For interests that upstream has answered now: what waits may be all that there is for their parameters. */
  admit(resolved: readonly Interest[]): void {
    const names = this.table.held;
    for (const { selector } of resolved) {
      const seen = selector === WILDCARD ? names : [[selector, names.get(selector)] as const];
      for (const [name, held] of seen) {
        const live = this.table.resources.get(name);
        if (held === undefined || held.closed || live === undefined) continue;
        for (const [side, column] of columnsOf(held)) {
          this.#letNewIn(side, column, live);
          joinWildcards(column, live, this.#interests);
        }
      }
    }
  }

  /** What each side sees of a commit. */
  split(commit: Commit): Commit {
    const names = this.table.held;
    if (names.size === 0 && this.#errors.released.size === 0) return commit;
    if (commit.version !== undefined) this.table.heldVersion = commit.version;
    const isHidden = (name: ResourceName): boolean => names.has(name) && !this.#altered.has(name);
    const released = without(commit.changed, isHidden);
    const canary = without(commit.changed, (name) => isHidden(name) && names.get(name)?.masked !== undefined);
    // While something waits it has not got the whole response: the version of the last one stays.
    const version = names.size === 0 ? commit.version : undefined;
    return {
      ...commit,
      sides: {
        released: { ...commit, changed: this.#withAll(released, this.#errors.released), version },
        canary: {
          ...commit,
          changed: this.#withAll(canary, this.#unmasked.union(this.#errors.canary)),
        },
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
      } else if (before === undefined || !sameVariants(before, this.#waiting(name, before))) {
        this.table.change(name, held, { since: this.#now });
        joined.push(name);
      }
    }
    return joined.length + left.length > 0 ? { receivedAt, type, joined, left } : undefined;
  }

  /**
   * What upstream has of a name, but for what has come since and does not wait: a client with other parameters changes
   * nothing for those who have judged the others.
   */
  #waiting(name: ResourceName, before: VariantsOf): VariantsOf {
    const released = this.table.held.get(name)?.released.variants;
    return variantsOf(this.table.resources.get(name), ({ constraints: { key }, variant }) => {
      const everybodys = before.has(key) ? undefined : released?.get(key);
      return everybodys !== undefined && sameVariantContent(everybodys.variant, variant);
    });
  }

  #settle(name: ResourceName): void {
    const live = this.table.resources.get(name);
    if (live !== undefined && this.#keptAway.has(name) && !this.#staysAway(name, live)) return;
    const held = this.table.held.get(name);
    if (held === undefined) return;
    this.#follow(name, held, live);
    const refused = held.refused ?? new Map();
    if (held.masked === 'discarded' && !sameVariants(refused, this.#waiting(name, refused))) {
      if (this.#isFrozen(live ?? held.released)) this.table.change(name, held, { masked: 'frozen' });
      else {
        this.table.unmask(name, held);
        this.#unmasked.add(name);
      }
    }
    this.#stopHoldingIfEqual(name);
  }

  /** What must not wait goes into the columns of the sides. */
  #follow(name: ResourceName, held: HeldName, live: CachedResource | undefined): void {
    for (const [side, column] of columnsOf(held)) {
      const followed = followTtls(column, live);
      const grown = !held.closed && live !== undefined && this.#letNewIn(side, column, live);
      const joined = !held.closed && joinWildcards(column, live, this.#interests);
      if (followed || grown || joined) this.#altered.add(name);
    }
  }

  /** Whether changes of a name wait, by what it was. */
  #waits(cached: CachedResource): boolean {
    return this.#isGated || this.#isFrozen(cached);
  }

  #isFrozen(cached: CachedResource): boolean {
    return isFrozen(this.#holds, this.table.type, cached);
  }

  #keepAway(name: ResourceName): void {
    this.#keptAway.add(name);
    const released = new CachedResource();
    this.table.hold(name, { since: this.#now, masked: undefined, closed: true, released });
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

  #stopHoldingIfEqual(name: ResourceName): void {
    const masked = this.table.held.get(name)?.masked;
    const hasErrors = this.table.resources.get(name)?.resourceErrors !== undefined;
    if (!this.table.stopHoldingIfEqual(name) || !hasErrors) return;
    this.#errors.released.add(name);
    if (masked !== undefined) this.#errors.canary.add(name);
  }

  /** All that may look different of these names, whatever this transaction says of them. */
  #withAll(changed: Commit['changed'], names: ReadonlySet<ResourceName>): Commit['changed'] {
    if (names.size === 0) return changed;
    const merged = new Map(changed);
    for (const [name, constraints] of this.table.changesOf(names))
      merged.set(name, [...(merged.get(name) ?? []), ...constraints]);
    return merged;
  }

  get #interests(): Interests {
    return this.table.interests;
  }

  /** A variant for parameter sets that have nothing of the name yet does not wait. */
  #letNewIn(side: Side, column: CachedResource, live: CachedResource): boolean {
    const isNew = (entry: CacheEntry): boolean => {
      if (column.variants.get(entry.constraints.key) !== undefined) return false;
      const all = interestedIn(this.#interests, entry);
      const having = all.filter((parameters) => matchesAny(column, parameters));
      if (all.length > 0 && having.length === all.length) return false;
      return !this.#isTakenOver(side, entry) && keepsOwn(column, having, entry);
    };
    const { table } = this;
    const added = live.variants.all().filter(isNew);
    if (added.length > 0 && column.empty) column.order = live.order;
    for (const { variant, holders, confirmedIn } of added) {
      table.payloads.retain(variant.payload);
      table.add(column, variant, holders, confirmedIn, side);
    }
    return added.length > 0;
  }

  /** Whether who asks by one of its aliases has something, of another resource maybe. */
  #isTakenOver(side: Side, { variant, constraints }: CacheEntry): boolean {
    const { table } = this;
    return variant.aliases.map(resourceName).some((alias) => {
      const targets = [...table.aliased(alias, side)].map((name) => table.resource(name, side));
      const states = [...(this.#interests.named(alias)?.matching(constraints) ?? [])];
      return states.some(({ interest }) => targets.some((one) => matchesAny(one, interest.parameters)));
    });
  }
}

/** What the sides have apart from what upstream says. */
function columnsOf({ released, canary }: HeldName): readonly (readonly [Side, CachedResource])[] {
  const own = [['released', released] as const];
  return canary === undefined ? own : [...own, ['canary', canary] as const];
}

/** Those who have something of a name keep that, although a new variant matches too. False: it would replace it. */
function keepsOwn(cached: CachedResource, having: readonly Parameters[], { holders }: CacheEntry): boolean {
  if (having.length === 0) return true;
  if (holders.some(({ exactParameters }) => exactParameters !== undefined)) return false;
  const own = having.map((parameters) => [parameters, cached.variants.match(parameters)] as const);
  if (own.some(([, matches]) => matches.length > 1)) return false;
  for (const [parameters, [entry]] of own) if (entry !== undefined) cached.bind(parameters, entry);
  return true;
}

const matchesAny = (cached: CachedResource | undefined, parameters: Parameters): boolean =>
  cached !== undefined && cached.variants.match(parameters).length > 0;

/** The parameters of each interest that sees a variant by its name. */
function interestedIn(interests: Interests, { variant }: CacheEntry): Parameters[] {
  const { name, constraints } = variant;
  return [...interests.seeing(name, constraints)].map(({ interest }) => interest.parameters);
}

/** Wildcards that have nothing of a name yet get its released content at once. The others keep what they show. */
function joinWildcards(
  column: CachedResource,
  live: CachedResource | undefined,
  interests: Interests,
): boolean {
  let joined = false;
  for (const entry of column.variants.all()) {
    const now = live?.variants.get(entry.constraints.key);
    if (now === undefined || isHeldByWildcard(entry) || !isHeldByWildcard(now)) continue;
    const wildcards = [...(interests.named(WILDCARD)?.matching(entry.constraints) ?? [])];
    const all = wildcards.map(({ interest }) => interest.parameters);
    const having = all.filter((parameters) => column.variants.match(parameters).some(isHeldByWildcard));
    if (all.length > 0 && having.length === all.length) continue;
    for (const parameters of having) bindShown(column, parameters);
    entry.holders = [...entry.holders, ...now.holders.filter(({ role }) => role === 'wildcard')];
    joined = true;
  }
  return joined;
}

/** What a wildcard shows becomes its choice. A choice that was made before stays: it is that of names too. */
function bindShown(column: CachedResource, parameters: Parameters): void {
  if (column.bindings?.has(parameters) === true) return;
  const shown = column.pick(parameters, () => {}, { access: undefined, fromWildcard: true });
  if (shown !== undefined) column.bind(parameters, shown);
}

function without(
  changed: Commit['changed'],
  isHidden: (name: ResourceName) => boolean,
): ReadonlyMap<ResourceName, readonly Constraints[]> {
  return new Map([...changed].filter(([name]) => !isHidden(name)));
}

/** A name is of one upstream. */
function isFrozen(holds: Holds, type: TypeUrl, cached: CachedResource): boolean {
  if (holds.freezes.length === 0 || cached.empty) return false;
  const [entry] = cached.variants.all();
  return holds.isFrozen(type, entry?.variant.upstream);
}

/**
 * A heartbeat, or an end of the TTL, is for the columns of the sides too. A TTL of other content than a column has says
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
