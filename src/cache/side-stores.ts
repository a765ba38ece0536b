import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import type { HeldVariant } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import type { Interest, Restamp, Transaction } from '../model/transaction.ts';
import type { InterestContent } from './interest-content.ts';
import { Store } from './store.ts';
import type { StoreOptions } from './type-table.ts';

/**
 * The store of both sides; or two, where each side has an upstream of its own (docs/adr/0130). Each of the two has every
 * interest, so a client that moves to the other side finds what it subscribes to.
 */
export class SideStores {
  /** Of both sides, or what is released. */
  readonly released: Store;
  readonly catalogs: Readonly<Record<Side, Catalog>>;
  readonly #canary: Store | undefined;

  constructor(options: StoreOptions, separate: boolean) {
    this.released = new Store(options);
    this.#canary = separate ? new Store({ ...options, beside: this.released.tables }) : undefined;
    this.catalogs =
      this.#canary === undefined
        ? this.released.sides
        : { released: this.released.sides.released, canary: this.#canary.sides.canary };
  }

  /** The sides that have a store of their own; the released one's is for both if it is the only one. */
  get separate(): readonly Side[] {
    return this.#canary === undefined ? ['released'] : ['released', 'canary'];
  }

  /** `side`: whose upstream says it, where each has one. */
  apply(transaction: Transaction, side: Side): Commit {
    return this.#seenBy(side, this.#of(side).apply(transaction));
  }

  restamp(restamp: Restamp, side: Side): Commit {
    return this.#seenBy(side, this.#of(side).restamp(restamp));
  }

  expire(variant: Variant): readonly Commit[] {
    return this.#each((store) => store.expire(variant));
  }

  addInterest(interest: Interest): void {
    this.released.addInterest(interest);
    this.#canary?.addInterest(interest);
  }

  removeInterest(interest: Interest): readonly Commit[] {
    return this.#each((store) => store.removeInterest(interest));
  }

  /** Bodies that both stores have are the same: they are counted for what is released. */
  contentOf(interest: Interest): InterestContent {
    const released = this.released.contentOf(interest);
    if (released.hasContent || this.#canary === undefined) return released;
    return this.#canary.contentOf(interest);
  }

  /** What a side has under a name. */
  variantsOf(type: TypeUrl, name: ResourceName, side: Side): readonly HeldVariant[] {
    return this.#of(side).held.contentOf(type, name, side);
  }

  #of(side: Side): Store {
    return side === 'canary' ? (this.#canary ?? this.released) : this.released;
  }

  #each(change: (store: Store) => Commit | undefined): readonly Commit[] {
    const released = change(this.released);
    const canary = this.#canary && change(this.#canary);
    return [
      ...(released === undefined ? [] : [this.#seenBy('released', released)]),
      ...(canary === undefined ? [] : [this.#seenBy('canary', canary)]),
    ];
  }

  /** The views of the other side see nothing of it. */
  #seenBy(side: Side, commit: Commit): Commit {
    if (this.#canary === undefined) return commit;
    const nothing: Commit = { ...commit, changed: new Map(), resolved: [] };
    return {
      ...commit,
      sides: {
        released: side === 'released' ? commit : nothing,
        canary: side === 'canary' ? commit : nothing,
      },
    };
  }
}
