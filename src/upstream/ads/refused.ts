import type { ParametersKey, TypeUrl } from '../../model/brand.ts';
import type { Parameters } from '../../model/parameters.ts';
import type { Interest, Selector } from '../../model/transaction.ts';

/** Interests that have no session, as all are in use. Clients can make them many, so each is found by a look. */
export class Refused {
  readonly #interests = new Map<TypeUrl, Map<Selector, Map<Parameters, Interest>>>();

  get empty(): boolean {
    return this.#interests.size === 0;
  }

  add(interest: Interest): void {
    const { type, selector, parameters } = interest;
    const selectors = this.#interests.get(type) ?? new Map<Selector, Map<Parameters, Interest>>();
    this.#interests.set(type, selectors);
    const sets = selectors.get(selector) ?? new Map<Parameters, Interest>();
    selectors.set(selector, sets);
    sets.set(parameters, interest);
  }

  has({ type, selector, parameters }: Interest): boolean {
    return this.#interests.get(type)?.get(selector)?.has(parameters) === true;
  }

  /** False if it was not refused. */
  delete(interest: Interest): boolean {
    const { type, selector, parameters } = interest;
    const selectors = this.#interests.get(type);
    const sets = selectors?.get(selector);
    if (sets?.delete(parameters) !== true) return false;
    if (sets.size === 0) selectors?.delete(selector);
    if (selectors?.size === 0) this.#interests.delete(type);
    return true;
  }

  /** All of them, which are not refused any more. */
  take(): readonly Interest[] {
    const all = [...this.all()];
    this.#interests.clear();
    return all;
  }

  /** The distinct parameter sets, at most so many. */
  parameters(most: number): readonly ParametersKey[] {
    const keys = new Set<ParametersKey>();
    for (const { parameters } of this.all()) {
      keys.add(parameters.key);
      if (keys.size === most) break;
    }
    return [...keys];
  }

  *all(): Iterable<Interest> {
    for (const selectors of this.#interests.values()) {
      for (const sets of selectors.values()) yield* sets.values();
    }
  }
}
