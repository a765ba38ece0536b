import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import { requestParts } from '../../../src/upstream/ads/delta-strategy.ts';
import {
  type UpstreamSubscription,
  UpstreamSubscriptions,
} from '../../../src/upstream/ads/upstream-subscriptions.ts';
import { type } from '../../support/in-memory-relay.ts';

const subscriptions = (count: number, length: number): UpstreamSubscription[] => {
  const wants = new UpstreamSubscriptions(false);
  return Array.from({ length: count }, (_, index) => {
    const selector = resourceName(`${index} `.padEnd(length, 'x'));
    return wants.add({ type: type('eds'), selector, parameters: NO_PARAMETERS }).subscription;
  });
};

describe('a delta request to a control plane', () => {
  it('is one, if it is small, and also if it names nothing', () => {
    const [a, b] = [subscriptions(10, 20), subscriptions(5, 20)];
    expect(requestParts(a, b)).to.deep.equal([{ subscribe: a, unsubscribe: b }]);
    expect(requestParts([], [])).to.deep.equal([{ subscribe: [], unsubscribe: [] }]);
  });

  it('is many where clients name megabytes: gRPC servers take 4 MiB, and refuse by ending the stream', () => {
    const [a, b] = [subscriptions(10_000, 400), subscriptions(10_000, 300)];
    const parts = requestParts(a, b);
    expect(parts.flatMap(({ subscribe }) => subscribe)).to.deep.equal(a);
    expect(parts.flatMap(({ unsubscribe }) => unsubscribe)).to.deep.equal(b);
    expect(parts).to.have.length.within(13, 20);
    for (const { subscribe, unsubscribe } of parts) {
      const bytes = [...subscribe, ...unsubscribe].reduce((sum, { selector }) => sum + selector.length, 0);
      expect(bytes).to.be.below(2 ** 19);
    }
    const first = parts.findIndex(({ unsubscribe }) => unsubscribe.length > 0);
    expect(parts.slice(first + 1).every(({ subscribe }) => subscribe.length === 0)).to.equal(true);
  });
});
