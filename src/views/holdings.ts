import { isVariant, type Value } from '../model/catalog.ts';
import { Coverage } from './coverage.ts';
import type { Kept } from './frame.ts';
import { type Item, valueAt } from './item.ts';
import { MovedLocators } from './moved-locators.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/** What a client has, by the ids that it has them under in its view. */
export type Holdings = ReadonlyMap<string, Kept>;

/** What a client was told is not there, by id, and the revision in which it was. */
export type Absences = ReadonlyMap<string, number>;

interface Base {
  readonly view: View;
  readonly revision: number;
  /** From views before it. */
  readonly absent?: Absences;
}

/**
 * What a client that moves to another view has from the old one, and from the views before (`carried`), as long as the
 * new ones could not say what has become of it.
 */
export function holdingsOf(base: Base, view: View, carried: Holdings | undefined): Holdings {
  if (base.view === view) return carried ?? new Map();
  const holdings = new Map<string, Kept>();
  const moved = new MovedLocators(base.view.selection, view.selection);
  const add = (id: string, kept: Kept): void => {
    const { item, variant } = kept;
    const places = view.items.has(id) ? none : moved.placesOf(item);
    const place = places.find((one) => view.items.has(one.id)) ?? places[0];
    holdings.set(place?.id ?? id, place === undefined ? kept : { item: { ...item, ...place }, variant });
  };
  for (const [id, kept] of carried ?? []) add(id, kept);
  for (const [id, item] of base.view.items) {
    const variant = valueAt(item, base.revision);
    if (isVariant(variant)) add(id, { item, variant });
  }
  return holdings;
}

/** What a client that leaves a view for another one, of which it may take nothing, need not be told again. */
export function absentIn(base: Base, view: View): Absences {
  const absent = new Map<string, number>();
  for (const [id, revision] of base.absent ?? []) if (view.selection.has(id)) absent.set(id, revision);
  for (const [id, item] of base.view.items) {
    if (view.selection.has(id) && valueAt(item, base.revision) === 'absent') absent.set(id, base.revision);
  }
  return absent;
}

/** What a client was last sent of an item, by its cursor. */
export function heldIn(base: Base, carried: Holdings | undefined, id: string): Value | undefined {
  const item = base.view.items.get(id);
  const value = item === undefined ? undefined : valueAt(item, base.revision);
  if (isVariant(value) || value === 'absent') return value;
  return carried?.get(id)?.variant ?? (base.absent?.has(id) === true ? 'absent' : value);
}

/** The revision up to which it was told of an item's faults: once (protocol §8), also over a change of the selection. */
export function faultsTold(base: Base, view: View, item: Item): number {
  if (base.view !== view) {
    const before = base.view.access === view.access ? base.view.items.get(item.id) : undefined;
    if (before?.parameters !== item.parameters) return -1;
  }
  return Math.max(base.revision, base.absent?.get(item.id) ?? -1);
}

/** What of it a selection names or covers: the rest a client has dropped by unsubscribing (protocol §4.5). */
export function selectedIn(holdings: Holdings, view: View): Holdings {
  const coverage = new Coverage(view);
  const selected = [...holdings].filter(
    ([id, kept]) => view.selection.has(id) || coverage.of(kept) !== 'none',
  );
  return new Map(selected);
}

/** What a client has that stays in its view, of which the view cannot say any more what has become of it. */
export function lapsedIn({ view, revision }: Base, carried: Holdings | undefined): Holdings {
  const holdings = new Map<string, Kept>(carried);
  for (const item of view.lapsed) {
    const variant = valueAt(item, revision);
    if (isVariant(variant)) holdings.set(item.id, { item, variant });
  }
  return holdings;
}

/** What of it the view does not show though it would, and what would show it is answered: it is gone. */
export function lostIn(holdings: Holdings, view: View): Map<string, Kept> {
  const lost = new Map<string, Kept>();
  const coverage = new Coverage(view);
  for (const [id, kept] of holdings) {
    if (view.items.has(id) || shownOtherwise(kept.item, view)) continue;
    if (coverage.of(kept) === 'answered') lost.set(id, kept);
  }
  return lost;
}

/** What of it the view cannot speak of yet: nothing that removes is concluded from the unknown (protocol §3.9). */
export function openIn(holdings: Holdings, view: View): Holdings | undefined {
  const open = new Map<string, Kept>();
  const coverage = new Coverage(view);
  for (const [id, kept] of holdings) {
    const item = view.items.get(id);
    if (item === undefined) {
      if (coverage.of(kept) === 'open') open.set(id, kept);
    } else if (item.last.value === 'unknown') open.set(id, kept);
  }
  return open.size > 0 ? open : undefined;
}

/** Under the canonical name, where the client spelled it in another way before. */
function shownOtherwise(item: Item, view: View): boolean {
  if (item.spelling === item.name) return false;
  return isVariant(view.itemOf(item.locator, item.parameters, item.name)?.last.value);
}
