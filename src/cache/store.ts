import { type ResourceName, type Revision, revision, type TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit, Fault, Value } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import type { Constraints } from '../model/constraints.ts';
import { interestBytes } from '../model/interest-bytes.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import {
  type Interest,
  type Restamp,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { globMatches } from '../model/xdstp.ts';
import {
  type Admitting,
  ALL,
  type Among,
  Cell,
  type Held,
  heldByWildcard,
  isRestored,
  type RestoredHolder,
} from './cell.ts';
import { Changes } from './changes.ts';
import type { InterestState } from './interests.ts';
import { type Journal, NO_JOURNAL } from './journal.ts';
import { isTold, isWanted, type Kept, keeps, namesOf } from './keeping.ts';
import { Payloads, versionTag } from './payloads.ts';
import { Removal } from './removal.ts';
import { restamp } from './restamping.ts';
import type { Restored, RestoredVariant } from './restored.ts';
import { Table } from './table.ts';
import { Update } from './update.ts';

/** A variant as one of its holders has it. */
export interface HeldVariant {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  readonly aliases: readonly string[];
  /** From before a restart, and not confirmed since. */
  readonly restored: boolean;
}

export interface StoreOptions {
  readonly clock: Clock;
  /** Two variants of a name match one parameter set, told once for each choice made. */
  readonly ambiguous: (
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    choices: readonly Variant[],
  ) => void;
  /** A variant has a time to live (again): ask for `expire` when it has passed. */
  readonly expiring: (variant: Variant) => void;
  readonly journal?: Journal | undefined;
}

/** The cache: resources in variants, who holds them, and which interests upstream has answered. */
export class Store implements Catalog {
  readonly #options: StoreOptions;
  readonly #journal: Journal;
  readonly #tables = new Map<TypeUrl, Table>();
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

  /** Of all bodies, equal ones counted once. */
  get bodyBytes(): number {
    return this.#payloads.bytes;
  }

  /** Of bodies, and what interests take by themselves. */
  get bytes(): number {
    return this.bodyBytes + this.#interestBytes;
  }

  /** How many of a type are cached. */
  variants(type: TypeUrl): number {
    return this.#tables.get(type)?.variants ?? 0;
  }

  tables(): Iterable<[TypeUrl, Table]> {
    return this.#tables;
  }

