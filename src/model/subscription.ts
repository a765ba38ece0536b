import type { Access } from './access.ts';
import type { ResourceName, Serial, TypeUrl } from './brand.ts';
import type { Value } from './catalog.ts';
import { getOrMake } from './maps.ts';
import type { Parameters } from './parameters.ts';
import type { Reference, References, Variant } from './resource.ts';
import type { Selection, SelectionEntry } from './selection.ts';
import type { Payer } from './time-slices.ts';

/** How the responses of a subscription are encoded. Subscriptions with equal encodings share responses. */
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
  /**
   * A full state says which names are unknown, so none of them holds it back; delta says which wildcards and globs are
   * (protocol §3.13).
   */
  readonly unknownNames: boolean;
  /** Delta: what a client never had and is not there is not said to it (protocol §10.6). */
  readonly absencesUnsaid: boolean;
}

const encodings = new Map<number, Encoding>();
const flags = ['wrapped', 'ttl', 'constrained', 'contentVersions', 'unknownNames', 'absencesUnsaid'] as const;

/** The one object for this combination. There are few combinations, and many clients of each. */
export function encoding(fields: Encoding): Encoding {
  // Each stream asks for each of its types.
  const key = flags.reduce(
    (bits, flag) => 2 * bits + Number(fields[flag]),
    Number(fields.protocol === 'delta'),
  );
  return getOrMake(encodings, key, () => ({ ...fields }));
}

/** Items that are sent even if the client has them. Many clients share one object, and so the encoded response. */
export type ResendItems = ReadonlySet<string>;

/** A resource that a client has and that is to be removed from it. */
export interface Removed {
  /** As the client knows it: under the name it asked for, and the one in the body. */
  readonly requestedName: string;
  readonly variant: Variant;
  /** When its removal was first deferred, by `Clock.monotonic()`; undefined: it is new. */
  readonly since: number | undefined;
}

/** Whether a removal is deferred: the client keeps the resource for now (protocol §8, Order). */
export type Defers = (removed: Removed) => boolean;
export const defersNothing: Defers = () => false;
export const defersEverything: Defers = () => true;

/** A variant in a response, as the subscriber takes it in. */
export interface ChangedVariant {
  readonly now: Variant;
  /**
   * What it updates at the subscriber. Undefined: that has nothing of it, or takes it in anew, as it is sent again.
   * `unknown`: it has something from an earlier stream.
   */
  readonly before: Variant | 'unknown' | undefined;
}

/** An encoded response with its gRPC prefix. Every stream whose cursor is at the same position gets the same bytes. */
export interface Response {
  /** Its nonce as a number: unique in the process and growing. */
  readonly serial: Serial;
  readonly nonce: string;
  readonly bytes: Buffer;
  /** version_info, or system_version_info. */
  readonly version: string;
  /** How many resources are in it. */
  readonly resources: number;
  /** The variants in it that are new to the subscriber, or have changed content, or are sent again. */
  readonly changed: readonly ChangedVariant[];
  /** Delta: the names in removed_resources. */
  readonly removed: readonly string[];
  /**
   * When the newest update in it arrived from upstream, by `Clock.monotonic()`. Undefined: nothing in it has changed since
   * the client's last response. It is a first state, or something is sent again.
   */
  readonly receivedAt: number | undefined;
}

/**
 * What a client has said to what it was sent (protocol §9): it has accepted it, or has said first that it has it (SYNCED),
 * was sent nothing (NOT_SENT), has not answered yet (STALE), or has rejected it (ERROR).
 */
const syncStates = ['SYNCED', 'NOT_SENT', 'STALE', 'ERROR'] as const;
export type SyncState = (typeof syncStates)[number];

/**
 * The same for operators. MISSING: the client asks for something, and its upstream has said that there is nothing for it.
 * It has answered what it was sent, if it was sent anything, and still it does not have what it needs.
 */
export const clientStates = [...syncStates, 'MISSING'] as const;
export type ClientState = (typeof clientStates)[number];

/** A name that a client asks for and that is absent, or a wildcard or glob that shows nothing. */
export interface MissingEntry extends Pick<Holding, 'name' | 'canonical' | 'parameters'> {
  /** Since when it is known, in milliseconds since the epoch. */
  readonly since: number;
}

/**
 * What an answer is, by its nonce: of the SotW ones `first` comes before any response, and `change` with the nonce
 * that is current after a NACK (protocol §3.2–3.4).
 */
