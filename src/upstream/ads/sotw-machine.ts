import type { ResourceName } from '../../model/brand.ts';
import { ok, type Result } from '../../model/result.ts';
import type { InTurns } from '../../model/time-slices.ts';
import {
  type Heartbeat,
  type Interest,
  type Put,
  type ResourceError,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import {
  type ByteRanges,
  type IncomingSotw,
  readSotwResource,
  readSotwResponse,
  type UnreadableResponse,
} from '../../wire/response-reader.ts';
import { isUnknownName } from '../../wire/via.ts';
import { VariantSet } from '../variant-set.ts';
import { isCompleteFor, lastRequestSeen, sotwAnswers } from './answer-attribution.ts';
import { type Identity, ResponseParts } from './response-parts.ts';
import type { Stamp } from './stamp.ts';
import { StreamMachine, type TimeoutOutcome } from './stream-machine.ts';
import { type AckedResources, type PreviousResponse, SotwState } from './type-state.ts';
import { isFor, type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/**
 * A state-of-the-world stream (protocol §3 from the client's side). SotW does not say which request a response answers:
 *
 *     → names [a]   → names [a, b]   ← {a}, an answer to the first request: b is unknown, not absent
 *
 * Every response has seen the type's first request on the stream, so what is missing of that request is absent. A name
 * that was added later is absent if it came before and is missing now, or after resource_timeout.
 */
export class SotwMachine extends StreamMachine<SotwState> {
  protected createState(interest: Interest, stamp: Stamp): SotwState {
    return new SotwState(interest, this.options, stamp);
  }

  protected read(bytes: Buffer): Result<IncomingSotw, UnreadableResponse> {
    return readSotwResponse(bytes);
  }

  protected resetType(state: SotwState): void {
    state.reset();
  }

  protected changeSubscriptions(
    state: SotwState,
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[] {
    if (!state.isFull && state.requestCount > 1) state.subscribedAgain.subscribe(subscribed, unsubscribed);
    return sotwRequests(state, subscribed, unsubscribed);
  }

  protected reply(state: SotwState): OutgoingRequest {
    return sotwRequest(state);
  }

  protected answeredBy(
    state: SotwState,
    _: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    return sotwAnswers(state.lastRequestSeen, candidates);
  }

  protected absentAfterTimeout(state: SotwState, subscription: UpstreamSubscription): boolean {
    return state.info.fullState && subscription.kind !== 'wildcard';
  }

  protected onTimeout(
    state: SotwState,
    subscription: UpstreamSubscription,
    extended: boolean,
  ): TimeoutOutcome {
    if (subscription.resolvedOnThisStream) return [];
    const isUnknownAbove = state.unknownAbove.has(subscription.selector);
    // A relay above may say nothing before something is known to it. Its own timeout comes a little later.
    const extend = !extended && (state.nonce === '' || isUnknownAbove);
    // An earlier stream delivered it, and this one has not removed it.
    const isAcked = state.covered(subscription).some(({ constraints }) => isFor(subscription, constraints));
    if (!extend && !isAcked && !isUnknownAbove) return [];
    subscription.anyResponseAnswers = true;
    return extend ? 'extend' : 'unknown';
  }

  protected onUnsubscribed(state: SotwState, subscription: UpstreamSubscription): void {
    if (state.previous !== undefined) {
      state.previous = undefined;
      state.rules = { ...state.rules }; // a response that is being read is read again
    }
    if (subscription.requestNumber === 0) return;
    state.attributionAmbiguous = true;
    if (state.isFull || subscription.kind !== 'name') return;
    state.subscribedAgain.leave(subscription);
    this.arm(`leaving ${state.type}`, this.options.resourceTimeoutMs, () =>
      state.subscribedAgain.forgetLeft(),
    );
  }

  protected override askAgain({
    subscribedAgain,
    subscriptions,
  }: SotwState): readonly UpstreamSubscription[] {
    return subscribedAgain.unanswered(subscriptions);
  }

  protected *judge(state: SotwState, response: IncomingSotw): InTurns<Result<() => Transaction>> {
    const reading = yield* this.#read(state, response);
    return reading.ok ? ok(() => this.#commit(state, response, reading.value)) : reading;
  }

  *#read(state: SotwState, response: IncomingSotw): InTurns<Result<SotwReading>> {
    const { rules, acked, storeSwept } = state;
    const fullState = state.isFull;
    const previous = state.previous?.rules === rules ? state.previous : undefined;
    // Where upstream cannot delete, the last received match wins, so all variants count as received (protocol §5). As
    // long as the store may have more than this stream delivered, it gets the whole response.
    const comparable = fullState ? storeSwept : previous?.constrained === false;
    const parts = new ResponseParts(rules, readSotwResource, this.options.entriesPerTurn, false);
    const compared =
      comparable && previous !== undefined
        ? yield* compare(parts, acked, fullState, previous, response)
        : undefined;
    return compared ?? (yield* readAll(parts, acked, fullState, response));
  }

  #commit(state: SotwState, response: IncomingSotw, reading: SotwReading): Transaction {
    const { subscriptions, acked, holder, type, rules } = state;
    const { identities, missing } = reading;
    const resourceErrors = reading.resourceErrors.filter((error) => !isUnknownName(error));
    const unknown = reading.resourceErrors.filter(isUnknownName);
    state.unknownAbove = new Set(unknown.map(({ name }) => name));
    const { version, resources } = response;
    const fullState = state.isFull;
    const resolved: Interest[] = [];
    const { puts, heartbeats, isRepeatable } = this.#takeResources(state, response, reading, resolved);
    this.#attribute(state, puts);
    if (fullState) this.#resolvePresent(state, missing, resolved);
    const namesWithErrors = this.#resolveErrors(state, resourceErrors, resolved);
    if (fullState) this.#resolveMissing(state, namesWithErrors, resolved);
    const removals = acked.remove(
      missing.filter((identity) => !this.#mayStillExist(state, identity, namesWithErrors)),
    );
    const allRemoved = removals.length === missing.length;
    // Before the first full state, the store may hold resources that this session does not know: those restored from
    // disk.
    const mayComplete = fullState && !state.storeSwept && allRemoved && namesWithErrors.size === 0;
    const complete = mayComplete && isCompleteFor(subscriptions, state.lastRequestSeen);
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
      unanswered: subscriptions.unansweredIn([...removals, ...resourceErrors]),
      cannotDelete: !fullState,
    });
  }

  /** `isRepeatable`: the same resources again would say nothing new. */
  #takeResources(
    { subscriptions, acked, subscribedAgain }: SotwState,
    response: IncomingSotw,
    reading: SotwReading,
    resolved: Interest[],
  ) {
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
        acked.put({ name, constraints, version, hash: undefined, confirmed: true, viaAlias: false });
      }
      for (const subscription of subscriptions.matching(name, aliases, constraints)) {
        if (subscription.kind !== 'name') continue;
        subscriptions.markResolved(subscription, resolved);
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
    this.renewIfDoubtful(state.type, state.type, () => {
      const asked = waitingCollections(state.subscriptions.unresolved);
      return sotwAnswers(state.lastRequestSeen, asked).size < asked.length;
    });
  }

  /** A name that is present is resolved, even if nothing changed: if it is missing later, it is absent. */
  #resolvePresent(
    { subscriptions, acked }: SotwState,
    missing: readonly Identity[],
    resolved: Interest[],
  ): void {
    const lacking = new VariantSet();
    for (const identity of missing) lacking.add(identity);
    for (const subscription of [...subscriptions.unresolved]) {
      if (subscription.kind !== 'name' || subscription.requestNumber === 0) continue;
      const present = acked
        .of(subscription.selector)
        .some((variant) => !lacking.has(variant) && isFor(subscription, variant.constraints));
      if (present) subscriptions.markResolved(subscription, resolved);
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
      if (code !== Code.NOT_FOUND || state.acked.hasName(name)) {
        namesWithErrors.add(name);
        continue;
      }
      for (const subscription of state.subscriptions.matching(name, [], constraints)) {
        // The error does not say for which parameters. It counts for all locators of this name that were in the first
        // request.
        if (subscription.kind === 'name' && (subscription.anyResponseAnswers || !subscription.isLocator))
          state.subscriptions.markResolved(subscription, resolved);
      }
    }
    return namesWithErrors;
  }

  /** A full state without it says that it is absent, if any response answers it. */
  #resolveMissing(state: SotwState, namesWithErrors: ReadonlySet<ResourceName>, resolved: Interest[]): void {
    for (const subscription of [...state.subscriptions.unresolved]) {
      if (subscription.anyResponseAnswers && !namesWithErrors.has(subscription.selector))
        state.subscriptions.markResolved(subscription, resolved);
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
    if (state.acked.get(name, constraints.key)?.confirmed === true) return false;
    const subscriptions = state.subscriptions.matching(name, [], constraints);
    return (
      subscriptions.length > 0 &&
      !subscriptions.some(
        (subscription) => subscription.resolvedOnThisStream || subscription.anyResponseAnswers,
      )
    );
  }
}

