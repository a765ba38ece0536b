import { type Item, pruneChain } from './item.ts';

/** How much longer than its items a view's history may be before it is pruned. */
const slack = 64;

const none: readonly never[] = [];

interface ChangeLogEntry {
  readonly revision: number;
  readonly item: Item;
}

/** Which items of a view changed when, back to the oldest position of a cursor. */
export class ChangeLog {
  #entries: ChangeLogEntry[] = [];

  add(revision: number, item: Item): void {
    this.#entries.push({ revision, item });
  }

  /** The items that changed after a revision, each once, in the order of their last change. */
  *since(revision: number): Iterable<Item> {
    let index = this.#entries.length;
    while (index > 0 && (this.#entries[index - 1]?.revision ?? 0) > revision) index--;
    for (; index < this.#entries.length; index++) {
      const entry = this.#entries[index];
      if (entry !== undefined && entry.item.last.revision === entry.revision) yield entry.item;
    }
  }

  /** Forgets everything, and returns the items that were in it; one may be there several times. */
  clear(): readonly Item[] {
    if (this.#entries.length === 0) return none;
    const items = this.#entries.map(({ item }) => item);
    this.#entries = [];
    return items;
  }

  isLong(items: number): boolean {
    return this.#entries.length > items + slack;
  }

  /** Forgets what lies between these positions of cursors. */
  prune(revisions: ReadonlySet<number>, head: number): void {
    const positions = [...revisions].toSorted((a, b) => a - b);
    for (const { item } of this.#entries) pruneChain(item.last, positions);
    const oldest = positions[0] ?? head;
    this.#entries = this.#entries.filter(
      ({ revision, item }) => revision > oldest && item.last.revision === revision,
    );
  }

  /** Forgets the items that a view has dropped. */
  dropMissing(items: ReadonlyMap<string, Item>): void {
    this.#entries = this.#entries.filter(({ item }) => items.get(item.id) === item);
  }
}
