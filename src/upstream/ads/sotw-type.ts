import type { ResourceName } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { getOrMake } from '../../model/maps.ts';
import { ok, type Result } from '../../model/result.ts';
import type { InTurns } from '../../model/time-slices.ts';
import {
  type Heartbeat,
  type Put,
  type ResourceError,
  type Transaction,
  WILDCARD,
} from '../../model/transaction.ts';
import { parentGlob } from '../../model/xdstp.ts';
import { isUnknownName } from '../../wire/between-relays.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest, OutgoingSotw } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import type { ByteRanges, IncomingResponse } from '../../wire/response-reader.ts';
import { type Identity, VariantSet } from '../variant-set.ts';
import type { AckedResources, AckedVariant } from './acked-resources.ts';
import { isCompleteFor, lastRequestSeen, ofOldestRequest, sotwAnswers } from './answer-attribution.ts';
import type { AcceptanceRules, ResponseParts } from './response-parts.ts';
import { originalOf } from './stamp.ts';
import type { StreamEffects } from './stream-effects.ts';
import { isLasting, type KeptType, SubscribedType } from './subscribed-type.ts';
import { SubscribedAgain, type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/**
 * The last SotW response of a type. The next one is compared with it byte by byte, so that a response with 50,000
 * resources, of which one has changed, creates objects only for that one.
 */
interface PreviousResponse {
  readonly resources: ByteRanges;
  /** Of each resource, in order. */
  readonly identities: readonly Identity[];
  /** Some have constraints. */
  readonly constrained: boolean;
  /** By which it was judged. By others its resources would be other variants. */
  readonly rules: AcceptanceRules;
}

/**
 * One type on a state-of-the-world stream (protocol §3 from the client's side). SotW does not say which request a response
 * answers:
 *
 *     → names [a]   → names [a, b]   ← {a}, an answer to the first request: b is unknown, not absent
 *
 * Every response has seen the type's first request on the stream, so what is missing of that request is absent. A name
 * that was added later is absent if it came before and is missing now, or after resource_timeout.
 */
export class SotwType extends SubscribedType {
  /** The last response, where the next one can be compared with it. */
  #previous: PreviousResponse | undefined;
  /** A full state was applied: the store has nothing from this holder but what this stream delivered. */
  #storeSwept = false;
  /** Something was named: from then on an empty list subscribes to nothing (protocol §3.6). */
  #hasNamed = false;
  /** No response of this stream has been taken over. */
  #isFirst = true;
  #names: readonly string[] = [];
  #locators: readonly Locator[] = [];
  /**
   * The newest request that upstream has seen for certain: a response had something that only this request subscribed
   * to.
   */
  #lastRequestSeen = 0;
  /**
   * Something was unsubscribed. A resource may still come for it, so it does not prove which request upstream has seen.
   */
  #attributionAmbiguous = false;
  readonly #subscribedAgain = new SubscribedAgain();
  /** Names of which the last response said that a relay above does not know them yet (protocol §3.13). */
  #unknownAbove: ReadonlySet<ResourceName> = new Set();

  constructor(stream: StreamEffects, of: KeptType) {
    super(stream, of);
    if (of instanceof SotwType) {
      this.#previous = of.#previous;
      this.#storeSwept = of.#storeSwept;
    }
    // Control planes count from 1 again when they restart, and are silent about a version that they think is known:
    // without one everything comes, and is compared (protocol §3.10).
    this.version = '';
  }

  /** Absence deletes (protocol §3.7). */
  get #isFull(): boolean {
    return this.info.fullState || this.holder.role === 'wildcard';
  }

  override get keptBytes(): number {
    return this.#previous?.resources.bytes.length ?? 0;
  }

  /** Each request names all that is subscribed. */
  protected changeSubscriptions(
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[] {
    if (!this.#isFull && this.requestCount > 1)
      this.#subscribedAgain.subscribe(subscribed, unsubscribed, this.leaving);
    if (!this.#isFull && unsubscribed.length > 0) this.#forgetPrevious();
    const requests: OutgoingRequest[] = [];
    if (!this.#hasNamed && unsubscribed.some(({ kind }) => kind === 'wildcard')) {
      // An empty list still means the wildcard. It can be unsubscribed only after "*" was named.
      requests.push(this.#name(['*'], []));
    }
    const again = new Set(subscribed.map(({ selector }) => selector));
    const isNew = new Set(subscribed);
    // In a full-state type a name that is subscribed again must stay in the list: its absence would delete the
    // resource.
    const isLeftOut = (one: UpstreamSubscription): boolean =>
      again.has(one.selector) && !(this.#isFull && isNew.has(one));
    const active = [...this.subscriptions.all];
    // The store has dropped the resource. Upstream sends it again only if one request leaves the name out and the
    // next one adds it.
    if (unsubscribed.some(isLeftOut))
      requests.push(this.#subscribeTo(active.filter((one) => !isNew.has(one))));
    const request = this.#subscribeTo(active);
    // Without a version it is sent also by those who think that this stream has it. In a full-state type a name that is
    // asked for once more stays in the list: with a version the request would be an ACK.
    const isAskedAgain = this.#isFull && unsubscribed.some((one) => isNew.has(one));
    const isOwed = isAskedAgain || subscribed.some((one) => this.hasDropped || this.hasReturned(one));
    requests.push(isOwed ? { ...request, version: '' } : request);
    return requests;
  }

  #subscribeTo(subscriptions: readonly UpstreamSubscription[]): OutgoingSotw {
    if (!this.#hasNamed && this.mayOmit(subscriptions)) return this.#name([], []);
    const names: string[] = [];
    const locators: Locator[] = [];
    for (const { selector, parameters } of subscriptions) {
      if (parameters.entries.size === 0) names.push(selector);
      else locators.push({ name: selector, parameters: [...parameters.entries] });
    }
    return this.#name(names, locators);
  }

  #name(names: readonly string[], locators: readonly Locator[]): OutgoingSotw {
    this.#names = names;
    this.#locators = locators;
    if (names.length + locators.length > 0) this.#hasNamed = true;
    return this.reply();
  }

  /**
   * Also a change of what is subscribed. After a NACK such a change repeats error_detail, so that it does not look like an
   * ACK (protocol §3.4).
   */
  protected reply(): OutgoingSotw {
    const { type: typeUrl, version, nonce, lastNack: error } = this;
    return {
      kind: 'sotw',
      typeUrl,
      version,
      nonce,
      names: this.#names,
      locators: this.#locators,
      error,
    };
  }

  protected answeredBy(
    _: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    return sotwAnswers(this.#lastRequestSeen, candidates);
  }

  protected absentAfterTimeout({ kind }: UpstreamSubscription): boolean {
    return this.info.fullState && kind !== 'wildcard';
  }

  protected onTimeout(
    subscription: UpstreamSubscription,
    extended: boolean,
  ): 'absent' | 'unknown' | 'extend' {
    if (subscription.resolvedOnThisStream) return 'absent';
    const isUnknownAbove = this.#unknownAbove.has(subscription.selector);
    // A relay above may say nothing before something is known to it. Its own timeout comes a little later.
    const extend = !extended && (this.nonce === '' || isUnknownAbove);
    // What is held goes with a response that lacks it, not with silence: one since its request, after which none came. What
    // this stream has delivered of a glob by another name stays with that.
    const isHeld =
      subscription.kind === 'glob' ? this.holdsUnconfirmed(subscription) : this.holds(subscription);
    if (!extend && !isUnknownAbove && (!isHeld || subscription.responseSeen)) {
      this.removeUnconfirmed(subscription);
      return 'absent';
    }
    subscription.anyResponseAnswers = true;
    return extend ? 'extend' : 'unknown';
  }

  protected onUnsubscribed(subscription: UpstreamSubscription): void {
    this.#forgetPrevious();
    if (subscription.requestNumber === 0) return;
    this.#attributionAmbiguous = true;
    if (this.#isFull || subscription.kind !== 'name') return;
    this.leave(subscription);
  }

  /** The next response is read as a whole: what it repeats counts as well. */
  #forgetPrevious(): void {
    if (this.#previous === undefined) return;
    this.#previous = undefined;
    this.rules = { ...this.rules }; // a response that is being read is read again
  }

  protected override askAgain(): readonly UpstreamSubscription[] {
    return this.#subscribedAgain.unanswered(this.subscriptions);
  }

  /** A heartbeat: only its TTL is new, or it has none any more (protocol §4.11). Its version is mostly the response's. */
  protected mayLackBody({ any, name, constraints, ttlMilliseconds, version }: Put, ofAll: string): boolean {
    if (any !== undefined || ttlMilliseconds !== undefined) return any === undefined;
    const known = this.acked.get(name, constraints.key);
    return known?.confirmed === true && (version === '' ? ofAll === this.version : version === known.version);
  }

  *judge(response: IncomingResponse): InTurns<Result<() => Transaction>> {
    const { rules, acked, subscriptions } = this;
    const fullState = this.#isFull;
    const deletes = fullState || subscriptions.hasCollection;
    const last = this.#previous?.rules === rules ? this.#previous : undefined;
    // Where upstream cannot delete, the last received match wins, so all variants count as received (protocol §5). As
    // long as the store may have more than this stream delivered, it gets the whole response. A resource ends the error
    // of its glob, also if it has not changed.
    const hasFailed = subscriptions.collections().some(({ failed }) => failed);
    const comparable = fullState ? this.#storeSwept : last?.constrained === false && !hasFailed;
    const parts = this.partsOf(response);
    const reading = yield* readSotw(
      parts,
      acked,
      { fullState, deletes },
      comparable ? last : undefined,
      response,
    );
    return reading.ok ? ok(() => this.#commit(response, reading.value)) : reading;
  }

  #commit({ version, resources }: IncomingResponse, reading: SotwReading): Transaction {
    const { subscriptions, rules } = this;
    const { identities } = reading;
    const resourceErrors = reading.resourceErrors.filter((error) => !isUnknownName(error));
    this.#unknownAbove = new Set(reading.resourceErrors.filter(isUnknownName).map(({ name }) => name));
    const fullState = this.#isFull;
    const missing = fullState ? reading.missing : reading.missing.filter((one) => this.#isOfGlobsOnly(one));
    this.beginReading(resourceErrors);
    // A relay above says an error once (§8.2). Where names are updated by themselves, what comes next may be about others.
    const notFound = Map.groupBy(
      resourceErrors.filter(({ code }) => code === Code.NOT_FOUND),
      ({ name }) => name,
    );
    for (const collection of subscriptions.collections()) {
      const said = notFound.get(collection.selector) ?? [];
      if (fullState || said.some(({ constraints }) => collection.isFor(constraints)))
        this.endError(collection);
    }
    const { puts, heartbeats, isRepeatable } = this.#takeResources(version, reading);
    this.#confirmRepeated(reading);
    this.#attribute(puts);
    this.#resolveNotFound(notFound);
    if (fullState) {
      this.#resolvePresent(missing);
      this.#resolveMissing();
    }
    this.takeErrors(resourceErrors);
    /** All variants of its name are not, or this one. */
    const isNotFound = ({ name, constraints: { key } }: Identity): boolean =>
      notFound
        .get(name)
        ?.some(({ constraints: of }) => of.key === key || originalOf(rules.stamp, of).key === '') === true;
    const present = this.#presentOf(missing);
    const gone = missing
      .filter((identity) => !this.#mayStillExist(identity, present))
      .filter((identity) => isNotFound(identity) || !this.#hasLastingError(identity));
    this.remove(gone);
    const allRemoved = gone.length === missing.length;
    // Before the first full state, the store may hold resources that this session does not know: those restored from
    // disk.
    const hasFailed = this.#unknownAbove.size > 0 || resourceErrors.some(isLasting);
    const mayComplete = fullState && !this.#storeSwept && allRemoved && !hasFailed;
    const complete = mayComplete && isCompleteFor(subscriptions, this.#lastRequestSeen);
    if (complete) this.#storeSwept = true;
    const constrained = identities.some((identity) => identity.constraints.key !== '');
    this.#previous = isRepeatable && allRemoved ? { resources, identities, constrained, rules } : undefined;
    return this.saying({ version, puts, heartbeats, resourceErrors, complete, cannotDelete: !fullState });
  }

  /** What equals the last response of the stream before was not read: this stream has delivered it all the same. */
  #confirmRepeated({ identities, puts }: SotwReading): void {
    if (!this.#isFirst) return;
    this.#isFirst = false;
    const read = new VariantSet(puts);
    for (const identity of identities) {
      const known = this.acked.get(identity.name, identity.constraints.key);
      if (known !== undefined && !read.has(identity)) known.confirmed = true;
    }
  }

  /** `isRepeatable`: the same resources again would say nothing new. */
  #takeResources(ofAll: string, reading: SotwReading) {
    const { subscriptions, acked } = this;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    let isRepeatable = true;
    this.hasDropped = false;
    for (const put of reading.puts) {
      const { name, constraints, aliases, ttlMilliseconds } = put;
      // Each response starts a TTL anew, and without a body its version counts.
      if (ttlMilliseconds !== undefined || put.any === undefined) isRepeatable = false;
      if (!subscriptions.includes(name, aliases)) {
        isRepeatable = false; // nobody subscribes to it, or not any more
        this.hasDropped = true;
      } else if (put.any === undefined) {
        if (!this.mayLackBody(put, ofAll)) continue;
        if (acked.get(name, constraints.key) !== undefined)
          heartbeats.push({ name, constraints, ttlMilliseconds });
      } else {
        const version = put.version === '' ? ofAll : put.version;
        puts.push({ ...put, version });
        const hasTtl = ttlMilliseconds !== undefined;
        acked.put({ name, constraints, version, hash: undefined, confirmed: true, aliases, hasTtl });
      }
      const matching = subscriptions.matching(name, aliases, constraints);
      // The store has it for others at most, and drops it with them.
      if (matching.length === 0) isRepeatable = false;
      for (const subscription of matching) {
        if (subscription.kind !== 'name') {
          if (put.any !== undefined) this.endError(subscription);
          continue;
        }
        this.resolve(subscription);
        this.#subscribedAgain.received(subscription);
      }
    }
    return { puts, heartbeats, isRepeatable };
  }

  /**
   * A response can arrive after a second wildcard was subscribed and still answer only the first: → names [*], →
   * names [*, xdstp://a/*], ← response to the first request. Names missing from it say nothing about the second.
   */
  #attribute(puts: readonly Put[]): void {
    const { subscriptions, type } = this;
    if (this.requestCount < 2 || !subscriptions.hasCollection) return;
    if (!this.#attributionAmbiguous)
      this.#lastRequestSeen = Math.max(this.#lastRequestSeen, lastRequestSeen(subscriptions, puts));
    this.renewIfDoubtful(type, () => {
      const asked = waitingCollections(subscriptions.unresolvedCollections);
      return sotwAnswers(this.#lastRequestSeen, asked).size < asked.length;
    });
  }

  /** A name that is present is resolved, even if nothing changed: if it is missing later, it is absent. */
  #resolvePresent(missing: readonly Identity[]): void {
    const lacking = new VariantSet(missing);
    for (const subscription of [...this.subscriptions.unresolved]) {
      if (subscription.kind !== 'name' || subscription.requestNumber === 0) continue;
      const present = this.covered(subscription).some(
        (variant) => !lacking.has(variant) && subscription.isFor(variant.constraints),
      );
      if (present) this.resolve(subscription);
    }
  }

  /**
   * That it is missing is no deletion (§8): it has an error that does not say that it does not exist, or a relay above does
   * not know it yet.
   */
  #hasError(name: ResourceName): boolean {
    return this.isFailing(name) || this.#unknownAbove.has(name);
  }

  /** It, or what may show it. */
  #hasErrorOver(name: ResourceName): boolean {
    const glob = parentGlob(name);
    return this.#hasError(name) || this.#hasError(WILDCARD) || (glob !== undefined && this.#hasError(glob));
  }

  /** Where absence means nothing, an error does not remove either. */
  #resolveNotFound(notFound: ReadonlyMap<ResourceName, readonly ResourceError[]>): void {
    for (const [name, errors] of notFound) {
      if (!this.#isFull && this.acked.hasName(name)) continue;
      for (const { constraints } of errors)
        for (const one of this.#saidMissing(name, constraints)) this.resolve(one);
    }
  }

  /**
   * NOT_FOUND does not say for which parameters. It counts for all locators of this name that were in the first request. Where
   * silence says nothing, a later one that waits takes it for its answer, in the order of requests. A relay above may have
   * meant more of them.
   */
  #saidMissing(name: ResourceName, constraints: Constraints): readonly UpstreamSubscription[] {
    const { subscriptions, type } = this;
    const named = subscriptions.naming(name, constraints).filter(({ kind }) => kind === 'name');
    const first = named.filter((one) => one.anyResponseAnswers || !one.isLocator);
    if (this.#isFull || this.leaving.has(name)) return first;
    const meant = [...first, ...ofOldestRequest(named)];
    const waits = (one: UpstreamSubscription): boolean =>
      one.requestNumber > 0 && !one.resolvedOnThisStream && !meant.includes(one) && subscriptions.has(one);
    this.renewIfDoubtful(`missing ${name} ${type}`, () => named.some(waits));
    return meant;
  }

  /** A full state without it says that it is absent, if any response answers it. */
  #resolveMissing(): void {
    const { subscriptions } = this;
    for (const subscription of [...subscriptions.unresolved]) {
      const { kind, requestNumber, failed, selector } = subscription;
      // An error for its glob or for everything keeps what is cached, and is no answer.
      const mayExist = this.#hasErrorOver(selector) && (this.#hasError(selector) || this.holds(subscription));
      if (subscription.anyResponseAnswers && !mayExist) this.resolve(subscription);
      else if (kind === 'name') subscription.responseSeen = requestNumber > 0 && !mayExist && !failed;
    }
    for (const subscription of subscriptions.named('*'))
      if (subscription.anyResponseAnswers) subscription.resolvedOnThisStream = true;
  }

  /** A glob makes each response a full state (protocol §3.7). Of what is subscribed by name it may be an update. */
  #isOfGlobsOnly({ name, constraints }: Identity): boolean {
    if (this.subscriptions.collecting(name).length === 0) return false;
    const aliases = this.acked.get(name, constraints.key)?.aliases ?? [];
    return [name, ...aliases].every((one) => this.subscriptions.named(one).length === 0);
  }

  /** What a full state has of a name, asked for once: thousands of variants of it may be missing. */
  #presentOf(missing: readonly Identity[]): PresentOf {
    let lacking: VariantSet | undefined;
    const known = new Map<ResourceName, readonly AckedVariant[]>();
    const isPresent = (one: AckedVariant): boolean => {
      lacking ??= new VariantSet(missing);
      return one.confirmed && !lacking.has(one);
    };
    return (of) => getOrMake(known, of, () => this.acked.of(of).filter(isPresent));
  }

  /**
   * A full state has another variant of its name for all parameters that it was for: an error beside that is none about
   * it, and both would be served (protocol §3.9).
   */
  #isReplaced({ name, constraints }: Identity, presentOf: PresentOf): boolean {
    const others = this.#isFull ? presentOf(name) : [];
    if (others.length === 0) return false;
    const aliases = this.acked.get(name, constraints.key)?.aliases ?? [];
    const parameters = this.subscriptions
      .matching(name, aliases, constraints)
      .flatMap(({ interests }) => [...interests.values()].map((interest) => interest.parameters))
      .filter((one) => constraints.matches(one));
    return (
      parameters.length > 0 && parameters.every((own) => others.some((one) => one.constraints.matches(own)))
    );
  }

  /** Whether it may be there although this response does not have it. */
  #mayStillExist({ name, constraints }: Identity, presentOf: PresentOf): boolean {
    if (this.#hasErrorOver(name) && !this.#isReplaced({ name, constraints }, presentOf)) return true;
    // A resource that this stream delivered and a later response lacks is removed, even if its wildcard is not
    // resolved yet. Where names are updated by themselves, the response may be older than the glob.
    const known = this.acked.get(name, constraints.key);
    if (this.#isFull && known?.confirmed === true) return false;
    const matching = this.subscriptions.matching(name, known?.aliases ?? [], constraints);
    const isAnswered = (one: UpstreamSubscription): boolean =>
      one.resolvedOnThisStream || one.anyResponseAnswers || (!this.#isFull && one.responseSeen);
    return matching.length > 0 && !matching.some(isAnswered);
  }

  /** An earlier response had an error for it or for its glob, and nothing has ended that. */
  #hasLastingError({ name, constraints }: Identity): boolean {
    const known = this.acked.get(name, constraints.key);
    if (this.#isFull || known === undefined) return false;
    const matching = this.subscriptions.matching(name, known.aliases, constraints);
    if (matching.some(({ failed }) => failed)) return true;
    if (known.confirmed || matching.length === 0) return false;
    return !matching.some((one) => this.acked.isGone(known, one));
  }
}

type PresentOf = (name: ResourceName) => readonly AckedVariant[];

/** What a SotW response says: all of it judged, nothing of it done yet. */
interface SotwReading {
  /** What is new or changed; everything if there is no previous response to compare with. */
  readonly puts: readonly Put[];
  readonly resourceErrors: readonly ResourceError[];
  /** What the response does not have, if that may say something. */
  readonly missing: readonly Identity[];
  /** Of all resources, in order. */
  readonly identities: readonly Identity[];
}

/** Judges a response; with a previous one, only what differs from it, unless that is not enough. */
function* readSotw(
  parts: ResponseParts,
  acked: AckedResources,
  absence: { readonly fullState: boolean; readonly deletes: boolean },
  previous: PreviousResponse | undefined,
  response: IncomingResponse,
): InTurns<Result<SotwReading>> {
  const { resources, errors } = response;
  const { prefix, suffix } = previous === undefined ? noneEqual : commonEnds(previous.resources, resources);
  const seen = new VariantSet();
  const read = yield* parts.resources(resources, prefix, resources.length - suffix, seen);
  if (!read.ok) return read;
  const known = previous?.identities ?? [];
  const replaced = known.slice(prefix, known.length - suffix);
  const before = new VariantSet<Identity & { readonly at: number }>(
    replaced.map(({ name, constraints }, at) => ({ name, constraints, at })),
  );
  const places = read.value.map(({ name, constraints }) => before.get(name, constraints.key)?.at);
  const isDoubtful = ({ name, constraints }: Put, offset: number): boolean => {
    // Where upstream cannot delete, all variants of a name count as received.
    if (!absence.fullState && constraints.key !== '') return true;
    // It may be there twice: changed, and among what was not read because it is unchanged.
    if (places[offset] !== undefined || prefix + suffix === 0) return false;
    return acked.get(name, constraints.key) !== undefined;
  };
  if (previous !== undefined && read.value.some(isDoubtful))
    return yield* readSotw(parts, acked, absence, undefined, response);
  const isChanged = (_: Put, offset: number): boolean => {
    const at = places[offset];
    if (at === undefined || previous === undefined) return true;
    return !sameRun(previous.resources, prefix + at, resources, prefix + offset, 1);
  };
  const resourceErrors = yield* parts.errors(errors);
  if (!resourceErrors.ok) return resourceErrors;
  const mayBeMissing = previous === undefined ? acked.all() : replaced.values();
  return ok({
    puts: previous === undefined ? read.value : read.value.filter(isChanged),
    resourceErrors: resourceErrors.value,
    missing: absence.deletes ? mayBeMissing.filter((one) => !seen.has(one)).toArray() : [],
    identities: [
      ...known.slice(0, prefix),
      ...read.value.map(({ name, constraints }) => ({ name, constraints })),
      ...known.slice(known.length - suffix),
    ],
  });
}

const noneEqual = { prefix: 0, suffix: 0 };

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
