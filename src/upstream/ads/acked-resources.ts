import { type ResourceName, resourceName } from '../../model/brand.ts';
import { deleteIn, getOrMake } from '../../model/maps.ts';
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
  /** Other names by which it may be subscribed (protocol §4.8). */
  aliases: readonly string[];
  /** It has a time to live, which may have passed in the cache when a new stream begins. */
  hasTtl: boolean;
}

/**
 * The variants that upstream has delivered for one (holder, type): names, constraints and versions, without content.
 * The store has the same variants.
 */
export class AckedResources extends VariantSet<AckedVariant> {
  readonly #globs = new GlobIndex();
  readonly #byAlias = new Map<ResourceName, Set<AckedVariant>>();
  /** Names of which upstream has said on this stream that it has them, but cannot deliver them. */
  readonly #failed = new Set<ResourceName>();

  /** Of a resource that has this name, or has it as an alias. */
  called(name: ResourceName): AckedVariant[] {
    const aliased = this.#byAlias.get(name);
    return aliased === undefined ? this.of(name) : [...new Set([...this.of(name), ...aliased])];
  }

  /** Of all names that a glob selects. */
  under(glob: ResourceName): AckedVariant[] {
    return [...this.#globs.under(glob)].flatMap((name) => this.of(name));
  }

  /** Nothing is confirmed on a new stream. */
  startOver(): void {
    this.#failed.clear();
    for (const variant of this.all()) variant.confirmed = false;
  }

  /**
   * Upstream has an error for it, other than NOT_FOUND: what an earlier stream delivered is not gone, unless this one has
   * delivered a variant of it.
   */
  fail(name: ResourceName): void {
    const variants = this.of(name);
    if (variants.length > 0 && !variants.some(({ confirmed }) => confirmed)) this.#failed.add(name);
  }

  /** This stream has said nothing of it. */
  isUnmentioned({ name, confirmed }: AckedVariant): boolean {
    return !confirmed && !this.#failed.has(name);
  }

  put(variant: AckedVariant): void {
    this.#failed.delete(variant.name);
    const known = this.get(variant.name, variant.constraints.key);
    if (known !== undefined) {
      this.#unlink(known);
      Object.assign(known, variant);
    } else {
      this.add(variant);
      this.#globs.add(variant.name);
    }
    for (const alias of variant.aliases)
      getOrMake(this.#byAlias, resourceName(alias), () => new Set()).add(known ?? variant);
  }

  override delete(variant: Identity): void {
    const known = this.get(variant.name, variant.constraints.key);
    if (known !== undefined) this.#unlink(known);
    super.delete(variant);
    if (!this.hasName(variant.name)) this.#globs.delete(variant.name);
  }

  override clear(): void {
    super.clear();
    this.#failed.clear();
    this.#globs.clear();
    this.#byAlias.clear();
  }

  #unlink(variant: AckedVariant): void {
    for (const alias of variant.aliases) deleteIn(this.#byAlias, resourceName(alias), variant);
  }
}
