import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type {
  DeltaDiscoveryResponse,
  DiscoveryResponse,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { typeUrl } from '../../src/model/brand.ts';
import type { Put } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import {
  cluster,
  type DeltaClient,
  InMemoryRelay,
  namedHolder,
  node,
  put,
  resources,
  type SotwClient,
  type,
} from '../support/in-memory-relay.ts';
import { realPut } from '../support/real-bodies.ts';

const line = (response: DiscoveryResponse | DeltaDiscoveryResponse): string =>
  `${typeInfo(typeUrl(response.typeUrl)).short} ${Object.entries(resources(response))
    .map((pair) => pair.join(':'))
    .toSorted()
    .join(' ')}`.trim();

function clusters(relay: InMemoryRelay, ...puts: Put[]): void {
  relay.says({ type: type('cds'), puts, complete: true });
}

const plain = (name: string, content: string): Put => put(type('cds'), name, content);

function endpoints(relay: InMemoryRelay, state: Readonly<Record<string, string>>): void {
  const puts = Object.entries(state).map(([name, content]) => put(type('eds'), name, content));
  relay.says({ type: type('eds'), holder: namedHolder, puts });
}

/** A client with two clusters, one of them with a service name, and their endpoints. */
function envoy(): { lab: InMemoryRelay; client: SotwClient } {
  const relay = new InMemoryRelay();
  const client = relay.sotw();
  client.send('cds');
  clusters(relay, plain('a', '1'), cluster('b', '1', 'svc'));
  client.send('eds', { resourceNames: ['a', 'svc'] });
  endpoints(relay, { a: '1', svc: '1' });
  client.received();
  return { lab: relay, client };
}

const told = (client: SotwClient | DeltaClient): string[] => client.received().map(line);

describe('EDS after CDS (§10.1)', () => {
  it('§10.1 the EDS of a cluster that changed is sent again, after the CDS', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '2'), cluster('b', '1', 'svc'));
    expect(told(client)).to.deep.equal(['cds a:2 b:1', 'eds a:1']);
  });

  it('§10.1 by service_name where the cluster has one', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '1'), cluster('b', '2', 'svc'));
    expect(told(client)).to.deep.equal(['cds a:1 b:2', 'eds svc:1']);
  });

  for (const protocol of ['sotw', 'delta'] as const) {
    it(`§10.1, §6.1 whatever the spelling of its name in the cluster, and the client's (${protocol})`, () => {
      const uri = (query: string): string =>
        `xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/svc?${query}`;
      const [asked, sorted, written] = ['e=%32&z=1', 'e=2&z=1', 'z=1&e=2'].map(uri);
      const relay = new InMemoryRelay();
      const says = (content: string): void =>
        clusters(relay, cluster('b', content, written ?? ''), plain('c', content));
      const clients = [0, 1].map(() => (protocol === 'sotw' ? relay.sotw() : relay.delta()));
      for (const client of clients) client.send('cds');
      says('1');
      const names = [asked ?? '', 'other'];
      for (const client of clients)
        client.send(
          'eds',
          protocol === 'sotw' ? { resourceNames: names } : { resourceNamesSubscribe: names },
        );
      endpoints(relay, { [sorted ?? '']: '1', other: '1' });
      for (const client of clients) client.received();
      says('2');
      const all = clients.map((client) => client.received());
      for (const responses of all) {
        expect(responses.map(({ typeUrl: url }) => url)).to.deep.equal([type('cds'), type('eds')]);
        expect(responses[1]?.resources).to.have.length(1);
      }
      expect(all[0]?.[1]?.nonce, 'one response for both').to.equal(all[1]?.[1]?.nonce);
    });
  }

  it('§10.1 of clusters that did not change nothing is sent again', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '1'), cluster('b', '1', 'svc'), plain('c', '1'));
    expect(told(client)).to.deep.equal(['cds a:1 b:1 c:1']);
  });

  it('§10.1 of clusters that go nothing is sent again', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '1'));
    expect(told(client)).to.deep.equal(['cds a:1']);
  });

  it('§10.1 an EDS response that contains them and comes after the CDS discharges it', () => {
    const { lab: relay, client } = envoy();
    client.blocked = true;
    clusters(relay, plain('a', '2'), cluster('b', '2', 'svc'));
    endpoints(relay, { a: '2' });
    client.unblock();
    expect(told(client)).to.deep.equal(['cds a:2 b:2', 'eds a:2 svc:1']);
    client.send('eds', { resourceNames: ['a', 'svc'] });
    expect(told(client)).to.deep.equal([]);
  });

  it('§10.1 Envoy’s repeated request with the last nonce is an ACK, and gets nothing', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '2'), cluster('b', '1', 'svc'));
    const [, eds] = client.received();
    if (eds === undefined) throw new Error('no EDS');
    client.ack('eds', eds, ['a', 'svc']);
    client.ack('eds', eds, ['a', 'svc']);
    expect(told(client)).to.deep.equal([]);
  });

  it('§10.1 does not wait for the ACK of the CDS', () => {
    const { lab: relay, client } = envoy();
    clusters(relay, plain('a', '2'), cluster('b', '1', 'svc'));
    clusters(relay, plain('a', '3'), cluster('b', '1', 'svc'));
    expect(told(client)).to.deep.equal(['cds a:2 b:1', 'eds a:1', 'cds a:3 b:1', 'eds a:1']);
  });

  it('§10.1 overrides rule 3.12: rejected endpoints are sent again too', () => {
    const { lab: relay, client } = envoy();
    endpoints(relay, { a: 'bad' });
    const [eds] = client.received();
    if (eds === undefined) throw new Error('no EDS');
    client.nack('eds', eds, ['a', 'svc']);
    clusters(relay, plain('a', '2'), cluster('b', '1', 'svc'));
    expect(told(client)).to.deep.equal(['cds a:2 b:1', 'eds a:bad']);
  });

  it('§10.1 endpoints that the client does not hold are not sent again', () => {
    const { lab: relay, client } = envoy();
    const [stream] = relay.relay.server.values();
    expect(stream?.types.map(({ info }) => info.short)).to.deep.equal(['cds', 'eds']);
    clusters(relay, plain('a', '1'), cluster('b', '1', 'svc'), plain('other', '1'));
    expect(told(client)).to.deep.equal(['cds a:1 b:1 other:1']);
  });

  it('§10.1 a refreshed time to live is no change of the cluster', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds', { node: create(NodeSchema, node({}, ['xds.config.supports-resource-ttl'])) });
    const url = type('cds');
    relay.says({ type: url, puts: [put(url, 'a', '1', { ttlMilliseconds: 5000 })], complete: true });
    client.send('eds', { resourceNames: ['a'] });
    endpoints(relay, { a: '1' });
    client.received();
    relay.clock.advance(1000);
    relay.says({ type: url, puts: [put(url, 'a', '1', { ttlMilliseconds: 5000 })], complete: true });
    expect(client.received().map(({ typeUrl: of }) => of)).to.deep.equal([url]);
  });

  it('§10.1 with no EDS on the stream nothing is sent again', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds');
    clusters(relay, plain('a', '1'));
    clusters(relay, plain('a', '2'));
    expect(told(client)).to.deep.equal(['cds a:1', 'cds a:2']);
  });

  it('§10.1 clients that stand alike get the very same EDS buffer', () => {
    const relay = new InMemoryRelay();
    const all = [relay.sotw(), relay.sotw()];
    for (const client of all) {
      client.send('cds');
      client.send('eds', { resourceNames: ['a'] });
    }
    clusters(relay, plain('a', '1'));
    endpoints(relay, { a: '1' });
    for (const client of all) client.received();
    clusters(relay, plain('a', '2'));
    const [one, other] = all.map((client) => client.inbox);
    expect(one).to.have.length(2);
    expect(one?.[0]).to.equal(other?.[0]);
    expect(one?.[1]).to.equal(other?.[1]);
  });
});