/** What a SotW response says: all of it judged, nothing of it done yet. */
interface SotwReading {
  /** What is new or changed; everything if there is no previous response to compare with. */
  readonly puts: readonly Put[];
  readonly resourceErrors: readonly ResourceError[];
  /** What a full state does not have any more. */
  readonly missing: readonly Identity[];
  /** Of all resources, in order. */
  readonly identities: readonly Identity[];
}

function* readAll(
  parts: ResponseParts,
  acked: AckedResources,
  fullState: boolean,
  response: IncomingSotw,
): InTurns<Result<SotwReading>> {
  const seen = new VariantSet();
  const puts = yield* parts.resources(response.resources, 0, response.resources.length, seen);
  if (!puts.ok) return puts;
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  const missing = fullState ? [...acked.all().filter((variant) => !seen.has(variant))] : [];
  const identities = puts.value.map(({ name, constraints }) => ({ name, constraints }));
  return ok({ puts: puts.value, resourceErrors: resourceErrors.value, missing, identities });
}

/** Undefined: the comparison is not enough, and the whole response must be read. */
function* compare(
  parts: ResponseParts,
  acked: AckedResources,
  fullState: boolean,
  previous: PreviousResponse,
  response: IncomingSotw,
): InTurns<Result<SotwReading> | undefined> {
  const { resources } = response;
  const { prefix, suffix } = commonEnds(previous.resources, resources);
  const end = resources.length - suffix;
  const seen = new VariantSet();
  const read = yield* parts.resources(resources, prefix, end, seen);
  if (!read.ok) return read;
  const before = positions(previous, prefix, previous.identities.length - suffix);
  const puts: Put[] = [];
  for (const [offset, put] of read.value.entries()) {
    const at = before
      .get(put.name)
      ?.find((index) => previous.identities[index]?.constraints.key === put.constraints.key);
    // It may be there twice: changed, and among what was not read because it is unchanged.
    if (at === undefined && prefix + suffix > 0 && acked.get(put.name, put.constraints.key) !== undefined) {
      return undefined;
    }
    // Where upstream cannot delete, all variants of a name count as received.
    if (!fullState && put.constraints.key !== '') return undefined;
    if (at === undefined || !sameRun(previous.resources, at, resources, prefix + offset, 1)) puts.push(put);
  }
  const resourceErrors = yield* parts.errors(response.errors);
  if (!resourceErrors.ok) return resourceErrors;
  const missing = fullState
    ? [...before.values().flatMap((indexes) => indexes.flatMap((index) => previous.identities[index] ?? []))]
    : [];
  const identities = [
    ...previous.identities.slice(0, prefix),
    ...read.value.map(({ name, constraints }) => ({ name, constraints })),
    ...previous.identities.slice(previous.identities.length - suffix),
  ];
  return ok({
    puts,
    resourceErrors: resourceErrors.value,
    missing: missing.filter((one) => !seen.has(one)),
    identities,
  });
}