  /** A new revision that no transaction made: for changes of what is visible without a change of content. */
  tick(): Revision {
    return revision(++this.#revision);
  }

  apply(transaction: Transaction): Commit {
    const receivedAt = performance.now();
    const next = this.tick();
    const { type } = transaction;
    const table = this.#table(type);
    this.#setVersion(table, transaction);
    const update = new Update(table, transaction, next, {
      clock: this.#options.clock,
      payloads: this.#payloads,
      ambiguous: (name, parameters, choices) => this.#ambiguous(type, name, parameters, choices),
      expiring: this.#options.expiring,
      answered: (interest) => this.#journal.interest(interest),
    });
    update.run();
    return this.#commit(type, transaction.version, receivedAt, update.changes);
  }

  restamp(change: Restamp): Commit {
    const { type, unsettled } = change;
    const receivedAt = performance.now();
    const changes = restamp(this.#table(type), change, this.tick(), this.#payloads);
    for (const interest of unsettled) this.#journal.interest(interest);
    return this.#commit(type, undefined, receivedAt, changes);
  }

  /** Ends the variants whose time to live has passed; undefined if there are none (a heartbeat came). */
  expire(variant: Variant): Commit | undefined {
    const table = this.#tables.get(variant.type);
    const cell = table?.cells.get(variant.name);
    const held = cell?.variants.get(variant.constraints.key);
    if (table === undefined || cell === undefined || held?.variant.ttl === undefined) return undefined;
    if (held.variant.ttl.deadline > this.#options.clock.now()) return undefined;
    const changes = new Changes();
    // Upstream has not said anything new: its last version stays (protocol §3.10).
    const version = table.versions.get(held.holders[0]?.key ?? '') ?? '';
    const removal = new Removal(table, this.#payloads);
    for (const holder of [...held.holders]) removal.drop(variant.name, cell, held, holder, changes);
    this.tick();
    return this.#commit(variant.type, version, performance.now(), changes);
  }

  /** From now on this is wanted: whether it is answered is tracked. What was restored of it is kept. */
  want(interest: Interest): void {
    const { interests } = this.#table(interest.type);
    if (interests.get(interest.selector, interest.parameters) !== undefined) return;
    interests.add(interest);
    this.#interestBytes += interestBytes(interest);
    this.#journal.interest(interest);
  }

  /** What would end with an interest. */
  keeps(interest: Interest): Kept {
    const table = this.#tables.get(interest.type);
    return table === undefined ? { present: false, bytes: 0 } : keeps(table, interest);
  }

  /**
   * Nobody wants it any more: what only this interest saw is dropped. A commit if that can be seen: something restored
   * was kept for this interest only.
   */
  unwant(interest: Interest): Commit | undefined {
    const table = this.#table(interest.type);
    const version = this.version(interest);
    if (table.interests.delete(interest)) this.#interestBytes -= interestBytes(interest);
    this.#journal.interest(interest);
    const removal = new Removal(table, this.#payloads, { unwanted: true, pending: [] });
    for (const name of namesOf(table, interest.selector)) {
      const cell = table.cells.get(name);
      if (cell === undefined) continue;
      for (const held of cell.variants.match(interest.parameters)) {
        if (isWanted(table, name, held)) continue;
        removal.forget(name, cell, held);
        this.#journal.resource(interest.type, name);
      }
      // Clients can ask with any parameters: the choices made for them go with them.
      if (cell.ambiguous > 0 && !table.interests.sees(name, interest.parameters)) {
        cell.unbind(interest.parameters);
        this.#journal.resource(interest.type, name);
      }
      if (cell.variants.size === 0 && !isTold(table, name, cell)) table.cells.delete(name);
    }
    const changes = new Changes();
    removal.release(interest, changes);
    // Clients can name any type: what is empty goes.
    if (table.empty) {
      this.#tables.delete(interest.type);
      for (const holder of table.versions.keys()) this.#journal.version(interest.type, holder);
    }
    if (changes.names.size === 0) return undefined;
    this.tick();
    return this.#commit(interest.type, version, performance.now(), changes);
  }

  /** Takes in what was kept from before a restart. What upstream does not deliver again goes when it has answered. */
  restore({ resources, interests, versions }: Restored): void {
    const next = this.tick();
    for (const { interest, answered, holder } of interests) {
      const state = this.#table(interest.type).interests.add(interest);
      this.#interestBytes += interestBytes(interest);
      state.answered = answered;
      state.restored = answered;
      state.holder = holder;
    }
    for (const { type, name, variants, bindings } of resources) {
      const table = this.#table(type);
      const cell = new Cell();
      table.cells.set(name, cell);
      for (const variant of variants) this.#restore(table, cell, variant, next);
      cell.restoreBindings(bindings);
    }
    for (const { type, holder, version } of versions) {
      // Of what was not kept nobody needs the version.
      const table = this.#tables.get(type);
      if (table === undefined) this.#journal.version(type, holder);
      else table.versions.set(holder, version);
    }
  }

  /**
   * This upstream will confirm nothing more, as another one takes its place: what came from it is kept as if it had
   * been restored, until whoever serves it from now on has answered.
   */
  disown(upstream: string): void {
    for (const table of this.#tables.values()) {
      for (const cell of table.cells.values()) {
        for (const held of cell.variants.values()) {
          for (const [at, holder] of held.holders.entries()) {
            if (holder.upstream !== upstream) continue;
            const disowned: RestoredHolder = { ...holder, restored: true };
            held.holders[at] = disowned;
            table.restored.add(held);
          }
        }
      }
      for (const state of table.interests.all()) {
        if (state.answered && state.holder?.upstream === upstream) state.restored = true;
      }
    }
  }

  /** What `resolve` would give; nothing is recorded or counted. */
  peek(type: TypeUrl, name: ResourceName, parameters: Parameters): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const own = table.cells.get(name)?.peek(parameters);
    if (own !== undefined) return own.variant;
    for (const target of table.aliased(name)) {
      const aliased = table.cells.get(target)?.peek(parameters, { ...ALL, alias: name });
      if (aliased !== undefined) return aliased.variant;
    }
    return table.interests.get(name, parameters)?.answered === true ? 'absent' : 'unknown';
  }

  resolve(
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    access?: Admitting,
    collected = false,
  ): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const held = this.#pick(table, type, name, parameters, access || collected ? { access, collected } : ALL);
    if (held !== undefined) return held.variant;
    return table.interests.get(name, parameters)?.answered === true ? 'absent' : 'unknown';
  }

  *members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName> {
    const table = this.#tables.get(type);
    const names = selector === WILDCARD ? table?.cells.keys() : table?.cells.under(selector);
    for (const name of names ?? []) {
      if (this.isMember(type, selector, name, parameters) || this.fails(type, selector, name, parameters))
        yield name;
    }
  }

  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const cell = this.#tables.get(type)?.cells.get(name);
    if (cell === undefined) return false;
    if (!isFor(selector, name)) return false;
    return cell.variants.match(parameters).some((held) => selector !== WILDCARD || heldByWildcard(held));
  }

  fails(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const faults = this.#tables.get(type)?.cells.get(name)?.faults;
    if (faults === undefined || !isFor(selector, name)) return false;
    for (const { collected, constraints } of faults.values()) {
      if ((collected || selector !== WILDCARD) && constraints.matches(parameters)) return true;
    }
    return false;
  }

  settled(interest: Interest): boolean {
    return this.#state(interest)?.answered === true;
  }

  version(interest: Interest): string {
    const holder = this.#state(interest)?.holder;
    return holder === undefined ? '' : (this.#tables.get(interest.type)?.versions.get(holder.key) ?? '');
  }

  faults(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly Fault[] {
    const faults = this.#tables.get(type)?.cells.get(name)?.faults;
    if (faults === undefined) return [];
    return [...faults.values()].filter((fault) => fault.constraints.matches(parameters));
  }

  /** The variants of a type that one holder has, whoever else does. */
  *heldBy(type: TypeUrl, holder: string): Iterable<HeldVariant> {
    for (const [name, cell] of this.#tables.get(type)?.cells ?? []) {
      for (const { constraints, variant, holders } of cell.variants.values()) {
        const own = holders.find(({ key }) => key === holder);
        if (own === undefined) continue;
        yield { name, constraints, aliases: variant.aliases, restored: isRestored(own) };
      }
    }
  }

  /** Its answer is from before a restart: once it is confirmed, what was restored for it goes. */
  isRestored(interest: Interest): boolean {
    return this.#state(interest)?.restored === true;
  }

  #commit(type: TypeUrl, version: string | undefined, receivedAt: number, changes: Changes): Commit {
    const { names: changed, settled } = changes;
    for (const name of changed.keys()) this.#journal.resource(type, name);
    for (const interest of settled) this.#journal.interest(interest);
    return { revision: this.revision, type, version, receivedAt, changed, settled };
  }

  #setVersion(table: Table, { holder, type, version }: Transaction): void {
    if (table.versions.get(holder.key) === version) return;
    table.versions.set(holder.key, version);
    this.#journal.version(type, holder.key);
  }

  #restore(table: Table, cell: Cell, kept: RestoredVariant, next: Revision): void {
    const { type, name, constraints, version, aliases, ttl, doNotCache, metadata } = kept;
    const { responseVersion, upstream, since, holders } = kept;
    const payload =
      kept.payload === undefined ? undefined : this.#payloads.adopt(kept.payload.bytes, kept.payload.hash);
    const tag = versionTag(version, constraints, payload, aliases, metadata);
    const variant: Variant = {
      type,
      name,
      constraints,
      version,
      tag,
      payload,
      aliases,
      ttl,
      doNotCache,
      metadata,
      responseVersion,
      upstream,
      since,
      revision: next,
    };
    const held: Held = { constraints, variant, holders: [...holders], seen: next };
    cell.variants.add(held);
    table.variants++;
    table.link(variant);
    table.restored.add(held);
    if (variant.ttl !== undefined) this.#options.expiring(variant);
  }

  #state(interest: Interest): InterestState | undefined {
    return this.#tables.get(interest.type)?.interests.get(interest.selector, interest.parameters);
  }

