import { expect } from 'chai';
import { RestPolls } from '../../../src/downstream/polls/rest-polls.ts';
import { charged } from '../../../src/model/brand.ts';
import { systemClock } from '../../../src/model/clock.ts';
import { TimeSlices } from '../../../src/model/time-slices.ts';
import type { HttpAnswer } from '../../../src/wire/http-answer.ts';
import type { Peer } from '../../../src/wire/server-stream.ts';
import { InMemoryRelay } from '../../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../../support/peers.ts';

/** `ask` begins a poll; `giveUp`: its client has gone. */
function setUp() {
  const lab = new InMemoryRelay();
  const { relay, clock } = lab;
  const polls = new RestPolls({
    polls: relay.polls,
    clock,
    // Slices are measured in real time: on a machine that is slow they end, and nobody would let the next one begin.
    slices: new TimeSlices(systemClock),
    maxBytes: () => 1 << 20,
    unreadable: () => undefined,
    threw: () => expect.fail('it threw'),
  });
  const ask = (peer: Peer) => {
    const handler = polls.route({ method: 'POST', path: '/v3/discovery:clusters', headers: {}, peer });
    if (typeof handler !== 'function') throw new Error('it is not served');
    const { promise, resolve } = Promise.withResolvers<HttpAnswer>();
    const giveUp = handler(charged(Buffer.from(JSON.stringify({ node: { id: 'envoy-1' } }))), resolve);
    return { answer: promise, giveUp };
  };
  return { lab, ask };
}

describe('REST polls', () => {
  it('that wait for one body: what one peer holds refuses that peer alone', async () => {
    const { lab, ask } = setUp();
    const poll = (peer: Peer) => ask(peer).answer;
    const accounts = testAccounts({ heldPerPeer: 1 << 20 });
    const [full, other] = ['10.0.0.1:1', '10.0.0.2:1'].map((address) => testPeer({ address }, accounts));
    if (full === undefined || other === undefined) throw new Error('no peers');
    const waiting = [full, other].map(poll);
    lab.full('cds', { shop: '1' });
    full.account.keeps(1 << 20);
    const answers = await Promise.all(waiting);
    expect(answers.map(({ status }) => status)).to.deep.equal([429, 200]);
    expect(answers.filter(({ body }) => String(body).includes('10.0.0.1'))).to.have.length(1);
  });

  it('whose client goes while the answer is made have no version of it', async () => {
    const { lab, ask } = setUp();
    const [gone, stays] = ['10.0.0.1:1', '10.0.0.2:1'].map((address) => ask(testPeer({ address })));
    lab.full('cds', { shop: '1' });
    gone?.giveUp();
    await Promise.all([gone?.answer, stays?.answer]);
    expect(lab.events.filter((event) => event === 'response cds')).to.have.length(1);
  });
});
