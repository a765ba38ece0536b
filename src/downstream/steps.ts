import {
  collectionCovers,
  EMPTY_SELECTION,
  entryId,
  Selection,
  type SelectionEntry,
} from '../model/selection.ts';
import type { Selector } from '../model/transaction.ts';
import { isXdstp } from '../model/xdstp.ts';

/** What a request changes. */
export interface Step {
  readonly selection: Selection;
  /** Ids of items to be sent even if the client has them: a subscribe must be answered (protocol §4.2). */
  readonly resend: ReadonlySet<string>;
  /** Names that were unsubscribed while a wildcard or glob covers them: the response says whether they exist (§4.5). */
  readonly mustAnswer: readonly SelectionEntry[];
  readonly changed: boolean;
}

export interface DeltaInput {
  /** The first request of this type on the stream. */
  readonly first: boolean;
  readonly subscribe: readonly SelectionEntry[];
  readonly unsubscribe: readonly SelectionEntry[];
  /** What an empty first request subscribes to; undefined for types without a legacy wildcard. */
  readonly wildcard: SelectionEntry | undefined;
}

const nothing: ReadonlySet<string> = new Set();

/** The step to a selection that is said as a whole. What is added is sent even if it is unchanged (protocol §3.5). */
export function stepTo(before: Selection | undefined, selection: Selection): Step {
  if (before === undefined) return { selection, resend: nothing, mustAnswer: [], changed: true };
  if (selection.equals(before)) return { selection: before, resend: nothing, mustAnswer: [], changed: false };
  const added = new Set<string>();
  for (const id of selection.entries.keys()) if (!before.has(id)) added.add(id);
  return { selection, resend: added, mustAnswer: [], changed: true };
}

/**
 * What a delta request of one type makes of the subscription. Nonces have no part in it (§4.3).
 * Pure. Subscribes are applied before unsubscribes (§4.4).
 */
export function stepDelta(before: Selection, input: DeltaInput): Step {
  const { first, subscribe, unsubscribe, wildcard } = input;
  if (first && subscribe.length === 0 && wildcard !== undefined) {
    const entries = new Map([[entryId(wildcard), wildcard]]);
    for (const selected of unsubscribe) entries.delete(entryId(selected));
    return { selection: Selection.of(entries.values()), resend: nothing, mustAnswer: [], changed: true };
  }
  if (subscribe.length === 0 && unsubscribe.length === 0) {
    return { selection: before, resend: nothing, mustAnswer: [], changed: first };
  }
  const entries = new Map(before.entries);
  const resend = new Set<string>();
  for (const selected of subscribe) {
    const id = entryId(selected);
    // Also if it is not subscribed now: a name that was unsubscribed counts as never sent (§4.5).
    if (!first) resend.add(id);
    entries.set(id, selected);
  }
  const dropped = drop(entries, unsubscribe);
  for (const selected of dropped) resend.delete(entryId(selected));
  const selection = Selection.of(entries.values());
  const mustAnswer = dropped.filter((selected) =>
    selection.collectionsOver(selected.selector).some((collection) => collectionCovers(collection, selected)),
  );
  return { selection, resend, mustAnswer, changed: true };
}

/**
 * Unsubscribes the entry with this spelling, else the equal ones: the order of context parameters does not count (protocol
 * §6). Unknown names are ignored (§4.5).
 */
function drop(
  entries: Map<string, SelectionEntry>,
  unsubscribe: readonly SelectionEntry[],
): readonly SelectionEntry[] {
  const dropped: SelectionEntry[] = [];
  let bySelector: ReadonlyMap<Selector, readonly SelectionEntry[]> | undefined;
  for (const selected of unsubscribe) {
    const exact = entries.get(entryId(selected));
    let meant = exact === undefined ? [] : [exact];
    if (exact === undefined && isXdstp(selected.spelling)) {
      bySelector ??= Map.groupBy(entries.values(), ({ selector }) => selector);
      meant = (bySelector.get(selected.selector) ?? []).filter(
        ({ locator, parameters }) => locator === selected.locator && parameters === selected.parameters,
      );
    }
    for (const one of meant) if (entries.delete(entryId(one))) dropped.push(one);
  }
  return dropped;
}

/** What the names in SotW requests of one type subscribe to. Pure: no I/O, no clock. */
export class SotwNames {
  #hasNamed = false;

  get hasNamed(): boolean {
    return this.#hasNamed;
  }

  /** A request named something. */
  named(): void {
    this.#hasNamed = true;
  }

  /**
   * What the client subscribes to from now on, given the selected names and locators of its request. Nothing named yet
   * means everything, for types that have a legacy wildcard; after any explicit name it means nothing, and so do empty
   * names alone (§3.6).
   */
  selection(selected: readonly SelectionEntry[], wildcard: SelectionEntry | undefined): Selection {
    if (selected.length > 0) this.#hasNamed = true;
    else if (!this.#hasNamed && wildcard !== undefined) return Selection.of([wildcard]);
    return selected.every(({ spelling }) => spelling === '') ? EMPTY_SELECTION : Selection.of(selected);
  }
}
