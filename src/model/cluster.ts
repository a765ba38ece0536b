import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';
import { type ResourceName, typeUrl } from './brand.ts';
import { getOrMake } from './maps.ts';
import type { Payload, Variant } from './resource.ts';
import { canonicalInBody } from './xdstp.ts';

export const clusterType = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');

const known = new WeakMap<Payload, ReturnType<typeof read>>();
const discoveryType = varintTag(2);
const noBytes: Buffer = Buffer.alloc(0);

/** What others need to know of a Cluster. Read once for each body. */
export function clusterFacts({ name, payload }: Variant) {
  return payload === undefined
    ? read(name, noBytes)
    : getOrMake(known, payload, () => read(name, payload.bytes));
}

/**
 * The Any stays closed but for these fields. `service`: eds_cluster_config.service_name (3.2), by default its name (1):
 * whether or not it has endpoints by EDS. `warms`: by its type (2: STATIC and ORIGINAL_DST do not), health_checks (8) or
 * cluster_type (38). `hasEds`: its endpoints come by EDS. `extended`: it has a cluster_type (38), and an extension may
 * have a name for its endpoints that is not read here.
 */
function read(resourceName: ResourceName, any: Uint8Array) {
  try {
    let [service, warms, hasEds, extended] = ['', false, false, false];
    let name: string = resourceName;
    for (const reader = new MessageReader(lastField(any, 2)); reader.next(); ) {
      if (reader.tag === bytesTag(1)) name = reader.lossyText();
      else if (reader.tag === discoveryType) {
        warms ||= [1, 2, 3].includes(reader.int32());
        hasEds = reader.int32() === 3;
      } else if (reader.tag === bytesTag(3)) service = lastField(reader.view(), 2).toString();
      else {
        extended ||= reader.field === 38;
        warms ||= extended || reader.field === 8;
      }
    }
    return { service: canonicalInBody(service || name || resourceName), warms, hasEds, extended };
  } catch {
    // Not a Cluster that we can read: the resource's name will do.
    return { service: resourceName, warms: false, hasEds: false, extended: false };
  }
}

/** The last occurrence of a length-delimited field; empty without one. */
function lastField(message: Uint8Array, number: number): Buffer {
  let found = noBytes;
  for (const reader = new MessageReader(message); reader.next(); ) {
    if (reader.tag === bytesTag(number)) found = reader.view();
  }
  return found;
}

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
