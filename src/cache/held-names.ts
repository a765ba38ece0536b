import type { Cohort } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import { assignmentType } from '../model/cluster.ts';
import {
  type Decision,
  type Freeze,
  Holds,
  includes,
  isEverything,
  type Scope,
  type TypedName,
} from '../model/holds.ts';
import { getOrMake } from '../model/maps.ts';
import type { Variant, VariantKey } from '../model/resource.ts';
import type { Result } from '../model/result.ts';
import {
  type Contents,
  type Gate,
  type HeldVariant,
  type IsQueued,
  type IsStopped,
  type PendingChange,
  type PendingName,
  type ReleasedSize,
  type RemovalCount,
} from '../model/rollout.ts';
import { type Interest, type Move, type Restamp, type Transaction, WILDCARD } from '../model/transaction.ts';
import { typeInfo } from '../model/types.ts';
import { CachedResource, contentIn, sameVariants, type VariantsOf, variantsOf } from './cached-resource.ts';
import { HeldTransaction, isFrozen, joinWildcards } from './held-transaction.ts';
import type { Interests } from './interests.ts';
import type { Column, HeldName, TypeTable, TypeTables } from './type-table.ts';
import { CommitChanges, type Recorded } from './update.ts';

const everything: Scope = {};

/**
 * The names whose released state is not what upstream says, and what each cohort sees of them (docs/adr/0100). The store
 * has what upstream says. Where nothing is held, both cohorts read the store, and nothing is kept twice.
 */
export class HeldNames implements Gate {
  readonly #tables: TypeTables;
  readonly #listeners = new Set<(change: PendingChange) => void>();
  #gated: ReadonlySet<TypeUrl> = new Set();
  #isStopped: IsStopped | undefined;
  #isQueued: IsQueued = () => false;
  readonly holds = new Holds();
  /** What listeners have not heard of yet. */
  readonly #changes: PendingChange[] = [];

  constructor(tables: TypeTables) {
    this.#tables = tables;
  }

  get pending(): readonly PendingName[] {
    const all = this.#tables;
    all.pending ??= [...all.values().flatMap((table) => table.pending())];
    return all.pending;
  }

  get revision(): number {
    return this.#tables.revision;
  }

  get size(): number {
    return this.pending.filter(({ seen }) => seen).length;
  }

  /** Undefined: nothing of the type waits, and nothing will. `transaction`: what upstream says. */
  open(table: TypeTable, transaction?: Transaction): HeldTransaction | undefined {
    const gated =
      this.#gated.has(table.type) || (transaction !== undefined && this.#isStopped?.(transaction) === true);
    if (!gated && this.holds.freezes.length === 0 && table.held.size === 0) return undefined;
    return new HeldTransaction(table, gated, this.#isQueued, this.holds, transaction?.holder.key);
  }

  /** After the transaction: how each cohort sees the commit. */
  close(opened: HeldTransaction, commit: Commit): Commit {
    opened.settle(commit.resolved);
    opened.admit(commit.resolved);
    const change = opened.pendingChange(commit.receivedAt);
    if (change !== undefined) this.#changes.push(change);
    const split = opened.split(commit);
    this.#tables.forgetIfEmpty(opened.table);
    return split;
  }

  /** After the cohorts have new constraints too. No content changes. */
  restamped(table: TypeTable, { moves }: Restamp): void {
    for (const [name, ofName] of Map.groupBy(moves, (move) => move.name)) {
      const held = table.held.get(name);
      if (held !== undefined) {
        const { refused, saidLast } = held;
        table.change(name, held, { refused: moved(refused, ofName), saidLast: moved(saidLast, ofName) });
      }
      // Variants of a name and of a wildcard may have become one.
      for (const column of held === undefined || held.closed ? [] : [held.released, held.canary])
        if (column !== undefined) joinWildcards(column, table.resources.get(name), table.interests);
      table.pendingChanges(name);
      table.stopHoldingIfEqual(name);
    }
  }

  /** The TTL of a variant may have passed for the cohorts. True: it has. */
  expire(table: TypeTable, { name, constraints }: VariantKey, changes: CommitChanges, now: number): boolean {
    let expired = false;
    for (const cohort of ['released', 'canary'] as const) {
      const cached = table.own(name, cohort);
      const entry = cached?.variants.get(constraints.key);
      const { ttl, aliases = [] } = entry?.variant ?? {};
      if (cached === undefined || entry === undefined || ttl === undefined) continue;
      if (ttl.deadline > now) continue;
      changes.touch(name, constraints, aliases);
      table.remove(cached, entry, cohort);
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
    this.unqueue(({ type }) => before.has(type) && !types.has(type));
  }

  guarding(isStopped: IsStopped): void {
    this.#isStopped = isStopped;
  }

  queueing(isQueued: IsQueued): void {
    this.#isQueued = isQueued;
  }

  queue(isMeant: (name: TypedName) => boolean, goesBack: (name: TypedName) => boolean): void {
    this.#change(everything, ['canary'], (table, name, held) => {
      const { masked } = held;
      const one = { type: table.type, name };
      const isBack = goesBack(one);
      if (!isMeant(one) || (masked !== undefined && !(masked === 'queued' && isBack))) return false;
      const canary = table.judged(name, isBack ? held.released : undefined);
      table.change(name, held, { masked: 'queued', canary });
      return true;
    });
  }

