/**
 * How much methods of a class do while something runs: each call counts as one, or as the length of the array that it
 * gives.
 */
export function workOf(prototype: object, methods: readonly string[], run: () => void): number {
  let work = 0;
  const originals = methods.map((name) => [name, Reflect.get(prototype, name) as unknown] as const);
  for (const [name, original] of originals) {
    if (typeof original !== 'function') throw new Error(`there is no method ${name}`);
    Reflect.set(prototype, name, function (this: unknown, ...of: readonly unknown[]): unknown {
      const result: unknown = Reflect.apply(original, this, of);
      work += Array.isArray(result) ? result.length : 1;
      return result;
    });
  }
  run();
  for (const [name, original] of originals) Reflect.set(prototype, name, original);
  return work;
}
