import type { ResourceName, Revision, TypeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import { type Freeze, Holds, isEverything, type Scope } from '../model/holds.ts';
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
import { contentIn } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import { HeldTransaction, isFrozen } from './held-transaction.ts';
import { type HeldName, HeldType, type SideTable } from './held-type.ts';
import type { Journal } from './journal.ts';
import type { Payloads } from './payloads.ts';
import { restamp } from './restamping.ts';
import type { TypeTable } from './type-table.ts';

/** What held names need of the store. */
interface HeldNamesOptions {
  readonly clock: Clock;
  readonly payloads: Payloads;
  readonly journal: Journal;
  readonly table: (type: TypeUrl) => TypeTable | undefined;
  readonly expiring: (variant: Variant) => void;
  readonly revision: () => Revision;
  readonly nextRevision: () => Revision;
  /** Shows a commit to the views. */
  readonly publish: (commit: Commit) => void;
}

const everything: Scope = {};

/**
 * The names whose released state is not what upstream says, and what each side sees of them (docs/adr/0100). The store
 * has what upstream says. Where nothing is held, both sides read the store, and nothing is kept twice.
 */
export class HeldNames implements Gate {
  readonly #options: HeldNamesOptions;
  readonly #types = new Map<TypeUrl, HeldType>();
  readonly #listeners = new Set<(change: PendingChange) => void>();
  #gated: ReadonlySet<TypeUrl> = new Set();
  readonly holds = new Holds();
  /** What listeners have not heard of yet. */
  readonly #changes: PendingChange[] = [];

  constructor(options: HeldNamesOptions) {
    this.#options = options;
  }

  get pending(): Iterable<PendingName> {
    return this.#pending();
  }

  get size(): number {
    let size = 0;
    for (const type of this.#types.values())
      for (const { masked } of type.names.values()) if (masked === undefined) size++;
    return size;
  }

  /** Types of which something is held. */
  types(): Iterable<TypeUrl> {
    return this.#types.keys();
  }

  /** How a side sees a type; undefined: as the store has it. */
  side(type: TypeUrl, side: Side): SideTable | undefined {
    return this.#types.get(type)?.side(side);
  }

  /** Undefined: nothing of the type waits, and nothing will. */
  open(type: TypeUrl): HeldTransaction | undefined {
    const gated = this.#gated.has(type);
    if (!gated && this.holds.freezes.length === 0 && !this.#types.has(type)) return undefined;
    return new HeldTransaction(this.#type(type), gated, this.holds, this.#options.clock.now());
  }

  /** After the transaction: how each side sees the commit. `released`: the holder's version before. */
  close(opened: HeldTransaction, commit: Commit, holder?: string, released?: string): Commit {
    const { type } = commit;
    const held = this.#type(type);
    const { interests } = held.live ?? held.released.table;
    opened.settle(interests, holder, released);
    opened.admit(commit.resolved, interests);
    const change = opened.pendingChange(commit.receivedAt);
    if (change !== undefined) this.#changes.push(change);
    const split = opened.split(commit);
    this.#forgetEmpty(type);
    return split;
  }

  /** New constraints are for the images too. No content changes. */
  restamp(change: Restamp, revision: Revision): void {
    const held = this.#types.get(change.type);
    if (held === undefined) return;
    const images = { ...change, unresolved: [] };
    const { payloads, expiring } = this.#options;
    for (const { table } of [held.released, held.canary])
      restamp(table, images, revision, payloads, expiring);
    for (const name of new Set(change.moves.map((move) => move.name)))
      if (held.names.has(name)) held.stopHoldingIfEqual(name);
    this.#forgetEmpty(change.type);
  }

  /** The TTL of a variant may have passed in the images. True: it has. */
  expire({ type, name, constraints }: Variant, changes: CommitChanges): boolean {
    const held = this.#types.get(type);
    const entry = held?.names.get(name);
    if (held === undefined || entry === undefined) return false;
    let expired = false;
    for (const images of [held.released, held.canary]) {
      const variant = images.get(name)?.variants.get(constraints.key);
      const { ttl, aliases = [] } = variant?.variant ?? {};
      if (variant === undefined || ttl === undefined || ttl.deadline > this.#options.clock.now()) continue;
      changes.touch(name, constraints, aliases);
      images.forget(name, variant);
      entry.closed = true;
      expired = true;
    }
    return expired;
  }

  /** Clients can send any parameters: the choices that were made for them end with them. */
  interestEnded({ type, selector, parameters }: Interest): void {
    const held = this.#types.get(type);
    if (held === undefined) return;
    const { table } = held.released;
    for (const name of [selector, ...table.aliased(selector), ...table.names(selector)]) {
      if (held.live?.interests.sees(name, parameters) === true) continue;
      held.released.get(name)?.unbind(parameters);
      held.canary.get(name)?.unbind(parameters);
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

  discard(filter = everything, names?: ReadonlySet<ResourceName>): void {
    this.#change(filter, ['canary'], (type, name, held) => {
      if (names?.has(name) === false) return false;
      // What was pending when it was frozen is taken back, and what upstream says now stays frozen.
      if (held.masked === 'frozen') type.canary.keep(name, type.released.get(name));
      else if (held.masked === undefined) type.mask(name, held, 'discarded');
      else return false;
      return true;
    });
  }

  freeze(scope = everything, reason = ''): Result<undefined> {
    return this.holds.freeze(scope, reason, this.#options.clock.now());
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
      const waits = this.#types.get(one.type)?.names.has(one.name) === true;
      if ((scope.type ?? one.type) === one.type && !waits) this.holds.setRemoved(one, false);
    }
  }

  replace(type: TypeUrl, contents: Contents, filter = everything, reason = ''): void {
    const held = this.#type(type);
    const live = held.live?.resources.keys() ?? [];
    const others = [...live, ...held.names.keys()].filter((name) => held.matches(name, filter));
    const names = new Set([...contents.keys(), ...others]);
    this.#options.nextRevision();
    const before = held.changesOf(names);
    const shown = this.#snapshots(type, names);
    for (const name of names) this.#replace(held, name, contents.get(name) ?? []);
    const changed = mergeChanges(before, held.changesOf(names));
    const receivedAt = this.#commit(held, changed, shown, ['released', 'canary'], undefined, reason);
    this.#changes.push({ receivedAt, type, joined: [], left: [...names] });
    this.#forgetEmpty(type);
    this.notify();
  }

  removals(filter = everything): RemovalCount {
    let removed = 0;
    let released = 0;
    for (const held of this.#types.values()) {
      for (const name of held.side('released').names(WILDCARD)) {
        if (!held.matches(name, filter) || held.side('released').resource(name)?.variants.size === 0)
          continue;
        released++;
        const entry = held.names.get(name);
        if (entry === undefined || entry.masked !== undefined) continue;
        if (held.pendingName(name, entry).removed && held.isSeen(name)) removed++;
      }
    }
    return { removed, released };
  }

  contentOf(type: TypeUrl, name: ResourceName, side: Side): readonly HeldVariant[] {
    const table = this.side(type, side) ?? this.#options.table(type);
    return contentIn(table?.resource(name));
  }

  snapshot(type: TypeUrl, name: ResourceName): Snapshot {
    const said = contentIn(this.#options.table(type)?.resources.get(name));
    const held = this.#types.get(type);
    if (held === undefined || !held.names.has(name)) return { said, released: said, canary: said };
    const released = contentIn(held.released.get(name));
    return { said, released, canary: held.canary.has(name) ? contentIn(held.canary.get(name)) : said };
  }

  /** For room in the cache: drops a name that nobody subscribes to. False: there is none. */
  dropUnwanted(): boolean {
    for (const held of this.#types.values()) {
      for (const name of held.names.keys()) {
        if (held.isSeen(name)) continue;
        held.stopHolding(name);
        this.#options.journal.resource(held.type, name);
        this.#forgetEmpty(held.type);
        return true;
      }
    }
    return false;
  }

  #isFrozen(type: HeldType, name: ResourceName): boolean {
    const all = [type.liveResource(name), type.released.get(name)];
    return all.some((cached) => cached !== undefined && isFrozen(this.holds, type.type, cached));
  }

  *#pending(): Iterable<PendingName> {
    for (const held of this.#types.values())
      for (const [name, entry] of held.names) yield held.pendingName(name, entry);
  }

  /** Each pending name that the filter matches, as one commit of each type. */
  #change(
    filter: Scope,
    sides: readonly Side[],
    change: (type: HeldType, name: ResourceName, held: HeldName) => boolean,
  ): void {
    for (const held of [...this.#types.values()]) {
      const names = [...held.names.keys()].filter((name) => held.matches(name, filter));
      if (names.length === 0) continue;
      this.#options.nextRevision();
      const { version } = held;
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
      this.#forgetEmpty(held.type);
      if (left.length + joined.length === 0) continue;
      const known = sides.includes('released') ? version : undefined;
      const receivedAt = this.#commit(held, constraints, before, sides, known);
      this.#changes.push({ receivedAt, type: held.type, joined, left });
    }
    this.notify();
  }

  #snapshots(type: TypeUrl, names: Iterable<ResourceName>): ReadonlyMap<ResourceName, Snapshot> {
    return new Map(Iterator.from(names).map((name) => [name, this.snapshot(type, name)]));
  }

  #replace(held: HeldType, name: ResourceName, variants: readonly HeldVariant[]): void {
    const order = (held.released.get(name) ?? held.liveResource(name))?.order;
    for (const images of [held.released, held.canary]) images.keepVariants(name, variants, order);
    const since = this.#options.clock.now();
    held.names.set(name, { since, masked: 'rolledBack', refused: undefined, closed: true });
    const isHeld = !held.stopHoldingIfEqual(name);
    this.holds.setRemoved({ type: held.type, name }, isHeld && variants.length === 0);
  }

  #letThrough(held: HeldType, name: ResourceName): void {
    this.holds.setRemoved({ type: held.type, name }, false);
    held.stopHolding(name);
  }

  /** Returns when it arrived, as `Clock.monotonic()` says it. */
  #commit(
    { type }: HeldType,
    changed: Commit['changed'],
    before: ReadonlyMap<ResourceName, Snapshot>,
    sides: readonly Side[],
    version?: string,
    reason?: string,
  ): number {
    const revision = this.#options.revision();
    for (const name of changed.keys()) this.#options.journal.resource(type, name);
    const receivedAt = this.#options.clock.monotonic();
    const commit: Commit = { revision, type, version, receivedAt, changed, resolved: [], reason };
    const empty: Commit = { ...commit, changed: new Map() };
    const of = (side: Side): Commit => (sides.includes(side) ? commit : empty);
    const contents = new Map(
      [...before].map(([name, was]) => [name, { before: was, after: this.snapshot(type, name) }]),
    );
    this.#options.publish({ ...commit, contents, sides: { released: of('released'), canary: of('canary') } });
    return receivedAt;
  }

  #type(type: TypeUrl): HeldType {
    const known = this.#types.get(type);
    if (known !== undefined) return known;
    const { payloads, journal, revision, table } = this.#options;
    const created = new HeldType(type, () => table(type), payloads, journal, revision);
    this.#types.set(type, created);
    return created;
  }

  /** Clients can name any type: what is empty goes. */
  #forgetEmpty(type: TypeUrl): void {
    if (this.#types.get(type)?.names.size === 0) this.#types.delete(type);
  }
}

/** What looks different where either of both does. */
function mergeChanges(a: Commit['changed'], b: Commit['changed']): Commit['changed'] {
  const merged = new Map(a);
  for (const [name, constraints] of b)
    merged.set(name, [...new Set([...(merged.get(name) ?? []), ...constraints])]);
  return merged;
}
