import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Interest } from '../model/transaction.ts';
import type { InterestState } from './interests.ts';

/** Up to so many are looked through; what has more variants gets a set. */
const few = 16;

/** Collects what one transaction changes. */
export class Changes {
  readonly names = new Map<ResourceName, Constraints[]>();
  readonly settled: Interest[] = [];
  readonly #many = new Map<ResourceName, Set<Constraints>>();

  touch(name: ResourceName, constraints: Constraints, aliases: readonly string[] = []): void {
    const known = this.names.get(name);
    if (known === undefined) this.names.set(name, [constraints]);
    else if (known.length < few ? !known.includes(constraints) : this.#isNew(name, known, constraints)) {
      known.push(constraints);
    }
    for (const alias of aliases) this.touch(resourceName(alias), constraints);
  }

  #isNew(name: ResourceName, known: readonly Constraints[], constraints: Constraints): boolean {
    const all = this.#many.get(name) ?? new Set(known);
    this.#many.set(name, all);
    const { size } = all;
    return all.add(constraints).size > size;
  }

  answer(state: InterestState): void {
    state.answered = true;
    this.settled.push(state.interest);
  }
}
