import { isVariant, type Value } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { type Change, sameVariant } from './compose.ts';
import { Coverage } from './coverage.ts';
import type { Told } from './frame.ts';
import type { Item } from './item.ts';
import type { View } from './view.ts';

/** One thing that a rejected response said: it goes out once more, alone (protocol §3.12). */
export interface Part {
  readonly item: Item;
  /** What was rejected; undefined: a removal. */
  readonly shown: Variant | undefined;
  /** What the client was to lose for it; undefined: nothing. */
  readonly lost: Variant | undefined;
}

/**
 * What a rejected response said, thing by thing. A removal is one, too: the client still has what it rejected to lose.
 * What several parameter sets show is said once. Nothing if there was only one thing: that was it, then.
 */
export function partsOf({ news, lost }: Told): readonly Part[] {
  const byItem = new Map<string, Part>();
  for (const { item, variant } of news) byItem.set(item.id, { item, shown: variant, lost: undefined });
  for (const { item, variant } of lost) {
    byItem.set(item.id, { item, shown: byItem.get(item.id)?.shown, lost: variant });
  }
  const parts = new Map<string, Part>();
  const swapped = new Set<string>();
  for (const { item, shown, lost: removed } of byItem.values()) {
    if (shown !== undefined && removed !== undefined) swapped.add(removalKey(item, removed));
  }
  for (const part of byItem.values()) {
    const { item, shown, lost: removed } = part;
    // Another parameter set gets something in its place: it goes with that.
    if (shown === undefined && removed !== undefined && swapped.has(removalKey(item, removed))) continue;
    const constraints = item.locator ? (shown ?? removed)?.constraints.key : undefined;
    const key = JSON.stringify([item.spelling, shown !== undefined, constraints ?? '']);
    if (parts.get(key)?.lost === undefined) parts.set(key, part);
  }
  return parts.size < 2 ? [] : [...parts.values()];
}

const removalKey = ({ locator, spelling }: Item, { constraints }: Variant): string =>
  JSON.stringify([locator, spelling, constraints.key]);

/**
 * What there is to say again; undefined where something newer goes out anyway, or nobody wants it any more. `held`:
 * what the client was last sent.
 */
export function again(
  { item: rejected, shown, lost }: Part,
  view: View,
  held: Value | undefined,
): Change | undefined {
  // The selection may have changed since: then the same is another item.
  const item = view.items.get(rejected.id);
  const now = item?.last.value;
  const shared = { claimed: undefined, forced: true };
  if (item !== undefined && isVariant(now)) {
    // Something newer went out since, or will.
    if (shown === undefined || !sameVariant(shown, now)) return undefined;
    if (!isVariant(held) || !sameVariant(held, now)) return undefined;
    return { item, now, held: lost ?? held, ...shared };
  }
  if (shown !== undefined || lost === undefined || now === 'unknown' || isVariant(held)) return undefined;
  if (item === undefined) {
    if (new Coverage(view).of({ item: rejected, variant: lost }) !== 'answered') return undefined;
  }
  return { item: item ?? rejected, now: 'absent', held: lost, ...shared };
}
