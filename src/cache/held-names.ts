import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import { type Decision, type Freeze, Holds, isEverything, type Scope } from '../model/holds.ts';
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
import { CachedResource, contentIn } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import { HeldTransaction, isFrozen } from './held-transaction.ts';
import { HeldType } from './held-type.ts';
import type { HeldName, TypeTable, TypeTables } from './type-table.ts';

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
    return new HeldTransaction(new HeldType(table), gated, this.holds, this.#clock.now());
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
    const held = new HeldType(table);
    for (const name of new Set(moves.map((move) => move.name)))
      if (held.names.has(name)) held.stopHoldingIfEqual(name);
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
      table.remove(name, cached, entry, side);
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
    const names =
      selector === WILDCARD
        ? held.keys()
        : [selector, ...table.aliased(selector, 'released'), ...table.names(selector)];
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
    this.#change(filter, ['released'], (type, name, { masked }) => {
      if (names?.has(name) === false) return false;
      if (masked !== undefined || this.#isFrozen(type, name)) return false;
      this.#letThrough(type, name);
      return true;
    });
  }

  discard(filter = everything, reason = '', names?: ReadonlySet<ResourceName>): void {
    const discardOne = (type: HeldType, name: ResourceName, held: HeldName): boolean => {
      if (names?.has(name) === false) return false;
      // What was pending when it was frozen is taken back, and what upstream says now stays frozen.
      if (held.masked === 'frozen') type.change(name, held, { canary: held.released.copy() });
      else if (held.masked === undefined) type.refuse(name, held);
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
    this.#change(scope, ['released', 'canary'], (type, name, held) => {
      if (held.masked === undefined || held.masked === 'discarded') return false;
      if (this.#isFrozen(type, name)) return false;
      if (this.#gated.has(type.type)) type.unmask(name, held);
      else this.#letThrough(type, name);
      return true;
    });
    // What does not wait behind the gate needs no gate.
    for (const one of [...this.holds.removed()]) {
      const waits = this.#tables.get(one.type)?.held.has(one.name) === true;
      if ((scope.type ?? one.type) === one.type && !waits) this.holds.setRemoved(one, false);
    }
  }

  replace(type: TypeUrl, contents: Contents, filter = everything, reason = ''): void {
    const held = new HeldType(this.#tables.of(type));
    const others = [...held.table.names(WILDCARD)].filter((name) => held.matches(name, filter));
    const names = new Set([...contents.keys(), ...others]);
    this.#tables.nextRevision();
    const before = held.changesOf(names);
    const shown = this.#snapshots(type, names);
    for (const name of names) this.#replace(held, name, contents.get(name) ?? []);
    const changed = mergeChanges(before, held.changesOf(names));
    const operation = { verb: 'rollback', reason } as const;
    const receivedAt = this.#commit(type, changed, shown, ['released', 'canary'], undefined, operation);
    this.#changes.push({ receivedAt, type, joined: [], left: [...names] });
    this.#tables.forgetIfEmpty(held.table);
    this.notify();
  }

  removals(filter = everything): RemovalCount {
    let removed = 0;
    let released = 0;
    for (const held of this.#types()) {
      for (const name of held.table.names(WILDCARD)) {
        if (!held.matches(name, filter)) continue;
        if ((held.table.resource(name, 'released')?.variants.size ?? 0) === 0) continue;
        released++;
        const entry = held.names.get(name);
        if (entry === undefined || entry.masked !== undefined) continue;
        if (held.pendingName(name, entry).removed && held.isSeen(name)) removed++;
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
    for (const held of this.#types()) {
      for (const name of held.names.keys()) {
        if (held.isSeen(name)) continue;
        held.stopHolding(name);
        this.#tables.journal.resource(held.type, name);
        this.#tables.forgetIfEmpty(held.table);
        return true;
      }
    }
    return false;
  }

  #isFrozen(type: HeldType, name: ResourceName): boolean {
    const all = [type.liveResource(name), type.names.get(name)?.released];
    return all.some((cached) => cached !== undefined && isFrozen(this.holds, type.type, cached));
  }

  *#pending(): Iterable<PendingName> {
    for (const held of this.#types())
      for (const [name, entry] of held.names) yield held.pendingName(name, entry);
  }

  /** Each pending name that the filter matches, as one commit of each type. */
  #change(
    filter: Scope,
    sides: readonly Side[],
    change: (type: HeldType, name: ResourceName, held: HeldName) => boolean,
    operation?: Commit['operation'],
  ): void {
    for (const held of [...this.#types()]) {
      const names = [...held.names.keys()].filter((name) => held.matches(name, filter));
      if (names.length === 0) continue;
      this.#tables.nextRevision();
      const version = held.table.heldVersion;
      const constraints = held.changesOf(names);
      const before = this.#snapshots(held.type, names);
      const left: ResourceName[] = [];
      const joined: ResourceName[] = [];
      for (const name of names) {
        const entry = held.names.get(name);
        const masked = entry?.masked;
        if (entry === undefined || !change(held, name, entry)) continue;
        const after = held.names.get(name);
        const isJoined = masked !== undefined && after !== undefined && after.masked === undefined;
        if (isJoined && !held.stopHoldingIfEqual(name)) joined.push(name);
        else left.push(name);
      }
      this.#tables.forgetIfEmpty(held.table);
      if (left.length + joined.length === 0) continue;
      const known = sides.includes('released') ? version : undefined;
      const receivedAt = this.#commit(held.type, constraints, before, sides, known, operation);
      this.#changes.push({ receivedAt, type: held.type, joined, left });
    }
    this.notify();
  }

  #snapshots(type: TypeUrl, names: Iterable<ResourceName>): ReadonlyMap<ResourceName, Snapshot> {
    return new Map(Iterator.from(names).map((name) => [name, this.snapshot(type, name)]));
  }

  #replace(held: HeldType, name: ResourceName, variants: readonly HeldVariant[]): void {
    const order = (held.names.get(name)?.released ?? held.liveResource(name))?.order;
    const released = resourceOf(variants, order);
    const since = this.#clock.now();
    held.table.hold(name, {
      since,
      masked: 'rolledBack',
      refused: undefined,
      closed: true,
      released,
      canary: released.copy(),
    });
    const isHeld = !held.stopHoldingIfEqual(name);
    this.holds.setRemoved({ type: held.type, name }, isHeld && variants.length === 0);
  }

  #letThrough(held: HeldType, name: ResourceName): void {
    this.holds.setRemoved({ type: held.type, name }, false);
    held.stopHolding(name);
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
  *#types(): Iterable<HeldType> {
    for (const table of this.#tables.values()) if (table.held.size > 0) yield new HeldType(table);
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
