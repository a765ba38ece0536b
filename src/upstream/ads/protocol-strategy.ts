import type { TypeUrl } from '../../model/brand.ts';
import type { Result } from '../../model/result.ts';
import type { Removal, Transaction } from '../../model/transaction.ts';
import type { InTurns } from '../../model/turns.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { IncomingSotw, UnreadableResponse } from '../../wire/response-reader.ts';
import type { TypeState } from './stream-protocol.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

/** What a strategy needs to know about the stream. */
export interface StreamStatus {
  /** Grows with each stream. Each acked resource has the number of the stream that last confirmed it. */
  readonly number: number;
  /**
   * A response has come on this stream, or on another one of the session. From then on, silence means that a name
   * does not exist.
   */
  readonly controlPlaneResponded: boolean;
}

/**
 * What resource_timeout means for a subscription without an answer. Removals: it is absent, and these are removed. `unknown`:
 * nothing. `extend`: the timeout is a little longer.
 */
export type TimeoutOutcome = readonly Removal[] | 'unknown' | 'extend';

/** Where SotW and delta differ (protocol §3 and §4, seen from the client). `S`: of one type; `R`: a response. */
export interface ProtocolStrategy<S extends TypeState, R extends IncomingSotw> {
  createState(base: TypeState): S;
  /** A new stream: everything is subscribed anew. */
  reset(state: S, resumed: boolean): void;
  read(bytes: Buffer): Result<R, UnreadableResponse>;
  /** Judges a response, in turns; changes nothing. Its result takes the response over; the error is the reason for a NACK. */
  judge(state: S, response: R): InTurns<Result<() => Transaction>>;
  /** The requests for a change of what is subscribed. */
  changeSubscriptions(
    state: S,
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[];
  /** An ACK, or with `lastNack` a NACK, of `state.nonce`. */
  reply(state: S): OutgoingRequest;
  /** Refuses a type that was never subscribed; undefined where a refusal would subscribe to it. */
  refusal(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest | undefined;
  /**
   * Which of these wildcards and globs a response may answer. It may also be an update, or answer another subscription.
   */
  answeredBy(
    state: S,
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription>;
  /** Before the resources of this subscription are dropped, because nobody subscribes to them any more. */
  onUnsubscribed(state: S, subscription: UpstreamSubscription): void;
  /**
   * After a response: what must be left out and subscribed once more, because upstream may not have seen that it was.
   * SotW only: in delta nonces do not gate subscriptions (protocol §4.3).
   */
  askAgain?(state: S): readonly UpstreamSubscription[];
  /** Whether silence means absence in the end (protocol §3.9). */
  absentAfterTimeout(state: S, subscription: UpstreamSubscription): boolean;
  /** resource_timeout has passed, or (`extended`) a little more. */
  onTimeout(state: S, subscription: UpstreamSubscription, extended: boolean): TimeoutOutcome;
}
