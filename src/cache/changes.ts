import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Interest } from '../model/transaction.ts';
import type { InterestState } from './interests.ts';

/** Collects what one transaction changes. */
export class Changes {
  readonly names = new Map<ResourceName, Constraints[]>();
  readonly settled: Interest[] = [];

  touch(name: ResourceName, constraints: Constraints, aliases: readonly string[] = []): void {
    const known = this.names.get(name);
    if (known === undefined) this.names.set(name, [constraints]);
    else if (!known.includes(constraints)) known.push(constraints);
    for (const alias of aliases) this.touch(resourceName(alias), constraints);
  }

  answer(state: InterestState): void {
    state.answered = true;
    this.settled.push(state.interest);
  }
}
