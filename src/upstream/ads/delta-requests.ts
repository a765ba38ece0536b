import type { TypeUrl } from '../../model/brand.ts';
import type { OutgoingDelta } from '../../wire/request-writer.ts';
import type { Locator } from '../../wire/requests.ts';
import { requestParts } from './request-parts.ts';
import type { UpstreamSubscription } from './upstream-subscriptions.ts';

export const noVersions: ReadonlyMap<string, string> = new Map();

/** A change of what is subscribed, in parts that every server takes. */
export function deltaRequests(
  type: TypeUrl,
  subscribed: readonly UpstreamSubscription[],
  unsubscribed: readonly UpstreamSubscription[],
  initialVersions: ReadonlyMap<string, string>,
): OutgoingDelta[] {
  return requestParts(subscribed, unsubscribed).map(({ subscribe, unsubscribe }, index) => {
    const versions = index === 0 ? initialVersions : noVersions;
    return deltaRequest(type, { ...selectors(subscribe, unsubscribe), initialVersions: versions });
  });
}

export function isPlainWildcard({ kind, parameters }: UpstreamSubscription): boolean {
  return kind === 'wildcard' && parameters.entries.size === 0;
}

export function deltaRequest(type: TypeUrl, part: Partial<OutgoingDelta>): OutgoingDelta {
  return {
    kind: 'delta',
    typeUrl: type,
    nonce: '',
    subscribe: [],
    unsubscribe: [],
    subscribeLocators: [],
    unsubscribeLocators: [],
    initialVersions: noVersions,
    error: undefined,
    ...part,
  };
}

function selectors(
  subscribe: readonly UpstreamSubscription[],
  unsubscribe: readonly UpstreamSubscription[],
): Partial<OutgoingDelta> {
  return {
    subscribe: subscribe.filter(isPlain).map((subscription) => subscription.selector),
    unsubscribe: unsubscribe.filter(isPlain).map((subscription) => subscription.selector),
    subscribeLocators: subscribe.filter((subscription) => !isPlain(subscription)).map(locator),
    unsubscribeLocators: unsubscribe.filter((subscription) => !isPlain(subscription)).map(locator),
  };
}

function isPlain(subscription: UpstreamSubscription): boolean {
  return subscription.parameters.entries.size === 0;
}

function locator({ selector, parameters }: UpstreamSubscription): Locator {
  return { name: selector, parameters: [...parameters.entries] };
}
