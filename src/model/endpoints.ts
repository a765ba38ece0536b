import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { typeUrl } from './brand.ts';

export const assignmentType = typeUrl('type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment');

/** google.protobuf.Any. */
const anyValue = bytesTag(2);
/** ClusterLoadAssignment.endpoints. */
const localities = bytesTag(2);
/** LocalityLbEndpoints.lb_endpoints. */
const endpoint = bytesTag(2);
/** LocalityLbEndpoints: load_balancer_endpoints and leds_cluster_locality_config. */
const elsewhere: ReadonlySet<number> = new Set([7, 8].map(bytesTag));

/**
 * How many endpoints a ClusterLoadAssignment has, as an encoded Any. Infinite: it says where they come from, or is
 * malformed. `most`: with so many the rest is not read.
 */
export function endpointsIn(any: Uint8Array, most: number = Number.POSITIVE_INFINITY): number {
  let count = 0;
  try {
    for (const reader = new MessageReader(any); reader.next(); ) {
      if (reader.tag !== anyValue) continue;
      for (const assignment = reader.message(); count < most && assignment.next(); )
        if (assignment.tag === localities) count += ofLocality(assignment.message(), most - count);
      return count;
    }
    return count;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

function ofLocality(locality: MessageReader, most: number): number {
  let count = 0;
  while (count < most && locality.next()) {
    if (elsewhere.has(locality.tag)) return Number.POSITIVE_INFINITY;
    if (locality.tag === endpoint) count++;
  }
  return count;
}
