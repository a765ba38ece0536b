import { isVariant, type Value } from '../model/catalog.ts';
import type { Payload, Variant } from '../model/resource.ts';
import { type Item, valueAt } from './item.ts';
import type { View } from './view.ts';

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
}

/** Whether the variant must be sent to this subscriber. */
export function needsSending(
  { lastSent, clientVersion, resend }: Change,
  now: Variant,
  ttl: boolean,
): boolean {
  if (resend) return true;
  if (clientVersion !== undefined) return !sameSuffix(clientVersion, now.deltaVersion);
  if (!isVariant(lastSent)) return true;
  if (lastSent === now) return false;
  return !sameVariant(lastSent, now) || (ttl && lastSent.ttl?.deadline !== now.ttl?.deadline);
}

export function sameVariant(a: Variant, b: Variant): boolean {
  return (
    samePayload(a.payload, b.payload) &&
    a.constraints.key === b.constraints.key &&
    suffix(a.deltaVersion) === suffix(b.deltaVersion)
  );
}

/** Equal payloads are one object while they are cached. A payload that was removed and came back is another object. */
function samePayload(a: Payload | undefined, b: Payload | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a === b || (a.hash === b.hash && Buffer.compare(a.bytes, b.bytes) === 0);
}

/** Only the constraints may differ: a client that reads no constraints sees no change. */
export const hasBody = (lastSent: Value | undefined, now: Variant): boolean =>
  isVariant(lastSent) && samePayload(lastSent.payload, now.payload);

export const suffix = (deltaVersion: string): string => deltaVersion.slice(deltaVersion.lastIndexOf('@') + 1);

/** Only the digest counts, and only where there is one (protocol §4.1). */
export function sameSuffix(claimed: string, deltaVersion: string): boolean {
  return claimed.includes('@') && suffix(claimed) === suffix(deltaVersion);
}

/** The changes of a view since a revision (-1: all of it), and the items that must be resent. */
export function* changesSince(
  view: View,
  from: number,
  resend: ReadonlySet<string> | undefined,
): Iterable<Change> {
  const items = from < 0 ? view.items.values() : view.changedSince(from);
  for (const item of items) {
    const lastSent = from < 0 ? undefined : valueAt(item, from);
    yield {
      item,
      now: item.last.value,
      lastSent,
      clientVersion: undefined,
      resend: resend?.has(item.id) === true,
    };
  }
  if (resend === undefined || from < 0) return;
  for (const id of resend) {
    const item = view.items.get(id);
    if (item === undefined || item.last.revision > from) continue;
    yield {
      item,
      now: item.last.value,
      lastSent: valueAt(item, from),
      clientVersion: undefined,
      resend: true,
    };
  }
}
