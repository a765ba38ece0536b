import { EMPTY_SELECTION, Selection, type SelectionEntry } from '../model/selection.ts';

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