  unqueue(isMeant: (name: TypedName) => boolean = () => true): void {
    this.#change(everything, ['released', 'canary'], (table, name, held) => {
      const { masked, canary } = held;
      const isBehind = masked === undefined && canary !== undefined;
      if ((masked !== 'queued' && !isBehind) || !isMeant({ type: table.type, name })) return false;
      if (this.#isFrozen(table, name)) table.change(name, held, { masked: 'frozen' });
      else this.#show(table, name, held);
      return true;
    });
  }

  release(filter = everything, keys?: ReadonlySet<string>): void {
    const release = (table: TypeTable, name: ResourceName, held: HeldName): boolean => {
      const { masked, canary } = held;
      if (masked !== undefined || this.#isFrozen(table, name)) return false;
      // What upstream has said since is another change.
      if (canary !== undefined) table.change(name, held, { masked: 'queued', released: canary.copy() });
      else this.#letThrough(table, name);
      return true;
    };
    this.#change(filter, ['released'], release, { keys });
  }

  discard(filter = everything, reason = '', keys?: ReadonlySet<string>): void {
    const discard = (table: TypeTable, name: ResourceName, held: HeldName): boolean => {
      // What was pending when it was frozen is taken back, and what upstream says now stays frozen.
      if (held.masked === 'frozen') table.change(name, held, { canary: held.released.copy() });
      else if (held.masked === undefined && held.canary !== undefined) {
        table.change(name, held, { masked: 'queued', canary: held.released.copy() });
        table.stopHoldingIfEqual(name);
      } else if (held.masked === undefined) table.refuse(name, held);
      else return false;
      return true;
    };
    this.#change(filter, ['canary'], discard, { keys, operation: { verb: 'discard', reason } });
  }

  freeze(scope = everything, decision: Decision = { operator: 'unknown', reason: '' }): Result<undefined> {
    return this.holds.freeze(scope, decision, this.#tables.options.clock.now());
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
      if (held.masked === undefined || held.masked === 'discarded' || held.masked === 'queued') return false;
      if (this.#isFrozen(table, name)) return false;
      const isQueued = this.#isJudged(table) && this.#isQueued({ type: table.type, name }, false);
      if (!isQueued || isSame(held.canary, table.resources.get(name))) this.#show(table, name, held);
      else if (isSame(held.canary, held.released)) table.change(name, held, { masked: 'queued' });
      else {
        // The change that canaries have is judged on, as before the freeze: nobody sees anything else.
        table.change(name, held, { masked: undefined });
        return false;
      }
      return true;
    });
    // What does not wait behind the gate needs no gate. Of which upstream it is nobody knows: another freeze may mean it.
    for (const one of [...this.holds.withheld()]) {
      const waits = this.#tables.get(one.type)?.held.has(one.name) === true;
      const mayBeFrozen = this.holds.freezes.some(({ type }) => includes({ type }, one));
      if (includes({ type: scope.type }, one) && !waits && !mayBeFrozen) this.holds.setWithheld(one, false);
    }
  }

  replace(type: TypeUrl, contents: Contents, filter = everything, reason = ''): void {
    const table = this.#tables.of(type);
    const others = [...table.names(WILDCARD)].filter((name) => table.matches(name, filter));
    const names = new Set([...contents.keys(), ...others]);
    this.#tables.nextRevision();
    const changes = this.#changesOf(table, names);
    for (const name of names) this.#replace(table, name, contents.get(name) ?? []);
    changes.touchAll(table.changesOf(names));
    const operation = { verb: 'rollback', reason } as const;
    const receivedAt = this.#commit(type, changes, ['released', 'canary'], undefined, operation);
    this.#changes.push({ receivedAt, type, joined: [], left: [...names] });
    this.#tables.forgetIfEmpty(table);
    this.notify();
  }

  removals(filter = everything): RemovalCount {
    const isReleased = (table: TypeTable | undefined, name: ResourceName): boolean =>
      (table?.resource(name, 'released')?.variants.size ?? 0) > 0;
    let released = 0;
    for (const table of this.#types()) {
      if (filter.type !== undefined && filter.type !== table.type) continue;
      for (const name of table.names(WILDCARD))
        if (table.matches(name, filter) && isReleased(table, name)) released++;
    }
    const removed = this.pending.filter((one) => {
      if (one.masked !== undefined || !one.removed || !includes(filter, one)) return false;
      const table = this.#tables.get(one.type);
      return isReleased(table, one.name) && table?.isHeldSeen(one.name) === true;
    });
    return { removed: removed.length, released };
  }

  releasedByHolder(type: TypeUrl): ReadonlyMap<string, ReleasedSize> {
    const sizes = new Map<string, { names: number; bytes: number; last: ResourceName | undefined }>();
    const table = this.#tables.get(type);
    for (const name of table?.names(WILDCARD) ?? []) {
      for (const { variant, holders } of table?.resource(name, 'released')?.variants.all() ?? []) {
        for (const { key } of holders) {
          const size = getOrMake(sizes, key, () => ({ names: 0, bytes: 0, last: undefined }));
          // It may have several variants of a name.
          if (size.last !== name) size.names++;
          size.last = name;
          size.bytes += variant.payload?.bytes.length ?? 0;
        }
      }
    }
    return sizes;
  }

  contentOf(type: TypeUrl, name: ResourceName, column: Column): readonly HeldVariant[] {
    return contentIn(this.#tables.get(type)?.resource(name, column));
  }

  judgedContent(type: TypeUrl, name: ResourceName, column: Column = 'canary'): readonly HeldVariant[] {
    const table = this.#tables.get(type);
    if (table === undefined) return [];
    const cached = table.resource(name, column);
    // Columns keep what an ended wildcard has shown.
    const isThere = ({ constraints }: Variant): boolean => table.interests.hasWildcard(constraints);
    return [...contentIn(cached), ...table.saidLastBeside(name, cached)].map(({ variant, holders }) => ({
      variant,
      holders: isThere(variant) ? holders : holders.filter(({ role }) => role !== 'wildcard'),
    }));
  }

  isSeen(variant: Variant): boolean {
    return this.#tables.get(variant.type)?.interests.anySees(variant) === true;
  }

  /** For a commit that is recorded. */
  recordedOf(table: TypeTable): Recorded {
    return { interests: table.interests, snapshot: (name) => this.#snapshot(table, name) };
  }

  #snapshot(table: TypeTable, name: ResourceName): Snapshot {
    const said = contentIn(table.resources.get(name));
    const held = table.held.get(name);
    if (held === undefined) return { said, released: said, canary: said };
    const canary = held.canary === undefined ? said : contentIn(held.canary);
    return { said, released: contentIn(held.released), canary };
  }

  /** For room in the cache: drops names that nobody subscribes to until it is enough. */
  dropUnwanted(isEnough: () => boolean): void {
    for (const table of this.#types()) {
      for (const name of table.held.keys()) {
        if (isEnough()) return;
        if (table.isHeldSeen(name)) continue;
        table.stopHolding(name);
        this.#tables.journal.resource(table.type, name);
      }
      this.#tables.forgetIfEmpty(table);
    }
  }

  #isFrozen(table: TypeTable, name: ResourceName): boolean {
    const all = [table.resources.get(name), table.held.get(name)?.released];
    return all.some((cached) => cached !== undefined && isFrozen(this.holds, table.type, cached));
  }

  /** Each pending name that the filter matches, as one commit of each type. `keys`: only these. */
  #change(
    filter: Scope,
    cohorts: readonly Cohort[],
    change: (table: TypeTable, name: ResourceName, held: HeldName) => boolean,
    { keys, operation }: Pick<Commit, 'operation'> & { readonly keys?: ReadonlySet<string> | undefined } = {},
  ): void {
    const isMeant = (one: PendingName): boolean =>
      keys === undefined ? includes(filter, one) : keys.has(one.key);
    const byType = [...Map.groupBy(this.pending.filter(isMeant), (one) => one.type)];
    for (const [type, meant] of byType.toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order)) {
      const table = this.#tables.of(type);
      const { held } = table;
      const names = meant.map(({ name }) => name);
      this.#tables.nextRevision();
      const version = cohorts.includes('released') ? table.heldVersion : undefined;
      const changes = this.#changesOf(table, names);
      const left: ResourceName[] = [];
      const joined: ResourceName[] = [];
      for (const name of names) {
        const entry = held.get(name);
        if (entry === undefined || !change(table, name, entry)) continue;
        const after = held.get(name);
        const isJoined = !isShown(entry) && after !== undefined && isShown(after);
        if (isJoined && !table.stopHoldingIfEqual(name)) joined.push(name);
        else left.push(name);
      }
      this.#tables.forgetIfEmpty(table);
      if (left.length + joined.length === 0) continue;
      // Under a name that is held no more everybody sees the errors that waited.
      const hasErrors = (name: ResourceName): boolean =>
        !held.has(name) && table.resources.get(name)?.resourceErrors !== undefined;
      const isForAll = !cohorts.includes('released') && left.some(hasErrors);
      const told: readonly Cohort[] = isForAll ? [...cohorts, 'released'] : cohorts;
      const receivedAt = this.#commit(type, changes, told, version, operation);
      this.#changes.push({ receivedAt, type, joined, left });
    }
    this.notify();
  }

  /** What may look different once these names are seen otherwise, and what is there before. */
  #changesOf(table: TypeTable, names: Iterable<ResourceName>): CommitChanges {
    const changes = new CommitChanges(undefined, this.recordedOf(table));
    changes.touchAll(table.changesOf(names));
    return changes;
  }

  #replace(table: TypeTable, name: ResourceName, variants: readonly HeldVariant[]): void {
    const before = table.resource(name, 'released');
    const shown = resourceOf(variants, before, table.interests);
    const released = withErrorsOf(before, shown.copy());
    const canary = withErrorsOf(table.resource(name, 'canary'), shown.copy());
    const since = this.#tables.options.clock.monotonic();
    table.hold(name, { since, masked: 'rolledBack', closed: true, released, canary });
    const isHeld = !table.stopHoldingIfEqual(name);
    const kept = new Set(variants.map(({ variant }) => variant.constraints.key));
    const said = table.resources.get(name)?.variants.all() ?? [];
    const hasRemoved = kept.size === 0 || said.some(({ constraints }) => !kept.has(constraints.key));
    this.holds.setWithheld({ type: table.type, name }, isHeld && hasRemoved);
  }

  /** Its changes wait, or those of them that are too much for the guard: the judge sees which. */
  #isJudged({ type }: TypeTable): boolean {
    const isGuarded = this.#isStopped !== undefined && this.#gated.size > 0 && type === assignmentType;
    return isGuarded || this.#gated.has(type);
  }

  /** What was queued or frozen. */
  #show(table: TypeTable, name: ResourceName, held: HeldName): void {
    if (this.#isJudged(table)) table.unmask(name, held);
    else this.#letThrough(table, name);
  }

  #letThrough(table: TypeTable, name: ResourceName): void {
    this.holds.setWithheld({ type: table.type, name }, false);
    table.stopHolding(name);
  }

  /** Returns when it arrived, as `Clock.monotonic()` says it. */
  #commit(
    type: TypeUrl,
    { names: changed, contents }: CommitChanges,
    cohorts: readonly Cohort[],
    version?: string,
    operation?: Commit['operation'],
  ): number {
    const { revision, journal } = this.#tables;
    for (const name of changed.keys()) journal.resource(type, name);
    const receivedAt = this.#tables.options.clock.monotonic();
    const commit: Commit = { revision, type, version, receivedAt, changed, resolved: [], operation };
    const empty: Commit = { ...commit, changed: new Map() };
    const of = (cohort: Cohort): Commit => (cohorts.includes(cohort) ? commit : empty);
    this.#tables.options.publish?.({
      ...commit,
      contents,
      cohorts: { released: of('released'), canary: of('canary') },
    });
    return receivedAt;
  }

  /** Of which something is held. */
  *#types(): Iterable<TypeTable> {
    for (const table of this.#tables.values()) if (table.held.size > 0) yield table;
  }
}

