import type { ConstraintsKey } from '../../model/brand.ts';
import { UNCONSTRAINED } from '../../model/constraints.ts';
import type { Put, Removal } from '../../model/transaction.ts';
import type { Identity } from './accept-resource.ts';
import { type AckedVariant, type VariantKey, variantKey } from './acked-resources.ts';
import { isFor } from './answer-attribution.ts';
import type { TypeState } from './stream-protocol.ts';
import { covered } from './type-state.ts';
import type { UnansweredUnsubscribed } from './unanswered-unsubscribed.ts';
import { type UpstreamSubscription, waitingCollections } from './upstream-subscriptions.ts';

/** One type on a delta stream. */
export interface DeltaState extends TypeState {
  /** initial_resource_versions of the next first request: the resources that the relay has, with upstream's versions. */
  initialVersions: ReadonlyMap<string, string>;
  /**
   * What this stream delivered for a wildcard or glob that was unsubscribed just now. If it is subscribed again soon,
   * upstream sends all of it again.
   */
  readonly resendable: Map<VariantKey, Identity>;
  /** Subscriptions that still expect names to be sent again. */
  readonly awaitingResend: Set<UpstreamSubscription>;
  /** Something was unsubscribed just now. Responses for it may still be on their way. */
  unsubscribeInFlight: boolean;
  /**
   * Subscriptions that were unsubscribed before upstream answered them. Their answers are still on their way. Answers
   * about one name arrive in the order of the requests.
   */
  readonly unansweredUnsubscribed: UnansweredUnsubscribed;
  /** Subscriptions to names of which the last response has a resource, and none before it on this stream had. */
  readonly justAnswered: Set<UpstreamSubscription>;
  /** Of the last response, while a later wildcard or glob waits: what this stream had delivered so before. */
  readonly repeated: Set<Identity>;
  /** The last response had no entries. */
  isEmpty: boolean;
}

/** More in one first request is refused by common servers' limits (protocol §5b). */
const initialVersionsLimit = 3 * 1024 * 1024;

/** What needs no answer on a new stream to the same endpoint: it goes into initial_resource_versions. */
export function resumable(state: DeltaState, locators: boolean): AckedVariant[] {
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
  if ((locators || variants) && confirmed.length < state.acked.size && state.subscriptions.hasCollection)
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
export function markReceived(
  { subscriptions, resendable, awaitingResend }: DeltaState,
  variant: Identity,
): void {
  if (resendable.size + awaitingResend.size === 0) return;
  const { name, constraints } = variant;
  resendable.delete(variantKey(variant));
  for (const subscription of awaitingResend.size > 0 ? subscriptions.collecting(name) : []) {
    if (!isFor(subscription, constraints, subscriptions.locators)) continue;
    if (subscription.expectedNames.delete(name) && subscription.expectedNames.size === 0)
      awaitingResend.delete(subscription);
  }
}

/** Before `acked` takes them. Only if a wildcard or glob waits that was not in the first request of the stream. */
export function noteRepeated(state: DeltaState, puts: readonly Put[], stream: number): void {
  const { repeated, requestCount, subscriptions } = state;
  if (requestCount <= 1 || waitingCollections(subscriptions.unresolved).length === 0) return;
  for (const put of puts) if (isRepeated(state, put, stream)) repeated.add(put);
}

/**
 * This stream had delivered it before, with the same version or (NATIVE) the same body: a control plane may number each of
 * its answers, send no versions, or not encode the same body twice in the same way.
 */
export function isRepeated({ acked }: DeltaState, put: Put, stream: number): boolean {
  const known = acked.get(put.name, put.constraints.key);
  if (known?.confirmedOnStream !== stream) return false;
  const hash = put.payload?.hash;
  if (hash !== undefined && known.hash === hash) return true;
  return known.version === put.version && (hash === undefined || put.version !== '');
}

/**
 * What a resolved name has from an earlier stream. Variants that an unresolved subscription may still confirm stay.
 */
export function removeUnconfirmedOfName(
  state: DeltaState,
  subscription: UpstreamSubscription,
  stream: number,
  locators: boolean,
): Removal[] {
  if (subscription.kind !== 'name') return [];
  const removals: Removal[] = [];
  for (const variant of covered(state, subscription)) {
    if (variant.confirmedOnStream === stream || !isFor(subscription, variant.constraints, locators)) continue;
    const subscriptions = state.subscriptions.matching(variant.name, [], variant.constraints);
    if (subscriptions.some((other) => !other.resolvedOnThisStream)) continue;
    state.acked.delete(variant);
    removals.push({ name: variant.name, constraints: variant.constraints });
  }
  return removals;
}

/**
 * A locator was unsubscribed and subscribed again before it was answered. The resource that came then answered the first
 * subscription. The second one is answered by a removal without constraints, if the resource was deleted in between:
 *
 *     → +a {env=prod}   → -a {env=prod}   → +a {env=prod}   ← a {env == "prod"}   ← removed: a
 *
 * A removal or an error with constraints for other parameters is not its answer.
 */
export function removeGoneMeanwhile(
  { acked, subscriptions, unansweredUnsubscribed }: DeltaState,
  { name, constraints }: Identity,
): Removal[] {
  const again = subscriptions
    .naming(name, constraints)
    .filter((one) => unansweredUnsubscribed.mayHaveTakenAnswerOf(one));
  const [only] = again;
  if (only === undefined || again.length > 1) return [];
  const removals: Removal[] = [];
  for (const variant of acked.of(name)) {
    const matching = subscriptions.matching(name, [], variant.constraints);
    if (matching.length !== 1 || matching[0] !== only) continue;
    acked.delete(variant);
    removals.push({ name, constraints: variant.constraints });
  }
  return removals;
}

/** The requests up to this one were so long ago that every response has seen them. */
export function trustNames({ subscriptions }: DeltaState, requestNumber: number): void {
  for (const subscription of subscriptions.unresolved) {
    if (subscription.kind === 'name' && subscription.requestNumber > 0)
      subscription.anyResponseAnswers ||= subscription.requestNumber <= requestNumber;
  }
}

/** Some control planes take what is named in initial_resource_versions for subscribed. */
function isSubscribed({ subscriptions }: DeltaState, { name, constraints }: AckedVariant): boolean {
  return subscriptions.matching(name, [], constraints).some(({ suspended }) => !suspended);
}
