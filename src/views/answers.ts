import { isVariant } from '../model/catalog.ts';
import { covers, isCollection, type Selected, selectedId } from '../model/selection.ts';
import { isGlob } from '../model/xdstp.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/**
 * What a delta client must be told of as present or absent, as soon as that is known: what it has unsubscribed under a
 * wildcard (protocol §4.5), and globs, which may be empty (§6).
 */
export class Answers {
  /** Made when it is needed: most clients never expect anything. */
  #expected: Map<string, Selected> | undefined;

  get empty(): boolean {
    return this.#expected === undefined || this.#expected.size === 0;
  }

  has(id: string): boolean {
    return this.#expected?.has(id) === true;
  }

  add(selected: Selected): void {
    this.#expected ??= new Map();
    this.#expected.set(selectedId(selected), selected);
  }

  /** An empty glob is told by its URL when it is subscribed. */
  addGlobs(collections: readonly Selected[]): void {
    for (const selected of collections) if (isGlob(selected.selector)) this.add(selected);
  }

  /** What of it a view knows to be absent, by id. */
  *absentIn(view: View): Iterable<readonly [id: string, selected: Selected]> {
    const outcomes = new Outcomes(view);
    for (const [id, selected] of this.#expected ?? none) {
      if (outcomes.of(id, selected) === 'absent') yield [id, selected];
    }
  }

  /** All of it that the view knows has been told. */
  toldBy(view: View): void {
    if (this.empty) return;
    const outcomes = new Outcomes(view);
    for (const [id, selected] of this.#expected ?? none) {
      if (outcomes.of(id, selected) !== 'unknown') this.#expected?.delete(id);
    }
  }
}

/** What a view knows of several selections. Valid while it does not change. */
class Outcomes {
  readonly #view: View;
  /** The globs that show something. */
  #filled: Set<Selected> | undefined;

  constructor(view: View) {
    this.#view = view;
  }

  of(id: string, selected: Selected): 'present' | 'absent' | 'unknown' {
    const { selector, locator, parameters } = selected;
    const view = this.#view;
    if (isCollection(selector)) return this.#ofCollection(id);
    const item = view.items.get(id) ?? view.itemOf(locator, parameters, selector);
    const value = item?.last.value;
    if (isVariant(value)) return 'present';
    if (value !== undefined) return value;
    const covering = view.selection.collecting(selector).filter((collection) => covers(collection, selected));
    if (covering.some((collection) => !view.answered(collection))) return 'unknown';
    return covering.length > 0 ? 'absent' : 'present';
  }

  #ofCollection(id: string): 'present' | 'absent' | 'unknown' {
    const collection = this.#view.selection.entries.get(id);
    if (collection === undefined) return 'present'; // unsubscribed in the meantime: nothing needs to be said
    if (!this.#view.answered(collection)) return 'unknown';
    this.#filled ??= filledIn(this.#view);
    return this.#filled.has(collection) ? 'present' : 'absent';
  }
}

function filledIn({ items, selection }: View): Set<Selected> {
  const filled = new Set<Selected>();
  for (const { name: selector, locator, parameters, last } of items.values()) {
    if (!isVariant(last.value)) continue;
    for (const collection of selection.collecting(selector)) {
      if (covers(collection, { selector, locator, parameters })) filled.add(collection);
    }
  }
  return filled;
}
