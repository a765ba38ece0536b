import type { TypeUrl } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { atOnce, type InTurns } from '../../model/turns.ts';
import { isGlob } from '../../model/xdstp.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import {
  type IncomingDelta,
  readDeltaResource,
  readDeltaResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import type { Identity } from './accept-resource.ts';
import { type AckedVariant, variantKey } from './acked-resources.ts';
import {
  deltaAnswers,
  emptied,
  inDoubt,
  isFor,
  namesAnswered,
  ofOldestRequest,
  shows,
} from './answer-attribution.ts';
import { type DeltaReading, isEmpty, notFound, readDelta } from './delta-reading.ts';
import { deltaRequest, deltaRequests, isPlainWildcard, noVersions } from './delta-requests.ts';
import {
  type DeltaState,
  isRepeated,
  markReceived,
  noteRepeated,
  removeGoneMeanwhile,
  removeUnconfirmedOfName,
  resumable,
  trustNames,
} from './delta-state.ts';
import type { ProtocolStrategy, StreamStatus, TimeoutOutcome } from './protocol-strategy.ts';
import { ResponseParts } from './response-parts.ts';
import type { StepEffects } from './step-effects.ts';
import type { StreamProtocolOptions, TypeState } from './stream-protocol.ts';
import { covered, removeUnconfirmed } from './type-state.ts';
import { UnansweredUnsubscribed } from './unanswered-unsubscribed.ts';
import { markResolved, type UpstreamSubscription, unansweredInterests } from './upstream-subscriptions.ts';

interface TakenResources {
  readonly puts: Put[];
  readonly heartbeats: Heartbeat[];
  /** The subscriptions to names that got a resource. */
  readonly answered: UpstreamSubscription[];
}

/** An incremental stream (protocol §4 from the client's side). */
export class DeltaStrategy implements ProtocolStrategy<DeltaState, IncomingDelta> {
  readonly #options: StreamProtocolOptions;
  readonly #stream: StreamStatus;
  readonly #effects: StepEffects;

  constructor(options: StreamProtocolOptions, stream: StreamStatus, effects: StepEffects) {
    this.#options = options;
    this.#stream = stream;
    this.#effects = effects;
  }

  createState(base: TypeState): DeltaState {
    return {
      ...base,
      initialVersions: noVersions,
      resendable: new Map(),
      awaitingResend: new Set(),
      unsubscribeInFlight: false,
      unansweredUnsubscribed: new UnansweredUnsubscribed(),
      justAnswered: new Set(),
      repeated: new Set(),
      isEmpty: false,
    };
  }

  read(bytes: Buffer): Result<IncomingDelta, UnreadableResponse> {
    return readDeltaResponse(bytes);
  }

