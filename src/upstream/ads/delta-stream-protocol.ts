import type { TypeUrl } from '../../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { ok, type Result } from '../../model/result.ts';
import { covers } from '../../model/selection.ts';
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
import type { Identity } from './accept-resource.ts';
import { type AckedVariant, SeenVariants, type VariantKey, variantKey } from './acked-resources.ts';
import { BaseStreamProtocol } from './base-stream-protocol.ts';
import { atOnce, type InTurns } from './reading-pace.ts';
import { requestParts } from './request-parts.ts';
import { ResponseParts } from './response-parts.ts';
import type { TypeState } from './stream-protocol.ts';
import { covered } from './type-state.ts';
import { UnansweredUnsubscribed } from './unanswered-unsubscribed.ts';
import { markResolved, type UpstreamSubscription, unansweredInterests } from './upstream-subscriptions.ts';

interface DeltaState extends TypeState {
  /** initial_resource_versions of the next first request: what the relay has, with upstream's versions. */
  initialVersions: ReadonlyMap<string, string>;
  /**
   * What this stream delivered for a wildcard or glob that was unsubscribed just now. If it is subscribed again soon,
   * upstream sends all of it again.
   */
  readonly resendable: Map<VariantKey, Identity>;
  /** Subscriptions that still expect variants to be sent again. */
  readonly awaitingResend: Set<UpstreamSubscription>;
  /** Something was unsubscribed just now. Responses for it may still be on their way. */
  unsubscribeInFlight: boolean;
  /**
   * Subscriptions that were unsubscribed before upstream answered them. Their answers are still on their way. Answers
   * about one name arrive in the order of the requests.
   */
  readonly unansweredUnsubscribed: UnansweredUnsubscribed;
}

/** What a response says: all of it judged, nothing of it done yet. */
interface DeltaReading {
  readonly puts: readonly Put[];
  /** `removed_resources`: whatever is known under this name and has no constraints. */
  readonly removed: readonly Identity[];
  /** `removed_resource_names`: exactly these. */
  readonly removedVariants: readonly Identity[];
  readonly resourceErrors: readonly ResourceError[];
}

/** What a response says to the wildcards and globs that wait. */
interface Heard {
  readonly said: Transaction;
  /** The requests to which it is an answer, as it has something for one of their wildcards or globs. */
  readonly requests: ReadonlySet<number>;
  /** The wildcards and globs for which something in it is, and for no others. */
  readonly onlyFor: ReadonlySet<UpstreamSubscription>;
  /** The oldest request of which a wildcard or glob has had no response yet; grows while they are given this one. */
  readonly longestWaiting: () => number;
}

/** More in one first request is refused by common servers' limits (protocol §5b). */
const initialVersionsLimit = 3 * 1024 * 1024;
const noVersions: ReadonlyMap<string, string> = new Map();

/** An incremental stream (protocol §4 from the client's side). */
export class DeltaStreamProtocol extends BaseStreamProtocol<DeltaState, IncomingDelta, DeltaReading> {
  #lastAttribution: Heard | undefined;

  protected createState(base: TypeState): DeltaState {
    return {
      ...base,
      initialVersions: noVersions,
      resendable: new Map(),
      awaitingResend: new Set(),
      unsubscribeInFlight: false,
      unansweredUnsubscribed: new UnansweredUnsubscribed(),
    };
  }

  protected read(bytes: Buffer): Result<IncomingDelta, UnreadableResponse> {
    return readDeltaResponse(bytes);
  }