export type AnswerKind = 'first' | 'ack' | 'nack' | 'change' | 'stale';

/** What a request is for those who count and read along. */
export type RequestKind = 'subscribe' | 'ack' | 'nack' | 'stale';

/** A client's error_detail. */
export type ClientError = Pick<Rejection, 'code' | 'message' | 'at'>;

/** A NACK. */
export interface Rejection {
  readonly code: number;
  readonly message: string;
  /** When it arrived, in milliseconds since the epoch. */
  readonly at: number;
  /** version_info or system_version_info of the rejected response. */
  readonly version: string;
  /** The resource that the response was about; empty if there were several: any of them may be at fault. */
  readonly name: string;
  /** Its versions, of the only variant in the response. */
  readonly variant: Pick<Variant, 'type' | 'version' | 'deltaVersion'> | undefined;
  /** What the response changed at the client. A SotW response that only leaves a resource out has nothing here. */
  readonly changes: {
    /** The first few, as the client wrote them. */
    readonly names: readonly string[];
    readonly total: number;
    /** All of them are removals. */
    readonly removal: boolean;
  };
}

/** What a client said to what it was last sent of an item. */
export type ItemState = Pick<Holding, 'state' | 'rejection'>;

/** One name that a client subscribes to, or gets by a wildcard or glob, and what it was last sent under it. */
export interface Holding {
  /** As the client wrote it. */
  readonly name: string;
  /** Of a missing wildcard or glob itself. */
  readonly canonical: ResourceName;
  readonly parameters: Parameters;
  /** What it was last sent; undefined: nothing yet. */
  readonly value: Value | undefined;
  /** True: a response now would hold the same value. False: the value is out of date, or the rules deny it by now. */
  readonly current: boolean;
  /** It asks for this name, and the name is absent now. */
  readonly missing: boolean;
  readonly state: SyncState;
  /** With ERROR. */
  readonly rejection: Rejection | undefined;
}

/** What a client was sent of one type, and what it said to it. */
export interface SentState {
  /** For all items together: ERROR if the client has rejected anything that it was last sent. */
  readonly state: SyncState;
  /** The oldest response that is neither accepted nor rejected yet. Cheap to ask. */
  readonly oldestOutstanding: Pick<Response, 'serial' | 'receivedAt'> | undefined;
  /** Of the last response; empty if there was none. */
  readonly version: string;
  /** The rejections of what the client was last sent. */
  readonly rejections: ReadonlySet<Rejection>;
  /** A rejection of the last response that is about none of the resources that the client has. */
  readonly rejectedWhole: Rejection | undefined;
  /** The last NACK, though everything may have been accepted since. */
  readonly lastNack: Rejection | undefined;
  /** The last response is neither accepted nor rejected yet. Cheap to ask. */
  readonly awaitsAnswer: boolean;
  /** Of the last response; undefined: there was none. */
  readonly lastNonce: string | undefined;
  /** What an answer with this nonce is. */
  classify(nonce: string, hasError: boolean): AnswerKind;
}

/** The same for inspection, of a stream or of a client that polls. */
export type ShownState = Omit<SentState, 'awaitsAnswer' | 'lastNonce' | 'classify'>;

/** What a client has from earlier streams, by its first request. Each protocol says something else. */
export interface EarlierState {
  /** SotW, with a version: names that it may have. Their absence deletes (protocol §3.9). */
  readonly possiblyHeld?: ReadonlySet<string> | undefined;
  /**
   * SotW with `xds.sotw_versions: CONTENT`: if this is the version of what is visible now, no first response is sent
   * (§3.10).
   */
  readonly contentVersion?: string | undefined;
  /** Delta: initial_resource_versions (§4.1). */
  readonly initialVersions?: ReadonlyMap<string, string> | undefined;
  /**
   * Delta: the first response waits until every wildcard and glob is resolved. The subscriber is a relay. It does not
   * know which wildcard a response answers, and would take an unanswered one for empty (protocol §5b).
   */
  readonly waitForAll?: boolean;
}