  /** Unchanged resources in initial_resource_versions need no answer. The others are swept, or they expire. */
  reset(state: DeltaState, resumed: boolean): void {
    const confirmed = resumed ? resumable(state, this.#options.locators) : [];
    state.initialVersions = new Map(confirmed.map((variant) => [variant.name, variant.version]));
    for (const variant of confirmed) variant.confirmedOnStream = this.#stream.number;
    state.sweepPending = confirmed.length < state.acked.size;
    state.resendable.clear();
    state.awaitingResend.clear();
    state.unsubscribeInFlight = false;
    state.unansweredUnsubscribed.clear();
    if (!resumed) return;
    for (const subscription of state.subscriptions.all()) {
      if (!subscription.resolved) continue;
      if (subscription.kind === 'name')
        subscription.resolvedOnThisStream = state.acked
          .of(subscription.selector)
          .some(({ confirmedOnStream }) => confirmedOnStream === this.#stream.number);
      else subscription.resolvedOnThisStream = !state.sweepPending;
    }
  }

  changeSubscriptions(
    state: DeltaState,
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[] {
    const { type, initialVersions, requestCount } = state;
    state.initialVersions = noVersions;
    if (requestCount > 1) for (const subscription of subscribed) this.#expectResent(state, subscription);
    const again = new Set(subscribed.map((subscription) => subscription.selector));
    const together = !unsubscribed.some((subscription) => again.has(subscription.selector));
    const only = subscribed.length === 1 && requestCount === 1 ? subscribed[0] : undefined;
    const legacy = only !== undefined && isPlainWildcard(only) && state.info.legacyWildcard;
    // Every control plane knows the wildcard as an empty first request; not all know "*".
    const named = legacy ? [] : subscribed;
    if (together) return deltaRequests(type, named, unsubscribed, initialVersions);
    // Servers apply subscribes before unsubscribes (§4.4): one message would unsubscribe what is subscribed again.
    return [
      ...deltaRequests(type, [], unsubscribed, noVersions),
      ...deltaRequests(type, named, [], initialVersions),
    ];
  }

  reply(state: DeltaState): OutgoingRequest {
    return deltaRequest(state.type, { nonce: state.nonce, error: state.lastNack });
  }

  /**
   * An empty first request would subscribe to the whole type. Subscribing and unsubscribing "*" in one request
   * subscribes to nothing (§10.5).
   */
  refusal(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest {
    return deltaRequest(type, { nonce, error, subscribe: ['*'], unsubscribe: ['*'] });
  }

  /** A subscribe is answered with everything, also with what was sent before (protocol §4.2). */
  #expectResent(state: DeltaState, subscription: UpstreamSubscription): void {
    if (subscription.kind === 'name') return;
    const sent = [...covered(state, subscription), ...state.resendable.values()];
    subscription.expectedNames = new Set(
      sent.filter((variant) => shows(subscription, variant, this.#options.locators)).map(({ name }) => name),
    );
    if (subscription.expectedNames.size > 0) state.awaitingResend.add(subscription);
  }

  answeredBy(
    state: DeltaState,
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    const { locators } = this.#options;
    const answered = deltaAnswers({ ...state, number: this.#stream.number, locators }, said, candidates);
    state.repeated.clear();
    const doubtful = inDoubt(said, candidates, answered, locators);
    const waits = (one: UpstreamSubscription): boolean => !one.responseSeen && state.subscriptions.has(one);
    // Each request by itself: that an earlier one is answered in time says nothing of a later one.
    for (const [request, asked] of Map.groupBy(doubtful, ({ requestNumber }) => requestNumber))
      this.#effects.renewIfDoubtful(state.type, `${request} ${state.type}`, () => asked.some(waits));
    return answered;
  }

  absentAfterTimeout(_: DeltaState, subscription: UpstreamSubscription): boolean {
    return subscription.kind !== 'wildcard';
  }

  onTimeout(state: DeltaState, subscription: UpstreamSubscription): TimeoutOutcome {
    if (subscription.resolvedOnThisStream) return this.#removeUnconfirmedOfName(state, subscription);
    const isStale = covered(state, subscription).some(
      (variant) => variant.confirmedOnStream !== this.#stream.number,
    );
    // A control plane that is silent altogether says nothing about what is held from an earlier stream.
    if (isStale && !this.#stream.controlPlaneResponded) return 'unknown';
    return removeUnconfirmed(state, subscription, this.#stream.number, this.#options.locators);
  }

  /**
   * After resource_timeout nothing is on its way any more. Later responses must not use this state: upstream may have
   * deleted the resources, and does not send removals of what is not subscribed.
   */
  onUnsubscribed(state: DeltaState, subscription: UpstreamSubscription): void {
    if (subscription.requestNumber === 0) return;
    state.awaitingResend.delete(subscription);
    state.unsubscribeInFlight = true;
    if (this.#options.locators && !subscription.resolvedOnThisStream)
      state.unansweredUnsubscribed.add(subscription);
    for (const variant of subscription.kind === 'name' ? [] : covered(state, subscription)) {
      if (
        variant.confirmedOnStream === this.#stream.number &&
        shows(subscription, variant, this.#options.locators)
      )
        state.resendable.set(variantKey(variant), variant);
    }
    this.#effects.arm(`leaving ${state.type}`, this.#options.resourceTimeoutMs, () => {
      state.unsubscribeInFlight = false;
      state.resendable.clear();
      state.unansweredUnsubscribed.clear();
    });
  }

  *judge(state: DeltaState, response: IncomingDelta): InTurns<Result<() => Transaction>> {
    const { rules } = state;
    const parts = (): ResponseParts =>
      new ResponseParts({
        rules: state.rules,
        readResource: readDeltaResource,
        entriesPerTurn: this.#options.entriesPerTurn,
        hashed: this.#options.locators,
      });
    const first = yield* readDelta(parts(), response);
    // Another stamp came in between.
    const reading = rules === state.rules ? first : atOnce(readDelta(parts(), response));
    return reading.ok ? ok(() => this.#commit(state, response, reading.value)) : reading;
  }

  #commit(state: DeltaState, response: IncomingDelta, reading: DeltaReading): Transaction {
    const { subscriptions, acked, holder, type } = state;
    const { resourceErrors } = reading;
    state.isEmpty = isEmpty(reading);
    const removals: Removal[] = [];
    const resolved: Interest[] = [];
    noteRepeated(state, reading.puts, this.#stream.number);
    const { puts, heartbeats, answered } = this.#takeResources(state, reading.puts, resolved);
    for (const identity of reading.removedVariants) {
      markReceived(state, identity);
      const known = acked.get(identity.name, identity.constraints.key);
      if (isGlob(identity.name)) this.#empty(state, identity, removals, resolved);
      else if (known === undefined) this.#resolveMissing(state, identity, removals, resolved);
      else this.#remove(state, known, removals, resolved);
    }
    for (const identity of reading.removed) this.#removeName(state, identity, removals, resolved);
    for (const error of notFound(reading)) this.#removeName(state, error, removals, resolved);
    // It has another variant than the one from an earlier stream: in one transaction, as a swap.
    for (const subscription of answered) removals.push(...this.#removeUnconfirmedOfName(state, subscription));
    const unanswered = unansweredInterests(subscriptions, [...removals, ...resourceErrors]);
    return transaction({
      holder,
      type,
      version: response.version,
      puts,
      removals,
      heartbeats,
      resourceErrors,
      resolved,
      unanswered,
    });
  }

  #takeResources(state: DeltaState, all: readonly Put[], resolved: Interest[]): TakenResources {
    const { subscriptions, acked } = state;
    const taken: TakenResources = { puts: [], heartbeats: [], answered: [] };
    state.justAnswered.clear();
    for (const put of all) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      state.unansweredUnsubscribed.received(name, constraints);
      if (!this.#isSubscribed(state, put)) continue;
      const known = acked.get(name, constraints.key);
      const repeated = isRepeated(state, put, this.#stream.number);
      if (put.any === undefined && ttlMilliseconds !== undefined) {
        if (known === undefined) continue;
        known.confirmedOnStream = this.#stream.number;
        taken.heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        taken.puts.push(put);
        const viaAlias = subscriptions.matching(name, [], constraints).length === 0;
        const { version, payload } = put;
        const confirmedOnStream = this.#stream.number;
        acked.put({ name, constraints, version, hash: payload?.hash, confirmedOnStream, viaAlias });
      }
      markReceived(state, put);
      const matching = subscriptions.matching(name, aliases, constraints);
      for (const subscription of namesAnswered(matching, repeated)) {
        taken.answered.push(subscription);
        if (!subscription.resolvedOnThisStream) state.justAnswered.add(subscription);
        markResolved(subscriptions, subscription, resolved);
      }
      if (matching.length > 1) this.#awaitOwnAnswers(state, matching);
    }
    return taken;
  }

  /** False: it was on its way when its subscription ended, and upstream would not send its removal. */
  #isSubscribed(
    { subscriptions, unsubscribeInFlight }: DeltaState,
    { name, aliases, constraints }: Put,
  ): boolean {
    if (!unsubscribeInFlight || !this.#options.locators) return subscriptions.includes(name, aliases);
    return subscriptions.matching(name, aliases, constraints).length > 0;
  }

  #removeName(state: DeltaState, identity: Identity, removals: Removal[], resolved: Interest[]): void {
    const { name, constraints } = identity;
    markReceived(state, identity);
    if (isGlob(name)) {
      this.#empty(state, identity, removals, resolved);
      return;
    }
    const exact = state.acked.get(name, constraints.key);
    // A server without locators for the name may mean any variant: it has no other way to say so.
    const meant = exact === undefined && !state.subscriptions.hasLocatorFor(name) ? state.acked.of(name) : [];
    const removed = exact === undefined ? meant : [exact];
    for (const variant of removed) this.#remove(state, variant, removals, resolved);
    if (removed.length === 0) this.#resolveMissing(state, identity, removals, resolved);
  }

  /**
   * The URL of a collection that is empty (protocol §6). Several locators may name it: then nothing is removed, since
   * members that are deleted are named, and those that it is for are resolved when no more follows.
   */
  #empty(
    state: DeltaState,
    { name, constraints }: Identity,
    removals: Removal[],
    resolved: Interest[],
  ): void {
    const { subscriptions, unansweredUnsubscribed } = state;
    const { locators } = this.#options;
    const named = [...subscriptions.named(name), ...unansweredUnsubscribed.of(name)].filter((one) =>
      isFor(one, constraints, locators),
    );
    for (const one of emptied(named)) {
      if (unansweredUnsubscribed.delete(one)) continue;
      one.responseSeen = true;
      if (named.length > 1) continue;
      for (const variant of covered(state, one).filter((each) => shows(one, each, locators)))
        this.#remove(state, variant, removals, resolved);
      markResolved(subscriptions, one, resolved);
    }
  }

  #remove(state: DeltaState, variant: AckedVariant, removals: Removal[], resolved: Interest[]): void {
    state.acked.delete(variant);
    markReceived(state, variant);
    removals.push({ name: variant.name, constraints: variant.constraints });
    for (const subscription of state.subscriptions.matching(variant.name, [], variant.constraints)) {
      // A subscription that is newer than this response may still get another variant.
      if (subscription.kind === 'name' && (subscription.resolved || subscription.anyResponseAnswers))
        markResolved(state.subscriptions, subscription, resolved);
    }
  }

  /**
   * The response removes a name that was never delivered. If several locators name it, the response does not say for
   * which parameters (protocol §5), unless it has constraints. Servers answer in order, so it is for the locators of
   * the oldest unanswered request. If that is only one, what it has from an earlier stream is removed.
   */
  #resolveMissing(
    state: DeltaState,
    { name, constraints }: Identity,
    removals: Removal[],
    resolved: Interest[],
  ): void {
    const unanswered = state.unansweredUnsubscribed
      .of(name)
      .filter((subscription) => isFor(subscription, constraints, this.#options.locators));
    const named = [...state.subscriptions.naming(name, constraints), ...unanswered];
    const meant = ofOldestRequest(named, state.justAnswered);
    if (meant.length === 0) removals.push(...removeGoneMeanwhile(state, { name, constraints }));
    for (const subscription of meant)
      if (!state.unansweredUnsubscribed.delete(subscription))
        markResolved(state.subscriptions, subscription, resolved);
    const [only] = meant;
    if (only !== undefined && meant.length === 1 && state.subscriptions.has(only))
      removals.push(...this.#removeUnconfirmedOfName(state, only));
  }

  #removeUnconfirmedOfName(state: DeltaState, subscription: UpstreamSubscription): Removal[] {
    return removeUnconfirmedOfName(state, subscription, this.#stream.number, this.#options.locators);
  }

  /** They may have answers of their own (see `namesAnswered`), or the server has sent one for several requests. */
  #awaitOwnAnswers(state: DeltaState, matching: readonly UpstreamSubscription[]): void {
    for (const { kind, resolvedOnThisStream, requestNumber } of matching) {
      if (kind === 'name' && !resolvedOnThisStream && requestNumber > 0)
        this.#effects.stopDoubting(`${requestNumber} ${state.type}`, () => trustNames(state, requestNumber));
    }
  }
}