  #table(type: TypeUrl): Table {
    const known = this.#tables.get(type);
    if (known !== undefined) return known;
    const created = new Table();
    this.#tables.set(type, created);
    return created;
  }

  #pick(
    table: Table,
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    among: Among,
  ): Held | undefined {
    const own = this.#pickFrom(table.cells.get(name), type, name, parameters, among);
    if (own !== undefined) return own;
    for (const target of table.aliased(name)) {
      const aliased = this.#pickFrom(table.cells.get(target), type, target, parameters, {
        ...among,
        alias: name,
      });
      if (aliased !== undefined) return aliased;
    }
    return undefined;
  }

  #pickFrom(
    cell: Cell | undefined,
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
    among: Among,
  ): Held | undefined {
    const ambiguous = (matches: readonly Held[]): void => this.#ambiguous(type, name, parameters, matches);
    return cell?.pick(parameters, ambiguous, among);
  }

  #ambiguous(type: TypeUrl, name: ResourceName, parameters: Parameters, matches: readonly Held[]): void {
    this.#journal.resource(type, name); // the choice that was made
    this.#options.ambiguous(
      type,
      name,
      parameters,
      matches.map((held) => held.variant),
    );
  }
}

/** Whether a wildcard or glob is about this name. */
const isFor = (selector: Selector, name: ResourceName): boolean =>
  selector === WILDCARD || globMatches(selector, name);
