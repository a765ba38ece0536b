import type { TypeUrl } from '../../model/brand.ts';
import type { Constraints } from '../../model/constraints.ts';
import { type Interest, type Move, type Removal, WILDCARD } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import { AckedResources, type AckedVariant } from './acked-resources.ts';
import { originalOf, type Stamp } from './stamp.ts';
import type { StreamProtocolOptions, TypeState } from './stream-protocol.ts';
import { resume, type UpstreamSubscription, UpstreamSubscriptions } from './upstream-subscriptions.ts';

/** The state of the type of an interest: its wildcard or its names. */
export function createTypeState(
  { type, selector }: Interest,
  { holders, locators, maxConstraintDepth }: StreamProtocolOptions,
  stamp: Stamp,
): TypeState {
  return {
    type,
    info: typeInfo(type),
    holder: selector === WILDCARD ? holders.wildcard : holders.named,
    subscriptions: new UpstreamSubscriptions(locators),
    acked: new AckedResources(),
    rules: { type, stamp, maxConstraintDepth },
    toSubscribe: new Set(),
    toUnsubscribe: [],
    requestCount: 0,
    nonce: '',
    version: '',
    lastNack: undefined,
    nacksInARow: 0,
    sweepPending: false,
  };
}

/** The variants that upstream has delivered under the name, glob or wildcard of a subscription. */
export function covered({ acked }: TypeState, { kind, selector }: UpstreamSubscription): AckedVariant[] {
  if (kind === 'name') return acked.of(selector);
  return kind === 'glob' ? acked.under(selector) : [...acked.all()];
}

/** Removes the variants that a subscription covers and this stream has not confirmed. */
export function removeUnconfirmed(
  state: TypeState,
  subscription: UpstreamSubscription,
  stream: number,
  locators: boolean,
): Removal[] {
  const stale = covered(state, subscription).filter(
    ({ confirmedOnStream, constraints }) =>
      confirmedOnStream !== stream && (!locators || constraints.matches(subscription.parameters)),
  );
  for (const variant of stale) state.acked.delete(variant);
  return stale.map(({ name, constraints }) => ({ name, constraints }));
}

/** Some subscription has no answer yet. */
export function awaitsAnswer(states: Iterable<TypeState>): boolean {
  const waits = ({ requestNumber, resolvedOnThisStream }: UpstreamSubscription): boolean =>
    requestNumber > 0 && !resolvedOnThisStream;
  return [...states].some(({ subscriptions }) => [...subscriptions.all()].some(waits));
}

/** Nothing is subscribed, cached or to be unsubscribed. Only the last nonce and version are left in it. */
export function isAbandoned({ subscriptions, acked, toUnsubscribe }: TypeState): boolean {
  return subscriptions.size === 0 && acked.size === 0 && toUnsubscribe.length === 0;
}

/** A new stream: everything is subscribed anew, except what is suspended. */
export function resetTypeState(state: TypeState): void {
  state.nonce = '';
  state.requestCount = 0;
  state.lastNack = undefined;
  state.nacksInARow = 0;
  state.toUnsubscribe = [];
  state.sweepPending = false;
  for (const subscription of state.subscriptions.all()) {
    subscription.requestNumber = 0;
    subscription.anyResponseAnswers = false;
    subscription.resolvedOnThisStream = false;
    subscription.responseSeen = false;
    subscription.expectedNames = new Set();
    if (!subscription.suspended) state.toSubscribe.add(subscription);
  }
}

/** No stream is open: subscriptions with only idle interests are not sent on the next one. */
export function suspendIdle(
  { subscriptions, toSubscribe }: TypeState,
  isIdle: (interest: Interest) => boolean,
): void {
  for (const subscription of subscriptions.all()) {
    subscription.suspended = subscription.interests.values().every(isIdle);
    if (subscription.suspended) toSubscribe.delete(subscription);
  }
}

/** Somebody subscribes to it again. */
export function resumeIfSuspended(state: TypeState | undefined, interest: Interest): void {
  const subscription = state?.subscriptions.covering(interest);
  if (state !== undefined && subscription?.suspended === true) resume(state, subscription);
}

/** The interests of suspended subscriptions. */
export function suspendedInterests(states: Iterable<TypeState>): readonly Interest[] {
  return Iterator.from(states)
    .flatMap(({ subscriptions }) => subscriptions.all())
    .filter(({ suspended }) => suspended)
    .flatMap(({ interests }) => interests.values())
    .toArray();
}

/** By type, in the order of ADS (protocol §8): a server that answers in the order of requests warms clusters first. */
export function inOrder<S extends TypeState>(states: ReadonlyMap<TypeUrl, S>): readonly S[] {
  return [...states.values()].toSorted((a, b) => a.info.order - b.info.order);
}

/** Moves the acked resources to another stamp; undefined: removes them. */
export function* restampAcked(
  { type, holder, acked }: TypeState,
  before: Stamp,
  stamp: Stamp | undefined,
): Iterable<readonly [TypeUrl, Move]> {
  const anew = (constraints: Constraints): Constraints | undefined => {
    const stamped = stamp?.(originalOf(before, constraints));
    return stamped?.ok === true ? stamped.value : undefined;
  };
  for (const move of acked.restamp(anew)) yield [type, { holder, ...move }];
}
