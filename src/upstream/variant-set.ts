import type { ConstraintsKey, ResourceName } from '../model/brand.ts';
import type { Removal } from '../model/transaction.ts';

/** A set of variants of one type. Nearly always a name has one variant only, so no Set for each. */
export class VariantSet {
  readonly #byName = new Map<ResourceName, ConstraintsKey | Set<ConstraintsKey>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has({ name, constraints: { key } }: Removal): boolean {
    const known = this.#byName.get(name);
    return typeof known === 'object' ? known.has(key) : known === key;
  }

  /** False if it was there already. */
  add({ name, constraints: { key } }: Removal): boolean {
    const known = this.#byName.get(name);
    if (known === key || (typeof known === 'object' && known.has(key))) return false;
    if (known === undefined) this.#byName.set(name, key);
    else if (typeof known === 'object') known.add(key);
    else this.#byName.set(name, new Set([known, key]));
    this.#size++;
    return true;
  }

  delete(variant: Removal): void {
    if (!this.has(variant)) return;
    const { name, constraints } = variant;
    const known = this.#byName.get(name);
    if (typeof known === 'object' && known.size > 1) known.delete(constraints.key);
    else this.#byName.delete(name);
    this.#size--;
  }
}
