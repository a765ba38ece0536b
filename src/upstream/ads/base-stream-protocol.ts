import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { assertNever, type Result } from '../../model/result.ts';
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
import { unsolicitedType } from './accept-resource.ts';
import type { VariantKey } from './acked-resources.ts';
import { atOnce, type InTurns } from './reading-pace.ts';
import type { Stamp } from './stamp.ts';
import type {
  ProtocolEffect,
  ProtocolInput,
  StreamProtocol,
  StreamProtocolOptions,
  TypeState,
} from './stream-protocol.ts';
import {
  awaitsAnswer,
  covered,
  createTypeState,
  inOrder,
  isAbandoned,
  removeUnconfirmed,
  resetTypeState,
  restampAcked,
  resumeIfSuspended,
  suspendedInterests,
  suspendIdle,
} from './type-state.ts';
import { TypesInUse } from './types-in-use.ts';
import { markResolved, resubscribe, resume, type UpstreamSubscription } from './upstream-subscriptions.ts';

/**
 * Some control planes split the first answer to a wildcard. It is complete when nothing more has come for this long
 * (protocol §5b).
 */
const quietPeriodMs = 300;
const longestQuietWaitMs = 3000;
/**
 * A fifteenth of resource_timeout is added where the upstream may be a relay: 16 s instead of 15 s. The relay above
 * waits 15 s for its own control plane, and its answer must arrive first.
 */
const graceShare = 15;
/** The second rejection in a row waits so long, each further one twice as long: some servers send again at once. */
const nackDelayMs = { first: 1000, longest: 30_000 };
const reasonLimit = 2000;

/**
 * One stream to a control plane, as a machine without I/O and clock: inputs in, effects out. This is what SotW and
 * delta have in common; protocol §5b, and §3 and §4 seen from the client.
 */
