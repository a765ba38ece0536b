import type { TypeUrl } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import type { Result } from '../../model/result.ts';
import { atOnce, type InTurns } from '../../model/time-slices.ts';
import {
  type Holder,
  type Interest,
  type Move,
  type Put,
  type Removal,
  type ResourceError,
  roleOf,
  type Selector,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { isKnownType, type TypeInfo, typeInfo } from '../../model/types.ts';
import { Code } from '../../wire/grpc-status.ts';
import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { IncomingResponse } from '../../wire/response-reader.ts';
import type { Identity } from '../variant-set.ts';
import { AckedResources, type AckedVariant } from './acked-resources.ts';
import { type AcceptanceRules, ResponseParts } from './response-parts.ts';
import { originalOf, type Stamp } from './stamp.ts';
import type { Awaited, MachineOptions, StreamEffects } from './stream-effects.ts';
import {
  Leaving,
  LeftOnStream,
  type UpstreamSubscription,
  UpstreamSubscriptions,
  waitingCollections,
} from './upstream-subscriptions.ts';

/**
 * Some control planes split the first answer to a wildcard. It is complete when nothing more has come for this long
 * (protocol §5b).
 */
const quietPeriodMs = 300;
const longestQuietWaitMs = 3000;
/**
 * A fifteenth of resource_timeout is added in SotW, where the upstream may be a relay that does not know yet: 16 s instead
 * of 15 s. The relay above waits 15 s for its own control plane, and its answer must arrive first.
 */
export const extensionShare = 15;
/**
 * `extend`: the timeout is a little longer. `silent`: the control plane has said nothing at all, so its time begins
 * when it does.
 */
type Postponed = 'extend' | 'silent';
/** The second rejection in a row for one reason waits so long, each further one twice as long: some servers send again at once. */
const nackDelayMs = { first: 1000, longest: 30_000 };
/** So many new reasons do not wait: a server that sends in another order each time gets another reason each time. */
const mostReasonsAtOnce = 5;
const reasonLimit = 2000;
/** How long the relay waits for a response that shows that it answers a later wildcard or glob. */
const attributionWaitMs = 2000;
/** How long something is on its way, where silence says nothing (`resourceTimeoutMs`). */
const longestWayMs = 15_000;

/** What of a type lives on over reconnects, as the store's content does, also if it moves to another stream of its session. */
export type KeptType = Pick<
  SubscribedType,
  'type' | 'holder' | 'subscriptions' | 'acked' | 'rules' | 'version'
>;

/** The type of an interest, of which nothing is known yet: its wildcard or its names. */
export function newType(interest: Interest, options: MachineOptions, stamp: Stamp): KeptType {
  const { holders, locators, maxConstraintDepth } = options;
  const { type } = interest;
  return {
    type,
    holder: holders[roleOf(interest)],
    subscriptions: new UpstreamSubscriptions(locators),
    acked: new AckedResources(),
    rules: { type, stamp, maxConstraintDepth },
    version: '',
  };
}

/**
 * One type on one stream: its wildcard or its names, never both (protocol §5b). What happens to it are its methods; what is
 * to be done goes to the stream's effects. This is what SotW and delta share; the methods without a body are where they
 * differ (protocol §3 and §4 seen from the client).
 */
export abstract class SubscribedType {
  readonly type: TypeUrl;
  readonly info: TypeInfo;
  readonly holder: Holder;
  readonly subscriptions: UpstreamSubscriptions;
  readonly acked: AckedResources;
  /** Another object: what was read by the one before must be read again. */
  rules: AcceptanceRules;
  /** Of the last accepted response. */
  version: string;
  /**
   * Some resources of earlier streams are not confirmed on this one. Once the wildcard or glob is resolved, what is
   * still not confirmed is removed.
   */
  sweepPending = false;
  /** Subscription requests on this stream. */
  requestCount = 0;
  /** So many of them had the first subscriptions in parts: a new stream would ask for these in the same way. */
  firstRequests = 0;
  /** Of the last response on this stream, accepted or not. */
  protected nonce = '';
  /** Of the last response, if it was rejected. */
  protected lastNack: ErrorDetail | undefined;
  /** The last accepted response had something that nobody subscribed to: it is not kept (protocol §5b.14). */
  protected hasDropped = false;
  protected readonly stream: StreamEffects;
  /** Since the last accepted response: new reasons that did not wait, and NACKs since the last of them. */
  #reasonsAtOnce = 0;
  #nacksInARow = 0;
  /** Some response on this stream was rejected. */
  #hasRejected = false;
  /** Not sent yet on this stream. */
  readonly #toSubscribe = new Set<UpstreamSubscription>();
  /** Subscribed on this stream, and to be unsubscribed with the next request. */
  #toUnsubscribe: UpstreamSubscription[] = [];
  readonly leaving = new Leaving();
  readonly #mayReturn = new LeftOnStream();
  /** What has been concluded and is not in a transaction yet. */
  #concluded: { readonly removals: Removal[]; readonly resolved: Interest[] } = {
    removals: [],
    resolved: [],
  };
  /** The names with errors, other than NOT_FOUND, of the last response. */
  #failing: ReadonlySet<string> = new Set();

  /** On a new stream everything is subscribed anew. */
  constructor(stream: StreamEffects, { type, holder, subscriptions, acked, rules, version }: KeptType) {
    this.stream = stream;
    this.type = type;
    this.info = typeInfo(type);
    this.holder = holder;
    this.subscriptions = subscriptions;
    this.acked = acked;
    this.rules = rules;
    this.version = version;
    acked.startOver();
    for (const subscription of subscriptions.all) {
      subscription.startOver();
      this.#toSubscribe.add(subscription);
    }
  }

  /** Judges a response, in turns; changes nothing. Its result takes the response over; the error is the reason for a NACK. */
  abstract judge(response: IncomingResponse): InTurns<Result<() => Transaction>>;
  /** The requests for a change of what is subscribed. `requestCount` is that of the first one; it counts the others. */
  protected abstract changeSubscriptions(
    subscribed: readonly UpstreamSubscription[],
    unsubscribed: readonly UpstreamSubscription[],
  ): readonly OutgoingRequest[];
  /** An ACK, or with `lastNack` a NACK, of `nonce`. */
  protected abstract reply(): OutgoingRequest;
  /** Whether a resource without a body says something else. `version`: of its response. */
  protected abstract mayLackBody(put: Put, version: string): boolean;
  /**
   * Which of these wildcards and globs a response may answer. It may also be an update, or answer another subscription.
   */
  protected abstract answeredBy(
    said: Transaction,
    candidates: readonly UpstreamSubscription[],
  ): ReadonlySet<UpstreamSubscription>;
  /** Before the resources of this subscription are dropped, because nobody subscribes to them any more. */
  protected abstract onUnsubscribed(subscription: UpstreamSubscription): void;
  /** After a response: what must be left out and subscribed once more, because upstream may not have seen that it was. */
  protected askAgain?(): readonly UpstreamSubscription[];
  /** Whether silence means absence in the end (protocol §3.9): for names, in SotW only of full-state types. */
  protected abstract absentAfterTimeout(subscription: UpstreamSubscription): boolean;
  /**
   * resource_timeout has passed, or (`extended`) a little more. If it is absent, what it has from earlier streams is
   * removed.
   */
  protected abstract onTimeout(
    subscription: UpstreamSubscription,
    extended: boolean,
  ): 'absent' | 'unknown' | Postponed;

  /** Every control plane knows the wildcard as an empty first request; not all know "*". */
  protected mayOmit(subscribed: readonly UpstreamSubscription[]): boolean {
    if (subscribed.length !== 1 || subscribed[0]?.isPlainWildcard !== true) return false;
    return this.info.legacyWildcard && !this.stream.hasForgotten;
  }

  /** Nothing is subscribed, cached, to be unsubscribed or remembered. Only the last nonce and version are left in it. */
  get isAbandoned(): boolean {
    const left = this.acked.size + this.#toUnsubscribe.length + this.#mayReturn.size;
    return this.subscriptions.empty && left === 0;
  }

  subscribe(interest: Interest): void {
    const { subscription, created, repeated } = this.subscriptions.add(interest);
    if (created) {
      this.#toSubscribe.add(subscription);
      return;
    }
    if (repeated) this.#resubscribe(subscription);
    else this.#join(subscription, interest);
  }

  /** It has the answer that others have, with the error that is part of it. */
  #join({ kind, resolved, error }: UpstreamSubscription, interest: Interest): void {
    if (resolved || (kind !== 'name' && error !== undefined))
      this.#apply({ resolved: [interest], resourceErrors: error === undefined ? [] : [error] });
  }

  unsubscribe(interest: Interest): void {
    const subscription = this.subscriptions.delete(interest);
    if (subscription === undefined) return;
    this.#toSubscribe.delete(subscription);
    if (subscription.requestNumber > 0) {
      this.#toUnsubscribe.push(subscription);
      // A wildcard also if nothing was there yet, but not of types that clients invent: these are to be forgotten.
      const isKnown = subscription.isPlainWildcard && isKnownType(this.type);
      const hadSome = this.#has(subscription);
      if (isKnown || hadSome) this.#mayReturn.add(subscription, hadSome);
    }
    this.onUnsubscribed(subscription);
    // Upstream does not update it any more, so the store must not have it from here.
    const isLeft = ({ name, aliases, constraints }: AckedVariant): boolean =>
      this.subscriptions.matching(name, aliases, constraints).length === 0;
    const all = this.subscriptions.empty ? [...this.acked.all()] : this.covered(subscription);
    this.remove(all.filter(isLeft));
    this.#conclude({ unwanted: true });
  }

  /**
   * Upstream sent something for it on this stream before it was unsubscribed. Some control planes (go-control-plane up to
   * 0.13.4) send that again only when it has changed.
   */
  protected hasReturned(subscription: UpstreamSubscription, lately = false): boolean {
    return this.#mayReturn.has(subscription, !lately && this.nonce !== '');
  }

  /**
   * A wildcard comes back. go-control-plane sends only what has changed since. Of any wildcard or glob something may still be
   * on its way that was sent before it was unsubscribed. `lately`: a stream was opened for that.
   */
  needsNewStream(lately: boolean): boolean {
    return this.#back(lately).length > 0;
  }

  #back(lately: boolean): readonly UpstreamSubscription[] {
    const isSilent = this.stream.options.resourceTimeoutMs !== undefined;
    const isBack = (one: UpstreamSubscription): boolean =>
      (isSilent && one.isPlainWildcard && this.hasReturned(one, lately)) ||
      (this.leaving.has(one.selector) &&
        (this.#mayReturn.has(one, false) || this.leaving.hasUnanswered(one)));
    return this.subscriptions.unresolvedCollections
      .values()
      .filter((one) => one.requestNumber === 0 && isBack(one))
      .toArray();
  }

  /**
   * Subscribes again to a name that is subscribed already. It is unsubscribed first, because some servers do not answer
   * otherwise.
   */
  #resubscribe(subscription: UpstreamSubscription): void {
    const { kind, requestNumber } = subscription;
    if (kind !== 'name' || requestNumber === 0 || this.#toSubscribe.has(subscription)) return;
    this.#toSubscribe.add(subscription);
    this.#toUnsubscribe.push(subscription);
  }

  /** Of the last response, if it is kept to compare the next one with. */
  get keptBytes(): number {
    return 0;
  }

  /** What was asked on this stream and has no answer yet. */
  *awaited(): Iterable<Awaited> {
    for (const subscription of this.subscriptions.all) {
      if (subscription.requestNumber === 0 || subscription.resolvedOnThisStream) continue;
      if (subscription.kind === 'wildcard') yield 'wildcard';
      else yield this.holds(subscription) ? 'held' : 'names';
    }
  }

  /** Upstream has delivered something for it, on whatever stream. */
  #has(subscription: UpstreamSubscription): boolean {
    return this.covered(subscription).some(({ constraints }) => subscription.isFor(constraints));
  }

  #isRestored({ interests }: UpstreamSubscription): boolean {
    return interests.values().some((interest) => this.stream.options.isRestored(interest));
  }

  /** Something is cached for it: what this session has brought, or what was restored. */
  protected holds(subscription: UpstreamSubscription): boolean {
    return this.#has(subscription) || this.#isRestored(subscription);
  }

  /** Something is held for it that this stream has not confirmed. */
  protected holdsUnconfirmed(subscription: UpstreamSubscription): boolean {
    const isUnconfirmed = ({ confirmed, constraints }: AckedVariant): boolean =>
      !confirmed && subscription.isFor(constraints);
    return this.covered(subscription).some(isUnconfirmed) || this.#isRestored(subscription);
  }

  /** Gives the acked resources another stamp; undefined: removes them. */
  *restamp(stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    const { type, holder, acked } = this;
    const before = this.rules.stamp;
    const all = [...acked.all()];
    acked.clear();
    for (const variant of all) {
      const { name, constraints: from } = variant;
      const stamped = stamp?.(originalOf(before, from));
      const to: Constraints | undefined = stamped?.ok === true ? stamped.value : undefined;
      if (to !== undefined) acked.put({ ...variant, constraints: to });
      yield [type, { holder, name, from, to }];
    }
    this.rules = { ...this.rules, stamp: stamp ?? before };
  }

  /** Changes of subscription are sent now: many that come together make one request. */
  flush(): void {
    // What waits for another new stream holds up no names. All wildcards of a type wait together.
    const back = new Set(this.#back(true));
    if (back.size > 0 && this.holder.role === 'wildcard') return;
    const subscribed = [...this.#toSubscribe].filter((one) => !back.has(one));
    const unsubscribed = this.#toUnsubscribe;
    if (subscribed.length + unsubscribed.length === 0) return;
    for (const one of subscribed) this.#toSubscribe.delete(one);
    this.#toUnsubscribe = [];
    const isFirst = this.requestCount++ === 0;
    if (subscribed.some(({ everSent }) => !everSent)) this.stream.add({ kind: 'asked', type: this.type });
    for (const subscription of subscribed) {
      subscription.everSent = true;
      subscription.requestNumber = this.requestCount;
    }
    const requests = this.changeSubscriptions(subscribed, unsubscribed);
    if (isFirst) this.firstRequests = this.requestCount;
    // No response can have been on its way before the first request. Of a wildcard no silence would say later what it has.
    for (const one of subscribed)
      one.anyResponseAnswers = one.requestNumber === 1 || (isFirst && one.kind === 'wildcard');
    this.stream.send(requests);
    this.#awaitAnswers(subscribed);
  }

  /** To read a response with. What was unsubscribed may be named in what is on its way. */
  protected partsOf({ version }: IncomingResponse): ResponseParts {
    const { subscriptions, rules, stream } = this;
    const isLeft = ({ name, aliases }: Put): boolean =>
      this.leaving.size > 0 || !subscriptions.includes(name, aliases);
    return new ResponseParts(rules, stream.options, (put) => isLeft(put) || this.mayLackBody(put, version));
  }

  /** A response has been judged by these rules. */
  received(response: IncomingResponse, rules: AcceptanceRules, judged: Result<() => Transaction>): void {
    if (this.subscriptions.empty) {
      // Servers that take an empty list for everything send it until its version is acknowledged (protocol §5b.14).
      this.hasDropped = true;
      this.#acknowledge(response);
      return;
    }
    // Another stamp came in between, or something was unsubscribed.
    const reading = rules === this.rules ? judged : atOnce(this.judge(response));
    if (!reading.ok) {
      this.reject(response.nonce, reading.error);
      return;
    }
    const said = reading.value();
    this.stream.add({ kind: 'apply', transaction: said });
    this.#acknowledge(response);
    this.#heard(said);
    const again = this.askAgain?.() ?? [];
    for (const subscription of again) this.#resubscribe(subscription);
    if (again.length > 0) this.flush();
  }

  #acknowledge({ nonce, version }: IncomingResponse): void {
    const { type, stream } = this;
    if (this.lastNack !== undefined) {
      stream.cancel(`nack ${type}`);
      stream.add({ kind: 'log', level: 'info', message: 'responses are accepted again', type });
    }
    this.lastNack = undefined;
    this.#reasonsAtOnce = 0;
    this.nonce = nonce;
    this.version = version;
    stream.add({ kind: 'answered', type, refused: undefined });
    stream.send([this.reply()]);
  }

  reject(nonce: string, reason: string): void {
    const { type, stream } = this;
    const message = reason.slice(0, reasonLimit);
    const isNew = this.lastNack?.message !== message;
    if (isNew) stream.add({ kind: 'log', level: 'warn', message: `response rejected: ${message}`, type });
    this.nonce = nonce;
    this.lastNack = { code: Code.INVALID_ARGUMENT, message };
    const isAtOnce = isNew && this.#reasonsAtOnce < mostReasonsAtOnce;
    this.#nacksInARow = isAtOnce ? 0 : this.#nacksInARow + 1;
    this.#hasRejected = true;
    stream.add({ kind: 'answered', type, refused: message });
    if (isAtOnce) {
      this.#reasonsAtOnce++;
      stream.cancel(`nack ${type}`);
      stream.send([this.reply()]);
      return;
    }
    const delay = Math.min(nackDelayMs.first * 2 ** (this.#nacksInARow - 1), nackDelayMs.longest);
    stream.arm(`nack ${type}`, delay, () => stream.send([this.reply()]));
  }

  // What follows from silence: the answer to a wildcard is complete, a name is absent, or a stream is useless.

  /** These were sent just now. */
  #awaitAnswers(subscriptions: readonly UpstreamSubscription[]): void {
    const { resourceTimeoutMs } = this.stream.options;
    if (resourceTimeoutMs === undefined) return;
    const unanswered = subscriptions.filter(({ resolvedOnThisStream }) => !resolvedOnThisStream);
    const wildcards = unanswered.filter(({ kind }) => kind === 'wildcard');
    const suffix = `${this.requestCount} ${this.type}`;
    if (wildcards.length > 0) this.#awaitWildcards(`overdue ${suffix}`, wildcards);
    const expiring = unanswered.filter((one) => this.absentAfterTimeout(one));
    const isMute = !this.stream.controlPlaneResponded;
    const groups = Map.groupBy(expiring, (one) =>
      isMute && this.holdsUnconfirmed(one) ? 'silent' : undefined,
    );
    for (const [after, group] of groups) this.#awaitExpiry(`${after ?? 'expire'} ${suffix}`, group, after);
  }

  #awaitWildcards(timer: string, subscriptions: readonly UpstreamSubscription[]): void {
    const { resourceTimeoutMs = 0 } = this.stream.options;
    this.stream.arm(timer, resourceTimeoutMs, () => {
      const unanswered = subscriptions.filter(
        (one) => !one.resolvedOnThisStream && this.subscriptions.has(one),
      );
      if (unanswered.length === 0) return;
      // An error is no silence. It may end, and the answer may still be missing then.
      const waiting = unanswered.filter(({ failed }) => !failed);
      // The wildcard was subscribed later than other things on this stream, so its answer cannot be recognised. On a
      // new stream it is in the first request, and the first response answers it.
      if (this.nonce !== '' && waiting.some(({ requestNumber }) => requestNumber > this.firstRequests)) {
        const reason = `no answer to the wildcard of ${this.type} within ${resourceTimeoutMs / 1000} s`;
        this.stream.add({ kind: 'renew', reason });
        return;
      }
      if (waiting.length > 0) this.stream.add({ kind: 'overdue' });
      this.#awaitWildcards(timer, unanswered);
    });
  }

  #awaitExpiry(timer: string, subscriptions: readonly UpstreamSubscription[], after?: Postponed): void {
    const { resourceTimeoutMs = 0 } = this.stream.options;
    const isExtended = after === 'extend';
    const wait = isExtended ? resourceTimeoutMs / extensionShare : resourceTimeoutMs;
    this.stream[after === 'silent' ? 'armInSilence' : 'arm'](timer, wait, () => {
      // The rejected response may have been the answer, so nothing is concluded yet.
      if (this.lastNack !== undefined) {
        this.#awaitExpiry(timer, subscriptions);
        return;
      }
      const left = subscriptions.filter((subscription) => this.subscriptions.has(subscription));
      const outcomes = Map.groupBy(left, (subscription) => this.onTimeout(subscription, isExtended));
      this.#concludeAbsent(outcomes.get('absent') ?? []);
      for (const postponed of ['extend', 'silent'] as const) {
        const later = outcomes.get(postponed);
        if (later !== undefined) this.#awaitExpiry(timer, later, postponed);
      }
    });
  }

  /** That it is absent follows from silence, so the error that this stream has had for it is not over. */
  #concludeAbsent(subscriptions: readonly UpstreamSubscription[]): void {
    const resourceErrors: ResourceError[] = [];
    for (const subscription of subscriptions) {
      const { error, failed, resolved, mayBeAnswered } = subscription;
      subscription.awaitsLateAnswer = mayBeAnswered;
      this.#resolve(subscription);
      if (error !== undefined && failed && !resolved) resourceErrors.push(error);
    }
    this.#conclude({ resourceErrors });
  }

  /** A response has come: a wildcard or glob that it may answer is answered when no more follow. */
  #heard(said: Transaction): void {
    const { sweepPending, subscriptions, type, stream } = this;
    const waiting = waitingCollections(
      sweepPending ? subscriptions.collections() : subscriptions.unresolvedCollections,
    );
    const answered = this.answeredBy(said, waiting);
    for (const subscription of answered) {
      subscription.responseSeen = true;
      this.endError(subscription);
    }
    // What was rejected comes again in parts, and none of them is the whole answer.
    if (this.holder.exactParameters !== undefined && !this.#hasRejected) {
      for (const subscription of answered) if (subscription.kind === 'wildcard') this.resolve(subscription);
    }
    this.#conclude();
    if (
      !sweepPending &&
      !subscriptions.unresolvedCollections.values().some(({ responseSeen }) => responseSeen)
    )
      return;
    stream.arm(`quiet ${type}`, quietPeriodMs, () => this.#resolveAfterQuiet());
    // A busy control plane is never quiet.
    stream.armOnce(`enough ${type}`, longestQuietWaitMs, () => this.#resolveAfterQuiet());
  }

  /** A response is read: what it has an error for, it does not answer by anything else in it. */
  protected beginReading(resourceErrors: readonly ResourceError[]): void {
    const lasting = resourceErrors.filter(isLasting);
    this.#failing = new Set(lasting.map(({ name }) => name));
  }

  /** The response that is read has an error for it, other than NOT_FOUND. */
  protected isFailing(selector: Selector): boolean {
    return this.#failing.has(selector);
  }

  /** All else in the response is taken. The errors are answers (protocol §3.9), in the same transaction. */
  protected takeErrors(resourceErrors: readonly ResourceError[]): void {
    for (const said of resourceErrors.filter(isLasting)) {
      const error = { ...said, status: Buffer.from(said.status) }; // not all of the response
      this.acked.fail(error);
      const named = this.subscriptions
        .naming(error.name, error.constraints)
        .filter(({ requestNumber }) => requestNumber > 0);
      for (const one of named) {
        // It may be news of an earlier one, sent before the request for this one arrived.
        const isName = one.kind === 'name';
        if (!isName && named.length > 1 && !one.anyResponseAnswers) continue;
        if (!isName) this.#answerByError(one, error);
        one.error = error;
        one.failed = true;
      }
    }
  }

  /**
   * A wildcard or glob has an error of its own. Of what this stream has not confirmed it says nothing, so that stays. If
   * there is nothing, this is all there is.
   */
  #answerByError(collection: UpstreamSubscription, error: ResourceError): void {
    const { type, stream } = this;
    const { selector, error: before } = collection;
    const message = `upstream has an error for all of ${selector}: ${error.message.slice(0, reasonLimit)}`;
    // Clients can ask for any number of globs.
    if (collection.kind === 'wildcard' && before?.message !== error.message)
      stream.add({ kind: 'log', level: 'warn', message, type });
    const isHeld = this.holdsUnconfirmed(collection);
    collection.responseSeen = !isHeld;
    if (!isHeld) this.resolve(collection);
    if (!isHeld || collection.resolved) return;
    // For these nothing was restored.
    for (const interest of collection.interests.values())
      if (!this.stream.options.isRestored(interest)) this.#concluded.resolved.push(interest);
  }

  /** A response has something of it. */
  protected endError(subscription: UpstreamSubscription): void {
    const { error, kind, selector, resolved, interests } = subscription;
    if (error === undefined || this.isFailing(selector)) return;
    subscription.error = undefined;
    subscription.failed = false;
    if (resolved) for (const interest of interests.values()) this.#concluded.resolved.push(interest);
    if (kind !== 'wildcard') return;
    const message = `upstream has answered ${selector}: its error is over`;
    this.stream.add({ kind: 'log', level: 'info', message, type: this.type });
  }

  #resolveAfterQuiet(): void {
    const { type, stream, subscriptions } = this;
    stream.cancel(`quiet ${type}`);
    stream.cancel(`enough ${type}`);
    // A part of the answer was rejected, so it is not complete.
    if (this.lastNack !== undefined) return;
    for (const subscription of [...subscriptions.unresolvedCollections])
      if (subscription.responseSeen) this.resolve(subscription);
    if (this.sweepPending) {
      // What the answered wildcards and globs have from earlier streams goes.
      this.sweepPending = false;
      for (const subscription of subscriptions.collections()) {
        if (subscription.responseSeen) {
          this.removeUnconfirmed(subscription);
          // One whose answer is an error has been answered, and nothing that came since is about it.
          if (!subscription.resolvedOnThisStream) this.resolve(subscription);
        } else this.sweepPending = true;
      }
    }
    this.#conclude();
  }

  /**
   * Opens a new stream if responses have not shown for so long which subscription they answer. There, all of them are in
   * the first request. `doubt`: each has its own time.
   */
  protected renewIfDoubtful(doubt: string, isDoubtful: () => boolean): void {
    if (!isDoubtful()) return;
    this.stream.armOnce(`answers ${doubt}`, attributionWaitMs, () => {
      const reason = `responses of ${this.type} do not show which subscription they answer: a new stream will`;
      if (isDoubtful()) this.stream.add({ kind: 'renew', reason });
    });
  }

  /** Runs once responses have not shown for so long whether a request has been seen. */
  protected stopDoubting(request: number, run: () => void): void {
    this.stream.armOnce(`doubt ${request} ${this.type}`, attributionWaitMs, run);
  }

  /** It was unsubscribed just now. */
  protected leave(subscription: UpstreamSubscription, isUnanswered?: boolean): void {
    const { type, requestCount, stream } = this;
    this.leaving.add(subscription, requestCount, isUnanswered);
    const longest = stream.options.resourceTimeoutMs ?? longestWayMs;
    stream.armOnce(`leaving ${requestCount} ${type}`, longest, () => this.leaving.endUntil(requestCount));
  }

  /** The variants that upstream has delivered under the name, glob or wildcard of a subscription. */
  protected covered({ kind, selector }: UpstreamSubscription): AckedVariant[] {
    if (kind === 'name') return this.acked.called(selector);
    return kind === 'glob' ? this.acked.under(selector) : [...this.acked.all()];
  }

  /** Upstream has answered it on this stream. */
  protected resolve(subscription: UpstreamSubscription): void {
    subscription.awaitsLateAnswer = false;
    this.endError(subscription);
    this.#resolve(subscription);
  }

  /** Upstream has answered it, or its silence says that there is nothing. */
  #resolve(subscription: UpstreamSubscription): void {
    subscription.resolvedOnThisStream = this.subscriptions.all.has(subscription);
    if (subscription.resolved) return;
    subscription.resolved = true;
    this.subscriptions.resolved(subscription);
    for (const interest of subscription.interests.values()) this.#concluded.resolved.push(interest);
  }

  protected remove(variants: readonly Identity[]): void {
    for (const variant of variants) {
      const { name, constraints } = variant;
      this.acked.delete(variant);
      this.#concluded.removals.push({ name, constraints });
    }
  }

  /** Removes the variants that a subscription covers and of which this stream has said nothing. */
  protected removeUnconfirmed(subscription: UpstreamSubscription): void {
    this.remove(this.covered(subscription).filter((variant) => this.acked.isGone(variant, subscription)));
  }

  /** What a response says, with what has been concluded from it. */
  protected saying(
    part: Pick<Transaction, 'puts' | 'heartbeats' | 'resourceErrors'> & Partial<Transaction>,
  ): Transaction {
    const { holder, type } = this;
    const concluded = this.#takeConcluded();
    const unanswered = this.subscriptions.unansweredIn([...concluded.removals, ...part.resourceErrors]);
    return transaction({ holder, type, ...concluded, unanswered, ...part });
  }

  /** What has been concluded is in a transaction now. */
  #takeConcluded() {
    const concluded = this.#concluded;
    this.#concluded = { removals: [], resolved: [] };
    return concluded;
  }

  #conclude(part: Partial<Transaction> = {}): void {
    const { removals, resolved } = this.#concluded;
    if (removals.length + resolved.length > 0) this.#apply({ ...part, ...this.#takeConcluded() });
  }

  /** Applies a transaction that does not come from a response: it changes no version (protocol §3.10). */
  #apply(part: Partial<Transaction>): void {
    const { holder, type } = this;
    const version = this.version === '' ? undefined : this.version;
    this.stream.add({ kind: 'apply', transaction: transaction({ holder, type, version, ...part }) });
  }
}

/** NOT_FOUND says that it does not exist, any other error nothing of the kind. */
export const isLasting = ({ code }: ResourceError): boolean => code !== Code.NOT_FOUND;
