import type { ResourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import type { Parameters } from '../model/parameters.ts';
import {
  collectionCovers,
  entryId,
  isCollection,
  itemId,
  type Selection,
  type SelectionEntry,
} from '../model/selection.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { parentGlob } from '../model/xdstp.ts';
import type { RetainedResource } from './frame.ts';
import { type Item, valueAt } from './item.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/** A resource that a client has, or may have. */
interface ClientResource extends RetainedResource {
  /**
   * It was sent, unsubscribed and subscribed again before the client has answered: whether the client has read it before
   * it unsubscribed, and has dropped it, is not known. So it is sent again if it is there, and removed if not.
   */
  readonly mayBeDropped?: true;
}

/** The resources that a client has, by their ids in its view. */
export type ClientResources = ReadonlyMap<string, ClientResource>;

/** Items that a client knows to be absent, and the revision of the response that said so. */
export type Absences = ReadonlyMap<string, number>;

/** The revision of a view that a client was last sent. */
export interface CursorPosition {
  readonly view: View;
  revision: number;
  /** How many visible changes the view had had then. */
  generation: number;
  /** Absences that the client was told, from earlier views or while they are withheld from others. */
  absent?: Absences | undefined;
}

/**
 * What a client has when it moves to another view: the resources of the old view, and those of earlier views
 * (`carriedOver`) whose state was still unknown.
 */
export function clientResourcesOf(
  base: CursorPosition,
  view: View,
  carriedOver: ClientResources | undefined,
): ClientResources {
  if (base.view === view) return carriedOver ?? new Map();
  const resources = new Map<string, ClientResource>();
  const moved = new MovedLocators(base.view.selection, view.selection);
  const add = (id: string, retained: ClientResource): void => {
    const { item } = retained;
    const targets = view.items.has(id) ? none : moved.targetsOf(item);
    const target = targets.find((one) => view.items.has(one.id)) ?? targets[0];
    const now = target === undefined ? retained : { ...retained, item: { ...item, ...target } };
    resources.set(target?.id ?? id, now);
  };
  for (const [id, retained] of carriedOver ?? []) add(id, retained);
  for (const [id, item] of base.view.items) {
    const variant = valueAt(item, base.revision);
    if (isVariant(variant)) add(id, { item, variant });
  }
  return resources;
}

/** Names that the client knows to be absent. The next view need not say so again. */
export function absentIn(base: CursorPosition, view: View, isWithheld: (id: string) => boolean): Absences {
  const absent = new Map<string, number>();
  for (const [id, revision] of base.absent ?? []) if (view.selection.has(id)) absent.set(id, revision);
  for (const [id, item] of base.view.items) {
    if (view.selection.has(id) && valueAt(item, base.revision) === 'absent' && !isWithheld(id))
      absent.set(id, base.revision);
  }
  return absent;
}

/** What a client was last sent of an item, by its cursor. */
export function lastSentIn(
  base: CursorPosition,
  carriedOver: ClientResources | undefined,
  id: string,
): Value | undefined {
  const item = base.view.items.get(id);
  const value = item === undefined ? undefined : valueAt(item, base.revision);
  if (isVariant(value) || value === 'absent') return value;
  return carriedOver?.get(id)?.variant ?? (base.absent?.has(id) === true ? 'absent' : value);
}

/** The revision up to which the client got an item's errors. Each is sent once (protocol §8), over views too. */
export function errorsSentUpTo(base: CursorPosition, view: View, item: Item): number {
  if (base.view !== view) {
    const before = base.view.access === view.access ? base.view.items.get(item.id) : undefined;
    if (before?.parameters !== item.parameters) return -1;
  }
  return Math.max(base.revision, base.absent?.get(item.id) ?? -1);
}

/** The resources that a view's selection names or covers. A client drops the others as it unsubscribes (protocol §4.5). */
export function selectedOf(resources: ClientResources, view: View): ClientResources {
  const coverage = new Coverage(view);
  const selected = [...resources].filter(
    ([id, retained]) => view.selection.has(id) || coverage.of(retained) !== 'none',
  );
  return new Map(selected);
}

/** Resources that the client got from this view and whose state is unknown now. */
export function unknownAgainIn(
  { view, revision }: CursorPosition,
  carriedOver: ClientResources | undefined,
): ClientResources {
  const resources = new Map<string, ClientResource>(carriedOver);
  for (const item of view.unknownAgain) {
    const variant = valueAt(item, revision);
    if (isVariant(variant)) resources.set(item.id, { item, variant });
  }
  return resources;
}

/** Resources to remove: the view does not show them, and every subscription that covers them is resolved. */
export function removalsIn(resources: ClientResources, view: View): Map<string, RetainedResource> {
  const removals = new Map<string, RetainedResource>();
  const coverage = new Coverage(view);
  for (const [id, retained] of resources) {
    if (view.items.has(id) || shownOtherwise(retained.item, view)) continue;
    if (coverage.of(retained) === 'resolved') removals.set(id, retained);
  }
  return removals;
}

/** Resources whose state is unknown in this view. The client keeps them: unknown is not absent (protocol §3.9). */
export function unresolvedIn(resources: ClientResources, view: View): ClientResources | undefined {
  const unresolved = new Map<string, ClientResource>();
  const coverage = new Coverage(view);
  for (const [id, retained] of resources) {
    const item = view.items.get(id);
    if (item === undefined) {
      if (coverage.of(retained) === 'unresolved') unresolved.set(id, retained);
    } else if (item.last.value === 'unknown') unresolved.set(id, retained);
  }
  return unresolved.size > 0 ? unresolved : undefined;
}

/** The view shows it under the canonical name; the client spelled it differently before. */
function shownOtherwise(item: Item, view: View): boolean {
  if (item.spelling === item.name) return false;
  return isVariant(view.itemOf(item.locator, item.parameters, item.name)?.last.value);
}

/**
 * Whether the subscriptions of a view decide about a resource that the client got from an earlier view. `none`: no
 * subscription covers it. `resolved`: all that cover it are. `unresolved`: one of them is not.
 */
export type Covered = 'none' | 'resolved' | 'unresolved';

/** The locators about one name: many parameter sets of one client may have shown the same variant. */
interface Located {
  readonly locators: readonly SelectionEntry[];
  readonly byParameters: ReadonlyMap<Parameters, readonly SelectionEntry[]>;
  readonly judged: Map<Constraints, Covered>;
}

/**
 * Which subscriptions of a view cover a resource that the client got from an earlier view. Valid while the view does
 * not change.
 */
export class Coverage {
  readonly #view: View;
  readonly #located = new Map<ResourceName, Located>();

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * By a plain name it is the same resource whatever the parameters: the wildcards and globs that show it decide (its own
   * subscription is looked at elsewhere). By a locator it is one variant: every locator whose parameters match its
   * constraints decides, and the locator that brought it, even if that has other parameters now.
   *
   *     the client has a {env == "prod"}; the view selects a with env=prod, which is unknown   →  unresolved
   *     the view selects a with env=test only, which is resolved                                →  none
   */
  of({ item, variant }: RetainedResource): Covered {
    const { name, locator, parameters } = item;
    const { selection } = this.#view;
    if (!locator) {
      const collecting = isCollection(name) ? [] : selection.collectionsOver(name);
      return this.#judge(collecting.filter((selected) => !selected.locator));
    }
    const located = this.#locatedOf(name);
    const judged = this.#judgeVariant(located, variant.constraints);
    if (variant.constraints.matches(parameters) || judged === 'unresolved') return judged;
    const own = this.#judge(located.byParameters.get(parameters) ?? []);
    return own === 'none' ? judged : own;
  }

  #locatedOf(name: ResourceName): Located {
    const known = this.#located.get(name);
    if (known !== undefined) return known;
    const locators = this.#view.selection.entriesFor(name).filter(({ locator }) => locator);
    const byParameters = Map.groupBy(locators, ({ parameters }) => parameters);
    const created: Located = { locators, byParameters, judged: new Map() };
    this.#located.set(name, created);
    return created;
  }

  #judgeVariant({ locators, judged }: Located, constraints: Constraints): Covered {
    const known =
      judged.get(constraints) ??
      this.#judge(locators.filter(({ parameters }) => constraints.matches(parameters)));
    judged.set(constraints, known);
    return known;
  }

  #judge(covering: readonly SelectionEntry[]): Covered {
    if (covering.length === 0) return 'none';
    return covering.every((selected) => this.#isResolved(selected)) ? 'resolved' : 'unresolved';
  }

  #isResolved(selected: SelectionEntry): boolean {
    if (isCollection(selected.selector)) return this.#view.isResolved(selected);
    return this.#view.items.get(entryId(selected))?.last.value !== 'unknown';
  }
}