/** What one stream subscribes to in one type. The interface between the folders views and downstream. */
export interface Subscription {
  /** What all see who subscribe to the same. */
  readonly view: {
    readonly selection: Selection;
    /** What it asks for or shows. */
    readonly items: { readonly size: number };
    /** Everything that it subscribes to is unknown. */
    readonly allUnknown: boolean;
    /** Everything that it subscribes to is present or absent. */
    readonly resolved: boolean;
    /** Every wildcard and glob is answered. */
    readonly collectionsResolved: boolean;
    /** SotW: a response deletes what is missing from it (protocol §3.7). */
    readonly complete: boolean;
  };
  /** How responses are encoded from now on. SotW stays SotW, and delta stays delta. */
  encoding: Encoding;
  /** Something was sent for this type on this stream. */
  readonly responded: boolean;
  /** The client says that it has something from an earlier stream. */
  readonly resumed: boolean;
  /** The client has something of this type: from this stream, or as it says from an earlier one. */
  readonly hasState: boolean;
  readonly responses: SentState;
  /** `<upstream's>@<hash of the view>`: equal versions, equal content. */
  readonly contentVersion: string;
  /** A response may be due, apart from deferred removals. Cheap to ask. */
  readonly pending: boolean;
  /** Something may be sent now. */
  readonly due: boolean;
  /** The client still has resources that do not exist any more: their removals were deferred (protocol §8, Order). */
  readonly hasDeferredRemovals: boolean;
  /** Delta: what the client unsubscribed, and a response must still speak of (§4.5). */
  readonly owed: readonly SelectionEntry[];
  /** For inspection. */
  holdings(): Iterable<Holding>;
  /** The same of a client that was answered with this version of all of it, and what it said to that. */
  holdingsOf(version: string, said: ItemState): Iterable<Holding>;
  /** For inspection; the same object for all who see the same, until something changes. */
  readonly missing: readonly MissingEntry[];
  /** What is taken next is for it alone, or may be. */
  readonly isAlone: boolean;
  /** Whether others may get the same bytes, of what was just taken. */
  isShared(response: Response): boolean;
  /**
   * How many updates were coalesced: a newer one came before this client could take them. Counts from the last call.
   */
  takeCoalesced(): number;
  /** The first request said what the client has from earlier streams. Called before anything is taken. */
  resume(earlier: EarlierState): void;
  /**
   * Changes the selection or the access. `resend`: ids of items that are sent even if the client has them (§3.5,
   * §4.2). `mustAnswer` (delta): names that the client unsubscribed and a wildcard still covers. The next response says
   * of each that it is present or absent (§4.5).
   */
  select(
    selection: Selection,
    access: Access,
    resend: ReadonlySet<string>,
    mustAnswer: readonly SelectionEntry[],
  ): void;
  /** To be sent again if the client has them, in whatever spelling: EDS after CDS, LEDS after EDS (§10.1). The ids have canonical ones. */
  resend(items: ResendItems): void;
  /**
   * Returns the next response and moves the cursor behind it. Undefined: nothing is due. If it would be larger than
   * `mostBytes` with what `defers` keeps, nothing is deferred.
   */
  take(defers: Defers, mostBytes?: number): Response | undefined;
  /**
   * SotW: everything that is known now, as a newcomer gets it; the cursor does not move. `isKept`: the response is kept
   * until something changes, and is the same object until then. Else it is, if it has more subscribers.
   */
  whole(isKept: boolean): Response;
  /** What `whole` has kept, for all who show the same. */
  readonly kept: Response | undefined;
  /** Others subscribe to it, too: nobody pays for it alone. */
  share(): void;
  /** Whether something that the client has of this type, at the head or with its removal deferred, refers to this. */
  refersTo(reference: Reference): boolean;
  /** What the changes that are due refer to, and what they replace did not. */
  newReferences(): References;
  /** Whether the client was sent a resource of this name, in whatever spelling. */
  has(name: ResourceName): boolean;
  /** The client has answered a response: with a NACK if there is an error. */
  answer(nonce: string, error: ClientError | undefined): AnswerKind;
  close(): void;
}

/** Who subscribes. */
export interface Subscriber {
  /** There may be something to take. */
  readonly wake: () => void;
  /** Pays for what is kept for it alone; undefined: nobody does. */
  readonly payer: Payer | undefined;
  /**
   * `class`: it has no position, and all that poll the same are answered with the whole of it. `client`: it subscribes to
   * the same once more, to know what one of them has, which answers when it polls again. Undefined: a stream.
   */
  readonly polls?: 'class' | 'client' | undefined;
}

export type OpenSubscription = (
  type: TypeUrl,
  encoding: Encoding,
  selection: Selection,
  access: Access,
  subscriber: Subscriber,
) => Subscription;
