import { isVariant } from '../model/catalog.ts';
import type { Reference, References } from '../model/resource.ts';
import { referencesOf } from '../wire/references.ts';
import { type Item, type Items, valueAt } from './item.ts';
import type { RetainedResource } from './shared-responses.ts';

interface Changing {
  readonly items: Items;
  changedSince(revision: number): Iterable<Item>;
}

const deferred = new WeakMap<ReadonlyMap<string, RetainedResource>, References>();

/** What deferred removals refer to, read once: each removal of another type asks. */
export function referencesOfAll(removals: ReadonlyMap<string, RetainedResource>): References {
  const known = deferred.get(removals);
  if (known !== undefined) return known;
  const all = new Set<Reference>();
  for (const { variant } of removals.values()) for (const one of referencesOf(variant)) all.add(one);
  deferred.set(removals, all);
  return all;
}

/**
 * What the resources of a view refer to, and what was removed from it: made once for all clients at the same position,
 * when one of them asks.
 */
export class ViewReferences {
  readonly #view: Changing;
  #atHead: References | undefined;
  readonly #since = new Map<number, References>();
  readonly #removedSince = new Map<number, readonly RetainedResource[]>();

  constructor(view: Changing) {
    this.#view = view;
  }

  /** What the resources at the head refer to. */
  get atHead(): References {
    if (this.#atHead !== undefined) return this.#atHead;
    const all = new Set<Reference>();
    for (const { last } of this.#view.items.values()) {
      if (isVariant(last.value)) for (const one of referencesOf(last.value)) all.add(one);
    }
    this.#atHead = all;
    return all;
  }

  /** What the changes since a revision refer to, unless what they replace did. */
  since(revision: number): References {
    const known = this.#since.get(revision);
    if (known !== undefined) return known;
    const added = new Set<Reference>();
    for (const item of this.#view.changedSince(revision)) {
      const now = item.last.value;
      if (!isVariant(now)) continue;
      const lastSent = valueAt(item, revision);
      const before = isVariant(lastSent) ? referencesOf(lastSent) : undefined;
      for (const one of referencesOf(now)) if (before?.has(one) !== true) added.add(one);
    }
    this.#since.set(revision, added);
    return added;
  }

  /** What a client at this revision has and the head does not show any more. */
  removedSince(revision: number): readonly RetainedResource[] {
    const known = this.#removedSince.get(revision);
    if (known !== undefined) return known;
    const removed: RetainedResource[] = [];
    for (const item of this.#view.changedSince(revision)) {
      const lastSent = item.last.value === 'absent' ? valueAt(item, revision) : undefined;
      if (isVariant(lastSent)) removed.push({ item, variant: lastSent });
    }
    this.#removedSince.set(revision, removed);
    return removed;
  }

  /** The head has moved on. */
  clear(): void {
    this.#atHead = undefined;
    this.#since.clear();
    this.#removedSince.clear();
  }
}
