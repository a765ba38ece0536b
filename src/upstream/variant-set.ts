import type { ConstraintsKey, ResourceName } from '../model/brand.ts';
import type { Removal } from '../model/transaction.ts';

/** A set of variants of one type. */
export class VariantSet {
  readonly #byName = new Map<ResourceName, Set<ConstraintsKey>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has({ name, constraints }: Removal): boolean {
    return this.#byName.get(name)?.has(constraints.key) === true;
  }

  add({ name, constraints }: Removal): void {
    const variants = this.#byName.get(name) ?? new Set<ConstraintsKey>();
    this.#byName.set(name, variants);
    if (!variants.has(constraints.key)) this.#size++;
    variants.add(constraints.key);
  }

  delete({ name, constraints }: Removal): void {
    const variants = this.#byName.get(name);
    if (variants?.delete(constraints.key) !== true) return;
    this.#size--;
    if (variants.size === 0) this.#byName.delete(name);
  }
}
