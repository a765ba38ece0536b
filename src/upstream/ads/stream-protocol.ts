import type { TypeUrl } from '../../model/brand.ts';
import type { Holder, Interest, Move, Transaction } from '../../model/transaction.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { AcceptanceRules } from './accept-resource.ts';
import type { AckedResources } from './acked-resources.ts';
import type { Stamp } from './stamp.ts';
import type { UpstreamSubscription, UpstreamSubscriptions } from './upstream-subscriptions.ts';

/** What happens to one stream of a session. */
export type ProtocolInput =
  /** A stream is open. `resumed`: to the same endpoint as the last one of this session. */
  | { readonly kind: 'connected'; readonly resumed: boolean }
  | { readonly kind: 'disconnected' }
  | { readonly kind: 'received'; readonly bytes: Buffer }
  /** The next part of a large response is read. */
  | { readonly kind: 'read_on' }
  /** Another stream of the session has had a response: the control plane works and accepts this node. */
  | { readonly kind: 'sibling_answered' }
  | { readonly kind: 'subscribe'; readonly interest: Interest }
  | { readonly kind: 'unsubscribe'; readonly interest: Interest }
  /** No stream is open. Subscriptions with only idle interests are not sent on the next one. */
  | { readonly kind: 'suspend_idle'; readonly isIdle: (interest: Interest) => boolean }
  /** Somebody subscribes to it again: if it is suspended, it is sent with the next flush. */
  | { readonly kind: 'resume'; readonly interest: Interest }
  /** Changes of subscription are sent now: many that come together make one request. */
  | { readonly kind: 'flush' }
  | { readonly kind: 'fired'; readonly timer: string };

/** What is to be done about it, in this order. */
export type ProtocolEffect =
  | { readonly kind: 'send'; readonly request: OutgoingRequest }
  | { readonly kind: 'apply'; readonly transaction: Transaction }
  /** Starts the timer, or starts it anew. All timers end with the stream. */
  | { readonly kind: 'arm'; readonly timer: string; readonly milliseconds: number }
  | { readonly kind: 'cancel'; readonly timer: string }
  /** A subscription of this type is sent that was never sent before. */
  | { readonly kind: 'asked'; readonly type: TypeUrl }
  | { readonly kind: 'count'; readonly type: TypeUrl; readonly result: 'accepted' | 'rejected' }
  | {
      readonly kind: 'log';
      readonly level: 'info' | 'warn';
      readonly message: string;
      readonly type: TypeUrl;
    }
  /** A wildcard has had no answer within resource_timeout. Nothing is concluded from it here. */
  | { readonly kind: 'overdue' }
  /** Only a new stream can tell which request a response answers: end this one, and open another at once. */
  | { readonly kind: 'renew'; readonly reason: string }
  /** The response is large: others get a turn, and then comes `read_on`. */
  | { readonly kind: 'read_on' }
  /** The stream is beyond use: end it. */
  | { readonly kind: 'fail'; readonly reason: string };

export interface StreamProtocolOptions {
  /** Of what arrives by the wildcard, and by name. */
  readonly holders: { readonly wildcard: Holder; readonly named: Holder };
  /** NATIVE: parameters are sent, in resource_locators. */
  readonly locators: boolean;
  readonly stamp: Stamp;
  readonly maxConstraintDepth: number;
  /** How many entries of a response are read in one turn. */
  readonly entriesPerTurn: number;
  /** Protocol §3.9. */
  readonly resourceTimeoutMs: number;
}

/** The state of one type on one stream: its wildcard or its names, never both (protocol §5b). */
export interface TypeState {
  readonly type: TypeUrl;
  readonly info: TypeInfo;
  readonly holder: Holder;
  readonly subscriptions: UpstreamSubscriptions;
  /** Lives on over reconnects, as the store's content does. */
  readonly acked: AckedResources;
  rules: AcceptanceRules;
  /** Not sent yet on this stream. */
  readonly toSubscribe: Set<UpstreamSubscription>;
  /** Subscribed on this stream, and to be unsubscribed with the next request. */
  toUnsubscribe: UpstreamSubscription[];
  /** Subscription requests on this stream. */
  requestCount: number;
  /** Of the last response on this stream, accepted or not. */
  nonce: string;
  /** Of the last accepted response. */
  version: string;
  /** Of the last response, if it was rejected. */
  lastNack: ErrorDetail | undefined;
  /** Since the last accepted one. */
  nacksInARow: number;
  /**
   * Some resources of earlier streams are not confirmed on this one. Once the wildcard or glob is resolved, what is
   * still not confirmed is removed.
   */
  sweepPending: boolean;
}

/** The protocol of one stream, SotW or delta, as a state machine: no I/O, no clock. */
export interface StreamProtocol {
  /** Nothing is subscribed, or all of it is suspended. */
  readonly isUnused: boolean;
  /** Some subscription has no answer yet. */
  readonly awaitsResponse: boolean;
  /** All interests; nothing may be subscribed or unsubscribed while they are read. */
  interests(): Iterable<Interest>;
  /** The interests that were suspended by `suspend_idle`. */
  suspendedInterests(): readonly Interest[];
  /** Another stamp from now on; undefined: the session ends. Returns what changes for the resources that it delivered. */
  restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]>;
  /** Gives up a type, which moves to another stream with this state. */
  release(type: TypeUrl): TypeState | undefined;
  /** Takes over a type from another stream. It is subscribed with the next flush. `resumed`: as in `connected`. */
  adopt(state: TypeState, resumed: boolean): void;
  step(input: ProtocolInput): readonly ProtocolEffect[];
}
