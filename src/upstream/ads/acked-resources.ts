import { type ResourceName, resourceName } from '../../model/brand.ts';
import { deleteIn, getOrMake } from '../../model/maps.ts';
import { GlobIndex } from '../../model/xdstp.ts';
import { type Identity, VariantSet } from '../variant-set.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

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

type Addressee = Pick<UpstreamSubscription, 'isFor'>;

/**
 * The variants that upstream has delivered for one (holder, type): names, constraints and versions, without content.
 * The store has the same variants.
 */
export class AckedResources extends VariantSet<AckedVariant> {
  readonly #globs = new GlobIndex();
  readonly #byAlias = new Map<ResourceName, Set<AckedVariant>>();
  /** What upstream has said on this stream that it has, but cannot deliver. */
  readonly #failed = new VariantSet();

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

  /** Upstream has an error for it, other than NOT_FOUND: what an earlier stream delivered is not gone. */
  fail({ name, constraints }: Identity): void {
    if (this.of(name).some(({ confirmed }) => !confirmed)) this.#failed.add({ name, constraints });
  }

  /**
   * Of what an earlier stream delivered for a subscription that is answered: it goes, unless there is an error for that. But
   * if this stream has delivered another variant for it, both would be served.
   */
  isGone({ name, confirmed, constraints }: AckedVariant, subscription: Addressee): boolean {
    if (confirmed || !subscription.isFor(constraints)) return false;
    const hasFailed = this.#failed.of(name).some((error) => subscription.isFor(error.constraints));
    return !hasFailed || this.of(name).some((one) => one.confirmed && subscription.isFor(one.constraints));
  }

  put(variant: AckedVariant): void {
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
