import type { ConstraintsKey, TypeUrl } from '../../model/brand.ts';
import { UNCONSTRAINED } from '../../model/constraints.ts';
import { ok, type Result } from '../../model/result.ts';
import type { InTurns } from '../../model/time-slices.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type Removal,
  type ResourceError,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { isGlob } from '../../model/xdstp.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingDelta, OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail, Locator } from '../../wire/requests.ts';
import {
  type IncomingDelta,
  readDeltaResource,
  readDeltaResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import { VariantSet } from '../variant-set.ts';
import {
  deltaAnswers,
  emptied,
  inDoubt,
  namesAnswered,
  ofOldestRequest,
  shows,
} from './answer-attribution.ts';
import { type Identity, ResponseParts } from './response-parts.ts';
import type { Stamp } from './stamp.ts';
import { StreamMachine, type TimeoutOutcome } from './stream-machine.ts';
import { type AckedVariant, DeltaState, variantKey } from './type-state.ts';
import { isFor, type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/** An incremental stream (protocol §4 from the client's side). */
export class DeltaMachine extends StreamMachine<DeltaState, IncomingDelta> {
  protected createState(interest: Interest, stamp: Stamp): DeltaState {
    return new DeltaState(interest, this.options, stamp);
  }

  protected read(bytes: Buffer): Result<IncomingDelta, UnreadableResponse> {
    return readDeltaResponse(bytes);
  }

  /** Unchanged resources in initial_resource_versions need no answer. The others are swept, or they expire. */
  protected resetType(state: DeltaState, resumed: boolean): void {
    state.reset();
    const confirmed = resumed ? resumable(state) : [];
    state.initialVersions = new Map(confirmed.map((variant) => [variant.name, variant.version]));
    for (const variant of confirmed) variant.confirmed = true;
    state.sweepPending = confirmed.length < state.acked.size;
    if (!resumed) return;
    for (const subscription of state.subscriptions.all()) {
      if (!subscription.resolved) continue;
      subscription.resolvedOnThisStream =
        subscription.kind === 'name'
          ? state.acked.of(subscription.selector).some((variant) => variant.confirmed)
          : !state.sweepPending;
    }
  }

  protected changeSubscriptions(
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
    const isPlain = only?.kind === 'wildcard' && only.parameters.entries.size === 0;
    const legacy = isPlain && state.info.legacyWildcard;
    // Every control plane knows the wildcard as an empty first request; not all know "*".
    const named = legacy ? [] : subscribed;
    if (together) return deltaRequests(type, named, unsubscribed, initialVersions);
    // Servers apply subscribes before unsubscribes (§4.4): one message would unsubscribe what is subscribed again.
    return [
      ...deltaRequests(type, [], unsubscribed, noVersions),
      ...deltaRequests(type, named, [], initialVersions),
    ];
  }

  protected reply(state: DeltaState): OutgoingRequest {
    return deltaRequest(state.type, { nonce: state.nonce, error: state.lastNack });
  }

  /**
   * An empty first request would subscribe to the whole type. Subscribing and unsubscribing "*" in one request
   * subscribes to nothing (§10.5).
   */
  protected override refusal(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest {
    return deltaRequest(type, { nonce, error, subscribe: ['*'], unsubscribe: ['*'] });
  }

  /** A subscribe is answered with everything, also with what was sent before (protocol §4.2). */
  #expectResent(state: DeltaState, subscription: UpstreamSubscription): void {
    if (subscription.kind === 'name') return;
    const sent = [...state.covered(subscription), ...state.resendable.values()];
    subscription.expectedNames = new Set(
      sent.filter((variant) => shows(subscription, variant)).map(({ name }) => name),
    );
    if (subscription.expectedNames.size > 0) state.awaitingResend.add(subscription);
  }

  protected answeredBy(
    state: DeltaState,
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    const answered = deltaAnswers(state, said, candidates);
    state.repeated.clear();
    const doubtful = inDoubt(said, candidates, answered);
    const waits = (one: UpstreamSubscription): boolean => !one.responseSeen && state.subscriptions.has(one);
    // Each request by itself: that an earlier one is answered in time says nothing of a later one.
    for (const [request, asked] of Map.groupBy(doubtful, ({ requestNumber }) => requestNumber))
      this.renewIfDoubtful(state.type, `${request} ${state.type}`, () => asked.some(waits));
    return answered;
  }

  protected absentAfterTimeout(_: DeltaState, subscription: UpstreamSubscription): boolean {
    return subscription.kind !== 'wildcard';
  }

  protected onTimeout(state: DeltaState, subscription: UpstreamSubscription): TimeoutOutcome {
    if (subscription.resolvedOnThisStream) return removeUnconfirmedOfName(state, subscription);
    const isStale = state.covered(subscription).some(({ confirmed }) => !confirmed);
    // A control plane that is silent altogether says nothing about what is held from an earlier stream.
    if (isStale && !this.controlPlaneResponded) return 'unknown';
    return state.removeUnconfirmed(subscription);
  }

  /**
   * After resource_timeout nothing is on its way any more. Later responses must not use this state: upstream may have
   * deleted the resources, and does not send removals of what is not subscribed.
   */
  protected onUnsubscribed(state: DeltaState, subscription: UpstreamSubscription): void {
    if (subscription.requestNumber === 0) return;
    state.awaitingResend.delete(subscription);
    state.unsubscribeInFlight = true;
    if (this.options.locators && !subscription.resolvedOnThisStream)
      state.unansweredUnsubscribed.add(subscription);
    for (const variant of subscription.kind === 'name' ? [] : state.covered(subscription)) {
      if (variant.confirmed && shows(subscription, variant))
        state.resendable.set(variantKey(variant), variant);
    }
    this.arm(`leaving ${state.type}`, this.options.resourceTimeoutMs, () => {
      state.unsubscribeInFlight = false;
      state.resendable.clear();
      state.unansweredUnsubscribed.clear();
    });
  }

  protected *judge(state: DeltaState, response: IncomingDelta): InTurns<Result<() => Transaction>> {
    const { entriesPerTurn, locators } = this.options;
    const parts = new ResponseParts(state.rules, readDeltaResource, entriesPerTurn, locators);
    const reading = yield* readDelta(parts, response);
    return reading.ok ? ok(() => this.#commit(state, response, reading.value)) : reading;
  }

  #commit(state: DeltaState, response: IncomingDelta, reading: DeltaReading): Transaction {
    const { subscriptions, acked, holder, type } = state;
    const { resourceErrors } = reading;
    state.isEmpty = isEmpty(reading);
    const said: Concluded = { removals: [], resolved: [] };
    const { removals, resolved } = said;
    noteRepeated(state, reading.puts);
    const { puts, heartbeats, answered } = this.#takeResources(state, reading.puts, resolved);
    for (const identity of reading.removedVariants) {
      markReceived(state, identity);
      const known = acked.get(identity.name, identity.constraints.key);
      if (isGlob(identity.name)) this.#empty(state, identity, said);
      else if (known === undefined) this.#resolveMissing(state, identity, said);
      else this.#remove(state, known, said);
    }
    for (const identity of reading.removed) this.#removeName(state, identity, said);
    for (const error of notFound(reading)) this.#removeName(state, error, said);
    // It has another variant than the one from an earlier stream: in one transaction, as a swap.
    for (const subscription of answered) removals.push(...removeUnconfirmedOfName(state, subscription));
    const unanswered = subscriptions.unansweredIn([...removals, ...resourceErrors]);
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

  /** `answered`: the subscriptions to names that got a resource. */
  #takeResources(state: DeltaState, all: readonly Put[], resolved: Interest[]) {
    const { subscriptions, acked } = state;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    const answered: UpstreamSubscription[] = [];
    state.justAnswered.clear();
    for (const put of all) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      state.unansweredUnsubscribed.received(name, constraints);
      if (!this.#isSubscribed(state, put)) continue;
      const known = acked.get(name, constraints.key);
      const repeated = isRepeated(state, put);
      if (put.any === undefined && ttlMilliseconds !== undefined) {
        if (known === undefined) continue;
        known.confirmed = true;
        heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        puts.push(put);
        const viaAlias = subscriptions.matching(name, [], constraints).length === 0;
        const { version, payload } = put;
        acked.put({ name, constraints, version, hash: payload?.hash, confirmed: true, viaAlias });
      }
      markReceived(state, put);
      const matching = subscriptions.matching(name, aliases, constraints);
      for (const subscription of namesAnswered(matching, repeated)) {
        answered.push(subscription);
        if (!subscription.resolvedOnThisStream) state.justAnswered.add(subscription);
        subscriptions.markResolved(subscription, resolved);
      }
      if (matching.length > 1) this.#awaitOwnAnswers(state, matching);
    }
    return { puts, heartbeats, answered };
  }

  /** False: it was on its way when its subscription ended, and upstream would not send its removal. */
  #isSubscribed(
    { subscriptions, unsubscribeInFlight }: DeltaState,
    { name, aliases, constraints }: Put,
  ): boolean {
    if (!unsubscribeInFlight || !this.options.locators) return subscriptions.includes(name, aliases);
    return subscriptions.matching(name, aliases, constraints).length > 0;
  }

  #removeName(state: DeltaState, identity: Identity, said: Concluded): void {
    const { name, constraints } = identity;
    markReceived(state, identity);
    if (isGlob(name)) {
      this.#empty(state, identity, said);
      return;
    }
    const exact = state.acked.get(name, constraints.key);
    // A server without locators for the name may mean any variant: it has no other way to say so.
    const meant = exact === undefined && !state.subscriptions.hasLocatorFor(name) ? state.acked.of(name) : [];
    const removed = exact === undefined ? meant : [exact];
    for (const variant of removed) this.#remove(state, variant, said);
    if (removed.length === 0) this.#resolveMissing(state, identity, said);
  }

  /**
   * The URL of a collection that is empty (protocol §6). Several locators may name it: then nothing is removed, since
   * members that are deleted are named, and those that it is for are resolved when no more follows.
   */
  #empty(state: DeltaState, { name, constraints }: Identity, said: Concluded): void {
    const { subscriptions, unansweredUnsubscribed } = state;
    const named = [...subscriptions.named(name), ...unansweredUnsubscribed.of(name)].filter((one) =>
      isFor(one, constraints),
    );
    for (const one of emptied(named)) {
      if (unansweredUnsubscribed.delete(one)) continue;
      one.responseSeen = true;
      if (named.length > 1) continue;
      for (const variant of state.covered(one).filter((each) => shows(one, each)))
        this.#remove(state, variant, said);
      subscriptions.markResolved(one, said.resolved);
    }
  }

  #remove(state: DeltaState, variant: AckedVariant, { removals, resolved }: Concluded): void {
    state.acked.delete(variant);
    markReceived(state, variant);
    removals.push({ name: variant.name, constraints: variant.constraints });
    for (const subscription of state.subscriptions.matching(variant.name, [], variant.constraints)) {
      // A subscription that is newer than this response may still get another variant.
      if (subscription.kind === 'name' && (subscription.resolved || subscription.anyResponseAnswers))
        state.subscriptions.markResolved(subscription, resolved);
    }
  }

  /**
   * The response removes a name that was never delivered. If several locators name it, the response does not say for
   * which parameters (protocol §5), unless it has constraints. Servers answer in order, so it is for the locators of
   * the oldest unanswered request. If that is only one, what it has from an earlier stream is removed.
   */
  #resolveMissing(state: DeltaState, { name, constraints }: Identity, said: Concluded): void {
    const { removals, resolved } = said;
    const unanswered = state.unansweredUnsubscribed
      .of(name)
      .filter((subscription) => isFor(subscription, constraints));
    const named = [...state.subscriptions.naming(name, constraints), ...unanswered];
    const meant = ofOldestRequest(named, state.justAnswered);
    if (meant.length === 0) removals.push(...removeGoneMeanwhile(state, { name, constraints }));
    for (const subscription of meant)
      if (!state.unansweredUnsubscribed.delete(subscription))
        state.subscriptions.markResolved(subscription, resolved);
    const [only] = meant;
    if (only !== undefined && meant.length === 1 && state.subscriptions.has(only))
      removals.push(...removeUnconfirmedOfName(state, only));
  }

  /** They may have answers of their own (see `namesAnswered`), or the server has sent one for several requests. */
  #awaitOwnAnswers(state: DeltaState, matching: readonly UpstreamSubscription[]): void {
    for (const { kind, resolvedOnThisStream, requestNumber } of matching) {
      if (kind === 'name' && !resolvedOnThisStream && requestNumber > 0)
        this.stopDoubting(`${requestNumber} ${state.type}`, () => trustNames(state, requestNumber));
    }
  }
}

