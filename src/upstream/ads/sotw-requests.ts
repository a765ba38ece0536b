import type { OutgoingRequest } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import { isFull, type SotwState } from './sotw-state.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

/** The requests for a change of what is subscribed: each names all that is. */
export function sotwRequests(
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
    again.has(subscription.selector) && !(isFull(state) && isNew.has(subscription));
  const active = activeSubscriptions(state);
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
export function sotwRequest(state: SotwState): OutgoingRequest {
  const { type, version, nonce, names, locators, lastNack } = state;
  return { kind: 'sotw', typeUrl: type, version, nonce, names, locators, error: lastNack };
}

function activeSubscriptions({ subscriptions }: SotwState): readonly UpstreamSubscription[] {
  return subscriptions
    .all()
    .filter(({ suspended }) => !suspended)
    .toArray();
}
