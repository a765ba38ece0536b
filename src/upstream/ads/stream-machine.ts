import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Result } from '../../model/result.ts';
import type { Interest, Move, Removal, Transaction } from '../../model/transaction.ts';
import { atOnce, type InTurns } from '../../model/turns.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { IncomingDelta, IncomingSotw } from '../../wire/response-reader.ts';
import { type DeltaState, DeltaStrategy } from './delta-strategy.ts';
import { unsolicitedType } from './response-parts.ts';
import { type SotwState, SotwStrategy } from './sotw-strategy.ts';
import type { Stamp } from './stamp.ts';
import {
  covered,
  createTypeState,
  isAbandoned,
  type MachineOptions,
  type ProtocolEffect,
  type ProtocolStrategy,
  removeUnconfirmed,
  resetTypeState,
  restampAcked,
  StreamContext,
  type TypeState,
} from './type-state.ts';
import { TypesInUse } from './types-in-use.ts';
import {
  markResolved,
  resubscribe,
  resume,
  type UpstreamSubscription,
  waitingCollections,
} from './upstream-subscriptions.ts';

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

/** A response of which a part is still to be read. */
interface UnfinishedReading<S, R> {
  readonly state: S;
  readonly response: R;
  readonly turns: InTurns<Result<() => Transaction>>;
}

/**
 * One stream to a control plane, as a machine without I/O and clock: what happens to it are its methods, and `ready` says what is to be done. This is what SotW and delta
 * share; where they differ is in two classes (protocol §5b, and §3 and §4 seen from the client). `S`: the state of one
 * type; `R`: a response.
 */
class ProtocolLoop<S extends TypeState, R extends IncomingSotw> {
  readonly #stream: StreamContext;
  readonly #strategy: ProtocolStrategy<S, R>;
  readonly #types = new TypesInUse<S>();
  /** Types that came on this stream and were never subscribed. */
  readonly #unsolicited = new Set<TypeUrl>();
  #connected = false;
  #reading: UnfinishedReading<S, R> | undefined;
  #stamp: Stamp;

  constructor(stream: StreamContext, strategy: ProtocolStrategy<S, R>) {
    this.#stream = stream;
    this.#strategy = strategy;
    this.#stamp = stream.options.stamp;
  }

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
    for (const state of this.#types.values()) {
      yield* restampAcked(state, before, stamp);
      state.rules = { ...state.rules, stamp: this.#stamp };
    }
  }

  /** Gives up a type, which moves to another stream with this state. */
  release(type: TypeUrl): TypeState | undefined {
    const state = this.#types.get(type);
    this.#types.delete(type);
    return state;
  }

  /** Takes over a type from another stream. It is subscribed with the next flush. `resumed`: as in `connected`. */
  adopt(base: TypeState, resumed: boolean): void {
    const state = this.#strategy.createState(base);
    for (const variant of state.acked.all()) variant.confirmedOnStream = 0; // of no stream of this machine
    this.#types.set(state.type, state);
    this.#resetType(state, resumed);
  }

  /** What is to be done about all that has happened since the last time, in this order. */
  ready(): readonly ProtocolEffect[] {
    return this.#stream.take();
  }