  /** With initial_resource_versions what is still so needs no answer; what they do not cover is swept or expires. */
  protected reset(state: DeltaState, resumed: boolean): void {
    const confirmed = resumed ? this.#resumable(state) : [];
    state.initialVersions = new Map(confirmed.map((variant) => [variant.name, variant.version]));
    for (const variant of confirmed) variant.confirmedOnStream = this.streamNumber;
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
          .some(({ confirmedOnStream }) => confirmedOnStream === this.streamNumber);
      else subscription.resolvedOnThisStream = !state.sweepPending;
    }
  }

  #resumable(state: DeltaState): AckedVariant[] {
    const { locators } = this.options;
    // The answer to a wildcard or glob was cut off: if nothing has changed since, nothing would come to complete it.
    if ([...state.subscriptions.unresolved].some(({ kind, suspended }) => kind !== 'name' && !suspended))
      return [];
    const rests = state.subscriptions.all().some((subscription) => subscription.suspended);
    const confirmed: AckedVariant[] = [];
    const stamped = state.rules.stamp(UNCONSTRAINED);
    const plain = stamped.ok ? stamped.value.key : UNCONSTRAINED.key;
    let variants = false;
    let bytes = 0;
    for (const variant of state.acked.all()) {
      const single = state.acked.isOnly(variant);
      if (!single || variant.version === '' || variant.viaAlias) continue;
      if (rests && !isSubscribed(state, variant)) continue;
      // Nobody can say of a name alone which variant of it is gone.
      if (variant.constraints.key !== plain) {
        variants = true;
        continue;
      }
      bytes += Buffer.byteLength(variant.name) + Buffer.byteLength(variant.version) + 12;
      if (bytes > initialVersionsLimit) return [];
      confirmed.push(variant);
    }
    // What a wildcard or glob covers is confirmed by what comes: then something has to come.
    if ((locators || variants) && confirmed.length < state.acked.size && state.subscriptions.hasCollection)
      return [];
    return confirmed;
  }

  protected sendChanges(
    state: DeltaState,
    fresh: readonly UpstreamSubscription[],
    dropped: readonly UpstreamSubscription[],
  ): void {
    const { initialVersions } = state;
    state.initialVersions = noVersions;
    const again = new Set(fresh.map((subscription) => subscription.selector));
    const together = !dropped.some((subscription) => again.has(subscription.selector));
    // Servers apply subscribes before unsubscribes (§4.4): one message would take back what is asked for again.
    if (!together) this.#sendParts(state, [], dropped, noVersions);
    const only = fresh.length === 1 && state.requestCount === 1 ? fresh[0] : undefined;
    const legacy =
      only?.kind === 'wildcard' && only.parameters.entries.size === 0 && state.info.legacyWildcard;
    // Every control plane knows the wildcard as an empty first request; not all know "*".
    const asked = legacy ? [] : fresh;
    this.#sendParts(state, asked, together ? dropped : [], initialVersions);
  }

  #sendParts(
    { type }: DeltaState,
    asked: readonly UpstreamSubscription[],
    dropped: readonly UpstreamSubscription[],
    initialVersions: ReadonlyMap<string, string>,
  ): void {
    for (const [index, { subscribe, unsubscribe }] of requestParts(asked, dropped).entries()) {
      const versions = index === 0 ? initialVersions : noVersions;
      this.send(request(type, { ...selectors(subscribe, unsubscribe), initialVersions: versions }));
    }
  }

  protected reply(state: DeltaState): OutgoingRequest {
    return request(state.type, { nonce: state.nonce, error: state.lastNack });
  }

  /**
   * An empty first request would subscribe to the whole type. Subscribing and unsubscribing "*" in one request
   * subscribes to nothing (§10.5).
   */
  protected refuse(type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest {
    return request(type, { nonce, error, subscribe: ['*'], unsubscribe: ['*'] });
  }

  /** A subscribe is answered with everything, also with what was sent before (protocol §4.2). */
  protected variantsToBeResent(state: DeltaState, subscription: UpstreamSubscription): Set<VariantKey> {
    const sent = [...covered(state, subscription), ...state.resendable.values()];
    const expected = new Set(
      sent.filter((variant) => this.#isCoveredBy(subscription, variant)).map(variantKey),
    );
    if (expected.size > 0) state.awaitingResend.add(subscription);
    return expected;
  }

  /**
   * A delta response does not say which request it answers. An update has only what changed, so it lacks something
   * that upstream sent before, or has nothing for this wildcard. An empty response is for the wildcard that has
   * waited longest.
   */
  protected mayAnswer(state: DeltaState, subscription: UpstreamSubscription, said: Transaction): boolean {
    if (subscription.requestNumber === 1) return true; // nothing can have been on its way before the first request
    // It is the only wildcard of this type on the stream. Updates that were on their way when it was unsubscribed are
    // no answer.
    if (!this.options.locators && subscription.kind === 'wildcard')
      return subscription.expectedVariants.size === 0;
    if (said.puts.length + said.heartbeats.length + said.removals.length === 0) {
      return this.#attributedRequests(state, said).longestWaiting() >= subscription.requestNumber;
    }
    const heard = this.#attributedRequests(state, said);
    if (subscription.expectedVariants.size > 0 || !heard.requests.has(subscription.requestNumber))
      return false;
    return !this.#mayAnswerUnsubscribed(state, subscription) || heard.onlyFor.has(subscription);
  }

  /**
   * The same selector was unsubscribed before it was answered, and then subscribed again. A response may answer the
   * first subscription: → subscribe *, → unsubscribe *, → subscribe *, ← response to the first.
   */
  #mayAnswerUnsubscribed(
    { unansweredUnsubscribed }: DeltaState,
    { selector, parameters }: UpstreamSubscription,
  ): boolean {
    return unansweredUnsubscribed.of(selector).some((former) => former.parameters === parameters);
  }

  /** Looked at once for each response, however many wildcards and globs wait for an answer. */
  #attributedRequests({ subscriptions }: DeltaState, said: Transaction): Heard {
    if (this.#lastAttribution?.said === said) return this.#lastAttribution;
    const requests = new Set<number>();
    const onlyFor = new Set<UpstreamSubscription>();
    const news: readonly Identity[] = [...said.puts, ...said.removals];
    for (const [at, identity] of [...news, ...said.heartbeats].entries()) {
      const shown = subscriptions
        .collecting(identity.name)
        .filter((subscription) => this.#isCoveredBy(subscription, identity));
      for (const subscription of shown) {
        if (subscriptions.unresolved.has(subscription) && subscription.expectedVariants.size === 0)
          requests.add(subscription.requestNumber);
      }
      const [only] = shown;
      if (only !== undefined && shown.length === 1 && at < news.length) onlyFor.add(only);
    }
    const waiting = [...subscriptions.all()]
      .filter(({ kind, requestNumber }) => kind !== 'name' && requestNumber > 0)
      .toSorted((a, b) => a.requestNumber - b.requestNumber);
    let first = 0;
    const longestWaiting = (): number => {
      while (waiting[first]?.responseSeen === true) first++;
      return waiting[first]?.requestNumber ?? Number.POSITIVE_INFINITY;
    };
    this.#lastAttribution = { said, requests, onlyFor, longestWaiting };
    return this.#lastAttribution;
  }

  #isCoveredBy(subscription: UpstreamSubscription, { name, constraints }: Identity): boolean {
    if (subscription.kind === 'glob' && !covers(subscription.selector, name)) return false;
    return this.#isFor(subscription, constraints);
  }

  #isFor(subscription: UpstreamSubscription, constraints: Constraints): boolean {
    return !this.options.locators || constraints.matches(subscription.parameters);
  }

  protected absentAfterTimeout(_: DeltaState, subscription: UpstreamSubscription): boolean {
    return subscription.kind !== 'wildcard';
  }

  /** A delta server sends what it knows at once, so there is nothing to wait for. */
  protected grantsGrace(): boolean {
    return false;
  }

  /** A control plane that is silent altogether says nothing about what is held from an earlier stream. */
  protected removalsAtTimeout(state: DeltaState, subscription: UpstreamSubscription): Removal[] | undefined {
    const stale = covered(state, subscription).some(
      (variant) => variant.confirmedOnStream !== this.streamNumber,
    );
    if (stale && !this.controlPlaneResponded) return undefined;
    return this.removeUnconfirmed(state, subscription);
  }

  /**
   * After resource_timeout nothing is on its way any more. Later responses must not use this state: the resources may
   * have been deleted meanwhile, and upstream does not tell the relay.
   */
  protected onUnsubscribed(state: DeltaState, subscription?: UpstreamSubscription): void {
    if (subscription === undefined || subscription.requestNumber === 0) return;
    state.awaitingResend.delete(subscription);
    state.unsubscribeInFlight = true;
    if (this.options.locators && !subscription.resolvedOnThisStream)
      state.unansweredUnsubscribed.add(subscription);
    for (const variant of subscription.kind === 'name' ? [] : covered(state, subscription)) {
      if (variant.confirmedOnStream === this.streamNumber && this.#isCoveredBy(subscription, variant))
        state.resendable.set(variantKey(variant), variant);
    }
    this.arm(`leaving ${state.type}`, this.options.resourceTimeoutMs, () => {
      state.unsubscribeInFlight = false;
      state.resendable.clear();
      state.unansweredUnsubscribed.clear();
    });
  }

  protected *judge(state: DeltaState, response: IncomingDelta): InTurns<Result<DeltaReading>> {
    const { rules } = state;
    const reading = yield* read(this.#parts(state), response);
    // Another stamp came in between.
    if (rules !== state.rules) return atOnce(read(this.#parts(state), response));
    return reading;
  }

  #parts({ rules }: TypeState): ResponseParts {
    const { entriesPerTurn } = this.options;
    return new ResponseParts({ rules, readResource: readDeltaResource, entriesPerTurn });
  }

  protected commit(state: DeltaState, response: IncomingDelta, reading: DeltaReading): Transaction {
    const { subscriptions, acked, holder, type } = state;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    const removals: Removal[] = [];
    const resolved: Interest[] = [];
    const answered: UpstreamSubscription[] = [];
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      for (const former of state.unansweredUnsubscribed.of(name)) {
        if (this.#isFor(former, constraints)) state.unansweredUnsubscribed.delete(former);
      }
      if (!this.#isWanted(state, put)) continue;
      if (put.any === undefined && ttlMilliseconds !== undefined) {
        const known = acked.get(name, constraints.key);
        if (known === undefined) continue;
        known.confirmedOnStream = this.streamNumber;
        markReceived(state, known);
        heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        puts.push(put);
        const asks = subscriptions.matching(name, [], constraints);
        acked.put(name, constraints, put.version, this.streamNumber, asks.length === 0);
        markReceived(state, put);
      }
      for (const subscription of subscriptions.matching(name, aliases, constraints)) {
        if (subscription.kind !== 'name') continue;
        answered.push(subscription);
        markResolved(subscriptions, subscription, resolved);
      }
    }
    for (const identity of reading.removedVariants) {
      markReceived(state, identity);
      const known = acked.get(identity.name, identity.constraints.key);
      if (known === undefined) this.#resolveMissing(state, identity, removals, resolved);
      else this.#remove(state, known, removals, resolved);
    }
    for (const identity of reading.removed) this.#removeName(state, identity, removals, resolved);
    for (const fault of notFound(reading)) this.#removeName(state, fault, removals, resolved);
    // It has another variant than the one from an earlier stream: in one transaction, as a swap.
    for (const subscription of answered) removals.push(...this.unconfirmedRemovals(state, subscription));
    const { version } = response;
    const { resourceErrors } = reading;
    const unanswered = unansweredInterests(subscriptions, [...removals, ...resourceErrors]);
    return transaction({
      holder,
      type,
      version,
      puts,
      removals,
      heartbeats,
      resourceErrors,
      resolved,
      unanswered,
    });
  }

  /** Not what was on its way when its subscription ended: nobody would say when it is gone. */
  #isWanted(
    { subscriptions, unsubscribeInFlight }: DeltaState,
    { name, aliases, constraints }: Put,
  ): boolean {
    if (!unsubscribeInFlight || !this.options.locators) return subscriptions.includes(name, aliases);
    return subscriptions.matching(name, aliases, constraints).length > 0;
  }

  #removeName(state: DeltaState, identity: Identity, removals: Removal[], resolved: Interest[]): void {
    const { name, constraints } = identity;
    markReceived(state, identity);
    if (isGlob(name)) {
      // The URL of a collection that is empty (protocol §6).
      for (const subscription of state.subscriptions.named(name)) {
        for (const variant of covered(state, subscription)) this.#remove(state, variant, removals, resolved);
        markResolved(state.subscriptions, subscription, resolved);
      }
      return;
    }
    const exact = state.acked.get(name, constraints.key);
    // A server that was only asked by name may mean any variant: it has no other way to say it.
    const meant = exact === undefined && !state.subscriptions.hasLocatorFor(name) ? state.acked.of(name) : [];
    const gone = exact === undefined ? meant : [exact];
    for (const variant of gone) this.#remove(state, variant, removals, resolved);
    if (gone.length === 0) this.#resolveMissing(state, identity, removals, resolved);
  }

  #remove(state: DeltaState, variant: AckedVariant, removals: Removal[], resolved: Interest[]): void {
    state.acked.delete(variant);
    markReceived(state, variant);
    removals.push({ name: variant.name, constraints: variant.constraints });
    for (const subscription of state.subscriptions.matching(variant.name, [], variant.constraints)) {
      // A subscription that is newer than this response may still get another variant.
      if (subscription.kind === 'name' && (subscription.resolved || subscription.requestNumber === 1))
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
      .filter((subscription) => this.#isFor(subscription, constraints));
    const waiting = [...state.subscriptions.naming(name, constraints), ...unanswered].filter(
      (subscription) => subscription.requestNumber > 0 && !subscription.resolvedOnThisStream,
    );
    const oldest = waiting.reduce(
      (least, { requestNumber }) => Math.min(least, requestNumber),
      Number.POSITIVE_INFINITY,
    );
    const meant = waiting.filter((subscription) => subscription.requestNumber === oldest);
    for (const subscription of meant)
      if (!state.unansweredUnsubscribed.delete(subscription))
        markResolved(state.subscriptions, subscription, resolved);
    const [only] = meant;
    if (only !== undefined && meant.length === 1 && state.subscriptions.has(only))
      removals.push(...this.unconfirmedRemovals(state, only));
  }

  /**
   * What a resolved name has from an earlier stream. Variants that an unresolved subscription may still confirm stay.
   */
  protected override unconfirmedRemovals(state: DeltaState, subscription: UpstreamSubscription): Removal[] {
    if (subscription.kind !== 'name') return [];
    const removals: Removal[] = [];
    for (const variant of covered(state, subscription)) {
      if (variant.confirmedOnStream === this.streamNumber || !this.#isFor(subscription, variant.constraints))
        continue;
      const subscriptions = state.subscriptions.matching(variant.name, [], variant.constraints);
      if (subscriptions.some((other) => !other.resolvedOnThisStream)) continue;
      state.acked.delete(variant);
      removals.push({ name: variant.name, constraints: variant.constraints });
    }
    return removals;
  }
}

function* read(parts: ResponseParts, response: IncomingDelta): InTurns<Result<DeltaReading>> {
  const seen = new SeenVariants();
  const puts = yield* parts.resources(response.resources, 0, response.resources.length, seen);
  if (!puts.ok) return puts;
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

/** What was expected of an answer is there, or gone. */
function markReceived({ subscriptions, resendable, awaitingResend }: DeltaState, variant: Identity): void {
  if (resendable.size + awaitingResend.size === 0) return;
  const key = variantKey(variant);
  resendable.delete(key);
  for (const subscription of awaitingResend.size > 0 ? subscriptions.collecting(variant.name) : []) {
    if (subscription.expectedVariants.delete(key) && subscription.expectedVariants.size === 0)
      awaitingResend.delete(subscription);
  }
}

/** Some control planes take what is named in initial_resource_versions for subscribed. */
function isSubscribed({ subscriptions }: DeltaState, { name, constraints }: AckedVariant): boolean {
  return subscriptions.matching(name, [], constraints).some(({ suspended }) => !suspended);
}

function request(type: TypeUrl, part: Partial<OutgoingDelta>): OutgoingDelta {
  return {
    kind: 'delta',
    typeUrl: type,
    nonce: '',
    subscribe: [],
    unsubscribe: [],
    subscribeLocators: [],
    unsubscribeLocators: [],
    initialVersions: noVersions,
    error: undefined,
    ...part,
  };
}

function selectors(
  subscribe: readonly UpstreamSubscription[],
  unsubscribe: readonly UpstreamSubscription[],
): Partial<OutgoingDelta> {
  return {
    subscribe: subscribe.filter(isPlain).map((subscription) => subscription.selector),
    unsubscribe: unsubscribe.filter(isPlain).map((subscription) => subscription.selector),
    subscribeLocators: subscribe.filter((subscription) => !isPlain(subscription)).map(locator),
    unsubscribeLocators: unsubscribe.filter((subscription) => !isPlain(subscription)).map(locator),
  };
}

function isPlain(subscription: UpstreamSubscription): boolean {
  return subscription.parameters.entries.size === 0;
}

function locator({ selector, parameters }: UpstreamSubscription): Locator {
  return { name: selector, parameters: [...parameters.entries] };
}
