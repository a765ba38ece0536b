import { type ResourceName, type Revision, resourceName } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Ttl, Variant } from '../model/resource.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type ResourceFault,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { Code } from '../wire/status.ts';
import { addHolder, Cell, type Held } from './cell.ts';
import { Changes } from './changes.ts';
import { type Payloads, versionTag } from './payloads.ts';
import { Removal } from './removal.ts';
import type { Table } from './table.ts';

/** What an update needs of the store. */
export interface UpdateContext {
  readonly clock: Clock;
  readonly payloads: Payloads;
  readonly ambiguous: (name: ResourceName, parameters: Parameters, choices: readonly Held[]) => void;
  readonly expiring: (variant: Variant) => void;
  /** Another holder answers this interest than before. */
  readonly answered: (interest: Interest) => void;
}

/** What a parameter set was given before another variant came that matches it as well. */
interface Choice {
  readonly cell: Cell;
  readonly name: ResourceName;
  readonly parameters: Parameters;
  readonly before: Held;
}

/** One transaction on its way into a table. */
export class Update {
  readonly changes = new Changes();
  readonly #table: Table;
  readonly #transaction: Transaction;
  readonly #revision: Revision;
  readonly #context: UpdateContext;
  readonly #removal: Removal;

  constructor(table: Table, transaction: Transaction, revision: Revision, context: UpdateContext) {
    this.#table = table;
    this.#transaction = transaction;
    this.#revision = revision;
    this.#context = context;
    this.#removal = new Removal(table, context.payloads, transaction);
  }

  /** Confirms first, then removes, then adds: a swap of variants must not look ambiguous on the way (protocol §5). */
  run(): void {
    const { puts, complete, cannotDelete, heartbeats, faults } = this.#transaction;
    const choices = this.#confirmAll();
    this.#removeAll();
    if (complete) this.#sweep();
    for (const put of puts) this.#put(put);
    for (const choice of choices) this.#keep(choice);
    if (cannotDelete) this.#lastWins();
    for (const beat of heartbeats) this.#beat(beat);
    for (const fault of faults) this.#fault(fault);
    this.#settle();
  }

  /**
   * Marks what is there already and stays. Where a variant comes that is new, whoever has a match keeps it (protocol
   * §5, Ambiguity): what they have now is the answer.
   */
  #confirmAll(): readonly Choice[] {
    const choices: Choice[] = [];
    /** Nothing changes meanwhile: one choice for each cell and parameter set. */
    const remembered = new Map<Cell, Set<Parameters>>();
    for (const put of this.#transaction.puts) {
      const cell = this.#table.cells.get(put.name);
      const held = cell?.variants.get(put.constraints.key);
      if (held !== undefined) held.seen = this.#revision;
      else if (cell !== undefined && !this.#transaction.cannotDelete)
        this.#remember(cell, put, remembered, choices);
    }
    return choices;
  }