/** Where each name is, from `start` to before `end`. */
function positions({ identities }: PreviousResponse, start: number, end: number) {
  const indexes = Array.from({ length: Math.max(0, end - start) }, (_, offset) => start + offset);
  return Map.groupBy(indexes, (index) => identities[index]?.name);
}

/** The requests for a change of what is subscribed: each names all that is. */
function sotwRequests(
  state: SotwState,
  subscribed: readonly UpstreamSubscription[],
  unsubscribed: readonly UpstreamSubscription[],
): readonly OutgoingRequest[] {
  const requests: OutgoingRequest[] = [];
  if (!state.hasNamed && unsubscribed.some(({ kind }) => kind === 'wildcard')) {
    // An empty list still means the wildcard. It can be unsubscribed only after "*" was named.
    requests.push(nameAll(state, ['*'], []));
  }
  const again = new Set(subscribed.map(({ selector }) => selector));
  const isNew = new Set(subscribed);
  // In a full-state type a name that is subscribed again must stay in the list: its absence would delete the
  // resource.
  const isLeftOut = (subscription: UpstreamSubscription): boolean =>
    again.has(subscription.selector) && !(state.isFull && isNew.has(subscription));
  const active = [...state.subscriptions.all().filter(({ suspended }) => !suspended)];
  if (unsubscribed.some(isLeftOut)) {
    // The store has dropped the resource. Upstream sends it again only if one request leaves the name out and the
    // next one adds it.
    requests.push(
      subscribeTo(
        state,
        active.filter((subscription) => !isNew.has(subscription)),
      ),
    );
  }
  requests.push(subscribeTo(state, active));
  return requests;
}

