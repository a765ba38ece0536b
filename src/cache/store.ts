import { type ResourceName, type Revision, resourceName, revision, type TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit, Fault, Value } from '../model/catalog.ts';
import type { Clock } from '../model/clock.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import {
  type Heartbeat,
  type Holder,
  type Interest,
  type Put,
  type ResourceFault,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { globMatches, isGlob } from '../model/xdstp.ts';
import { Code } from '../wire/status.ts';
import { Cell, type Held, heldByWildcard } from './cell.ts';
import { Changes } from './changes.ts';
import type { InterestState } from './interests.ts';
import { Payloads, versionTag } from './payloads.ts';
import { Table } from './table.ts';

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
}

/** The cache: resources in variants, who holds them, and which interests upstream has answered. */
export class Store implements Catalog {
  readonly #options: StoreOptions;
  readonly #tables = new Map<TypeUrl, Table>();
  readonly #payloads = new Payloads();
  #revision = 0;

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  get revision(): Revision {
    return revision(this.#revision);
  }

  /** Bytes of payloads, equal ones counted once. */
  get bytes(): number {
    return this.#payloads.bytes;
  }

  tables(): Iterable<[TypeUrl, Table]> {
    return this.#tables;
  }

  /** A new revision that no transaction made: for changes of what is visible without a change of content. */
  tick(): Revision {
    return revision(++this.#revision);
  }

  apply(transaction: Transaction): Commit {
    const changes = new Changes();
    const receivedAt = performance.now();
    const next = this.tick();
    const table = this.#table(transaction.type);
    table.versions.set(transaction.holder.key, transaction.version);
    // Confirm first, then remove, then add: a swap of variants must not look ambiguous on the way (protocol §5).
    for (const put of transaction.puts) {
      const held = table.cells.get(put.name)?.variants.get(put.constraints.key);
      if (held !== undefined) held.seen = next;
    }
    for (const removal of transaction.removals) {
      const cell = table.cells.get(removal.name);
      const held = cell?.variants.get(removal.constraints.key);
      if (cell === undefined || held === undefined) {
        this.#answer(table, removal.name, removal.constraints, changes);
      } else if (held.seen !== next) {
        this.#drop(table, removal.name, cell, held, transaction.holder, changes);
      }
    }
    if (transaction.complete) this.#sweep(table, transaction.holder, next, changes);
    for (const put of transaction.puts) this.#put(table, transaction, put, next, changes);
    for (const beat of transaction.heartbeats) this.#beat(table, beat, next, changes);
    for (const fault of transaction.faults) this.#fault(table, fault, next, changes);
    for (const interest of transaction.settled) {
      const state = table.interests.get(interest.selector, interest.parameters);
      if (state === undefined) continue;
      state.holder = transaction.holder.key;
      if (!state.answered) changes.answer(state);
    }
    return {
      revision: next,
      type: transaction.type,
      version: transaction.version,
      receivedAt,
      changed: changes.names,
      settled: changes.settled,
    };
  }

  /** Ends the variants whose time to live has passed; undefined if there are none (a heartbeat came). */
  expire(variant: Variant): Commit | undefined {
    const table = this.#tables.get(variant.type);
    const cell = table?.cells.get(variant.name);
    const held = cell?.variants.get(variant.constraints.key);
    if (table === undefined || cell === undefined || held?.variant.ttl === undefined) return undefined;
    if (held.variant.ttl.deadline > this.#options.clock.now()) return undefined;
    const changes = new Changes();
    for (const holder of [...held.holders]) this.#drop(table, variant.name, cell, held, holder, changes);
    return {
      revision: this.tick(),
      type: variant.type,
      version: '',
      receivedAt: performance.now(),
      changed: changes.names,
      settled: changes.settled,
    };
  }

  /** From now on this is wanted: whether it is answered is tracked. */
  want(interest: Interest): void {
    this.#table(interest.type).interests.add(interest);
  }

  /** Nobody wants it any more: what only this interest saw is dropped. */
  unwant(interest: Interest): void {
    const table = this.#table(interest.type);
    table.interests.delete(interest);
    const names =
      interest.selector === WILDCARD ? [...table.cells.keys()] : this.#namesOf(table, interest.selector);
    for (const name of names) {
      const cell = table.cells.get(name);
      if (cell === undefined) continue;
      for (const held of [...cell.variants.values()]) {
        if (!held.constraints.matches(interest.parameters)) continue;
        if (!this.#wanted(table, name, held)) this.#forget(table, name, cell, held);
      }
      if (cell.variants.size === 0 && table.interests.named(name) === undefined) table.cells.delete(name);
    }
  }

  resolve(type: TypeUrl, name: ResourceName, parameters: Parameters): Value {
    const table = this.#tables.get(type);
    if (table === undefined) return 'unknown';
    const held = this.#pick(table, type, name, parameters);
    if (held !== undefined) return held.variant;
    return table.interests.get(name, parameters)?.answered === true ? 'absent' : 'unknown';
  }

  *members(type: TypeUrl, selector: Selector, parameters: Parameters): Iterable<ResourceName> {
    const table = this.#tables.get(type);
    for (const name of table?.cells.keys() ?? []) {
      if (this.isMember(type, selector, name, parameters)) yield name;
    }
  }

  isMember(type: TypeUrl, selector: Selector, name: ResourceName, parameters: Parameters): boolean {
    const cell = this.#tables.get(type)?.cells.get(name);
    if (cell === undefined) return false;
    const wildcard = selector === WILDCARD;
    if (!wildcard && !globMatches(selector, name)) return false;
    return cell.variants.match(parameters).some((held) => !wildcard || heldByWildcard(held));
  }

  settled(interest: Interest): boolean {
    return this.#state(interest)?.answered === true;
  }

  version(interest: Interest): string {
    const holder = this.#state(interest)?.holder;
    return holder === undefined ? '' : (this.#tables.get(interest.type)?.versions.get(holder) ?? '');
  }

  faults(type: TypeUrl, name: ResourceName, parameters: Parameters): readonly Fault[] {
    const faults = this.#tables.get(type)?.cells.get(name)?.faults;
    if (faults === undefined) return [];
    return [...faults.values()].filter((fault) => fault.constraints.matches(parameters));
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

  #pick(table: Table, type: TypeUrl, name: ResourceName, parameters: Parameters): Held | undefined {
    const own = this.#pickFrom(table.cells.get(name), type, name, parameters);
    if (own !== undefined) return own;
    for (const target of table.aliases.get(name) ?? []) {
      const aliased = this.#pickFrom(table.cells.get(target), type, target, parameters);
      if (aliased !== undefined) return aliased;
    }
    return undefined;
  }

  #pickFrom(
    cell: Cell | undefined,
    type: TypeUrl,
    name: ResourceName,
    parameters: Parameters,
  ): Held | undefined {
    return cell?.pick(parameters, (matches) => this.#ambiguous(type, name, parameters, matches));
  }

  #ambiguous(type: TypeUrl, name: ResourceName, parameters: Parameters, matches: readonly Held[]): void {
    this.#options.ambiguous(
      type,
      name,
      parameters,
      matches.map((held) => held.variant),
    );
  }

  #put(table: Table, transaction: Transaction, put: Put, next: Revision, changes: Changes): void {
    const cell = table.cells.get(put.name) ?? new Cell();
    table.cells.set(put.name, cell);
    if (cell.faults !== undefined) {
      cell.clearFaults(put.constraints);
      changes.touch(put.name, put.constraints);
    }
    const held = cell.variants.get(put.constraints.key);
    if (held !== undefined && sameContent(held.variant, put)) {
      held.seen = next;
      this.#confirm(transaction, put, held, changes);
    } else {
      const variant = this.#variant(transaction, put, next);
      if (held === undefined) this.#add(table, cell, variant, transaction, next);
      else this.#replace(table, held, variant, transaction.holder, next);
      changes.touch(put.name, put.constraints, put.aliases);
      if (variant.ttl !== undefined) this.#options.expiring(variant);
    }
    if (transaction.cannotDelete) this.#lastWins(table, transaction, put, cell, changes);
  }

  /** The same content again: perhaps from one more holder, perhaps for another while. */
  #confirm(transaction: Transaction, put: Put, held: Held, changes: Changes): void {
    if (!held.holders.some((holder) => holder.key === transaction.holder.key)) {
      held.holders.push(transaction.holder);
      changes.touch(put.name, put.constraints); // it may have become a member of the wildcard
    }
    if (put.ttlMilliseconds === undefined) {
      if (held.variant.ttl !== undefined) held.variant = { ...held.variant, ttl: undefined };
    } else {
      const deadline = this.#options.clock.now() + put.ttlMilliseconds;
      held.variant = { ...held.variant, ttl: { milliseconds: put.ttlMilliseconds, deadline } };
      changes.touch(put.name, put.constraints);
      this.#options.expiring(held.variant);
    }
  }

  #variant(transaction: Transaction, put: Put, next: Revision): Variant {
    const now = this.#options.clock.now();
    const payload = put.any === undefined ? undefined : this.#payloads.acquire(put.any);
    const metadata = put.metadata === undefined ? undefined : Buffer.from(put.metadata);
    return {
      type: transaction.type,
      name: put.name,
      constraints: put.constraints,
      version: put.version,
      tag: versionTag(put.version, put.constraints, payload, put.aliases, metadata),
      payload,
      aliases: put.aliases,
      ttl:
        put.ttlMilliseconds === undefined
          ? undefined
          : { milliseconds: put.ttlMilliseconds, deadline: now + put.ttlMilliseconds },
      doNotCache: put.doNotCache,
      metadata,
      responseVersion: transaction.version,
      upstream: transaction.holder.upstream,
      since: now,
      revision: next,
    };
  }

