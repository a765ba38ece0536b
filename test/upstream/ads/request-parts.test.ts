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
/** Of a glob of its own. */
const memberOf = (at: number): string => `xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/${at}/a`;
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

  it('has globs in its first part, before names', () => {
    const conversation = new Conversation('delta', [], '');
    for (let at = 0; at < 10_000; at++) conversation.say(`subscribe eds ${`${at}`.padEnd(60, 'x')}`);
    conversation.say(`subscribe eds ${memberOf(0).replace(/a$/, '*')}`);
    const [first = [], ...others] = conversation.say('connect').map((line) => listed(line, '+['));
    expect(first[0]).to.equal(memberOf(0).replace(/a$/, '*'));
    expect(others).to.have.length(1);
  });

  it('is answered part by part: what answers the first part says nothing of the globs of the next', () => {
    const conversation = new Conversation('delta', [], '');
    const globs = Array.from({ length: 10_000 }, (_, at) => memberOf(at).replace(/a$/, '*'));
    const [first, last, gone] = [memberOf(0), memberOf(9999), memberOf(9998)];
    for (const glob of globs) conversation.say(`subscribe eds ${glob}`);
    const parts = conversation.say('connect').map((line) => listed(line, '+['));
    expect(parts.map(([begin]) => begin)).to.deep.equal([globs[0], globs[parts[0]?.length ?? 0]]);
    receive(conversation, 'n1', [first]);
    const answered = conversation.say('wait 4s').flatMap((line) => listed(line, 'settled ['));
    expect(answered).to.deep.equal(parts[0]);
    receive(conversation, 'n2', [gone, last]);
    const rest = conversation.say('wait 300ms').flatMap((line) => listed(line, 'settled ['));
    expect(rest).to.deep.equal(parts[1]);

    conversation.say('disconnect');
    conversation.say('connect elsewhere');
    receive(conversation, 'n1', [first]);
    expect(conversation.say('wait 4s')).to.deep.equal([]);
    receive(conversation, 'n2', [last]);
    expect(conversation.say('wait 300ms')).to.deep.equal([`= eds version s1 -${gone}`]);
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
