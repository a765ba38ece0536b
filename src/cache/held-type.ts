import {
  type ConstraintsKey,
  type ResourceName,
  type Revision,
  resourceName,
  type TypeUrl,
} from '../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import { includes, type Scope } from '../model/holds.ts';
import type { HeldVariant, MaskReason, PendingName } from '../model/rollout.ts';
import type { Side } from '../model/side.ts';
import type { Selector } from '../model/transaction.ts';
import { CachedResource, type CacheEntry } from './cached-resource.ts';
import type { Journal } from './journal.ts';
import type { Payloads } from './payloads.ts';
import { sameVariantContent, sameVariants, type VariantsOf, variantsOf } from './same-content.ts';
import { inOrder, type ReadableTable, TypeTable } from './type-table.ts';
import { VariantRemover } from './variant-remover.ts';

/** A name whose released state is not what upstream says. */
export interface HeldName {
  since: number;
  /** Undefined: canaries see what upstream says. */
  masked: MaskReason | undefined;
  /** Discarded: what was refused. */
  refused: VariantsOf | undefined;
  /** Something was taken out of its image: what upstream has instead does not show. */
  closed: boolean;
}

/** The held names of one type. */
export class HeldType {
  readonly type: TypeUrl;
  readonly released: Images;
  /** Only what is masked. */
  readonly canary: Images;
  readonly names = new Map<ResourceName, HeldName>();
  /** The released versions of holders that have said something since. */
  readonly versions = new Map<string, string>();
  /** version_info of the last commit of which something is held. */
  version: string | undefined;
  readonly #live: () => TypeTable | undefined;
  readonly #payloads: Payloads;
  readonly #journal: Journal;
  readonly #revision: () => Revision;
  readonly #sides: Readonly<Record<Side, SideTable>>;

