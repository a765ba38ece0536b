import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Interest } from '../model/transaction.ts';
import type { InterestState } from './interests.ts';

/** A name with more changed variants than this gets a set. */
const maxScanned = 16;

/** Collects what one transaction changes. */
export class CommitChanges {
  readonly names = new Map<ResourceName, Constraints[]>();
  readonly resolved: Interest[] = [];
  readonly #largeSets = new Map<ResourceName, Set<Constraints>>();
  readonly #changing: ((name: ResourceName) => void) | undefined;

  /** `changing` is called for each name before it changes. */
  constructor(changing?: (name: ResourceName) => void) {
    this.#changing = changing;
  }

  /** To be called before the variants of the name change. */
  touch(name: ResourceName, constraints: Constraints, aliases: readonly string[] = []): void {
    this.#changing?.(name);
    const known = this.names.get(name);
    if (known === undefined) this.names.set(name, [constraints]);
    else if (
      known.length < maxScanned ? !known.includes(constraints) : this.#isNew(name, known, constraints)
    ) {
      known.push(constraints);
    }
    for (const alias of aliases) this.touch(resourceName(alias), constraints);
  }

  #isNew(name: ResourceName, known: readonly Constraints[], constraints: Constraints): boolean {
    const all = this.#largeSets.get(name) ?? new Set(known);
    this.#largeSets.set(name, all);
    const { size } = all;
    return all.add(constraints).size > size;
  }

  resolve(state: InterestState): void {
    state.resolved = true;
    this.resolved.push(state.interest);
  }
}
