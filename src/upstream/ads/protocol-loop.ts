import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { assertNever, type Result } from '../../model/result.ts';
import type { Interest, Move, Removal, Transaction } from '../../model/transaction.ts';
import { atOnce, type InTurns } from '../../model/turns.ts';
import type { IncomingSotw } from '../../wire/response-reader.ts';
import type { ProtocolStrategy, StreamStatus } from './protocol-strategy.ts';
import { ResponseRefusals } from './response-refusals.ts';
import { Silence } from './silence.ts';
import type { Stamp } from './stamp.ts';
import { StepEffects } from './step-effects.ts';
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
  resetTypeState,
  restampAcked,
  resumeIfSuspended,
  suspendedInterests,
  suspendIdle,
} from './type-state.ts';
import { TypesInUse } from './types-in-use.ts';
import { resubscribe, resume, type UpstreamSubscription } from './upstream-subscriptions.ts';

/** Makes the strategy of one stream. */
type StrategyFactory<S extends TypeState, R extends IncomingSotw> = (
  options: StreamProtocolOptions,
  stream: StreamStatus,
  effects: StepEffects,
) => ProtocolStrategy<S, R>;

/** A response of which a part is still to be read. */
interface UnfinishedReading<S, R> {
  readonly state: S;
  readonly response: R;
  readonly turns: InTurns<Result<() => Transaction>>;
}

/**
 * One stream to a control plane, as a machine without I/O and clock: inputs in, effects out. This is the loop that SotW
 * and delta share; where they differ is a strategy (protocol §5b, and §3 and §4 seen from the client).
 */
export class ProtocolLoop<S extends TypeState, R extends IncomingSotw> implements StreamProtocol {
  readonly #options: StreamProtocolOptions;
  readonly #strategy: ProtocolStrategy<S, R>;
  readonly #stream = { number: 0, controlPlaneResponded: false };
  readonly #types = new TypesInUse<S>();
  readonly #effects = new StepEffects();
  readonly #silence: Silence<S, R>;
  readonly #refusals: ResponseRefusals<S, R>;
  #connected = false;
  #reading: UnfinishedReading<S, R> | undefined;
  #stamp: Stamp;

  constructor(options: StreamProtocolOptions, makeStrategy: StrategyFactory<S, R>) {
    this.#options = options;
    this.#stamp = options.stamp;
    this.#strategy = makeStrategy(options, this.#stream, this.#effects);
    this.#silence = new Silence(options, this.#strategy, this.#stream, this.#effects);
    this.#refusals = new ResponseRefusals(this.#strategy, this.#effects);
  }

  get isUnused(): boolean {
    return this.#types
      .values()
      .every(({ subscriptions }) => subscriptions.all().every(({ suspended }) => suspended));
  }

