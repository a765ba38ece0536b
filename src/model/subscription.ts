import type { Access } from './access.ts';
import type { ResourceName, Serial, TypeUrl } from './brand.ts';
import type { Value } from './catalog.ts';
import type { Parameters } from './parameters.ts';
import type { Variant } from './resource.ts';
import type { Selected, Selection } from './selection.ts';

/** How a subscription wants its responses. Equal encodings share frames. */
export interface Encoding {
  readonly protocol: 'sotw' | 'delta';
  /** SotW: every resource inside a Resource (xds.config.resource-in-sotw). */
  readonly wrapped: boolean;
  /** The client understands TTLs (xds.config.supports-resource-ttl). */
  readonly ttl: boolean;
  /** Constrained variants go to plain-name clients with their constraints too (xds.plain_clients: WITH_CONSTRAINTS). */
  readonly constrained: boolean;
  /** SotW version_info is `<upstream's>@<hash of the view>` (xds.sotw_versions: CONTENT). */
  readonly contentVersions: boolean;
}

const encodings: Encoding[] = [];

/** The one object for these wishes: there are few kinds of clients and many of each. */
export function encoding(wishes: Encoding): Encoding {
  const { protocol, wrapped, ttl, constrained, contentVersions } = wishes;
  const known = encodings.find(
    (one) =>
      one.protocol === protocol &&
      one.wrapped === wrapped &&
      one.ttl === ttl &&
      one.constrained === constrained &&
      one.contentVersions === contentVersions,
  );
  if (known !== undefined) return known;
  const created: Encoding = { protocol, wrapped, ttl, constrained, contentVersions };
  encodings.push(created);
  return created;
}

/** Items to be sent though the client has them. One object for many clients, so that they share frames. */
export interface Batch {
  readonly id: number;
  readonly items: ReadonlySet<string>;
}

let lastBatch = 0;
export const batch = (items: ReadonlySet<string>): Batch => ({ id: ++lastBatch, items });

/** An encoded response, gRPC prefix and all. The same bytes are written to every stream that stands where it begins. */
export interface Response {
  /** Its nonce as a number: unique in the process and growing. */
  readonly serial: Serial;
  readonly nonce: string;
  readonly bytes: Buffer;
  /** version_info, or system_version_info. */
  readonly version: string;
  /** How many resources are in it. */
  readonly resources: number;
  /** The variants in it that its taker did not have so. */
  readonly changed: readonly Variant[];
  /** When the update that it brings arrived from upstream, by `performance.now()`; undefined: it is a first state. */
  readonly receivedAt: number | undefined;
}

/** What a client asks for or is shown, and what it has of it. */
export interface Holding {
  /** As the client wrote it. */
  readonly name: string;
  readonly canonical: ResourceName;
  readonly parameters: Parameters;
  /** What it was last sent; undefined: nothing yet. */
  readonly value: Value | undefined;
  /** That is what it would be sent now. Else it may be what rules have denied it since. */
  readonly current: boolean;
}

/** A client's share of what the relay holds of one type: the seam between the stages views and downstream. */
export interface Subscription {
  readonly selection: Selection;
  /** How many resources it asks for or shows. */
  readonly size: number;
  /** Of the responses from now on; the protocol stays. */
  encoding: Encoding;
  /** Something was sent for this type on this stream. */
  readonly responded: boolean;
  /** Nothing that it asks for is known to the relay. */
  readonly cold: boolean;
  /** There may be something to take, other than what was kept back; cheap. */
  readonly pending: boolean;
  /** Something may be sent now. */
  readonly due: boolean;
  /** It holds resources that are gone: their removal was kept back (protocol §8, Order). */
  readonly hasKept: boolean;
  /** For inspection. */
  held(): Iterable<Holding>;
  /** Updates that a newer one overtook before this client took them, since the last call. */
  overtaken(): number;
  /**
   * Delta: the first response waits until every wildcard and glob is answered. A relay cannot tell which of several an
   * answer is for, and would take those without one for empty (protocol §5b).
   */
  waitForAll(): void;
  /** Names the client may hold from an earlier stream: SotW, first request with a version (§3.9). */
  claimNames(names: ReadonlySet<string>): void;
  /** Versions the client says it has: delta, initial_resource_versions (§4.1). */
  claimVersions(versions: ReadonlyMap<string, string>): void;
  /** SotW, CONTENT (§3.10): nothing is sent first if that is the version of exactly what is visible. */
  claimContent(version: string): void;
  /**
   * Another selection, or access. `again`: ids of items to be sent even if the client has them (§3.5, §4.2).
   * `answer`: what must be told of as present or absent even if it was: delta, unsubscribed under a wildcard (§4.5).
   */
  select(selection: Selection, access: Access, again: ReadonlySet<string>, answer: readonly Selected[]): void;
  /** To be sent again if the client has them: EDS after CDS (§10.1). */
  owe(items: Batch): void;
  /** The next response, and the client's place behind it; undefined if nothing is due. */
  take(keepRemoved: boolean): Response | undefined;
  /** These answer a response. False: it is none of those that wait for an answer. */
  ack(serial: number): boolean;
  nack(serial: number): boolean;
  close(): void;
}

/** Opens subscriptions. `wake` is called when there may be something to take. */
export type OpenSubscription = (
  type: TypeUrl,
  encoding: Encoding,
  selection: Selection,
  access: Access,
  wake: () => void,
) => Subscription;
