import { type ParametersKey, parametersKey } from './brand.ts';

/** A set of TP2 dynamic parameters. Instances are interned: equal sets are the same object. */
export interface Parameters {
  readonly key: ParametersKey;
  /** A small number, unique in the process while the set is in use. */
  readonly id: number;
  readonly entries: ReadonlyMap<string, string>;
}

const interned = new Map<ParametersKey, WeakRef<Parameters>>();
const forget = new FinalizationRegistry<ParametersKey>((key) => {
  if (interned.get(key)?.deref() === undefined) interned.delete(key);
});
let nextId = 1;

/** The one object for these parameters. Keys and values are compared exactly, case-sensitively (protocol §5). */
export function internParameters(entries: Iterable<readonly [string, string]>): Parameters {
  const sorted = [...new Map(entries)].toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const key = parametersKey(sorted.length === 0 ? '' : JSON.stringify(sorted));
  const known = interned.get(key)?.deref();
  if (known !== undefined) return known;
  const created: Parameters = { key, id: nextId++, entries: new Map(sorted) };
  interned.set(key, new WeakRef(created));
  forget.register(created, key);
  return created;
}

export const NO_PARAMETERS: Parameters = internParameters([]);
