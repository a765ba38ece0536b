import { type ResourceName, resourceName, type TypeUrl } from './brand.ts';
import type { Constraints } from './constraints.ts';
import type { Parameters } from './parameters.ts';
import type { Payload } from './resource.ts';

/** Selects resources of a type: `*` is the wildcard, a canonical xdstp name ending in `/*` a glob, else a name. */
export type Selector = ResourceName;

/** Everything of a type. */
export const WILDCARD: Selector = resourceName('*');

/** What the relay needs from upstream: a selector as it is with these parameters. */
export interface Interest {
  readonly type: TypeUrl;
  readonly selector: Selector;
  readonly parameters: Parameters;
}

/** The same for equal interests, in this process. */
export const idOf = ({ type, selector, parameters }: Interest): string =>
  `${parameters.id} ${type} ${selector}`;

/**
 * Where a cached resource comes from: one stream of one session of one upstream. A resource stays cached while any
 * holder has it. With the role `wildcard`, the resources of this holder are the members of `*`. `key` is unique and
 * survives reconnects.
 */
export interface Holder {
  readonly key: string;
  readonly upstream: string;
  readonly role: 'wildcard' | 'named';
  /**
   * The holder's stream is for exactly these parameters (`SessionPerParameters`): its first response is
   * the whole answer, clients with them get its variant, even if others match too, and what it says is absent is so for
   * them alone. Undefined: only the constraints decide.
   */
  readonly exactParameters?: Parameters;
  /**
   * From before a restart, of a replaced upstream, of a session that has let go, or of another relay that answers while
   * upstream is away (ADR 126): upstream has not confirmed its variants since. What it says adds what is not cached, and
   * changes nothing that is. But for the last it has the key of the original holder, which replaces it by delivering the
   * variant again.
   */
  readonly restored?: true;
}

/** Of the holder that gets what comes for it. */
export const roleOf = ({ selector }: Interest): Holder['role'] =>
  selector === WILDCARD ? 'wildcard' : 'named';

/** A resource as received. `any` may be a view into a larger buffer: the store copies what it keeps. */
export interface Put {
  readonly name: ResourceName;
  readonly constraints: Constraints;
  readonly version: string;
  /** The encoded Any; undefined when the Resource had no body. */
  readonly any: Uint8Array | undefined;
  /** The same with its hash, not in a larger buffer. Undefined: the store makes it, if the content is new. */
  readonly payload?: Payload | undefined;
  readonly aliases: readonly string[];
  readonly ttlMilliseconds: number | undefined;
  readonly doNotCache: boolean;
  readonly metadata: Uint8Array | undefined;
}

/** Of exactly this variant. */
export type Removal = Pick<Put, 'name' | 'constraints'>;

/** A heartbeat (protocol §4.11): the resource lives on for another TTL, or without one. */
export type Heartbeat = Pick<Put, 'name' | 'constraints' | 'ttlMilliseconds'>;

/** A resource_errors entry (protocol §8). */
export interface ResourceError extends Pick<Put, 'name' | 'constraints'> {
  /** google.rpc.Code. */
  readonly code: number;
  readonly message: string;
  /** The encoded google.rpc.Status, forwarded as it is. */
  readonly status: Uint8Array;
}

/** Whether both say the same of what they are about. */
export const sameError = (a: ResourceError, b: ResourceError): boolean =>
  a.code === b.code && a.message === b.message && Buffer.compare(a.status, b.status) === 0;

/**
 * One upstream response for one type, or the result of a file scan, a timer or a restore. It is applied as a whole
 * and makes one revision, so no subscriber sees a part of it.
 */
export interface Transaction {
  readonly holder: Holder;
  readonly type: TypeUrl;
  /** version_info or system_version_info, verbatim; may be empty. Undefined: that of the holder's last response stays. */
  readonly version: string | undefined;
  readonly puts: readonly Put[];
  readonly removals: readonly Removal[];
  readonly heartbeats: readonly Heartbeat[];
  readonly resourceErrors: readonly ResourceError[];
  /** Full state: everything of this type that this holder had and that is not in `puts` or `heartbeats` is removed. */
  readonly complete: boolean;
  /**
   * Upstream has answered these interests. If no cached variant matches one of them, it is absent and not unknown
   * (protocol §3.9).
   */
  readonly resolved: readonly Interest[];
  /**
   * Interests in a name that this response does not answer, because upstream sent it before it saw their request. A
   * removal in it does not make the name absent for them.
   */
  readonly unanswered: readonly Interest[];
  /** SotW of types whose absence means nothing: the last received match wins (protocol §5, Ambiguity). */
  readonly cannotDelete: boolean;
  /** The relay itself removes what nobody subscribes to. Upstream has not said that it does not exist. */
  readonly unwanted: boolean;
  /** When the response arrived, by `Clock.monotonic()`; undefined: no response is behind it. For delays and traces. */
  readonly arrivedAt?: number | undefined;
}

/** A variant of a holder gets other constraints. `to` undefined: the holder does not have it any more. */
export interface Move {
  readonly holder: Holder;
  readonly name: ResourceName;
  readonly from: Constraints;
  readonly to: Constraints | undefined;
}

/**
 * The parameter rules have changed, so the constraints that sessions stamped on their resources change too (protocol
 * §5). Applied as a whole, like a transaction. No content changes.
 */
export interface Restamp {
  readonly type: TypeUrl;
  readonly moves: readonly Move[];
  /** Other sessions will answer these interests. Until then, what does not match a cached variant is unknown again. */
  readonly unresolved: readonly Interest[];
}

/** A transaction with these parts; the others are empty. */
export function transaction(part: Pick<Transaction, 'holder' | 'type'> & Partial<Transaction>): Transaction {
  return {
    version: '',
    puts: [],
    removals: [],
    heartbeats: [],
    resourceErrors: [],
    complete: false,
    resolved: [],
    unanswered: [],
    cannotDelete: false,
    unwanted: false,
    ...part,
  };
}

/**
 * What one interest takes in the registry, in the cache and in the state of the upstream stream, beside the text of its
 * name and parameters. Measured, and rounded up: docs/adr/0007.
 */
const overhead = 1536;

/** The memory that one interest takes without any resource, as it counts in `cache.max_bytes`. */
export function interestBytes({ selector, parameters }: Interest): number {
  return overhead + selector.length + parameters.key.length;
}
