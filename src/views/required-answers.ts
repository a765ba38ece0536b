import { isVariant } from '../model/catalog.ts';
import { collectionCovers, entryId, isCollection, type SelectionEntry } from '../model/selection.ts';
import { isGlob } from '../model/xdstp.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/**
 * Names that a delta response must mention, as present or as absent, as soon as that is known: names that were
 * unsubscribed while a wildcard covers them (protocol §4.5), and globs, which may be empty (§6).
 */
export class RequiredAnswers {
  /** Made when it is needed: most clients require nothing. */
  #required: Map<string, SelectionEntry> | undefined;

  get empty(): boolean {
    return this.#required === undefined || this.#required.size === 0;
  }

  has(id: string): boolean {
    return this.#required?.has(id) === true;
  }

  add(selected: SelectionEntry): void {
    this.#required ??= new Map();
    this.#required.set(entryId(selected), selected);
  }

  /** The answer to an empty glob is its URL as removed (protocol §6). */
  addGlobs(collections: readonly SelectionEntry[]): void {
    for (const selected of collections) if (isGlob(selected.selector)) this.add(selected);
  }

  /** Those that a view knows to be absent, by id. */
  *absentIn(view: View): Iterable<readonly [id: string, selected: SelectionEntry]> {
    const states = new AnswerStates(view);
    for (const [id, selected] of this.#required ?? none) {
      if (states.of(id, selected) === 'absent') yield [id, selected];
    }
  }

  /** A response has had all that the view knows. */
  dropAnswered(view: View): void {
    if (this.empty) return;
    const states = new AnswerStates(view);
    for (const [id, selected] of this.#required ?? none) {
      if (states.of(id, selected) !== 'unknown') this.#required?.delete(id);
    }
  }
}

/** What a view knows of several selectors. Valid while it does not change. */
class AnswerStates {
  readonly #view: View;
  /** The globs that show something. */
  #filled: Set<SelectionEntry> | undefined;

  constructor(view: View) {
    this.#view = view;
  }

  of(id: string, selected: SelectionEntry): 'present' | 'absent' | 'unknown' {
    const { selector, locator, parameters } = selected;
    const view = this.#view;
    if (isCollection(selector)) return this.#ofCollection(id);
    const item = view.items.get(id) ?? view.itemOf(locator, parameters, selector);
    const value = item?.last.value;
    if (isVariant(value)) return 'present';
    if (value !== undefined) return value;
    const covering = view.selection
      .collectionsOver(selector)
      .filter((collection) => collectionCovers(collection, selected));
    if (covering.some((collection) => !view.isResolved(collection))) return 'unknown';
    return covering.length > 0 ? 'absent' : 'present';
  }

  #ofCollection(id: string): 'present' | 'absent' | 'unknown' {
    const collection = this.#view.selection.entries.get(id);
    if (collection === undefined) return 'present'; // unsubscribed in the meantime: nothing needs to be said
    if (!this.#view.isResolved(collection)) return 'unknown';
    this.#filled ??= filledIn(this.#view);
    return this.#filled.has(collection) ? 'present' : 'absent';
  }
}

function filledIn({ items, selection }: View): Set<SelectionEntry> {
  const filled = new Set<SelectionEntry>();
  for (const { name: selector, locator, parameters, last } of items.values()) {
    if (!isVariant(last.value)) continue;
    for (const collection of selection.collectionsOver(selector)) {
      if (collectionCovers(collection, { selector, locator, parameters })) filled.add(collection);
    }
  }
  return filled;
}
