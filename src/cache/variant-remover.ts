import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import { coversResource } from '../model/selection.ts';
import {
  type Holder,
  type Interest,
  type Selector,
  type Transaction,
  WILDCARD,
} from '../model/transaction.ts';
import { type CachedResource, type CacheEntry, hasHolder } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import { isNeeded } from './restored.ts';
import type { TypeTable } from './type-table.ts';

/** How variants leave the cache. */
export class VariantRemover {
  readonly #table: TypeTable;
  readonly #unwanted: boolean;
  /** Upstream itself has said that the resource does not exist. */
  readonly #saidByUpstream: boolean;
  readonly #unanswered = new Map<Selector, Set<Parameters>>();

  /** `unwanted`: nobody subscribes to it any more; that says nothing about what upstream has. */
  constructor(table: TypeTable, said?: Pick<Transaction, 'unwanted' | 'unanswered'>) {
    this.#unwanted = said?.unwanted === true;
    this.#saidByUpstream = said !== undefined && !this.#unwanted;
    for (const { selector, parameters } of said?.unanswered ?? []) {
      const waiting = this.#unanswered.get(selector);
      if (waiting === undefined) this.#unanswered.set(selector, new Set([parameters]));
      else waiting.add(parameters);
    }
    this.#table = table;
  }

  /** This holder does not have the variant any more. Without holders, it is removed. */
  drop(
    name: ResourceName,
    cached: CachedResource,
    entry: CacheEntry,
    holder: Holder,
    changes: CommitChanges,
  ): void {
    if (!hasHolder(entry, holder)) return;
    changes.touch(name, entry.constraints, entry.variant.aliases);
    this.#table.removeHolder(entry, holder);
    if (entry.holders.length > 0) return;
    // Earlier errors of this resource are cleared. An error beside a missing resource would mean that it is not
    // deleted (protocol §8).
    if (this.#saidByUpstream) cached.clearErrors(entry.constraints);
    this.#table.remove(name, cached, entry);
    // Interests in the name that are not resolved yet may still get another variant. That the wildcard lost this one,
    // or that nobody subscribes to it, does not resolve them.
    if (this.#unwanted || holder.role === 'wildcard') return;
    this.resolveNamed(name, entry.constraints, changes);
    for (const alias of entry.variant.aliases)
      this.resolveNamed(resourceName(alias), entry.constraints, changes);
  }

  /** An interest was confirmed or has ended: restored variants that it sees and no other interest needs are removed. */
  releaseRestored({ selector, parameters }: Interest, changes: CommitChanges): void {
    const { restored, resources } = this.#table;
    if (restored.size === 0) return;
    const names = [selector, ...this.#table.aliased(selector), ...this.#table.names(selector)];
    const candidates =
      selector === WILDCARD
        ? [...restored]
        : names.flatMap((name) => resources.get(name)?.variants.values() ?? []);
    for (const entry of candidates) {
      const { name } = entry.variant;
      const cached = resources.get(name);
      if (
        cached === undefined ||
        !coversResource(selector, entry.variant) ||
        !entry.constraints.matches(parameters)
      )
        continue;
      for (const holder of entry.holders.filter(({ restored: is }) => is)) {
        if (!isNeeded(this.#table, entry, holder)) this.drop(name, cached, entry, holder, changes);
      }
    }
  }

  /** Resolves the interests in this name: the resource is absent. */
  resolveNamed(name: ResourceName, constraints: Constraints, changes: CommitChanges): void {
    for (const state of this.#table.interests.named(name)?.matching(constraints) ?? []) {
      if (state.answer === undefined && !this.#isPending(state.interest)) changes.resolve(state);
    }
  }

  #isPending({ selector, parameters }: Interest): boolean {
    return this.#unanswered.get(selector)?.has(parameters) === true;
  }
}
