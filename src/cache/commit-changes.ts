import { type ResourceName, resourceName } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
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
  readonly #contents = new Map<ResourceName, { readonly before: Snapshot; after: Snapshot }>();
  readonly #changing: ((name: ResourceName) => void) | undefined;
  readonly #snapshot: ((name: ResourceName) => Snapshot) | undefined;

  /** Both are called for each name before it changes. `snapshot`: what is there now, where that is recorded. */
  constructor(changing?: (name: ResourceName) => void, snapshot?: (name: ResourceName) => Snapshot) {
    this.#changing = changing;
    this.#snapshot = snapshot;
  }

  /** After both sides have taken the changes: what was and what is. Undefined: it is not recorded. */
  get contents(): Commit['contents'] {
    const snapshot = this.#snapshot;
    if (snapshot === undefined) return undefined;
    for (const [name, content] of this.#contents) content.after = snapshot(name);
    return this.#contents;
  }

  /** To be called before the variants of the name change. */
  touch(name: ResourceName, constraints: Constraints, aliases: readonly string[] = []): void {
    const known = this.names.get(name);
    if (known === undefined) {
      const before = this.#snapshot?.(name);
      if (before !== undefined) this.#contents.set(name, { before, after: before });
      this.#changing?.(name);
      this.names.set(name, [constraints]);
    } else if (
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

  resolve(state: InterestState, answer: 'restored' | 'confirmed' = 'confirmed'): void {
    state.answer = answer;
    this.resolved.push(state.interest);
  }
}
