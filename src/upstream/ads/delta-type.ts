import { type ConstraintsKey, type ResourceName, resourceName, type TypeUrl } from '../../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { NO_PARAMETERS } from '../../model/parameters.ts';
import { ok, type Result } from '../../model/result.ts';
import type { InTurns } from '../../model/time-slices.ts';
import {
  type Heartbeat,
  type Put,
  type ResourceError,
  type Transaction,
  WILDCARD,
} from '../../model/transaction.ts';
import { isGlob } from '../../model/xdstp.ts';
import { exactly, isUnknownName } from '../../wire/between-relays.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingDelta, OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail, Locator } from '../../wire/requests.ts';
import type { IncomingResponse } from '../../wire/response-reader.ts';
import { type Identity, VariantSet } from '../variant-set.ts';
import type { AckedVariant } from './acked-resources.ts';
import { deltaAnswers, emptied, inDoubt, namesAnswered, ofOldestRequest } from './answer-attribution.ts';
import type { ResponseParts } from './response-parts.ts';
import { originalOf } from './stamp.ts';
import type { StreamEffects } from './stream-effects.ts';
import { type KeptType, SubscribedType } from './subscribed-type.ts';
import { type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/** One type on an incremental stream (protocol §4 from the client's side). */
export class DeltaType extends SubscribedType {
  /** Of the last response, while a later wildcard or glob waits: what this stream had delivered before, and whether so. */
  readonly repeated = new Map<Identity, boolean>();
  /** The last response had no entries. One that says that a name is missing has. */
  isEmpty = false;
  /** initial_resource_versions of the next first request: the resources that the relay has, with upstream's versions. */
  #initialVersions = noVersions;
  /** Wildcards and globs of which the last response said that a relay above does not know yet what they show (protocol §3.13). */
  #unknownAbove: ReadonlySet<UpstreamSubscription> = new Set();
  /** Subscriptions to names of which the last response has a resource, and none before it on this stream had. */
  readonly #justAnswered = new Set<UpstreamSubscription>();

  /**
   * Unchanged resources in initial_resource_versions need no answer. The others are swept, or they expire. `resumed`: the
   * stream is to the same endpoint as the last one.
   */
  constructor(stream: StreamEffects, of: KeptType, resumed: boolean) {
    super(stream, of);
    // Versions go only to the endpoint that they came from, also if the next stream is the second one to it.
    if (!resumed) for (const variant of this.acked.all()) variant.version = '';
    // What has a TTL may have expired in the cache, so upstream has to send it again. If it does not, the cache ends it.
    const lasting = [...this.acked.all()].filter(({ hasTtl }) => !resumed || !hasTtl);
    const confirmed = resumed ? this.#resumable(lasting) : [];
    this.#initialVersions = new Map(confirmed.map((variant) => [variant.name, variant.version]));
    for (const variant of confirmed) variant.confirmed = true;
    this.sweepPending = confirmed.length < lasting.length;
    for (const one of this.subscriptions.collections())
      one.resolvedOnThisStream = resumed && one.resolved && !this.sweepPending;
    if (!resumed) return;
    for (const one of this.subscriptions.all)
      if (one.kind === 'name')
        one.resolvedOnThisStream = one.resolved && this.covered(one).some(({ confirmed }) => confirmed);
  }

  /** What needs no answer on a new stream to the same endpoint: it goes into initial_resource_versions. */
  #resumable(lasting: readonly AckedVariant[]): AckedVariant[] {
    const { subscriptions } = this;
    const plain = this.#plainKey;
    // The answer to a wildcard or glob was cut off. If nothing has changed since, no response would complete it.
    if (subscriptions.unresolvedCollections.size > 0) return [];
    const confirmed: AckedVariant[] = [];
    let incomplete = false;
    let bytes = 0;
    let named = Iterator.from(subscriptions.collections()).reduce((sum, one) => sum + sizeOf(one), 0);
    for (const variant of lasting) {
      const { name, version, constraints } = variant;
      // What has no version here may be of another endpoint: if it is gone, nothing says so. A removal by name alone does
      // not say which variant is removed, or for which of several parameter sets.
      incomplete ||= version === '';
      if (!this.#isResumable(variant)) continue;
      const [own, ...others] = subscriptions.named(name);
      if (constraints.key !== plain || others.length > 0) {
        incomplete = true;
        continue;
      }
      bytes += sizeOfVersion(name, version);
      if (bytes > initialVersionsLimit) return [];
      named += own === undefined ? 0 : sizeOf(own);
      if (bytes + named > firstBytes) incomplete = true;
      else confirmed.push(variant);
    }
    // A wildcard or glob is resolved by a response, so something must be left that upstream has to send.
    const needsAnswer = (subscriptions.locators || incomplete) && subscriptions.hasCollection;
    return needsAnswer && confirmed.length < lasting.length ? [] : confirmed;
  }

  /** Of what upstream says no constraints of. */
  get #plainKey(): ConstraintsKey {
    const stamped = this.rules.stamp(UNCONSTRAINED);
    return (stamped.ok ? stamped.value : UNCONSTRAINED).key;
  }

  #isResumable(variant: AckedVariant): boolean {
    const { name, version, constraints } = variant;
    if (!this.acked.isOnly(variant) || version === '') return false;
    // Some control planes take what is named in initial_resource_versions for subscribed. What came by an alias only is
    // not subscribed by its name.
    const { subscriptions } = this;
    return subscriptions.matching(name, [], constraints).length > 0;
  }

  protected changeSubscriptions(
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[] {
    const { type, requestCount } = this;
    // What was unsubscribed before this is sent is not held any more, though it may be subscribed again.
    const held = this.#initialVersions.entries().filter(([name]) => this.acked.hasName(name));
    const initialVersions = new Map(held);
    this.#initialVersions = noVersions;
    this.#expectReturned(subscribed);
    const left = new Set(unsubscribed.map(({ selector }) => selector));
    const together = left.size === 0 || !subscribed.some(({ selector }) => left.has(selector));
    const named = requestCount === 1 && this.mayOmit(subscribed) ? [] : subscribed;
    // Servers apply subscribes before unsubscribes (§4.4): one message would unsubscribe what is subscribed again.
    const before = together ? [] : deltaRequests(type, [], unsubscribed, noVersions);
    const requests = deltaRequests(type, named, together ? unsubscribed : [], initialVersions);
    this.requestCount += requests.length - 1;
    return [...before, ...requests];
  }

  protected reply(): OutgoingRequest {
    return deltaRequest(this.type, { nonce: this.nonce, error: this.lastNack });
  }

  /** Silence about a name that this stream has delivered does not mean that it is absent: a new stream gets it. */
  #expectReturned(subscribed: readonly UpstreamSubscription[]): void {
    if (this.stream.options.resourceTimeoutMs === undefined) return;
    const returned = subscribed.filter((one) => one.kind === 'name' && this.hasReturned(one));
    this.#renewIfUnanswered(`returned ${this.requestCount}`, returned);
  }

  #renewIfUnanswered(doubt: string, names: readonly UpstreamSubscription[]): void {
    const waits = (one: UpstreamSubscription): boolean =>
      one.requestNumber > 0 && !one.resolvedOnThisStream && this.subscriptions.has(one);
    this.renewIfDoubtful(`${doubt} ${this.type}`, () => names.some(waits));
  }

  protected answeredBy(
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription> {
    const asked = candidates.filter((one) => !this.#unknownAbove.has(one));
    const answered = deltaAnswers(this, said, asked);
    this.repeated.clear();
    const doubtful = inDoubt(this, this.firstRequests, said, asked, answered);
    const waits = (one: UpstreamSubscription): boolean =>
      !one.responseSeen && !one.failed && this.subscriptions.has(one);
    // Each request by itself: that an earlier one is answered in time says nothing of a later one.
    for (const [request, later] of Map.groupBy(doubtful, ({ requestNumber }) => requestNumber))
      this.renewIfDoubtful(`${request} ${this.type}`, () => later.some(waits));
    return answered;
  }

  /** The subscription that is named with its parameters. */
  #exactly({ name, constraints }: ResourceError): readonly UpstreamSubscription[] {
    const original = originalOf(this.rules.stamp, constraints);
    const named = this.subscriptions.naming(name, original);
    return named.filter(({ parameters }) => exactly(parameters).key === original.key);
  }

  protected absentAfterTimeout({ kind }: UpstreamSubscription): boolean {
    return kind !== 'wildcard';
  }

  protected onTimeout(subscription: UpstreamSubscription): 'absent' | 'unknown' | 'silent' {
    if (subscription.resolvedOnThisStream) {
      this.#removeUnconfirmedOfName(subscription);
      return 'absent';
    }
    // An error keeps what is held. Of a name that is not held silence says that it does not exist, or one that is refused
    // for ever would withhold all others from a client that may have it (protocol §3.9).
    if (subscription.failed && this.holds(subscription)) return 'unknown';
    // A control plane that is silent altogether says nothing about what is held from before.
    if (!this.stream.controlPlaneResponded && this.holdsUnconfirmed(subscription)) return 'silent';
    this.removeUnconfirmed(subscription);
    return 'absent';
  }

  protected onUnsubscribed(subscription: UpstreamSubscription): void {
    if (subscription.requestNumber === 0) return;
    const { resourceTimeoutMs } = this.stream.options;
    const mayBeAnswered = subscription.mayBeAnswered && resourceTimeoutMs !== undefined;
    this.leave(subscription, this.subscriptions.locators && mayBeAnswered);
  }

  protected mayLackBody(put: Put): boolean {
    return isUnresolvable(put) || this.#isHeartbeat(put);
  }

  /** Only its TTL is new, or it has none any more (protocol §4.11). */
  #isHeartbeat({ any, name, constraints, version, ttlMilliseconds }: Put): boolean {
    if (any !== undefined || ttlMilliseconds !== undefined) return any === undefined;
    const known = this.acked.get(name, constraints.key);
    return known?.confirmed === true && known.version === version;
  }

  *judge(response: IncomingResponse): InTurns<Result<() => Transaction>> {
    const reading = yield* readDelta(this.partsOf(response), response);
    return reading.ok ? ok(() => this.#commit(response, reading.value)) : reading;
  }

  #commit({ version }: IncomingResponse, reading: DeltaReading): Transaction {
    const { removed, removedVariants } = reading;
    const resourceErrors = reading.resourceErrors.filter((error) => !isUnknownName(error));
    this.#unknownAbove = new Set(
      reading.resourceErrors.filter(isUnknownName).flatMap((one) => this.#exactly(one)),
    );
    const said = [reading.puts, removed, removedVariants, resourceErrors];
    this.isEmpty = said.every(({ length }) => length === 0);
    this.beginReading(resourceErrors);
    if (this.isEmpty) for (const wildcard of this.subscriptions.named(WILDCARD)) this.endError(wildcard);
    this.#noteRepeated(reading.puts);
    const { puts, heartbeats, answered } = this.#takeResources(reading.puts);
    for (const identity of removedVariants) this.#remove(identity, false, reading);
    for (const identity of removed) this.#remove(identity, true, reading);
    for (const error of notFound(reading)) {
      if (error.name === WILDCARD) this.#empty(error, reading.bodies);
      else this.#remove(error, error.constraints.key === this.#plainKey, reading);
    }
    // It has another variant than the one from an earlier stream: in one transaction, as a swap.
    for (const subscription of answered) this.#removeUnconfirmedOfName(subscription);
    this.takeErrors(resourceErrors);
    return this.saying({ version, puts, heartbeats, resourceErrors });
  }

  /** Before `acked` takes them. Only if a wildcard or glob waits that was not in the first request of the stream. */
  #noteRepeated(puts: readonly Put[]): void {
    if (this.requestCount <= 1 || waitingCollections(this.subscriptions.unresolvedCollections).length === 0)
      return;
    for (const put of puts)
      if (this.acked.get(put.name, put.constraints.key)?.confirmed === true)
        this.repeated.set(put, this.#isRepeated(put));
  }

  /**
   * This stream had delivered it before, with the same version or (NATIVE) the same body: a control plane may number each of
   * its answers, send no versions, or not encode the same body twice in the same way.
   */
  #isRepeated({ name, constraints, version, payload }: Put): boolean {
    const known = this.acked.get(name, constraints.key);
    if (known?.confirmed !== true) return false;
    const hash = payload?.hash;
    if (hash !== undefined && known.hash === hash) return true;
    return known.version === version && (hash === undefined || version !== '');
  }

  /** `answered`: the subscriptions to names that got a resource. */
  #takeResources(all: readonly Put[]) {
    const { subscriptions, acked } = this;
    const puts: Put[] = [];
    const heartbeats: Heartbeat[] = [];
    // Thousands of variants of one name may answer the same.
    const answered = new Set<UpstreamSubscription>();
    this.#justAnswered.clear();
    for (const put of all) {
      const { name, constraints, ttlMilliseconds, version, payload } = put;
      const known = acked.get(name, constraints.key);
      // A heartbeat need not repeat them.
      const aliases = put.any === undefined && known !== undefined ? known.aliases : put.aliases;
      if (!this.#isSubscribed({ name, aliases, constraints })) {
        // It has the alias no more that it was subscribed by.
        if (known !== undefined) this.#removeVariant(known);
        continue;
      }
      const repeated = this.#isRepeated(put);
      const isHeartbeat = put.any === undefined;
      const hasTtl = ttlMilliseconds !== undefined;
      if (isHeartbeat) {
        if (known === undefined || !this.#isHeartbeat(put)) continue;
        known.confirmed = true;
        known.hasTtl = hasTtl;
        const heartbeat = { name, constraints, ttlMilliseconds };
        heartbeats.push(heartbeat);
        // It is news of what this stream had delivered.
        if (this.repeated.has(put)) this.repeated.set(heartbeat, false);
      } else {
        puts.push(put);
        acked.put({ name, constraints, version, hash: payload?.hash, confirmed: true, aliases, hasTtl });
      }
      const matching = subscriptions.matching(name, aliases, constraints);
      if (!isHeartbeat) this.#endErrors(matching);
      for (const subscription of namesAnswered(matching, repeated)) {
        answered.add(subscription);
        if (!subscription.resolvedOnThisStream) this.#justAnswered.add(subscription);
        this.resolve(subscription);
      }
      if (matching.length > 1) this.#awaitOwnAnswers(matching);
    }
    return { puts, heartbeats, answered };
  }

  /** A resource, or a removal, is about all of these. A name that waits has its own answer. */
  #endErrors(matching: readonly UpstreamSubscription[]): void {
    for (const one of matching) if (one.kind !== 'name' || one.resolvedOnThisStream) this.endError(one);
  }

  /** False: it was on its way when its subscription ended, and upstream would not send its removal. */
  #isSubscribed({ name, aliases, constraints }: Pick<Put, 'name' | 'aliases' | 'constraints'>): boolean {
    const { subscriptions } = this;
    if (this.leaving.size === 0 || !subscriptions.locators) return subscriptions.includes(name, aliases);
    return subscriptions.matching(name, aliases, constraints).length > 0;
  }

  /** They may have answers of their own (see `namesAnswered`), or the server has sent one for several requests. */
  #awaitOwnAnswers(matching: readonly UpstreamSubscription[]): void {
    for (const { kind, resolvedOnThisStream, requestNumber } of matching) {
      if (kind === 'name' && !resolvedOnThisStream && requestNumber > 0)
        this.stopDoubting(requestNumber, () => this.#trustNames(requestNumber));
    }
  }

  /** The requests up to this one were so long ago that every response has seen them. */
  #trustNames(requestNumber: number): void {
    for (const subscription of this.subscriptions.unresolved) {
      if (subscription.kind === 'name' && subscription.requestNumber > 0)
        subscription.anyResponseAnswers ||= subscription.requestNumber <= requestNumber;
    }
  }

  /** `byName`: it is removed by its name alone. */
  #remove(identity: Identity, byName: boolean, reading: DeltaReading): void {
    const { name, constraints } = identity;
    const { acked, subscriptions } = this;
    if (isGlob(name)) {
      this.#empty(identity, reading.bodies);
      return;
    }
    this.#endErrors(subscriptions.matching(name, [], constraints));
    const exact = acked.get(name, constraints.key);
    const meant = byName ? this.#meantByName(name) : [];
    const removed = exact === undefined ? meant.filter((variant) => !reading.bodies.has(variant)) : [exact];
    const gone = removed.length > 0 || !byName ? removed : this.#onlyCalled(name, reading.bodies);
    for (const variant of gone) this.#removeVariant(variant);
    if (gone.length > 0) return;
    this.#resolveMissing(identity);
    // What was restored from disk was not delivered either, and may have stayed beside an error (protocol §8.2). To who still
    // waits it says nothing.
    const isAnswered = ({ resolvedOnThisStream, responseSeen }: UpstreamSubscription): boolean =>
      resolvedOnThisStream || responseSeen;
    if (subscriptions.collecting(name).some((one) => one.isFor(constraints) && isAnswered(one)))
      this.remove([identity]);
  }

  /** What is subscribed by this alias alone: it cannot be resolved any more (protocol §4.8). */
  #onlyCalled(alias: ResourceName, bodies: DeltaReading['bodies']): readonly AckedVariant[] {
    const { subscriptions } = this;
    // It says so to one of several locators: which, is not said. Nor is it an answer to one that has ended.
    if (subscriptions.named(alias).length !== 1 || this.leaving.isUnanswered(alias)) return [];
    const isOther = (one: string): boolean =>
      one !== alias && subscriptions.named(resourceName(one)).length > 0;
    const isOnly = ({ name, aliases, constraints }: AckedVariant): boolean =>
      name !== alias && subscriptions.matching(name, [], constraints).length === 0 && !aliases.some(isOther);
    return this.acked.called(alias).filter((variant) => !bodies.has(variant) && isOnly(variant));
  }

  /** A server without locators for the name may mean any variant: it has no other way to say so. */
  #meantByName(name: ResourceName): readonly AckedVariant[] {
    const { acked, subscriptions, leaving } = this;
    if (subscriptions.hasLocatorFor(name)) return [];
    const all = acked.of(name);
    const isForOthers = ({ aliases, constraints }: AckedVariant): boolean =>
      !constraints.matches(NO_PARAMETERS) &&
      subscriptions
        .matching(name, aliases, constraints)
        .some(({ parameters }) => parameters !== NO_PARAMETERS);
    const own = subscriptions.locators ? all.filter((one) => !isForOthers(one)) : all;
    if (own.length === all.length) return all;
    // It may be the answer to the plain name, or to its end (protocol §4.5). That says nothing of what a glob or an alias
    // shows for other parameters.
    const isAnswer = subscriptions.named(name).length > 0 || leaving.has(name);
    return isAnswer ? own : all;
  }

  /**
   * The URL of a collection that is empty (protocol §6), or NOT_FOUND of a wildcard or glob. Several locators may name it:
   * then nothing is removed, since members that are deleted are named, and those that it is for are resolved when no more
   * follows.
   */
  #empty({ name, constraints }: Identity, bodies: DeltaReading['bodies']): void {
    const { subscriptions } = this;
    // A relay above has nothing of it to say but this error.
    if (this.isFailing(name)) return;
    const named = subscriptions.named(name).filter((one) => one.isFor(constraints));
    if (this.#isForFormer(name, constraints, named)) return;
    for (const one of emptied(named)) {
      one.responseSeen = true;
      if (named.length > 1) continue;
      for (const variant of this.covered(one))
        if (one.shows(variant) && !bodies.has(variant)) this.#removeVariant(variant);
      this.resolve(one);
    }
  }

  #removeVariant(variant: Identity): void {
    this.remove([variant]);
    for (const subscription of this.subscriptions.matching(variant.name, [], variant.constraints)) {
      // A subscription that is newer than this response may still get another variant.
      if (subscription.kind === 'name' && (subscription.resolved || subscription.anyResponseAnswers))
        this.resolve(subscription);
    }
  }

  /**
   * The response removes a name that was never delivered. If several locators name it, the response does not say for
   * which parameters (protocol §5), unless it has constraints. Servers answer in order, so it is for the locators of
   * the oldest unanswered request. If that is only one, what it has from an earlier stream is removed.
   */
  #resolveMissing({ name, constraints }: Identity): void {
    const { subscriptions } = this;
    const named = subscriptions.naming(name, constraints);
    if (this.#isForFormer(name, constraints, named)) return;
    const meant = ofOldestRequest(named, this.#justAnswered);
    for (const subscription of meant) this.resolve(subscription);
    // The others have answers of their own. A relay of ours may have meant them too, and no silence would tell (§5.10).
    if (this.stream.options.resourceTimeoutMs === undefined)
      this.#renewIfUnanswered(`missing ${name}`, named);
    const [only] = meant;
    if (only !== undefined && meant.length === 1) this.#removeUnconfirmedOfName(only);
  }

  /** It may be the answer to one that was taken back: then a new stream asks for these. */
  #isForFormer(
    name: ResourceName,
    constraints: Constraints,
    named: readonly UpstreamSubscription[],
  ): boolean {
    if (!this.leaving.isUnanswered(name, constraints)) return false;
    // What was answered before may be gone. What is answered now is not.
    const waiting = new Set(named.filter(({ resolvedOnThisStream }) => !resolvedOnThisStream));
    const isDoubtful = (one: UpstreamSubscription): boolean =>
      this.subscriptions.has(one) && !(waiting.has(one) && one.resolvedOnThisStream);
    this.renewIfDoubtful(`missing ${name} ${this.type}`, () => named.some(isDoubtful));
    return true;
  }

  /**
   * What a resolved name has from an earlier stream. Variants that an unresolved subscription may still confirm stay.
   */
  #removeUnconfirmedOfName(subscription: UpstreamSubscription): void {
    if (subscription.kind !== 'name') return;
    const isGone = ({ name, aliases, constraints, confirmed }: AckedVariant): boolean =>
      !confirmed &&
      subscription.isFor(constraints) &&
      this.subscriptions.matching(name, aliases, constraints).every((one) => one.resolvedOnThisStream);
    this.remove(this.covered(subscription).filter(isGone));
  }
}