/** These variants of an earlier time. Their TTLs were for that time. Of several that match, who has one of them now keeps it. */
function resourceOf(
  variants: readonly HeldVariant[],
  before: CachedResource | undefined,
  interests: Interests,
): CachedResource {
  const cached = new CachedResource();
  for (const { variant: earlier, holders } of variants) {
    const variant = earlier.ttl === undefined ? earlier : { ...earlier, ttl: undefined };
    cached.add({ constraints: variant.constraints, variant, holders, confirmedIn: 0 });
  }
  if (before === undefined) return cached;
  cached.order = before.order;
  cached.restoreBindings(before.bindings ?? []);
  bindOnly(cached, before, interests);
  return cached;
}

/** Who had no choice before has no binding, and may have one now. */
function bindOnly(cached: CachedResource, before: CachedResource, interests: Interests): void {
  if (cached.variants.size < 2) return;
  // Each asked for once: of thousands of variants all may match.
  const all = before.variants
    .all()
    .values()
    .flatMap(({ variant }) => interests.seeingVariant(variant));
  for (const parameters of new Set(all.map(({ interest }) => interest.parameters))) {
    const [own, ...others] = before.variants.match(parameters, 2);
    const kept = own && cached.variants.get(own.constraints.key);
    if (kept !== undefined && others.length === 0 && cached.hasChoice(parameters))
      cached.bind(parameters, kept);
  }
}

/** The errors beside what a cohort sees already stay: they have been told. */
function withErrorsOf(seen: CachedResource | undefined, shown: CachedResource): CachedResource {
  if (seen?.resourceErrors !== undefined && isSame(seen, shown))
    shown.resourceErrors = new Map(seen.resourceErrors);
  return shown;
}

const isSame = (a: CachedResource | undefined, b: CachedResource | undefined): boolean =>
  sameVariants(variantsOf(a), variantsOf(b));

/** With their new constraints. */
function moved(before: VariantsOf | undefined, moves: readonly Move[]): VariantsOf | undefined {
  if (before === undefined) return undefined;
  const leaving = new Set(moves.map(({ from, to }) => (to === undefined ? undefined : from.key)));
  const arrivals = moves.flatMap(({ from, to }) => {
    const one = before.get(from.key);
    if (one === undefined || to === undefined) return [];
    return [[to.key, { ...one, variant: { ...one.variant, constraints: to } }] as const];
  });
  return new Map([...[...before].filter(([key]) => !leaving.has(key)), ...arrivals]);
}

/** Canaries see what upstream says. */
const isShown = ({ masked, canary }: HeldName): boolean => masked === undefined && canary === undefined;
