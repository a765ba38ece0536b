import { type ParametersKey, type ResourceName, resourceName } from '../../model/brand.ts';
import { type Constraints, UNCONSTRAINED } from '../../model/constraints.ts';
import { deleteIn, getOrMake } from '../../model/maps.ts';
import { ParameterIndex } from '../../model/parameter-index.ts';
import { NO_PARAMETERS, type Parameters } from '../../model/parameters.ts';
import { covers } from '../../model/selection.ts';
import { type Interest, type ResourceError, type Selector, WILDCARD } from '../../model/transaction.ts';
import { isGlob, parentGlob } from '../../model/xdstp.ts';
import type { Identity } from '../variant-set.ts';

/**
 * One subscription as upstream sees it: a name, or (NATIVE) a locator with parameters. Several interests may share
 * it, because a session has only the parameters of the rules, and clients may have more.
 */
export class UpstreamSubscription {
  readonly selector: Selector;
  readonly kind: 'name' | 'wildcard' | 'glob';
  /** Sent with it; empty: subscribed by its plain name (protocol §5b). */
  readonly parameters: Parameters;
  /** NATIVE: its parameters are sent, and say which variants are for it. Otherwise all are. */
  readonly isLocator: boolean;
  readonly interests = new Map<ParametersKey, Interest>();
  /** It was sent on some stream. */
  everSent = false;
  /** Which subscription request of this stream named it, from 1; 0: none yet. */
  requestNumber = 0;
  /** Every response from now on has seen its request: it was in the first one, or was sent long ago. */
  anyResponseAnswers = false;
  /** Upstream answered it on this stream. */
  resolvedOnThisStream = false;
  /** Only silence has resolved it on this stream: a late answer may still come. */
  awaitsLateAnswer = false;
  /** Upstream answered it on some stream: the store has it as resolved. */
  resolved = false;
  /** A response that may answer it has come; SotW: the last one lacks it. It is resolved when no more responses follow. */
  responseSeen = false;
  /** The last that upstream said of it, on whatever stream, was this error, which is not NOT_FOUND. */
  error: ResourceError | undefined;
  /** It said so on this stream. That is an answer, so silence counts no more, but it does not remove (protocol §8.2). */
  failed = false;

  constructor(selector: Selector, parameters: Parameters, isLocator: boolean) {
    this.selector = selector;
    this.kind = selector === WILDCARD ? 'wildcard' : isGlob(selector) ? 'glob' : 'name';
    this.parameters = parameters;
    this.isLocator = isLocator;
  }

  /** Without parameters: every control plane knows it. */
  get isPlainWildcard(): boolean {
    return this.kind === 'wildcard' && this.parameters.entries.size === 0;
  }

  /** A new stream, on which nothing is asked yet. */
  startOver(): void {
    this.requestNumber = 0;
    this.anyResponseAnswers = false;
    this.resolvedOnThisStream = false;
    this.awaitsLateAnswer = false;
    this.responseSeen = false;
    this.failed = false;
  }

  /** Its own answer on this stream may still come, also after resource_timeout. */
  get mayBeAnswered(): boolean {
    return !this.resolvedOnThisStream || this.awaitsLateAnswer;
  }

  /** Whether a variant is for it, by its constraints. */
  isFor(constraints: Constraints): boolean {
    return !this.isLocator || constraints.matches(this.parameters);
  }

  /** Whether a wildcard or glob shows a variant. */
  shows({ name, constraints }: Identity): boolean {
    if (this.kind === 'glob' && !covers(this.selector, name)) return false;
    return this.isFor(constraints);
  }
}

/**
 * The subscriptions to one type on one stream. The look-ups for a variant `a` differ in what they find:
 *
 *     named(a)       the subscriptions to the name, with any parameters
 *     naming(a, c)   those of them whose parameters match the constraints c
 *     collecting(a)  the wildcard and the globs that cover the name, with any parameters
 *     matching(a, …) name, aliases, wildcard and globs whose parameters match the constraints
 *     includes(a, …) whether there is one of these, whatever the parameters
 */
export class UpstreamSubscriptions {
  readonly #bySelector = new Map<Selector, ParameterIndex<UpstreamSubscription>>();
  readonly #globs = new Set<Selector>();
  /** Parameters are sent (NATIVE). */
  readonly locators: boolean;
  readonly all = new Set<UpstreamSubscription>();
  /** Those that are not resolved in the store yet. In SotW, names that nobody has stay so for ever (protocol §3.9). */
  readonly unresolved = new Set<UpstreamSubscription>();
  /** Of those, wildcards and globs: few or none. */
  readonly unresolvedCollections = new Set<UpstreamSubscription>();

  constructor(locators: boolean) {
    this.locators = locators;
  }

  get empty(): boolean {
    return this.#bySelector.size === 0;
  }

  get hasCollection(): boolean {
    return this.#globs.size > 0 || this.#bySelector.has(WILDCARD);
  }

