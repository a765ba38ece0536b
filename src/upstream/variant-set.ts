import type { ConstraintsKey, ResourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Removal } from '../model/transaction.ts';

/** A set of variants of one type. */
export class VariantSet {
  readonly #byName = new Map<ResourceName, Map<ConstraintsKey, Constraints>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has({ name, constraints }: Removal): boolean {
    return this.#byName.get(name)?.has(constraints.key) === true;
  }

  add({ name, constraints }: Removal): void {
    const variants = this.#byName.get(name) ?? new Map<ConstraintsKey, Constraints>();
    this.#byName.set(name, variants);
    if (!variants.has(constraints.key)) this.#size++;
    variants.set(constraints.key, constraints);
  }

  delete({ name, constraints }: Removal): void {
    const variants = this.#byName.get(name);
    if (variants?.delete(constraints.key) !== true) return;
    this.#size--;
    if (variants.size === 0) this.#byName.delete(name);
  }

  *all(): Iterable<Removal> {
    for (const [name, variants] of this.#byName) {
      for (const constraints of variants.values()) yield { name, constraints };
    }
  }
}
