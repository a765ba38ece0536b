import type { Access } from '../model/access.ts';
import type { ConstraintsKey, ResourceName } from '../model/brand.ts';
import type { StoredResourceError } from '../model/catalog.ts';
import { type Content, NO_CONTENT } from '../model/change.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { type HeldVariant, isHeldByWildcard } from '../model/rollout.ts';
import type { Holder, Put } from '../model/transaction.ts';
import { VariantIndex } from '../model/variant-index.ts';

/** A variant and its holders. */
export interface CacheEntry {
  readonly constraints: Constraints;
  variant: Variant;
  /** Another list with each change: what was there before stays as it was. */
  holders: readonly Holder[];
  /** The last revision in which a holder confirmed it. A full state removes what it does not confirm. */
  confirmedIn: number;
}

export function hasHolder(entry: CacheEntry, holder: Holder): boolean {
  return entry.holders.some((known) => known.key === holder.key);
}

/** All variants of a name, as they are now. */
export function contentIn(cached: CachedResource | undefined): Content {
  if (cached === undefined || cached.variants.size === 0) return NO_CONTENT;
  return cached.variants.values().map(({ variant, holders }) => ({ variant, holders }));
}

export type Admits = Pick<Access, 'admits'>;

/** Which variants may be chosen. */
export interface PickFilter {
  /** Undefined: all are admitted. */
  readonly access: Admits | undefined;
  /** Only those that a wildcard holder has, if there are any. */
  readonly fromWildcard: boolean;
  /** Only those that have this alias. */
  readonly alias?: ResourceName;
}

/** Every variant. */
export const NO_FILTER: PickFilter = { access: undefined, fromWildcard: false };
/** What a wildcard shows. */
export const FROM_WILDCARD: PickFilter = { access: undefined, fromWildcard: true };

let lastOrder = 0;

/** All that is cached under one name. */
export class CachedResource {
  /**
   * Lower: it has had variants for longer. An alias that several resources have means the first of them, so that no other
   * takes it over.
   */
  order = ++lastOrder;
  readonly variants = new VariantIndex<CacheEntry>();
  resourceErrors: Map<ConstraintsKey, StoredResourceError> | undefined;
  /**
   * Which of several matching variants a parameter set gets (protocol §5, Ambiguity): sticky while it matches. Only
   * what is ambiguous is recorded.
   */
  #bindings: Map<Parameters, ConstraintsKey> | undefined;
  /** Variants have gone since these were looked at: some may be of one that is not there, or have no choice any more. */
  #hasLost = false;

  get empty(): boolean {
    return this.variants.size === 0 && this.resourceErrors === undefined;
  }

  /** The same content, which changes apart from this one. */
  copy(): CachedResource {
    const copy = new CachedResource();
    copy.order = this.order;
    for (const { constraints, variant, holders, confirmedIn } of this.variants.all())
      copy.variants.add({ constraints, variant, holders, confirmedIn });
    copy.resourceErrors = this.resourceErrors && new Map(this.resourceErrors);
    copy.restoreBindings(this.bindings ?? []);
    return copy;
  }

  get ambiguousCount(): number {
    return this.bindings?.size ?? 0;
  }

  /** A response may remove thousands of variants: what that leaves of the choices is looked at once, when it is asked for. */
  get bindings(): ReadonlyMap<Parameters, ConstraintsKey> | undefined {
    if (this.#hasLost) {
      this.#hasLost = false;
      const left = this.#withChoice(this.#bindings ?? []);
      this.#bindings = left.size > 0 ? left : undefined;
    }
    return this.#bindings;
  }

  restoreBindings(bindings: Iterable<readonly [Parameters, ConstraintsKey]>): void {
    const known = this.#withChoice(bindings);
    if (known.size > 0) this.#bindings = known;
  }

  bind(parameters: Parameters, variant: CacheEntry): void {
    if (this.bindings === undefined) this.#bindings = new Map();
    this.#bindings?.set(parameters, variant.constraints.key);
  }

  /** Whether there is a choice for these parameters, or was one until variants have gone. */
  isBound(parameters: Parameters): boolean {
    return this.#bindings?.has(parameters) === true;
  }

