import { expect } from 'chai';
import { TypeTable } from '../../src/cache/type-table.ts';
import { transaction } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { unreadPlace } from '../../src/wire/accounts.ts';
import {
  type DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
  wildcardHolder,
} from '../support/in-memory-relay.ts';
import { testAccounts, testPeer } from '../support/peers.ts';
import { locator } from '../support/variants.ts';
import { workOf } from '../support/work.ts';
import { checkConsistency } from './consistency-check.ts';

describe('limits', () => {
  describe('max_subscriptions_per_stream', () => {
    it('one more is RESOURCE_EXHAUSTED with the limit’s name, and nothing of it goes upstream', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 3 } });
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['a', 'b', 'c'] });
      expect(client.status).to.equal(undefined);
      client.send('eds', { resourceNames: ['a', 'b', 'c', 'd'] });
      expect(client.status?.code).to.equal(8);
      expect(client.status?.message).to.contain('max_subscriptions_per_stream');
      expect(relay.upstream.journal).to.deep.equal(['+eds a', '+eds b', '+eds c']);
      expect(relay.events).to.contain('rejected subscriptions');
    });

    it('counts over all types of the stream', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 3 } });
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['a', 'b'] });
      client.send('rds', { resourceNames: ['a', 'b'] });
      expect(client.status?.code).to.equal(8);
    });

    it('a type without names counts as one', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 3 } });
      const client = relay.delta();
      for (const short of ['eds', 'rds', 'sds']) client.send(short);
      expect(client.status).to.equal(undefined);
      client.send('leds');
      expect(client.status?.code).to.equal(8);
      expect(client.status?.message).to.contain('4 subscriptions on one stream');
    });

    it('names past the limit are not read: they count, though they be one name', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 3 } });
      const names = Array.from({ length: 40 }, () => 'one');
      const sotw = relay.sotw();
      sotw.send('eds', { resourceNames: names });
      expect(sotw.status?.message).to.contain('40 names and locators in one request');
      const delta = relay.delta();
      delta.send('eds', { resourceNamesSubscribe: names });
      expect(delta.status?.message).to.contain('40 names and locators in one request');
      const client = relay.delta();
      client.send('eds', { resourceNamesUnsubscribe: ['a', 'b', 'c', 'd'] });
      expect(client.status?.code).to.equal(8);
    });

    it('at most 100 types, whatever the limit', () => {
      const relay = new InMemoryRelay();
      const client = relay.sotw();
      for (let index = 0; index < 100; index++) client.send(`example.com/type.${index}`);
      expect(client.status).to.equal(undefined);
      client.send('example.com/one.More');
      expect(client.status?.code).to.equal(8);
      expect(relay.events).to.contain('rejected subscriptions');
    });

    it('at most 16 parameter sets of wildcards in one type', () => {
      const relay = new InMemoryRelay();
      const wildcards = (count: number) =>
        Array.from({ length: count }, (_, index) => ({ name: '*', dynamicParameters: { k: String(index) } }));
      const client = relay.sotw();
      client.send('cds', { resourceLocators: wildcards(16) });
      expect(client.status).to.equal(undefined);
      client.send('cds', { resourceLocators: wildcards(17) });
      expect(client.status?.message).to.contain('17 sets of dynamic parameters');
    });

    it('counts what is subscribed now, not what ever was', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 2 } });
      const client = relay.sotw();
      for (let count = 0; count < 5; count++) {
        client.send('eds', { resourceNames: [`a${count}`, `b${count}`] });
      }
      expect(client.status).to.equal(undefined);
    });

    it('a delta stream cannot name more, little by little, than one request could', () => {
      const relay = new InMemoryRelay({ limits: { maxNamesLength: type('eds').length + 100 } });
      const client = relay.delta();
      const name = (index: number): string => `${index}${'x'.repeat(29)}`;
      for (const index of [0, 1, 2]) client.send('eds', { resourceNamesSubscribe: [name(index)] });
      client.send('eds', { resourceNamesSubscribe: [name(3)], resourceNamesUnsubscribe: [name(0)] });
      expect(client.status).to.equal(undefined);
      client.send('cds', { resourceNamesSubscribe: [name(4)] }); // 90 and 30
      expect(client.status?.code).to.equal(8);
      expect(client.status?.message)
        .to.contain(`${type('eds').length + type('cds').length + 120} characters`)
        .and.to.contain('max_request_bytes');
      expect(relay.events).to.contain('rejected subscriptions');
    });

    describe('§4.5 names that were unsubscribed under a wildcard, until a response speaks of them', () => {
      const limits = { maxSubscriptions: 10, maxNamesLength: 1000 };
      function swap(client: DeltaClient, count: number, length = 1): void {
        for (let index = 0; index < count; index++) {
          const names = [0, 1, 2, 3].map((one) => `${index}.${one}${'x'.repeat(length)}`);
          client.send('cds', { resourceNamesSubscribe: names, resourceNamesUnsubscribe: names });
        }
      }

      it('a client that does not read cannot add to them without end', () => {
        const relay = new InMemoryRelay({ limits });
        const client = relay.delta();
        client.send('cds', { resourceNamesSubscribe: ['*'] });
        relay.full('cds', { a: 'x' });
        client.blocked = true;
        swap(client, 1); // is sent, and waits in the client's window
        swap(client, 2);
        expect(client.status).to.equal(undefined);
        swap(client, 1);
        expect(client.status?.code).to.equal(8);
        expect(client.status?.message).to.contain('12 names').and.to.contain('max_subscriptions_per_stream');
        expect(relay.events).to.contain('rejected subscriptions');
      });

      it('nor one whose wildcard is not answered', () => {
        const relay = new InMemoryRelay({ limits });
        const client = relay.delta();
        client.send('cds', { resourceNamesSubscribe: ['*'] });
        swap(client, 2);
        expect(client.status).to.equal(undefined);
        client.send('cds', { resourceNamesSubscribe: ['b', 'c', 'd'] });
        client.send('cds', { resourceNamesUnsubscribe: ['b', 'c', 'd'] });
        expect(client.status?.message).to.contain('11 names');
      });

      it('few that are long count as one request could name', () => {
        const relay = new InMemoryRelay({ limits });
        const client = relay.delta();
        client.send('cds', { resourceNamesSubscribe: ['*'] });
        swap(client, 1, 200);
        expect(client.status).to.equal(undefined);
        swap(client, 1, 200);
        expect(client.status?.message).to.contain('max_request_bytes');
      });

      it('one that reads may go on for ever', () => {
        const relay = new InMemoryRelay({ limits });
        const client = relay.delta();
        client.send('cds', { resourceNamesSubscribe: ['*'] });
        relay.full('cds', { a: 'x' });
        for (let count = 0; count < 10; count++) {
          swap(client, 1);
          relay.clock.advance(1000);
        }
        expect(client.status).to.equal(undefined);
        expect(client.received().flatMap(({ removedResources }) => removedResources)).to.have.length(40);
      });

      it('globs that are swapped before they are answered are forgotten', () => {
        const relay = new InMemoryRelay({ limits });
        const client = relay.delta();
        const glob = (index: number): string =>
          `xdstp://a/${type('cds')}/${index}/*`.replace('type.googleapis.com/', '');
        client.send('cds', { resourceNamesSubscribe: ['*', glob(0), 'b'] });
        for (let index = 0; index < 20; index++)
          client.send('cds', {
            resourceNamesSubscribe: [glob(index + 1)],
            resourceNamesUnsubscribe: [glob(index)],
          });
        client.send('cds', { resourceNamesUnsubscribe: ['b'] });
        expect(client.status).to.equal(undefined);
      });
    });

    it('the interest of a stream that was ended goes too', () => {
      const relay = new InMemoryRelay({ limits: { maxSubscriptions: 1 }, idleMilliseconds: 1000 });
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['a'] });
      client.send('eds', { resourceNames: ['a', 'b'] });
      relay.clock.advance(1000);
      expect(relay.upstream.journal).to.deep.equal(['+eds a', '-eds a']);
      expect(relay.relay.server.size).to.equal(0);
    });
  });

  describe('subscription_changes_per_second', () => {
    function churn(client: SotwClient, times: number): number {
      for (let count = 0; count < times; count++) {
        if (client.paused) return count;
        client.send('eds', { resourceNames: [`x${count % 7}`] });
      }
      return times;
    }

    it('past the rate reading pauses, and goes on when the time has come', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 10 } });
      const client = relay.sotw();
      expect(churn(client, 100)).to.equal(11);
      expect(relay.events.filter((event) => event === 'rejected rate')).to.have.length(1);
      relay.clock.advance(99);
      expect(client.paused).to.equal(true);
      relay.clock.advance(1);
      expect(client.paused).to.equal(false);
      expect(client.status).to.equal(undefined);
    });

    for (const hours of [-1, 1])
      it(`the wall clock is set by ${hours} h: no stream is read later for it`, () => {
        const relay = new InMemoryRelay({ limits: { changesPerSecond: 10 } });
        const client = relay.sotw();
        expect(churn(client, 2)).to.equal(2);
        relay.clock.step(hours * 3_600_000);
        expect(churn(client, 2)).to.equal(2);
        expect(client.paused).to.equal(false);
        relay.clock.advance(10_000);
        expect(client.status).to.equal(undefined);
      });

    it('what shows much costs more to change, but not to subscribe to', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 20 } });
      const client = relay.delta();
      const names = Array.from({ length: 10_000 }, (_, index) => `name-${index}`);
      client.send('eds', { resourceNamesSubscribe: names });
      relay.clock.advance(0);
      expect(client.paused).to.equal(false);
      client.send('eds', { resourceNamesUnsubscribe: ['name-0'] }); // 20: 9,999 are left
      expect(client.paused).to.equal(true);
      relay.clock.advance(49);
      expect(client.paused, '21 were spent of 20').to.equal(true);
      relay.clock.advance(1);
      expect(client.paused).to.equal(false);
    });

    it('after a large change others have a turn, though there is time left', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 100 } });
      const client = relay.delta();
      const names = Array.from({ length: 1500 }, (_, index) => `name-${index}`);
      client.send('eds', { resourceNamesSubscribe: names });
      client.send('eds', { resourceNamesUnsubscribe: ['name-0'] });
      expect(client.paused).to.equal(true);
      relay.clock.advance(0);
      expect(client.paused).to.equal(false);
      expect(relay.events).to.not.contain('rejected rate');
    });

    it('the same names in another order cost nothing if they are few, and as much as a change if they are many', () => {
      const pausedAfter = (names: number): boolean => {
        const relay = new InMemoryRelay({ limits: { changesPerSecond: 10 } });
        const client = relay.sotw();
        const resourceNames = Array.from({ length: names }, (_, index) => `name-${index}`);
        client.send('eds', { resourceNames });
        for (let turn = 0; turn < 20; turn++) {
          resourceNames.push(resourceNames.shift() ?? '');
          client.send('eds', { resourceNames: [...resourceNames] });
        }
        return client.paused;
      };
      expect(pausedAfter(100)).to.equal(false);
      expect(pausedAfter(5000)).to.equal(true);
    });

    it('ACKs are free, of names and locators too', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 2 } });
      const client = relay.sotw();
      const names = Array.from({ length: 600 }, (_, index) => `name-${index}`);
      const asked = {
        resourceNames: names,
        resourceLocators: [locator('located', { env: 'prod' })],
      };
      client.send('eds', asked);
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'name-0', '1')] });
      const { nonce, versionInfo } = client.one();
      for (let count = 0; count < 5; count++) {
        client.send('eds', { ...asked, responseNonce: nonce, versionInfo });
        client.send('eds', { ...asked, responseNonce: nonce, errorDetail: { code: 13, message: 'no' } });
      }
      expect(client.paused).to.equal(false);
      client.send('eds', { ...asked, resourceLocators: [], responseNonce: nonce, versionInfo });
      expect(client.paused).to.equal(true);
    });

    it('a new rate holds for streams that are open', () => {
      const limits = { changesPerSecond: 1000 };
      const relay = new InMemoryRelay({ limits });
      const client = relay.sotw();
      expect(churn(client, 5)).to.equal(5);
      limits.changesPerSecond = 10;
      expect(churn(client, 100)).to.equal(11);
    });

    it('ACKs and NACKs are free', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 2 } });
      const client = relay.sotw();
      client.send('cds');
      relay.full('cds', { a: '1' });
      const response = client.one();
      for (let count = 0; count < 50; count++) {
        client.ack('cds', response);
        client.nack('cds', response);
      }
      expect(client.paused).to.equal(false);
    });

    it('responses go on while reading is paused', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 2 } });
      const client = relay.sotw();
      churn(client, 10);
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x2', '1')] });
      expect(resources(client.one())).to.deep.equal({ x2: '1' });
    });

    it('a stream that ends while it is paused leaves no timer behind', () => {
      const relay = new InMemoryRelay({ limits: { changesPerSecond: 1 } });
      const client = relay.sotw();
      churn(client, 10);
      client.disconnect();
      client.paused = true;
      relay.clock.advance(10_000);
      expect(client.paused, 'nobody resumed it').to.equal(true);
    });
  });

  describe('stalled_timeout', () => {
    it('a client that does not read for so long is ended, with the limit’s name', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 5000 } });
      const untouched = checkConsistency(relay);
      const client = relay.sotw();
      client.blocked = true;
      client.send('cds');
      relay.clock.advance(4000);
      expect(client.status).to.equal(undefined);
      relay.clock.advance(2000);
      expect(client.status?.code).to.equal(8);
      expect(client.status?.message).to.contain('stalled_timeout');
      expect(relay.events).to.contain('rejected stalled');
      untouched();
    });

    it('one that reads now and then is not', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 5000 } });
      const client = relay.sotw();
      client.send('cds');
      for (let version = 1; version < 10; version++) {
        relay.full('cds', { a: String(version) });
        client.readOne();
        relay.clock.advance(4000);
        client.unblock();
      }
      expect(client.status).to.equal(undefined);
    });

    it('one that reads a large response for longer than that is not, until it stops', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 5000 } });
      const client = relay.sotw();
      client.blocked = true;
      client.send('cds');
      for (let part = 1; part < 10; part++) {
        relay.clock.advance(4000);
        client.readPart();
      }
      expect(client.status).to.equal(undefined);
      relay.clock.advance(6000);
      expect(client.status?.message).to.contain('stalled_timeout');
    });

    it('one that has nothing to read is not', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 5000 } });
      const client = relay.sotw();
      client.send('cds');
      relay.clock.advance(60_000);
      expect(client.status).to.equal(undefined);
    });
  });

  describe('first_request_timeout', () => {
    it('a stream without a request is ended, with the limit’s name', () => {
      const relay = new InMemoryRelay({ limits: { firstRequestMilliseconds: 5000 } });
      const untouched = checkConsistency(relay);
      const client = relay.sotw();
      client.open();
      relay.clock.advance(4000);
      expect(client.status).to.equal(undefined);
      relay.clock.advance(2000);
      expect(client.status?.code).to.equal(4);
      expect(client.status?.message).to.contain('first_request_timeout');
      expect(relay.events).to.contain('rejected first_request');
      untouched();
    });

    it('time in which the stream had to wait for its peer’s turn does not count', () => {
      const relay = new InMemoryRelay({ limits: { firstRequestMilliseconds: 5000 } });
      const client = relay.sotw();
      client.open();
      client.waitedMilliseconds = 58_000;
      relay.clock.advance(60_000);
      expect(client.status).to.equal(undefined);
      relay.clock.advance(5000);
      expect(client.status?.code).to.equal(4);
    });

    it('§3.11 a client that half-closes is answered first, and its stream ends', () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send('eds', { resourceNamesSubscribe: ['a', 'gone'] });
      client.halfClose();
      expect(client.status, 'nothing is known yet').to.equal(undefined);
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'a', '1')] });
      expect(client.received().map(resources)).to.deep.equal([{ a: '1' }]);
      const { code } = client.status ?? {};
      expect(code, 'what is missing is said, too').to.equal(0);

      const known = relay.sotw();
      known.send('eds', { resourceNames: ['a'] });
      known.halfClose();
      expect(known.status?.code).to.equal(0);
    });

    it('§3.11 of what stays unknown it is told nothing, and ends all the same', () => {
      const relay = new InMemoryRelay({ limits: { firstRequestMilliseconds: 5000 } });
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['unknown'] });
      client.halfClose();
      relay.clock.advance(4000);
      expect(client.status).to.equal(undefined);
      relay.clock.advance(2000);
      expect(client.status).to.deep.equal({ code: 0, message: '' });
      expect(relay.events.filter((event) => event.startsWith('rejected'))).to.deep.equal([]);
    });

    it('nor does it for a Fetch call', () => {
      const relay = new InMemoryRelay({ limits: { firstRequestMilliseconds: 5000 } });
      const client = relay.sotw();
      relay.relay.fetch(client, typeInfo(type('cds')));
      client.waitedMilliseconds = 58_000;
      relay.clock.advance(62_000);
      expect(client.status).to.equal(undefined);
      relay.clock.advance(1000);
      expect(client.status?.message).to.contain('first_request_timeout');
    });

    it('one that has asked once may be silent for ever', () => {
      const relay = new InMemoryRelay({ limits: { firstRequestMilliseconds: 5000 } });
      const client = relay.sotw();
      client.send('cds');
      relay.clock.advance(600_000);
      expect(client.status).to.equal(undefined);
    });
  });

  describe('max_held_bytes_per_peer: what each client of a peer gets alone', () => {
    const fleet = (relay: InMemoryRelay) => {
      const accounts = testAccounts({ heldPerPeer: 1 << 20 }, relay.clock);
      const clients = ['10.0.0.1:1', '10.0.0.2:1'].flatMap((address) =>
        Array.from({ length: 5 }, (_, index) => {
          const client = relay.delta();
          client.peer = testPeer({ address }, accounts);
          client.blocked = address !== '10.0.0.2:1';
          client.send('rds', { resourceNamesSubscribe: [`${address} ${index}`] });
          client.send('eds', { resourceNamesSubscribe: [`${address} ${index}`] });
          return client;
        }),
      );
      return {
        slow: clients.slice(0, 5),
        quick: clients.slice(5),
        account: testPeer({ address: '10.0.0.1:1' }, accounts).account,
        says: (content: string, short = 'eds'): void => {
          const large = content.repeat(300 << 10);
          const puts = ['10.0.0.1:1', '10.0.0.2:1'].flatMap((address) =>
            [0, 1, 2, 3, 4].map((index) => put(type(short), `${address} ${index}`, large)),
          );
          relay.says({ type: type(short), holder: namedHolder, puts });
        },
        turn: (): void => relay.clock.advance(1000),
      };
    };
    const counts = (clients: readonly DeltaClient[]) => clients.map(({ inbox }) => inbox.length);

    it('waits past it until the peer has read what it was sent, and ends no stream', () => {
      const relay = new InMemoryRelay();
      const { slow, quick, account, says, turn } = fleet(relay);
      const { held } = account;
      for (let update = 1; update <= 3; update++) {
        says(String(update));
        turn();
        expect(counts(quick)).to.deep.equal([1, 1, 1, 1, 1]);
        expect(counts(slow).filter((count) => count === 0)).to.have.length.above(0);
        // All read, each after all the others.
        for (let reads = 0; reads < 5; reads++) {
          for (const client of slow) {
            if (client.inbox.length > 0) client.unblock();
            client.blocked = true;
            expect(account.held).to.be.below(1.6 * (1 << 20));
            turn();
          }
        }
        for (const client of [...slow, ...quick])
          expect(
            client.received().map((response) => Object.values(resources(response))[0]?.[0]),
          ).to.deep.equal([String(update)]);
      }
      expect([...slow, ...quick].filter(({ status }) => status !== undefined)).to.deep.equal([]);
      expect(relay.events.filter((event) => event.startsWith('rejected'))).to.deep.equal([]);
      expect(account.held).to.equal(held);
    });

    it('comes in order when it has waited, and what is newest of it', () => {
      const relay = new InMemoryRelay();
      const { slow, says, turn } = fleet(relay);
      const last = slow.at(-1);
      says('1');
      says('1', 'rds');
      says('2');
      expect(last?.inbox).to.have.length(0);
      for (const client of slow) client.unblock();
      turn();
      const said = last?.received().map((one) => [one.typeUrl, Object.values(resources(one))[0]?.[0]]);
      expect(said).to.deep.equal([
        [type('eds'), '2'],
        [type('rds'), '1'],
      ]);
    });

    it('comes one by one if they never read: each ends by stalled_timeout, and the next has its turn', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 60_000 } });
      const { slow, account, says, turn } = fleet(relay);
      says('1');
      const before = counts(slow);
      expect(before.filter((count) => count === 0)).to.have.length.within(1, 3);
      for (let minute = 0; minute < 5; minute++) {
        relay.clock.advance(61_000);
        turn();
        expect(account.held).to.be.below(1.6 * (1 << 20));
      }
      for (const { status } of slow) expect(status?.message).to.contain('stalled_timeout');
      expect(account.held).to.equal(0);
    });

    it('waits for no longer than twice stalled_timeout if nothing is read meanwhile', () => {
      const relay = new InMemoryRelay({ limits: { stalledMilliseconds: 60_000 } });
      const { slow, quick, account, says } = fleet(relay);
      // What reads a little each minute never stalls.
      account.enter(unreadPlace);
      account.keeps(2 << 20);
      says('1');
      expect(counts(slow)).to.deep.equal([0, 0, 0, 0, 0]);
      relay.clock.advance(119_000);
      for (const { status } of slow) expect(status).to.equal(undefined);
      relay.clock.advance(2000);
      for (const { status } of slow) expect(status?.message).to.contain('max_held_bytes_per_peer');
      expect(relay.events.filter((event) => event.startsWith('rejected held_bytes'))).to.have.length(5);
      for (const { status } of quick) expect(status).to.equal(undefined);
    });

    it('is looked for each second, as other peers make room too', () => {
      const relay = new InMemoryRelay();
      const { slow, account, says } = fleet(relay);
      account.enter(unreadPlace);
      account.keeps(2 << 20);
      says('1');
      account.leave(unreadPlace);
      expect(counts(slow)).to.deep.equal([0, 0, 0, 0, 0]);
      relay.clock.advance(1000);
      expect(Math.max(...counts(slow))).to.equal(1);
    });

    it('is not what others share, but what one of them has rejected, or has a TTL, is', () => {
      const relay = new InMemoryRelay();
      const { slow, says, turn } = fleet(relay);
      const sharing = (short: string, features: readonly string[] = []): DeltaClient => {
        const client = relay.delta();
        client.peer = slow[0]?.peer ?? client.peer;
        client.send(short, { resourceNamesSubscribe: ['*'], node: node({}, features) });
        return client;
      };
      const lasting = (content: string, ttlMilliseconds?: number): void =>
        relay.says({
          type: type('lds'),
          holder: wildcardHolder,
          puts: [{ ...put(type('lds'), 'l', content), ttlMilliseconds }],
        });
      const [takes, rejects] = [sharing('cds'), sharing('cds')];
      const timed = ['xds.config.supports-resource-ttl'];
      const [told, other] = [sharing('lds', timed), sharing('lds', timed)];
      relay.full('cds', { c: '1' });
      takes.ack('cds', takes.one());
      rejects.nack('cds', rejects.one());
      lasting('1');
      told.ack('lds', told.one());
      other.ack('lds', other.one());
      says('1');
      turn();
      relay.full('cds', { c: '2' }, '2');
      lasting('2');
      expect(counts([takes, rejects, told, other])).to.deep.equal([1, 0, 1, 1]);
      lasting('3', 60_000);
      expect(counts([told, other])).to.deep.equal([1, 1]);
      for (let reads = 0; reads < 3; reads++) {
        for (const client of slow) if (client.inbox.length > 0) client.unblock();
        turn();
      }
      expect(counts([takes, rejects, told, other])).to.deep.equal([1, 1, 2, 2]);
    });

    it('what others get too counts once for a peer while any of its streams has not read it, and waits past it', () => {
      const relay = new InMemoryRelay();
      const { slow, quick, account, says, turn } = fleet(relay);
      // Two streams make each response one that is shared; they are one peer's.
      const twins = slow.map(({ peer }, index) => {
        const twin = relay.delta();
        twin.peer = peer;
        twin.blocked = true;
        twin.send('eds', { resourceNamesSubscribe: [`10.0.0.1:1 ${index}`] });
        return twin;
      });
      const { held } = account;
      says('1');
      turn();
      expect(counts(quick)).to.deep.equal([1, 1, 1, 1, 1]);
      // Two are 1.2 MB.
      const written = [...slow, ...twins].flatMap(({ inbox }) => inbox);
      expect(new Set(written).size).to.equal(2);
      expect(account.held).to.equal(held);
      for (const client of [...slow, ...twins]) client.unblock();
      turn();
      for (const client of [...slow, ...twins]) expect(client.received()).to.have.length(1);
      expect(account.sharedExcess).to.equal(undefined);
      expect(relay.events.filter((event) => event.startsWith('rejected'))).to.deep.equal([]);
    });

    it('one that goes while it waits leaves its turn to the next', () => {
      const relay = new InMemoryRelay();
      const { slow, says, turn } = fleet(relay);
      says('1');
      const waiting = slow.filter(({ inbox }) => inbox.length === 0);
      for (const client of waiting.slice(0, -1)) client.disconnect();
      for (const client of slow) if (client.inbox.length > 0) client.unblock();
      turn();
      expect(counts(waiting)).to.deep.equal(waiting.map((_, index) => (index < waiting.length - 1 ? 0 : 1)));
    });
  });

  it('max_response_bytes: a stream that ends by a response is sent and counted no other', () => {
    const relay = new InMemoryRelay({ limits: { maxResponseBytes: 1000 } });
    const client = relay.sotw();
    // As a socket does: that it is closed is told later.
    client.end = (status) => {
      client.status = status;
    };
    relay.sotw().send('lds');
    relay.full('lds', { small: 'x' });
    client.blocked = true;
    client.send('eds', { resourceNames: ['e'] });
    relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'e', '1')] });
    for (const short of ['cds', 'lds']) client.send(short);
    relay.full('cds', { large: 'x'.repeat(2000) });
    relay.events.length = 0;
    client.unblock();
    expect(client.status?.message).to.contain('max_response_bytes');
    expect(relay.events.filter((event) => event.startsWith('response'))).to.deep.equal([]);
    client.disconnect();
  });

  it('max_response_bytes: old and new state together may be larger than each, and then the old one goes at once', () => {
    const limits = { maxResponseBytes: 1500, removalGraceMilliseconds: 15_000 };
    const relay = new InMemoryRelay({ limits });
    const client = relay.sotw();
    const shown = (): string[] =>
      client.received().map((response) => Object.keys(resources(response)).toSorted().join(' '));
    client.send('cds');
    const large = 'x'.repeat(1000);
    relay.full('cds', { a: large });
    client.send('rds', { resourceNames: ['r'] });
    // It has not accepted its routes, so they may lead to any cluster.
    relay.says({ type: type('rds'), holder: namedHolder, puts: [put(type('rds'), 'r', '1')] });
    client.received();
    relay.full('cds', { b: large });
    expect(shown()).to.deep.equal(['b']);
    relay.full('cds', { c: 'x' });
    expect(shown(), '§8.6').to.deep.equal(['b c']);
    expect(client.status).to.equal(undefined);
  });

  describe('what leaves the cache is counted, by why', () => {
    const holding = (relay: InMemoryRelay): SotwClient => {
      relay.full('cds', { a: '1', b: '1' });
      const client = relay.sotw();
      client.send('cds');
      return client;
    };

    it('idle_ttl: each variant that nobody has wanted for so long', () => {
      const relay = new InMemoryRelay({ idleMilliseconds: 1000 });
      holding(relay).disconnect();
      relay.clock.advance(999);
      expect(relay.evicted).to.deep.equal([]);
      relay.clock.advance(1);
      expect(relay.evicted).to.deep.equal(['idle 2']);
    });

    it('max_bytes: each variant that had to make room', () => {
      const relay = new InMemoryRelay({ maxCacheBytes: 1000 });
      holding(relay).disconnect();
      const other = relay.sotw();
      other.send('eds', { resourceNames: ['x'] });
      relay.says({ type: type('eds'), holder: namedHolder, puts: [put(type('eds'), 'x', 'y'.repeat(1000))] });
      expect(relay.evicted).to.deep.equal(['size 2']);
    });

    it('max_bytes: what is held of a name goes with the last interest in it', () => {
      const said = { type: type('eds'), holder: namedHolder };
      const relay = new InMemoryRelay({ maxCacheBytes: 1000 });
      const client = relay.sotw();
      client.send('eds', { resourceNames: ['a'] });
      relay.says({ ...said, puts: [put(type('eds'), 'a', 'x'.repeat(2000))] });
      relay.relay.gate.gatedTypes(new Set([type('eds')]));
      relay.says({ ...said, puts: [put(type('eds'), 'a', '2')] });
      relay.upstream.unsubscribed = () => relay.says({ ...said, unwanted: true, complete: true });
      client.disconnect();
      relay.clock.advance(2000);
      relay.settle();
      expect(relay.relay.store.bytes).to.be.lessThan(1000);
    });

    it('max_bytes: what is held is looked at once in a turn, and only if an interest has ended', () => {
      const said = { type: type('eds'), holder: namedHolder };
      const relay = new InMemoryRelay({ maxCacheBytes: 1000 });
      const names = Array.from({ length: 100 }, (_, index) => `n${index}`);
      relay.sotw().send('eds', { resourceNames: names });
      const all = (content: string) => names.map((name) => put(type('eds'), name, content));
      relay.says({ ...said, puts: all('1') });
      relay.relay.gate.gatedTypes(new Set([type('eds')]));
      relay.says({ ...said, puts: all('2') });
      const others = names.map((name) => `${name} too`);
      const looks = (run: () => void): number => {
        const count = workOf(TypeTable.prototype, ['isHeldSeen'], () => {
          run();
          relay.settle();
        });
        return count;
      };
      const client = relay.sotw();
      expect(looks(() => client.send('eds', { resourceNames: others }))).to.equal(0);
      client.disconnect();
      expect(
        looks(() => relay.clock.advance(2000)),
        'a hundred ends',
      ).to.equal(names.length);
    });

    it('max_bytes: thousands that make room at once are counted once each', () => {
      const names = Array.from({ length: 2000 }, (_, index) => `n${index}`);
      const said = { type: type('eds'), holder: namedHolder };
      const relay = new InMemoryRelay({ maxCacheBytes: 10_000_000 });
      const client = relay.sotw();
      client.send('eds', { resourceNames: names });
      relay.says({ ...said, puts: names.map((name) => put(type('eds'), name, '1')) });
      client.disconnect();
      // As ADS does: what ends is a transaction.
      relay.upstream.unsubscribed = () => relay.says({ ...said, unwanted: true });
      relay.sotw().send('eds', { resourceNames: ['x'] });
      relay.relay.apply(transaction({ ...said, puts: [put(type('eds'), 'x', 'y'.repeat(10_000_000))] }));
      expect(relay.evicted.length, 'others get their turn').to.be.lessThan(names.length);
      relay.settle();
      expect(relay.evicted).to.deep.equal(names.map(() => 'size 1'));
      expect(relay.relay.store.variants(type('eds'))).to.equal(1);
    });
  });
});
