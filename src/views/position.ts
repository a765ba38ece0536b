import { type ResourceName, resourceName } from '../model/brand.ts';
import { isVariant, type StoredResourceError, type Value } from '../model/catalog.ts';
import type { Constraints } from '../model/constraints.ts';
import { getOrMake, onceFor } from '../model/maps.ts';
import type { References, Variant } from '../model/resource.ts';
import {
  collectionCovers,
  entryId,
  isCollection,
  noIds,
  type Selection,
  type SelectionEntry,
  withIds,
} from '../model/selection.ts';
import type { ResendItems } from '../model/subscription.ts';
import { sameError } from '../model/transaction.ts';
import { referencesOf } from '../wire/references.ts';
import { areOne, type Item, valueAt } from './item.ts';
import {
  type Has,
  isDeferred,
  isResource,
  type Overlay,
  onceAtHead,
  overlayOf,
  type RetainedResource,
} from './shared-responses.ts';
import { filledIn, type View } from './view.ts';

const none: readonly never[] = [];

/** Of positions of a view, by their revision and overlay, what the head does not show any more. Nearly all have none. */
const removedAtHead = onceAtHead(() => ({
  without: byRevision(),
  with: onceFor<Overlay, Removed>(byRevision),
}));
type Removed = Map<number, readonly RetainedResource[]>;
const byRevision = (): Removed => new Map();

/** What a client has: what a view showed at a revision, and what the overlay says besides. */
export class Position {
  readonly view: View;
  /** The revision that the client was last sent. */
  revision: number;
  /** How many visible changes the view had had then. */
  #generation: number;
  overlay: Overlay | undefined;
  /**
   * Items whose errors the last response has left to the next one. The cursor sends them again for that: what it sends
   * again for other reasons has no errors to tell.
   */
  #untold: ResendItems | undefined;

  constructor(view: View, revision: number, overlay?: Overlay, untold?: ResendItems) {
    this.view = view;
    this.revision = revision;
    this.#generation = view.generation;
    this.overlay = overlay;
    this.#untold = untold;
  }

  /** To the head of its view. Returns how many visible changes were passed over. */
  advance(overlay: Overlay | undefined, untold: ResendItems | undefined): number {
    const { view } = this;
    const passedOver = view.generation - this.#generation - 1;
    this.revision = view.head;
    this.#generation = view.generation;
    this.overlay = overlay;
    this.#untold = untold;
    return Math.max(0, passedOver);
  }

  /** What the client has of an item, or was told of it: what it has besides counts. `own`: the item, if it is of this view. */
  lastSent(id: string, own = this.view.items.get(id)): Value | undefined {
    return this.overlay?.get(id)?.variant ?? (own && valueAt(own, this.revision));
  }

  /** What the client has and the head does not show any more. Made once for all that have the same: each update asks. */
  get removed(): readonly RetainedResource[] {
    const { view, revision, overlay } = this;
    const all = removedAtHead(view);
    const known = overlay === undefined ? all.without : all.with(overlay);
    return getOrMake(known, revision, () => {
      const removed: RetainedResource[] = [];
      for (const item of view.changedSince(revision)) {
        const variant = item.last.value === 'absent' ? valueAt(item, revision) : undefined;
        if (isVariant(variant) && overlay?.has(item.id) !== true) removed.push({ item, variant });
      }
      const coverage = new Coverage(view);
      for (const one of overlay?.values() ?? none)
        if (isResource(one) && valueIn(view, one, coverage) === 'absent') removed.push(one);
      return removed;
    });
  }

