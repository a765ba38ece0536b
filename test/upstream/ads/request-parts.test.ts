import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import { deltaRequests } from '../../../src/upstream/ads/delta-type.ts';
import {
  type UpstreamSubscription,
  UpstreamSubscriptions,
} from '../../../src/upstream/ads/upstream-subscriptions.ts';
import { type } from '../../support/in-memory-relay.ts';

const eds = type('eds');
const subscriptions = (count: number, length: number): UpstreamSubscription[] => {
  const wants = new UpstreamSubscriptions(false);
  return Array.from({ length: count }, (_, index) => {
    const selector = resourceName(`${index} `.padEnd(length, 'x'));
    return wants.add({ type: eds, selector, parameters: NO_PARAMETERS }).subscription;
  });
};
const names = (of: readonly UpstreamSubscription[]): string[] => of.map(({ selector }) => selector);
const requests = (
  subscribe: readonly UpstreamSubscription[],
  unsubscribe: readonly UpstreamSubscription[],
): { readonly subscribe: readonly string[]; readonly unsubscribe: readonly string[] }[] =>
  deltaRequests(eds, subscribe, unsubscribe, new Map()).map((one) => ({
    subscribe: one.subscribe,
    unsubscribe: one.unsubscribe,
  }));

describe('a delta request to a control plane', () => {
  it('is one, if it is small, and also if it names nothing', () => {
    const [a, b] = [subscriptions(10, 20), subscriptions(5, 20)];
    expect(requests(a, b)).to.deep.equal([{ subscribe: names(a), unsubscribe: names(b) }]);
    expect(requests([], [])).to.deep.equal([{ subscribe: [], unsubscribe: [] }]);
  });

  it('is many where clients name megabytes: gRPC servers take 4 MiB, and refuse by ending the stream', () => {
    const [a, b] = [subscriptions(10_000, 400), subscriptions(10_000, 300)];
    const parts = requests(a, b);
    expect(parts.flatMap(({ subscribe }) => subscribe)).to.deep.equal(names(a));
    expect(parts.flatMap(({ unsubscribe }) => unsubscribe)).to.deep.equal(names(b));
    expect(parts).to.have.length.within(13, 20);
    for (const { subscribe, unsubscribe } of parts) {
      const bytes = [...subscribe, ...unsubscribe].reduce((sum, name) => sum + name.length, 0);
      expect(bytes).to.be.below(2 ** 19);
    }
    const first = parts.findIndex(({ unsubscribe }) => unsubscribe.length > 0);
    expect(parts.slice(first + 1).every(({ subscribe }) => subscribe.length === 0)).to.equal(true);
  });
});
