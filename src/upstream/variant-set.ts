import type { ConstraintsKey, ResourceName } from '../model/brand.ts';
import type { Removal } from '../model/transaction.ts';

/** (name, constraints): what a variant is known by, with the session's stamp. */
export type Identity = Removal;

/** Variants of one type, each once. Nearly always a name has one variant only, so no Map for each. */
export class VariantSet<Variant extends Identity = Identity> {
  readonly #byName = new Map<ResourceName, Variant | Map<ConstraintsKey, Variant>>();
  #size = 0;

  constructor(variants: Iterable<Variant> = []) {
    for (const variant of variants) this.add(variant);
  }

  get size(): number {
    return this.#size;
  }

  get(name: ResourceName, key: ConstraintsKey): Variant | undefined {
    const known = this.#byName.get(name);
    if (known instanceof Map) return known.get(key);
    return known?.constraints.key === key ? known : undefined;
  }

  has({ name, constraints }: Identity): boolean {
    return this.get(name, constraints.key) !== undefined;
  }

  hasName(name: ResourceName): boolean {
    return this.#byName.has(name);
  }

  /** Whether its name has no other variant. */
  isOnly(variant: Variant): boolean {
    return this.#byName.get(variant.name) === variant;
  }

  /** The variants of one name, the newest first. A copy. */
  of(name: ResourceName): Variant[] {
    const known = this.#byName.get(name);
    if (known === undefined) return [];
    return known instanceof Map ? [...known.values()].toReversed() : [known];
  }

  *all(): IteratorObject<Variant, undefined> {
    for (const known of this.#byName.values()) {
      if (known instanceof Map) yield* known.values();
      else yield known;
    }
  }

  /** False if it was there already. */
  add(variant: Variant): boolean {
    const { name, constraints } = variant;
    const known = this.#byName.get(name);
    if (known instanceof Map) {
      if (known.has(constraints.key)) return false;
      known.set(constraints.key, variant);
    } else if (known === undefined) this.#byName.set(name, variant);
    else {
      if (known.constraints.key === constraints.key) return false;
      const all = [known, variant].map((one) => [one.constraints.key, one] as const);
      this.#byName.set(name, new Map(all));
    }
    this.#size++;
    return true;
  }

  delete({ name, constraints: { key } }: Identity): void {
    const known = this.#byName.get(name);
    if (known instanceof Map) {
      if (!known.delete(key)) return;
      if (known.size === 1) for (const last of known.values()) this.#byName.set(name, last);
    } else if (known?.constraints.key !== key) return;
    else this.#byName.delete(name);
    this.#size--;
  }

  clear(): void {
    this.#byName.clear();
    this.#size = 0;
  }
}