function subscribeTo(state: SotwState, subscriptions: readonly UpstreamSubscription[]): OutgoingRequest {
  const only = subscriptions.length === 1 ? subscriptions[0] : undefined;
  if (only?.kind === 'wildcard' && only.parameters.entries.size === 0 && !state.hasNamed) {
    // Every control plane knows the wildcard as an empty first request; not all know "*".
    if (state.info.legacyWildcard) return nameAll(state, [], []);
  }
  const names: string[] = [];
  const locators: Locator[] = [];
  for (const { selector, parameters } of subscriptions) {
    if (parameters.entries.size === 0) names.push(selector);
    else locators.push({ name: selector, parameters: [...parameters.entries] });
  }
  return nameAll(state, names, locators);
}

function nameAll(state: SotwState, names: readonly string[], locators: readonly Locator[]): OutgoingRequest {
  state.names = names;
  state.locators = locators;
  if (names.length + locators.length > 0) state.hasNamed = true;
  return sotwRequest(state);
}

/**
 * An ACK, a NACK or a change of what is subscribed. After a NACK changes repeat error_detail, so that they do not look like an ACK
 * (protocol §3.4).
 */
function sotwRequest(state: SotwState): OutgoingRequest {
  const { type, version, nonce, names, locators, lastNack } = state;
  return { kind: 'sotw', typeUrl: type, version, nonce, names, locators, error: lastNack };
}

/**
 * How many resources at the start and at the end are the same, byte by byte. Together at most the shorter's length.
 * Control planes that keep an order change a few resources in the middle: one memcmp of what is before and one of what
 * is after find them. Those that shuffle are compared resource by resource, by their names.
 */
function commonEnds(before: ByteRanges, after: ByteRanges) {
  const shorter = Math.min(before.length, after.length);
  const prefix = longestEqual(shorter, (from, to) => sameRun(before, from, after, from, to - from));
  const suffix = longestEqual(shorter - prefix, (from, to) =>
    sameRun(before, before.length - to, after, after.length - to, to - from),
  );
  return { prefix, suffix };
}

/** The largest count up to `limit` of which all are the same, by bisection. */
function longestEqual(limit: number, same: (from: number, to: number) => boolean): number {
  if (same(0, limit)) return limit;
  let low = 0;
  let high = limit;
  while (low + 1 < high) {
    const middle = (low + high) >>> 1;
    if (same(low, middle)) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Compares whole regions: a run of resources, with the tags and lengths between them. A region begins behind the length of
 * its first resource, so that length is compared too. Then equal bytes are the same resources:
 *
 *     … tag length [resource 3 tag length resource 4 tag length resource 5] …
 */
function sameRun(
  before: ByteRanges,
  from: number,
  after: ByteRanges,
  otherFrom: number,
  count: number,
): boolean {
  if (count === 0) return true;
  const [start, end] = [before.start(from), before.end(from + count - 1)];
  const [otherStart, otherEnd] = [after.start(otherFrom), after.end(otherFrom + count - 1)];
  if (end - start !== otherEnd - otherStart) return false;
  if (before.end(from) - start !== after.end(otherFrom) - otherStart) return false;
  return before.bytes.compare(after.bytes, otherStart, otherEnd, start, end) === 0;
}
