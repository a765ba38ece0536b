import type { Change } from './compose.ts';
import { valueAt } from './item.ts';
import type { View } from './view.ts';

/** A view's changes since a revision, -1 for all, and what is owed besides. */
export function* changesSince(
  view: View,
  from: number,
  owed: ReadonlySet<string> | undefined,
): Iterable<Change> {
  const items = from < 0 ? view.items.values() : view.changedSince(from);
  for (const item of items) {
    const held = from < 0 ? undefined : valueAt(item, from);
    yield { item, now: item.last.value, held, claimed: undefined, forced: owed?.has(item.id) === true };
  }
  if (owed === undefined || from < 0) return;
  for (const id of owed) {
    const item = view.items.get(id);
    if (item === undefined || item.last.revision > from) continue;
    yield { item, now: item.last.value, held: valueAt(item, from), claimed: undefined, forced: true };
  }
}