/** What a response says beside its resources. */
type Concluded = Readonly<{ removals: Removal[]; resolved: Interest[] }>;

/** More in one first request is refused by common servers' limits (protocol §5b). */
const initialVersionsLimit = 3 * 1024 * 1024;

/** What needs no answer on a new stream to the same endpoint: it goes into initial_resource_versions. */
function resumable(state: DeltaState): AckedVariant[] {
  // The answer to a wildcard or glob was cut off. If nothing has changed since, no response would complete it.
  if ([...state.subscriptions.unresolved].some(({ kind, suspended }) => kind !== 'name' && !suspended))
    return [];
  const hasSuspended = state.subscriptions.all().some((subscription) => subscription.suspended);
  const confirmed: AckedVariant[] = [];
  const stamped = state.rules.stamp(UNCONSTRAINED);
  const plain = stamped.ok ? stamped.value.key : UNCONSTRAINED.key;
  let variants = false;
  let bytes = 0;
  for (const variant of state.acked.all()) {
    const single = state.acked.isOnly(variant);
    if (!single || variant.version === '' || variant.viaAlias) continue;
    if (hasSuspended && !isSubscribed(state, variant)) continue;
    if (!isRemovableByName(state, variant, plain)) {
      variants = true;
      continue;
    }
    bytes += Buffer.byteLength(variant.name) + Buffer.byteLength(variant.version) + 12;
    if (bytes > initialVersionsLimit) return [];
    confirmed.push(variant);
  }
  // A wildcard or glob is resolved by a response, so something must be left that upstream has to send.
  if (
    (state.subscriptions.locators || variants) &&
    confirmed.length < state.acked.size &&
    state.subscriptions.hasCollection
  )
    return [];
  return confirmed;
}

