import { isVariant, type Value } from '../model/catalog.ts';
import { Coverage } from './coverage.ts';
import type { RetainedResource } from './frame.ts';
import { type Item, valueAt } from './item.ts';
import { MovedLocators } from './moved-locators.ts';
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
