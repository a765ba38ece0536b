import type { ResourceName } from '../../model/brand.ts';
import { GlobIndex } from '../../model/xdstp.ts';
import { type Identity, VariantSet } from '../variant-set.ts';

/** One variant that a holder has. */
export interface AckedVariant extends Identity {
  /** The upstream's own version of it; empty where there is none. */
  version: string;
  /** Of its body; undefined: it was not hashed, or there is none. */
  hash: string | undefined;
  /** This stream has delivered or confirmed it. */
  confirmed: boolean;
  /** It was delivered for an alias: its name differs from the subscribed name. */
  viaAlias: boolean;
  /** It has a time to live, which may have passed in the cache when a new stream begins. */
  hasTtl: boolean;
}

/** A variant in a set: its name and its constraints. */
export const variantKey = ({ name, constraints }: Identity): string =>
  JSON.stringify([name, constraints.key]);

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
    if (known !== undefined) Object.assign(known, variant);
    else {
      this.add(variant);
      this.#globs.add(variant.name);
    }
  }

  override delete(variant: Identity): void {
    super.delete(variant);
    if (!this.hasName(variant.name)) this.#globs.delete(variant.name);
  }

  override clear(): void {
    super.clear();
    this.#globs.clear();
  }
}
