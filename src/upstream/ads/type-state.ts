import type { TypeUrl } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import type { Result } from '../../model/result.ts';
import {
  type Holder,
  type Interest,
  type Move,
  type Removal,
  type Transaction,
  transaction,
  WILDCARD,
} from '../../model/transaction.ts';
import type { InTurns } from '../../model/turns.ts';
import { type TypeInfo, typeInfo } from '../../model/types.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { IncomingSotw, UnreadableResponse } from '../../wire/response-reader.ts';
import { AckedResources, type AckedVariant } from './acked-resources.ts';
import type { AcceptanceRules } from './response-parts.ts';
import { originalOf, type Stamp } from './stamp.ts';
import { isFor, type UpstreamSubscription, UpstreamSubscriptions } from './upstream-subscriptions.ts';

/** What is to be done about what happens to a stream. */
export type ProtocolEffect =
  | { readonly kind: 'send'; readonly request: OutgoingRequest }
  | { readonly kind: 'apply'; readonly transaction: Transaction }
  /** Starts the timer, or starts it anew; undefined: cancels it. All timers end with the stream. */
  | { readonly kind: 'timer'; readonly timer: string; readonly milliseconds: number | undefined }
  /** A subscription of this type is sent that was never sent before. */
  | { readonly kind: 'asked'; readonly type: TypeUrl }
  /** By a response. `refused`: why that is not accepted. */
  | { readonly kind: 'answered'; readonly type: TypeUrl; readonly refused: string | undefined }
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
  /** The response is large: others get a turn, and then comes `readOn`. */
  | { readonly kind: 'read_on' }
  /** The stream is beyond use: end it. */
  | { readonly kind: 'fail'; readonly reason: string };

/** Of what arrives by the wildcard, and by name. */
export interface Holders {
  readonly wildcard: Holder;
  readonly named: Holder;
}

export interface MachineOptions {
  readonly holders: Holders;
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

/** How long the relay waits for a response that shows that it answers a later wildcard or glob. */
const attributionWaitMs = 2000;

/** What the loop and the strategy of a stream share: which stream it is, and the effects of one input. */
export class StreamContext {
  readonly options: MachineOptions;
  /** Grows with each stream. Each acked resource has the number of the stream that last confirmed it. */
  number = 0;
  /**
   * A response has come on this stream, or on another one of the session. From then on, silence means that a name
   * does not exist.
   */
  controlPlaneResponded = false;
  #effects: ProtocolEffect[] = [];
  /** What each running timer does. */
  readonly #timers = new Map<string, () => void>();

  constructor(options: MachineOptions) {
    this.options = options;
  }

  /** All effects since the last time. */
  take(): readonly ProtocolEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  add(effect: ProtocolEffect): void {
    this.#effects.push(effect);
  }

  arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.add({ kind: 'timer', timer, milliseconds });
  }