  /** Whether some subscription has no answer yet. */
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
    }
  }

  step(input: ProtocolInput): readonly ProtocolEffect[] {
    switch (input.kind) {
      case 'connected':
        this.#connect(input.resumed);
        break;
      case 'disconnected':
        this.#connected = false;
        this.#reading = undefined;
        this.#effects.forgetTimers();
        break;
      case 'received':
        if (this.#connected) this.#receive(input.bytes);
        break;
      case 'read_on':
        this.#readOn();
        break;
      case 'sibling_answered':
        this.#stream.controlPlaneResponded = true;
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
      case 'fired':
        this.#readToEnd(); // silence is over
        this.#effects.fire(input.timer);
        break;
      default:
        assertNever(input);
    }
    return this.#effects.take();
  }

  #connect(resumed: boolean): void {
    this.#connected = true;
    this.#stream.controlPlaneResponded = false;
    this.#stream.number++;
    this.#refusals.clear();
    this.#effects.forgetTimers();
    for (const state of this.#types.values()) this.#resetType(state, resumed);
    this.#flush();
  }

  #resetType(state: S, resumed: boolean): void {
    resetTypeState(state);
    this.#strategy.reset(state, resumed);
  }

  release(type: TypeUrl): TypeState | undefined {
    const state = this.#types.get(type);
    this.#types.delete(type);
    return state;
  }

  adopt(base: TypeState, resumed: boolean): void {
    const state = this.#strategy.createState(base);
    for (const variant of state.acked.all()) variant.confirmedOnStream = 0; // of no stream of this machine
    this.#types.set(state.type, state);
    this.#resetType(state, resumed);
  }

  #subscribe(interest: Interest): void {
    const state = this.#state(interest);
    const { subscription, created, repeated } = state.subscriptions.add(interest);
    if (created) state.toSubscribe.add(subscription);
    else if (subscription.suspended) resume(state, subscription);
    if (created) return;
    if (repeated) resubscribe(state, subscription);
    else if (subscription.resolved) this.#effects.applyPart(state, { resolved: [interest] });
  }

  #unsubscribe(interest: Interest): void {
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
      if (state.acked.size > 0) this.#effects.applyPart(state, { complete: true, unwanted: true });
      state.acked.clear();
      return;
    }
    const removals: Removal[] = [];
    for (const variant of covered(state, subscription)) {
      if (state.subscriptions.matching(variant.name, [], variant.constraints).length > 0) continue;
      state.acked.delete(variant);
      removals.push({ name: variant.name, constraints: variant.constraints });
    }
    if (removals.length > 0) this.#effects.applyPart(state, { removals, unwanted: true });
  }

  #state(interest: Interest): S {
    const { type } = interest;
    const known = this.#types.get(type);
    if (known !== undefined) return known;
    const created = this.#strategy.createState(createTypeState(interest, this.#options, this.#stamp));
    this.#types.set(type, created);
    return created;
  }

  #flush(): void {
    if (!this.#connected) return;
    for (const state of inOrder(this.#types)) {
      if (state.toSubscribe.size === 0 && state.toUnsubscribe.length === 0) continue;
      this.#sendChanges(state);
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
    if (subscribed.some(({ everSent }) => !everSent)) this.#effects.add({ kind: 'asked', type });
    for (const subscription of subscribed) {
      subscription.everSent = true;
      subscription.requestNumber = state.requestCount;
      // No response can have been on its way before the first request.
      subscription.anyResponseAnswers = state.requestCount === 1;
    }
    this.#effects.send(this.#strategy.changeSubscriptions(state, subscribed, toUnsubscribe));
    this.#silence.asked(state, subscribed);
  }

  #receive(bytes: Buffer): void {
    this.#readToEnd();
    const read = this.#strategy.read(bytes);
    const envelope = read.ok ? read.value : read.error;
    const state = this.#types.get(typeUrl(envelope.typeUrl));
    if (state === undefined || state.requestCount === 0) {
      if (!read.ok) this.#fail(read.error.reason);
      else if (envelope.typeUrl === '') this.#fail('a response without type_url');
      else this.#refusals.unsolicited(read.value);
      return;
    }
    if (!read.ok) {
      // Without a nonce there is nothing to refuse, and the framing itself may be broken.
      if (read.error.nonce === '') this.#fail(read.error.reason);
      else this.#refusals.reject(state, read.error.nonce, read.error.reason);
      return;
    }
    this.#stream.controlPlaneResponded = true;
    this.#reading = { state, response: read.value, turns: this.#strategy.judge(state, read.value) };
    this.#readOn();
  }

  #readOn(): void {
    const step = this.#reading?.turns.next();
    if (step?.done === true) this.#received(step.value);
    else if (step !== undefined) this.#effects.add({ kind: 'read_on' });
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
      this.#effects.send([this.#strategy.reply(state)]);
      return;
    }
    if (!judged.ok) {
      this.#refusals.reject(state, response.nonce, judged.error);
      return;
    }
    const said = judged.value();
    this.#effects.add({ kind: 'apply', transaction: said });
    this.#acknowledge(state, response);
    this.#silence.heard(state, said);
    this.#askAgain(state);
  }

  #askAgain(state: S): void {
    const again = this.#strategy.askAgain?.(state) ?? [];
    if (again.length === 0) return;
    for (const subscription of again) resubscribe(state, subscription);
    this.#sendChanges(state);
  }

  #acknowledge(state: S, response: R): void {
    this.#refusals.over(state);
    state.nonce = response.nonce;
    state.version = response.version;
    this.#effects.add({ kind: 'count', type: state.type, result: 'accepted' });
    this.#effects.send([this.#strategy.reply(state)]);
  }

  #fail(reason: string): void {
    this.#effects.add({ kind: 'fail', reason });
  }
}
