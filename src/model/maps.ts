/** A Map, a WeakMap or an LRUCache. */
interface Table<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: NoInfer<Value>): unknown;
}

/** What a map has under a key; what it lacks is made. Map.getOrInsertComputed does that from Node 26 on. */
export function getOrMake<Key, Value>(
  map: Table<Key, Value>,
  key: Key,
  make: (key: Key) => NoInfer<Value>,
): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make(key);
  map.set(key, made);
  return made;
}

/** Gives each object a number of its own, from 1. */
export function numbering(): (one: object) => number {
  const numbers = new WeakMap<object, number>();
  let last = 0;
  return (one) => getOrMake(numbers, one, () => ++last);
}

/** So much more under a key, or less: what counts to nothing is not in the map. */
export function countIn<Key>(counts: Map<Key, number>, key: Key, more: number): void {
  const count = (counts.get(key) ?? 0) + more;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}
