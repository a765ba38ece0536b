import { type ConstraintsKey, type ResourceName, resourceName, type TypeUrl } from '../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../model/constraints.ts';
import { includes, type Scope } from '../model/holds.ts';
import type { MaskReason, PendingName } from '../model/rollout.ts';
import type { CachedResource, CacheEntry } from './cached-resource.ts';
import { sameVariantContent, sameVariants, variantsOf } from './same-content.ts';
import type { HeldName, TypeTable } from './type-table.ts';

/** The held names of one type, and what may be done to them. */
export class HeldType {
  readonly table: TypeTable;

  constructor(table: TypeTable) {
    this.table = table;
  }

  get type(): TypeUrl {
    return this.table.type;
  }

  get names(): ReadonlyMap<ResourceName, HeldName> {
    return this.table.held;
  }

  liveResource(name: ResourceName): CachedResource | undefined {
    return this.table.resources.get(name);
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

  /** From now on everybody sees what is there now under a name, whatever upstream says. */
  hold(name: ResourceName, live: CachedResource, since: number, masked: MaskReason | undefined): void {
    const canary = masked === undefined ? undefined : live.copy();
    this.table.hold(name, {
      since,
      masked,
      refused: undefined,
      closed: false,
      released: live.copy(),
      canary,
    });
  }

  change(name: ResourceName, held: HeldName, changes: Partial<HeldName>): void {
    this.table.hold(name, { ...held, ...changes });
  }

  /** Canaries see the released state of a name: what upstream says now is refused. */
  refuse(name: ResourceName, held: HeldName): void {
    const refused = variantsOf(this.liveResource(name));
    this.change(name, held, { masked: 'discarded', refused, canary: held.released.copy() });
  }

  /** Canaries see what upstream has under a name. */
  unmask(name: ResourceName, held: HeldName): void {
    this.change(name, held, { masked: undefined, refused: undefined, canary: undefined });
  }

  /** Everybody sees what upstream has under a name. */
  stopHolding(name: ResourceName): void {
    this.#tellErrors(name);
    this.table.letGo(name);
    if (this.names.size > 0) return;
    const { all, releasedVersions } = this.table;
    for (const holder of releasedVersions.keys()) all.journal.version(this.type, holder);
    releasedVersions.clear();
    this.table.heldVersion = undefined;
  }

  /** Upstream has gone back, so nothing waits: the name is let through. False: something waits. */
  stopHoldingIfEqual(name: ResourceName): boolean {
    const live = this.liveResource(name);
    const held = this.names.get(name);
    if (held === undefined) return true;
    if (!this.#isEqual(held.released, live)) return false;
    if (held.canary !== undefined && !this.#isEqual(held.canary, live)) return false;
    // Equal content is no change: the variants that clients have stay, with their versions.
    if (live !== undefined && !held.released.empty) this.#takeBack(live, held.released);
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
    return [this.names.get(name)?.released, this.liveResource(name)].some((cached) =>
      cached?.variants.all().some((entry) => this.#hasInterest(entry)),
    );
  }

  /** The constraints of all variants under a name, of both sides and upstream. */
  #constraintsOf(name: ResourceName): Constraints[] {
    const all = new Map<ConstraintsKey, Constraints>();
    for (const cached of this.#columns(name)) {
      for (const { constraints } of cached.variants.all()) all.set(constraints.key, constraints);
      for (const { constraints } of cached.resourceErrors?.values() ?? [])
        all.set(constraints.key, constraints);
    }
    return all.size === 0 ? [UNCONSTRAINED] : [...all.values()];
  }

  /** Names by which clients may have subscribed to this one. */
  #aliasesOf(name: ResourceName): Set<string> {
    const all = this.#columns(name).flatMap((cached) => cached.variants.all());
    return new Set(all.flatMap(({ variant }) => variant.aliases));
  }

  #columns(name: ResourceName): CachedResource[] {
    const { released, canary } = this.names.get(name) ?? {};
    return [released, canary, this.liveResource(name)].filter((cached) => cached !== undefined);
  }

  /** What was dropped because nobody subscribes to it any more is no difference. */
  #isEqual(column: CachedResource, live: CachedResource | undefined): boolean {
    const isDropped = (entry: CacheEntry): boolean =>
      live?.variants.get(entry.constraints.key) === undefined && !this.#hasInterest(entry);
    if (!sameVariants(variantsOf(column, isDropped), variantsOf(live))) return false;
    return live === undefined || column.hasBindingsOf(live);
  }

  /** Errors that waited with the variants are new to everybody but the canaries: a client is sent what is newer than it. */
  #tellErrors(name: ResourceName): void {
    const errors = this.liveResource(name)?.resourceErrors;
    const told = this.names.get(name)?.released.resourceErrors;
    for (const [key, error] of errors ?? []) {
      if (told?.get(key)?.revision !== error.revision)
        errors?.set(key, { ...error, revision: this.table.all.revision });
    }
  }

  #hasInterest(entry: CacheEntry): boolean {
    return this.table.interests.anySees(entry.variant);
  }

  #takeBack(live: CachedResource, released: CachedResource): void {
    for (const entry of live.variants.all()) {
      const variant = released.variants.get(entry.constraints.key)?.variant;
      if (variant === undefined || variant === entry.variant) continue;
      this.table.payloads.retain(variant.payload);
      this.table.payloads.release(entry.variant.payload);
      entry.variant = variant;
    }
    live.adoptBindings(released);
    live.order = released.order;
  }

  #upstreamOf(name: ResourceName): string {
    const [live] = this.liveResource(name)?.variants.all() ?? [];
    const [released] = this.names.get(name)?.released.variants.all() ?? [];
    return (live ?? released)?.variant.upstream ?? '';
  }
}

/**
 * A heartbeat, or an end of the TTL, is for the columns of the sides too. A TTL of other content than a column has says
 * nothing about a column without one.
 */
export function followTtls(column: CachedResource, live: CachedResource | undefined): boolean {
  let changed = false;
  for (const entry of column.variants.all()) {
    const now = live?.variants.get(entry.constraints.key)?.variant;
    if (now === undefined || now.ttl === entry.variant.ttl) continue;
    if (entry.variant.ttl === undefined && !sameVariantContent(entry.variant, now)) continue;
    entry.variant = { ...entry.variant, ttl: now.ttl };
    changed = true;
  }
  return changed;
}
