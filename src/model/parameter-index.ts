import type { ParametersKey } from './brand.ts';
import type { Constraints } from './constraints.ts';
import { deleteIn, getOrMake } from './maps.ts';
import type { Parameters } from './parameters.ts';

/** Up to so many sets a scan is cheaper than an index. */
const maxScanned = 8;

type ByValue = Map<string, Set<ParametersKey>>;

/**
 * Values by parameter set, found by the constraints that the set must match: a variant that requires `env == "prod"`
 * costs only the sets with that pair, not all of them, and one of many values those with one of them.
 */
export class ParameterIndex<T> {
  readonly #entries = new Map<ParametersKey, { readonly parameters: Parameters; value: T }>();
  /** By the keys that constraints have asked for: these are few, and parameter sets may have a hundred. */
  #byKey: Map<string, ByValue> | undefined;

  get size(): number {
    return this.#entries.size;
  }

  get(parameters: Parameters): T | undefined {
    return this.#entries.get(parameters.key)?.value;
  }

  set(parameters: Parameters, value: T): void {
    this.#entries.set(parameters.key, { parameters, value });
    for (const [key, values] of this.#byKey ?? []) index(values, key, parameters);
  }

  /** False if it was not there. */
  delete(parameters: Parameters): boolean {
    if (!this.#entries.delete(parameters.key)) return false;
    for (const [key, value] of this.#byKey === undefined ? [] : parameters.entries) {
      const values = this.#byKey?.get(key);
      if (values !== undefined) deleteIn(values, value, parameters.key);
    }
    return true;
  }

  *values(): Iterable<T> {
    for (const entry of this.#entries.values()) yield entry.value;
  }

  /** The values whose parameter sets match these constraints. */
  *matching(constraints: Constraints): Iterable<T> {
    const required = constraints.required;
    // By whichever there are fewer of: sets, or values that they may have.
    if (required === undefined || this.#entries.size <= Math.max(maxScanned, required.length)) {
      for (const { parameters, value } of this.#entries.values()) {
        if (constraints.matches(parameters)) yield value;
      }
      return;
    }
    // A set may have several of them.
    const seen = required.length > 1 ? new Set<ParametersKey>() : undefined;
    for (const { key: of, value: is } of required) {
      for (const key of this.#valuesOf(of).get(is) ?? []) {
        const entry = this.#entries.get(key);
        if (entry === undefined || seen?.has(key) === true) continue;
        seen?.add(key);
        if (constraints.matches(entry.parameters)) yield entry.value;
      }
    }
  }

  #valuesOf(key: string): ByValue {
    this.#byKey ??= new Map();
    return getOrMake(this.#byKey, key, () => {
      const values: ByValue = new Map();
      for (const { parameters } of this.#entries.values()) index(values, key, parameters);
      return values;
    });
  }
}

function index(values: ByValue, key: string, parameters: Parameters): void {
  const value = parameters.entries.get(key);
  if (value !== undefined) getOrMake(values, value, () => new Set()).add(parameters.key);
}