/** A removal by name alone does not say which variant is removed, or for which of several parameter sets. */
const isRemovableByName = (
  { subscriptions }: DeltaState,
  { name, constraints }: AckedVariant,
  plain: ConstraintsKey,
): boolean => constraints.key === plain && subscriptions.named(name).length < 2;

/**
 * A variant was delivered or removed. Where its name is expected, it need not be the same variant: with these parameters,
 * there is another one instead of what earlier subscriptions have:
 *
 *     → +* {}   ← a {}   → +* {env=prod}, expects a   ← a {env == "prod"}
 */
function markReceived({ subscriptions, resendable, awaitingResend }: DeltaState, variant: Identity): void {
  if (resendable.size + awaitingResend.size === 0) return;
  const { name, constraints } = variant;
  resendable.delete(variantKey(variant));
  for (const subscription of awaitingResend.size > 0 ? subscriptions.collecting(name) : []) {
    if (!isFor(subscription, constraints)) continue;
    if (subscription.expectedNames.delete(name) && subscription.expectedNames.size === 0)
      awaitingResend.delete(subscription);
  }
}

/** Before `acked` takes them. Only if a wildcard or glob waits that was not in the first request of the stream. */
function noteRepeated(state: DeltaState, puts: readonly Put[]): void {
  const { repeated, requestCount, subscriptions } = state;
  if (requestCount <= 1 || waitingCollections(subscriptions.unresolved).length === 0) return;
  for (const put of puts) if (isRepeated(state, put)) repeated.add(put);
}

