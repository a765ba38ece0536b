import type { ParametersKey } from './brand.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';

/** Below this many sets a scan is cheaper than an index. */
const small = 8;

/**
 * Values by parameter set, found by the constraints that the set must match: a variant that requires `env == "prod"`
 * costs only the sets with that pair, not all of them.
 */
export class ParameterIndex<T> {
  readonly #entries = new Map<ParametersKey, { readonly parameters: Parameters; value: T }>();
  #pairs: Map<string, Map<string, Set<ParametersKey>>> | undefined;

  get size(): number {
    return this.#entries.size;
  }

  get(parameters: Parameters): T | undefined {
    return this.#entries.get(parameters.key)?.value;
  }

  set(parameters: Parameters, value: T): void {
    this.#entries.set(parameters.key, { parameters, value });
    if (this.#pairs !== undefined) this.#index(parameters);
    else if (this.#entries.size > small) this.#indexAll();
  }

  delete(parameters: Parameters): void {
    this.#entries.delete(parameters.key);
    if (this.#pairs === undefined) return;
    for (const [key, value] of parameters.entries) {
      const values = this.#pairs.get(key);
      const keys = values?.get(value);
      keys?.delete(parameters.key);
      if (keys?.size === 0) values?.delete(value);
      if (values?.size === 0) this.#pairs.delete(key);
    }
  }

  *values(): Iterable<T> {
    for (const entry of this.#entries.values()) yield entry.value;
  }

  /** The values whose parameter sets match these constraints. */
  *matching(constraints: Constraints): Iterable<T> {
    const required = constraints.required;
    if (this.#pairs === undefined || required === undefined) {
      for (const { parameters, value } of this.#entries.values()) {
        if (constraints.matches(parameters)) yield value;
      }
      return;
    }
    for (const key of this.#pairs.get(required.key)?.get(required.value) ?? []) {
      const entry = this.#entries.get(key);
      if (entry !== undefined && constraints.matches(entry.parameters)) yield entry.value;
    }
  }

  #indexAll(): void {
    this.#pairs = new Map();
    for (const { parameters } of this.#entries.values()) this.#index(parameters);
  }

  #index(parameters: Parameters): void {
    for (const [key, value] of parameters.entries) {
      const values = this.#pairs?.get(key) ?? new Map<string, Set<ParametersKey>>();
      this.#pairs?.set(key, values);
      const keys = values.get(value) ?? new Set();
      values.set(value, keys);
      keys.add(parameters.key);
    }
  }
}
