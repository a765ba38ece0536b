import type { Access } from '../model/access.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import type { LoadOrigin } from '../model/load.ts';
import type { WantedMetadata } from '../model/node-path.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import type { Selection } from '../model/selection.ts';
import type { OpenSubscription, ShownState, Subscription } from '../model/subscription.ts';
import type { InTurns } from '../model/time-slices.ts';
import type { Interest } from '../model/transaction.ts';
import type { TypeInfo } from '../model/types.ts';
import type { Account } from '../wire/accounts.ts';
import type { StreamPlaces } from '../wire/client-stream.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Peer } from '../wire/server-stream.ts';
import type { LoggedStream, StreamMetrics } from './stream-metrics.ts';
import type { Taps } from './taps.ts';

/** What is kept of a client's node and peer; the node itself is not. */
export interface ClientContext {
  readonly nodeId: string;
  /** Its node id with its verified identity (`nodeKeyOf`, wire/peer.ts). */
  readonly nodeKey: string;
  /** `placeOf` its node id. */
  readonly place: number;
  /** For clients with equal objects, the same request selects the same: they have the same derived parameters. */
  readonly selectionGroup: object;
  readonly cluster: string;
  /** Equal for clients with the same derived parameters and access, in whatever cohort: one of them stands for all. */
  readonly classKey: string;
  /** It may get a change first (`rollout.canary_principals`). */
  readonly mayBeCanary: boolean;
  /** Client features, see `Encoding`. */
  readonly wrapped: boolean;
  readonly ttl: boolean;
  readonly access: Access;
  /** Relays and the like, which the per-client limits do not bind. */
  readonly exempt: boolean;
  readonly isEnvoy: boolean;
  /** A relay: of what a first SotW response lacks it will say that it is not there. */
  readonly relay: boolean;
  /** A relay to which responses say what is unknown (`UNKNOWN_NAMES`, wire/between-relays.ts). */
  readonly unknownNames: boolean;
  /** A relay of variants: its plain names are locators without parameters (wire/via.ts). */
  readonly passesVariants: boolean;
  /** Whose load it reports. */
  readonly loadOrigin: LoadOrigin;
  /** The dynamic parameters of a plain name of this authority (undefined: not an xdstp name). */
  derived(authority: string | undefined): Parameters;
  /** Those of a locator that came with its own. */
  merged(own: Parameters, authority: string | undefined): Parameters;
}

export interface StreamLimits {
  readonly maxSubscriptions: number;
  /** Characters of what a stream is subscribed to: as many as one request could name. Undefined: any. */
  readonly maxNamesLength?: number;
  readonly changesPerSecond: number;
  readonly stalledMilliseconds: number;
  /** So long a stream may be without a request. */
  readonly firstRequestMilliseconds: number;
  /** Undefined: any. */
  readonly maxResponseBytes?: number;
  /** So long a client keeps what something of it still refers to; 0 or undefined: not at all. */
  readonly removalGraceMilliseconds?: number;
}

/** What one type of a stream is subscribed to. */
export type Subscribed = Pick<ListedType, 'info' | 'selection'>;

/** What streams and polls tell of themselves. */
export type StreamEvents = Pick<
  StreamMetrics,
  'request' | 'response' | 'coalesced' | 'overdue' | 'rejected' | 'nack' | 'touched'
>;

/** What a stream needs of the rest of the relay. */
export interface DownstreamServices {
  readonly clock: Clock;
  readonly open: OpenSubscription;
  /** Before `open` or `select`, for a large selection; what is returned is called after that. */
  readonly prepare: (type: TypeUrl, selection: Selection, access: Access) => InTurns<() => void>;
  readonly limits: () => StreamLimits;
  readonly events: StreamEvents;
  /** Who reads the messages of streams as they pass. */
  readonly taps: Taps;
  /** WITH_CONSTRAINTS for plain-name clients; CONTENT versions. */
  readonly constrained: () => boolean;
  readonly contentVersions: () => boolean;
  readonly legacyWildcard: (type: TypeUrl) => boolean;
  /** What `context` reads of a node's metadata; undefined, or left out: all of it. */
  readonly wantedMetadata?: () => WantedMetadata | undefined;
  context(node: Buffer, peer: Peer): Result<ClientContext, GrpcStatus>;
  /** The same client by the rules in force now; undefined: they need a part of its node that was not kept. */
  reapplyRules(client: ClientContext, peer: Peer): ClientContext | undefined;
  /** Whether this cannot be served if it is not cached: every endpoint of its upstream has failed (§8). */
  isUnavailable(interest: Interest): boolean;
  /** Why upstream does not take this interest; undefined: it does. */
  refusal(interest: Interest): string | undefined;
  /** What streams and classes of polls take of the sessions that upstreams may have. Left out: nothing bounds them. */
  readonly sessions?: {
    /** An owner is subscribed to this now. How many parameter sets it had not before; a text: why it may not be. */
    take(owner: object, account: Account, subscribed: Iterable<Subscribed>): number | string;
    release(owner: object): void;
  };
  /** Who may open a stream, and how many. Left out: nothing bounds them. */
  readonly places?: StreamPlaces | undefined;
  /** Requests with so many bytes of names, locators and versions are handled over several turns. Left out: 32 KiB. */
  readonly largeRequestBytes?: number;
}

/** One type of a client, for inspection. */
export interface ListedType {
  readonly info: TypeInfo;
  readonly selection: Selection;
  /** Undefined: before the first request. */
  readonly subscription:
    | (Pick<Subscription, 'holdings' | 'missing'> & { readonly responses: ShownState })
    | undefined;
  /** Of a client that polls: when it did so last, by `Clock.monotonic()`. */
  readonly polledAt?: number;
}

/** A client, for inspection: a stream, or one that polls. */
export interface ListedClient extends LoggedStream {
  readonly client: ClientContext | undefined;
  readonly types: readonly ListedType[];
}
