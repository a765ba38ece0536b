import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { NO_PARAMETERS } from '../model/parameters.ts';
import type { Variant } from '../model/resource.ts';
import { itemId } from '../model/selection.ts';
import { type ResendItems, type Response, resendItems } from '../model/subscription.ts';

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

function peek(variant: Variant): Peeked {
  try {
    const any = variant.payload?.bytes ?? new Uint8Array();
    const reader = new BinaryReader(field(any, 2) ?? new Uint8Array());
    let [service, warms] = ['', false];
    let name: string = variant.name;
    while (reader.pos < reader.len) {
      const [at, wire] = reader.tag();
      if (at === 1 && wire === WireType.LengthDelimited) name = reader.string();
      else if (at === 2 && wire === WireType.Varint) warms ||= [1, 2, 3].includes(reader.int32());
      else if (at === 3 && wire === WireType.LengthDelimited) {
        service = Buffer.from(field(reader.bytes(), 2) ?? new Uint8Array()).toString();
      } else {
        warms ||= at === 8 || at === 38;
        reader.skip(wire, at);
      }
    }
    return { service: service || name || variant.name, warms };
  } catch {
    // Not a Cluster that we can read: the resource's name will do.
    return { service: variant.name, warms: false };
  }
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
