import type { Store } from '../../src/cache/store.ts';

/** Everybody gets what upstream says, also where it was discarded: as if it said so anew. */
export function takeDiscarded(store: Store): void {
  for (const type of new Set([...store.held.pending].map((one) => one.type))) {
    const resources = [...(store.tables.get(type)?.resources ?? [])];
    const said = resources.map(([name, { variants }]) => [name, variants.all()] as const);
    store.held.replace(type, new Map(said));
  }
  // Who matches several variants has kept their own.
  store.held.unfreeze();
}
