import { resourceName } from '../model/brand.ts';
import { isVariant, type Value } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import { getOrMake } from '../model/maps.ts';
import type { Payload, Variant } from '../model/resource.ts';
import { entryId, itemId, requestedNameOf } from '../model/selection.ts';
import type { ChangedVariant, Encoding, ResendItems } from '../model/subscription.ts';
import { isGlob } from '../model/xdstp.ts';
import type { Claims } from './claims.ts';
import { type Item, nameOf, sentName } from './item.ts';
import { answeredIn, Coverage, type Due, itemsOf, type Position, valueIn } from './position.ts';
import {
  type Has,
  isDeferred,
  isResource,
  type Overlay,
  onceAtHead,
  type RetainedResource,
  type SentResponse,
} from './shared-responses.ts';
import type { View } from './view.ts';

const none: readonly never[] = [];

/** What changed of one item, for one subscriber. */
export interface Change {
  readonly item: Item;
  readonly now: Value;
  /** What it was sent. */
  readonly lastSent: Value | undefined;
  /** The version that it says it has (initial_resource_versions). */
  readonly clientVersion: string | undefined;
  /** To be sent even if it has it. */
  readonly resend: boolean;
  /** What it has that its position does not say. */
  readonly has: Has | undefined;
}

/** As in `ChangedVariant`. A version that is empty is that of no resource. */
export function updatedBy({ lastSent, clientVersion = '', resend }: Change): ChangedVariant['before'] {
  if (resend) return undefined;
  if (isVariant(lastSent)) return lastSent;
  return clientVersion === '' ? undefined : 'unknown';
}

/** Whether the variant must be sent to this subscriber. */
export function needsSending(
  { lastSent, clientVersion, resend }: Change,
  now: Variant,
  ttl: boolean,
): boolean {
  if (resend) return true;
  // What remains of a TTL the client does not know.
  if (clientVersion !== undefined)
    return (ttl && now.ttl !== undefined) || !sameSuffix(clientVersion, now.deltaVersion);
  if (!isVariant(lastSent)) return true;
  if (lastSent === now) return false;
  return !sameVariant(lastSent, now) || (ttl && lastSent.ttl?.deadline !== now.ttl?.deadline);
}

export function sameVariant(a: Variant, b: Variant): boolean {
  return (
    samePayload(a.payload, b.payload) &&
    a.constraints.key === b.constraints.key &&
    contentHash(a) === contentHash(b)
  );
}

/** Equal payloads are one object while they are cached. A payload that was removed and came back is another object. */
function samePayload(a: Payload | undefined, b: Payload | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a === b || (a.hash === b.hash && Buffer.compare(a.bytes, b.bytes) === 0);
}

/** Only the TTL is new. A client takes that without a body only with the version that it has (protocol §4.11). */
export const isHeartbeat = ({ lastSent, resend }: Change, now: Variant): boolean =>
  !resend &&
  isVariant(lastSent) &&
  lastSent.ttl !== undefined &&
  lastSent.deltaVersion === now.deltaVersion &&
  sameVariant(lastSent, now);

/** Only the constraints may differ: a client that reads no constraints sees no change. */
export const hasBody = (lastSent: Value | undefined, now: Variant): boolean =>
  isVariant(lastSent) && samePayload(lastSent.payload, now.payload);

/** Only the digest counts, and only where there is one (protocol §4.1). */
export function sameSuffix(claimed: string, deltaVersion: string): boolean {
  return claimed.includes('@') && contentHash({ deltaVersion: claimed }) === contentHash({ deltaVersion });
}

/** The client's own timer has ended it, if it has one. */
export const hasExpired = ({ ttl }: Variant, now: number): boolean =>
  ttl !== undefined && ttl.deadline <= now;

/** With these, of a response that was rejected whole: of what was kept meanwhile the client has what it had before. */
export function withDoubts(overlay: Overlay, rejected: readonly RetainedResource[]): Overlay {
  const doubtful = rejected.flatMap(({ item: { id }, variant }) => {
    const kept = overlay.get(id);
    const isKept = kept !== undefined && isDeferred(kept) && isResource(kept);
    return isKept && sameVariant(kept.variant, variant)
      ? [[id, { ...kept, mayBeDropped: true }] as const]
      : [];
  });
  return doubtful.length === 0 ? overlay : new Map([...overlay, ...doubtful]);
}

/**
 * Whether without a resource a locator client would turn to another variant that it has, and of which it is not known
 * whether that is there: it came for other parameters, for which the name is unknown now (protocol §5.10). Then the removal
 * is deferred. A removal of that other variant is left out: it goes with its own answer (`#retained` in composition.ts).
 */
export function leavesDoubtful(overlay: Overlay, { items }: View): (removed: RetainedResource) => boolean {
  // Thousands of parameter sets may have one variant: each constraint is looked at once.
  const variants = overlay
    .values()
    .filter(isResource)
    .filter(({ item }) => item.locator && items.get(item.id)?.last.value === 'unknown')
    .map(({ variant }) => [JSON.stringify([variant.name, variant.constraints.key]), variant] as const);
  const doubtful = Map.groupBy(new Map(variants).values(), ({ name }) => name);
  return ({ item: { locator, parameters }, variant }) =>
    locator &&
    doubtful.get(variant.name)?.some(({ constraints }) => constraints.matches(parameters)) === true;
}