  /** Adds an interest. Returns its subscription, whether that is new, and whether it had the interest before. */
  add(interest: Interest) {
    const { selector } = interest;
    const parameters = this.locators ? interest.parameters : NO_PARAMETERS;
    const subscriptions = getOrMake(this.#bySelector, selector, () => new ParameterIndex());
    const known = subscriptions.get(parameters);
    const subscription = known ?? new UpstreamSubscription(selector, parameters, this.locators);
    const repeated = subscription.interests.has(interest.parameters.key);
    subscription.interests.set(interest.parameters.key, interest);
    if (known !== undefined) return { subscription, created: false, repeated };
    subscriptions.set(parameters, subscription);
    if (subscription.kind === 'glob') this.#globs.add(selector);
    this.all.add(subscription);
    this.unresolved.add(subscription);
    if (subscription.kind !== 'name') this.unresolvedCollections.add(subscription);
    return { subscription, created: true, repeated };
  }

  /** Removes an interest. Returns its subscription if no interest is left in it. */
  delete(interest: Interest): UpstreamSubscription | undefined {
    const { selector, parameters } = interest;
    const subscription = this.#bySelector.get(selector)?.get(this.locators ? parameters : NO_PARAMETERS);
    if (subscription === undefined) return undefined;
    subscription.interests.delete(parameters.key);
    if (subscription.interests.size > 0) return undefined;
    deleteIn(this.#bySelector, selector, subscription.parameters);
    if (!this.#bySelector.has(selector)) this.#globs.delete(selector);
    this.all.delete(subscription);
    this.resolved(subscription);
    return subscription;
  }

  /** It waits for nothing (any more). */
  resolved(subscription: UpstreamSubscription): void {
    this.unresolved.delete(subscription);
    this.unresolvedCollections.delete(subscription);
  }

  /** The wildcards and globs. */
  *collections(): IteratorObject<UpstreamSubscription, undefined> {
    for (const selector of [WILDCARD, ...this.#globs]) yield* this.named(selector);
  }

  has(subscription: UpstreamSubscription): boolean {
    return this.#bySelector.get(subscription.selector)?.get(subscription.parameters) === subscription;
  }

  /** The subscriptions to this name, with any parameters. */
  named(name: string): readonly UpstreamSubscription[] {
    return [...(this.#bySelector.get(resourceName(name))?.values() ?? [])];
  }

  /** The subscriptions that cover this variant: by its name or an alias, by a glob or by the wildcard. */
  matching(name: ResourceName, aliases: readonly string[], constraints: Constraints): UpstreamSubscription[] {
    const found: UpstreamSubscription[] = [];
    for (const selector of [name, ...aliases]) this.#collect(found, resourceName(selector), constraints);
    if (name !== WILDCARD) this.#collect(found, WILDCARD, constraints);
    const glob = this.#globOver(name);
    if (glob !== undefined) this.#collect(found, glob, constraints);
    return found;
  }

  /** Whether something subscribes to this name. Then all its variants are taken, whatever parameters they match. */
  includes(name: ResourceName, aliases: readonly string[]): boolean {
    if (this.#bySelector.has(WILDCARD) || this.#bySelector.has(name)) return true;
    if (aliases.some((alias) => this.#bySelector.has(resourceName(alias)))) return true;
    return this.#globOver(name) !== undefined;
  }

  /** The wildcards and globs over a name, with whatever parameters. */
  collecting(name: ResourceName): readonly UpstreamSubscription[] {
    const glob = this.#globOver(name);
    const all = this.named(WILDCARD);
    return glob === undefined ? all : [...all, ...this.named(glob)];
  }

  /** The subscriptions to this name that match these constraints. */
  naming(name: ResourceName, constraints: Constraints): UpstreamSubscription[] {
    const found: UpstreamSubscription[] = [];
    this.#collect(found, name, constraints);
    return found;
  }

  /** Whether a locator with parameters subscribes to this name. */
  hasLocatorFor(name: ResourceName): boolean {
    return this.named(name).some((subscription) => subscription.parameters !== NO_PARAMETERS);
  }

  /** The interests in these names that upstream has not answered yet. */
  unansweredIn(names: Iterable<{ readonly name: ResourceName }>): Interest[] {
    if (this.unresolved.size === 0) return [];
    const distinct = new Set(Iterator.from(names).map(({ name }) => name));
    return [...distinct].flatMap((name) =>
      this.named(name)
        .filter(({ resolved }) => !resolved)
        .flatMap(({ interests }) => Array.from(interests.values())),
    );
  }

  /** The glob that covers this name, if it is subscribed. */
  #globOver(name: ResourceName): Selector | undefined {
    const glob = this.#globs.size > 0 ? parentGlob(name) : undefined;
    return glob !== undefined && this.#globs.has(glob) ? glob : undefined;
  }

  #collect(found: UpstreamSubscription[], selector: Selector, constraints: Constraints): void {
    const subscriptions = this.#bySelector.get(selector);
    if (subscriptions === undefined) return;
    for (const subscription of this.locators ? subscriptions.matching(constraints) : subscriptions.values())
      found.push(subscription);
  }
}

/**
 * The wildcards and globs that were sent on this stream and have had no response that may answer them. One that has an error
 * waits for something about itself: until then no response answers it.
 */
export function waitingCollections(subscriptions: Iterable<UpstreamSubscription>): UpstreamSubscription[] {
  return Iterator.from(subscriptions)
    .filter(({ kind, requestNumber }) => kind !== 'name' && requestNumber > 0)
    .filter(({ responseSeen, failed }) => !responseSeen && !failed)
    .toArray();
}

/** What was unsubscribed on one stream not long ago. What upstream sent for it may still be on its way, and in order. */
export class Leaving {
  /** In the order in which they left: after which request, with which parameters, and which of these may still be answered. */
  readonly #left = new Map<
    Selector,
    { readonly request: number; readonly isUnanswered: Map<Parameters, boolean> }
  >();

  get size(): number {
    return this.#left.size;
  }

  add({ selector, parameters }: UpstreamSubscription, request: number, unanswered = false): void {
    const isUnanswered = this.#left.get(selector)?.isUnanswered ?? new Map<Parameters, boolean>();
    isUnanswered.set(parameters, unanswered || isUnanswered.get(parameters) === true);
    this.#left.delete(selector);
    this.#left.set(selector, { request, isUnanswered });
  }

  /** Nothing is on its way any more that was sent for those that left after this request, or earlier. */
  endUntil(request: number): void {
    for (const [selector, left] of this.#left) {
      if (left.request > request) return;
      this.#left.delete(selector);
    }
  }

  has(selector: Selector): boolean {
    return this.#left.has(selector);
  }

  /** With locators: some of this name, which these constraints match, was taken back before it was answered. */
  isUnanswered(selector: Selector, constraints = UNCONSTRAINED): boolean {
    const left = this.#left.get(selector)?.isUnanswered.entries();
    return left?.some(([parameters, unanswered]) => unanswered && constraints.matches(parameters)) === true;
  }

  /** The same, with the same parameters. */
  hasUnanswered({ selector, parameters }: UpstreamSubscription): boolean {
    return this.#left.get(selector)?.isUnanswered.get(parameters) === true;
  }

  /** Answered or not, with the same parameters. */
  hasSame({ selector, parameters }: UpstreamSubscription): boolean {
    return this.#left.get(selector)?.isUnanswered.has(parameters) === true;
  }
}

/** So many are remembered on one stream. */
const mostLeft = 100_000;

/** Subscriptions for which upstream may have sent something on one stream, before they were unsubscribed. */
export class LeftOnStream {
  /** Whether something was there of it. */
  readonly #keys = new Map<string, boolean>();

  get size(): number {
    return this.#keys.size;
  }

  add(subscription: UpstreamSubscription, hadSome: boolean): void {
    const key = keyOf(subscription);
    this.#keys.set(key, hadSome || this.#keys.get(key) === true);
    for (const oldest of this.#keys.keys()) {
      if (this.#keys.size <= mostLeft) return;
      this.#keys.delete(oldest);
    }
  }

  /** `answered`: upstream has sent something of the type, so also if nothing was there. */
  has(subscription: UpstreamSubscription, answered: boolean): boolean {
    const hadSome = this.#keys.size === 0 ? undefined : this.#keys.get(keyOf(subscription));
    return hadSome !== undefined && (hadSome || answered);
  }
}

/** A server may answer each request although it does not have the name. */
const attempts = 3;

/**
 * SotW where absence means nothing: names that one request left out and a later one names again. Upstream sends them again
 * if it has seen the request without them. A response that is on its way makes requests outdated (protocol §3.3), and then
 * upstream knows nothing of it:
 *
 *     → [a, b]   ← n1 {a, b}   → n1 []   → n1 [a, b]   ← n2 {b}, sent before these two arrived   → n2 [a, b], no change
 *
 * What the next responses lack is left out and named once more.
 */
export class SubscribedAgain {
  readonly #waiting = new Map<UpstreamSubscription, number>();

  /** `leftOut`: by the request before. */
  subscribe(
    subscriptions: readonly UpstreamSubscription[],
    leftOut: readonly UpstreamSubscription[],
    leaving: Leaving,
  ): void {
    if (leaving.size + leftOut.length === 0) return;
    const left = new Set(leftOut);
    for (const subscription of subscriptions) {
      if (subscription.kind !== 'name' || this.#waiting.has(subscription)) continue;
      if (left.has(subscription) || leaving.hasSame(subscription)) this.#waiting.set(subscription, attempts);
    }
  }

  received(subscription: UpstreamSubscription): void {
    this.#waiting.delete(subscription);
  }

  /** A response has come: those that it may have made outdated. */
  unanswered(subscriptions: UpstreamSubscriptions): readonly UpstreamSubscription[] {
    const unanswered: UpstreamSubscription[] = [];
    for (const [subscription, left] of this.#waiting) {
      if (left === 0 || !subscriptions.has(subscription)) this.#waiting.delete(subscription);
      else {
        this.#waiting.set(subscription, left - 1);
        unanswered.push(subscription);
      }
    }
    return unanswered;
  }
}

/** A name, glob or wildcard with its parameters. */
const keyOf = ({ selector, parameters }: UpstreamSubscription): string => `${parameters.id} ${selector}`;
