/**
 * What a Map, a WeakMap or an LRUCache has under a key; what it lacks is made of the key. Map.getOrInsertComputed does that
 * from Node 26 on.
 */
export function getOrMake<Key, Value>(
  map: { get(key: Key): Value | undefined; set(key: Key, value: NoInfer<Value>): unknown },
  key: Key,
  make: (key: Key) => NoInfer<Value>,
): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make(key);
  map.set(key, made);
  return made;
}

/** What is made once of each object, and lasts as long as that. */
export function onceFor<Key extends object, Value>(make: (key: Key) => Value): (key: Key) => Value {
  const known = new WeakMap<Key, Value>();
  return (key) => getOrMake(known, key, make);
}

/** What is made when somebody asks for it first. */
export function lazily<Value>(make: () => Value): () => Value {
  let made: { readonly value: Value } | undefined;
  return () => (made ??= { value: make() }).value;
}

/** Gives each object a number of its own, from 1. */
export function numbering(): (one: object) => number {
  let last = 0;
  return onceFor(() => ++last);
}

/** So much more under a key, or less: what counts to nothing is not in the map. */
export function countIn<Key>(counts: Map<Key, number>, key: Key, more: number): void {
  const count = (counts.get(key) ?? 0) + more;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

/** Takes one out of what is under a key, which goes when it is empty. False: it was not there. */
export function deleteIn<Key, Item>(
  map: Map<Key, { delete(item: Item): boolean; readonly size: number }>,
  key: Key,
  item: Item,
): boolean {
  const all = map.get(key);
  if (all?.delete(item) !== true) return false;
  if (all.size === 0) map.delete(key);
  return true;
}

/** A map of which those entries go that are not in use any more. Clients may invent keys. */
export class MapInUse<Key, Value> extends Map<Key, Value> {
  readonly #leastRoom: number;
  #room: number;

  /** As long as it has fewer entries than that, nothing goes. */
  constructor(leastRoom: number) {
    super();
    this.#leastRoom = leastRoom;
    this.#room = leastRoom;
  }

  /** Costs no more than to add them did: it looks through all only when they have doubled. True: some are dropped. */
  dropUnused(isUnused: (value: Value, key: Key) => boolean): boolean {
    const { size } = this;
    if (size < this.#room) return false;
    for (const [key, value] of this) if (isUnused(value, key)) this.delete(key);
    this.#room = Math.max(this.#leastRoom, 2 * this.size);
    return this.size < size;
  }
}

/** The same things, in the same order. */
export const areSame = (a: readonly unknown[] | undefined, b: readonly unknown[]): boolean =>
  a?.length === b.length && b.every((one, at) => one === a[at]);

export const isEqual = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean =>
  a.size === b.size && a.isSubsetOf(b);