  /** Nobody has these parameters any more. */
  unbind(parameters: Parameters): void {
    this.#bindings?.delete(parameters);
    if (this.#bindings?.size === 0) this.#bindings = undefined;
  }

  /** Whether no parameter set has another choice in one than in the other. */
  hasBindingsOf(other: CachedResource): boolean {
    const own = this.bindings?.entries();
    return own?.every(([of, variant]) => (other.bindings?.get(of) ?? variant) === variant) ?? true;
  }

  /** Takes the choices that were made in `other` and not here. */
  adoptBindings(other: CachedResource): void {
    this.restoreBindings([...(other.bindings ?? []), ...(this.bindings ?? [])]);
  }

  /**
   * The variant for these parameters. `ambiguous` is called for a choice between several that is made now. Undefined: none
   * is recorded.
   */
  pick(
    parameters: Parameters,
    ambiguous: ((matches: readonly CacheEntry[]) => void) | undefined,
    among: PickFilter = NO_FILTER,
  ): CacheEntry | undefined {
    const all = this.#match(parameters, among);
    if (all.length <= 1) return all[0];
    const matches = among.fromWildcard && all.some(isHeldByWildcard) ? all.filter(isHeldByWildcard) : all;
    const bound = this.bindings?.get(parameters);
    const known = bound === undefined ? undefined : all.find((entry) => entry.constraints.key === bound);
    if (known !== undefined) return matches.includes(known) ? known : matches[0];
    const [lowest] = matches;
    if (lowest === undefined || matches.length === 1 || ambiguous === undefined) return lowest;
    // All clients with these parameters share the binding. It stays, although the bound variant is not allowed for
    // this caller.
    if (bound !== undefined && this.#isExcluded(bound, parameters, among)) return lowest;
    this.bind(parameters, lowest);
    ambiguous(matches);
    return lowest;
  }

  #isExcluded(key: ConstraintsKey, parameters: Parameters, among: PickFilter): boolean {
    const entry = this.variants.get(key);
    return entry?.constraints.matches(parameters) === true && !isAmong(entry, parameters, among);
  }

  #match(parameters: Parameters, among: PickFilter = NO_FILTER): readonly CacheEntry[] {
    const all = this.variants.match(parameters);
    const matches = among === NO_FILTER ? all : all.filter((entry) => isAmong(entry, parameters, among));
    if (matches.length <= 1) return matches;
    const chosen = matches.filter((entry) =>
      entry.holders.some((holder) => holder.exactParameters === parameters),
    );
    return chosen.length === 0 ? matches : chosen;
  }

  add(entry: CacheEntry): void {
    void this.bindings; // what was there before decides
    this.variants.add(entry);
  }

  /** So far there was an error of its name, or nothing. */
  renew(): void {
    this.order = ++lastOrder;
  }

  remove(entry: CacheEntry): void {
    this.variants.delete(entry.constraints.key);
    this.#hasLost = this.#bindings !== undefined;
  }

  #withChoice(bindings: Iterable<readonly [Parameters, ConstraintsKey]>): Map<Parameters, ConstraintsKey> {
    return new Map(
      [...bindings].filter(
        ([parameters, variant]) => this.variants.get(variant) !== undefined && this.hasChoice(parameters),
      ),
    );
  }

  /** Whether several variants match. */
  hasChoice(parameters: Parameters): boolean {
    return this.variants.match(parameters, 2).length > 1;
  }

  clearError({ key }: Constraints): void {
    this.resourceErrors?.delete(key);
    if (this.resourceErrors?.size === 0) this.resourceErrors = undefined;
  }
}

/** Its present upstream has not said it. */
export function isRestored({ holders }: Pick<HeldVariant, 'holders'>): boolean {
  return holders.every(({ restored }) => restored === true);
}

/** Whether a variant may be chosen. If the wildcard's variant is denied, no other takes its place in the wildcard. */
const isAmong = (
  entry: CacheEntry,
  parameters: Parameters,
  { access, alias, fromWildcard }: PickFilter,
): boolean =>
  (alias === undefined || entry.variant.aliases.includes(alias)) &&
  (access === undefined ||
    ((!fromWildcard || isHeldByWildcard(entry)) && access.admits(entry.variant, parameters)));

/** Bytes decide, not versions: equal versions do not prove equal content, nor different ones a change (protocol §3.10). */
export function sameContent(variant: Variant, put: Put): boolean {
  if (put.payload !== undefined && put.payload.hash !== variant.payload?.hash) return false;
  return sameBytes(variant.payload?.bytes, put.any) && sameAround(variant, put);
}

/** Whether clients see the same of both; their TTLs may differ. */
export function sameVariantContent(a: Variant, b: Variant): boolean {
  if (a === b) return true;
  return (
    a.payload?.hash === b.payload?.hash && sameBytes(a.payload?.bytes, b.payload?.bytes) && sameAround(a, b)
  );
}

/** All but the body. */
function sameAround(a: Variant, b: Pick<Put, 'doNotCache' | 'metadata' | 'aliases'>): boolean {
  return (
    a.doNotCache === b.doNotCache &&
    sameBytes(a.metadata, b.metadata) &&
    a.aliases.length === b.aliases.length &&
    a.aliases.every((alias, index) => alias === b.aliases[index])
  );
}

function sameBytes(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  if (a === undefined || b === undefined || a === b) return a === b;
  return a.length === b.length && Buffer.compare(a, b) === 0;
}

/** The variants of a name at one moment. */
export type VariantsOf = ReadonlyMap<ConstraintsKey, HeldVariant>;

const nothing: VariantsOf = new Map();

/** `except`: those to leave out. */
export function variantsOf(
  cached: CachedResource | undefined,
  except: (entry: CacheEntry) => boolean = () => false,
): VariantsOf {
  if (cached === undefined || cached.variants.size === 0) return nothing;
  return new Map(
    cached.variants
      .all()
      .filter((entry) => !except(entry))
      .map(({ constraints, variant, holders }) => [constraints.key, { variant, holders }]),
  );
}

/** Whether clients see the same of both. Errors are no content: they come through when the variants are equal. */
export function sameVariants(a: VariantsOf, b: VariantsOf, isAlike = isShownAlike): boolean {
  if (a.size !== b.size) return false;
  for (const [key, one] of a) {
    const other = b.get(key);
    if (other === undefined || !isAlike(one, other)) return false;
  }
  return true;
}

/** Whether clients see the same of both, whose constraints are equal. */
export const isShownAlike = (a: HeldVariant, b: HeldVariant): boolean =>
  isHeldByWildcard(a) === isHeldByWildcard(b) && sameVariantContent(a.variant, b.variant);
