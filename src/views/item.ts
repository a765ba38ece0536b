import type { ResourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Holding, ItemState } from '../model/subscription.ts';

/** What was visible from a revision on. */
interface HistoryEntry {
  readonly revision: number;
  readonly value: Value;
  older: HistoryEntry | undefined;
}

/** One resource as one form and parameter set of a view shows it, with its history. */
export interface Item {
  readonly id: string;
  readonly name: ResourceName;
  readonly spelling: string;
  readonly locator: boolean;
  readonly parameters: Parameters;
  /** Subscribed by its name, not only as a member of a wildcard or glob. */
  readonly named: boolean;
  last: HistoryEntry;
}

/** What the item showed at a revision; undefined if it was not there yet. */
export function valueAt(item: Item, revision: number): Value | undefined {
  let entry: HistoryEntry | undefined = item.last;
  while (entry !== undefined && entry.revision > revision) entry = entry.older;
  return entry?.value;
}

/** For inspection: each item, what a client was last sent of it, and what the client said to that. */
export function* holdings(
  items: Iterable<[string, Item]>,
  stateOf: (id: string, lastSent: Value | undefined) => ItemState,
  lastSentOf: (id: string) => Value | undefined,
): Iterable<Holding> {
  for (const [id, item] of items) {
    const value = lastSentOf(id);
    yield holding(item, value, stateOf(id, value));
  }
}

function holding(
  { name, spelling, parameters, last }: Item,
  value: Value | undefined,
  { state, rejection }: ItemState,
): Holding {
  return {
    name: spelling,
    canonical: name,
    parameters,
    value,
    current: value === last.value,
    state,
    rejection,
  };
}

/** Whether any entry of its history is a resource. */
export function everShown(item: Item): boolean {
  for (let entry: HistoryEntry | undefined = item.last; entry !== undefined; entry = entry.older) {
    if (isVariant(entry.value)) return true;
  }
  return false;
}

/** Keeps the newest entry, and for each of these positions of cursors, in ascending order, the newest that it sees. */
export function pruneChain(newest: HistoryEntry, positions: readonly number[]): void {
  let kept = newest;
  for (let index = positions.length - 1; index >= 0; index--) {
    const revision = positions[index] ?? 0;
    if (kept.revision <= revision) continue;
    let entry = kept.older;
    while (entry !== undefined && entry.revision > revision) entry = entry.older;
    kept.older = entry;
    if (entry === undefined) return;
    kept = entry;
  }
  kept.older = undefined;
}
