import { type ResourceName, resourceName, type TypeUrl } from './brand.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';

/** Selects resources of a type: `*` is the wildcard, a canonical xdstp name ending in `/*` a glob, else a name. */
export type Selector = ResourceName;

/** Everything of a type. */
export const WILDCARD: Selector = resourceName('*');

/** One thing that the relay wants from upstream: a selector as seen with these parameters. */
export interface Interest {
  readonly type: TypeUrl;
  readonly selector: Selector;
  readonly parameters: Parameters;
}

/**
 * Who holds a resource for us: one stream of one session of one upstream. A resource stays cached while any holder
 * has it. `role` wildcard: what this holder has is what `*` shows. `key` is unique and survives reconnects.
 */
export interface Holder {
  readonly key: string;
  readonly upstream: string;
  readonly role: 'wildcard' | 'named';
  /**
   * It was chosen upstream for exactly these: whoever has them gets it, whatever else matches. Undefined: the
   * constraints alone decide.
   */
  readonly parameters?: Parameters;
}

/** A resource as received. `any` may be a view into a larger buffer: the store copies what it keeps. */
export interface Put {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  readonly version: string;
  /** The encoded Any; undefined when the Resource had no body. */
  readonly any: Uint8Array | undefined;
  readonly aliases: readonly string[];
  readonly ttlMilliseconds: number | undefined;
  readonly doNotCache: boolean;
  readonly metadata: Uint8Array | undefined;
}

export interface Removal {
  readonly name: ResourceName;
  /** Exactly this variant. */
  readonly constraints: Constraints;
}

/** A heartbeat (protocol §4.11): the resource lives on for another TTL. */
export interface Heartbeat {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  readonly ttlMilliseconds: number;
}

/** A resource_errors entry (protocol §8). */
export interface ResourceFault {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  /** google.rpc.Code. */
  readonly code: number;
  readonly message: string;
  /** The encoded google.rpc.Status, forwarded as it is. */
  readonly status: Uint8Array;
}

/**
 * What one upstream response (or a scan of files, a timer, a restore) says about one type. Applied as a whole under
 * one revision: no subscriber sees a part of it.
 */
export interface Transaction {
  readonly holder: Holder;
  readonly type: TypeUrl;
  /** version_info or system_version_info, verbatim; may be empty. */
  readonly version: string;
  readonly puts: readonly Put[];
  readonly removals: readonly Removal[];
  readonly heartbeats: readonly Heartbeat[];
  readonly faults: readonly ResourceFault[];
  /** Full state: whatever else this holder had of this type is gone. */
  readonly complete: boolean;
  /** These are answered: what of them does not match anything cached is absent, no longer unknown (protocol §3.9). */
  readonly settled: readonly Interest[];
  /** Asked by name, and this is no answer to it, as it was on its way before: what it removes is not absent for them. */
  readonly pending: readonly Interest[];
  /** SotW of types whose absence means nothing: the last received match wins (protocol §5, Ambiguity). */
  readonly cannotDelete: boolean;
  /** Nobody wants what it removes any more: the relay's own doing, no word of upstream's. */
  readonly unwanted: boolean;
}

/** A variant that its holder has under other constraints from now on, or (undefined) not any more. */
export interface Move {
  readonly holder: Holder;
  readonly name: ResourceName;
  readonly from: Constraints;
  readonly to: Constraints | undefined;
}

/**
 * The parameter rules have changed, and with them what the sessions of an upstream stamp on what they have brought
 * (protocol §5). Applied as a whole, like a transaction; no content changes.
 */
export interface Restamp {
  readonly type: TypeUrl;
  readonly moves: readonly Move[];
  /** Other sessions will answer these: what of them does not match anything is unknown again until they have. */
  readonly unsettled: readonly Interest[];
}

/** Nothing but what is given: for the transactions that say only one thing. */
export function transaction(part: Pick<Transaction, 'holder' | 'type'> & Partial<Transaction>): Transaction {
  return {
    version: '',
    puts: [],
    removals: [],
    heartbeats: [],
    faults: [],
    complete: false,
    settled: [],
    pending: [],
    cannotDelete: false,
    unwanted: false,
    ...part,
  };
}
