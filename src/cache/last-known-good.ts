import { asRestored } from '../model/restored-holder.ts';
import { isCollection } from '../model/selection.ts';
import type { Holder, Interest, Transaction } from '../model/transaction.ts';
import { addHolder, type CacheEntry } from './cached-resource.ts';
import type { CommitChanges } from './commit-changes.ts';
import { hasContent } from './interest-content.ts';
import type { TypeTable } from './type-table.ts';

/**
 * What another relay has in its cache, while upstream is away (docs/adr/0126-siblings.md). It is as good as what was
 * restored from disk: upstream's own answer takes its place. It is never better than what this relay has, so it removes
 * nothing, replaces nothing, and resolves only what is unresolved.
 */

/** The holder of what a transaction adds. */
export function holderOf({ holder, lastKnownGood }: Transaction): Holder {
  return lastKnownGood ? asRestored(holder) : holder;
}

/** A variant that is cached stays as it is. It may have become a member of the wildcard, or be subscribed by name. */
export function keep(
  table: TypeTable,
  entry: CacheEntry,
  { holder }: Transaction,
  changes: CommitChanges,
): void {
  if (entry.holders.some(({ role }) => role === holder.role)) return;
  changes.touch(entry.variant.name, entry.constraints);
  addHolder(entry, asRestored(holder));
  table.restored.add(entry);
}

/** Resolves the interests that upstream has not answered, until it does. */
export function resolveForNow(
  table: TypeTable,
  { resolved, holder }: Transaction,
  changes: CommitChanges,
  holderChanged: (interest: Interest) => void,
): void {
  for (const interest of resolved) {
    const state = table.interests.get(interest.selector, interest.parameters);
    if (state === undefined || state.resolved) continue;
    // That another relay does not have it says nothing.
    if (!isCollection(interest.selector) && !hasContent(table, interest)) continue;
    state.holder = holder;
    state.restored = true;
    holderChanged(state.interest);
    changes.resolve(state);
  }
}
