import type { Revision } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import { deltaVersionOf } from '../model/payloads.ts';
import type { Variant } from '../model/resource.ts';
import type { Holder, Restamp } from '../model/transaction.ts';
import { type CacheEntry, hasHolder } from './cached-resource.ts';
import { CommitChanges } from './commit-changes.ts';
import type { Column, TypeTable } from './type-table.ts';

interface Arrival {
  readonly variant: Variant;
  readonly to: Constraints;
  readonly holder: Holder;
}

/**
 * Gives the variants of a holder in one column other constraints. All are taken out first and then put back, so that no two
 * variants match the same parameters on the way. Nothing becomes absent: a variant has new constraints, or its new
 * session has not answered yet.
 */
export function restamp(
  table: TypeTable,
  { moves, unresolved }: Restamp,
  column: Column,
  revision: Revision,
): CommitChanges {
  const changes = new CommitChanges();
  const arrivals: Arrival[] = [];
  for (const { holder, name, from, to } of moves) {
    const cached = table.own(name, column);
    const entry = cached?.variants.get(from.key);
    if (cached === undefined || entry === undefined || !hasHolder(entry, holder)) continue;
    const { variant } = entry;
    changes.touch(name, from, variant.aliases);
    if (to !== undefined) {
      const { payload } = variant;
      const adopted = payload && table.payloads.adopt(payload.bytes, payload.hash);
      arrivals.push({ variant: { ...variant, payload: adopted }, to, holder });
    }
    table.removeHolder(entry, holder, column);
    if (entry.holders.length === 0) table.remove(name, cached, entry, column);
  }
  for (const arrival of arrivals) {
    const { variant } = arrive(table, arrival, column, revision);
    // Its timer is for the variant with these constraints.
    table.expiring(variant);
    changes.touch(arrival.variant.name, arrival.to, arrival.variant.aliases);
  }
  for (const interest of column === 'said' ? unresolved : []) {
    const state = table.interests.get(interest.selector, interest.parameters);
    if (state === undefined) continue;
    state.answer = undefined;
    state.holder = undefined;
  }
  return changes;
}

function arrive(
  table: TypeTable,
  { variant, to, holder }: Arrival,
  column: Column,
  revision: Revision,
): CacheEntry {
  const { name, version, payload, aliases, metadata } = variant;
  const cached = table.place(name, column);
  const known = cached.variants.get(to.key);
  if (known !== undefined) {
    table.addHolder(known, holder, column);
    table.payloads.release(payload);
    return known;
  }
  const deltaVersion = deltaVersionOf(version, to, payload, aliases, metadata);
  const moved: Variant = { ...variant, constraints: to, deltaVersion, revision };
  const entry: CacheEntry = { constraints: to, variant: moved, holders: [holder], confirmedIn: revision };
  table.add(cached, entry, column);
  return entry;
}
