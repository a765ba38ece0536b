import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Result } from '../../model/result.ts';
import { atOnce, type InTurns } from '../../model/time-slices.ts';
import {
  type Interest,
  type Move,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { IncomingSotw, UnreadableResponse } from '../../wire/response-reader.ts';
import { type AcceptanceRules, unsolicitedType } from './response-parts.ts';
import type { Stamp } from './stamp.ts';
import { type MachineOptions, type TypeState, TypesInUse } from './type-state.ts';
import { type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

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
  | Readonly<{ kind: 'log'; level: 'info' | 'warn'; message: string; type: TypeUrl }>
  /** A wildcard has had no answer within resource_timeout. Nothing is concluded from it here. */
  | { readonly kind: 'overdue' }
  /** Only a new stream can tell which request a response answers: end this one, and open another at once. */
  | { readonly kind: 'renew'; readonly reason: string }
  /** The response is large: others get a turn, and then comes `readOn`. */
  | { readonly kind: 'read_on' }
  /** The stream is beyond use: end it. */
  | { readonly kind: 'fail'; readonly reason: string };

/**
 * What resource_timeout means for a subscription without an answer. Removals: it is absent, and these are removed. `unknown`:
 * nothing. `extend`: the timeout is a little longer.
 */
export type TimeoutOutcome = readonly Removal[] | 'unknown' | 'extend';

/**
 * Some control planes split the first answer to a wildcard. It is complete when nothing more has come for this long
 * (protocol §5b).
 */
const quietPeriodMs = 300;
const longestQuietWaitMs = 3000;
/**
 * A fifteenth of resource_timeout is added where the upstream may be a relay that does not know yet: 16 s instead of
 * 15 s. The relay above waits 15 s for its own control plane, and its answer must arrive first.
 */
const extensionShare = 15;
/** The second rejection in a row waits so long, each further one twice as long: some servers send again at once. */
const nackDelayMs = { first: 1000, longest: 30_000 };
const reasonLimit = 2000;
/** So many types that were never subscribed are refused on one stream; others are ignored. */
const maxUnsolicited = 100;
/** How long the relay waits for a response that shows that it answers a later wildcard or glob. */
const attributionWaitMs = 2000;

/**
 * One stream to a control plane, as a machine without I/O and clock: what happens to it are its methods, and `ready` says
 * what is to be done. This is what SotW and delta share; the methods without a body are where they differ (protocol §5b,
 * and §3 and §4 seen from the client). `S`: the state of one type; `R`: a response.
 */
export abstract class StreamMachine<S extends TypeState = TypeState, R extends IncomingSotw = IncomingSotw> {
  protected readonly options: MachineOptions;
  /**
   * A response has come on this stream, or on another one of the session. From then on, silence means that a name
   * does not exist.
   */
  protected controlPlaneResponded = false;
  readonly #types = new TypesInUse<S>();
  /** Types that came on this stream and were never subscribed. */
  readonly #unsolicited = new Set<TypeUrl>();
  #connected = false;
  /** A response of which a part is still to be read, and by which rules. */
  #reading:
    | {
        readonly state: S;
        readonly response: R;
        readonly rules: AcceptanceRules;
        readonly turns: InTurns<Result<() => Transaction>>;
      }
    | undefined;
  #stamp: Stamp;
  #effects: ProtocolEffect[] = [];
  /** What each running timer does. */
  readonly #timers = new Map<string, () => void>();

  constructor(options: MachineOptions) {
    this.options = options;
    this.#stamp = options.stamp;
  }

  protected abstract createState(interest: Interest, stamp: Stamp): S;
  /** A new stream: everything is subscribed anew. `resumed`: to the same endpoint as the last one. */
  protected abstract resetType(state: S, resumed: boolean): void;
  protected abstract read(bytes: Buffer): Result<R, UnreadableResponse>;
  /** Judges a response, in turns; changes nothing. Its result takes the response over; the error is the reason for a NACK. */
  protected abstract judge(state: S, response: R): InTurns<Result<() => Transaction>>;
  /** The requests for a change of what is subscribed. */
  protected abstract changeSubscriptions(
    state: S,
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[];
  /** An ACK, or with `lastNack` a NACK, of `state.nonce`. */
  protected abstract reply(state: S): OutgoingRequest;
  /** Refuses a type that was never subscribed. Left out where a refusal would subscribe to it. */
  protected refusal?(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest;
  /**
   * Which of these wildcards and globs a response may answer. It may also be an update, or answer another subscription.
   */
  protected abstract answeredBy(
    state: S,
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription>;
  /** Before the resources of this subscription are dropped, because nobody subscribes to them any more. */
  protected abstract onUnsubscribed(state: S, subscription: UpstreamSubscription): void;
  /** After a response: what must be left out and subscribed once more, because upstream may not have seen that it was. */
  protected askAgain?(state: S): readonly UpstreamSubscription[];
  /** Whether silence means absence in the end (protocol §3.9). */
  protected abstract absentAfterTimeout(state: S, subscription: UpstreamSubscription): boolean;
  /** resource_timeout has passed, or (`extended`) a little more. */
  protected abstract onTimeout(
    state: S,
    subscription: UpstreamSubscription,
    extended: boolean,
  ): TimeoutOutcome;

  /** Nothing is subscribed, or all of it is suspended. */
  get isUnused(): boolean {
    return this.#subscriptions().every(({ suspended }) => suspended);
  }

  /** Some subscription has no answer yet. */
  get awaitsResponse(): boolean {
    return this.#subscriptions().some(
      ({ requestNumber, resolvedOnThisStream }) => requestNumber > 0 && !resolvedOnThisStream,
    );
  }

  /** All interests; nothing may be subscribed or unsubscribed while they are read. */
  interests(): Iterable<Interest> {
    return this.#subscriptions().flatMap(({ interests }) => interests.values());
  }

  /** The interests that were suspended by `suspend_idle`. */
  suspendedInterests(): readonly Interest[] {
    return this.#subscriptions()
      .filter(({ suspended }) => suspended)
      .flatMap(({ interests }) => interests.values())
      .toArray();
  }

  /** Another stamp from now on; undefined: the session ends. Returns what changes for the resources that it delivered. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    const before = this.#stamp;
    this.#stamp = stamp ?? before;
    for (const state of this.#types.values()) yield* state.restamp(before, stamp);
  }

  /** Gives up a type, which moves to another stream with this state. */
  release(type: TypeUrl): S | undefined {
    const state = this.#types.get(type);
    this.#types.delete(type);
    return state;
  }

  /** Takes over a type from another stream. It is subscribed with the next flush. `resumed`: as in `connect`. */
  adopt(state: S, resumed: boolean): void {
    this.#types.set(state.type, state);
    this.resetType(state, resumed);
  }

  /** What is to be done about all that has happened since the last time, in this order. */
  ready(): readonly ProtocolEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  #subscriptions(): IteratorObject<UpstreamSubscription, undefined> {
    return this.#types.values().flatMap(({ subscriptions }) => subscriptions.all());
  }

  /** A stream is open. `resumed`: to the same endpoint as the last one of this session. */
  connect(resumed: boolean): void {
    this.#connected = true;
    this.controlPlaneResponded = false;
    this.#unsolicited.clear();
    this.#timers.clear();
    for (const state of this.#types.values()) this.resetType(state, resumed);
    this.flush();
  }

  disconnect(): void {
    this.#connected = false;
    this.#reading = undefined;
    this.#timers.clear();
  }

  /** Another stream of the session has had a response: the control plane works and accepts this node. */
  siblingAnswered(): void {
    this.controlPlaneResponded = true;
  }

  fire(timer: string): void {
    this.#readToEnd(); // silence is over
    const run = this.#timers.get(timer);
    this.#timers.delete(timer);
    run?.();
  }

  subscribe(interest: Interest): void {
    const { type } = interest;
    const state = this.#types.get(type) ?? this.createState(interest, this.#stamp);
    this.#types.set(type, state);
    const { subscription, created, repeated } = state.subscriptions.add(interest);
    if (created) state.toSubscribe.add(subscription);
    else if (subscription.suspended) state.resume(subscription);
    if (created) return;
    if (repeated) state.resubscribe(subscription);
    else if (subscription.resolved) this.#applyPart(state, { resolved: [interest] });
  }

  unsubscribe(interest: Interest): void {
    const state = this.#types.get(interest.type);
    const subscription = state?.subscriptions.delete(interest);
    if (state === undefined || subscription === undefined) return;
    state.toSubscribe.delete(subscription);
    if (subscription.requestNumber > 0) state.toUnsubscribe.push(subscription);
    this.#dropUnsubscribed(state, subscription);
  }

  /** Upstream does not update it any more, so the store must not have it from here. */
  #dropUnsubscribed(state: S, subscription: UpstreamSubscription): void {
    this.onUnsubscribed(state, subscription);
    if (state.subscriptions.size === 0) {
      if (state.acked.size > 0) this.#applyPart(state, { complete: true, unwanted: true });
      state.acked.clear();
      return;
    }
    const removals = state.acked.remove(
      state
        .covered(subscription)
        .filter(({ name, constraints }) => state.subscriptions.matching(name, [], constraints).length === 0),
    );
    if (removals.length > 0) this.#applyPart(state, { removals, unwanted: true });
  }

  /** No stream is open. Subscriptions with only idle interests are not sent on the next one. */
  suspendIdle(isIdle: (interest: Interest) => boolean): void {
    for (const { subscriptions, toSubscribe } of this.#types.values()) {
      for (const subscription of subscriptions.all()) {
        subscription.suspended = subscription.interests.values().every(isIdle);
        if (subscription.suspended) toSubscribe.delete(subscription);
      }
    }
  }

  /** Somebody subscribes to it again: if it is suspended, it is sent with the next flush. */
  resume(interest: Interest): void {
    const state = this.#types.get(interest.type);
    const subscription = state?.subscriptions.covering(interest);
    if (state !== undefined && subscription?.suspended === true) state.resume(subscription);
  }

  /**
   * Changes of subscription are sent now: many that come together make one request. By type, in the order of ADS (protocol
   * §8): a server that answers in the order of requests warms clusters first.
   */
  flush(): void {
    if (!this.#connected) return;
    for (const state of [...this.#types.values()].toSorted((a, b) => a.info.order - b.info.order)) {
      if (state.toSubscribe.size > 0 || state.toUnsubscribe.length > 0) this.#sendChanges(state);
    }
    // Responses of these types are unsolicited from now on.
    this.#types.dropUnused(({ isAbandoned }) => isAbandoned);
  }

  #sendChanges(state: S): void {
    const { type, toUnsubscribe } = state;
    const subscribed = [...state.toSubscribe];
    state.toSubscribe.clear();
    state.toUnsubscribe = [];
    state.requestCount++;
    if (subscribed.some(({ everSent }) => !everSent)) this.#add({ kind: 'asked', type });
    for (const subscription of subscribed) {
      subscription.everSent = true;
      subscription.requestNumber = state.requestCount;
      // No response can have been on its way before the first request.
      subscription.anyResponseAnswers = state.requestCount === 1;
    }
    this.#send(this.changeSubscriptions(state, subscribed, toUnsubscribe));
    this.#awaitAnswers(state, subscribed);
  }

  receive(bytes: Buffer): void {
    if (!this.#connected) return;
    this.#readToEnd();
    const read = this.read(bytes);
    const envelope = read.ok ? read.value : read.error;
    const state = this.#types.get(typeUrl(envelope.typeUrl));
    if (state === undefined || state.requestCount === 0) {
      if (!read.ok) this.#add({ kind: 'fail', reason: read.error.reason });
      else if (envelope.typeUrl === '') this.#add({ kind: 'fail', reason: 'a response without type_url' });
      else this.#refuseUnsolicited(read.value);
      return;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse, and the framing itself may be broken.
      if (read.error.nonce === '') this.#add({ kind: 'fail', reason: read.error.reason });
      else this.#reject(state, read.error.nonce, read.error.reason);
      return;
    }
    this.controlPlaneResponded = true;
    const response = read.value;
    this.#reading = { state, response, rules: state.rules, turns: this.judge(state, response) };
    this.readOn();
  }

  /** The next part of a large response is read. */
  readOn(): void {
    const step = this.#reading?.turns.next();
    if (step?.done === true) this.#received(step.value);
    else if (step !== undefined) this.#add({ kind: 'read_on' });
  }

  #readToEnd(): void {
    if (this.#reading !== undefined) this.#received(atOnce(this.#reading.turns));
  }

  #received(judged: Result<() => Transaction>): void {
    if (this.#reading === undefined) return;
    const { state, response, rules } = this.#reading;
    this.#reading = undefined;
    if (this.#types.get(state.type) !== state) return; // it has moved to another stream meanwhile
    if (state.subscriptions.size === 0) {
      // An answer that was in flight when its last subscription ended.
      state.nonce = response.nonce;
      this.#send([this.reply(state)]);
      return;
    }
    // Another stamp came in between, or something was unsubscribed.
    const reading = rules === state.rules ? judged : atOnce(this.judge(state, response));
    if (!reading.ok) {
      this.#reject(state, response.nonce, reading.error);
      return;
    }
    const said = reading.value();
    this.#add({ kind: 'apply', transaction: said });
    this.#acknowledge(state, response);
    this.#heard(state, said);
    const again = this.askAgain?.(state) ?? [];
    for (const subscription of again) state.resubscribe(subscription);
    if (again.length > 0) this.#sendChanges(state);
  }

  #acknowledge(state: S, { nonce, version }: R): void {
    const { type, lastNack } = state;
    if (lastNack !== undefined) {
      this.#cancel(`nack ${type}`);
      this.#add({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    state.lastNack = undefined;
    state.nacksInARow = 0;
    state.nonce = nonce;
    state.version = version;
    this.#add({ kind: 'answered', type, refused: undefined });
    this.#send([this.reply(state)]);
  }

  #reject(state: S, nonce: string, reason: string): void {
    const { type } = state;
    const message = reason.slice(0, reasonLimit);
    if (state.lastNack?.message !== message) {
      this.#add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    }
    state.nonce = nonce;
    state.lastNack = { code: Code.INVALID_ARGUMENT, message };
    state.nacksInARow++;
    this.#add({ kind: 'answered', type, refused: message });
    if (state.nacksInARow === 1) {
      this.#send([this.reply(state)]);
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (state.nacksInARow - 2), nackDelayMs.longest);
    this.arm(`nack ${type}`, delay, () => this.#send([this.reply(state)]));
  }

  #refuseUnsolicited(response: R): void {
    const { type, known, message } = unsolicitedType(response.typeUrl);
    this.#add({ kind: 'answered', type: known, refused: message });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= maxUnsolicited) return;
    this.#unsolicited.add(known);
    this.#add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    const refusal = this.refusal?.(type, response.nonce, { code: Code.INVALID_ARGUMENT, message });
    if (refusal !== undefined) this.#send([refusal]);
  }

  // What follows from silence: the answer to a wildcard is complete, a name is absent, or a stream is useless.

  /** These were sent just now. */
  #awaitAnswers(state: S, subscriptions: readonly UpstreamSubscription[]): void {
    const unanswered = subscriptions.filter(({ resolvedOnThisStream }) => !resolvedOnThisStream);
    const wildcards = unanswered.filter(({ kind }) => kind === 'wildcard');
    const suffix = `${state.requestCount} ${state.type}`;
    if (wildcards.length > 0) this.#awaitWildcards(state, `overdue ${suffix}`, wildcards);
    const expiring = unanswered.filter((one) => this.absentAfterTimeout(state, one));
    if (expiring.length > 0) {
      this.arm(`expire ${suffix}`, this.options.resourceTimeoutMs, () =>
        this.#expire(state, `expire ${suffix}`, expiring, false),
      );
    }
  }

  /** A response has come: a wildcard or glob that it may answer is answered when no more follow. */
  #heard(state: S, said: Transaction): void {
    const { sweepPending, subscriptions, type } = state;
    const waiting = waitingCollections(sweepPending ? subscriptions.all() : subscriptions.unresolved);
    const answered = this.answeredBy(state, said, waiting);
    for (const subscription of answered) subscription.responseSeen = true;
    if (state.holder.exactParameters !== undefined) this.#resolveWildcards(state, answered);
    if (!sweepPending && !subscriptions.unresolved.values().some(({ responseSeen }) => responseSeen)) return;
    this.arm(`quiet ${type}`, quietPeriodMs, () => this.#resolveAfterQuiet(state));
    // A busy control plane is never quiet.
    this.#armOnce(`enough ${type}`, longestQuietWaitMs, () => this.#resolveAfterQuiet(state));
  }

  #resolveWildcards(state: S, answered: ReadonlySet<UpstreamSubscription>): void {
    const resolved: Interest[] = [];
    for (const subscription of answered)
      if (subscription.kind === 'wildcard') state.subscriptions.markResolved(subscription, resolved);
    this.#conclude(state, resolved, []);
  }

  #awaitWildcards(state: S, timer: string, subscriptions: readonly UpstreamSubscription[]): void {
    const { resourceTimeoutMs } = this.options;
    this.arm(timer, resourceTimeoutMs, () => {
      const waiting = subscriptions.filter(
        (subscription) => !subscription.resolvedOnThisStream && state.subscriptions.has(subscription),
      );
      if (waiting.length === 0) return;
      // The wildcard was subscribed later than other things on this stream, so its answer cannot be recognised. On a
      // new stream it is in the first request, and the first response answers it.
      if (state.nonce !== '' && waiting.some(({ requestNumber }) => requestNumber > 1)) {
        const reason = `no answer to the wildcard of ${state.type} within ${resourceTimeoutMs / 1000} s`;
        this.#add({ kind: 'renew', reason });
        return;
      }
      this.#add({ kind: 'overdue' });
      this.#awaitWildcards(state, timer, waiting);
    });
  }

  #expire(state: S, timer: string, subscriptions: readonly UpstreamSubscription[], extended: boolean): void {
    const { resourceTimeoutMs } = this.options;
    // The rejected response may have been the answer, so nothing is concluded yet.
    if (state.lastNack !== undefined) {
      this.arm(timer, resourceTimeoutMs, () => this.#expire(state, timer, subscriptions, false));
      return;
    }
    const resolved: Interest[] = [];
    const removals: Removal[] = [];
    const later: UpstreamSubscription[] = [];
    for (const subscription of subscriptions) {
      if (!state.subscriptions.has(subscription)) continue;
      const outcome = this.onTimeout(state, subscription, extended);
      if (outcome === 'extend') later.push(subscription);
      if (typeof outcome === 'string') continue;
      removals.push(...outcome);
      state.subscriptions.markResolved(subscription, resolved);
    }
    this.#conclude(state, resolved, removals);
    if (later.length === 0) return;
    this.arm(timer, resourceTimeoutMs / extensionShare, () => this.#expire(state, timer, later, true));
  }

  #resolveAfterQuiet(state: S): void {
    this.#cancel(`quiet ${state.type}`);
    this.#cancel(`enough ${state.type}`);
    // A part of the answer was rejected, so it is not complete.
    if (state.lastNack !== undefined) return;
    const resolved: Interest[] = [];
    for (const subscription of [...state.subscriptions.unresolved])
      if (subscription.responseSeen) state.subscriptions.markResolved(subscription, resolved);
    this.#conclude(state, resolved, state.sweepPending ? this.#sweep(state) : []);
  }

  /** Removes what the answered wildcards and globs have from earlier streams. */
  #sweep(state: S): Removal[] {
    const collections = state.subscriptions.all().filter(({ kind }) => kind !== 'name');
    const { answered = [], waiting = [] } = Object.groupBy(collections, ({ responseSeen }) =>
      responseSeen ? 'answered' : 'waiting',
    );
    state.sweepPending = waiting.length > 0;
    return answered.flatMap((subscription) => state.removeUnconfirmed(subscription));
  }

  #conclude(state: S, resolved: readonly Interest[], removals: readonly Removal[]): void {
    if (resolved.length > 0 || removals.length > 0) this.#applyPart(state, { resolved, removals });
  }

  #add(effect: ProtocolEffect): void {
    this.#effects.push(effect);
  }

  protected arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.#add({ kind: 'timer', timer, milliseconds });
  }

  /** Arms it, unless it runs already. */
  #armOnce(timer: string, milliseconds: number, run: () => void): void {
    if (!this.#timers.has(timer)) this.arm(timer, milliseconds, run);
  }

  #cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.#add({ kind: 'timer', timer, milliseconds: undefined });
  }

  /**
   * Opens a new stream if responses have not shown for so long which subscription they answer. There, all of them are in
   * the first request. `doubt`: each has its own time.
   */
  protected renewIfDoubtful(type: TypeUrl, doubt: string, isDoubtful: () => boolean): void {
    const timer = `answers ${doubt}`;
    if (this.#timers.has(timer) || !isDoubtful()) return;
    this.arm(timer, attributionWaitMs, () => {
      const reason = `responses of ${type} do not show which subscription they answer: a new stream will`;
      if (isDoubtful()) this.#add({ kind: 'renew', reason });
    });
  }

  /** Runs once responses have not shown for so long whether a request has been seen. */
  protected stopDoubting(request: string, run: () => void): void {
    this.#armOnce(`doubt ${request}`, attributionWaitMs, run);
  }

  #send(requests: readonly OutgoingRequest[]): void {
    for (const request of requests) this.#add({ kind: 'send', request });
  }

  /** Applies a transaction that does not come from a response. */
  #applyPart({ holder, type, version }: S, part: Partial<Transaction>): void {
    this.#add({ kind: 'apply', transaction: transaction({ holder, type, version, ...part }) });
  }
}
