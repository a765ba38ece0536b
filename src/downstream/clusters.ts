import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { NO_PARAMETERS } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { itemId } from '../model/selection.ts';
import { type Batch, batch, type Response } from '../model/subscription.ts';

const batches = new WeakMap<Response, Batch | undefined>();

/**
 * The EDS items that the clusters of a CDS response call for: Envoy warms a changed cluster anew and waits for its
 * endpoints, and in delta does not ask for them (protocol §10.1). Computed once for all that get the response.
 */
export function endpointsOwed(response: Response): Batch | undefined {
  if (batches.has(response)) return batches.get(response);
  const items = new Set<string>();
  for (const variant of response.changed) {
    items.add(itemId(false, NO_PARAMETERS, serviceName(variant)));
  }
  const owed = items.size === 0 ? undefined : batch(items);
  batches.set(response, owed);
  return owed;
}

/** eds_cluster_config.service_name (3.2) of a Cluster, by default its name (1). */
function serviceName(variant: Variant): string {
  try {
    const any = variant.payload?.bytes ?? new Uint8Array();
    const cluster = field(any, 2) ?? new Uint8Array();
    const config = field(cluster, 3) ?? new Uint8Array();
    for (const name of [field(config, 2), field(cluster, 1)]) {
      if (name !== undefined && name.length > 0) return Buffer.from(name).toString();
    }
  } catch {
    // Not a Cluster that we can read: the resource's name will do.
  }
  return variant.name;
}

/** The last occurrence of a length-delimited field. */
function field(message: Uint8Array, number: number): Uint8Array | undefined {
  const reader = new BinaryReader(message);
  let found: Uint8Array | undefined;
  while (reader.pos < reader.len) {
    const [at, wire] = reader.tag();
    if (at === number && wire === WireType.LengthDelimited) found = reader.bytes();
    else reader.skip(wire, at);
  }
  return found;
}