export abstract class BaseStreamProtocol<S extends TypeState, R extends IncomingSotw, J>
  implements StreamProtocol
{
  protected readonly options: StreamProtocolOptions;
  /** Grows with each stream: what is held bears the mark of the stream that last confirmed it. */
  protected streamNumber = 0;
  /**
   * A response has come on this stream, or on another one of the session. From then on, silence means that a name
   * does not exist.
   */
  protected controlPlaneResponded = false;
  readonly #types = new TypesInUse<S>();
  readonly #timers = new Map<string, () => void>();
  /** Types of this stream that were sent but never asked for. */
  readonly #unsolicited = new Set<string>();
  #connected = false;
  /** A response of which a part is still to be read. */
  #reading: { readonly state: S; readonly response: R; readonly turns: InTurns<Result<J>> } | undefined;
  #effects: ProtocolEffect[] = [];
  #stamp: Stamp;

  constructor(options: StreamProtocolOptions) {
    this.options = options;
    this.#stamp = options.stamp;
  }

  protected abstract createState(base: TypeState): S;
  protected abstract read(bytes: Buffer): Result<R, UnreadableResponse>;
  /** A new stream: everything is asked anew. */
  protected abstract reset(state: S, resumed: boolean): void;
  /** Sends what `toSubscribe` and `toUnsubscribe` say. */
  protected abstract sendChanges(
    state: S,
    fresh: readonly UpstreamSubscription[],
    dropped: readonly UpstreamSubscription[],
  ): void;
  /** Judges a response, in turns; changes nothing. The error is the reason for a NACK. */
  protected abstract judge(state: S, response: R): InTurns<Result<J>>;
  /** Takes over a response that is good. */
  protected abstract commit(state: S, response: R, judged: J): Transaction;
  /** An ACK, or with `lastNack` a NACK, of `state.nonce`. */
  protected abstract reply(state: S): OutgoingRequest;
  /** Refuses a type that was never asked for; undefined where a refusal would subscribe to it. */
  protected abstract refuse(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest | undefined;
  /**
   * The variants that upstream has sent before and must send again to answer a wildcard or glob that is subscribed
   * now.
   */
  protected abstract variantsToBeResent(state: S, subscription: UpstreamSubscription): Set<VariantKey>;
  /**
   * Whether a response may answer this wildcard or glob. It may also be an update, or an answer to another
   * subscription.
   */
  protected abstract mayAnswer(state: S, subscription: UpstreamSubscription, said: Transaction): boolean;
  /** Whether silence means absence in the end (protocol §3.9). */
  protected abstract absentAfterTimeout(state: S, subscription: UpstreamSubscription): boolean;
  /** Whether to wait a little longer than resource_timeout, because nothing has arrived yet for this type. */
  protected abstract grantsGrace(state: S, subscriptions: readonly UpstreamSubscription[]): boolean;
  /**
   * The removals when a subscription was not answered until resource_timeout. Undefined: the subscription stays
   * unresolved.
   */
  protected abstract removalsAtTimeout(state: S, subscription: UpstreamSubscription): Removal[] | undefined;
  /**
   * What earlier streams delivered for a resolved subscription, and this stream has not confirmed until
   * resource_timeout.
   */
  protected unconfirmedRemovals(_state: S, _ask: UpstreamSubscription): Removal[] {
    return [];
  }
  /** Called before the resources of this subscription are dropped, because nobody subscribes to them any more. */
  protected abstract onUnsubscribed(state: S, subscription?: UpstreamSubscription): void;

  get isUnused(): boolean {
    return this.#types
      .values()
      .every(({ subscriptions }) => subscriptions.all().every(({ suspended }) => suspended));
  }

  /** Whether something was asked that has no answer yet. */
  get awaitsResponse(): boolean {
    return awaitsAnswer(this.#types.values());
  }

  suspendedInterests(): readonly Interest[] {
    return suspendedInterests(this.#types.values());
  }

  *interests(): Iterable<Interest> {
    for (const { subscriptions } of this.#types.values()) {
      for (const subscription of subscriptions.all()) yield* subscription.interests.values();
    }
  }

  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    const before = this.#stamp;
    this.#stamp = stamp ?? before;
    for (const state of this.#types.values()) {
      yield* restampAcked(state, before, stamp);
      state.rules = { ...state.rules, stamp: this.#stamp };
      this.onUnsubscribed(state);
    }
  }

  step(input: ProtocolInput): readonly ProtocolEffect[] {
    this.#effects = [];
    switch (input.kind) {
      case 'connected':
        this.#connect(input.resumed);
        break;
      case 'disconnected':
        this.#connected = false;
        this.#reading = undefined;
        this.#timers.clear();
        break;
      case 'received':
        if (this.#connected) this.#receive(input.bytes);
        break;
      case 'read_on':
        this.#readOn();
        break;
      case 'sibling_answered':
        this.controlPlaneResponded = true;
        break;
      case 'subscribe':
        this.#subscribe(input.interest);
        break;
      case 'unsubscribe':
        this.#unsubscribe(input.interest);
        break;
      case 'suspend_idle':
        for (const state of this.#types.values()) suspendIdle(state, input.isIdle);
        break;
      case 'resume':
        resumeIfSuspended(this.#types.get(input.interest.type), input.interest);
        break;
      case 'flush':
        this.#flush();
        break;
      case 'fired': {
        this.#readToEnd(); // silence is over
        const run = this.#timers.get(input.timer);
        this.#timers.delete(input.timer);
        run?.();
        break;
      }
      default:
        assertNever(input);
    }
    return this.#effects;
  }

  protected send(request: OutgoingRequest): void {
    this.#effects.push({ kind: 'send', request });
  }

  protected arm(timer: string, milliseconds: number, run: () => void): void {
    this.#timers.set(timer, run);
    this.#effects.push({ kind: 'arm', timer, milliseconds });
  }

  protected requestNewStream(reason: string): void {
    this.#effects.push({ kind: 'renew', reason });
  }

  #fail(reason: string): void {
    this.#effects.push({ kind: 'fail', reason });
  }

  #apply(applied: Transaction): void {
    this.#effects.push({ kind: 'apply', transaction: applied });
  }

  #applyPart(state: TypeState, part: Partial<Transaction>): void {
    const { holder, type, version } = state;
    this.#apply(transaction({ holder, type, version, ...part }));
  }

  #connect(resumed: boolean): void {
    this.#connected = true;
    this.controlPlaneResponded = false;
    this.streamNumber++;
    this.#unsolicited.clear();
    this.#timers.clear();
    for (const state of this.#types.values()) this.#resetType(state, resumed);
    this.#flush();
  }

  #resetType(state: S, resumed: boolean): void {
    resetTypeState(state);
    this.reset(state, resumed);
  }

  release(type: TypeUrl): TypeState | undefined {
    const state = this.#types.get(type);
    this.#types.delete(type);
    return state;
  }

  adopt(base: TypeState, resumed: boolean): void {
    const state = this.createState(base);
    for (const variant of state.acked.all()) variant.confirmedOnStream = 0; // of no stream of this machine
    this.#types.set(state.type, state);
    this.#resetType(state, resumed);
  }

  #subscribe(interest: Interest): void {
    const state = this.#state(interest);
    const { ask: subscription, created, repeated } = state.subscriptions.add(interest);
    if (created) state.toSubscribe.add(subscription);
    else if (subscription.suspended) resume(state, subscription);
    if (created) return;
    if (repeated) resubscribe(state, subscription);
    else if (subscription.resolved) this.#applyPart(state, { resolved: [interest] });
  }

  #unsubscribe(interest: Interest): void {
    const state = this.#types.get(interest.type);
    const subscription = state?.subscriptions.delete(interest);
    if (state === undefined || subscription === undefined) return;
    state.toSubscribe.delete(subscription);
    if (subscription.requestNumber > 0) state.toUnsubscribe.push(subscription);
    this.#dropUnsubscribed(state, subscription);
  }

  /** Nobody keeps it current any more, so the store must not have it from here. */
  #dropUnsubscribed(state: S, subscription: UpstreamSubscription): void {
    this.onUnsubscribed(state, subscription);
    if (state.subscriptions.size === 0) {
      if (state.acked.size > 0) this.#applyPart(state, { complete: true, unwanted: true });
      state.acked.clear();
      return;
    }
    const removals: Removal[] = [];
    for (const variant of covered(state, subscription)) {
      if (state.subscriptions.matching(variant.name, [], variant.constraints).length > 0) continue;
      state.acked.delete(variant);
      removals.push({ name: variant.name, constraints: variant.constraints });
    }
    if (removals.length > 0) this.#applyPart(state, { removals, unwanted: true });
  }

  #state(interest: Interest): S {
    const { type } = interest;
    const known = this.#types.get(type);
    if (known !== undefined) return known;
    const created = this.createState(createTypeState(interest, this.options, this.#stamp));
    this.#types.set(type, created);
    return created;
  }

  #flush(): void {
    if (!this.#connected) return;
    for (const state of inOrder(this.#types)) {
      if (state.toSubscribe.size === 0 && state.toUnsubscribe.length === 0) continue;
      const fresh = [...state.toSubscribe];
      const dropped = state.toUnsubscribe;
      state.toSubscribe.clear();
      state.toUnsubscribe = [];
      const request = ++state.requestCount;
      if (fresh.some(({ everSent }) => !everSent)) this.#effects.push({ kind: 'asked', type: state.type });
      for (const subscription of fresh) {
        subscription.everSent = true;
        subscription.requestNumber = request;
        if (request > 1 && subscription.kind !== 'name')
          subscription.expectedVariants = this.variantsToBeResent(state, subscription);
      }
      this.sendChanges(state, fresh, dropped);
      const wildcards = fresh.filter(
        (subscription) => !subscription.resolvedOnThisStream && subscription.kind === 'wildcard',
      );
      if (wildcards.length > 0) this.#awaitWildcards(state, `overdue ${request} ${state.type}`, wildcards);
      const expiring = fresh.filter(
        (subscription) => !subscription.resolvedOnThisStream && this.absentAfterTimeout(state, subscription),
      );
      if (expiring.length > 0) this.#awaitExpiry(state, `expire ${request} ${state.type}`, expiring);
    }
    // What comes of them on this stream from now on was never asked for.
    this.#types.dropUnused(isAbandoned);
  }

  #awaitWildcards(state: S, timer: string, subscriptions: readonly UpstreamSubscription[]): void {
    this.arm(timer, this.options.resourceTimeoutMs, () => {
      const waiting = subscriptions.filter(
        (subscription) => !subscription.resolvedOnThisStream && state.subscriptions.has(subscription),
      );
      if (waiting.length === 0) return;
      // The wildcard was subscribed later than other things on this stream, so its answer cannot be recognised. On a
      // new stream it is in the first request, and the first response answers it.
      const later = state.nonce !== '' && waiting.some((subscription) => subscription.requestNumber > 1);
      const reason = `no answer to the wildcard of ${state.type} within ${this.options.resourceTimeoutMs / 1000} s`;
      if (later) return this.requestNewStream(reason);
      this.#effects.push({ kind: 'overdue' });
      this.#awaitWildcards(state, timer, waiting);
    });
  }

  #awaitExpiry(state: S, timer: string, subscriptions: readonly UpstreamSubscription[], again = false): void {
    const { resourceTimeoutMs } = this.options;
    this.arm(timer, again ? resourceTimeoutMs / graceShare : resourceTimeoutMs, () => {
      // The rejected response may have been the answer, so nothing is concluded yet.
      if (state.lastNack !== undefined) this.#awaitExpiry(state, timer, subscriptions);
      else if (again || !this.grantsGrace(state, subscriptions)) this.#expire(state, subscriptions);
      else this.#awaitExpiry(state, timer, subscriptions, true);
    });
  }

  #expire(state: S, subscriptions: readonly UpstreamSubscription[]): void {
    const resolved: Interest[] = [];
    const removals: Removal[] = [];
    for (const subscription of subscriptions) {
      if (!state.subscriptions.has(subscription)) continue;
      if (subscription.resolvedOnThisStream) {
        removals.push(...this.unconfirmedRemovals(state, subscription));
        continue;
      }
      const gone = this.removalsAtTimeout(state, subscription);
      if (gone === undefined) continue;
      removals.push(...gone);
      markResolved(state.subscriptions, subscription, resolved);
    }
    if (resolved.length > 0 || removals.length > 0) this.#applyPart(state, { resolved, removals });
  }

  #receive(bytes: Buffer): void {
    this.#readToEnd();
    const read = this.read(bytes);
    const envelope = read.ok ? read.value : read.error;
    const state = this.#types.get(typeUrl(envelope.typeUrl));
    if (state === undefined || state.requestCount === 0) {
      if (!read.ok) this.#fail(read.error.reason);
      else if (envelope.typeUrl === '') this.#fail('a response without type_url');
      else this.#rejectUnsolicited(read.value);
      return;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse: the stream may as well be out of step.
      if (read.error.nonce === '') this.#fail(read.error.reason);
      else this.#reject(state, read.error.nonce, read.error.reason);
      return;
    }
    this.controlPlaneResponded = true;
    this.#reading = { state, response: read.value, turns: this.judge(state, read.value) };
    this.#readOn();
  }

  #readOn(): void {
    const step = this.#reading?.turns.next();
    if (step?.done === true) this.#received(step.value);
    else if (step !== undefined) this.#effects.push({ kind: 'read_on' });
  }

  #readToEnd(): void {
    if (this.#reading !== undefined) this.#received(atOnce(this.#reading.turns));
  }

  #received(judged: Result<J>): void {
    if (this.#reading === undefined) return;
    const { state, response } = this.#reading;
    this.#reading = undefined;
    if (this.#types.get(state.type) !== state) return; // asked on another stream meanwhile
    if (state.subscriptions.size === 0) {
      // An answer that was in flight when its last subscription ended.
      state.nonce = response.nonce;
      this.send(this.reply(state));
      return;
    }
    if (!judged.ok) {
      this.#reject(state, response.nonce, judged.error);
      return;
    }
    const said = this.commit(state, response, judged.value);
    this.#apply(said);
    this.#acknowledge(state, response);
    if (state.holder.exactParameters !== undefined) this.#resolveWildcards(state, said);
    this.#awaitQuiet(state, said);
  }

  #acknowledge(state: S, response: R): void {
    const { type } = state;
    if (state.lastNack !== undefined) {
      this.#cancel(`nack ${type}`);
      this.#effects.push({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    state.nonce = response.nonce;
    state.version = response.version;
    state.lastNack = undefined;
    state.nacksInARow = 0;
    this.#effects.push({ kind: 'count', type, result: 'accepted' });
    this.send(this.reply(state));
  }

  #reject(state: S, nonce: string, reason: string): void {
    const { type } = state;
    const message = reason.slice(0, reasonLimit);
    if (state.lastNack?.message !== message) {
      this.#effects.push({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    }
    state.nonce = nonce;
    state.lastNack = { code: Code.INVALID_ARGUMENT, message };
    state.nacksInARow++;
    this.#effects.push({ kind: 'count', type, result: 'rejected' });
    if (state.nacksInARow === 1) {
      this.send(this.reply(state));
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (state.nacksInARow - 2), nackDelayMs.longest);
    this.arm(`nack ${type}`, delay, () => this.send(this.reply(state)));
  }

  #rejectUnsolicited(response: R): void {
    const { type, known, message } = unsolicitedType(response.typeUrl);
    this.#effects.push({ kind: 'count', type: known, result: 'rejected' });
    if (this.#unsolicited.has(known) || this.#unsolicited.size >= 100) return;
    this.#unsolicited.add(known);
    this.#effects.push({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type: known });
    const refusal = this.refuse(type, response.nonce, { code: Code.INVALID_ARGUMENT, message });
    if (refusal !== undefined) this.send(refusal);
  }

  #resolveWildcards(state: S, said: Transaction): void {
    const resolved: Interest[] = [];
    for (const subscription of [...state.subscriptions.unresolved]) {
      if (
        subscription.kind === 'wildcard' &&
        subscription.requestNumber > 0 &&
        this.mayAnswer(state, subscription, said)
      ) {
        markResolved(state.subscriptions, subscription, resolved);
      }
    }
    if (resolved.length > 0) this.#applyPart(state, { resolved });
  }

  #awaitQuiet(state: S, said: Transaction): void {
    let due = state.sweepPending;
    for (const subscription of state.sweepPending
      ? state.subscriptions.all()
      : state.subscriptions.unresolved) {
      if (subscription.kind === 'name' || subscription.requestNumber === 0) continue;
      if (!subscription.responseSeen && !this.mayAnswer(state, subscription, said)) continue;
      subscription.responseSeen = true;
      due = true;
    }
    if (!due) return;
    const { type } = state;
    this.arm(`quiet ${type}`, quietPeriodMs, () => this.#resolveAfterQuiet(state));
    // A busy control plane is never quiet.
    if (!this.#timers.has(`enough ${type}`)) {
      this.arm(`enough ${type}`, longestQuietWaitMs, () => this.#resolveAfterQuiet(state));
    }
  }

  #resolveAfterQuiet(state: S): void {
    this.#cancel(`quiet ${state.type}`);
    this.#cancel(`enough ${state.type}`);
    // A part of the answer was refused: it is not known yet.
    if (state.lastNack !== undefined) return;
    const resolved: Interest[] = [];
    for (const subscription of [...state.subscriptions.unresolved])
      if (subscription.responseSeen) markResolved(state.subscriptions, subscription, resolved);
    const removals: Removal[] = [];
    if (state.sweepPending) {
      state.sweepPending = false;
      for (const subscription of state.subscriptions.all()) {
        if (subscription.kind === 'name') continue;
        if (!subscription.responseSeen) {
          state.sweepPending = true; // its own answer is still to come
          continue;
        }
        removals.push(...this.removeUnconfirmed(state, subscription));
      }
    }
    if (resolved.length > 0 || removals.length > 0) this.#applyPart(state, { resolved, removals });
  }

  /** Removes what an ask covers and this stream has not confirmed. */
  protected removeUnconfirmed(state: S, subscription: UpstreamSubscription): Removal[] {
    return removeUnconfirmed(state, subscription, this.streamNumber, this.options.locators);
  }

  #cancel(timer: string): void {
    if (this.#timers.delete(timer)) this.#effects.push({ kind: 'cancel', timer });
  }
}
