import type { Plain } from '../admin/plain.ts';
import type { TypeStatus } from '../gen/distributary/admin/v1/admin_pb.ts';
import { knownTypes } from '../model/types.ts';
import { OTHER_TYPES, TypeLabels } from '../observe/metrics.ts';
import type { Relay } from '../relay.ts';
import type { ClientsStatus } from './clients-view.ts';

/** Clients can name any type: unknown types that nobody serves share a row, and so do those after the first few. */
export function typeRows(relay: Relay, subscribed: ClientsStatus['types']): Plain<TypeStatus>[] {
  const labels = new TypeLabels((type) => relay.store.variants(type) > 0);
  const rows = new Map<string, Plain<TypeStatus>>();
  const rowOf = (type: string): Plain<TypeStatus> => {
    const row = rows.get(type) ?? { type, resources: 0, variants: 0, subscriptions: 0, ambiguous: 0 };
    rows.set(type, row);
    return row;
  };
  for (const [type, table] of relay.store.tables) {
    const row = rowOf(labels.of(type));
    row.resources += table.resourceCount;
    row.variants += table.variants;
    row.ambiguous += table.ambiguousCount;
  }
  for (const { type, subscriptions } of subscribed) {
    // Each worker names the first unknown types that it met: others than this process, perhaps.
    const known = rows.has(type) || knownTypes.some(({ short }) => short === type);
    rowOf(known ? type : OTHER_TYPES).subscriptions += subscriptions;
  }
  return [...rows.values()];
}