  #add(table: Table, cell: Cell, variant: Variant, transaction: Transaction, next: Revision): void {
    const held: Held = {
      constraints: variant.constraints,
      variant,
      holders: [transaction.holder],
      seen: next,
    };
    if (cell.variants.size > 0 && !transaction.cannotDelete) {
      // Whoever has a match keeps it (protocol §5): record the choice before there are two.
      for (const { interest } of table.interests.seeing(variant.name, variant.constraints)) {
        const before = this.#pickFrom(cell, variant.type, variant.name, interest.parameters);
        if (before === undefined) continue;
        cell.bind(interest.parameters, before);
        this.#ambiguous(variant.type, variant.name, interest.parameters, [before, held]);
      }
    }
    cell.variants.add(held);
    table.variants++;
    table.link(variant);
  }

  #replace(table: Table, held: Held, variant: Variant, holder: Holder, next: Revision): void {
    table.unlink(held.variant);
    this.#payloads.release(held.variant.payload);
    held.variant = variant;
    held.seen = next;
    table.link(variant);
    if (!held.holders.some((known) => known.key === holder.key)) held.holders.push(holder);
  }

  /** Upstream cannot delete this variant's predecessor: who matches both gets the last received (protocol §5). */
  #lastWins(table: Table, transaction: Transaction, put: Put, cell: Cell, changes: Changes): void {
    if (cell.variants.size < 2) return;
    const latest = cell.variants.get(put.constraints.key);
    if (latest === undefined) return;
    const bound = new Set<Held>([latest]);
    for (const { interest } of table.interests.seeing(put.name, put.constraints))
      cell.bind(interest.parameters, latest);
    for (const held of cell.variants.values()) {
      for (const { interest } of table.interests.seeing(put.name, held.constraints)) {
        const picked = this.#pickFrom(cell, transaction.type, put.name, interest.parameters);
        if (picked !== undefined) bound.add(picked);
      }
    }
    for (const held of [...cell.variants.values()]) {
      if (!bound.has(held)) this.#drop(table, put.name, cell, held, transaction.holder, changes);
    }
    changes.touch(put.name, put.constraints);
  }

  #beat(table: Table, beat: Heartbeat, next: Revision, changes: Changes): void {
    const held = table.cells.get(beat.name)?.variants.get(beat.constraints.key);
    if (held === undefined) return;
    const deadline = this.#options.clock.now() + beat.ttlMilliseconds;
    held.seen = next;
    held.variant = { ...held.variant, ttl: { milliseconds: beat.ttlMilliseconds, deadline } };
    changes.touch(beat.name, beat.constraints);
    this.#options.expiring(held.variant);
  }

  #fault(table: Table, fault: ResourceFault, next: Revision, changes: Changes): void {
    const cell = table.cells.get(fault.name) ?? new Cell();
    table.cells.set(fault.name, cell);
    cell.faults ??= new Map();
    cell.faults.set(fault.constraints.key, { ...fault, status: Buffer.from(fault.status), revision: next });
    changes.touch(fault.name, fault.constraints);
    if (fault.code === Code.NOT_FOUND) this.#answer(table, fault.name, fault.constraints, changes);
  }

  /** Full state: what this holder did not confirm is gone. */
  #sweep(table: Table, holder: Holder, next: Revision, changes: Changes): void {
    for (const [name, cell] of table.cells) {
      for (const held of [...cell.variants.values()]) {
        if (held.seen === next || !held.holders.some((known) => known.key === holder.key)) continue;
        this.#drop(table, name, cell, held, holder, changes);
      }
    }
  }

  /** This holder has it no longer. */
  #drop(table: Table, name: ResourceName, cell: Cell, held: Held, holder: Holder, changes: Changes): void {
    const at = held.holders.findIndex((known) => known.key === holder.key);
    if (at < 0) return;
    held.holders.splice(at, 1);
    changes.touch(name, held.constraints, held.variant.aliases);
    if (held.holders.length > 0) return;
    this.#forget(table, name, cell, held);
    this.#answer(table, name, held.constraints, changes);
    for (const alias of held.variant.aliases)
      this.#answer(table, resourceName(alias), held.constraints, changes);
  }

  #forget(table: Table, name: ResourceName, cell: Cell, held: Held): void {
    cell.remove(held);
    table.variants--;
    table.unlink(held.variant);
    this.#payloads.release(held.variant.payload);
    if (cell.empty) table.cells.delete(name);
  }

  /** Those who asked for it by name know now that it is not there. */
  #answer(table: Table, name: ResourceName, constraints: Constraints, changes: Changes): void {
    for (const state of table.interests.named(name)?.matching(constraints) ?? []) {
      if (!state.answered) changes.answer(state);
    }
  }

  #wanted(table: Table, name: ResourceName, held: Held): boolean {
    for (const { interest } of table.interests.seeing(name, held.constraints)) {
      if (interest.selector !== WILDCARD || heldByWildcard(held)) return true;
    }
    return held.variant.aliases.some((alias) => table.interests.named(resourceName(alias)) !== undefined);
  }

  #namesOf(table: Table, selector: Selector): ResourceName[] {
    const names = [selector, ...(table.aliases.get(selector) ?? [])];
    if (!isGlob(selector)) return names;
    for (const name of table.cells.keys()) if (globMatches(selector, name)) names.push(name);
    return names;
  }
}

/** Bytes decide, not versions: equal versions do not prove equal content, nor different ones a change (protocol §3.10). */
function sameContent(variant: Variant, put: Put): boolean {
  return (
    sameBytes(variant.payload?.bytes, put.any) &&
    variant.doNotCache === put.doNotCache &&
    sameBytes(variant.metadata, put.metadata) &&
    variant.aliases.length === put.aliases.length &&
    variant.aliases.every((alias, index) => alias === put.aliases[index])
  );
}

function sameBytes(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && Buffer.compare(a, b) === 0;
}