/**
 * This stream had delivered it before, with the same version or (NATIVE) the same body: a control plane may number each of
 * its answers, send no versions, or not encode the same body twice in the same way.
 */
function isRepeated({ acked }: DeltaState, put: Put): boolean {
  const known = acked.get(put.name, put.constraints.key);
  if (known?.confirmed !== true) return false;
  const hash = put.payload?.hash;
  if (hash !== undefined && known.hash === hash) return true;
  return known.version === put.version && (hash === undefined || put.version !== '');
}

/**
 * What a resolved name has from an earlier stream. Variants that an unresolved subscription may still confirm stay.
 */
function removeUnconfirmedOfName(state: DeltaState, subscription: UpstreamSubscription): Removal[] {
  if (subscription.kind !== 'name') return [];
  const gone = state.covered(subscription).filter(({ name, constraints, confirmed }) => {
    if (confirmed || !isFor(subscription, constraints)) return false;
    return state.subscriptions.matching(name, [], constraints).every((one) => one.resolvedOnThisStream);
  });
  return state.acked.remove(gone);
}

/**
 * A locator was unsubscribed and subscribed again before it was answered. The resource that came then answered the first
 * subscription. The second one is answered by a removal without constraints, if the resource was deleted in between:
 *
 *     → +a {env=prod}   → -a {env=prod}   → +a {env=prod}   ← a {env == "prod"}   ← removed: a
 *
 * A removal or an error with constraints for other parameters is not its answer.
 */
function removeGoneMeanwhile(
  { acked, subscriptions, unansweredUnsubscribed }: DeltaState,
  { name, constraints }: Identity,
): Removal[] {
  const again = subscriptions
    .naming(name, constraints)
    .filter((one) => unansweredUnsubscribed.mayHaveTakenAnswerOf(one));
  const [only] = again;
  if (only === undefined || again.length > 1) return [];
  const gone = acked.of(name).filter((variant) => {
    const matching = subscriptions.matching(name, [], variant.constraints);
    return matching.length === 1 && matching[0] === only;
  });
  return acked.remove(gone);
}

/** The requests up to this one were so long ago that every response has seen them. */
function trustNames({ subscriptions }: DeltaState, requestNumber: number): void {
  for (const subscription of subscriptions.unresolved) {
    if (subscription.kind === 'name' && subscription.requestNumber > 0)
      subscription.anyResponseAnswers ||= subscription.requestNumber <= requestNumber;
  }
}

