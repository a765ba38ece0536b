import { expect } from 'chai';
import { typeInfo } from '../../src/model/types.ts';
import { Views } from '../../src/views/views.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type DeltaClient, InMemoryRelay, namedHolder, put, type } from '../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { workOf } from '../support/work.ts';

/** Their bytes make a request a large one. */
const names = Array.from({ length: 5000 }, (_, index) => `name-${index}`);

describe('a large request', () => {
  it('is handled over several turns, in which others are served and its own client is not read', () => {
    const relay = new InMemoryRelay();
    const other = relay.delta();
    other.send('eds', { resourceNamesSubscribe: ['other'] });
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: names });
    expect(client.paused).to.equal(true);
    expect(relay.upstream.journal, 'not subscribed yet').to.deep.equal(['+eds other']);
    relay.says({
      type: type('eds'),
      holder: namedHolder,
      puts: [put(type('eds'), 'other', '1')],
      resolved: [],
    });
    expect(other.received()).to.have.length(1);
    relay.clock.advance(0);
    expect(client.paused).to.equal(false);
    expect(relay.upstream.journal).to.have.length(1 + names.length);
  });

  it('is handled at once if the rules change meanwhile, by the new ones', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('eds', { resourceNames: names });
    relay.relay.server.reidentify();
    expect(relay.upstream.journal).to.have.length(names.length);
    expect(client.paused).to.equal(false);
  });

  it('is handled before a request that comes all the same', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: names });
    client.send('eds', { resourceNamesUnsubscribe: names.slice(1) });
    relay.clock.advance(0);
    expect([...relay.relay.views.all()].map(({ selection }) => selection.size)).to.deep.equal([1]);
  });

  for (const [nonce, kind, made] of [
    ['accepted', 'subscribe', 1],
    ['unknown', 'stale', 0],
  ] as const) {
    it(`with the ${nonce} nonce after a NACK is ${kind} (§3.3): what it selects is ${made ? '' : 'not '}made ahead`, () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['a'] });
      const [accepted, rejected] = ['1', '2'].map((content) => {
        relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', content)] });
        const response = client.one();
        if (content === '1') client.ack('eds', response, ['a']);
        return response;
      });
      if (accepted === undefined || rejected === undefined) throw new Error('there were two responses');
      client.nack('eds', rejected, ['a']);
      const prepared = workOf(Views.prototype, ['prepare'], () => {
        client.send('eds', { responseNonce: made ? accepted.nonce : nonce, resourceNames: names });
        relay.clock.advance(0);
      });
      expect(relay.events.at(-1)).to.equal(`request eds ${kind}`);
      expect(prepared).to.equal(made);
    });
  }

  it('of a Fetch call is handled over several turns, too', () => {
    const relay = new InMemoryRelay();
    const [stays, goes] = ['a', 'b'].map((prefix) => {
      const client = relay.sotw();
      client.peer = testPeer();
      relay.relay.fetch(client, typeInfo(type('eds')));
      client.send('eds', { resourceNames: names.map((name) => `${prefix}-${name}`) });
      return client;
    });
    expect(stays?.paused).to.equal(true);
    expect(relay.upstream.journal, 'not subscribed yet').to.deep.equal([]);
    goes?.disconnect();
    relay.clock.advance(0);
    expect(relay.upstream.journal).to.have.length(names.length);
    expect(stays?.status?.code, 'without a name').to.equal(Code.OK);
    expect([stays, goes].map((client) => client?.peer.account.count('streams'))).to.deep.equal([0, 0]);
    expect(goes?.peer.account.held).to.equal(0);
  });

  it('of a Fetch call that waits for the turn of its peer has arrived: its time is over for nothing else', () => {
    const relay = new InMemoryRelay();
    const peer = testPeer({}, testAccounts({ workPerSecond: 100 }, relay.clock));
    const [silent, asks] = [relay.sotw(), relay.sotw()].map((client) => {
      client.peer = peer;
      relay.relay.fetch(client, typeInfo(type('eds')));
      return client;
    });
    asks?.send('eds', { resourceNames: names });
    peer.account.spent(60_000);
    relay.clock.advance(20_000);
    expect([silent, asks].map((client) => client?.status?.code)).to.deep.equal([
      Code.DEADLINE_EXCEEDED,
      undefined,
    ]);
  });

  it('of a client that goes away is forgotten', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: names });
    client.disconnect();
    relay.clock.advance(0);
    expect(relay.upstream.journal).to.deep.equal([]);
  });

  it('is refused where its peer would hold too much with it, and others are not', () => {
    const relay = new InMemoryRelay({ limits: { maxSubscriptions: 1_000_000, changesPerSecond: 1_000_000 } });
    const accounts = testAccounts({ heldPerPeer: 17 << 20 });
    const padded = Array.from({ length: 4000 }, (_, index) => `${index}`.padEnd(1024, 'x'));
    const ask = (address: string): DeltaClient => {
      const client = relay.delta();
      client.peer = testPeer({ address }, accounts);
      client.send('eds', { resourceNamesSubscribe: padded });
      return client;
    };
    const clients = Array.from({ length: 5 }, () => ask('10.0.0.1:1'));
    expect(clients.map(({ status }) => status?.code)).to.deep.equal([
      ...Array.from({ length: 4 }, () => undefined),
      Code.RESOURCE_EXHAUSTED,
    ]);
    expect(clients.at(-1)?.status?.message).to.match(/10.0.0.1 would hold .*limits.max_held_bytes_per_peer/);
    expect(ask('10.0.0.2:1').status).to.equal(undefined);
    for (const client of clients) client.disconnect();
    expect(testPeer({ address: '10.0.0.1:1' }, accounts).account.held).to.equal(0);
  });
});
