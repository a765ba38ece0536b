import { NO_PARAMETERS } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { itemId } from '../model/selection.ts';
import { type ResendItems, type Response, resendItems } from '../model/subscription.ts';
import { bytesTag, MessageReader, varintTag } from '../protobuf/message-reader.ts';

/** What follows from the clusters of a CDS response. Computed once for all that get it. */
export interface ClusterConsequences {
  /**
   * The EDS items that they call for: Envoy warms a changed cluster anew and waits for its endpoints, and in delta does
   * not ask for them (protocol §10.1).
   */
  readonly edsToResend: ResendItems;
  /** A client takes some time until it can use some of them: they need endpoints, addresses or a health check first. */
  readonly warming: boolean;
}

const known = new WeakMap<Response, ClusterConsequences>();

/** `response` has at least one changed cluster. */
export function consequencesOf(response: Response): ClusterConsequences {
  const before = known.get(response);
  if (before !== undefined) return before;
  const peeked = response.changed.map(peek);
  const items = new Set(peeked.map(({ service }) => itemId(false, NO_PARAMETERS, service)));
  const consequences = { edsToResend: resendItems(items), warming: peeked.some(({ warms }) => warms) };
  known.set(response, consequences);
  return consequences;
}

interface Peeked {
  /** eds_cluster_config.service_name (3.2) of the Cluster, by default its name (1). */
  readonly service: string;
  /** By its type (2: STATIC and ORIGINAL_DST do not), health_checks (8) or cluster_type (38). */
  readonly warms: boolean;
}

const discoveryType = varintTag(2);

function peek(variant: Variant): Peeked {
  try {
    let [service, warms] = ['', false];
    let name: string = variant.name;
    const any = variant.payload?.bytes ?? noBytes;
    for (const reader = new MessageReader(lastField(any, 2)); reader.next(); ) {
      if (reader.tag === bytesTag(1)) name = reader.lossyText();
      else if (reader.tag === discoveryType) warms ||= [1, 2, 3].includes(reader.int32());
      else if (reader.tag === bytesTag(3)) service = lastField(reader.view(), 2).toString();
      else warms ||= reader.field === 8 || reader.field === 38;
    }
    return { service: service || name || variant.name, warms };
  } catch {
    // Not a Cluster that we can read: the resource's name will do.
    return { service: variant.name, warms: false };
  }
}

const noBytes: Buffer = Buffer.alloc(0);

/** The last occurrence of a length-delimited field; empty without one. */
function lastField(message: Uint8Array, number: number): Buffer {
  let found = noBytes;
  for (const reader = new MessageReader(message); reader.next(); ) {
    if (reader.tag === bytesTag(number)) found = reader.view();
  }
  return found;
}
