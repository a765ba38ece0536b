import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { type Holder, type Interest, type Move, type Removal, WILDCARD } from '../../model/transaction.ts';
import { type TypeInfo, typeInfo } from '../../model/types.ts';
import { GlobIndex } from '../../model/xdstp.ts';
import type { ErrorDetail, Locator } from '../../wire/requests.ts';
import type { ByteRanges } from '../../wire/response-reader.ts';
import { VariantSet } from '../variant-set.ts';
import type { AcceptanceRules, Identity } from './response-parts.ts';
import { originalOf, type Stamp } from './stamp.ts';
import {
  isFor,
  SubscribedAgain,
  UnansweredUnsubscribed,
  type UpstreamSubscription,
  UpstreamSubscriptions,
} from './upstream-subscriptions.ts';

/** Of what arrives by the wildcard, and by name. */
export type Holders = Readonly<Record<Holder['role'], Holder>>;

export interface MachineOptions {
  readonly holders: Holders;
  /** NATIVE: parameters are sent, in resource_locators. */
  readonly locators: boolean;
  readonly stamp: Stamp;
  readonly maxConstraintDepth: number;
  /** How many entries of a response are read in one turn. */
  readonly entriesPerTurn: number;
  /** Protocol §3.9. */
  readonly resourceTimeoutMs: number;
}

/** One variant that a holder has. */
export interface AckedVariant extends Identity {
  /** The upstream's own version of it; empty where there is none. */
  version: string;
  /** Of its body; undefined: it was not hashed, or there is none. */
  hash: string | undefined;
  /** This stream has delivered or confirmed it. */
  confirmed: boolean;
  /** It was delivered for an alias: its name differs from the subscribed name. */
  viaAlias: boolean;
}

/** A variant in a set: its name and its constraints. */
export const variantKey = ({ name, constraints }: Identity): string =>
  JSON.stringify([name, constraints.key]);

/**
 * The variants that upstream has delivered for one (holder, type): names, constraints and versions, without content.
 * The store has the same variants.
 */
export class AckedResources extends VariantSet<AckedVariant> {
  readonly #globs = new GlobIndex();

  /** Of all names that a glob selects. */
  under(glob: ResourceName): AckedVariant[] {
    return [...this.#globs.under(glob)].flatMap((name) => this.of(name));
  }

  put(variant: AckedVariant): void {
    const known = this.get(variant.name, variant.constraints.key);
    if (known !== undefined) {
      known.version = variant.version;
      known.hash = variant.hash;
      known.confirmed = variant.confirmed;
      known.viaAlias = variant.viaAlias;
    } else {
      this.add(variant);
      this.#globs.add(variant.name);
    }
  }

  override delete(variant: Removal): void {
    super.delete(variant);
    if (!this.hasName(variant.name)) this.#globs.delete(variant.name);
  }

  /** Deletes these, and returns their removals. */
  remove(variants: readonly Removal[]): Removal[] {
    return variants.map((variant) => {
      this.delete(variant);
      return { name: variant.name, constraints: variant.constraints };
    });
  }

  override clear(): void {
    super.clear();
    this.#globs.clear();
  }
}

/** One type on one stream: its wildcard or its names, never both (protocol §5b). */
export class TypeState {
  readonly type: TypeUrl;
  readonly info: TypeInfo;
  readonly holder: Holder;
  readonly subscriptions: UpstreamSubscriptions;
  /** Lives on over reconnects, as the store's content does. */
  readonly acked = new AckedResources();
  /** Another object: what was read by the one before must be read again. */
  rules: AcceptanceRules;
  /** Not sent yet on this stream. */
  readonly toSubscribe = new Set<UpstreamSubscription>();
  /** Subscribed on this stream, and to be unsubscribed with the next request. */
  toUnsubscribe: UpstreamSubscription[] = [];
  /** Subscription requests on this stream. */
  requestCount = 0;
  /** Of the last response on this stream, accepted or not. */
  nonce = '';
  /** Of the last accepted response. */
  version = '';
  /** Of the last response, if it was rejected. */
  lastNack: ErrorDetail | undefined;
  /** Since the last accepted one. */
  nacksInARow = 0;
  /**
   * Some resources of earlier streams are not confirmed on this one. Once the wildcard or glob is resolved, what is
   * still not confirmed is removed.
   */
  sweepPending = false;

  /** Of the type of an interest: its wildcard or its names. */
  constructor({ type, selector }: Interest, options: MachineOptions, stamp: Stamp) {
    const { holders, locators, maxConstraintDepth } = options;
    this.type = type;
    this.info = typeInfo(type);
    this.holder = selector === WILDCARD ? holders.wildcard : holders.named;
    this.subscriptions = new UpstreamSubscriptions(locators);
    this.rules = { type, stamp, maxConstraintDepth };
  }

  /** Nothing is subscribed, cached or to be unsubscribed. Only the last nonce and version are left in it. */
  get isAbandoned(): boolean {
    return this.subscriptions.size === 0 && this.acked.size === 0 && this.toUnsubscribe.length === 0;
  }

  /** A new stream: everything is subscribed anew, except what is suspended. */
  reset(): void {
    this.nonce = '';
    this.requestCount = 0;
    this.lastNack = undefined;
    this.nacksInARow = 0;
    this.toUnsubscribe = [];
    this.sweepPending = false;
    for (const variant of this.acked.all()) variant.confirmed = false;
    for (const subscription of this.subscriptions.all()) {
      subscription.requestNumber = 0;
      subscription.anyResponseAnswers = false;
      subscription.resolvedOnThisStream = false;
      subscription.responseSeen = false;
      subscription.expectedNames = new Set();
      if (!subscription.suspended) this.toSubscribe.add(subscription);
    }
  }

