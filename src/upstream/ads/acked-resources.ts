import type { ResourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import type { Move, Removal } from '../../model/transaction.ts';
import { GlobIndex } from '../../model/xdstp.ts';
import { VariantSet } from '../variant-set.ts';

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
export class AckedResources extends VariantSet<AckedVariant> {
  readonly #globs = new GlobIndex();

  /** Of all names that a glob selects. */
  under(glob: ResourceName): AckedVariant[] {
    return [...this.#globs.under(glob)].flatMap((name) => this.of(name));
  }

  put(variant: AckedVariant): void {
    const known = this.get(variant.name, variant.constraints.key);
    if (known !== undefined) {
      known.version = variant.version;
      known.hash = variant.hash;
      known.confirmedOnStream = variant.confirmedOnStream;
      known.viaAlias = variant.viaAlias;
    } else {
      this.add(variant);
      this.#globs.add(variant.name);
    }
  }

  override delete(variant: Removal): void {
    super.delete(variant);
    if (!this.hasName(variant.name)) this.#globs.delete(variant.name);
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

  override clear(): void {
    super.clear();
    this.#globs.clear();
  }
}