  /** The revision of a view up to which the client got an item's errors. Each is sent once (protocol §8), over views too. */
  errorsSentUpTo(view: View, item: Item): number {
    if (this.#untold?.has(item.id) === true) return -1;
    const sent = Math.max(this.revision, this.overlay?.get(item.id)?.errorsSentUpTo ?? -1);
    if (this.view === view) return sent;
    const errors = view.resourceErrors(item);
    if (errors.length === 0) return view.head;
    // A view of another access or cohort shows others, and those that both show may have other revisions there.
    const before = this.view.items.get(item.id);
    const known = before === undefined ? none : this.view.resourceErrors(before);
    const told = known.filter(({ revision }) => revision[this.view.access.cohort] <= sent);
    const isTold = (error: StoredResourceError): boolean =>
      told.some((one) => one.constraints.key === error.constraints.key && sameError(one, error));
    const owed = errors.filter((error) => !isTold(error));
    return Math.min(view.head, ...owed.map(({ revision }) => revision[view.access.cohort] - 1));
  }

  /** What the client has that this does not say of a view: of another one, all resources. */
  besideIn(view: View): Overlay | undefined {
    return this.view === view ? this.overlay : overlayOf(this.#resources());
  }

  /** What the resources that the client has refer to. */
  get references(): References {
    const shown = this.view.referencesAt(this.revision);
    return this.overlay === undefined ? shown : shown.union(referencesOfAll(this.overlay));
  }

  /** What a view shows and the client does not have refers to these, and what it has did not. */
  newReferencesIn(view: View): References {
    if (this.view !== view) return view.referencesAt(view.head).difference(this.references);
    const since = view.referencesSince(this.revision);
    return this.overlay === undefined ? since : since.difference(referencesOfAll(this.overlay));
  }

  /**
   * If the parameters of a client change, it may lose resources of a wildcard or glob. It keeps all of them until the
   * wildcard is resolved, and then gets all changes in one response. One that it has added, `awaited`, holds nothing up.
   */
  waitsForCollectionsOf(view: View, awaited: ReadonlySet<string>): boolean {
    const from = this.view;
    if (from === view || view.collectionsResolved) return false;
    return view.selection.collections.some(
      (selected) =>
        from.selection.has(entryId(selected)) &&
        !awaited.has(entryId(selected)) &&
        !view.isResolved(selected),
    );
  }

  /**
   * In a view that the client leaves before any response was sent from it: all that it has of what that selects. What it
   * unsubscribed when it moved there is dropped at the client, even if it subscribes to it again (protocol §4.5).
   */
  movedTo(view: View): Position {
    const has = new Map<string, Has>(this.#resources().filter(isSelectedIn(view)));
    for (const item of view.items.values()) {
      const { id } = item;
      const resource = has.get(id);
      const variant = this.lastSent(id);
      if (resource !== undefined) {
        if (!isDeferred(resource))
          has.set(id, { ...resource, errorsSentUpTo: this.errorsSentUpTo(view, item) });
      } else if (
        (variant === 'absent' && view.selection.has(id)) ||
        (variant === 'unknown' && view.resourceErrors(item).length > 0)
      )
        has.set(id, { item, variant, errorsSentUpTo: this.errorsSentUpTo(view, item) });
    }
    return new Position(view, -1, overlayOf(has));
  }

  /**
   * What was unsubscribed counts as never sent. But if it is subscribed again in this view while a response with it is
   * outstanding, the client may have sent both requests before it read that response. Then it has the resource; else it
   * has dropped it (protocol §4.5). `sent`: what outstanding responses add.
   */
  addOutstanding(sent: ReadonlyMap<string, RetainedResource>, view: View): void {
    const overlay = new Map(this.overlay);
    const isSelected = isSelectedIn(view);
    for (const [id, one] of sent) {
      if (isVariant(this.lastSent(id)) || !isSelected([id, one])) continue;
      overlay.set(id, { ...one, ...this.overlay?.get(id), mayBeDropped: true });
    }
    this.overlay = overlayOf(overlay);
  }

  /** The resources that the client has, by their ids in its view. What it has besides comes last, and counts. */
  *#resources(): IteratorObject<readonly [string, RetainedResource], undefined> {
    for (const item of this.view.items.values()) {
      const variant = valueAt(item, this.revision);
      if (isVariant(variant) && this.overlay?.has(item.id) !== true) yield [item.id, { item, variant }];
    }
    for (const [id, has] of this.overlay ?? none) if (isResource(has)) yield [id, has];
  }
}

/** What a view's selection names or covers. A client drops the rest as it unsubscribes that (protocol §4.5). */
function isSelectedIn(view: View): (entry: readonly [string, RetainedResource]) => boolean {
  const coverage = new Coverage(view);
  return ([id, one]) => view.selection.has(id) || coverage.of(one) !== 'none';
}

/**
 * What a view says at its head of what a client has. Of what it does not list, what covers it decides; undefined: nothing
 * does, or it is there in another spelling.
 */
export function valueIn(view: View, has: Has, coverage: Coverage): Value | undefined {
  const item = view.items.get(has.item.id);
  if (item !== undefined) return item.last.value;
  if (!isResource(has)) return undefined;
  const covered = coverage.of(has);
  if (covered === 'unresolved') return 'unknown';
  return covered === 'none' || shownOtherwise(has.item, view) ? undefined : 'absent';
}

/** The view shows it in another spelling, which is the same resource (protocol §6.1). */
export function shownOtherwise(item: Item, view: View): boolean {
  const { name, requestedName, locator, parameters } = item;
  if (requestedName !== name) return isVariant(view.itemOf(locator, parameters, name)?.last.value);
  return view.respelled(name).some((other) => areOne(other, item) && isVariant(other.last.value));
}

/**
 * What a view shows of one name for the other parameter sets of the same client. Computed once for each spelling, because a
 * client may subscribe to one name with thousands of parameter sets. Valid while the view does not change.
 */
export class OtherParameterSets {
  readonly #view: View;
  readonly #plain = new Map<string, ReturnType<typeof stateOf>>();
  readonly #located = new Map<string, ReturnType<typeof stateOf>>();

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * Whether the same locator with other parameters is unknown. A locator client gets the absence of a name without
   * constraints, which does not say for which parameters, so it is withheld then (protocol §5.10). The item need not be in the
   * view.
   *
   *     x {dev} absent, x {prod} unknown                 →  withheld: it has an overlay, where it is unknown
   *     x {dev} absent and told, then x {prod} is added  →  told, as the position says
   */
  anyUnknown(item: Pick<Item, 'id' | 'name' | 'requestedName' | 'locator'>): boolean {
    if (!item.locator || this.#view.forms.length === 1) return false;
    const own = this.#view.items.get(item.id)?.last.value;
    return this.#of(true, item.requestedName, item.name).unknown > (own === 'unknown' ? 1 : 0);
  }

  /** Whether another parameter set shows the resource, by its name or an alias; `constrained`: exactly this variant. */
  anyShows({ locator, requestedName, name }: Item, variant: Variant, constrained: boolean): boolean {
    const shows = (spelled: string, canonical: ResourceName): boolean => {
      const [only] = this.#view.forms;
      if (only !== undefined && this.#view.forms.length === 1) {
        // Nearly every client has one parameter set.
        const now =
          only.locator === locator ? this.#view.itemOf(locator, only.parameters, spelled) : undefined;
        const value = now?.last.value;
        return isVariant(value) && isSame(value, variant, constrained);
      }
      const { names, variants } = this.#of(locator, spelled, canonical);
      return constrained ? variants.has(shownVariantKey(variant)) : names.has(variant.name);
    };
    if (shows(requestedName, name) || shows(variant.name, variant.name)) return true;
    // A resource that was found by an alias is sent under its own name, however the client spells the alias.
    return variant.aliases.some((alias) => {
      const canonical = resourceName(alias);
      if (shows(alias, canonical)) return true;
      return this.#view.respelled(canonical).some((other) => {
        const value = other.locator === locator ? other.last.value : undefined;
        return isVariant(value) && isSame(value, variant, constrained);
      });
    });
  }

  #of(locator: boolean, requestedName: string, name: ResourceName) {
    const known = locator ? this.#located : this.#plain;
    return getOrMake(known, requestedName, () => stateOf(this.#view.spelled(locator, requestedName, name)));
  }
}

/** What the items of one spelling show, over all parameter sets of locators, or of plain names. */
function stateOf(items: Iterable<Item>) {
  /** `unknown`: how many items are. `variants`: by `shownVariantKey`. */
  const state = { unknown: 0, names: new Set<ResourceName>(), variants: new Set<string>() };
  for (const { last } of items) {
    if (last.value === 'unknown') state.unknown++;
    if (!isVariant(last.value)) continue;
    state.names.add(last.value.name);
    state.variants.add(shownVariantKey(last.value));
  }
  return state;
}

const shownVariantKey = ({ name, constraints }: Variant): string => `${constraints.key} ${name}`;

const isSame = (a: Variant, b: Variant, constrained: boolean): boolean =>
  a.name === b.name && (!constrained || a.constraints.key === b.constraints.key);

/**
 * Whether the subscriptions of a view decide about a resource that the client got from an earlier view. `none`: no
 * subscription covers it. `resolved`: all that cover it are. `unresolved`: one of them is not.
 */
type Covered = 'none' | 'resolved' | 'unresolved';

/** The locators about one name: many parameter sets of one client may have shown the same variant. */
function locatedIn(selection: Selection, name: ResourceName) {
  const locators = selection.entriesFor(name).filter(({ locator }) => locator);
  return { locators, judged: new Map<Constraints, Covered>() };
}

/**
 * Which subscriptions of a view cover a resource that the client got from an earlier view. Valid while the view does
 * not change.
 */
export class Coverage {
  readonly #view: View;
  readonly #located = new Map<ResourceName, ReturnType<typeof locatedIn>>();

  constructor(view: View) {
    this.#view = view;
  }

  /**
   * By a plain name it is the same resource whatever the parameters: the wildcards and globs that show it decide (its own
   * subscription is looked at elsewhere). By a locator it is one variant: every locator whose parameters match its
   * constraints decides.
   *
   *     the client has a {env == "prod"}; the view selects a with env=prod, which is unknown   →  unresolved
   *     the view selects a with env=test only, which is resolved                                →  none
   */
  of({ item, variant }: RetainedResource): Covered {
    const { name, locator } = item;
    const { selection } = this.#view;
    if (!locator) {
      const collecting = isCollection(name) ? [] : selection.collectionsOver(name);
      // Of what a client has from an earlier stream it does not say for which parameters.
      const isFromEarlier = variant.payload === undefined;
      return this.#judge(collecting.filter((selected) => isFromEarlier || !selected.locator));
    }
    const located = getOrMake(this.#located, name, () => locatedIn(selection, name));
    const { constraints } = variant;
    return getOrMake(located.judged, constraints, () =>
      this.#judge(located.locators.filter((one) => constraints.matches(one.parameters))),
    );
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

/**
 * What is due to one client, by ids: it is sent even if the client has it. Where there is an entry, the client is told in any
 * case whether it is there.
 */
export type Due = Map<string, SelectionEntry | undefined>;

/** A name that a delta response must mention as removed. */
export type NamedRemoval = Pick<Item, 'id' | 'requestedName' | 'locator'>;

/**
 * Of the names and globs that a delta response must mention, as present or as absent (names that were unsubscribed while a
 * wildcard covers them, protocol §4.5, and globs, which may be empty, §6): those that the view knows to be absent, and
 * those that it does not know yet. Undefined: none.
 */
export function answersIn(
  due: Due | undefined,
  view: View,
): {
  readonly absent: readonly NamedRemoval[];
  readonly left: Due | undefined;
} {
  const owed =
    due === undefined ? [] : [...due].filter((one): one is [string, SelectionEntry] => one[1] !== undefined);
  if (owed.length === 0) return { absent: none, left: undefined };
  const absent: NamedRemoval[] = [];
  const left = new Map<string, SelectionEntry>();
  const answered = owed.some(([, { selector }]) => isCollection(selector)) ? answeredIn(view) : undefined;
  const others = new OtherParameterSets(view);
  for (const [id, selected] of owed) {
    const { selector: name, requestedName, locator } = selected;
    const isCollected = answered !== undefined && isCollection(name);
    const state = isCollected ? collectionState(view, id, answered.filled) : nameState(view, id, selected);
    // As a locator it is withheld while other parameter sets are unknown (protocol §5.10).
    const waits = isCollected
      ? locator && answered.waiting.has(name)
      : others.anyUnknown({ id, name, requestedName, locator });
    if (state === 'unknown' || (state === 'absent' && waits)) left.set(id, selected);
    else if (state === 'absent') absent.push({ id, requestedName, locator });
  }
  return { absent, left: left.size > 0 ? left : undefined };
}

/**
 * Of the wildcards and globs whose first response is due, those for which it is when a client has got all that the view
 * shows. Of those that show something it has got that.
 */
export function awaitedAtHead(view: View, ids: ReadonlySet<string>): ReadonlySet<string> {
  if (view.collectionsResolved) return noIds;
  const isAnswered = (one: SelectionEntry): boolean => ids.has(entryId(one)) && view.isResolved(one);
  if (!view.selection.collections.some(isAnswered)) return ids;
  return ids.difference(withIds(noIds, [...answeredIn(view).filled]));
}

/** The names of which a view knows nothing, among the entries with these ids. */
export function unknownIn(view: View, ids: ReadonlySet<string>): SelectionEntry[] {
  return [...view.unresolvedNames]
    .filter(({ id }) => ids.has(id))
    .flatMap(({ id }) => view.selection.entries.get(id) ?? none);
}

type State = 'present' | 'absent' | 'unknown';

function collectionState(view: View, id: string, filled: ReadonlySet<SelectionEntry>): State {
  const collection = view.selection.entries.get(id);
  if (collection === undefined) return 'present'; // unsubscribed in the meantime: nothing needs to be said
  if (!view.isResolved(collection)) return 'unknown';
  return filled.has(collection) ? 'present' : 'absent';
}

function nameState(view: View, id: string, selected: SelectionEntry): State {
  const { selector, locator, parameters } = selected;
  const value = (view.items.get(id) ?? view.itemOf(locator, parameters, selector))?.last.value;
  if (value !== undefined) return isVariant(value) ? 'present' : value;
  const covering = view.selection
    .collectionsOver(selector)
    .filter((collection) => collectionCovers(collection, selected));
  if (covering.some((collection) => !view.isResolved(collection))) return 'unknown';
  return covering.length > 0 ? 'absent' : 'present';
}

/** `filled`: the wildcards and globs that show something. `waiting`: those that are not answered, by locators. */
export function answeredIn(view: View) {
  const { selection } = view;
  const waiting = selection.collections.filter((one) => one.locator && !view.isResolved(one));
  return { filled: filledIn(view), waiting: new Set(waiting.map(({ selector }) => selector)) };
}

/** What an overlay refers to, read once: each removal of another type asks. */
export const referencesOfAll = onceFor(
  (all: ReadonlyMap<string, { readonly variant: Value }>): References =>
    new Set(all.values().flatMap(({ variant }) => (isVariant(variant) ? referencesOf(variant) : none))),
);
