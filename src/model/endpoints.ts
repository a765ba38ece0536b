import { bytesTag, MessageReader } from '../protobuf/message-reader.ts';
import { typeUrl } from './brand.ts';

export const assignmentType = typeUrl('type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment');

/** google.protobuf.Any. */
const anyValue = bytesTag(2);
/** ClusterLoadAssignment.endpoints. */
const localities = bytesTag(2);
/** LocalityLbEndpoints: lb_endpoints, load_balancer_endpoints and leds_cluster_locality_config. */
const ofLocality: ReadonlySet<number> = new Set([2, 7, 8].map(bytesTag));

/** Whether a ClusterLoadAssignment, as an encoded Any, has an endpoint, or says where they come from. What is malformed has some. */
export function hasEndpoints(any: Uint8Array): boolean {
  try {
    for (const reader = new MessageReader(any); reader.next(); ) {
      if (reader.tag !== anyValue) continue;
      for (const assignment = reader.message(); assignment.next(); )
        if (assignment.tag === localities && namesEndpoints(assignment.message())) return true;
      return false;
    }
    return false;
  } catch {
    return true;
  }
}

function namesEndpoints(locality: MessageReader): boolean {
  while (locality.next()) if (ofLocality.has(locality.tag)) return true;
  return false;
}