  /** `revision`: of the commit that is made now. */
  constructor(
    type: TypeUrl,
    live: () => TypeTable | undefined,
    payloads: Payloads,
    journal: Journal,
    revision: () => Revision,
  ) {
    this.type = type;
    this.#live = live;
    this.#payloads = payloads;
    this.#journal = journal;
    this.#revision = revision;
    this.released = new Images(payloads);
    this.canary = new Images(payloads);
    this.#sides = {
      released: new SideTable(live, this.released, this.versions),
      canary: new SideTable(live, this.canary, new Map()),
    };
  }

  get live(): TypeTable | undefined {
    return this.#live();
  }

  side(side: Side): SideTable {
    return this.#sides[side];
  }

  liveResource(name: ResourceName): CachedResource | undefined {
    return this.#live()?.resources.get(name);
  }

  pendingName(name: ResourceName, { since, masked }: HeldName): PendingName {
    const live = this.liveResource(name);
    const removed = live === undefined || live.variants.size === 0;
    return { type: this.type, name, upstream: this.#upstreamOf(name), since, removed, masked };
  }

  matches(name: ResourceName, scope: Scope): boolean {
    if (scope.upstream === undefined) return scope.type === undefined || scope.type === this.type;
    return includes(scope, { type: this.type, upstream: this.#upstreamOf(name) });
  }

  /** Canaries see the released state of a name. */
  mask(name: ResourceName, held: HeldName, masked: MaskReason): void {
    this.canary.keep(name, this.released.get(name));
    held.masked = masked;
    held.refused = variantsOf(this.liveResource(name));
  }

  /** Canaries see what upstream has under a name. */
  unmask(name: ResourceName, held: HeldName): void {
    this.canary.drop(name);
    held.masked = undefined;
    held.refused = undefined;
  }

  /** Everybody sees what upstream has under a name. */
  stopHolding(name: ResourceName): void {
    this.#tellErrors(name);
    this.names.delete(name);
    this.canary.drop(name);
    this.released.drop(name);
    if (this.names.size > 0) return;
    for (const holder of this.versions.keys()) this.#journal.version(this.type, holder);
    this.versions.clear();
    this.version = undefined;
  }

  /** Upstream has gone back, so nothing waits: the name is let through. False: something waits. */
  stopHoldingIfEqual(name: ResourceName): boolean {
    const live = this.liveResource(name);
    const image = this.released.get(name);
    if (!this.#isEqual(image, live)) return false;
    if (this.canary.has(name) && !this.#isEqual(this.canary.get(name), live)) return false;
    // Equal content is no change: the variants that clients have stay, with their versions.
    if (image !== undefined && live !== undefined) this.#takeBack(live, image);
    this.stopHolding(name);
    return true;
  }

  /** What may look different if these names are seen otherwise, under each name and alias. */
  changesOf(names: Iterable<ResourceName>): Map<ResourceName, Constraints[]> {
    const changed = new Map<ResourceName, Constraints[]>();
    for (const name of names) {
      const constraints = this.#constraintsOf(name);
      for (const shown of [name, ...[...this.#aliasesOf(name)].map(resourceName)])
        changed.set(shown, [...(changed.get(shown) ?? []), ...constraints]);
    }
    return changed;
  }

  /** Whether some interest sees a variant of a name. */
  isSeen(name: ResourceName): boolean {
    return [this.released.get(name), this.liveResource(name)].some((cached) =>
      cached?.variants.all().some((entry) => this.#hasInterest(entry)),
    );
  }

  /** The constraints of all variants under a name, of both sides and upstream. */
  #constraintsOf(name: ResourceName): Constraints[] {
    const all = new Map<ConstraintsKey, Constraints>();
    for (const cached of [this.released.get(name), this.canary.get(name), this.liveResource(name)]) {
      for (const { constraints } of cached?.variants.all() ?? []) all.set(constraints.key, constraints);
      for (const { constraints } of cached?.resourceErrors?.values() ?? [])
        all.set(constraints.key, constraints);
    }
    return all.size === 0 ? [UNCONSTRAINED] : [...all.values()];
  }

  /** Names by which clients may have subscribed to this one. */
  #aliasesOf(name: ResourceName): Set<string> {
    const all = [this.released.get(name), this.canary.get(name), this.liveResource(name)];
    return new Set(
      all.flatMap((cached) => (cached?.variants.all() ?? []).flatMap(({ variant }) => variant.aliases)),
    );
  }

  /** What was dropped because nobody subscribes to it any more is no difference. */
  #isEqual(image: CachedResource | undefined, live: CachedResource | undefined): boolean {
    const isDropped = (entry: CacheEntry): boolean =>
      live?.variants.get(entry.constraints.key) === undefined && !this.#hasInterest(entry);
    if (!sameVariants(variantsOf(image, isDropped), variantsOf(live))) return false;
    return image === undefined || live === undefined || image.hasBindingsOf(live);
  }

  /** Errors that waited with the variants are new to everybody but the canaries: a client is sent what is newer than it. */
  #tellErrors(name: ResourceName): void {
    const errors = this.liveResource(name)?.resourceErrors;
    const told = this.released.get(name)?.resourceErrors;
    for (const [key, error] of errors ?? []) {
      if (told?.get(key)?.revision !== error.revision)
        errors?.set(key, { ...error, revision: this.#revision() });
    }
  }

  #hasInterest(entry: CacheEntry): boolean {
    return this.#live()?.interests.anySees(entry.variant) === true;
  }

  #takeBack(live: CachedResource, image: CachedResource): void {
    for (const entry of live.variants.all()) {
      const released = image.variants.get(entry.constraints.key)?.variant;
      if (released === undefined || released === entry.variant) continue;
      this.#payloads.retain(released.payload);
      this.#payloads.release(entry.variant.payload);
      entry.variant = released;
    }
    live.adoptBindings(image);
    live.order = image.order;
  }

  #upstreamOf(name: ResourceName): string {
    const [live] = this.liveResource(name)?.variants.all() ?? [];
    const [image] = this.released.get(name)?.variants.all() ?? [];
    return (live ?? image)?.variant.upstream ?? '';
  }
}

/**
 * A heartbeat, or an end of the TTL, is for the image too. A TTL of other content than the image has says nothing about
 * an image without one.
 */
export function followTtls(image: CachedResource | undefined, live: CachedResource | undefined): boolean {
  let changed = false;
  for (const entry of image?.variants.all() ?? []) {
    const now = live?.variants.get(entry.constraints.key)?.variant;
    if (now === undefined || now.ttl === entry.variant.ttl) continue;
    if (entry.variant.ttl === undefined && !sameVariantContent(entry.variant, now)) continue;
    entry.variant = { ...entry.variant, ttl: now.ttl };
    changed = true;
  }
  return changed;
}

/** Names of one type that one side does not see as upstream has them, and what it sees. Without variants it is absent. */
export class Images {
  readonly table = new TypeTable();
  readonly #names = new Set<ResourceName>();
  readonly #payloads: Payloads;

  constructor(payloads: Payloads) {
    this.#payloads = payloads;
  }

  has(name: ResourceName): boolean {
    return this.#names.has(name);
  }

  names(): Iterable<ResourceName> {
    return this.#names;
  }

  get(name: ResourceName): CachedResource | undefined {
    return this.table.resources.get(name);
  }

  /** Keeps a copy. */
  keep(name: ResourceName, source: CachedResource | undefined): void {
    this.drop(name);
    this.#names.add(name);
    if (source === undefined || source.empty) return;
    const copy = new CachedResource();
    copy.order = source.order;
    this.table.resources.set(name, copy);
    for (const entry of source.variants.all()) this.#add(copy, entry, entry.confirmedIn);
    copy.resourceErrors = source.resourceErrors && new Map(source.resourceErrors);
    copy.restoreBindings(source.bindings ?? []);
  }

  /** Keeps these variants of an earlier time. Their TTLs were for that time. */
  keepVariants(name: ResourceName, variants: readonly HeldVariant[], order: number | undefined): void {
    this.drop(name);
    this.#names.add(name);
    for (const { variant: earlier, holders } of variants) {
      const variant = earlier.ttl === undefined ? earlier : { ...earlier, ttl: undefined };
      const entry = { constraints: variant.constraints, variant, holders, confirmedIn: 0 };
      this.add(name, entry, order);
    }
  }

  /** One more variant of a name that is here. */
  add(name: ResourceName, entry: CacheEntry, order: number | undefined): void {
    const cached = this.table.resources.get(name) ?? new CachedResource();
    if (cached.empty && order !== undefined) cached.order = order;
    this.table.resources.set(name, cached);
    this.#add(cached, entry, entry.confirmedIn);
  }

  /** The name is seen as upstream has it. */
  drop(name: ResourceName): void {
    if (!this.#names.delete(name)) return;
    const cached = this.table.resources.get(name);
    for (const entry of cached?.variants.all() ?? []) {
      this.table.unlink(entry.variant);
      this.table.variants--;
      this.#payloads.release(entry.variant.payload);
    }
    this.table.resources.delete(name);
  }

  /** Removes a variant; the name stays. */
  forget(name: ResourceName, entry: CacheEntry): void {
    const cached = this.table.resources.get(name);
    if (cached !== undefined) new VariantRemover(this.table, this.#payloads).forget(name, cached, entry);
  }

  #add(cached: CachedResource, { constraints, variant, holders }: CacheEntry, confirmedIn: number): void {
    this.#payloads.retain(variant.payload);
    cached.variants.add({ constraints, variant, holders, confirmedIn });
    this.table.variants++;
    this.table.link(variant);
  }
}

/** A type as one side sees it: what upstream has, except for the names that have an image. */
export class SideTable implements ReadableTable {
  readonly #live: () => TypeTable | undefined;
  readonly #images: Images;
  readonly #versions: ReadonlyMap<string, string>;

  /** `versions`: of the holders whose last response this side has not got whole. */
  constructor(live: () => TypeTable | undefined, images: Images, versions: ReadonlyMap<string, string>) {
    this.#live = live;
    this.#images = images;
    this.#versions = versions;
  }

  get interests(): TypeTable['interests'] {
    return (this.#live() ?? this.#images.table).interests;
  }

  resource(name: ResourceName): CachedResource | undefined {
    return this.#images.has(name) ? this.#images.get(name) : this.#live()?.resources.get(name);
  }

  aliased(alias: ResourceName): Iterable<ResourceName> {
    const names = [...this.#images.table.aliased(alias)];
    for (const name of this.#live()?.aliased(alias) ?? []) if (!this.#images.has(name)) names.push(name);
    return names.length > 1 ? inOrder(names, (name) => this.resource(name)) : names;
  }

  *names(selector: Selector): Iterable<ResourceName> {
    yield* this.#images.table.names(selector);
    for (const name of this.#live()?.names(selector) ?? []) if (!this.#images.has(name)) yield name;
  }

  version(holder: string): string | undefined {
    return this.#versions.get(holder) ?? this.#live()?.versions.get(holder);
  }

  isHeld(name: ResourceName): boolean {
    return this.#images.has(name);
  }

  holders(): Iterable<string> {
    return new Set([...this.#versions.keys(), ...(this.#live()?.versions.keys() ?? [])]);
  }
}