describe('LEDS after EDS (§10.1)', () => {
  const [eds, leds] = [type('eds'), type('leds')];
  const uri = (id: string): string => `xdstp://shop.example/envoy.config.endpoint.v3.LbEndpoint/${id}`;
  const [shopGlob, elsewhere] = ['shop/*?b=2&a=1', 'elsewhere/*'];
  const [asked, a, b] = [['shop/*?b=%32&a=1', elsewhere].map(uri), 'shop/a?a=1&b=2', 'shop/b?a=1&b=2'];
  const endpointsOf = (name: string, globs: readonly string[], loadBalancingWeight = 1): Put =>
    realPut('eds', name, {
      endpoints: globs.map((glob) => ({
        loadBalancingWeight,
        ledsClusterLocalityConfig: { ledsConfig: { ads: {} }, ledsCollectionName: uri(glob) },
      })),
    });
  const heard = (client: DeltaClient): string[] =>
    client.received().map((response) => {
      const { resources: all, removedResources, typeUrl: url } = response;
      const names = [...all.map(({ name }) => name), ...removedResources.map((name) => `-${name}`)];
      return [typeInfo(typeUrl(url)).short, ...names].join(' ').replaceAll(uri(''), '');
    });

  /** Two clusters, and the endpoints of the one are these globs. */
  function start(globs: readonly string[] = [shopGlob], members: readonly string[] = [a, 'elsewhere/b']) {
    const relay = new InMemoryRelay();
    const saysCluster = (content: string): void =>
      clusters(relay, plain('shop', content), plain('other', '1'));
    const saysEndpoints = (...puts: readonly Put[]): void =>
      relay.says({ type: eds, holder: namedHolder, puts });
    const saysMembers = (...names: readonly string[]): void =>
      relay.says({ type: leds, holder: namedHolder, puts: names.map((name) => put(leds, uri(name), '1')) });
    const all = Array.from({ length: 2 }, () => relay.delta());
    const [client, other] = all;
    if (client === undefined || other === undefined) throw new Error('no clients');
    for (const one of all) one.send('cds');
    saysCluster('1');
    for (const one of all) one.send('eds', { resourceNamesSubscribe: ['shop', 'other'] });
    saysEndpoints(endpointsOf('shop', globs), endpointsOf('other', [elsewhere]));
    for (const one of all) one.send('leds', { resourceNamesSubscribe: asked });
    saysMembers(...members);
    const versions = Map.groupBy(client.received(), ({ typeUrl: url }) => url);
    other.received();
    const has = (short: string): Record<string, string> => {
      const had = versions.get(type(short))?.flatMap((response) => response.resources) ?? [];
      return Object.fromEntries(had.map(({ name, version }) => [name, version]));
    };
    /** One that has been away, and has all that. */
    const back = (): DeltaClient => {
      const returning = relay.delta();
      returning.blocked = true;
      const asks = { cds: [], eds: ['shop', 'other'], leds: asked };
      for (const [short, resourceNamesSubscribe] of Object.entries(asks))
        returning.send(short, { resourceNamesSubscribe, initialResourceVersions: has(short) });
      returning.unblock();
      return returning;
    };
    return { relay, client, other, saysCluster, saysEndpoints, saysMembers, back };
  }

  it('§10.1 the members of the glob that it names are sent again, in whatever spelling', () => {
    const { client, saysCluster } = start();
    saysCluster('2');
    expect(heard(client)).to.deep.equal(['cds shop', 'eds shop', `leds ${a}`]);
  });

  it('§10.1 of an empty glob that is said again', () => {
    const { client, saysCluster } = start([shopGlob], ['elsewhere/b']);
    saysCluster('2');
    expect(heard(client)).to.deep.equal(['cds shop', 'eds shop', 'leds -shop/*?b=%32&a=1']);
  });

  it('§10.1 where endpoints name no glob nothing is', () => {
    const { client, saysCluster } = start([]);
    saysCluster('2');
    expect(heard(client)).to.deep.equal(['cds shop', 'eds shop']);
  });

  it('§10.1 clients that stand alike get the very same members', () => {
    const { client, other, saysCluster } = start();
    saysCluster('2');
    const [one, two] = [client, other].map(({ inbox }) => inbox);
    expect(one).to.have.length(3);
    expect(one?.[2]).to.equal(two?.[2]);
  });

  it('§10.1 of endpoints that change alone no members are sent again', () => {
    const { client, saysEndpoints } = start();
    saysEndpoints(endpointsOf('shop', [shopGlob], 2));
    expect(heard(client)).to.deep.equal(['eds shop']);
  });

  it('§10.1 those of a glob that changed endpoints newly name are: the client may have it for others', () => {
    const { client, saysEndpoints } = start();
    saysEndpoints(endpointsOf('other', [elsewhere, shopGlob]));
    expect(heard(client)).to.deep.equal(['eds other', `leds ${a}`]);
  });

  it('§10.1 those of endpoints of which it has rejected the last are: it has nothing of that', () => {
    const { client, other, saysEndpoints } = start();
    saysEndpoints(endpointsOf('other', [elsewhere, shopGlob]));
    const [rejected] = client.received();
    if (rejected === undefined) throw new Error('no EDS');
    client.nack('eds', rejected);
    other.received();
    saysEndpoints(endpointsOf('other', [elsewhere, shopGlob], 2));
    expect(heard(other)).to.deep.equal(['eds other']);
    expect(heard(client)).to.deep.equal(['eds other', `leds ${a} elsewhere/b`]);
  });

  it('§10.1 those of endpoints that are new to the client are, as they are by now', () => {
    const { relay, saysEndpoints, saysMembers } = start();
    const all = [0, 1, 2].map(() => relay.delta());
    const [one, other, late] = all;
    if (one === undefined || other === undefined || late === undefined) throw new Error('no clients');
    for (const client of all) client.send('leds', { resourceNamesSubscribe: asked });
    one.send('eds', { resourceNamesSubscribe: ['third'] });
    for (const client of all) client.received();
    saysEndpoints(endpointsOf('third', [shopGlob]));
    expect(heard(one)).to.deep.equal(['eds third', `leds ${a}`]);
    other.send('eds', { resourceNamesSubscribe: ['third'] });
    const { nonce } = other.received()[0] ?? {};
    saysMembers(b);
    expect(heard(one)).to.deep.equal([`leds ${b}`]);
    expect(heard(late)).to.deep.equal([`leds ${b}`]);
    late.send('eds', { resourceNamesSubscribe: ['third'] });
    const responses = late.received();
    expect(responses[0]?.nonce, 'the response of the others').to.equal(nonce);
    expect(responses[1]?.resources.map(({ name }) => name).toSorted()).to.deep.equal([a, b].map(uri));
  });

  it('§10.1, §4.1 a client that comes back is sent those of a changed cluster', () => {
    const { saysCluster, back } = start();
    saysCluster('2');
    expect(heard(back())).to.deep.equal(['cds shop', 'eds shop', `leds ${a}`]);
  });

  it('§10.1, §4.1 and not those of endpoints that have changed alone', () => {
    const { saysEndpoints, back } = start();
    saysEndpoints(endpointsOf('shop', [shopGlob], 2));
    expect(heard(back())).to.deep.equal(['eds shop']);
  });
});