  #remember(cell: Cell, put: Put, remembered: Map<Cell, Set<Parameters>>, choices: Choice[]): void {
    const { name } = put;
    const seen = remembered.get(cell) ?? new Set<Parameters>();
    remembered.set(cell, seen);
    for (const { parameters } of this.#interested(put)) {
      if (seen.has(parameters)) continue;
      seen.add(parameters);
      const before = this.#pick(cell, name, parameters);
      if (before !== undefined) choices.push({ cell, name, parameters, before });
    }
  }

  /** The interests that see a resource that comes: by its name, an alias, a wildcard or a glob. */
  *#interested(put: Put): Iterable<Interest> {
    const { interests } = this.#table;
    for (const { interest } of interests.seeing(put.name, put.constraints)) yield interest;
    for (const alias of put.aliases) {
      for (const state of interests.named(resourceName(alias))?.matching(put.constraints) ?? []) {
        yield state.interest;
      }
    }
  }

  #keep({ cell, name, parameters, before }: Choice): void {
    if (cell.variants.get(before.constraints.key) !== before) return;
    const matches = cell.variants.match(parameters);
    if (matches.length < 2) return;
    cell.bind(parameters, before);
    this.#context.ambiguous(name, parameters, [before, ...matches.filter((held) => held !== before)]);
  }

  #removeAll(): void {
    for (const { name, constraints } of this.#transaction.removals) {
      const cell = this.#table.cells.get(name);
      const held = cell?.variants.get(constraints.key);
      if (cell === undefined || held === undefined) {
        this.#removal.answer(name, constraints, this.changes);
      } else if (held.seen !== this.#revision) {
        this.#removal.drop(name, cell, held, this.#transaction.holder, this.changes);
      }
    }
  }

  /** Full state: what this holder did not confirm is gone. */
  #sweep(): void {
    const { holder } = this.#transaction;
    for (const [name, cell] of this.#table.cells) {
      for (const held of cell.variants.all()) {
        if (held.seen !== this.#revision) this.#removal.drop(name, cell, held, holder, this.changes);
      }
    }
  }

  #put(put: Put): void {
    const cell = this.#table.cells.get(put.name) ?? new Cell();
    this.#table.cells.set(put.name, cell);
    if (cell.faults !== undefined) {
      cell.clearFaults(put.constraints);
      this.changes.touch(put.name, put.constraints);
    }
    const held = cell.variants.get(put.constraints.key);
    if (held !== undefined && sameContent(held.variant, put)) {
      held.seen = this.#revision;
      this.#confirm(put, held);
    } else {
      const variant = this.#variant(put);
      if (held === undefined) this.#add(cell, variant);
      else this.#replace(held, variant);
      this.changes.touch(put.name, put.constraints, put.aliases);
      if (variant.ttl !== undefined) this.#context.expiring(variant);
    }
  }

  /** The same content again: perhaps from one more holder, perhaps for another while. */
  #confirm(put: Put, held: Held): void {
    const { holder } = this.#transaction;
    // It may have become a member of the wildcard.
    if (addHolder(held, holder)) this.changes.touch(put.name, put.constraints);
    this.#table.recheck(held);
    const ttl = this.#ttl(put.ttlMilliseconds);
    if (ttl === undefined && held.variant.ttl === undefined) return;
    held.variant = { ...held.variant, ttl };
    // Clients that count down must hear of it, also that they need not any more.
    this.changes.touch(put.name, put.constraints);
    if (ttl !== undefined) this.#context.expiring(held.variant);
  }

  #variant(put: Put): Variant {
    const { type, version, holder } = this.#transaction;
    const payload = put.any === undefined ? undefined : this.#context.payloads.acquire(put.any);
    const metadata = put.metadata === undefined ? undefined : Buffer.from(put.metadata);
    return {
      type,
      name: put.name,
      constraints: put.constraints,
      version: put.version,
      tag: versionTag(put.version, put.constraints, payload, put.aliases, metadata),
      payload,
      aliases: put.aliases,
      ttl: this.#ttl(put.ttlMilliseconds),
      doNotCache: put.doNotCache,
      metadata,
      responseVersion: version,
      upstream: holder.upstream,
      since: this.#context.clock.now(),
      revision: this.#revision,
    };
  }

  #ttl(milliseconds: number | undefined): Ttl | undefined {
    if (milliseconds === undefined) return undefined;
    return { milliseconds, deadline: this.#context.clock.now() + milliseconds };
  }

  #add(cell: Cell, variant: Variant): void {
    const { constraints } = variant;
    cell.variants.add({
      constraints,
      variant,
      holders: [this.#transaction.holder],
      seen: this.#revision,
    });
    this.#table.variants++;
    this.#table.link(variant);
  }

  #replace(held: Held, variant: Variant): void {
    const { holder } = this.#transaction;
    const before = held.variant;
    this.#table.unlink(before);
    this.#context.payloads.release(before.payload);
    held.variant = variant;
    held.seen = this.#revision;
    this.#table.link(variant);
    addHolder(held, holder);
    this.#table.recheck(held);
    const kept = new Set(before.aliases.length === 0 ? undefined : variant.aliases);
    for (const alias of before.aliases) {
      if (kept.has(alias)) continue;
      const name = resourceName(alias);
      this.changes.touch(name, variant.constraints);
      this.#removal.answer(name, variant.constraints, this.changes);
    }
  }

  /**
   * Upstream cannot delete the predecessors of what it sends: who matches several variants gets the last received
   * (protocol §5). Nothing is dropped before all of the response is in: what it brings again is no news.
   */
  #lastWins(): void {
    const latest = new Map<Cell, { readonly name: ResourceName; readonly held: Held }>();
    for (const put of this.#transaction.puts) {
      const cell = this.#table.cells.get(put.name);
      const held = cell?.variants.get(put.constraints.key);
      if (cell === undefined || held === undefined || cell.variants.size < 2) continue;
      for (const { parameters } of this.#interested(put)) cell.bind(parameters, held);
      latest.set(cell, { name: put.name, held });
      this.changes.touch(put.name, put.constraints);
    }
    for (const [cell, { name, held }] of latest) this.#dropUnbound(cell, name, held);
  }

  #dropUnbound(cell: Cell, name: ResourceName, latest: Held): void {
    const bound = new Set<Held>([latest]);
    for (const held of cell.variants.values()) {
      for (const { interest } of this.#table.interests.seeing(name, held.constraints)) {
        const picked = this.#pick(cell, name, interest.parameters);
        if (picked !== undefined) bound.add(picked);
      }
    }
    for (const held of cell.variants.values()) {
      if (!bound.has(held)) this.#removal.drop(name, cell, held, this.#transaction.holder, this.changes);
    }
  }

  #beat(beat: Heartbeat): void {
    const held = this.#table.cells.get(beat.name)?.variants.get(beat.constraints.key);
    if (held === undefined) return;
    held.seen = this.#revision;
    held.variant = { ...held.variant, ttl: this.#ttl(beat.ttlMilliseconds) };
    this.changes.touch(beat.name, beat.constraints);
    this.#context.expiring(held.variant);
  }

  #fault(fault: ResourceFault): void {
    const { name, constraints, code } = fault;
    if (code === Code.NOT_FOUND) this.#removal.answer(name, constraints, this.changes);
    const [somebody] = this.#table.interests.seeing(name, constraints);
    if (somebody === undefined) return; // nobody could be told
    const cell = this.#table.cells.get(name) ?? new Cell();
    this.#table.cells.set(name, cell);
    cell.faults ??= new Map();
    const known = cell.faults.get(constraints.key);
    const { role } = this.#transaction.holder;
    const again = known !== undefined && sameFault(known, fault);
    const collected = (again && known.collected) || role === 'wildcard' || name === WILDCARD;
    // Forwarded once (protocol §8): upstreams that send their whole state say it each time.
    if (again && known.collected === collected) return;
    const status = Buffer.from(fault.status);
    cell.faults.set(constraints.key, { ...fault, status, revision: this.#revision, collected });
    this.changes.touch(name, constraints);
  }

  /** Why there was no wildcard for these parameters holds no longer. */
  #admitted({ selector, parameters }: Interest): void {
    const cell = selector === WILDCARD ? this.#table.cells.get(WILDCARD) : undefined;
    if (cell?.faults === undefined) return;
    for (const { constraints, revision } of cell.faults.values()) {
      if (revision !== this.#revision && constraints.matches(parameters)) cell.clearFaults(constraints);
    }
    if (cell.empty) this.#table.cells.delete(WILDCARD);
  }

  #settle(): void {
    const { settled, holder, faults } = this.#transaction;
    // Nothing but NOT_FOUND drops what is cached (protocol §8).
    const failed = new Set(faults.filter(({ code }) => code !== Code.NOT_FOUND).map(({ name }) => name));
    const confirmed: Interest[] = [];
    for (const interest of settled) {
      const state = this.#table.interests.get(interest.selector, interest.parameters);
      if (state === undefined || (state.restored && failed.has(interest.selector))) continue;
      if (state.holder?.key !== holder.key) this.#context.answered(interest);
      state.holder = holder;
      state.restored = false;
      confirmed.push(interest);
      this.#admitted(interest);
      if (!state.answered) this.changes.answer(state);
    }
    // After all of them are: what none of them needs any more goes.
    for (const interest of confirmed) this.#removal.release(interest, this.changes);
  }

  #pick(cell: Cell, name: ResourceName, parameters: Parameters): Held | undefined {
    return cell.pick(parameters, (matches) => this.#context.ambiguous(name, parameters, matches));
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

function sameFault(a: ResourceFault, b: ResourceFault): boolean {
  return a.code === b.code && a.message === b.message && sameBytes(a.status, b.status);
}

function sameBytes(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.length === b.length && Buffer.compare(a, b) === 0;
}
