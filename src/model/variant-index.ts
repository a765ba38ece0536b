import type { ConstraintsKey } from './brand.ts';
import { onlyRequired } from './constraints.ts';
import { deleteIn, getOrMake } from './maps.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';

type Constrained = Pick<Variant, 'constraints'>;

/**
 * The variants of one name, at most one for each canonical constraints key. There are millions of names and nearly
 * all have one variant, so that one is held bare; the maps exist only from the second on.
 */
export class VariantIndex<T extends Constrained> {
  #held: T | Several<T> | undefined;

  get size(): number {
    if (this.#held === undefined) return 0;
    return this.#held instanceof Several ? this.#held.byKey.size : 1;
  }

  /** Adds it in the place of the one with the same key, which is returned. */
  add(variant: T): T | undefined {
    const held = this.#held;
    if (held instanceof Several) return held.add(variant);
    if (held === undefined || held.constraints.key === variant.constraints.key) {
      this.#held = variant;
      return held;
    }
    const several = new Several<T>();
    several.add(held);
    several.add(variant);
    this.#held = several;
    return undefined;
  }

  /** Removes and returns the one with this key. */
  delete(key: ConstraintsKey): T | undefined {
    const held = this.#held;
    if (held === undefined) return undefined;
    if (held instanceof Several) {
      const removed = held.delete(key);
      if (held.byKey.size === 1) [this.#held] = held.byKey.values();
      return removed;
    }
    if (held.constraints.key !== key) return undefined;
    this.#held = undefined;
    return held;
  }

  get(key: ConstraintsKey): T | undefined {
    const held = this.#held;
    if (held instanceof Several) return held.byKey.get(key);
    return held?.constraints.key === key ? held : undefined;
  }

  /** All, in any order; they may change while this is read. Nothing is sorted: sessions that end ask for many names. */
  all(): T[] {
    const held = this.#held;
    if (held === undefined) return [];
    return held instanceof Several ? [...held.byKey.values()] : [held];
  }

  /** All, the lowest canonical key first. */
  values(): T[] {
    const held = this.#held;
    if (held === undefined) return [];
    return held instanceof Several ? [...held.byKey.values()].toSorted(byCanonicalKey) : [held];
  }

  /**
   * Those that match, the lowest canonical key first: more than one is TP2's ambiguity (protocol §5). `most`: any so many
   * of them.
   */
  match(parameters: Parameters, most: number = Number.POSITIVE_INFINITY): T[] {
    const held = this.#held;
    if (held === undefined) return [];
    if (held instanceof Several) return held.match(parameters, most);
    return held.constraints.matches(parameters) ? [held] : [];
  }
}

/** Up to so many are looked at one by one: that is faster than an index, and takes a fraction of its memory. */
const maxScanned = 8;

/** Two or more variants. */
class Several<T extends Constrained> {
  readonly byKey = new Map<ConstraintsKey, T>();
  /** The lowest canonical key first; undefined where an index is kept instead. */
  #list: readonly T[] | undefined = [];
  #index: RequiredIndex<T> | undefined;

  add(variant: T): T | undefined {
    const { key } = variant.constraints;
    const replaced = this.byKey.get(key);
    if (replaced !== undefined) this.#index?.delete(replaced);
    this.byKey.set(key, variant);
    this.#index?.add(variant);
    this.#arrange();
    return replaced;
  }

  delete(key: ConstraintsKey): T | undefined {
    const variant = this.byKey.get(key);
    if (variant === undefined) return undefined;
    this.byKey.delete(key);
    this.#index?.delete(variant);
    this.#arrange();
    return variant;
  }

  match(parameters: Parameters, most: number): T[] {
    if (this.#list === undefined) return this.#index?.match(parameters, most) ?? [];
    const found: T[] = [];
    for (const variant of this.#list) {
      const required = onlyRequired(variant.constraints);
      if (required !== undefined && parameters.entries.get(required.key) !== required.value) continue;
      if (variant.constraints.matches(parameters)) found.push(variant);
    }
    return found;
  }

  #arrange(): void {
    if (this.byKey.size <= maxScanned) {
      this.#list = [...this.byKey.values()].toSorted(byCanonicalKey);
      this.#index = undefined;
    } else if (this.#index === undefined) {
      this.#list = undefined;
      this.#index = new RequiredIndex(this.byKey.values());
    }
  }
}

/** Variants found by the parameter that each requires, so that a match looks only at the likely ones. */
class RequiredIndex<T extends Constrained> {
  readonly #byRequired = new Map<string, Map<string, Set<T>>>();
  /** Those that require no one parameter: by one of several, which may be thousands, none is found. */
  readonly #rest = new Set<T>();

  constructor(variants: Iterable<T>) {
    for (const variant of variants) this.add(variant);
  }

  add(variant: T): void {
    const required = onlyRequired(variant.constraints);
    if (required === undefined) {
      this.#rest.add(variant);
      return;
    }
    const values = getOrMake(this.#byRequired, required.key, () => new Map());
    getOrMake(values, required.value, () => new Set()).add(variant);
  }

  delete(variant: T): void {
    const required = onlyRequired(variant.constraints);
    if (required === undefined) {
      this.#rest.delete(variant);
      return;
    }
    const values = this.#byRequired.get(required.key);
    if (values !== undefined && deleteIn(values, required.value, variant) && values.size === 0)
      this.#byRequired.delete(required.key);
  }

  match(parameters: Parameters, most: number): T[] {
    const found: T[] = [];
    // By whichever there are fewer of: keys that variants require, or parameters.
    if (this.#byRequired.size <= parameters.entries.size) {
      for (const key of this.#byRequired.keys())
        this.#find(key, parameters.entries.get(key), parameters, found, most);
    } else {
      for (const [key, value] of parameters.entries) this.#find(key, value, parameters, found, most);
    }
    for (const variant of this.#rest) {
      if (found.length >= most) break;
      if (variant.constraints.matches(parameters)) found.push(variant);
    }
    return found.length > 1 ? found.toSorted(byCanonicalKey) : found;
  }

  #find(key: string, value: string | undefined, parameters: Parameters, found: T[], most: number): void {
    if (value === undefined) return;
    for (const variant of this.#byRequired.get(key)?.get(value) ?? []) {
      if (found.length >= most) return;
      if (variant.constraints.matches(parameters)) found.push(variant);
    }
  }
}

function byCanonicalKey(a: Constrained, b: Constrained): number {
  return a.constraints.key < b.constraints.key ? -1 : a.constraints.key > b.constraints.key ? 1 : 0;
}
