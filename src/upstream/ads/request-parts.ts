import type { Ask } from './wants.ts';

/**
 * What one delta request names at most, in bytes. gRPC servers refuse messages of more than 4 MiB unless told
 * otherwise, and such a refusal ends the stream of all clients; beside the names there may be versions and the node.
 */
const mostBytes = 512 * 1024;

/** A part of a change of subscriptions, small enough for one request. */
export interface RequestPart {
  readonly subscribe: readonly Ask[];
  readonly unsubscribe: readonly Ask[];
}

/** At least one, in order: all subscribes, then all unsubscribes. */
export function requestParts(subscribe: readonly Ask[], unsubscribe: readonly Ask[]): readonly RequestPart[] {
  const parts: { subscribe: Ask[]; unsubscribe: Ask[] }[] = [];
  let bytes = Number.POSITIVE_INFINITY;
  const into = (ask: Ask): { subscribe: Ask[]; unsubscribe: Ask[] } => {
    const size = Buffer.byteLength(ask.selector) + Buffer.byteLength(ask.parameters.key) + perName;
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
  for (const ask of subscribe) into(ask).subscribe.push(ask);
  for (const ask of unsubscribe) into(ask).unsubscribe.push(ask);
  return parts.length === 0 ? [{ subscribe, unsubscribe }] : parts;
}

/** Tags and lengths. */
const perName = 16;
