import type { ResourceName } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import { ParameterIndex } from '../model/parameter-index.ts';
import type { Parameters } from '../model/parameters.ts';
import { isCollection } from '../model/selection.ts';
import type { Interest } from '../model/transaction.ts';
import type { View } from './view.ts';

/** What a commit means to one view. */
export interface Affected {
  readonly names: ResourceName[];
  /** One of its wildcards or globs has been answered. */
  collectionResolved: boolean;
}

/** The views of one type, found by what they watch: a change costs work only where it can be seen. */
export class Watchers {
  readonly #byName = new Map<ResourceName, ParameterIndex<Set<View>>>();
  readonly #collections = new ParameterIndex<Set<View>>();

  add(view: View): void {
    for (const selected of view.selection.entries.values()) {
      const { selector, parameters } = selected;
      if (isCollection(selector)) {
        join(this.#collections, parameters, view);
        continue;
      }
      const index = this.#byName.get(selector) ?? new ParameterIndex<Set<View>>();
      this.#byName.set(selector, index);
      join(index, parameters, view);
    }
  }

  delete(view: View): void {
    for (const { selector, parameters } of view.selection.entries.values()) {
      if (isCollection(selector)) {
        leave(this.#collections, parameters, view);
        continue;
      }
      const index = this.#byName.get(selector);
      if (index === undefined) continue;
      leave(index, parameters, view);
      if (index.size === 0) this.#byName.delete(selector);
    }
  }

  affected(commit: Commit): Map<View, Affected> {
    const views = new Map<View, Affected>();
    for (const [name, changed] of commit.changed) {
      const named = this.#byName.get(name);
      for (const constraints of changed) {
        if (named !== undefined) touch(views, named.matching(constraints), name);
        touch(views, this.#collections.matching(constraints), name);
      }
    }
    for (const interest of commit.resolved) this.#resolve(views, interest);
    return views;
  }

  #resolve(views: Map<View, Affected>, { selector, parameters }: Interest): void {
    if (!isCollection(selector)) {
      touch(views, [this.#byName.get(selector)?.get(parameters) ?? []], selector);
      return;
    }
    for (const view of this.#collections.get(parameters) ?? []) {
      if (view.selection.hasCollectionSelector(selector)) entry(views, view).collectionResolved = true;
    }
  }
}

function join(index: ParameterIndex<Set<View>>, parameters: Parameters, view: View): void {
  const views = index.get(parameters);
  if (views === undefined) index.set(parameters, new Set([view]));
  else views.add(view);
}

function leave(index: ParameterIndex<Set<View>>, parameters: Parameters, view: View): void {
  const views = index.get(parameters);
  views?.delete(view);
  if (views?.size === 0) index.delete(parameters);
}

function touch(views: Map<View, Affected>, sets: Iterable<Iterable<View>>, name: ResourceName): void {
  for (const set of sets) {
    for (const view of set) {
      const { names } = entry(views, view);
      if (names.at(-1) !== name) names.push(name);
    }
  }
}

function entry(views: Map<View, Affected>, view: View): Affected {
  const known = views.get(view);
  if (known !== undefined) return known;
  const created: Affected = { names: [], collectionResolved: false };
  views.set(view, created);
  return created;
}
