import { lazily } from '../../model/maps.ts';
import type { Selector, Transaction } from '../../model/transaction.ts';
import type { Identity } from '../variant-set.ts';
import type { AckedVariant } from './acked-resources.ts';
import type { SubscribedType } from './subscribed-type.ts';
import {
  type UpstreamSubscription,
  type UpstreamSubscriptions,
  waitingCollections,
} from './upstream-subscriptions.ts';

/**
 * Which subscriptions a response answers. No response names its request, so this is judged by its content and by the
 * order of requests (protocol §5b). Nothing here changes anything.
 */

/** What a response says of resources. */
type Said = Pick<Transaction, 'puts' | 'removals' | 'heartbeats' | 'resourceErrors'>;

/** A type on a delta stream, as far as the judgement needs it. `acked` has what the response has brought. */
type DeltaWaiting = Pick<SubscribedType, 'subscriptions' | 'acked' | 'sweepPending'> &
  Readonly<{ repeated: ReadonlyMap<Identity, boolean>; isEmpty: boolean }>;

/**
 * The wildcards and globs, among those that wait, that a delta response may answer. An update has only what changed, so
 * it lacks something that upstream sent before, or has nothing for this wildcard.
 */
export function deltaAnswers(
  stream: DeltaWaiting,
  said: Said,
  candidates: readonly UpstreamSubscription[],
): ReadonlySet<UpstreamSubscription> {
  // Errors alone may be news of what an earlier wildcard shows: → * {A}, ← a, → * {B}, ← error of a.
  const shown = lazily(() => (stream.isEmpty ? longestWaiting(stream) : shownBy(stream, said)));
  return new Set(candidates.filter((one) => isAnsweredByAny(one) || shown().has(one.requestNumber)));
}

/**
 * Of the wildcards and globs of later requests than the first ones (`firstRequests`), those that it is not shown to answer:
 * they are in doubt if it answers others, or if something in it may be for one of them.
 */
export function inDoubt(
  { subscriptions, isEmpty }: Pick<DeltaWaiting, 'subscriptions' | 'isEmpty'>,
  firstRequests: number,
  { puts, resourceErrors }: Said,
  candidates: readonly UpstreamSubscription[],
  answered: ReadonlySet<UpstreamSubscription>,
): readonly UpstreamSubscription[] {
  const later = candidates.filter((one) => one.requestNumber > firstRequests && !answered.has(one));
  const waiting = new Set(later);
  // By what shows it: thousands of globs that wait are not held against thousands of resources.
  const mayAnswer = (identity: Identity): boolean =>
    // An error may be about a glob itself.
    [...subscriptions.collecting(identity.name), ...subscriptions.named(identity.name)].some(
      (one) => waiting.has(one) && one.shows(identity),
    );
  const isDoubtful = (): boolean => isEmpty || puts.some(mayAnswer) || resourceErrors.some(mayAnswer);
  return answered.size > 0 || isDoubtful() ? later : [];
}

/**
 * Whether any response answers it, whatever is in it. Unless parameters are sent (NATIVE), a wildcard is the only one of its
 * type on the stream, and in SotW every response is its complete state, of some time.
 */
const isAnsweredByAny = ({ anyResponseAnswers, isLocator, kind }: UpstreamSubscription): boolean =>
  anyResponseAnswers || (!isLocator && kind === 'wildcard');

/** The request of those that were asked for first; there may be too many for arguments. */
const oldestOf = (asked: readonly UpstreamSubscription[]): number =>
  asked.reduce((least, { requestNumber }) => Math.min(least, requestNumber), Number.POSITIVE_INFINITY);

/**
 * An empty response is for the wildcard or glob that has waited longest. The next one waits on: another may follow, and
 * until then a server such as a relay in an outage may not know what it has for it.
 */
const longestWaiting = ({ subscriptions }: DeltaWaiting): ReadonlySet<number> =>
  new Set([oldestOf(waitingCollections(subscriptions.collections()))]);

/** On this stream: one that an earlier stream has resolved waits as well, if what that delivered is not confirmed yet. */
function isWaiting(
  { subscriptions, sweepPending }: DeltaWaiting,
  subscription: UpstreamSubscription,
): boolean {
  const { responseSeen, resolvedOnThisStream } = subscription;
  if (responseSeen) return false;
  return subscriptions.unresolved.has(subscription) || (sweepPending && !resolvedOnThisStream);
}

/**
 * An earlier subscription shows it as well, and it has changed: it may be an update of that, which was on its way:
 * → subscribe * {A}, ← a@1, → subscribe * {B}, ← a@2, ← a@2 b@1. No update repeats what has not changed, and none gives
 * somebody a second variant of a name: → subscribe * {A}, ← a {A}, → subscribe * {}, ← a {}. But whom a control plane has
 * given two gets updates of both.
 */
function mayBeUpdate(
  { subscriptions, acked, repeated }: DeltaWaiting,
  identity: Identity,
  requestNumber: number,
): boolean {
  if (repeated.get(identity) === true) return false;
  const { name, constraints } = identity;
  const isNew = acked.get(name, constraints.key) !== undefined && !repeated.has(identity);
  const isOther = (one: AckedVariant): boolean => one.constraints.key !== constraints.key && one.confirmed;
  const others = isNew ? acked.of(name).filter(isOther) : [];
  return subscriptions
    .matching(name, [], constraints)
    .some(
      (earlier) =>
        earlier.requestNumber > 0 &&
        earlier.requestNumber < requestNumber &&
        (earlier.responseSeen || earlier.resolvedOnThisStream) &&
        !others.some((other) => earlier.isFor(other.constraints)),
    );
}

