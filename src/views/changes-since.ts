import type { Change } from './change.ts';
import { valueAt } from './item.ts';
import type { View } from './view.ts';

/** The changes of a view since a revision (-1: all of it), and the items that must be resent. */
export function* changesSince(
  view: View,
  from: number,
  resend: ReadonlySet<string> | undefined,
): Iterable<Change> {
  const items = from < 0 ? view.items.values() : view.changedSince(from);
  for (const item of items) {
    const lastSent = from < 0 ? undefined : valueAt(item, from);
    yield {
      item,
      now: item.last.value,
      lastSent,
      clientVersion: undefined,
      resend: resend?.has(item.id) === true,
    };
  }
  if (resend === undefined || from < 0) return;
  for (const id of resend) {
    const item = view.items.get(id);
    if (item === undefined || item.last.revision > from) continue;
    yield {
      item,
      now: item.last.value,
      lastSent: valueAt(item, from),
      clientVersion: undefined,
      resend: true,
    };
  }
}