/** Some control planes take what is named in initial_resource_versions for subscribed. */
function isSubscribed({ subscriptions }: DeltaState, { name, constraints }: AckedVariant): boolean {
  return subscriptions.matching(name, [], constraints).some(({ suspended }) => !suspended);
}

/** What a delta response says: all of it judged, nothing of it done yet. */
interface DeltaReading {
  readonly puts: readonly Put[];
  /** `removed_resources`: whatever is known under this name and has no constraints. */
  readonly removed: readonly Identity[];
  /** `removed_resource_names`: exactly these. */
  readonly removedVariants: readonly Identity[];
  readonly resourceErrors: readonly ResourceError[];
}

/** Judges a response. The error is the reason for a NACK. */
function* readDelta(parts: ResponseParts, response: IncomingDelta): InTurns<Result<DeltaReading>> {
  const seen = { bodies: new VariantSet(), removals: new VariantSet() };
  const puts = yield* parts.resources(response.resources, 0, response.resources.length, seen.bodies);
  if (!puts.ok) return puts;
  // The names first: a removal by name alone may mean more than one without constraints does.
  const removed = yield* parts.removed(response.removed, seen);
  if (!removed.ok) return removed;
  const removedVariants = yield* parts.removedNames(response.removedNames, seen);
  if (!removedVariants.ok) return removedVariants;
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  return ok({
    puts: puts.value,
    removed: removed.value,
    removedVariants: removedVariants.value,
    resourceErrors: resourceErrors.value,
  });
}

function isEmpty({ puts, removed, removedVariants, resourceErrors }: DeltaReading): boolean {
  return puts.length + removed.length + removedVariants.length + resourceErrors.length === 0;
}

/** In delta NOT_FOUND is a removal (protocol §8): one of those that are not said already, in this way or the other. */
function* notFound({ removed, removedVariants, resourceErrors }: DeltaReading): Iterable<Identity> {
  if (resourceErrors.length === 0) return;
  const names = new Set(removed.map(({ name }) => name));
  const said = new Set(removedVariants.map(variantKey));
  for (const error of resourceErrors) {
    const key = variantKey(error);
    if (error.code !== Code.NOT_FOUND || names.has(error.name) || said.has(key)) continue;
    said.add(key);
    yield error;
  }
}

const noVersions: ReadonlyMap<string, string> = new Map();

/**
 * What one delta request names at most, in bytes. gRPC servers refuse messages of more than 4 MiB unless told
 * otherwise, and such a refusal ends the stream of all clients; beside the names there may be versions and the node.
 */
const mostBytes = 512 * 1024;
/** Tags and lengths. */
const perName = 16;

/** A change of what is subscribed, in parts that every server takes: all subscribes, then all unsubscribes; at least one. */
export function deltaRequests(
  type: TypeUrl,
  subscribed: readonly UpstreamSubscription[],
  unsubscribed: readonly UpstreamSubscription[],
  initialVersions: ReadonlyMap<string, string>,
): OutgoingDelta[] {
  const parts = [emptyPart()];
  let bytes = 0;
  const add = (subscription: UpstreamSubscription, into: 'subscribe' | 'unsubscribe'): void => {
    const { selector, parameters } = subscription;
    const size = Buffer.byteLength(selector) + Buffer.byteLength(parameters.key) + perName;
    if (bytes > 0 && bytes + size > mostBytes) {
      parts.push(emptyPart());
      bytes = 0;
    }
    bytes += size;
    const part = parts.at(-1);
    if (parameters.entries.size === 0) part?.[into].push(selector);
    else part?.[`${into}Locators`].push({ name: selector, parameters: [...parameters.entries] });
  };
  for (const subscription of subscribed) add(subscription, 'subscribe');
  for (const subscription of unsubscribed) add(subscription, 'unsubscribe');
  return parts.map((part, index) =>
    deltaRequest(type, { ...part, initialVersions: index === 0 ? initialVersions : noVersions }),
  );
}

type RequestPart = Record<'subscribe' | 'unsubscribe', string[]> &
  Record<'subscribeLocators' | 'unsubscribeLocators', Locator[]>;

const emptyPart = (): RequestPart => ({
  subscribe: [],
  unsubscribe: [],
  subscribeLocators: [],
  unsubscribeLocators: [],
});

function deltaRequest(type: TypeUrl, part: Partial<OutgoingDelta>): OutgoingDelta {
  const rest = { nonce: '', initialVersions: noVersions, error: undefined };
  return { kind: 'delta', typeUrl: type, ...rest, ...emptyPart(), ...part };
}
