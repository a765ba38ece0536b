import type { Item } from './item.ts';

/** What a view shows, by id. */
export interface Items {
  readonly size: number;
  get(id: string): Item | undefined;
  has(id: string): boolean;
  keys(): IteratorObject<string, undefined>;
  values(): IteratorObject<Item, undefined>;
  [Symbol.iterator](): IteratorObject<[string, Item], undefined>;
}

/**
 * The items that a view has of its own, for the names of its selection, over those of the view of its wildcards and
 * globs alone. A thousand clients with a wildcard and a name of their own share the items of the wildcard:
 *
 *     view of *          a, b, c, … 5,000 items
 *     view of *, x       x, over those of *
 *     view of *, b       b, over those of * without b
 */
export class LayeredItems implements Items {
  readonly #own: ReadonlyMap<string, Item>;
  readonly #base: Items;
  /** Whether an item of the base is shown by an item of the view's own. */
  readonly #hides: (item: Item) => boolean;

  constructor(own: ReadonlyMap<string, Item>, base: Items, hides: (item: Item) => boolean) {
    this.#own = own;
    this.#base = base;
    this.#hides = hides;
  }

  get size(): number {
    let hidden = 0;
    for (const { id, name } of this.#own.values()) {
      // A name that the client spells differently hides its member, which has another id.
      const member = this.#base.get(id) ?? this.#base.get(id.slice(0, id.indexOf(' ') + 1) + name);
      if (member !== undefined && this.#hides(member)) hidden++;
    }
    return this.#own.size + this.#base.size - hidden;
  }

  get(id: string): Item | undefined {
    const own = this.#own.get(id);
    if (own !== undefined) return own;
    const item = this.#base.get(id);
    return item === undefined || this.#hides(item) ? undefined : item;
  }

  has(id: string): boolean {
    return this.get(id) !== undefined;
  }

  *keys(): IteratorObject<string, undefined> {
    for (const { id } of this.values()) yield id;
  }

  *values(): IteratorObject<Item, undefined> {
    yield* this.#own.values();
    for (const item of this.#base.values()) if (!this.#hides(item)) yield item;
  }

  *[Symbol.iterator](): IteratorObject<[string, Item], undefined> {
    for (const item of this.values()) yield [item.id, item];
  }
}
