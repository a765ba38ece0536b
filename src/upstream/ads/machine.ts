import type { TypeUrl } from '../../model/brand.ts';
import type { Holder, Interest, Move, Transaction } from '../../model/transaction.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { ArrivalRules } from './arrivals.ts';
import type { Held } from './held.ts';
import type { Stamp } from './stamp.ts';
import type { Ask, Wants } from './wants.ts';

/** What happens to one stream of a session. */
export type Input =
  /** A stream is open. `resumed`: to the same endpoint as the last one of this session. */
  | { readonly kind: 'connected'; readonly resumed: boolean }
  | { readonly kind: 'disconnected' }
  | { readonly kind: 'received'; readonly bytes: Buffer }
  /** The session's other stream has had a response: the control plane is there, and knows who asks. */
  | { readonly kind: 'heard' }
  | { readonly kind: 'subscribe'; readonly interest: Interest }
  | { readonly kind: 'unsubscribe'; readonly interest: Interest }
  /** No stream is open: what only has idle interests is not asked on the next one. */
  | { readonly kind: 'rest'; readonly isIdle: (interest: Interest) => boolean }
  /** Somebody subscribes to it again: it is asked with the next flush, if it was not. */
  | { readonly kind: 'wake'; readonly interest: Interest }
  /** Changes of subscription are sent now: many that come together make one request. */
  | { readonly kind: 'flush' }
  | { readonly kind: 'fired'; readonly timer: string };

/** What is to be done about it, in this order. */
export type Effect =
  | { readonly kind: 'send'; readonly request: OutgoingRequest }
  | { readonly kind: 'apply'; readonly transaction: Transaction }
  /** Starts the timer, or starts it anew. All timers end with the stream. */
  | { readonly kind: 'arm'; readonly timer: string; readonly milliseconds: number }
  | { readonly kind: 'cancel'; readonly timer: string }
  /** Something of this type is asked that no stream ever was. */
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
  /** What is asked needs a new stream to be told: end this one, and open it at once. */
  | { readonly kind: 'renew'; readonly reason: string }
  /** The stream is beyond use: end it. */
  | { readonly kind: 'fail'; readonly reason: string };

export interface SessionOptions {
  /** Of what arrives by the wildcard, and by name. */
  readonly holders: { readonly wildcard: Holder; readonly named: Holder };
  /** NATIVE: parameters are sent, in resource_locators. */
  readonly locators: boolean;
  /** The first response after a wildcard was asked for is its answer, all of it. */
  readonly exact?: boolean;
  readonly stamp: Stamp;
  readonly maxConstraintDepth: number;
  /** Protocol §3.9. */
  readonly resourceTimeoutMs: number;
}

/** What a stream says of one type: its wildcard or its names, never both (protocol §5b). */
export interface TypeState {
  readonly type: TypeUrl;
  readonly info: TypeInfo;
  readonly holder: Holder;
  readonly wants: Wants;
  /** Lives on over reconnects, as the store's content does. */
  readonly held: Held;
  rules: ArrivalRules;
  /** Not sent yet on this stream. */
  readonly fresh: Set<Ask>;
  /** Sent on this stream, and to be taken back. */
  dropped: Ask[];
  /** Subscription requests on this stream. */
  asked: number;
  /** Of the last response on this stream, accepted or not. */
  nonce: string;
  /** Of the last accepted response. */
  version: string;
  /** Of the last response, if it was rejected. */
  rejection: ErrorDetail | undefined;
  /** Since the last accepted one. */
  rejections: number;
  /** Some of what is held has not been confirmed on this stream, and a wildcard or glob is to sweep it. */
  sweep: boolean;
}

/** A session machine, whichever protocol it speaks: no I/O, no clock. */
export interface Machine {
  /** Nothing is to be asked. */
  readonly idle: boolean;
  /** Something was asked that has no answer yet. */
  readonly awaits: boolean;
  /** What is wanted; nothing of it may change while this is read. */
  interests(): Iterable<Interest>;
  /** What is wanted and not asked, since `rest`. */
  resting(): readonly Interest[];
  /** Another stamp from now on, or (undefined) the end: what becomes of what is held. */
  restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]>;
  /** This type is asked on another stream from now on: what is wanted and held of it. */
  release(type: TypeUrl): TypeState | undefined;
  /** Asks for what another machine has released, with the next flush. `resumed`: as in `connected`. */
  adopt(state: TypeState, resumed: boolean): void;
  step(input: Input): readonly Effect[];
}
