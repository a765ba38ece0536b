import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { transaction } from '../../src/model/transaction.ts';
import { Cursor } from '../../src/views/cursor.ts';
import { cpuSeconds } from '../support/cpu.ts';
import {
  contentOf,
  type DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  SotwClient,
  type,
} from '../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { told } from '../support/variants.ts';
import { workOf } from '../support/work.ts';

const removal = (name: string) => ({ name: resourceName(name), constraints: UNCONSTRAINED });
const versions = (client: DeltaClient): Record<string, string> =>
  Object.fromEntries(
    client.received().flatMap((response) => response.resources.map(({ name, version }) => [name, version])),
  );

describe('delta server (protocol §4)', () => {
  describe('§4.1 initial_resource_versions', () => {
    /** What a client that had `content` under `version` says when it comes back to a relay that has `now`. */
    function returning(
      had: readonly [version: string, content: string],
      now: readonly [version: string, content: string],
    ): string[] {
      const relay = new InMemoryRelay();
      const first = relay.delta();
      first.send('cds');
      relay.says({
        type: type('cds'),
        puts: [put(type('cds'), 'a', had[1], { version: had[0] })],
        complete: true,
      });
      const initialResourceVersions = versions(first);
      first.disconnect();
      relay.says({
        type: type('cds'),
        puts: [put(type('cds'), 'a', now[1], { version: now[0] })],
        complete: true,
      });
      const second = relay.delta();
      second.send('cds', { initialResourceVersions });
      return second.received().flatMap(told);
    }

    it('equal: skipped, nothing at all is sent', () => {
      expect(returning(['1', 'x'], ['1', 'x'])).to.deep.equal([]);
    });
    it('different: sent', () => {
      expect(returning(['1', 'x'], ['2', 'y'])).to.deep.equal(['+a y']);
    });
    it('the same version with other content (control planes start again at "1"): sent', () => {
      expect(returning(['1', 'x'], ['1', 'y'])).to.deep.equal(['+a y']);
    });
    it('empty versions with other content: sent', () => {
      expect(returning(['', 'x'], ['', 'y'])).to.deep.equal(['+a y']);
    });
    it('empty versions with equal content: skipped', () => {
      expect(returning(['', 'x'], ['', 'x'])).to.deep.equal([]);
    });
    it('another version of equal content: skipped', () => {
      expect(returning(['1', 'x'], ['2', 'x'])).to.deep.equal([]);
    });

    it('versions of another server, without our suffix, never skip', () => {
      const relay = new InMemoryRelay();
      relay.delta().send('cds');
      relay.says({ type: type('cds'), puts: [put(type('cds'), 'a', 'x', { version: '7' })], complete: true });
      const client = relay.delta();
      client.send('cds', { initialResourceVersions: { a: '7' } });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });

    it('the version sent down is <upstream version>@<16 hex digits>', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      relay.says({ type: type('cds'), puts: [put(type('cds'), 'a', 'x', { version: '7' })], complete: true });
      expect(versions(client)['a']).to.match(/^7@[0-9a-f]{16}$/);
    });

    it('a tier passes the suffix of the relay above on, rather than add its own', () => {
      const upper = new InMemoryRelay();
      const tier = upper.delta();
      tier.send('cds');
      upper.says({ type: type('cds'), puts: [put(type('cds'), 'a', 'x', { version: '7' })], complete: true });
      const version = versions(tier)['a'] ?? '';
      const lower = new InMemoryRelay();
      const client = lower.delta();
      client.send('cds');
      lower.says({ type: type('cds'), puts: [put(type('cds'), 'a', 'x', { version })], complete: true });
      expect(versions(client)['a']).to.equal(version);
    });

    it('gone, and subscribed by a wildcard: removed_resources', () => {
      const relay = new InMemoryRelay();
      relay.delta().send('cds');
      relay.full('cds', { a: 'x' });
      const client = relay.delta();
      client.send('cds', { initialResourceVersions: { gone: '1@0123456789abcdef' } });
      expect(told(client.one())).to.deep.equal(['+a x', '-gone']);
    });

    it('gone, and subscribed by name: removed_resources', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        resourceNamesSubscribe: ['gone'],
        initialResourceVersions: { gone: '1@0123456789abcdef' },
      });
      expect(client.received()).to.have.length(0);
      relay.says({ type: type('eds'), holder: namedHolder });
      expect(told(client.one())).to.deep.equal(['-gone']);
    });

    it('a hint, not a subscription: what is claimed and not subscribed is not spoken of', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        resourceNamesSubscribe: ['a'],
        initialResourceVersions: { b: '1@0123456789abcdef' },
      });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', 'x')] });
      expect(told(client.one())).to.deep.equal(['+a x']);
      expect(relay.upstream.journal).to.deep.equal(['+eds a']);
    });

    it('claims wait for a wildcard that is not answered yet', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { initialResourceVersions: { gone: '1@0123456789abcdef' } });
      expect(client.received()).to.have.length(0);
      relay.full('cds', {});
      expect(told(client.one())).to.deep.equal(['-gone']);
    });

    it('claims that wait count as held for their peer, until they are covered or the client leaves', () => {
      const relay = new InMemoryRelay();
      const claims = Array.from({ length: 1000 }, (_, index) => [`gone-${index}`, '1'] as const);
      const ask = (): DeltaClient => {
        const client = relay.delta();
        client.peer = testPeer({ address: '10.0.0.1:1' }, testAccounts({}));
        client.send('cds', { initialResourceVersions: Object.fromEntries<string>(claims) });
        return client;
      };
      const [stays, leaves] = [ask(), ask()];
      for (const { peer } of [stays, leaves]) expect(peer.account.held).to.be.greaterThan(60_000);
      leaves.disconnect();
      relay.full('cds', {});
      for (const { peer } of [stays, leaves]) expect(peer.account.held).to.be.lessThan(10_000);
      expect(stays.one().removedResources).to.have.length(1000);
    });

    it('what was skipped is updated and removed like what was sent', () => {
      const relay = new InMemoryRelay();
      const first = relay.delta();
      first.send('cds');
      relay.full('cds', { a: 'x', b: 'y' });
      const initialResourceVersions = versions(first);
      const client = relay.delta();
      client.send('cds', { initialResourceVersions });
      expect(client.received()).to.have.length(0);
      relay.full('cds', { b: 'z' });
      expect(told(client.one())).to.deep.equal(['+b z', '-a']);
    });

    it('system_version_info is the upstream version, verbatim', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      relay.full('cds', { a: 'x' }, 'upstream 17');
      expect(client.one().systemVersionInfo).to.equal('upstream 17');
    });
  });

  for (const order of [
    ['sotw', 'delta'],
    ['delta', 'sotw'],
  ] as const) {
    it(`§3.6 an empty name alone is nothing in SotW and a name in delta, whichever is read first (${order[0]})`, () => {
      const relay = new InMemoryRelay();
      for (const protocol of order) {
        const client = relay[protocol]();
        if (client instanceof SotwClient) client.send('eds', { resourceNames: [''] });
        else client.send('eds', { resourceNamesSubscribe: [''] });
        const [view] = relay.relay.views.all();
        expect(view?.selection.size).to.equal(protocol === 'sotw' ? 0 : 1);
        client.disconnect();
      }
    });
  }

  describe('§4.2 subscribe', () => {
    it('of what is subscribed and current: sent again', () => {
      const { lab: relay, client } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      expect(told(client.one())).to.deep.equal(['+a x']);
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'b', 'z')] });
      expect(told(client.one())).to.deep.equal(['+b z']);
    });
    it('of the wildcard again: all of it again', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      relay.full('cds', { a: 'x', b: 'y' });
      client.received();
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      expect(told(client.one())).to.deep.equal(['+a x', '+b y']);
    });
    it('of the wildcard again, where there is nothing: an empty response', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      expect(client.received()).to.deep.equal([]);
      relay.full('cds', {});
      expect(told(client.one())).to.deep.equal([]);
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      expect(told(client.one())).to.deep.equal([]);
      client.send('cds', { resourceNamesSubscribe: ['a'] });
      relay.says({ type: type('cds'), holder: namedHolder });
      expect(told(client.one())).to.deep.equal(['-a']);
    });
    it('of an absent name: removed_resources, and again when it is subscribed again', () => {
      const { client } = withNames(['a'], {});
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      expect(told(client.one())).to.deep.equal(['-a']);
    });
    it('of a name that it says it has, and that was unknown: it is sent once it is known', () => {
      const version = heldVersion('x');
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        resourceNamesSubscribe: ['a', 'b'],
        initialResourceVersions: { a: version, b: version },
      });
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      expect(client.received()).to.have.length(0);
      const puts = ['a', 'b'].map((name) => ({ ...put(type('eds'), 'a', 'x'), name: resourceName(name) }));
      relay.says({ type: type('eds'), holder: namedHolder, puts });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
    it('of a wildcard, of which it says what it has and that was not answered: all of it', () => {
      const version = heldVersion('x');
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: ['*'], initialResourceVersions: { a: version } });
      client.send('eds', { resourceNamesSubscribe: ['*'] });
      expect(client.received()).to.have.length(0);
      relay.full('eds', { a: 'x' });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
    it('of a wildcard, where what it says it has is gone: that', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*'], initialResourceVersions: { a: heldVersion('x') } });
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      relay.full('cds', {});
      expect(told(client.one())).to.deep.equal(['-a']);
    });
    it('of a wildcard over nothing, beside a name that it has: an empty response', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', {
        resourceNamesSubscribe: ['*', 'a'],
        initialResourceVersions: { a: heldVersion('x') },
      });
      const url = type('eds');
      const resolved = [...relay.upstream.interests].filter(({ selector }) => selector === 'a');
      relay.says({ type: url, holder: namedHolder, puts: [put(url, 'a', 'x')], resolved });
      client.send('eds', { resourceNamesSubscribe: ['*'] });
      client.received();
      relay.says({ type: url });
      expect(told(client.one())).to.deep.equal([]);
    });
    it('of an unknown name: silence until it is known', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      expect(client.received()).to.have.length(0);
      relay.says({ type: type('eds'), holder: namedHolder });
      expect(told(client.one())).to.deep.equal(['-a']);
    });
  });

  describe('§4.3 the nonce never gates subscription changes', () => {
    it('a stale, an unknown or no nonce: the change counts', () => {
      const { client, first } = withNames(['a'], { a: 'x', b: 'y', c: 'z' });
      client.send('eds', { responseNonce: '999999', resourceNamesSubscribe: ['b'] });
      client.send('eds', { responseNonce: 'not a number', resourceNamesSubscribe: ['c'] });
      expect(client.status).to.equal(undefined);
      client.send('eds', { resourceNamesUnsubscribe: ['a'] });
      expect(first.nonce).to.not.equal('');
      client.send('eds', { responseNonce: first.nonce, resourceNamesSubscribe: ['a'] });
      const subscription = [...client.lab.relay.server.values()][0]?.types[0]?.selection;
      expect(
        [...(subscription?.entries.values() ?? [])].map(({ requestedName }) => requestedName),
      ).to.deep.equal(['b', 'c', 'a']);
    });
    it('one message may ACK and change subscriptions', () => {
      const { client, first, lab: relay } = withNames(['a'], { a: 'x' });
      client.send('eds', { responseNonce: first.nonce, resourceNamesSubscribe: ['b'] });
      expect(relay.events).to.include('request eds ack');
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'b', 'y')] });
      expect(told(client.one())).to.deep.equal(['+b y']);
    });
    it('one message may NACK and change subscriptions', () => {
      const { client, first, lab: relay } = withNames(['a'], { a: 'x' });
      client.send('eds', {
        responseNonce: first.nonce,
        errorDetail: { code: 13, message: 'no' },
        resourceNamesSubscribe: ['b'],
      });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'b', 'y')] });
      expect(told(client.one())).to.deep.equal(['+b y']);
    });
    it('a late NACK of an earlier nonce counts', () => {
      const { client, first, lab: relay } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      relay.says({
        type: type('eds'),
        holder: namedHolder,
        puts: [put(type('eds'), 'c', 'z'), put(type('eds'), 'a', 'x2')],
      });
      const second = client.one();
      client.ack('eds', second);
      client.nack('eds', first);
      const stream = [...relay.relay.server.values()][0]?.types[0]?.subscription?.responses;
      expect(stream?.lastNack?.message).to.equal('rejected');
      expect(client.received().map(told)).to.deep.include(['+b y']);
    });
    it('a nonce that no response waits with is neither ACK nor NACK', () => {
      const { client, first, lab: relay } = withNames(['a'], { a: 'x' });
      client.ack('eds', first);
      const heard = relay.events.length;
      for (const responseNonce of ['999999', '0', 'not a number']) {
        client.send('eds', { responseNonce });
        client.send('eds', { responseNonce, errorDetail: { code: 13, message: 'no' } });
      }
      expect(new Set(relay.events.slice(heard))).to.deep.equal(new Set(['request eds stale']));
      const stream = [...relay.relay.server.values()][0]?.types[0]?.subscription?.responses;
      expect(stream?.state).to.equal('SYNCED');
      expect(stream?.lastNack).to.equal(undefined);
      client.nack('eds', first);
      expect(stream?.state).to.equal('ERROR');
      expect(client.received()).to.deep.equal([]);
    });
    it('nor is the one of an earlier stream, in a first request', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      const errorDetail = { code: 13, message: 'of before' };
      client.send('eds', { responseNonce: '7', errorDetail, resourceNamesSubscribe: ['a'] });
      expect(relay.events).to.deep.equal(['request eds subscribe']);
      expect([...relay.relay.server.values()][0]?.types[0]?.subscription?.responses.lastNack).to.equal(
        undefined,
      );
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', 'x')] });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
  });

  describe('§4.4 legacy wildcard', () => {
    it('a first request without any subscribe is one', () => {
      const relay = new InMemoryRelay();
      relay.delta().send('cds');
      expect(relay.upstream.journal).to.deep.equal(['+cds *']);
    });
    it('not for EDS', () => {
      const relay = new InMemoryRelay();
      relay.delta().send('eds');
      expect(relay.upstream.journal).to.deep.equal([]);
    });
    it('adding a name keeps it', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      relay.full('cds', { a: 'x' });
      client.received();
      client.send('cds', { resourceNamesSubscribe: ['b'] });
      relay.full('cds', { a: 'x2', b: 'y' });
      expect(told(client.one())).to.deep.equal(['+a x2', '+b y']);
    });
    it('unsubscribing "*" drops it, and names stay', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('cds', { resourceNamesSubscribe: ['b'] });
      client.send('cds', { resourceNamesUnsubscribe: ['*'] });
      relay.full('cds', { a: 'x', b: 'y' });
      expect(told(client.one())).to.deep.equal(['+b y']);
    });
    it('emptied afterwards it is nothing, not a wildcard', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('cds', { resourceNamesUnsubscribe: ['*'] });
      client.send('cds');
      relay.full('cds', { a: 'x' });
      expect(client.received()).to.have.length(0);
    });
    it('§10.5 subscribed and unsubscribed in the first request: nothing is wanted', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*'], resourceNamesUnsubscribe: ['*'] });
      client.send('cds');
      expect(relay.upstream.journal).to.deep.equal([]);
      relay.full('cds', { a: 'x' });
      expect(client.received()).to.have.length(0);
    });
    it('subscribes are applied before unsubscribes', () => {
      const { client, lab: relay } = withNames(['a'], { a: 'x', b: 'y' });
      client.send('eds', { resourceNamesSubscribe: ['b'], resourceNamesUnsubscribe: ['b'] });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'b', 'y')] });
      expect(client.received()).to.have.length(0);
    });
  });

  describe('§4.5 unsubscribe', () => {
    it('has no response', () => {
      const { client } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      client.send('eds', { resourceNamesUnsubscribe: ['a'] });
      expect(client.received()).to.have.length(0);
    });
    it('of an unknown name is ignored', () => {
      const { client } = withNames(['a'], { a: 'x' });
      client.send('eds', { resourceNamesUnsubscribe: ['never'] });
      expect(client.received()).to.have.length(0);
      expect(client.status).to.equal(undefined);
    });
    it('clears the sent-state: subscribed again, it is sent again', () => {
      const { client } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      client.send('eds', { resourceNamesUnsubscribe: ['a'] });
      client.send('eds', { resourceNamesSubscribe: ['a'] });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
    it('but what is still on its way may reach the client later: a "*" that is subscribed again removes what it lacks', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      relay.full('cds', { a: 'x', b: 'y' });
      client.received();
      client.send('cds', { resourceNamesUnsubscribe: ['*'] });
      relay.full('cds', { a: 'x' });
      client.received();
      client.send('cds', { resourceNamesSubscribe: ['*'] });
      expect(told(client.one())).to.deep.equal(['+a x', '-b']);
    });
    it('with "*" held, a name that the wildcard covers is sent', () => {
      const { client } = withWildcardAnd('a', { a: 'x', b: 'y' });
      client.send('cds', { resourceNamesUnsubscribe: ['a'] });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
    it('with "*" held, a name that the wildcard lacks is removed', () => {
      const { client } = withWildcardAnd('z', { a: 'x' });
      client.send('cds', { resourceNamesUnsubscribe: ['z'] });
      expect(told(client.one())).to.deep.equal(['-z']);
    });
    it('with "*" held, a name that only its own subscription showed is removed', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*', 'own'] });
      relay.says({ type: type('cds'), holder: namedHolder, puts: [put(type('cds'), 'own', 'x')] });
      relay.full('cds', { a: 'x' });
      client.received();
      client.send('cds', { resourceNamesUnsubscribe: ['own'] });
      expect(told(client.one())).to.deep.equal(['-own']);
    });
    it('with an unanswered "*" nothing is concluded until the answer', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['a', 'b'] });
      const named = [...relay.upstream.interests];
      relay.says({
        type: type('cds'),
        holder: namedHolder,
        puts: [put(type('cds'), 'a', 'x'), put(type('cds'), 'b', 'y')],
        resolved: named,
      });
      client.received();
      client.send('cds', { resourceNamesSubscribe: ['*'], resourceNamesUnsubscribe: ['a', 'b'] });
      expect(client.received().flatMap(told)).to.deep.equal([]);
      relay.full('cds', { a: 'x', c: 'z' });
      const said = client.received().flatMap(told);
      expect(said).to.include('-b');
      expect(said).to.include('+c z');
      expect(said).to.not.include('-a');
    });
  });

  it('§4.6 a deleted resource stays subscribed and is sent again when it is created again', () => {
    const { client, lab: relay } = withNames(['a'], { a: 'x' });
    relay.says({ type: type('eds'), holder: namedHolder, removals: [removal('a')] });
    expect(told(client.one())).to.deep.equal(['-a']);
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', 'x')] });
    expect(told(client.one())).to.deep.equal(['+a x']);
  });

  describe('§4.7 a first wildcard with nothing', () => {
    it('gets an empty response', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      expect(client.received()).to.have.length(0);
      relay.full('cds', {});
      expect(told(client.one())).to.deep.equal([]);
      relay.full('cds', {});
      expect(client.received()).to.have.length(0);
    });
    it('gets it at once where that is known', () => {
      const relay = new InMemoryRelay();
      relay.delta().send('cds');
      relay.full('cds', {});
      const client = relay.delta();
      client.send('cds');
      expect(told(client.one())).to.deep.equal([]);
    });
  });

  describe('§4.8 aliases and VHDS', () => {
    const vhds = type('vhds');

    it('a subscription by an alias gets the resource by its own name, with its aliases', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['routes/a.example'] });
      relay.says({
        type: vhds,
        holder: namedHolder,
        puts: [put(vhds, 'routes/host-a', 'x', { aliases: ['routes/a.example', 'routes/a2.example'] })],
      });
      const response = client.one();
      expect(told(response)).to.deep.equal(['+routes/host-a x']);
      expect(response.resources[0]?.aliases).to.deep.equal(['routes/a.example', 'routes/a2.example']);
    });
    it('two aliases of one resource: it comes once', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/a', 'r/b'] });
      relay.says({
        type: vhds,
        holder: namedHolder,
        puts: [put(vhds, 'r/h', 'x', { aliases: ['r/a', 'r/b'] })],
      });
      expect(told(client.one())).to.deep.equal(['+r/h x']);
    });
    it('§3.12 two aliases of one resource: rejected, it was alone, and is not repeated', () => {
      for (const names of [
        ['r/a', 'r/b'],
        ['*', 'r/a'],
      ]) {
        const relay = new InMemoryRelay();
        const client = relay.delta();
        client.send('vhds', { resourceNamesSubscribe: names });
        relay.says({ type: vhds, puts: [put(vhds, 'r/h', 'x', { aliases: ['r/a', 'r/b'] })] });
        client.nack('vhds', client.one());
        expect(client.received().flatMap(told)).to.deep.equal([]);
        const responses = [...relay.relay.server.values()][0]?.types[0]?.subscription?.responses;
        expect([...(responses?.rejections ?? [])].map(({ name }) => name)).to.deep.equal(['r/h']);
      }
    });
    it('its update and its removal reach the subscriber by the alias', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/a'] });
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x', { aliases: ['r/a'] })] });
      client.received();
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'y', { aliases: ['r/a'] })] });
      expect(told(client.one())).to.deep.equal(['+r/h y']);
      relay.says({ type: vhds, holder: namedHolder, removals: [removal('r/h')] });
      expect(told(client.one())).to.deep.equal(['-r/h']);
    });
    it('an alias that moves to another resource: one update', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/a'] });
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x', { aliases: ['r/a'] })] });
      client.received();
      relay.says({
        type: vhds,
        holder: namedHolder,
        puts: [put(vhds, 'r/h', 'x'), put(vhds, 'r/i', 'y', { aliases: ['r/a'] })],
      });
      expect(told(client.one())).to.deep.equal(['+r/i y', '-r/h']);
    });
    it('an alias taken from its resource: the subscriber loses it', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/a'] });
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x', { aliases: ['r/a'] })] });
      client.received();
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x')], resolved: [] });
      expect(told(client.one())).to.deep.equal(['-r/h']);
    });
    it('an alias taken from a resource that is subscribed by its name or another alias as well: nothing is lost', () => {
      for (const other of ['r/h', 'r/b']) {
        const relay = new InMemoryRelay();
        const client = relay.delta();
        client.send('vhds', { resourceNamesSubscribe: ['r/a', other] });
        const aliases = ['r/a', 'r/b'];
        relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x', { aliases })] });
        client.received();
        relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'r/h', 'x', { aliases: ['r/b'] })] });
        expect(client.received().flatMap(told), other).to.not.include('-r/h');
      }
    });
    it('an unresolvable alias: Resource{name and aliases as requested, no body}', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/nobody'] });
      relay.says({ type: vhds, holder: namedHolder });
      const response = client.one();
      expect(response.removedResources).to.deep.equal([]);
      expect(response.resources).to.have.length(1);
      const [resource] = response.resources;
      expect(resource?.name).to.equal('r/nobody');
      expect(resource?.aliases).to.deep.equal(['r/nobody']);
      expect(resource?.resource).to.equal(undefined);
      client.send('vhds', { resourceNamesSubscribe: ['r/nobody'] });
      expect(client.one().resources[0]?.aliases).to.deep.equal(['r/nobody']);
    });
    it("an upstream's own answer of that kind is passed on", () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['r/nobody'] });
      const nobody = put(vhds, 'r/nobody', '', { any: undefined, aliases: ['r/nobody'] });
      relay.says({ type: vhds, holder: namedHolder, puts: [nobody] });
      const [resource] = client.one().resources;
      expect(resource?.name).to.equal('r/nobody');
      expect(resource?.aliases).to.deep.equal(['r/nobody']);
      expect(resource?.resource).to.equal(undefined);
    });
    it('a name is matched as a whole, whatever number of slashes it has', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('vhds', { resourceNamesSubscribe: ['team/routes/a.example'] });
      relay.says({ type: vhds, holder: namedHolder, puts: [put(vhds, 'team/routes/a.example', 'x')] });
      expect(told(client.one())).to.deep.equal(['+team/routes/a.example x']);
    });
  });

  describe('§4.9', () => {
    it('a name is never twice in one response, neither as resource nor as removal', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds', { resourceNamesSubscribe: ['*', 'a', 'a', 'gone'] });
      relay.full('cds', { a: 'x' });
      relay.full('cds', { b: 'y' });
      client.send('cds', { resourceNamesSubscribe: ['a'], resourceNamesUnsubscribe: ['gone'] });
      for (const { resources: list, removedResources } of client.received()) {
        const names = [...list.map(({ name }) => name), ...removedResources];
        expect(new Set(names).size, names.join()).to.equal(names.length);
      }
    });
    it('the type of the message is the type of every resource', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      relay.full('cds', { a: 'x' });
      const response = client.one();
      expect(response.typeUrl).to.equal(response.resources[0]?.resource?.typeUrl);
    });
  });

  it('§4.10 the first answer to a wildcard is not split', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds');
    const url = type('cds');
    relay.says({ type: url, puts: [put(url, 'a', 'x')], resolved: [] });
    relay.says({ type: url, puts: [put(url, 'b', 'y')], resolved: [] });
    expect(client.received()).to.have.length(0);
    relay.says({ type: url });
    expect(told(client.one())).to.deep.equal(['+a x', '+b y']);
  });

  describe('§4.11 heartbeats', () => {
    const ttl = { ttlMilliseconds: 10_000 };

    function beating(
      short: string,
      name: string,
      features: readonly string[],
    ): { lab: InMemoryRelay; client: DeltaClient } {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send(short, { node: node({}, features), resourceNamesSubscribe: [name] });
      relay.says({ type: type(short), holder: namedHolder, puts: [put(type(short), name, 'x', ttl)] });
      return { lab: relay, client };
    }
    const beat = (name: string) => [
      { name: resourceName(name), constraints: UNCONSTRAINED, ttlMilliseconds: 10_000 },
    ];

    it('is the resource without body, with the version that the client has and the TTL', () => {
      const { lab: relay, client } = beating('eds', 'a', ['xds.config.supports-resource-ttl']);
      const answered = client.one();
      client.ack('eds', answered);
      const [first] = answered.resources;
      expect(first?.ttl?.seconds).to.equal(10n);
      expect(first?.resource).to.not.equal(undefined);
      relay.clock.advance(4000);
      relay.says({ type: type('eds'), holder: namedHolder, heartbeats: beat('a') });
      const [second] = client.one().resources;
      expect(second?.resource).to.equal(undefined);
      expect(second?.version).to.equal(first?.version);
      expect(second?.ttl?.seconds).to.equal(10n);
    });
    it('has the body until the client has accepted the version', () => {
      const { lab: relay, client } = beating('eds', 'a', ['xds.config.supports-resource-ttl']);
      const first = client.one();
      const bodyOfNext = (): unknown => {
        relay.clock.advance(1000);
        relay.says({ type: type('eds'), holder: namedHolder, heartbeats: beat('a') });
        const second = client.one();
        client.ack('eds', second);
        return second.resources[0]?.resource;
      };
      expect(bodyOfNext()).to.not.equal(undefined);
      client.ack('eds', first);
      expect(bodyOfNext()).to.equal(undefined);
      expect(bodyOfNext()).to.equal(undefined);
    });
    it('is not for clients that know no TTL', () => {
      const { lab: relay, client } = beating('eds', 'a', []);
      expect(client.one().resources[0]?.ttl).to.equal(undefined);
      relay.says({ type: type('eds'), holder: namedHolder, heartbeats: beat('a') });
      expect(client.received()).to.have.length(0);
    });
    it('is never for VHDS: a Resource without body would be an unresolvable alias', () => {
      const { lab: relay, client } = beating('vhds', 'r/a', ['xds.config.supports-resource-ttl']);
      client.received();
      relay.says({ type: type('vhds'), holder: namedHolder, heartbeats: beat('r/a') });
      for (const { resource } of client.received().flatMap((response) => response.resources)) {
        expect(resource).to.not.equal(undefined);
      }
    });
    it('a late subscriber gets the body and the remaining TTL', () => {
      const { lab: relay } = beating('eds', 'a', []);
      relay.clock.advance(3500);
      const late = relay.delta();
      late.send('eds', {
        node: node({}, ['xds.config.supports-resource-ttl']),
        resourceNamesSubscribe: ['a'],
      });
      const [resource] = late.one().resources;
      expect(resource?.resource).to.not.equal(undefined);
      expect(resource?.ttl).to.deep.include({ seconds: 6n, nanos: 500_000_000 });
    });
    it('§4.1 §8.1 a client that comes back is told what remains, with the body, though it has this content', () => {
      const { lab: relay, client } = beating('eds', 'a', ['xds.config.supports-resource-ttl']);
      const version = client.one().resources[0]?.version ?? '';
      client.disconnect();
      relay.clock.advance(6000);
      for (const [features, expected] of [
        [['xds.config.supports-resource-ttl'], [version]],
        [[], []],
      ] as const) {
        const back = relay.delta();
        back.send('eds', {
          node: node({}, features),
          resourceNamesSubscribe: ['a'],
          // Another relay has numbered it otherwise.
          initialResourceVersions: { a: version.replace(/^.*@/, 'other@') },
        });
        const sent = back.received().flatMap((response) => response.resources);
        expect(sent.map((one) => one.version)).to.deep.equal(expected);
        for (const { resource, ttl: left } of sent) {
          expect(resource).to.not.equal(undefined);
          expect(left?.seconds).to.equal(4n);
        }
      }
    });
    it('§4.1 the first TTL of what a client had before it came has the body: its version may be another', () => {
      const relay = new InMemoryRelay();
      const url = type('eds');
      const first = relay.delta();
      first.send('eds', { resourceNamesSubscribe: ['a'] });
      relay.says({ type: url, holder: namedHolder, puts: [put(url, 'a', 'x')] });
      const back = relay.delta();
      back.send('eds', {
        node: node({}, ['xds.config.supports-resource-ttl']),
        resourceNamesSubscribe: ['a'],
        initialResourceVersions: { a: first.one().resources[0]?.version.replace(/^.*@/, 'other@') ?? '' },
      });
      expect(back.received()).to.deep.equal([]);
      relay.says({ type: url, holder: namedHolder, heartbeats: beat('a') });
      expect(back.one().resources.map(({ resource }) => contentOf(resource))).to.deep.equal(['x']);
    });
    it('has the body if its version is not the one that the client has, though the content is', () => {
      const { lab: relay, client } = beating('eds', 'a', ['xds.config.supports-resource-ttl']);
      client.received();
      relay.clock.advance(1000);
      const gone = { type: type('eds'), holder: namedHolder, version: '', removals: [removal('a')] };
      relay.relay.apply(transaction(gone));
      const again = put(type('eds'), 'a', 'x', { ...ttl, version: 'restarted' });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [again] });
      expect(told(client.one())).to.deep.equal(['+a x']);
    });
    it('§3.12 is not for what the client has rejected; others get it, and this one what it has accepted', () => {
      const relay = new InMemoryRelay();
      const url = type('eds');
      const [good, bad] = ['envoy-1', 'envoy-2'].map(() => {
        const client = relay.delta();
        client.send('eds', {
          node: node({}, ['xds.config.supports-resource-ttl']),
          resourceNamesSubscribe: ['a', 'b'],
        });
        return client;
      });
      const both = () =>
        [good, bad].map((client) => {
          const all = client?.received() ?? [];
          for (const one of all) client?.ack('eds', one);
          return all.flatMap(told);
        });
      relay.says({
        type: url,
        holder: namedHolder,
        puts: [put(url, 'a', '1', ttl), put(url, 'b', '1', ttl)],
      });
      for (const client of [good, bad]) client?.ack('eds', client.one());
      relay.says({ type: url, holder: namedHolder, puts: [put(url, 'a', '2', ttl)] });
      bad?.nack('eds', bad.one());
      good?.ack('eds', good.one());
      for (let second = 0; second < 2; second++) {
        relay.clock.advance(1000);
        relay.says({ type: url, holder: namedHolder, heartbeats: [...beat('a'), ...beat('b')] });
        expect(both()).to.deep.equal([['+a', '+b'], ['+b']]);
        relay.clock.advance(1000);
        relay.says({ type: url, holder: namedHolder, heartbeats: beat('a') });
        expect(both()).to.deep.equal([['+a'], []]);
      }
      relay.says({ type: url, holder: namedHolder, puts: [put(url, 'a', '3', ttl)] });
      expect(both()).to.deep.equal([['+a 3'], ['+a 3']]);
    });
    it('without one the resource ends', () => {
      const { lab: relay, client } = beating('eds', 'a', []);
      client.received();
      relay.clock.advance(10_000);
      relay.settle();
      expect(told(client.one())).to.deep.equal(['-a']);
    });
  });

  describe('§3.12 after a NACK of several resources', () => {
    it('each goes out once more, alone', () => {
      const { client, first } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      client.nack('eds', first);
      const again = client.received();
      expect(again.map(told)).to.deep.equal([['+a x'], ['+b y']]);
      for (const response of again) client.nack('eds', response);
      expect(client.received()).to.have.length(0);
    });
    it('of thousands that were unsubscribed since, none is looked at, and what is left stays rejected', () => {
      const left = Array.from({ length: 1000 }, (_, at) => `left-${at}`);
      const names = [...left, 'kept'];
      const existing = Object.fromEntries(names.map((name) => [name, 'x']));
      const { client, first, lab: relay } = withNames(names, existing);
      client.nack('eds', first);
      client.send('eds', { resourceNamesUnsubscribe: left });
      const responses = [...relay.relay.server.values()][0]?.types[0]?.subscription?.responses;
      const looks = workOf(Cursor.prototype, ['sentOf'], () => expect(responses?.state).to.equal('ERROR'));
      expect(looks).to.be.below(10);
    });
    it('also where the NACK changes the subscription', () => {
      const { client, first } = withNames(['a', 'b'], { a: 'x', b: 'y' });
      client.send('eds', {
        responseNonce: first.nonce,
        errorDetail: { code: 13, message: 'no' },
        resourceNamesSubscribe: ['c'],
      });
      expect(client.received().map(told)).to.deep.equal([['+a x'], ['+b y']]);
    });
    it('what has been replaced or unsubscribed since is not', () => {
      const { client, first, lab: relay } = withNames(['a', 'b', 'c'], { a: 'x', b: 'y', c: 'z' });
      client.blocked = true;
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'd', 'w')] });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', 'x2')] });
      client.received();
      client.send('eds', {
        responseNonce: first.nonce,
        errorDetail: { code: 13, message: 'no' },
        resourceNamesUnsubscribe: ['b'],
      });
      client.unblock();
      const said = client.received().flatMap(told);
      expect(said).to.not.include('+a x');
      expect(said).to.not.include('+b y');
      expect(said).to.include('+c z');
    });
    it('of thousands that are not wanted any more none costs the others', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      const puts = Array.from({ length: 80_000 }, (_, at) => put(type('cds'), `c${at}`, 'x'));
      relay.says({ type: type('cds'), puts, complete: true });
      const { nonce } = client.one();
      const before = cpuSeconds();
      client.send('cds', {
        responseNonce: nonce,
        errorDetail: { code: 13, message: 'no' },
        resourceNamesUnsubscribe: ['*'],
      });
      expect(cpuSeconds() - before).to.be.below(1.5);
      expect(client.received()).to.have.length(0);
    });
  });

  describe('§8 order on ADS', () => {
    it('all additions go before any removal, whatever the types', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('eds', { resourceNamesSubscribe: ['e1', 'e2'] });
      client.send('lds');
      relay.full('cds', { c1: 'x' });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'e1', 'x')] });
      relay.full('lds', { l1: 'x' });
      client.received();
      client.blocked = true;
      relay.full('lds', { l1: 'y' });
      client.received();
      relay.full('cds', { c2: 'y' });
      relay.says({
        type: type('eds'),
        holder: namedHolder,
        puts: [put(type('eds'), 'e2', 'y')],
        removals: [removal('e1')],
      });
      relay.full('lds', { l2: 'y' });
      client.unblock();
      const said = client.received().map(told);
      const flat = said.flat();
      const firstRemoval = flat.findIndex((line) => line.startsWith('-'));
      const lastAddition = flat.findLastIndex((line) => line.startsWith('+'));
      expect(flat.filter((line) => line.startsWith('+'))).to.deep.equal(['+c2 y', '+e2 y', '+l2 y']);
      expect(flat.filter((line) => line.startsWith('-')).toSorted()).to.deep.equal(['-c1', '-e1', '-l1']);
      expect(firstRemoval).to.be.greaterThan(lastAddition);
    });
    it('a removal alone waits for the additions of other types, and is not lost', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('lds');
      relay.full('cds', { c1: 'x', c2: 'x' });
      relay.full('lds', { l1: 'x' });
      client.received();
      client.blocked = true;
      relay.full('lds', { l1: 'y' });
      client.received();
      relay.full('cds', { c1: 'x' });
      relay.full('lds', { l1: 'z' });
      client.unblock();
      expect(client.received().map(told)).to.deep.equal([['+l1 z'], ['-c2']]);
    });
    it('what is created again before its removal was told is not removed', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('cds');
      client.send('lds');
      relay.full('cds', { c1: 'x', c2: 'x' });
      relay.full('lds', { l1: 'x' });
      client.received();
      client.blocked = true;
      relay.full('lds', { l1: 'y' });
      client.received();
      relay.full('cds', { c1: 'x' });
      relay.full('lds', { l1: 'z' });
      relay.full('cds', { c1: 'x', c2: 'y' });
      client.unblock();
      expect(client.received().flatMap(told)).to.deep.equal(['+c2 y', '+l1 z']);
    });
  });

  it('§3.9 an outage or an unknown removes nothing: a node that changes waits for the answers of its new view', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds', { node: node({ env: 'prod' }) });
    relay.full('cds', { a: 'x', b: 'y' });
    client.received();
    client.send('cds', { node: node({ env: 'test' }) });
    expect(client.received().flatMap(told)).to.deep.equal([]);
    relay.full('cds', { a: 'x' }, '2');
    expect(client.received().flatMap(told)).to.deep.equal(['-b']);
  });

  /** The version of the endpoints a, as a client knows it. */
  function heldVersion(content: string): string {
    return withNames(['a'], { a: content }).first.resources[0]?.version ?? '';
  }

  function withNames(
    names: readonly string[],
    existing: Readonly<Record<string, string>>,
  ): { lab: InMemoryRelay; client: DeltaClient; first: ReturnType<DeltaClient['one']> } {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: [...names] });
    const url = type('eds');
    const puts = Object.entries(existing).map(([name, content]) => put(url, name, content));
    relay.says({ type: url, holder: namedHolder, puts });
    const first = client.one();
    expect(Object.keys(resources(first))).to.have.members(
      Object.keys(existing).filter((name) => names.includes(name)),
    );
    return { lab: relay, client, first };
  }

  function withWildcardAnd(
    name: string,
    existing: Readonly<Record<string, string>>,
  ): { lab: InMemoryRelay; client: DeltaClient } {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds', { resourceNamesSubscribe: ['*', name] });
    relay.full('cds', existing);
    client.received();
    return { lab: relay, client };
  }
});
