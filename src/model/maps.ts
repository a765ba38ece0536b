/** A Map or a WeakMap. */
interface Table<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: Value): unknown;
}

/** What a map has under a key; what it lacks is made. Map.getOrInsertComputed does that from Node 26 on. */
export function getOrMake<Key, Value>(map: Table<Key, Value>, key: Key, make: () => NoInfer<Value>): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}
