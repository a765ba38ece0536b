import { fail, ok, type Result } from '../model/result.ts';
import type { GateFilter } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';

/** What an operator has frozen, and why. */
export interface Freeze extends GateFilter {
  readonly reason: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** What is frozen: everything, or types and upstreams. */
export class Freezes {
  #all: readonly Freeze[];

  constructor(all: readonly Freeze[] = []) {
    this.#all = all;
  }

  get all(): readonly Freeze[] {
    return this.#all;
  }

  covers(name: Required<GateFilter>): boolean {
    return this.#all.some((freeze) => includes(freeze, name));
  }

  /** The error: it is frozen already. */
  add(freeze: Freeze): Result<undefined> {
    const known = this.#all.find((other) => includes(other, freeze));
    if (known !== undefined) {
      const since = new Date(known.since).toISOString();
      return fail(`${scopeText(known)} is frozen already, since ${since} (${known.reason})`);
    }
    this.#all = [...this.#all, freeze];
    return ok(undefined);
  }

  /** Ends the freeze of this scope; without one, all. The error: there is none. */
  remove(filter: GateFilter): Result<readonly Freeze[]> {
    const everything = filter.type === undefined && filter.upstream === undefined;
    const removed = this.#all.filter((freeze) => everything || isSame(freeze, filter));
    if (removed.length === 0) {
      const frozen = this.#all.map(scopeText).join(', ');
      if (frozen === '') return fail('nothing is frozen');
      return fail(`${scopeText(filter)} is not frozen: frozen is ${frozen}`);
    }
    this.#all = this.#all.filter((freeze) => !removed.includes(freeze));
    return ok(removed);
  }
}

/** `cds of central`, `everything`. */
export function scopeText({ type, upstream }: GateFilter): string {
  const what = type === undefined ? 'everything' : typeInfo(type).short;
  return upstream === undefined ? what : `${what} of ${upstream}`;
}

/** Whether all that `inner` names is in `outer`. */
function includes(outer: GateFilter, inner: GateFilter): boolean {
  const type = outer.type === undefined || outer.type === inner.type;
  return type && (outer.upstream === undefined || outer.upstream === inner.upstream);
}

const isSame = (a: GateFilter, b: GateFilter): boolean => a.type === b.type && a.upstream === b.upstream;
