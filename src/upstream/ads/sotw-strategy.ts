import type { ResourceName } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type ResourceError,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { atOnce, type InTurns } from '../../model/turns.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import {
  type IncomingSotw,
  readSotwResource,
  readSotwResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import { isUnknownName } from '../../wire/unknown-names.ts';
import type { Identity } from './accept-resource.ts';
import { SeenVariants } from './acked-resources.ts';
import { isCompleteFor, lastRequestSeen, sotwAnswers } from './answer-attribution.ts';
import type { ProtocolStrategy, StreamStatus, TimeoutOutcome } from './protocol-strategy.ts';
import { ResponseParts } from './response-parts.ts';
import { readSotw, type SotwExpectation, type SotwReading } from './sotw-reading.ts';
import { sotwRequest, sotwRequests } from './sotw-requests.ts';
import { isFull, type SotwState } from './sotw-state.ts';
import type { StepEffects } from './step-effects.ts';
import type { StreamProtocolOptions, TypeState } from './stream-protocol.ts';
import { SubscribedAgain } from './subscribed-again.ts';
import { covered } from './type-state.ts';
import {
  markResolved,
  type UpstreamSubscription,
  unansweredInterests,
  waitingCollections,
} from './upstream-subscriptions.ts';

/**
 * A state-of-the-world stream (protocol §3 from the client's side). SotW does not say which request a response answers:
 *
 *     → names [a]   → names [a, b]   ← {a}, an answer to the first request: b is unknown, not absent
 *
 * Every response has seen the type's first request on the stream, so what is missing of that request is absent. A name
 * that was added later is absent if it came before and is missing now, or after resource_timeout.
 */
export class SotwStrategy implements ProtocolStrategy<SotwState, IncomingSotw> {
  readonly #options: StreamProtocolOptions;
  readonly #stream: StreamStatus;
  readonly #effects: StepEffects;

  constructor(options: StreamProtocolOptions, stream: StreamStatus, effects: StepEffects) {
    this.#options = options;
    this.#stream = stream;
    this.#effects = effects;
  }

  createState(base: TypeState): SotwState {
    const unheard = { lastRequestSeen: 0, attributionAmbiguous: false };
    return {
      ...base,
      ...unheard,
      previous: undefined,
      storeSwept: false,
      hasNamed: false,
      names: [],
      locators: [],
      subscribedAgain: new SubscribedAgain(),
      unknownAbove: none,
    };
  }

  read(bytes: Buffer): Result<IncomingSotw, UnreadableResponse> {
    return readSotwResponse(bytes);
  }

  reset(state: SotwState): void {
    state.hasNamed = false;
    state.names = [];
    state.locators = [];
    state.subscribedAgain.clear();
    state.lastRequestSeen = 0;
    state.attributionAmbiguous = false;
    // Control planes count from 1 again when they restart, and are silent about a version that they think is known:
    // without one everything comes, and is compared (protocol §3.10).
    state.unknownAbove = none;
    state.version = '';
  }

