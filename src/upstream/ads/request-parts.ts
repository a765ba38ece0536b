import type { UpstreamSubscription } from './upstream-subscriptions.ts';

/**
 * What one delta request names at most, in bytes. gRPC servers refuse messages of more than 4 MiB unless told
 * otherwise, and such a refusal ends the stream of all clients; beside the names there may be versions and the node.
 */
const mostBytes = 512 * 1024;

/** A part of a change of subscriptions, small enough for one request. */
export interface RequestPart {
  readonly subscribe: readonly UpstreamSubscription[];
  readonly unsubscribe: readonly UpstreamSubscription[];
}

/** At least one, in order: all subscribes, then all unsubscribes. */
export function requestParts(
  subscribe: readonly UpstreamSubscription[],
  unsubscribe: readonly UpstreamSubscription[],
): readonly RequestPart[] {
  const parts: { subscribe: UpstreamSubscription[]; unsubscribe: UpstreamSubscription[] }[] = [];
  let bytes = Number.POSITIVE_INFINITY;
  const into = (
    subscription: UpstreamSubscription,
  ): { subscribe: UpstreamSubscription[]; unsubscribe: UpstreamSubscription[] } => {
    const size =
      Buffer.byteLength(subscription.selector) + Buffer.byteLength(subscription.parameters.key) + perName;
    const last = parts.at(-1);
    if (last !== undefined && bytes + size <= mostBytes) {
      bytes += size;
      return last;
    }
    const part = { subscribe: [], unsubscribe: [] };
    parts.push(part);
    bytes = size;
    return part;
  };
  for (const subscription of subscribe) into(subscription).subscribe.push(subscription);
  for (const subscription of unsubscribe) into(subscription).unsubscribe.push(subscription);
  return parts.length === 0 ? [{ subscribe, unsubscribe }] : parts;
}

/** Tags and lengths. */
const perName = 16;
