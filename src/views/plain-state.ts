import { isVariant } from '../model/catalog.ts';
import type { Encoding } from '../model/subscription.ts';
import type { View } from './view.ts';

/**
 * The resources of a complete SotW state, as their bytes, where nothing but these is needed: of a wildcard or glob
 * alone, for clients that get no constraints, wrappers or TTLs. That is what most clients subscribe to, and of many
 * classes of clients each wants its own. Undefined: some resource needs more.
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