/** More in one first request is refused by common servers' limits (protocol §5b). */
const initialVersionsLimit = 3 * 1024 * 1024;

/** What a delta response says: all of it judged, nothing of it done yet. */
interface DeltaReading {
  readonly puts: readonly Put[];
  /** The variants that it has resources of. */
  readonly bodies: VariantSet;
  /** `removed_resources`, and what cannot be resolved: whatever is known under this name and has no constraints. */
  readonly removed: readonly Identity[];
  /** `removed_resource_names`: exactly these. */
  readonly removedVariants: readonly Identity[];
  readonly resourceErrors: readonly ResourceError[];
}

/** Judges a response. The error is the reason for a NACK. */
function* readDelta(parts: ResponseParts, response: IncomingResponse): InTurns<Result<DeltaReading>> {
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
  const missing = puts.value.filter(isUnresolvable);
  return ok({
    puts: missing.length === 0 ? puts.value : puts.value.filter((put) => !isUnresolvable(put)),
    bodies: seen.bodies,
    removed: [...removed.value, ...missing.flatMap(namesAskedFor)],
    removedVariants: removedVariants.value,
    resourceErrors: resourceErrors.value,
  });
}

/** The answer to names that are nobody's name or alias (protocol §4.8): they are its aliases, and it has no body. */
const isUnresolvable = ({ any, ttlMilliseconds, aliases }: Put): boolean =>
  any === undefined && ttlMilliseconds === undefined && aliases.length > 0;

