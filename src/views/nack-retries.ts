import { isVariant, type Value } from '../model/catalog.ts';
import type { Variant } from '../model/resource.ts';
import { type Change, sameVariant } from './change.ts';
import type { Item } from './item.ts';
import { Coverage } from './overlay.ts';
import type { CompositionInput } from './response-content.ts';
import type { SentResponse } from './shared-responses.ts';
import type { View } from './view.ts';

/** A change of a rejected response: it is sent once more, by itself (protocol §3.12). */
export interface RejectedChange {
  readonly item: Item;
  /** The rejected variant; undefined: a removal. */
  readonly shown: Variant | undefined;
  /** What was removed or replaced with it; undefined: nothing. */
  readonly removed: Variant | undefined;
}

/**
 * The changes of a rejected response, one by one. A removal is a change too: a client that rejected it still has the
 * resource. A change that several parameter sets share is listed once. Empty if the response had only one change:
 * then this one was rejected, and it is not sent again.
 */
export function rejectedChanges(rejected: SentResponse): readonly RejectedChange[] {
  const byItem = changesByItem(rejected);
  const swapped = new Set<string>();
  for (const { item, shown, removed } of byItem) {
    if (shown !== undefined && removed !== undefined) swapped.add(removalKey(item, removed));
  }
  const parts = new Map<string, RejectedChange>();
  for (const part of byItem) {
    const { item, shown, removed } = part;
    // The replacement for another parameter set removes the same variant: that change says it.
    if (shown === undefined && removed !== undefined && swapped.has(removalKey(item, removed))) continue;
    const constraints = item.locator ? (shown ?? removed)?.constraints.key : undefined;
    const key = JSON.stringify([item.spelling, shown !== undefined, constraints ?? '']);
    if (parts.get(key)?.removed === undefined) parts.set(key, part);
  }
  return parts.size < 2 ? [] : [...parts.values()];
}

function changesByItem({ additions, removals }: SentResponse): readonly RejectedChange[] {
  const byItem = new Map<string, RejectedChange>();
  for (const { item, variant } of additions)
    byItem.set(item.id, { item, shown: variant, removed: undefined });
  for (const { item, variant } of removals) {
    byItem.set(item.id, { item, shown: byItem.get(item.id)?.shown, removed: variant });
  }
  return [...byItem.values()];
}

const removalKey = ({ locator, spelling }: Item, { constraints }: Variant): string =>
  JSON.stringify([locator, spelling, constraints.key]);

/**
 * The change to send once more. Undefined: something newer is sent anyway, or the client does not subscribe to it any
 * more. `lastSent`: what the client was last sent.
 */
export function changeToResend(
  { item: rejected, shown, removed }: RejectedChange,
  view: View,
  lastSent: Value | undefined,
): Change | undefined {
  // The selection may have changed since: then another item stands for the same resource.
  const item = view.items.get(rejected.id);
  const now = item?.last.value;
  const shared = { clientVersion: undefined, resend: true };
  if (item !== undefined && isVariant(now)) {
    if (!isStill(shown, now) || !isStill(lastSent, now)) return undefined;
    return { item, now, lastSent: removed ?? lastSent, ...shared };
  }
  if (shown !== undefined || removed === undefined || now === 'unknown' || isVariant(lastSent))
    return undefined;
  if (item === undefined && new Coverage(view).of({ item: rejected, variant: removed }) !== 'resolved')
    return undefined;
  return { item: item ?? rejected, now: 'absent', lastSent: removed, ...shared };
}

/** Otherwise something newer was sent since, or will be. */
const isStill = (value: Value | undefined, now: Variant): boolean =>
  isVariant(value) && sameVariant(value, now);

/** A retry has its change and nothing else. */
export const retryInput = (input: CompositionInput): CompositionInput => ({
  ...input,
  headAt: undefined,
  errorsSentUpTo: () => input.view.head,
  deferredRemovals: undefined,
  firstResponseDue: false,
});
