import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import {
  type Holder,
  type Interest,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { type Cell, type Held, isRestored } from './cell.ts';
import type { Changes } from './changes.ts';
import type { Payloads } from './payloads.ts';
import { isNeeded, isSelected } from './restored.ts';
import type { Table } from './table.ts';

/** How variants leave the cache. */
export class Removal {
  readonly #table: Table;
  readonly #payloads: Payloads;
  readonly #unwanted: boolean;
  /** Upstream says so, and nothing else of it any more. */
  readonly #said: boolean;
  readonly #pending = new Map<Selector, Set<Parameters>>();

  /** `unwanted`: nobody wants what goes; that says nothing about what upstream has. */
  constructor(table: Table, payloads: Payloads, said?: Pick<Transaction, 'unwanted' | 'pending'>) {
    this.#unwanted = said?.unwanted === true;
    this.#said = said !== undefined && !this.#unwanted;
    for (const { selector, parameters } of said?.pending ?? []) {
      const waiting = this.#pending.get(selector);
      if (waiting === undefined) this.#pending.set(selector, new Set([parameters]));
      else waiting.add(parameters);
    }
    this.#table = table;
    this.#payloads = payloads;
  }

  /** This holder has it no longer; the last one takes it along. */
  drop(name: ResourceName, cell: Cell, held: Held, holder: Holder, changes: Changes): void {
    const at = held.holders.findIndex((known) => known.key === holder.key);
    if (at < 0) return;
    held.holders.splice(at, 1);
    this.#table.recheck(held);
    changes.touch(name, held.constraints, held.variant.aliases);
    if (held.holders.length > 0) return;
    // What was wrong with it before is over: told beside a lack, it would mean that there is no deletion (protocol §8).
    if (this.#said) cell.clearFaults(held.constraints);
    this.forget(name, cell, held);
    // Who was not answered by name yet may be answered with another variant: that a wildcard lost this one, or that
    // nobody wants it, says nothing about that.
    if (this.#unwanted || holder.role === 'wildcard') return;
    this.answer(name, held.constraints, changes);
    for (const alias of held.variant.aliases) this.answer(resourceName(alias), held.constraints, changes);
  }

  forget(name: ResourceName, cell: Cell, held: Held): void {
    cell.remove(held);
    this.#table.restored.delete(held);
    this.#table.variants--;
    this.#table.unlink(held.variant);
    this.#payloads.release(held.variant.payload);
    if (cell.empty) this.#table.cells.delete(name);
  }

  /** An interest was confirmed, or has ended: what was restored, is seen by it and is not needed any more goes. */
  release({ selector, parameters }: Interest, changes: Changes): void {
    const { restored, cells } = this.#table;
    if (restored.size === 0) return;
    const names = [selector, ...this.#table.aliased(selector), ...cells.under(selector)];
    const candidates =
      selector === WILDCARD
        ? [...restored]
        : names.flatMap((name) => cells.get(name)?.variants.values() ?? []);
    for (const held of candidates) {
      const { name } = held.variant;
      const cell = cells.get(name);
      if (cell === undefined || !isSelected(selector, held) || !held.constraints.matches(parameters))
        continue;
      for (const holder of held.holders.filter(isRestored)) {
        if (!isNeeded(this.#table, held, holder)) this.drop(name, cell, held, holder, changes);
      }
    }
  }

  /** Those who asked for it by name know now that it is not there. */
  answer(name: ResourceName, constraints: Constraints, changes: Changes): void {
    for (const state of this.#table.interests.named(name)?.matching(constraints) ?? []) {
      if (!state.answered && !this.#isPending(state.interest)) changes.answer(state);
    }
  }

  #isPending({ selector, parameters }: Interest): boolean {
    return this.#pending.get(selector)?.has(parameters) === true;
  }
}
