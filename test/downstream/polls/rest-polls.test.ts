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
  const lab = new InMemoryRelay({ limits: { maxSubscriptions: 10_000 } });
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
  const ask = (peer: Peer, resourceLocators: readonly object[] = []) => {
    const handler = polls.route({ method: 'POST', path: '/v3/discovery:clusters', headers: {}, peer });
    if (typeof handler !== 'function') throw new Error('it is not served');
    const { promise, resolve } = Promise.withResolvers<HttpAnswer>();
    const body = Buffer.from(JSON.stringify({ node: { id: 'envoy-1' }, resourceLocators }));
    const giveUp = handler(charged(body), resolve);
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

  describe('with 10,000 locators', () => {
    const locators = Array.from({ length: 10_000 }, (_, at) => ({
      name: `cluster-${at}`,
      dynamic_parameters: { zone: `${at}`, env: 'prod' },
    }));
    /** One slice of what is large. */
    const slice = async ({ clock }: InMemoryRelay): Promise<void> => {
      await new Promise(setImmediate);
      clock.advance(5);
    };

    it('are read and subscribed in slices, and others are served between them', async () => {
      const { lab, ask } = setUp();
      const peer = testPeer({ address: '10.0.0.1:1' });
      const large = ask(peer, locators);
      expect(peer.account.held).to.be.above(500_000);
      const small = ask(testPeer({ address: '10.0.0.2:1' }));
      lab.full('cds', { shop: '1' });
      expect((await small.answer).status).to.equal(200);
      expect(lab.relay.polls.clients.size).to.equal(1);
      let slices = 0;
      for (; lab.relay.polls.clients.size < 2; slices++) await slice(lab);
      expect(slices).to.be.above(5);
      lab.clock.advance(500);
      expect((await large.answer).status).to.equal(503);
    });

    it('wait for no large response that is made for others', async () => {
      const { lab, ask } = setUp();
      const peer = testPeer({ address: '10.0.0.1:1' });
      const first = ask(peer, locators);
      while (lab.relay.polls.clients.size === 0) await slice(lab);
      lab.clock.advance(500);
      expect((await first.answer).status).to.equal(503);
      ask(testPeer({ address: '10.0.0.2:1' }));
      lab.full('cds', { large: 'x'.repeat(16 << 20) });
      await new Promise(setImmediate);
      ask(peer, locators);
      await new Promise(setImmediate);
      expect(lab.events.filter((event) => event === 'request cds subscribe')).to.have.length(3);
    });

    it('whose rules change before they are read are to ask again', async () => {
      const { lab, ask } = setUp();
      const { answer } = ask(testPeer(), locators);
      const known: HttpAnswer[] = [];
      void answer.then((one) => known.push(one));
      while (known.length === 0) {
        await slice(lab);
        lab.relay.polls.reidentify();
      }
      expect(known[0]).to.include({ status: 503 });
      expect(String(known[0]?.body)).to.contain('rules');
      expect([...lab.relay.views.all()].map(({ selection }) => selection.size)).to.deep.equal([]);
    });

    it('whose client goes before they are read leave nothing', async () => {
      const { lab, ask } = setUp();
      const peer = testPeer({ address: '10.0.0.1:1' });
      const { giveUp } = ask(peer, locators);
      await slice(lab);
      giveUp();
      // Nothing more is read; on a busy machine what was begun needs more than one slice.
      while (peer.account.held > 0) await slice(lab);
      expect([lab.relay.polls.clients.size, [...lab.relay.views.all()].length]).to.deep.equal([0, 0]);
    });
  });
});
