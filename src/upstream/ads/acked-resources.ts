import type { ConstraintsKey, ResourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import type { Move, Removal } from '../../model/transaction.ts';
import { GlobIndex } from '../../model/xdstp.ts';

/** One variant that a holder has. */
export interface AckedVariant {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  /** The upstream's own version of it; empty where there is none. */
  version: string;
  /** Of its body; undefined: it was not hashed, or there is none. */
  hash: string | undefined;
  /** The number of the stream that last delivered or confirmed it. */
  confirmedOnStream: number;
  /** It was delivered for an alias: its name differs from the subscribed name. */
  viaAlias: boolean;
}

/** A variant in a set: its name and its constraints. */
export type VariantKey = string;

export function variantKey({ name, constraints }: Pick<AckedVariant, 'name' | 'constraints'>): VariantKey {
  return JSON.stringify([name, constraints.key]);
}

/**
 * The variants that upstream has delivered for one (holder, type): names, constraints and versions, without content.
 * The store has the same variants.
 */
export class AckedResources {
  /** Nearly always a name has one variant only, so no Map for each. */
  readonly #names = new Map<ResourceName, AckedVariant | Map<ConstraintsKey, AckedVariant>>();
  readonly #globs = new GlobIndex();
  #size = 0;

  /** Variants. */
  get size(): number {
    return this.#size;
  }

  has(name: ResourceName): boolean {
    return this.#names.has(name);
  }

  /** Whether its name has no other variant. */
  isOnly(variant: AckedVariant): boolean {
    return this.#names.get(variant.name) === variant;
  }

  get(name: ResourceName, key: ConstraintsKey): AckedVariant | undefined {
    const variant = this.#names.get(name);
    if (variant instanceof Map) return variant.get(key);
    return variant?.constraints.key === key ? variant : undefined;
  }

  /** The variants of one name, the newest first. A copy. */
  of(name: ResourceName): AckedVariant[] {
    const variant = this.#names.get(name);
    if (variant === undefined) return [];
    return variant instanceof Map ? [...variant.values()].toReversed() : [variant];
  }

  /** Of all names that a glob selects. */
  under(glob: ResourceName): AckedVariant[] {
    return [...this.#globs.under(glob)].flatMap((name) => this.of(name));
  }

  *all(): IteratorObject<AckedVariant, undefined> {
    for (const variant of this.#names.values()) {
      if (variant instanceof Map) yield* variant.values();
      else yield variant;
    }
  }

  put(created: AckedVariant): void {
    const { name, constraints, version, hash, confirmedOnStream, viaAlias } = created;
    const known = this.get(name, constraints.key);
    if (known !== undefined) {
      known.version = version;
      known.hash = hash;
      known.confirmedOnStream = confirmedOnStream;
      known.viaAlias = viaAlias;
      return;
    }
    this.#size++;
    const others = this.#names.get(name);
    if (others instanceof Map) others.set(constraints.key, created);
    else if (others === undefined) {
      this.#names.set(name, created);
      this.#globs.add(name);
    } else {
      this.#names.set(
        name,
        new Map([
          [others.constraints.key, others],
          [constraints.key, created],
        ]),
      );
    }
  }

  delete({ name, constraints }: Removal): void {
    const variant = this.#names.get(name);
    if (variant === undefined) return;
    if (variant instanceof Map) {
      if (!variant.delete(constraints.key)) return;
      const [last] = variant.values();
      if (variant.size === 1 && last !== undefined) this.#names.set(name, last);
    } else if (variant.constraints.key === constraints.key) {
      this.#names.delete(name);
      this.#globs.delete(name);
    } else return;
    this.#size--;
  }

  /** Deletes these, and returns their removals. */
  remove(variants: readonly Removal[]): Removal[] {
    return variants.map((variant) => {
      this.delete(variant);
      return { name: variant.name, constraints: variant.constraints };
    });
  }

  /** Gives every variant its new constraints; undefined removes it. */
  restamp(anew: (constraints: Constraints) => Constraints | undefined): Omit<Move, 'holder'>[] {
    const all = [...this.all()];
    this.clear();
    return all.map((variant) => {
      const { name, constraints: from } = variant;
      const to = anew(from);
      if (to !== undefined) this.put({ ...variant, constraints: to });
      return { name, from, to };
    });
  }

  clear(): void {
    this.#names.clear();
    this.#globs.clear();
    this.#size = 0;
  }
}