/** Where a client stands, and what it is sent besides what has changed since. */
export interface Stand {
  readonly view: View;
  /** Undefined: it was sent nothing yet. */
  readonly position: Position | undefined;
  /** What it has that the position does not say, by the ids of items of the view. */
  readonly overlay: Overlay | undefined;
  readonly claims: Pick<Claims, 'versionOf'> | undefined;
  /** What is sent to it again, as to others, and what is due to it alone. */
  readonly resend: ResendItems | undefined;
  readonly due: Due | undefined;
  readonly encoding: Encoding;
  /** By `Clock.monotonic()`. */
  readonly now: number;
  /** All items are looked at: it is not only about what has changed. */
  readonly allItems: boolean;
}

/** What the head is for a client: of each item that it may be news of, once. */
export function* changesOf(stand: Stand): Iterable<Change> {
  const { view, position, allItems } = stand;
  const items = allItems ? view.items.values() : view.changedSince(position?.revision ?? -1);
  for (const item of items) yield changeOf(stand, item);
  yield* unchangedOf(stand);
}

/** The same of what is due to it, and of what it has besides, of which nothing has changed. */
function* unchangedOf(stand: Stand): Iterable<Change> {
  const { view, position, overlay, allItems } = stand;
  const from = allItems ? -1 : (position?.revision ?? -1);
  const coverage = new Coverage(view);
  const ids = [stand.resend, stand.due, overlay].flatMap((some) => Array.from(some?.keys() ?? none));
  for (const id of new Set(ids)) {
    const item = view.items.get(id);
    const has = overlay?.get(id);
    if (item !== undefined) {
      if (item.last.revision <= from) yield changeOf(stand, item);
    } else if (has !== undefined) {
      const now = valueIn(view, has, coverage);
      if (now !== undefined) yield changeOf(stand, has.item, now);
    }
  }
}

function changeOf(stand: Stand, item: Item, now = item.last.value): Change {
  const { view, position, overlay, claims, resend, due } = stand;
  const { id, requestedName } = item;
  const has = overlay?.get(id);
  const change = {
    item,
    now,
    lastSent: has?.variant ?? position?.lastSent(id, position.view === view ? item : undefined),
    clientVersion: claims?.versionOf(requestedName),
    resend: has?.mayBeDropped === true || resend?.has(id) === true || due?.has(id) === true,
    has,
  };
  return has === undefined ? change : comingBack(change, has, stand);
}

/** It may be back though its removal was deferred. */
function comingBack(change: Change, has: Has, { encoding, now }: Stand): Change {
  const { variant } = has;
  if (!isVariant(change.now) || !isDeferred(has) || !isVariant(variant)) return change;
  if (encoding.ttl && hasExpired(variant, now)) return { ...change, lastSent: 'absent' };
  // Of what it has from an earlier stream it has said no more than its version.
  if (variant.payload !== undefined) return change;
  return { ...change, lastSent: undefined, clientVersion: variant.deltaVersion };
}

const shown = onceAtHead(() => new WeakMap<ResendItems, ResendItems>());

/**
 * Items, by ids of plain names and globs in canonical spelling, as a view shows them: names in the spelling of its clients,
 * and of a glob its members. One that shows nothing is there itself. All clients get the same object.
 */
export function shownOf(view: View, resend: ResendItems): ResendItems {
  const { collections } = view.selection;
  if (!view.hasRespelled && collections.length === 0) return resend;
  return getOrMake(shown(view), resend, () => {
    const names = resend.values().flatMap((id) => view.respelled(resourceName(requestedNameOf(id))));
    const ids = [...names.filter(({ locator }) => !locator).map(({ id }) => id)];
    const globs = collections.filter(
      ({ selector, locator, parameters }) =>
        isGlob(selector) && !locator && resend.has(itemId(false, parameters, selector)),
    );
    if (ids.length + globs.length === 0) return resend;
    const all = new Set([...resend, ...ids, ...itemsOf(view, new Set(globs))]);
    const filled = globs.length > 0 ? answeredIn(view).filled : undefined;
    for (const glob of globs) {
      if (filled?.has(glob) === true) all.delete(entryId(glob));
      else all.add(entryId(glob));
    }
    return all;
  });
}

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
 * resource. A change that several parameter sets or aliases share is listed once. Empty if the response had only one
 * change: then this one was rejected, and it is not sent again.
 */
export function rejectedChanges(rejected: SentResponse, encoding: Encoding): readonly RejectedChange[] {
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
    const key = JSON.stringify([shown !== undefined, ...wireIdentity(item, shown ?? removed, encoding)]);
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

/** The name, and of a locator the constraints. */
const wireIdentity = (item: Item, variant: Variant | undefined, encoding: Encoding): readonly string[] =>
  variant === undefined
    ? [item.requestedName]
    : [sentName(item, variant, encoding), ...(item.locator ? [variant.constraints.key] : [])];

const removalKey = (item: Item, removed: Variant): string =>
  JSON.stringify([item.locator, nameOf(item, removed), removed.constraints.key]);

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
  const shared = { clientVersion: undefined, resend: true, has: undefined };
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
export const isStill = (value: Value | undefined, now: Variant): boolean =>
  isVariant(value) && sameVariant(value, now);