  changeSubscriptions(
    state: SotwState,
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[] {
    if (!isFull(state) && state.requestCount > 1) state.subscribedAgain.subscribe(subscribed, unsubscribed);
    return sotwRequests(state, subscribed, unsubscribed);
  }

  reply(state: SotwState): OutgoingRequest {
    return sotwRequest(state);
  }

  /** An empty request for a new type would subscribe to all of it. */
  refusal(): undefined {
    return undefined;
  }

  answeredBy(
    state: SotwState,
    _: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    return sotwAnswers(state.lastRequestSeen, this.#options.locators, candidates);
  }

  absentAfterTimeout(state: SotwState, subscription: UpstreamSubscription): boolean {
    return state.info.fullState && subscription.kind !== 'wildcard';
  }

  onTimeout(state: SotwState, subscription: UpstreamSubscription, extended: boolean): TimeoutOutcome {
    if (subscription.resolvedOnThisStream) return [];
    const isUnknownAbove = state.unknownAbove.has(subscription.selector);
    // A relay above may say nothing before something is known to it. Its own timeout comes a little later.
    const extend = !extended && (state.nonce === '' || isUnknownAbove);
    // An earlier stream delivered it, and this one has not removed it.
    const isAcked = covered(state, subscription).some(
      ({ constraints }) => !this.#options.locators || constraints.matches(subscription.parameters),
    );
    if (!extend && !isAcked && !isUnknownAbove) return [];
    subscription.anyResponseAnswers = true;
    return extend ? 'extend' : 'unknown';
  }

  onUnsubscribed(state: SotwState, subscription: UpstreamSubscription): void {
    state.previous = undefined;
    if (subscription.requestNumber === 0) return;
    state.attributionAmbiguous = true;
    if (isFull(state) || subscription.kind !== 'name') return;
    state.subscribedAgain.leave(subscription);
    this.#effects.arm(`leaving ${state.type}`, this.#options.resourceTimeoutMs, () =>
      state.subscribedAgain.forgetLeft(),
    );
  }

  askAgain({ subscribedAgain, subscriptions }: SotwState): readonly UpstreamSubscription[] {
    return subscribedAgain.unanswered(subscriptions);
  }

  *judge(state: SotwState, response: IncomingSotw): InTurns<Result<() => Transaction>> {
    const { rules, previous } = state;
    const first = yield* readSotw(this.#expectation(state), response);
    // Another stamp came in between, or something was unsubscribed.
    const isStale = rules !== state.rules || previous !== state.previous;
    const reading = isStale ? atOnce(readSotw(this.#expectation(state), response)) : first;
    return reading.ok ? ok(() => this.#commit(state, response, reading.value)) : reading;
  }

  #expectation(state: SotwState): SotwExpectation {
    const { rules, acked, storeSwept } = state;
    const { entriesPerTurn } = this.#options;
    const fullState = isFull(state);
    const previous = state.previous?.rules === rules ? state.previous : undefined;
    // Where upstream cannot delete, the last received match wins, so all variants count as received (protocol §5). As
    // long as the store may have more than this stream delivered, it gets the whole response.
    const comparable = fullState ? storeSwept : previous?.constrained === false;
    const parts = new ResponseParts({ rules, readResource: readSotwResource, entriesPerTurn, hashed: false });
    return { parts, acked, fullState, previous: comparable ? previous : undefined };
  }

  #commit(state: SotwState, response: IncomingSotw, reading: SotwReading): Transaction {
    const { subscriptions, acked, holder, type, rules } = state;
    const { identities, missing } = reading;
    const resourceErrors = reading.resourceErrors.filter((error) => !isUnknownName(error));
    state.unknownAbove = unknownIn(reading);
    const { version, resources } = response;
    const fullState = isFull(state);
    const resolved: Interest[] = [];
    const { puts, heartbeats, isRepeatable } = this.#takeResources(state, response, reading, resolved);
    this.#attribute(state, puts);
    if (fullState) this.#resolvePresent(state, missing, resolved);
    const namesWithErrors = this.#resolveErrors(state, resourceErrors, resolved);
    if (fullState) this.#resolveMissing(state, namesWithErrors, resolved);
    const removals = missing
      .filter((identity) => !this.#mayStillExist(state, identity, namesWithErrors))
      .map(({ name, constraints }): Removal => ({ name, constraints }));
    for (const { name, constraints } of removals) {
      const removed = acked.get(name, constraints.key);
      if (removed !== undefined) acked.delete(removed);
    }
    const allRemoved = removals.length === missing.length;
    // Before the first full state, the store may hold resources that this session does not know: those restored from
    // disk.
    const mayComplete = fullState && !state.storeSwept && allRemoved && namesWithErrors.size === 0;
    const complete =
      mayComplete && isCompleteFor(subscriptions, state.lastRequestSeen, this.#options.locators);
    if (complete) state.storeSwept = true;
    const constrained = identities.some((identity) => identity.constraints.key !== '');
    state.previous = isRepeatable && allRemoved ? { resources, identities, constrained, rules } : undefined;
    return transaction({
      holder,
      type,
      version,
      puts,
      removals,
      heartbeats,
      resourceErrors,
      complete,
      resolved,
      unanswered: unansweredInterests(subscriptions, [...removals, ...resourceErrors]),
      cannotDelete: !fullState,
    });
  }

  /** `isRepeatable`: the same resources again would say nothing new. */
  #takeResources(
    { subscriptions, acked, subscribedAgain }: SotwState,
    response: IncomingSotw,
    reading: SotwReading,
    resolved: Interest[],
  ): {
    readonly puts: readonly Put[];
    readonly heartbeats: readonly Heartbeat[];
    readonly isRepeatable: boolean;
  } {
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    let isRepeatable = true;
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      if (ttlMilliseconds !== undefined) isRepeatable = false; // each response starts it anew
      if (!subscriptions.includes(name, aliases)) {
        isRepeatable = false; // nobody subscribes to it, or not any more
      } else if (put.any === undefined && ttlMilliseconds !== undefined) {
        if (acked.get(name, constraints.key) !== undefined)
          heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        const version = put.version === '' ? response.version : put.version;
        puts.push({ ...put, version });
        const confirmedOnStream = this.#stream.number;
        acked.put({ name, constraints, version, hash: undefined, confirmedOnStream, viaAlias: false });
      }
      for (const subscription of subscriptions.matching(name, aliases, constraints)) {
        if (subscription.kind !== 'name') continue;
        markResolved(subscriptions, subscription, resolved);
        subscribedAgain.received(subscription);
      }
    }
    return { puts, heartbeats, isRepeatable };
  }

  /**
   * A response can arrive after a second wildcard was subscribed and still answer only the first: → names [*], →
   * names [*, xdstp://a/*], ← response to the first request. Names missing from it say nothing about the second.
   */
  #attribute(state: SotwState, puts: readonly Put[]): void {
    const { subscriptions } = state;
    if (state.requestCount < 2 || !subscriptions.hasCollection) return;
    if (!state.attributionAmbiguous)
      state.lastRequestSeen = Math.max(state.lastRequestSeen, lastRequestSeen(subscriptions, puts));
    this.#effects.renewIfDoubtful(state.type, state.type, () => {
      const asked = waitingCollections(state.subscriptions.unresolved);
      return sotwAnswers(state.lastRequestSeen, this.#options.locators, asked).size < asked.length;
    });
  }

  /** A name that is present is resolved, even if nothing changed: if it is missing later, it is absent. */
  #resolvePresent(
    { subscriptions, acked }: SotwState,
    missing: readonly Identity[],
    resolved: Interest[],
  ): void {
    const lacking = new SeenVariants();
    for (const { name, constraints } of missing) lacking.add(name, constraints.key);
    for (const subscription of [...subscriptions.unresolved]) {
      if (subscription.kind !== 'name' || subscription.requestNumber === 0) continue;
      const present = acked
        .of(subscription.selector)
        .some(
          ({ name, constraints }) =>
            !lacking.has(name, constraints.key) &&
            (!this.#options.locators || constraints.matches(subscription.parameters)),
        );
      if (present) markResolved(subscriptions, subscription, resolved);
    }
  }

  /**
   * The names that have an error. That they are missing is no deletion: only NOT_FOUND in delta removes what is
   * cached (§8). Nor is it if a relay above does not know them yet.
   */
  #resolveErrors(
    state: SotwState,
    resourceErrors: readonly ResourceError[],
    resolved: Interest[],
  ): ReadonlySet<ResourceName> {
    const namesWithErrors = new Set(state.unknownAbove);
    for (const { name, constraints, code } of resourceErrors) {
      if (code !== Code.NOT_FOUND || state.acked.has(name)) {
        namesWithErrors.add(name);
        continue;
      }
      for (const subscription of state.subscriptions.matching(name, [], constraints)) {
        // The error does not say for which parameters. It counts for all locators of this name that were in the first
        // request.
        if (subscription.kind === 'name' && (subscription.anyResponseAnswers || !this.#options.locators))
          markResolved(state.subscriptions, subscription, resolved);
      }
    }
    return namesWithErrors;
  }

  /** A full state without it says that it is absent, if any response answers it. */
  #resolveMissing(state: SotwState, namesWithErrors: ReadonlySet<ResourceName>, resolved: Interest[]): void {
    for (const subscription of [...state.subscriptions.unresolved]) {
      if (subscription.anyResponseAnswers && !namesWithErrors.has(subscription.selector))
        markResolved(state.subscriptions, subscription, resolved);
    }
    for (const subscription of state.subscriptions.named('*'))
      if (subscription.anyResponseAnswers) subscription.resolvedOnThisStream = true;
  }

  /** Whether it may be there although this response does not have it. */
  #mayStillExist(
    state: SotwState,
    { name, constraints }: Identity,
    namesWithErrors: ReadonlySet<ResourceName>,
  ): boolean {
    if (namesWithErrors.has(name)) return true;
    // A resource that this stream delivered and a later response lacks is removed, even if its wildcard is not
    // resolved yet.
    if (state.acked.get(name, constraints.key)?.confirmedOnStream === this.#stream.number) return false;
    const subscriptions = state.subscriptions.matching(name, [], constraints);
    return (
      subscriptions.length > 0 &&
      !subscriptions.some(
        (subscription) => subscription.resolvedOnThisStream || subscription.anyResponseAnswers,
      )
    );
  }
}

const none: ReadonlySet<ResourceName> = new Set();

function unknownIn({ resourceErrors }: SotwReading): ReadonlySet<ResourceName> {
  const unknown = resourceErrors.filter(isUnknownName);
  return unknown.length === 0 ? none : new Set(unknown.map(({ name }) => name));
}
