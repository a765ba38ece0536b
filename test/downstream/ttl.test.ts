import { create } from '@bufbuild/protobuf';
import { type Any, anyIs, anyUnpack } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import { ResourceSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import {
  contentOf,
  InMemoryRelay,
  namedHolder,
  nameOf,
  node,
  put,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';

/** `name:content~seconds`, without what is not there. */
function written(any: Any): string {
  const wrapped = anyIs(any, ResourceSchema) ? anyUnpack(any, ResourceSchema) : undefined;
  if (wrapped === undefined) return `${nameOf(any)}:${contentOf(any)}`;
  const ttl = wrapped.ttl === undefined ? '' : `~${Number(wrapped.ttl.seconds) + wrapped.ttl.nanos / 1e9}`;
  return `${wrapped.name}:${contentOf(wrapped.resource)}${ttl}`;
}

const told = (client: SotwClient): string[] =>
  client.received().map(({ resources }) => resources.map(written).join(' '));

function subscribed(relay: InMemoryRelay, short: string, names: readonly string[], ttl = true): SotwClient {
  const client = relay.sotw();
  client.send(short, {
    node: create(NodeSchema, node({}, ttl ? ['xds.config.supports-resource-ttl'] : [])),
    resourceNames: [...names],
  });
  return client;
}

function says(
  relay: InMemoryRelay,
  short: string,
  name: string,
  content: string,
  ttlMilliseconds?: number,
): void {
  const url = type(short);
  relay.says({ type: url, holder: namedHolder, puts: [put(url, name, content, { ttlMilliseconds })] });
}

function beats(relay: InMemoryRelay, short: string, name: string, ttlMilliseconds?: number): void {
  const beat = { name: resourceName(name), constraints: UNCONSTRAINED, ttlMilliseconds };
  relay.says({ type: type(short), holder: namedHolder, heartbeats: [beat] });
}

describe('times to live (§8)', () => {
  it('§8 go, wrapped, only to clients with xds.config.supports-resource-ttl', () => {
    const relay = new InMemoryRelay();
    const able = subscribed(relay, 'eds', ['a']);
    const unable = subscribed(relay, 'eds', ['a'], false);
    says(relay, 'eds', 'a', '1', 5000);
    expect(told(able)).to.deep.equal(['a:1~5']);
    expect(told(unable)).to.deep.equal(['a:1']);
  });

  it('§3.1 a node that says mid-stream that the client understands them is taken', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'eds', ['a'], false);
    says(relay, 'eds', 'a', '1', 5000);
    const first = client.one();
    client.send('eds', {
      node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])),
      responseNonce: first.nonce,
      resourceNames: ['a'],
    });
    expect(told(client)).to.deep.equal([]);
    says(relay, 'eds', 'a', '2', 5000);
    expect(told(client)).to.deep.equal(['a:2~5']);
  });

  it('§8 resources without one are not wrapped for them', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'eds', ['a']);
    says(relay, 'eds', 'a', '1');
    const [any] = client.one().resources;
    expect(any?.typeUrl).to.equal(type('eds'));
  });

  it('§8 late subscribers get what remains', () => {
    const relay = new InMemoryRelay();
    subscribed(relay, 'eds', ['a']);
    says(relay, 'eds', 'a', '1', 5000);
    relay.clock.advance(3500);
    expect(told(subscribed(relay, 'eds', ['a']))).to.deep.equal(['a:1~1.5']);
  });

  for (const hours of [-1, 1])
    it(`§8 the same if the wall clock is set by ${hours} h meanwhile, and it expires in its time`, () => {
      const relay = new InMemoryRelay();
      const client = subscribed(relay, 'eds', ['a']);
      says(relay, 'eds', 'a', '1', 5000);
      relay.clock.step(hours * 3_600_000);
      relay.clock.advance(3500);
      expect(told(subscribed(relay, 'eds', ['a']))).to.deep.equal(['a:1~1.5']);
      expect(relay.evicted).to.deep.equal([]);
      relay.clock.advance(1500);
      relay.settle();
      expect(relay.evicted).to.have.length(1);
      expect(told(client)).to.deep.equal(['a:1~5']);
    });

  it('§8 slow clients too', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'eds', ['a', 'b']);
    client.blocked = true;
    says(relay, 'eds', 'b', '1');
    told(client);
    says(relay, 'eds', 'a', '1', 5000);
    relay.clock.advance(3500);
    client.unblock();
    expect(told(client)).to.deep.equal(['a:1~1.5']);
  });

  it('§4.11 a heartbeat of upstream is passed on to those who count: without the body in delta', () => {
    const relay = new InMemoryRelay();
    const delta = relay.delta();
    delta.send('eds', {
      node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])),
      resourceNamesSubscribe: ['a'],
    });
    const sotw = subscribed(relay, 'eds', ['a']);
    const unable = subscribed(relay, 'eds', ['a'], false);
    says(relay, 'eds', 'a', '1', 5000);
    for (const client of [sotw, unable]) client.received();
    delta.ack('eds', delta.one());
    relay.clock.advance(4000);
    beats(relay, 'eds', 'a', 5000);
    const [beat] = delta.one().resources;
    expect([beat?.name, beat?.resource, beat?.ttl?.seconds]).to.deep.equal(['a', undefined, 5n]);
    expect(told(sotw)).to.deep.equal(['a:1~5']);
    expect(told(unable)).to.deep.equal([]);
  });

  // Envoy takes a resource without a body for a heartbeat only if the version of its response is the accepted one.
  it('§4.11 what a SotW response prolongs has its body, beside what has changed and alone', () => {
    const relay = new InMemoryRelay();
    const both = subscribed(relay, 'eds', ['a', 'b']);
    const one = subscribed(relay, 'eds', ['b']);
    const url = type('eds');
    const puts = (content: string) => [
      put(url, 'a', content, { ttlMilliseconds: 5000 }),
      put(url, 'b', '1', { ttlMilliseconds: 5000 }),
    ];
    relay.says({ type: url, holder: namedHolder, version: '1', puts: puts('1') });
    told(both);
    told(one);
    relay.clock.advance(1000);
    relay.says({ type: url, holder: namedHolder, version: '2', puts: puts('2') });
    expect(told(both)).to.deep.equal(['a:2~5 b:1~5']);
    expect(told(one)).to.deep.equal(['b:1~5']);
  });

  for (const short of ['cds', 'lds']) {
    it(`§8 in SotW ${short} refreshes carry full bodies, and the whole set`, () => {
      const relay = new InMemoryRelay();
      const client = subscribed(relay, short, ['a', 'b']);
      says(relay, short, 'a', '1', 5000);
      says(relay, short, 'b', '1');
      told(client);
      beats(relay, short, 'a', 5000);
      expect(told(client), 'not a moment has passed').to.deep.equal([]);
      relay.clock.advance(1000);
      beats(relay, short, 'a', 5000);
      expect(told(client)).to.deep.equal(['a:1~5 b:1']);
    });
  }

  it('§8 the relay invents no heartbeats', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'eds', ['a']);
    says(relay, 'eds', 'a', '1', 60_000);
    told(client);
    relay.clock.advance(59_000);
    relay.settle();
    expect(told(client)).to.deep.equal([]);
  });

  it('§8 the relay runs the timer: when it has run out the resource is gone', () => {
    const relay = new InMemoryRelay();
    const able = subscribed(relay, 'cds', ['a']);
    const unable = subscribed(relay, 'cds', ['a'], false);
    says(relay, 'cds', 'a', '1', 5000);
    told(able);
    told(unable);
    relay.clock.advance(5000);
    relay.settle();
    expect(told(able)).to.deep.equal(['']);
    expect(told(unable)).to.deep.equal(['']);
  });

  it('§3.10 its end keeps the upstream’s version', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'cds', ['a']);
    says(relay, 'cds', 'a', '1', 5000);
    const { versionInfo } = client.one();
    relay.clock.advance(5000);
    relay.settle();
    expect(client.one().versionInfo).to.equal(versionInfo);
  });

  it('§8 a heartbeat in time keeps it', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'cds', ['a'], false);
    says(relay, 'cds', 'a', '1', 5000);
    told(client);
    for (let beat = 0; beat < 5; beat++) {
      relay.clock.advance(4000);
      beats(relay, 'cds', 'a', 5000);
    }
    expect(told(client)).to.deep.equal([]);
    relay.clock.advance(5000);
    relay.settle();
    expect(told(client)).to.deep.equal(['']);
  });

  it('§8.1 one that upstream prolongs after its end is asked for once more, by the names that it is subscribed by', () => {
    const relay = new InMemoryRelay();
    for (const names of [['a'], []]) subscribed(relay, 'cds', names, false);
    says(relay, 'cds', 'a', '1', 5000);
    beats(relay, 'cds', 'a', 5000);
    relay.clock.advance(5000);
    relay.settle();
    const asked = (): readonly string[] => relay.upstream.journal.filter((line) => line.startsWith('again'));
    // Upstream may let it end.
    expect(asked()).to.deep.equal([]);
    beats(relay, 'cds', 'a', 5000);
    expect(asked()).to.deep.equal(['again cds a']);
    says(relay, 'cds', 'a', '1', 5000);
    beats(relay, 'cds', 'a', 5000);
    beats(relay, 'cds', 'a');
    expect(asked()).to.deep.equal(['again cds a']);
    says(relay, 'cds', 'a', '1', 5000);
    relay.clock.advance(5000);
    relay.settle();
    beats(relay, 'cds', 'a');
    expect(asked()).to.deep.equal(['again cds a', 'again cds a']);
  });

  const ends: Readonly<Record<string, (relay: InMemoryRelay) => void>> = {
    'by the resource': (relay) => says(relay, 'eds', 'a', '1'),
    'by a heartbeat': (relay) => beats(relay, 'eds', 'a'),
  };
  for (const [how, end] of Object.entries(ends))
    it(`§8 a time to live that is taken away ${how} is told, and over`, () => {
      const relay = new InMemoryRelay();
      const client = subscribed(relay, 'eds', ['a']);
      const delta = relay.delta();
      delta.send('eds', {
        node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])),
        resourceNamesSubscribe: ['a'],
      });
      says(relay, 'eds', 'a', '1', 5000);
      told(client);
      delta.ack('eds', delta.one());
      end(relay);
      expect(told(client)).to.deep.equal(['a:1']);
      const [resource] = delta.one().resources;
      expect([contentOf(resource?.resource), resource?.ttl]).to.deep.equal(['1', undefined]);
      relay.clock.advance(60_000);
      expect(told(subscribed(relay, 'eds', ['a']))).to.deep.equal(['a:1']);
      expect(delta.received()).to.deep.equal([]);
    });

  for (const protocol of ['sotw', 'delta'] as const) {
    for (const rejecting of [0, 1]) {
      it(`§8.5 that is not told to who has rejected the content, whoever is first (${protocol}, ${rejecting})`, () => {
        const relay = new InMemoryRelay();
        const names = protocol === 'sotw' ? { resourceNames: ['a'] } : { resourceNamesSubscribe: ['a'] };
        const clients = [0, 1].map(() => (protocol === 'sotw' ? relay.sotw() : relay.delta()));
        for (const client of clients)
          client.send('eds', {
            node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])),
            ...names,
          });
        says(relay, 'eds', 'a', '1', 5000);
        for (const [index, client] of clients.entries()) {
          const { nonce: responseNonce } = client.one();
          const errorDetail = index === rejecting ? { errorDetail: { code: 13, message: 'rejected' } } : {};
          const again = protocol === 'sotw' ? names : {};
          client.send('eds', { responseNonce, ...again, ...errorDetail });
        }
        says(relay, 'eds', 'a', '1');
        const counts = clients.map((client) => client.received().length);
        expect(counts).to.deep.equal(rejecting === 0 ? [0, 1] : [1, 0]);
        says(relay, 'eds', 'a', '2');
        expect(clients.map((client) => client.received().length)).to.deep.equal([1, 1]);
      });
    }
  }

  for (const short of ['eds', 'vhds']) {
    it(`§8 one that is prolonged is told to who asks by an alias, and so is that it is taken away (${short})`, () => {
      const relay = new InMemoryRelay();
      const client = relay.delta();
      client.send(short, {
        node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])),
        resourceNamesSubscribe: ['r/alias'],
      });
      const url = type(short);
      const comes = (ttlMilliseconds?: number): void =>
        relay.says({
          type: url,
          holder: namedHolder,
          puts: [put(url, 'r/a', '1', { aliases: ['r/alias'], ttlMilliseconds })],
        });
      const seconds = (): unknown[] =>
        client.received().flatMap(({ resources }) => resources.map(({ ttl }) => ttl && Number(ttl.seconds)));
      comes(10_000);
      expect(seconds()).to.deep.equal([10]);
      relay.clock.advance(5000);
      comes(10_000);
      expect(seconds()).to.deep.equal([10]);
      relay.clock.advance(5000);
      beats(relay, short, 'r/a', 10_000);
      expect(seconds()).to.deep.equal([10]);
      comes();
      expect(seconds()).to.deep.equal([undefined]);
    });
  }

  it('§8 one of more than setTimeout can wait for ends in the end', () => {
    const relay = new InMemoryRelay();
    relay.clock.longest = 10_000;
    const client = subscribed(relay, 'cds', ['a'], false);
    says(relay, 'cds', 'a', '1', 25_000);
    told(client);
    relay.clock.advance(24_000);
    relay.settle();
    expect(told(client)).to.deep.equal([]);
    relay.clock.advance(1000);
    relay.settle();
    expect(told(client)).to.deep.equal(['']);
  });

  it('§8 a variant has one timer, however often upstream says it or prolongs it', () => {
    const relay = new InMemoryRelay();
    const client = subscribed(relay, 'eds', ['a']);
    let timers = 0;
    const after = relay.clock.after.bind(relay.clock);
    relay.clock.after = (milliseconds, run) => {
      if (milliseconds > 3_000_000) timers++;
      return after(milliseconds, run);
    };
    for (let second = 0; second < 100; second++) {
      says(relay, 'eds', 'a', `${second}`, 3_600_000);
      beats(relay, 'eds', 'a', 3_600_000);
      relay.clock.advance(1000);
    }
    expect(timers).to.equal(1);
    relay.clock.advance(3_600_000 - 1001);
    relay.settle();
    expect(relay.evicted).to.deep.equal([]);
    told(client);
    relay.clock.advance(1);
    relay.settle();
    expect(relay.evicted).to.deep.equal(['ttl 1']);
  });

  it('§8 a shorter time to live counts at once', () => {
    const relay = new InMemoryRelay();
    subscribed(relay, 'eds', ['a']);
    says(relay, 'eds', 'a', '1', 60_000);
    beats(relay, 'eds', 'a', 5000);
    relay.clock.advance(5000);
    relay.settle();
    expect(relay.evicted).to.deep.equal(['ttl 1']);
    relay.clock.advance(60_000);
    relay.settle();
    expect(relay.evicted).to.deep.equal(['ttl 1']);
  });

  it('§8.1 what came together ends together, but of thousands the rest in later turns, each once', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds', { resourceNamesSubscribe: ['*'] });
    const names = Array.from({ length: 5000 }, (_, index) => `c${index}`);
    const url = type('cds');
    let timers = 0;
    const after = relay.clock.after.bind(relay.clock);
    relay.clock.after = (milliseconds, run) => {
      if (milliseconds === 5000) timers++;
      return after(milliseconds, run);
    };
    relay.says({ type: url, puts: names.map((name) => put(url, name, '1', { ttlMilliseconds: 5000 })) });
    expect(timers).to.equal(1);
    client.ack('cds', client.one());
    relay.clock.advance(5000);
    relay.turn();
    expect(relay.evicted).to.deep.equal(['ttl 2000']);
    const beat = { name: resourceName('c4999'), constraints: UNCONSTRAINED, ttlMilliseconds: 5000 };
    relay.says({ type: url, heartbeats: [beat] });
    expect(relay.evicted, 'it was prolonged while it waited').to.deep.equal([
      'ttl 2000',
      'ttl 2000',
      'ttl 999',
    ]);
    const removed = (): string[] =>
      client.received().flatMap((response) => {
        client.ack('cds', response);
        return response.removedResources;
      });
    const gone = [...removed(), ...removed()];
    expect(gone.toSorted()).to.deep.equal(names.slice(0, -1).toSorted());
    relay.clock.advance(4999);
    relay.settle();
    expect(removed()).to.deep.equal([]);
    relay.clock.advance(1);
    relay.settle();
    expect(removed()).to.deep.equal(['c4999']);
    expect(relay.evicted.slice(3)).to.deep.equal(['ttl 1']);
  });

  it('§8.1 timers that a shorter time to live has overtaken end with it', () => {
    const relay = new InMemoryRelay();
    subscribed(relay, 'eds', ['a']);
    let waiting = 0;
    const after = relay.clock.after.bind(relay.clock);
    relay.clock.after = (milliseconds, run) => {
      if (milliseconds < 3_000_000) return after(milliseconds, run);
      waiting++;
      const timer = after(milliseconds, run);
      return {
        cancel: () => {
          waiting--;
          timer.cancel();
        },
      };
    };
    for (let round = 0; round < 100; round++) {
      says(relay, 'eds', 'a', '1', 3_600_000);
      says(relay, 'eds', 'a', '1', 5000);
      says(relay, 'eds', 'a', '1', 3_600_000);
      relay.clock.advance(5000);
      relay.settle();
    }
    expect(waiting).to.equal(1);
    expect(relay.evicted).to.deep.equal([]);
  });
});
