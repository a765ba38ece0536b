import { isVariant, type Value } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { type Change, sameVariant } from './compose.ts';
import type { Told } from './frame.ts';
import { coveringOf } from './holdings.ts';
import type { Item } from './item.ts';
import type { View } from './view.ts';

/** One thing that a rejected response said: it goes out once more, alone (protocol §3.12). */
export interface Part {
  readonly item: Item;
  /** What the client was to lose for it; undefined: nothing. */
  readonly lost: Variant | undefined;
}

/**
 * What a rejected response said, thing by thing. A removal is one, too: the client still has what it rejected to lose.
 * What several parameter sets show is said once. Nothing if there was only one thing: that was it, then.
 */
export function partsOf({ items, lost }: Told): readonly Part[] {
  const byItem = new Map<string, Part>();
  for (const item of items) byItem.set(item.id, { item, lost: undefined });
  for (const { item, variant } of lost) byItem.set(item.id, { item, lost: variant });
  const parts = new Map<string, Part>();
  for (const part of byItem.values()) {
    const { spelling, locator, last } = part.item;
    const shown = isVariant(last.value) && locator ? last.value.constraints.key : '';
    parts.set(
      JSON.stringify([spelling, isVariant(last.value), shown, part.lost?.constraints.key ?? '']),
      part,
    );
  }
  return parts.size < 2 ? [] : [...parts.values()];
}

/**
 * What there is to say again; undefined where something newer goes out anyway, or nobody wants it any more. `held`:
 * what the client was last sent.
 */
export function again(
  { item: rejected, lost }: Part,
  view: View,
  held: Value | undefined,
): Change | undefined {
  // The selection may have changed since: then the same is another item.
  const item = view.items.get(rejected.id);
  const now = item?.last.value;
  const shared = { claimed: undefined, forced: true };
  if (item !== undefined && isVariant(now)) {
    if (!isVariant(held) || !sameVariant(held, now)) return undefined;
    return { item, now, held: lost ?? held, ...shared };
  }
  if (lost === undefined || now === 'unknown' || isVariant(held)) return undefined;
  if (item === undefined) {
    const covering = coveringOf(view, rejected);
    if (covering.length === 0 || covering.some((one) => !view.answered(one))) return undefined;
  }
  return { item: item ?? rejected, now: 'absent', held: lost, ...shared };
}