/** Its own name may be anything: Envoy's test server makes one up. */
const namesAskedFor = ({ aliases, constraints }: Put): readonly Identity[] =>
  aliases.map((alias) => ({ name: resourceName(alias), constraints }));

/**
 * In delta NOT_FOUND is a removal (protocol §8): one of those that are not said already, in this way or the other, and
 * have no body beside them.
 */
function* notFound({ bodies, removed, removedVariants, resourceErrors }: DeltaReading): Iterable<Identity> {
  if (resourceErrors.length === 0) return;
  const names = new Set(removed.map(({ name }) => name));
  const said = new VariantSet(removedVariants);
  for (const error of resourceErrors) {
    const isNew = error.code === Code.NOT_FOUND && !names.has(error.name) && !bodies.has(error);
    if (isNew && said.add(error)) yield error;
  }
}

const noVersions: ReadonlyMap<ResourceName, string> = new Map();

/**
 * What one delta request names at most, in bytes. gRPC servers refuse messages of more than 4 MiB unless told
 * otherwise, and such a refusal ends the stream of all clients; beside the names there may be versions and the node.
 */
const mostBytes = 512 * 1024;
/**
 * The same of a first request with its versions. They count for the names of this request alone: go-control-plane has none
 * left for the names of the next ones.
 */
