import type { Access, Cohort } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Catalog, Commit } from '../model/catalog.ts';
import { deleteIn, getOrMake } from '../model/maps.ts';
import { ParameterIndex } from '../model/parameter-index.ts';
import { isCollection, type Selection, type SelectionEntry } from '../model/selection.ts';
import type { InTurns } from '../model/time-slices.ts';
import { type Interest, type Selector, WILDCARD } from '../model/transaction.ts';
import type { UpdateTraces } from '../observe/update-traces.ts';
import { type InterestRegistry, type InterestRegistryOptions, lingering } from './interest-registry.ts';
import { type Composed, type KeptForOthers, SharedResponses } from './shared-responses.ts';
import { View } from './view.ts';

export interface ViewsOptions extends InterestRegistryOptions {
  readonly catalogs: Readonly<Record<Cohort, Catalog>>;
  /** ControlPlane.identifier of every response; empty for none. */
  readonly controlPlane: string;
  /** A subscription joined a view: how many of its resources were known, how many were not. */
  readonly lookedUp: (type: TypeUrl, hits: number, misses: number) => void;
  /**
   * What a stream says to an update, that arrived then by `Clock.monotonic()`. `isRepeated`: it has answered another response
   * with this update before.
   */
  readonly answered: (
    type: TypeUrl,
    answer: { readonly receivedAt: number; readonly isAccepted: boolean; readonly isRepeated: boolean },
  ) => void;
  /** Undefined: nothing is traced. */
  readonly traces?: UpdateTraces | undefined;
}

/** The views of one type. */
export class ViewPool {
  readonly watchers = new Watchers();
  readonly #type: TypeUrl;
  readonly options: ViewsOptions;
  readonly #registry: InterestRegistry;
  readonly #onEmpty: () => void;
  readonly #views = new Map<string, View[]>();
  readonly #kept: KeptForOthers;
  /** Large selections of which the view is not made yet: it will be made here. */
  #preparing = 0;

  constructor(
    type: TypeUrl,
    options: ViewsOptions,
    registry: InterestRegistry,
    kept: KeptForOthers,
    emptied: () => void,
  ) {
    this.#onEmpty = emptied;
    this.#kept = kept;
    this.#type = type;
    this.options = options;
    this.#registry = registry;
  }