/** The items that some of a view's wildcards and globs show. */
export function* itemsOf(
  { items, selection }: View,
  collections: ReadonlySet<SelectionEntry>,
): Iterable<string> {
  if (collections.size === 0) return;
  for (const { id, name: selector, locator, parameters } of items.values()) {
    const shown = selection
      .collectionsOver(selector)
      .some((one) => collections.has(one) && collectionCovers(one, { selector, locator, parameters }));
    if (shown) yield id;
  }
}

interface MovedItem {
  readonly id: string;
  readonly parameters: Parameters;
}

interface MovedLocator {
  readonly from: SelectionEntry;
  readonly to: Parameters;
}

/**
 * Locators whose parameters have changed, though the client sent the same locators: a trusted rule overrides them, and
 * the node or the rules have changed. Locators that had equal parameters may have different ones now.
 */
class MovedLocators {
  readonly #named: ReadonlyMap<string, readonly MovedLocator[]>;
  /** Of wildcards and globs, by `collectionKey`. */
  readonly #collecting: ReadonlyMap<string, readonly MovedLocator[]>;

  constructor(before: Selection, now: Selection) {
    const moved = movedIn(before, now);
    this.#named = Map.groupBy(moved, ({ from }) => itemId(true, from.parameters, from.spelling));
    const collecting = moved.filter(({ from }) => isCollection(from.selector));
    this.#collecting = Map.groupBy(collecting, ({ from }) => collectionKey(from.parameters, from.selector));
  }