const firstBytes = mostBytes + initialVersionsLimit;

/** With tags and lengths. */
const sizeOf = ({ selector, parameters }: UpstreamSubscription): number =>
  Buffer.byteLength(selector) + Buffer.byteLength(parameters.key) + 16;
const sizeOfVersion = (name: string, version: string): number =>
  Buffer.byteLength(name) + Buffer.byteLength(version) + 12;

/**
 * A change of what is subscribed, in parts that every server takes: all subscribes, then all unsubscribes; at least one. What
 * has a version is in the first one, and so are wildcards and globs, as many as fit. A server answers one part after the
 * other, so each is a request of its own: what it subscribes counts on from the number that it has.
 */
export function deltaRequests(
  type: TypeUrl,
  subscribed: readonly UpstreamSubscription[],
  unsubscribed: readonly UpstreamSubscription[],
  initialVersions: ReadonlyMap<string, string>,
): OutgoingDelta[] {
  const parts = [emptyPart()];
  const versions = initialVersions
    .entries()
    .reduce((sum, [name, version]) => sum + sizeOfVersion(name, version), 0);
  let room = versions === 0 ? mostBytes : firstBytes - versions;
  let bytes = 0;
  const add = (subscription: UpstreamSubscription, into: 'subscribe' | 'unsubscribe'): void => {
    const { selector, parameters } = subscription;
    const size = sizeOf(subscription);
    if (bytes > 0 && bytes + size > room) {
      parts.push(emptyPart());
      bytes = 0;
      room = mostBytes;
    }
    bytes += size;
    if (into === 'subscribe') subscription.requestNumber += parts.length - 1;
    const part = parts.at(-1);
    if (parameters.entries.size === 0) part?.[into].push(selector);
    else part?.[`${into}Locators`].push({ name: selector, parameters: [...parameters.entries] });
  };
  const isLater = ({ kind, selector }: UpstreamSubscription): boolean =>
    kind === 'name' && !initialVersions.has(selector);
  for (const later of [false, true])
    for (const subscription of subscribed)
      if (isLater(subscription) === later) add(subscription, 'subscribe');
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

/**
 * Refuses a type that was never subscribed. An empty first request would subscribe to the whole type. Subscribing and
 * unsubscribing "*" in one request subscribes to nothing (§10.5).
 */
export const deltaRefusal = (type: TypeUrl, nonce: string, error: ErrorDetail): OutgoingRequest =>
  deltaRequest(type, { nonce, error, subscribe: ['*'], unsubscribe: ['*'] });

function deltaRequest(type: TypeUrl, part: Partial<OutgoingDelta>): OutgoingDelta {
  const rest = { nonce: '', initialVersions: noVersions, error: undefined };
  return { kind: 'delta', typeUrl: type, ...rest, ...emptyPart(), ...part };
}