  answered(answer: Parameters<ViewsOptions['answered']>[1]): void {
    this.options.answered(this.#type, answer);
    this.options.traces?.answered(answer.receivedAt, answer.isAccepted);
  }

  timed(compose: () => Composed): Composed {
    const { traces, clock } = this.options;
    if (traces === undefined) return compose();
    const from = clock.monotonic();
    const composed = compose();
    const { receivedAt, bytes } = composed.response ?? {};
    if (receivedAt !== undefined) traces.composed(receivedAt, from, bytes?.length ?? 0);
    return composed;
  }

  *views(): Iterable<View> {
    for (const bucket of this.#views.values()) yield* bucket;
  }

  view(selection: Selection, access: Access, before?: Selection): View {
    const view = this.#view(selection, access);
    // The same again: nothing is looked up that was not before.
    if (before === selection) return view;
    for (const { id, name, parameters } of view.uncached) {
      if (before?.has(id) === true) continue;
      this.options.interests.resubscribe({ type: this.#type, selector: name, parameters });
    }
    const misses = view.unresolvedNames.size;
    this.options.lookedUp(this.#type, view.items.size - misses, misses);
    return view;
  }

  *prepare(selection: Selection, access: Access): InTurns<() => void> {
    if (this.#find(selection, access) !== undefined) return () => {};
    const interests = Array.from(this.#permittedEntries(selection, access), (one) => this.#interest(one));
    this.#preparing++;
    try {
      yield* this.#registry.acquireAll(interests);
      try {
        yield;
        const made = this.#view(selection, access);
        return () => {
          if (made.isUnused) this.#retire(made);
        };
      } finally {
        this.#registry.releaseAll(lingering(interests));
      }
    } finally {
      this.#preparing--;
      this.#endIfEmpty();
    }
  }

  /** Clients can name any type: what is empty goes. */
  #endIfEmpty(): void {
    if (this.#views.size === 0 && this.#preparing === 0) this.#onEmpty();
  }

  #find(selection: Selection, access: Access): View | undefined {
    return this.#views.get(keyOf(selection, access))?.find((known) => known.selection.equals(selection));
  }

  #interest({ selector, parameters }: SelectionEntry): Interest {
    return { type: this.#type, selector, parameters };
  }

  #view(selection: Selection, access: Access): View {
    const key = keyOf(selection, access);
    const known = this.#find(selection, access);
    if (known !== undefined) return known;
    // Interest first: what upstream answers at once (files) is then part of the view's first state.
    for (const one of this.#permittedEntries(selection, access)) this.#registry.acquire(this.#interest(one));
    const { collecting } = selection;
    const base = collecting === undefined ? undefined : this.#view(collecting, access);
    const catalog = this.options.catalogs[access.cohort];
    const now = (): number => this.options.clock.now();
    const shared = new SharedResponses(this.#kept);
    const view = new View(catalog, this.#type, selection, access, now, base, shared);
    this.#views.set(key, [...(this.#views.get(key) ?? []), view]);
    this.watchers.add(view);
    return view;
  }

  /** A cursor needs it no more. */
  leave(view: View): void {
    if (view.isUnused) this.#retire(view);
    else view.dropHistory();
  }

  #retire(view: View): void {
    const key = keyOf(view.selection, view.access);
    const bucket = this.#views.get(key) ?? [];
    // Several may find that nobody uses it any more: what it subscribes to upstream is released once.
    if (!bucket.includes(view)) return;
    const rest = bucket.filter((candidate) => candidate !== view);
    if (rest.length === 0) this.#views.delete(key);
    else this.#views.set(key, rest);
    this.watchers.delete(view);
    view.leaveBase();
    view.shared.clear();
    const entries = this.#permittedEntries(view.selection, view.access);
    this.#registry.releaseAll(entries.map((one) => [view.interest(one), view.mustNotLinger(one)]));
    if (view.base?.isUnused === true) this.#retire(view.base);
    this.#endIfEmpty();
  }

  /** Names that the clients of this view may not see are not requested upstream. */
  #permittedEntries({ entries }: Selection, access: Access): IteratorObject<SelectionEntry, undefined> {
    if (access.unrestricted) return entries.values();
    return entries
      .values()
      .filter(({ selector }) => isCollection(selector) || access.allows(this.#type, selector));
  }
}

const keyOf = (selection: Selection, access: Access): string =>
  `${selection.hash} ${selection.size} ${access.key}`;

/** What a commit means to one view. `collectionResolved`: one of its wildcards or globs has been answered. */
const untouched = () => ({ names: new Array<ResourceName>(), collectionResolved: false });
export type Affected = ReturnType<typeof untouched>;

/** The views of one type, found by what they watch: a change costs work only where it can be seen. */
export class Watchers {
  /** All wildcards and globs are under the wildcard. */
  readonly #indexes = new Map<Selector, ParameterIndex<Set<View>>>();

  add(view: View): void {
    for (const { selector, parameters } of view.selection.entries.values()) {
      const index = getOrMake(this.#indexes, watched(selector), () => new ParameterIndex());
      getOrMake(index, parameters, () => new Set()).add(view);
    }
  }

  delete(view: View): void {
    for (const { selector, parameters } of view.selection.entries.values()) {
      const views = this.#indexes.get(watched(selector))?.get(parameters);
      views?.delete(view);
      if (views?.size === 0) deleteIn(this.#indexes, watched(selector), parameters);
    }
  }

  affected(commit: Commit): Map<View, Affected> {
    const views = new Map<View, Affected>();
    const collections = this.#indexes.get(WILDCARD);
    for (const [name, changed] of commit.changed) {
      const named = this.#indexes.get(name);
      for (const constraints of changed) {
        if (named !== undefined) touch(views, named.matching(constraints), name);
        if (collections !== undefined) touch(views, collections.matching(constraints), name);
      }
    }
    for (const interest of commit.resolved) this.#resolve(views, interest);
    return views;
  }

  #resolve(views: Map<View, Affected>, { selector, parameters }: Interest): void {
    const watching = this.#indexes.get(watched(selector))?.get(parameters) ?? [];
    if (!isCollection(selector)) touch(views, [watching], selector);
    else
      for (const view of watching)
        if (view.selection.hasCollectionSelector(selector)) entry(views, view).collectionResolved = true;
  }
}

const watched = (selector: Selector): Selector => (isCollection(selector) ? WILDCARD : selector);

function touch(views: Map<View, Affected>, sets: Iterable<Iterable<View>>, name: ResourceName): void {
  for (const set of sets) {
    for (const view of set) {
      const { names } = entry(views, view);
      if (names.at(-1) !== name) names.push(name);
    }
  }
}

const entry = (views: Map<View, Affected>, view: View): Affected => getOrMake(views, view, untouched);
