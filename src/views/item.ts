import { type ResourceName, revision, type TypeUrl } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { UNCONSTRAINED } from '../model/constraints.ts';
import type { Variant } from '../model/resource.ts';
import type { SelectionEntry } from '../model/selection.ts';
import type { Encoding, Holding, ItemState } from '../model/subscription.ts';

/** What was visible from a revision on. */
interface HistoryEntry {
  readonly revision: number;
  readonly value: Value;
  older: HistoryEntry | undefined;
}

/** How something is subscribed: by a plain name or a locator, and for which parameters. */
export type Form = Pick<SelectionEntry, 'locator' | 'parameters'>;

/** Whether what both show of a name is one item. Of plain names all do, whatever their parameters. */
export const areOne = (a: Form, b: Form): boolean =>
  a.locator === b.locator && (!a.locator || a.parameters === b.parameters);

/** One resource as one form and parameter set of a view shows it, with its history. */
export interface Item extends Form {
  readonly id: string;
  readonly name: ResourceName;
  readonly requestedName: string;
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
  items: Iterable<Item>,
  stateOf: (id: string, lastSent: Value | undefined) => ItemState,
  lastSentOf: (id: string) => Value | undefined,
): Iterable<Holding> {
  for (const { id, name, requestedName, parameters, named, last } of items) {
    const value = lastSentOf(id);
    yield {
      name: requestedName,
      canonical: name,
      parameters,
      value,
      current: value === last.value,
      missing: named && last.value === 'absent',
      ...stateOf(id, value),
    };
  }
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

/** What a view shows, by id. */
export type Items = ReadonlyMap<string, Item> | LayeredItems;

/**
 * The items that a view has of its own, for the names of its selection, over those of the view of its wildcards and
 * globs alone. A thousand clients with a wildcard and a name of their own share the items of the wildcard:
 *
 *     view of *          a, b, c, … 5,000 items
 *     view of *, x       x, over those of *
 *     view of *, b       b, over those of * without b
 */
export class LayeredItems {
  readonly #own: ReadonlyMap<string, Item>;
  readonly #base: ReadonlyMap<string, Item>;
  /** Whether an item of the base is shown by an item of the view's own. */
  readonly #hides: (item: Item) => boolean;

  constructor(
    own: ReadonlyMap<string, Item>,
    base: ReadonlyMap<string, Item>,
    hides: (item: Item) => boolean,
  ) {
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

  *values(): IteratorObject<Item, undefined> {
    yield* this.#own.values();
    for (const item of this.#base.values()) if (!this.#hides(item)) yield item;
  }
}

/** How much longer than its items a view's history may be before it is pruned. */
const slack = 64;

const none: readonly never[] = [];

/** Which items of a view changed when, back to the oldest position of a cursor. */
export class ChangeLog {
  #entries: {
    readonly revision: number;
    readonly item: Item;
  }[] = [];

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

/** The subscriber's spelling, unless it subscribed by an alias: then the resource's own name. */
export function nameOf(item: Item, variant: Variant): string {
  return item.name === variant.name ? item.requestedName : variant.name;
}

/** Whether it is sent with its constraints. */
export const isConstrained = (item: Item, variant: Variant, { constrained }: Encoding): boolean =>
  item.locator || (constrained && variant.constraints.key !== '');

/** What it is known by in a response. In SotW the name is the one in the body, however the client spells it (protocol §6). */
export function sentName(item: Item, variant: Variant, encoding: Encoding): string {
  const isInBody =
    encoding.protocol === 'sotw' && !encoding.wrapped && !isConstrained(item, variant, encoding);
  return isInBody ? variant.name : nameOf(item, variant);
}

/** A resource of which nothing but its name is known. */
export const withoutBody = (type: TypeUrl, name: ResourceName, aliases: readonly string[] = []): Variant => ({
  type,
  name,
  constraints: UNCONSTRAINED,
  version: '',
  deltaVersion: '',
  payload: undefined,
  aliases,
  ttl: undefined,
  doNotCache: false,
  metadata: undefined,
  responseVersion: '',
  upstream: '',
  cachedSince: 0,
  revision: revision(0),
});
