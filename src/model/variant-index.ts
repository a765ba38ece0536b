import type { ConstraintsKey } from './brand.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';

interface Constrained {
  readonly constraints: Constraints;
}

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
      const [last] = held.byKey.values();
      if (held.byKey.size === 1) this.#held = last;
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

  /** All, the lowest canonical key first. */
  values(): T[] {
    const held = this.#held;
    if (held === undefined) return [];
    return held instanceof Several ? [...held.byKey.values()].toSorted(byCanonicalKey) : [held];
  }

  /** Those that match, the lowest canonical key first: more than one is TP2's ambiguity (protocol §5). */
  match(parameters: Parameters): T[] {
    const held = this.#held;
    if (held === undefined) return [];
    if (held instanceof Several) return held.match(parameters);
    return held.constraints.matches(parameters) ? [held] : [];
  }
}

/** Two or more variants, found by the parameter that each requires, so that a match looks only at the likely ones. */
class Several<T extends Constrained> {
  readonly byKey = new Map<ConstraintsKey, T>();
  readonly #byRequired = new Map<string, Map<string, Set<T>>>();
  /** Those that require no one parameter. */
  readonly #rest = new Set<T>();

  add(variant: T): T | undefined {
    const replaced = this.delete(variant.constraints.key);
    this.byKey.set(variant.constraints.key, variant);
    const { required } = variant.constraints;
    if (required === undefined) {
      this.#rest.add(variant);
      return replaced;
    }
    const values = this.#byRequired.get(required.key) ?? new Map<string, Set<T>>();
    const bucket = values.get(required.value) ?? new Set<T>();
    this.#byRequired.set(required.key, values.set(required.value, bucket.add(variant)));
    return replaced;
  }

  delete(key: ConstraintsKey): T | undefined {
    const variant = this.byKey.get(key);
    if (variant === undefined) return undefined;
    this.byKey.delete(key);
    const { required } = variant.constraints;
    if (required === undefined) {
      this.#rest.delete(variant);
      return variant;
    }
    const values = this.#byRequired.get(required.key);
    const bucket = values?.get(required.value);
    bucket?.delete(variant);
    if (bucket?.size === 0) values?.delete(required.value);
    if (values?.size === 0) this.#byRequired.delete(required.key);
    return variant;
  }

  match(parameters: Parameters): T[] {
    const found: T[] = [];
    for (const [key, values] of this.#byRequired) {
      const value = parameters.entries.get(key);
      if (value === undefined) continue;
      for (const variant of values.get(value) ?? [])
        if (variant.constraints.matches(parameters)) found.push(variant);
    }
    for (const variant of this.#rest) if (variant.constraints.matches(parameters)) found.push(variant);
    return found.length > 1 ? found.toSorted(byCanonicalKey) : found;
  }
}

function byCanonicalKey(a: Constrained, b: Constrained): number {
  return a.constraints.key < b.constraints.key ? -1 : a.constraints.key > b.constraints.key ? 1 : 0;
}