  /** The items of the new selection that an item of the old one may have become: by its name, or as a member. */
  targetsOf({ id, name, spelling, locator, parameters: before }: Item): readonly MovedItem[] {
    if (!locator) return none;
    const collections = [WILDCARD, parentGlob(name) ?? WILDCARD].map((selector) =>
      collectionKey(before, selector),
    );
    const collecting = [...new Set(collections)].flatMap((key) => this.#collecting.get(key) ?? []);
    return [...(this.#named.get(id) ?? none), ...collecting].map(({ to: parameters }) => ({
      id: itemId(true, parameters, spelling),
      parameters,
    }));
  }
}

const collectionKey = (parameters: Parameters, selector: Selector): string => `${parameters.id} ${selector}`;

function movedIn(before: Selection, now: Selection): readonly MovedLocator[] {
  const ended = [...before.entries].filter(([id, { locator }]) => locator && !now.has(id));
  if (ended.length === 0) return none;
  const key = ({ locatorParameters, spelling }: SelectionEntry): string =>
    `${locatorParameters?.id} ${spelling}`;
  const parameters = new Map<string, Parameters>();
  for (const selected of now.entries.values()) {
    if (selected.locator) parameters.set(key(selected), selected.parameters);
  }
  return ended.flatMap(([, from]) => {
    const to = parameters.get(key(from));
    return to === undefined ? [] : [{ from, to }];
  });
}

/**
 * A locator client gets the absence of a name without constraints, which does not say for which parameters. So it is
 * withheld while the name is unknown for other parameters of this client (protocol §5.10). These are the absences that
 * were withheld at a position:
 *
 *     x {dev} absent, x {prod} unknown                 →  withheld
 *     x {dev} absent and told, then x {prod} is added  →  told: it is in `absent` of the position
 *
 * Valid while the position is the same.
 */
export class WithheldAbsences {
  readonly #position: CursorPosition;
  /** By spelling: whether some parameter set was unknown. A client may name one resource with thousands of them. */
  readonly #unknown = new Map<string, boolean>();

  constructor(position: CursorPosition) {
    this.#position = position;
  }

  has(id: string): boolean {
    const { view, revision, absent } = this.#position;
    if (view.forms.length === 1 || absent?.has(id) === true) return false;
    const item = view.items.get(id);
    return item?.locator === true && valueAt(item, revision) === 'absent' && this.#isUnknownForSome(item);
  }

  #isUnknownForSome({ spelling, name }: Item): boolean {
    const { view, revision } = this.#position;
    const unknown =
      this.#unknown.get(spelling) ??
      view.spelled(true, spelling, name).some((other) => valueAt(other, revision) === 'unknown');
    this.#unknown.set(spelling, unknown);
    return unknown;
  }
}

/** The absences that a client was told, of those that are withheld from others at the head of a view. */
export function toldAtHead(view: View, isTold: (item: Item) => boolean): Absences | undefined {
  if (view.forms.length === 1) return undefined;
  const { head: revision, generation } = view;
  const withheld = new WithheldAbsences({ view, revision, generation });
  const told = view.items
    .values()
    .filter((item) => withheld.has(item.id) && isTold(item))
    .map(({ id }) => [id, revision] as const);
  const absences = new Map(told);
  return absences.size > 0 ? absences : undefined;
}