describe('EDS after CDS, of endpoints of which nothing is known any more (§10.1)', () => {
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`they are sent once they are known again, also if they are the same (${protocol})`, () => {
      const relay = new InMemoryRelay();
      const eds = type('eds');
      const all = relay.delta();
      all.send('eds', { resourceNamesSubscribe: ['*'] });
      relay.says({ type: eds, puts: [put(eds, 'a', '1')], complete: true });
      const client = protocol === 'sotw' ? relay.sotw() : relay.delta();
      client.send('cds');
      clusters(relay, plain('a', '1'));
      client.send('eds', protocol === 'sotw' ? { resourceNames: ['a'] } : { resourceNamesSubscribe: ['a'] });
      expect(told(client), 'of what the wildcard has').to.deep.equal(['cds a:1', 'eds a:1']);
      // That they left the wildcard says nothing of the name, which has no answer yet.
      relay.says({ type: eds, complete: true, resolved: [] });
      clusters(relay, plain('a', '2'));
      expect(told(client)).to.deep.equal(['cds a:2']);
      endpoints(relay, { a: '1' });
      expect(told(client)).to.deep.equal(['eds a:1']);
      endpoints(relay, { a: '1' });
      expect(told(client)).to.deep.equal([]);
    });
  }
});

describe('EDS after CDS, for a delta client that comes back (§10.1, §4.1)', () => {
  const [cds, eds, sds] = [type('cds'), type('eds'), type('sds')];
  const changed = realPut('cds', 'x', { type: 'EDS', edsClusterConfig: { serviceName: 'svc' } });

  /** What clients know it by that have these endpoints. */
  function versionOf(name: string): string {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: [name] });
    endpoints(relay, { [name]: '1' });
    return client.one().resources[0]?.version ?? '';
  }
  const svc = {
    resourceNamesSubscribe: ['svc'],
    initialResourceVersions: { svc: versionOf('svc') },
  };
  const oldCluster = { initialResourceVersions: { x: 'old@0123456789abcdef' } };
  const saysCluster = (relay: InMemoryRelay): void =>
    relay.says({ type: cds, puts: [changed], complete: true });
  /** It asks for both, and of the two the relay knows the cluster. */
  function comesBack() {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('cds', oldCluster);
    client.send('eds', svc);
    saysCluster(relay);
    return { relay, client };
  }
  /** The types of what it was told. */
  const heard = (client: DeltaClient): string[] => told(client).map((one) => one.split(' ')[0] ?? '');

  it('endpoints that it has, and that the relay does not know yet, are sent once they are known', () => {
    const { relay, client } = comesBack();
    expect(heard(client)).to.deep.equal(['cds']);
    endpoints(relay, { svc: '1' });
    expect(told(client)).to.deep.equal(['eds svc:1']);
    endpoints(relay, { svc: '1' });
    expect(told(client)).to.deep.equal([]);
  });

  it('endpoints that turn out to be gone are removed', () => {
    const { relay, client } = comesBack();
    client.received();
    relay.says({ type: eds, holder: namedHolder });
    expect(client.one().removedResources).to.deep.equal(['svc']);
  });

  for (const isKnown of [true, false]) {
    it(`endpoints that it asks for after the CDS are sent (${isKnown ? 'known' : 'unknown'})`, () => {
      const relay = new InMemoryRelay();
      relay.delta().send('eds', { resourceNamesSubscribe: ['svc', 'other'] });
      if (isKnown) endpoints(relay, { svc: '1', other: '1' });
      const client = relay.delta();
      client.send('cds', oldCluster);
      saysCluster(relay);
      expect(heard(client)).to.deep.equal(['cds']);
      client.send('eds', {
        resourceNamesSubscribe: ['svc', 'other'],
        initialResourceVersions: { svc: versionOf('svc'), other: versionOf('other') },
      });
      if (!isKnown) endpoints(relay, { svc: '1', other: '1' });
      expect(told(client), 'what did not change is skipped').to.deep.equal(['eds svc:1']);
    });
  }

  for (const [answer, code] of [
    ['accepted', undefined],
    ['rejected', 13],
  ] as const) {
    it(`endpoints that it asks for once it has ${answer} the CDS are skipped: nothing waits for them`, () => {
      const relay = new InMemoryRelay();
      relay.delta().send('eds', { resourceNamesSubscribe: ['svc'] });
      endpoints(relay, { svc: '1' });
      const client = relay.delta();
      client.send('cds', oldCluster);
      saysCluster(relay);
      const { nonce: responseNonce } = client.one();
      client.send('cds', { responseNonce, ...(code && { errorDetail: { code, message: 'rejected' } }) });
      client.received();
      client.send('eds', svc);
      expect(heard(client)).to.deep.equal([]);
    });
  }

  it('endpoints that it has asked for, and that are read when the CDS goes out, are sent', () => {
    const relay = new InMemoryRelay();
    relay.delta().send('eds', { resourceNamesSubscribe: ['svc'] });
    endpoints(relay, { svc: '1' });
    const client = relay.delta();
    client.send('cds', oldCluster);
    const many = Array.from({ length: 5000 }, (_, index) => `another-${index}`);
    client.send('eds', { ...svc, resourceNamesSubscribe: ['svc', ...many] });
    saysCluster(relay);
    relay.clock.advance(1000);
    relay.settle();
    expect(heard(client)).to.deep.equal(['cds', 'eds']);
  });

  it('endpoints that are answered after the CDS, in one go, are sent', () => {
    const relay = new InMemoryRelay();
    relay.delta().send('eds', { resourceNamesSubscribe: ['svc'] });
    endpoints(relay, { svc: '1' });
    const client = relay.delta();
    client.send('cds', oldCluster);
    client.send('sds', { resourceNamesSubscribe: ['s'] });
    client.blocked = true;
    relay.says({ type: sds, holder: namedHolder, puts: [put(sds, 's', '1')] });
    client.send('eds', svc);
    saysCluster(relay);
    client.unblock();
    expect(heard(client)).to.deep.equal(['sds', 'cds', 'eds']);
  });
});
