import { isVariant } from '../model/catalog.ts';
import type { Encoding } from '../model/subscription.ts';
import type { View } from './view.ts';

/**
 * The bodies of a complete SotW state, if a response needs nothing else: one wildcard or glob, and no constraints,
 * wrappers or TTLs. Most clients subscribe like this, and each class of clients needs its own response. Undefined: some
 * resource needs more than its body.
 */
export function plainState(
  { items, selection }: View,
  encoding: Encoding,
): readonly Uint8Array[] | undefined {
  const [collection] = selection.collections;
  // With more than one entry two items may show the same resource.
  if (collection === undefined || selection.size > 1 || collection.locator) return undefined;
  if (encoding.wrapped || encoding.constrained) return undefined;
  const bodies: Uint8Array[] = [];
  for (const { name, last } of items.values()) {
    const { value } = last;
    if (!isVariant(value)) continue;
    if (value.name !== name || value.payload === undefined) return undefined;
    if (encoding.ttl && value.ttl !== undefined) return undefined;
    bodies.push(value.payload.bytes);
  }
  return bodies;
}
