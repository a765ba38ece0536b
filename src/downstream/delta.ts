import { type Selected, Selection, selectedId } from '../model/selection.ts';
import { WILDCARD } from '../model/transaction.ts';

/** What a delta request changes. */
export interface DeltaStep {
  readonly selection: Selection;
  /** Ids of items to be sent even if the client has them: a subscribe must be answered (protocol §4.2). */
  readonly again: ReadonlySet<string>;
  /** Plain names whose presence or absence must be told: unsubscribed under a wildcard (§4.5). */
  readonly answer: readonly string[];
  readonly changed: boolean;
}

export interface DeltaInput {
  /** The first request of this type on the stream. */
  readonly first: boolean;
  readonly subscribe: readonly Selected[];
  readonly unsubscribe: readonly Selected[];
  /** What an empty first request subscribes to; undefined for types without a legacy wildcard. */
  readonly wildcard: Selected | undefined;
}

const nothing: ReadonlySet<string> = new Set();

/**
 * The delta conversation of one type: what a request makes of the subscription. Nonces do not come into it (§4.3).
 * Pure. Subscribes are applied before unsubscribes (§4.4).
 */
export function stepDelta(before: Selection, input: DeltaInput): DeltaStep {
  const { first, subscribe, unsubscribe, wildcard } = input;
  if (first && subscribe.length === 0 && wildcard !== undefined) {
    const entries = new Map([[selectedId(wildcard), wildcard]]);
    for (const selected of unsubscribe) entries.delete(selectedId(selected));
    return { selection: Selection.of(entries.values()), again: nothing, answer: [], changed: true };
  }
  if (subscribe.length === 0 && unsubscribe.length === 0) {
    return { selection: before, again: nothing, answer: [], changed: first };
  }
  const entries = new Map(before.entries);
  const again = new Set<string>();
  for (const selected of subscribe) {
    const id = selectedId(selected);
    if (entries.has(id)) again.add(id);
    entries.set(id, selected);
  }
  const answer: string[] = [];
  for (const selected of unsubscribe) {
    const id = selectedId(selected);
    if (!entries.delete(id)) continue; // unknown names are ignored (§4.5)
    again.delete(id);
    if (selected.locator || selected.selector === WILDCARD) continue;
    if (![...entries.values()].some(({ selector, locator }) => selector === WILDCARD && !locator)) continue;
    again.add(id);
    answer.push(selected.spelling);
  }
  return { selection: Selection.of(entries.values()), again, answer, changed: true };
}
