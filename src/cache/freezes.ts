import type { TypeUrl } from '../model/brand.ts';
import type { GateFilter } from '../model/rollout.ts';
import type { CachedResource } from './cached-resource.ts';

/** What operators have frozen. */
export class Freezes {
  #filters: readonly GateFilter[] = [];

  get any(): boolean {
    return this.#filters.length > 0;
  }

  add(filter: GateFilter): void {
    if (!this.#filters.some((known) => isSame(known, filter))) this.#filters = [...this.#filters, filter];
  }

  /** Undefined: all. */
  delete(filter: GateFilter | undefined): void {
    this.#filters = filter === undefined ? [] : this.#filters.filter((known) => !isSame(known, filter));
  }

  covers(type: TypeUrl, cached: CachedResource): boolean {
    if (this.#filters.length === 0) return false;
    const [entry] = cached.variants.all();
    return this.#filters.some(
      (filter) =>
        (filter.type === undefined || filter.type === type) &&
        (filter.upstream === undefined || filter.upstream === entry?.variant.upstream),
    );
  }
}

const isSame = (a: GateFilter, b: GateFilter): boolean => a.type === b.type && a.upstream === b.upstream;
