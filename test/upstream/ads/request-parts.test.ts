import { expect } from 'chai';
import { resourceName } from '../../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../../src/model/parameters.ts';
import { deltaRequests } from '../../../src/upstream/ads/delta-type.ts';
import {
  type UpstreamSubscription,
  UpstreamSubscriptions,
} from '../../../src/upstream/ads/upstream-subscriptions.ts';
import { type } from '../../support/in-memory-relay.ts';
import { Conversation } from './transcript.ts';

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
/** What a line of a transcript has in a list. */
const listed = (line: string, begin: string): readonly string[] => {
  const from = line.indexOf(begin);
  return from < 0 ? [] : line.slice(from + begin.length, line.indexOf(']', from)).split(' ');
};
/** A response with a resource for each name, read to its end. */
function receive(conversation: Conversation, nonce: string, names: readonly string[]): void {
  let said = conversation.say(`< eds s1 ${nonce} ${names.map((name) => `${name}:1@1`).join(' ')}`);
  while (said.includes('* a part is still to be read')) said = conversation.say('turn');
}

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

  it('has in its first part what it has versions of; the rest is asked anew, and what has gone of that expires', () => {
    const conversation = new Conversation('delta', [], '');
    const all = Array.from({ length: 30_000 }, (_, index) => `${index}`.padEnd(60, 'x'));
    for (const name of all) conversation.say(`subscribe eds ${name}`);
    conversation.say('connect');
    receive(conversation, 'n1', all.toReversed());
    conversation.say('disconnect');

    const said = conversation.say('connect');
    const parts = said.map((line) => listed(line, '+['));
    const [versions = [], ...others] = said.map((line) => listed(line, 'initial ['));
    const named = versions.map((one) => one.slice(0, -'@1'.length));
    expect(named.length).to.be.within(20_000, 29_999);
    expect(parts[0]?.slice(0, named.length).toSorted()).to.deep.equal(named.toSorted());
    expect(parts.flat().toSorted()).to.deep.equal(all.toSorted());
    expect(others.flat()).to.deep.equal([]);
    expect(Math.max(...said.map(({ length }) => length))).to.be.below(3.5 * 2 ** 20);

    const [gone = '', ...asked] = new Set(all).difference(new Set(named));
    receive(conversation, 'n2', asked);
    expect(conversation.say('wait 15s')).to.include(`= eds version s1 -${gone}`);
  });
});