  /** It is sent with the next request, because somebody subscribes to it again. */
  resume(subscription: UpstreamSubscription): void {
    subscription.suspended = false;
    this.toSubscribe.add(subscription);
  }

  /**
   * Subscribes again to a name that is subscribed already. It is unsubscribed first, because some servers do not answer
   * otherwise.
   */
  resubscribe(subscription: UpstreamSubscription): void {
    const { kind, requestNumber } = subscription;
    if (kind !== 'name' || requestNumber === 0 || this.toSubscribe.has(subscription)) return;
    this.toSubscribe.add(subscription);
    this.toUnsubscribe.push(subscription);
  }

  /** The variants that upstream has delivered under the name, glob or wildcard of a subscription. */
  covered({ kind, selector }: UpstreamSubscription): AckedVariant[] {
    if (kind === 'name') return this.acked.of(selector);
    return kind === 'glob' ? this.acked.under(selector) : [...this.acked.all()];
  }

  /** Removes the variants that a subscription covers and this stream has not confirmed. */
  removeUnconfirmed(subscription: UpstreamSubscription): Removal[] {
    const stale = this.covered(subscription).filter(
      ({ confirmed, constraints }) => !confirmed && isFor(subscription, constraints),
    );
    return this.acked.remove(stale);
  }

  /** Gives the acked resources another stamp; undefined: removes them. */
  *restamp(before: Stamp, stamp: Stamp | undefined): Iterable<readonly [TypeUrl, Move]> {
    const { type, holder, acked } = this;
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
}

const noVersions: ReadonlyMap<string, string> = new Map();

/** One type on a delta stream. */
export class DeltaState extends TypeState {
  /** initial_resource_versions of the next first request: the resources that the relay has, with upstream's versions. */
  initialVersions = noVersions;
  /**
   * What this stream delivered for a wildcard or glob that was unsubscribed just now. If it is subscribed again soon,
   * upstream sends all of it again. By `variantKey`.
   */
  readonly resendable = new Map<string, Identity>();
  /** Subscriptions that still expect names to be sent again. */
  readonly awaitingResend = new Set<UpstreamSubscription>();
  /** Something was unsubscribed just now. Responses for it may still be on their way. */
  unsubscribeInFlight = false;
  /**
   * Subscriptions that were unsubscribed before upstream answered them. Their answers are still on their way. Answers
   * about one name arrive in the order of the requests.
   */
  readonly unansweredUnsubscribed = new UnansweredUnsubscribed();
  /** Subscriptions to names of which the last response has a resource, and none before it on this stream had. */
  readonly justAnswered = new Set<UpstreamSubscription>();
  /** Of the last response, while a later wildcard or glob waits: what this stream had delivered so before. */
  readonly repeated = new Set<Identity>();
  /** The last response had no entries. One that says that a name is missing has. */
  isEmpty = false;

  override reset(): void {
    super.reset();
    this.resendable.clear();
    this.awaitingResend.clear();
    this.unsubscribeInFlight = false;
    this.unansweredUnsubscribed.clear();
  }
}

/**
 * The last SotW response of a type. The next one is compared with it byte by byte, so that a response with 50,000
 * resources, of which one has changed, creates objects only for that one.
 */
export interface PreviousResponse {
  readonly resources: ByteRanges;
  /** Of each resource, in order. */
  readonly identities: readonly Identity[];
  /** Some have constraints. */
  readonly constrained: boolean;
  /** By which it was judged. By others its resources would be other variants. */
  readonly rules: AcceptanceRules;
}

const noNames: ReadonlySet<ResourceName> = new Set();

/** One type on a SotW stream. */
export class SotwState extends TypeState {
  /** The last response, where the next one can be compared with it. */
  previous: PreviousResponse | undefined;
  /** A full state was applied: the store has nothing from this holder but what this stream delivered. */
  storeSwept = false;
  /** Something was named on this stream: from then on an empty list subscribes to nothing (protocol §3.6). */
  hasNamed = false;
  names: readonly string[] = [];
  locators: readonly Locator[] = [];
  /**
   * The newest request that upstream has seen for certain: a response had something that only this request subscribed
   * to.
   */
  lastRequestSeen = 0;
  /**
   * Something was unsubscribed on this stream. A resource may still come for it, so it does not prove which request
   * upstream has seen.
   */
  attributionAmbiguous = false;
  readonly subscribedAgain = new SubscribedAgain();
  /** Names of which the last response said that a relay above does not know them yet (protocol §3.13). */
  unknownAbove = noNames;

  /** Absence deletes (protocol §3.7). */
  get isFull(): boolean {
    return this.info.fullState || this.holder.role === 'wildcard';
  }

  override reset(): void {
    super.reset();
    this.hasNamed = false;
    this.names = [];
    this.locators = [];
    this.subscribedAgain.clear();
    this.lastRequestSeen = 0;
    this.attributionAmbiguous = false;
    this.unknownAbove = noNames;
    // Control planes count from 1 again when they restart, and are silent about a version that they think is known:
    // without one everything comes, and is compared (protocol §3.10).
    this.version = '';
  }
}

const leastRoom = 256;

/** Something for each type. A client may invent types, so those that are not used any more go when there are many. */
export class TypesInUse<Value> extends Map<TypeUrl, Value> {
  #room = leastRoom;

  /** Costs little each time: it looks through all only when they have doubled. */
  dropUnused(isUnused: (value: Value) => boolean): void {
    if (this.size <= this.#room) return;
    for (const [type, value] of this) if (isUnused(value)) this.delete(type);
    this.#room = Math.max(leastRoom, 2 * this.size);
  }
}
