import type { ResourceName, Revision, TypeUrl } from './brand.ts';
import type { Constraints } from './constraints.ts';
import { canonicalInBody } from './xdstp.ts';

/** An encoded `google.protobuf.Any`, opaque on its way through. Interned: equal bytes are the same object. */
export interface Payload {
  /**
   * In memory of their own, never a slice: that would keep the whole response that it came in, and a copy for another
   * thread is one of all the memory that they are in.
   */
  readonly bytes: Uint8Array;
  /** 16 hex digits of a digest of the bytes. */
  readonly hash: string;
}

/** One variant of a resource, identified by (type, name, constraints). Immutable. */
export interface Variant {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  readonly constraints: Constraints;
  /** The upstream's version of the resource (delta) or of the response (SotW), verbatim; may be empty. */
  readonly version: string;
  /**
   * The version that delta clients see (protocol §4.1): `<version>@<hash>`. The hash covers payload, constraints,
   * aliases and metadata. A version that ends in this hash already, from a relay above, is kept as it is.
   */
  readonly deltaVersion: string;
  /** Undefined: the resource is known without a body (an unresolvable VHDS alias, protocol §4.8). */
  readonly payload: Payload | undefined;
  readonly aliases: readonly string[];
  /** As the upstream gave it, and when the resource expires, by `Clock.monotonic()`. A heartbeat sets a later time. */
  readonly ttl: Readonly<Record<'milliseconds' | 'deadline', number>> | undefined;
  readonly doNotCache: boolean;
  /** The encoded `Resource.metadata`, forwarded as it is. */
  readonly metadata: Uint8Array | undefined;
  /** version_info or system_version_info of the response that brought it; may be empty. */
  readonly responseVersion: string;
  /** Upstream's configured name. */
  readonly upstream: string;
  /** When this content was first cached. Milliseconds since the epoch. */
  readonly cachedSince: number;
  readonly revision: Revision;
}

/** What a variant is identified by. */
export type VariantKey = Pick<Variant, 'type' | 'name' | 'constraints'>;

/** A resource as others refer to it: `TYPE NAME`, as in `cds shop`. Its name is canonical, however they write it (protocol §6.1). */
export type Reference = `${string} ${string}`;
export type References = ReadonlySet<Reference>;

export const reference = (short: string, name: string): Reference => `${short} ${canonicalInBody(name)}`;