  /** Arms it, unless it runs already. */
  armOnce(timer: string, milliseconds: number, run: () => void): void {
    if (!this.#timers.has(timer)) this.arm(timer, milliseconds, run);
  }

  /**
   * Opens a new stream if responses have not shown for so long which subscription they answer. There, all of them are in
   * the first request. `doubt`: each has its own time.
   */
  renewIfDoubtful(type: TypeUrl, doubt: string, isDoubtful: () => boolean): void {
    const timer = `answers ${doubt}`;
    if (this.#timers.has(timer) || !isDoubtful()) return;
    this.arm(timer, attributionWaitMs, () => {
      const reason = `responses of ${type} do not show which subscription they answer: a new stream will`;
      if (isDoubtful()) this.add({ kind: 'renew', reason });
    });
  }

  /** Runs once responses have not shown for so long whether a request has been seen. */
  stopDoubting(request: string, run: () => void): void {
    this.armOnce(`doubt ${request}`, attributionWaitMs, run);
  }

  cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.add({ kind: 'timer', timer, milliseconds: undefined });
  }

  fire(timer: string): void {
    const run = this.#timers.get(timer);
    this.#timers.delete(timer);
    run?.();
  }

  send(requests: readonly OutgoingRequest[]): void {
    for (const request of requests) this.add({ kind: 'send', request });
  }

  /** Applies a transaction that does not come from a response. */
  applyPart({ holder, type, version }: TypeState, part: Partial<Transaction>): void {
    this.add({ kind: 'apply', transaction: transaction({ holder, type, version, ...part }) });
  }

  /** The stream has ended, and its timers with it. */
  forgetTimers(): void {
    this.#timers.clear();
  }
}

/**
 * What resource_timeout means for a subscription without an answer. Removals: it is absent, and these are removed. `unknown`:
 * nothing. `extend`: the timeout is a little longer.
 */
export type TimeoutOutcome = readonly Removal[] | 'unknown' | 'extend';

/** Where SotW and delta differ (protocol §3 and §4, seen from the client). `S`: of one type; `R`: a response. */
export interface ProtocolStrategy<S extends TypeState, R extends IncomingSotw> {
  createState(base: TypeState): S;
  /** A new stream: everything is subscribed anew. `resumed`: to the same endpoint as the last one. */
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
  /** After a response: what must be left out and subscribed once more, because upstream may not have seen that it was. */
  askAgain(state: S): readonly UpstreamSubscription[];
  /** Whether silence means absence in the end (protocol §3.9). */
  absentAfterTimeout(state: S, subscription: UpstreamSubscription): boolean;
  /** resource_timeout has passed, or (`extended`) a little more. */
  onTimeout(state: S, subscription: UpstreamSubscription, extended: boolean): TimeoutOutcome;
}

/** The state of the type of an interest: its wildcard or its names. */
export function createTypeState(
  { type, selector }: Interest,
  { holders, locators, maxConstraintDepth }: MachineOptions,
  stamp: Stamp,
): TypeState {
  return {
    type,
    info: typeInfo(type),
    holder: selector === WILDCARD ? holders.wildcard : holders.named,
    subscriptions: new UpstreamSubscriptions(locators),
    acked: new AckedResources(),
    rules: { type, stamp, maxConstraintDepth },
    toSubscribe: new Set(),
    toUnsubscribe: [],
    requestCount: 0,
    nonce: '',
    version: '',
    lastNack: undefined,
    nacksInARow: 0,
    sweepPending: false,
  };
}

/** The variants that upstream has delivered under the name, glob or wildcard of a subscription. */
export function covered({ acked }: TypeState, { kind, selector }: UpstreamSubscription): AckedVariant[] {
  if (kind === 'name') return acked.of(selector);
  return kind === 'glob' ? acked.under(selector) : [...acked.all()];
}

/** Removes the variants that a subscription covers and this stream has not confirmed. */
export function removeUnconfirmed(
  state: TypeState,
  subscription: UpstreamSubscription,
  stream: number,
): Removal[] {
  const isStale = ({ confirmedOnStream, constraints }: AckedVariant): boolean =>
    confirmedOnStream !== stream && isFor(subscription, constraints);
  return state.acked.remove(covered(state, subscription).filter(isStale));
}

/** Nothing is subscribed, cached or to be unsubscribed. Only the last nonce and version are left in it. */
export function isAbandoned({ subscriptions, acked, toUnsubscribe }: TypeState): boolean {
  return subscriptions.size === 0 && acked.size === 0 && toUnsubscribe.length === 0;
}

/** A new stream: everything is subscribed anew, except what is suspended. */
export function resetTypeState(state: TypeState): void {
  state.nonce = '';
  state.requestCount = 0;
  state.lastNack = undefined;
  state.nacksInARow = 0;
  state.toUnsubscribe = [];
  state.sweepPending = false;
  for (const subscription of state.subscriptions.all()) {
    subscription.requestNumber = 0;
    subscription.anyResponseAnswers = false;
    subscription.resolvedOnThisStream = false;
    subscription.responseSeen = false;
    subscription.expectedNames = new Set();
    if (!subscription.suspended) state.toSubscribe.add(subscription);
  }
}

/** Moves the acked resources to another stamp; undefined: removes them. */
export function* restampAcked(
  { type, holder, acked }: TypeState,
  before: Stamp,
  stamp: Stamp | undefined,
): Iterable<readonly [TypeUrl, Move]> {
  const anew = (constraints: Constraints): Constraints | undefined => {
    const stamped = stamp?.(originalOf(before, constraints));
    return stamped?.ok === true ? stamped.value : undefined;
  };
  for (const move of acked.restamp(anew)) yield [type, { holder, ...move }];
}