  #subscriptions(): IteratorObject<UpstreamSubscription, undefined> {
    return this.#types.values().flatMap(({ subscriptions }) => subscriptions.all());
  }

  /** A stream is open. `resumed`: to the same endpoint as the last one of this session. */
  connect(resumed: boolean): void {
    this.#connected = true;
    this.#stream.controlPlaneResponded = false;
    this.#stream.number++;
    this.#unsolicited.clear();
    this.#stream.forgetTimers();
    for (const state of this.#types.values()) this.#resetType(state, resumed);
    this.flush();
  }

  disconnect(): void {
    this.#connected = false;
    this.#reading = undefined;
    this.#stream.forgetTimers();
  }

  /** Another stream of the session has had a response: the control plane works and accepts this node. */
  siblingAnswered(): void {
    this.#stream.controlPlaneResponded = true;
  }

  fire(timer: string): void {
    this.#readToEnd(); // silence is over
    this.#stream.fire(timer);
  }

  #resetType(state: S, resumed: boolean): void {
    resetTypeState(state);
    this.#strategy.reset(state, resumed);
  }

  subscribe(interest: Interest): void {
    const { type } = interest;
    const state =
      this.#types.get(type) ??
      this.#strategy.createState(createTypeState(interest, this.#stream.options, this.#stamp));
    this.#types.set(type, state);
    const { subscription, created, repeated } = state.subscriptions.add(interest);
    if (created) state.toSubscribe.add(subscription);
    else if (subscription.suspended) resume(state, subscription);
    if (created) return;
    if (repeated) resubscribe(state, subscription);
    else if (subscription.resolved) this.#stream.applyPart(state, { resolved: [interest] });
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
    this.#strategy.onUnsubscribed(state, subscription);
    if (state.subscriptions.size === 0) {
      if (state.acked.size > 0) this.#stream.applyPart(state, { complete: true, unwanted: true });
      state.acked.clear();
      return;
    }
    const removals = state.acked.remove(
      covered(state, subscription).filter(
        ({ name, constraints }) => state.subscriptions.matching(name, [], constraints).length === 0,
      ),
    );
    if (removals.length > 0) this.#stream.applyPart(state, { removals, unwanted: true });
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
    if (state !== undefined && subscription?.suspended === true) resume(state, subscription);
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
    this.#types.dropUnused(isAbandoned);
  }

  #sendChanges(state: S): void {
    const { type, toUnsubscribe } = state;
    const subscribed = [...state.toSubscribe];
    state.toSubscribe.clear();
    state.toUnsubscribe = [];
    state.requestCount++;
    if (subscribed.some(({ everSent }) => !everSent)) this.#stream.add({ kind: 'asked', type });
    for (const subscription of subscribed) {
      subscription.everSent = true;
      subscription.requestNumber = state.requestCount;
      // No response can have been on its way before the first request.
      subscription.anyResponseAnswers = state.requestCount === 1;
    }
    this.#stream.send(this.#strategy.changeSubscriptions(state, subscribed, toUnsubscribe));
    this.#awaitAnswers(state, subscribed);
  }

  receive(bytes: Buffer): void {
    if (!this.#connected) return;
    this.#readToEnd();
    const read = this.#strategy.read(bytes);
    const envelope = read.ok ? read.value : read.error;
    const state = this.#types.get(typeUrl(envelope.typeUrl));
    if (state === undefined || state.requestCount === 0) {
      if (!read.ok) this.#stream.add({ kind: 'fail', reason: read.error.reason });
      else if (envelope.typeUrl === '')
        this.#stream.add({ kind: 'fail', reason: 'a response without type_url' });
      else this.#refuseUnsolicited(read.value);
      return;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse, and the framing itself may be broken.
      if (read.error.nonce === '') this.#stream.add({ kind: 'fail', reason: read.error.reason });
      else this.#reject(state, read.error.nonce, read.error.reason);
      return;
    }
    this.#stream.controlPlaneResponded = true;
    this.#reading = { state, response: read.value, turns: this.#strategy.judge(state, read.value) };
    this.readOn();
  }

  /** The next part of a large response is read. */
  readOn(): void {
    const step = this.#reading?.turns.next();
    if (step?.done === true) this.#received(step.value);
    else if (step !== undefined) this.#stream.add({ kind: 'read_on' });
  }

  #readToEnd(): void {
    if (this.#reading !== undefined) this.#received(atOnce(this.#reading.turns));
  }

  #received(judged: Result<() => Transaction>): void {
    if (this.#reading === undefined) return;
    const { state, response } = this.#reading;
    this.#reading = undefined;
    if (this.#types.get(state.type) !== state) return; // it has moved to another stream meanwhile
    if (state.subscriptions.size === 0) {
      // An answer that was in flight when its last subscription ended.
      state.nonce = response.nonce;
      this.#stream.send([this.#strategy.reply(state)]);
      return;
    }
    if (!judged.ok) {
      this.#reject(state, response.nonce, judged.error);
      return;
    }
    const said = judged.value();
    this.#stream.add({ kind: 'apply', transaction: said });
    this.#acknowledge(state, response);
    this.#heard(state, said);
    const again = this.#strategy.askAgain(state);
    for (const subscription of again) resubscribe(state, subscription);
    if (again.length > 0) this.#sendChanges(state);
  }

  #acknowledge(state: S, { nonce, version }: R): void {
    const { type, lastNack } = state;
    if (lastNack !== undefined) {
      this.#stream.cancel(`nack ${type}`);
      this.#stream.add({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    state.lastNack = undefined;
    state.nacksInARow = 0;
    state.nonce = nonce;
    state.version = version;
    this.#stream.add({ kind: 'answered', type, refused: undefined });
    this.#stream.send([this.#strategy.reply(state)]);
  }

  #reject(state: S, nonce: string, reason: string): void {
    const { type } = state;
    const message = reason.slice(0, reasonLimit);
    if (state.lastNack?.message !== message) {
      this.#stream.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    }
    state.nonce = nonce;
    state.lastNack = { code: Code.INVALID_ARGUMENT, message };
    state.nacksInARow++;
    this.#stream.add({ kind: 'answered', type, refused: message });
    if (state.nacksInARow === 1) {
      this.#stream.send([this.#strategy.reply(state)]);
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (state.nacksInARow - 2), nackDelayMs.longest);
    this.#stream.arm(`nack ${type}`, delay, () => this.#stream.send([this.#strategy.reply(state)]));
  }

  #refuseUnsolicited(response: R): void {
    const { type, known, message } = unsolicitedType(response.typeUrl);
    this.#stream.add({ kind: 'answered', type: known, refused: message });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= maxUnsolicited) return;
    this.#unsolicited.add(known);
    this.#stream.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    const refusal = this.#strategy.refusal(type, response.nonce, { code: Code.INVALID_ARGUMENT, message });
    if (refusal !== undefined) this.#stream.send([refusal]);
  }

  // What follows from silence: the answer to a wildcard is complete, a name is absent, or a stream is useless.

  /** These were sent just now. */
  #awaitAnswers(state: S, subscriptions: readonly UpstreamSubscription[]): void {
    const unanswered = subscriptions.filter(({ resolvedOnThisStream }) => !resolvedOnThisStream);
    const wildcards = unanswered.filter(({ kind }) => kind === 'wildcard');
    const suffix = `${state.requestCount} ${state.type}`;
    if (wildcards.length > 0) this.#awaitWildcards(state, `overdue ${suffix}`, wildcards);
    const expiring = unanswered.filter((one) => this.#strategy.absentAfterTimeout(state, one));
    if (expiring.length > 0) {
      this.#stream.arm(`expire ${suffix}`, this.#stream.options.resourceTimeoutMs, () =>
        this.#expire(state, `expire ${suffix}`, expiring, false),
      );
    }
  }

  /** A response has come: a wildcard or glob that it may answer is answered when no more follow. */
  #heard(state: S, said: Transaction): void {
    const { sweepPending, subscriptions, type } = state;
    const waiting = waitingCollections(sweepPending ? subscriptions.all() : subscriptions.unresolved);
    const answered = this.#strategy.answeredBy(state, said, waiting);
    for (const subscription of answered) subscription.responseSeen = true;
    if (state.holder.exactParameters !== undefined) this.#resolveWildcards(state, answered);
    if (!sweepPending && !subscriptions.unresolved.values().some(({ responseSeen }) => responseSeen)) return;
    this.#stream.arm(`quiet ${type}`, quietPeriodMs, () => this.#resolveAfterQuiet(state));
    // A busy control plane is never quiet.
    this.#stream.armOnce(`enough ${type}`, longestQuietWaitMs, () => this.#resolveAfterQuiet(state));
  }

  #resolveWildcards(state: S, answered: ReadonlySet<UpstreamSubscription>): void {
    const resolved: Interest[] = [];
    for (const subscription of answered)
      if (subscription.kind === 'wildcard') markResolved(state.subscriptions, subscription, resolved);
    this.#conclude(state, resolved, []);
  }

  #awaitWildcards(state: S, timer: string, subscriptions: readonly UpstreamSubscription[]): void {
    const { resourceTimeoutMs } = this.#stream.options;
    this.#stream.arm(timer, resourceTimeoutMs, () => {
      const waiting = subscriptions.filter(
        (subscription) => !subscription.resolvedOnThisStream && state.subscriptions.has(subscription),
      );
      if (waiting.length === 0) return;
      // The wildcard was subscribed later than other things on this stream, so its answer cannot be recognised. On a
      // new stream it is in the first request, and the first response answers it.
      if (state.nonce !== '' && waiting.some(({ requestNumber }) => requestNumber > 1)) {
        const reason = `no answer to the wildcard of ${state.type} within ${resourceTimeoutMs / 1000} s`;
        this.#stream.add({ kind: 'renew', reason });
        return;
      }
      this.#stream.add({ kind: 'overdue' });
      this.#awaitWildcards(state, timer, waiting);
    });
  }

  #expire(
    state: S,
    timer: string,
    subscriptions: readonly UpstreamSubscription[],
    isExtended: boolean,
  ): void {
    const { resourceTimeoutMs } = this.#stream.options;
    // The rejected response may have been the answer, so nothing is concluded yet.
    if (state.lastNack !== undefined) {
      this.#stream.arm(timer, resourceTimeoutMs, () => this.#expire(state, timer, subscriptions, false));
      return;
    }
    const resolved: Interest[] = [];
    const removals: Removal[] = [];
    const extended: UpstreamSubscription[] = [];
    for (const subscription of subscriptions) {
      if (!state.subscriptions.has(subscription)) continue;
      const outcome = this.#strategy.onTimeout(state, subscription, isExtended);
      if (outcome === 'extend') extended.push(subscription);
      if (typeof outcome === 'string') continue;
      removals.push(...outcome);
      markResolved(state.subscriptions, subscription, resolved);
    }
    this.#conclude(state, resolved, removals);
    if (extended.length === 0) return;
    this.#stream.arm(timer, resourceTimeoutMs / extensionShare, () =>
      this.#expire(state, timer, extended, true),
    );
  }

  #resolveAfterQuiet(state: S): void {
    this.#stream.cancel(`quiet ${state.type}`);
    this.#stream.cancel(`enough ${state.type}`);
    // A part of the answer was rejected, so it is not complete.
    if (state.lastNack !== undefined) return;
    const resolved: Interest[] = [];
    for (const subscription of [...state.subscriptions.unresolved])
      if (subscription.responseSeen) markResolved(state.subscriptions, subscription, resolved);
    this.#conclude(state, resolved, state.sweepPending ? this.#sweep(state) : []);
  }

  /** Removes what the answered wildcards and globs have from earlier streams. */
  #sweep(state: S): Removal[] {
    const collections = state.subscriptions.all().filter(({ kind }) => kind !== 'name');
    const { answered = [], waiting = [] } = Object.groupBy(collections, ({ responseSeen }) =>
      responseSeen ? 'answered' : 'waiting',
    );
    state.sweepPending = waiting.length > 0;
    return answered.flatMap((subscription) => removeUnconfirmed(state, subscription, this.#stream.number));
  }

  #conclude(state: S, resolved: readonly Interest[], removals: readonly Removal[]): void {
    if (resolved.length > 0 || removals.length > 0) this.#stream.applyPart(state, { resolved, removals });
  }
}

export type StreamMachine = ProtocolLoop<DeltaState, IncomingDelta> | ProtocolLoop<SotwState, IncomingSotw>;

/** The machine of one stream. */
export function streamMachine(protocol: 'DELTA' | 'SOTW', options: MachineOptions): StreamMachine {
  const stream = new StreamContext(options);
  return protocol === 'SOTW'
    ? new ProtocolLoop(stream, new SotwStrategy(stream))
    : new ProtocolLoop(stream, new DeltaStrategy(stream));
}
