import type { Revision } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';
import type { Holder, Restamp } from '../model/transaction.ts';
import { addHolder, Cell, type Held } from './cell.ts';
import { Changes } from './changes.ts';
import { type Payloads, versionTag } from './payloads.ts';
import { Removal } from './removal.ts';
import type { Table } from './table.ts';

interface Arrival {
  readonly variant: Variant;
  readonly to: Constraints;
  readonly holder: Holder;
}

/**
 * Puts what is held under other constraints: first everything goes, then it comes back, so that nothing looks ambiguous
 * on the way. Nobody is told that something is absent: it only has another place, or its new holder is yet to speak.
 */
export function restamp(
  table: Table,
  { moves, unsettled }: Restamp,
  revision: Revision,
  payloads: Payloads,
): Changes {
  const changes = new Changes();
  const removal = new Removal(table, payloads);
  const arrivals: Arrival[] = [];
  for (const { holder, name, from, to } of moves) {
    const cell = table.cells.get(name);
    const held = cell?.variants.get(from.key);
    const at = held?.holders.findIndex((known) => known.key === holder.key) ?? -1;
    if (cell === undefined || held === undefined || at < 0) continue;
    const { variant } = held;
    changes.touch(name, from, variant.aliases);
    if (to !== undefined) {
      const { payload } = variant;
      const kept = payload === undefined ? undefined : payloads.adopt(payload.bytes, payload.hash);
      arrivals.push({ variant: { ...variant, payload: kept }, to, holder });
    }
    held.holders.splice(at, 1);
    table.recheck(held);
    if (held.holders.length === 0) removal.forget(name, cell, held);
  }
  for (const arrival of arrivals) {
    arrive(table, arrival, revision, payloads);
    changes.touch(arrival.variant.name, arrival.to, arrival.variant.aliases);
  }
  for (const interest of unsettled) {
    const state = table.interests.get(interest.selector, interest.parameters);
    if (state === undefined) continue;
    state.answered = false;
    state.restored = false;
    state.holder = undefined;
  }
  return changes;
}

function arrive(
  table: Table,
  { variant, to, holder }: Arrival,
  revision: Revision,
  payloads: Payloads,
): void {
  const { name, version, payload, aliases, metadata } = variant;
  const cell = table.cells.get(name) ?? new Cell();
  table.cells.set(name, cell);
  const known = cell.variants.get(to.key);
  if (known !== undefined) {
    addHolder(known, holder);
    payloads.release(payload);
    return;
  }
  const tag = versionTag(version, to, payload, aliases, metadata);
  const moved: Variant = { ...variant, constraints: to, tag, revision };
  const held: Held = { constraints: to, variant: moved, holders: [holder], seen: revision };
  cell.variants.add(held);
  table.variants++;
  table.link(moved);
}