/** The requests to which the resources of a response are an answer, as it has something for one of their wildcards or globs. */
function shownBy(stream: DeltaWaiting, said: Said): ReadonlySet<number> {
  const requests = new Set<number>();
  for (const identity of [...said.puts, ...said.removals, ...said.heartbeats]) {
    // Servers answer in order, so of the requests that wait it is for the oldest one.
    const waiting = stream.subscriptions
      .collecting(identity.name)
      .filter((subscription) => subscription.shows(identity) && isWaiting(stream, subscription));
    const oldest = oldestOf(waiting);
    if (waiting.length > 0 && !mayBeUpdate(stream, identity, oldest)) requests.add(oldest);
  }
  return requests;
}

/**
 * The subscriptions to a name, among those that match a resource of a delta response, that it answers. Servers answer in
 * order, so while an earlier subscription with other parameters waits, it is for that. If that is answered, it may be an
 * update of it: → n{A}, ← n@1, → n{B}, ← n@2. Else a removal that follows would count for the later one too, though its
 * own answer has another variant. After 2 s this is not doubted any more. `isRepeated`: this stream had delivered it before, with the same version.
 */
export function namesAnswered(
  matching: readonly UpstreamSubscription[],
  isRepeated: boolean,
): readonly UpstreamSubscription[] {
  const names = matching.filter(({ kind }) => kind === 'name');
  if (names.length < 2) return names;
  // Of thousands of locators of one name: each is looked at once.
  const earliest = new Map<Selector, number>();
  for (const { selector, requestNumber, resolvedOnThisStream } of names)
    if (requestNumber > 0 && !(isRepeated && resolvedOnThisStream))
      earliest.set(selector, Math.min(requestNumber, earliest.get(selector) ?? requestNumber));
  const isForEarlier = ({ selector, requestNumber }: UpstreamSubscription): boolean => {
    const first = earliest.get(selector);
    return first !== undefined && (requestNumber === 0 || first < requestNumber);
  };
  return names.filter((one) => one.anyResponseAnswers || one.resolvedOnThisStream || !isForEarlier(one));
}

/**
 * A delta response removes a name that was never delivered, and the response does not say for which parameters. Servers
 * answer in order, so it is for the locators of the oldest request that waits, or for those that the same response has
 * answered (`justAnswered`): → n{A}, → n{B}, → n{C}, ← -n for A, ← n and -n, which are for B and A. One of which only
 * silence said that it is absent waits on: a relay above with the same timeout answers a moment later.
 */
export function ofOldestRequest(
  named: readonly UpstreamSubscription[],
  justAnswered: ReadonlySet<UpstreamSubscription> = new Set(),
): readonly UpstreamSubscription[] {
  const waiting = named.filter(
    (one) => one.requestNumber > 0 && (one.mayBeAnswered || justAnswered.has(one)),
  );
  const oldest = oldestOf(waiting);
  return waiting.filter(({ requestNumber }) => requestNumber === oldest);
}

/**
 * The same of a glob whose URL says that it is empty. If several locators name it, those of the oldest request that had
 * no response yet: an answer of its own may follow for each.
 */
export function emptied(named: readonly UpstreamSubscription[]): readonly UpstreamSubscription[] {
  if (named.length < 2) return named;
  return ofOldestRequest(named.filter(({ responseSeen }) => !responseSeen));
}

/** The wildcards and globs that a SotW response may answer, if it has seen the requests up to `lastSeen`. */
export function sotwAnswers(
  lastSeen: number,
  candidates: readonly UpstreamSubscription[],
): ReadonlySet<UpstreamSubscription> {
  return new Set(candidates.filter((one) => sotwAnswered(lastSeen, one)));
}

const sotwAnswered = (lastSeen: number, one: UpstreamSubscription): boolean =>
  isAnsweredByAny(one) || one.requestNumber <= lastSeen;

/**
 * Whether a full state has all that is subscribed. If not, what it lacks may be for a later subscription, which upstream
 * has not seen on this stream.
 */
export function isCompleteFor(subscriptions: UpstreamSubscriptions, lastSeen: number): boolean {
  const isAnswered = (one: UpstreamSubscription): boolean =>
    one.resolvedOnThisStream || (one.requestNumber > 0 && sotwAnswered(lastSeen, one));
  return subscriptions.all.values().every(isAnswered);
}

/**
 * The last request that a SotW response must have seen. A resource that only request 3 and later ones subscribe to
 * proves that the response has seen request 3. 0: it proves nothing.
 */
export function lastRequestSeen(subscriptions: UpstreamSubscriptions, puts: Transaction['puts']): number {
  let last = 0;
  for (const { name, aliases, constraints } of puts) {
    const sent = subscriptions
      .matching(name, aliases, constraints)
      .filter(({ requestNumber }) => requestNumber > 0);
    if (sent.length > 0) last = Math.max(last, oldestOf(sent));
  }
  return last;
}
