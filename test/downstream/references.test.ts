import { create } from '@bufbuild/protobuf';
import { expect } from 'chai';
import { NodeSchema } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import type {
  DeltaDiscoveryResponse,
  DiscoveryResponse,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { resourceName, typeUrl } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import type { Put, Transaction } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { Cursor } from '../../src/views/cursor.ts';
import {
  type DeltaClient,
  envAndVersion,
  InMemoryRelay,
  namedHolder,
  node,
  resources,
  type SotwClient,
  type,
  when,
  wildcardHolder,
} from '../support/in-memory-relay.ts';
import { realPut } from '../support/real-bodies.ts';
import { workOf } from '../support/work.ts';

const grace = 15_000;
const makeLab = (): InMemoryRelay => new InMemoryRelay({ limits: { removalGraceMilliseconds: grace } });

const clusters = (lab: InMemoryRelay, ...names: readonly string[]): void =>
  lab.says({
    type: type('cds'),
    complete: true,
    puts: names.map((name) => realPut('cds', name, { type: 'STATIC' })),
  });

/** `answers`: only for these names, as SotW does. */
const route = (lab: InMemoryRelay, to: string, answers?: readonly string[]): void => {
  const routes = [{ match: { prefix: '/' }, route: { cluster: to } }];
  const virtualHosts = [{ name: 'all', domains: ['*'], routes }];
  const resolved = [...lab.upstream.interests].filter(
    (one) => one.type === type('rds') && answers?.includes(one.selector) !== false,
  );
  lab.says({
    type: type('rds'),
    holder: namedHolder,
    puts: [realPut('rds', 'r', { virtualHosts })],
    resolved,
  });
};

const gone = (lab: InMemoryRelay, short: string, name: string): void =>
  lab.says({
    type: type(short),
    holder: namedHolder,
    removals: [{ name: resourceName(name), constraints: UNCONSTRAINED }],
  });

function line(response: DiscoveryResponse | DeltaDiscoveryResponse): string {
  const { short } = typeInfo(typeUrl(response.typeUrl));
  const there = Object.keys(resources(response)).toSorted();
  const removed = 'removedResources' in response ? response.removedResources.map((name) => `-${name}`) : [];
  return [short, ...there, ...removed].join(' ');
}

/** What a client is told, each response accepted at once. */
interface Accepting {
  told(): string[];
  /** Without an answer. */
  heard(): string[];
  accept(): void;
  reject(): void;
  /** Of the responses so far. */
  readonly nonces: readonly string[];
}

function accepting(
  client: SotwClient | DeltaClient,
  names: Readonly<Record<string, readonly string[]>>,
): Accepting {
  const pending: ((errorDetail?: { readonly code: number; readonly message: string }) => void)[] = [];
  const nonces: string[] = [];
  const accept = (): void => {
    for (const run of pending.splice(0)) run();
  };
  const reject = (): void => {
    for (const run of pending.splice(0)) run({ code: 13, message: 'rejected' });
  };
  const heard = (): string[] =>
    client.received().map((response) => {
      const { short } = typeInfo(typeUrl(response.typeUrl));
      nonces.push(response.nonce);
      pending.push((errorDetail) => {
        if ('removedResources' in response)
          client.send(short, { responseNonce: response.nonce, ...(errorDetail && { errorDetail }) });
        else {
          const { versionInfo, nonce: responseNonce } = response;
          const resourceNames = [...(names[short] ?? [])];
          client.send(short, {
            versionInfo,
            responseNonce,
            resourceNames,
            ...(errorDetail && { errorDetail }),
          });
        }
      });
      return line(response);
    });
  const told = (): string[] => {
    const all: string[] = [];
    for (let more = heard(); more.length > 0; more = heard()) {
      all.push(...more);
      accept();
    }
    return all;
  };
  return { told, heard, accept, reject, nonces };
}

/** An Envoy with cluster x and the route r to it. */
function settled(
  protocol: 'sotw' | 'delta',
  lab: InMemoryRelay = makeLab(),
): { lab: InMemoryRelay; client: Accepting; raw: SotwClient | DeltaClient } {
  const raw = protocol === 'sotw' ? lab.sotw() : lab.delta();
  const client = accepting(raw, { rds: ['r'] });
  raw.send('cds');
  clusters(lab, 'x');
  client.told();
  raw.send('rds', protocol === 'sotw' ? { resourceNames: ['r'] } : { resourceNamesSubscribe: ['r'] });
  route(lab, 'x');
  client.told();
  return { lab, client, raw };
}

for (const protocol of ['sotw', 'delta'] as const) {
  const [union, exact] = protocol === 'sotw' ? ['cds x y', 'cds y'] : ['cds y', 'cds -x'];

  describe(`what a client still refers to (${protocol})`, () => {
    it('§8.6 a cluster stays until the client has accepted routes that do not lead to it', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([union]);
      route(lab, 'y');
      expect(client.heard()).to.deep.equal(['rds r']);
      client.accept();
      expect(client.told()).to.deep.equal([exact]);
    });

    it('§8.6 a removal alone says nothing until then', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'x', 'y');
      client.told();
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([]);
      route(lab, 'y');
      expect(client.told()).to.deep.equal(['rds r', exact]);
    });

    it('§8.6 what nothing refers to goes at once', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'x', 'z');
      client.told();
      clusters(lab, 'x');
      expect(client.told()).to.deep.equal([protocol === 'sotw' ? 'cds x' : 'cds -z']);
    });

    it('§8.6 routes that the client rejects still lead to the cluster', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'y');
      client.told();
      route(lab, 'y');
      expect(client.heard()).to.deep.equal(['rds r']);
      client.reject();
      expect(client.told()).to.deep.equal([]);
      route(lab, 'y');
      lab.clock.advance(grace);
      expect(client.told()).to.deep.equal([exact]);
      expect(lab.events).to.include('overdue cds removal x');
    });

    it('§8.6 after removal_grace it goes, and that is told', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([union]);
      lab.clock.advance(grace - 1);
      expect(client.told()).to.deep.equal([]);
      lab.clock.advance(1);
      expect(client.told()).to.deep.equal([exact]);
      expect(lab.events).to.include('overdue cds removal x');
    });

    it('§8.6 what comes back in the meantime is not removed', () => {
      const { lab, client } = settled(protocol);
      clusters(lab, 'y');
      client.told();
      clusters(lab, 'x', 'y');
      client.told();
      lab.clock.advance(2 * grace);
      route(lab, 'y');
      expect(client.told()).to.deep.equal(['rds r']);
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([exact]);
    });

    it('§8.6 what the client asks for no more is not removed later', () => {
      const { lab, client, raw } = settled(protocol);
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([union]);
      const responseNonce = client.nonces.at(-1) ?? '';
      if (protocol === 'sotw') raw.send('cds', { responseNonce, resourceNames: ['y'] });
      else raw.send('cds', { resourceNamesSubscribe: ['y'], resourceNamesUnsubscribe: ['*'] });
      expect(client.heard()).to.deep.equal(['cds y']);
      if (protocol === 'sotw')
        raw.send('cds', { responseNonce: client.nonces.at(-1) ?? '', resourceNames: ['y'] });
      else client.accept();
      lab.clock.advance(2 * grace);
      route(lab, 'y');
      expect(client.told()).to.deep.equal(['rds r']);
      expect(lab.events).to.not.include('overdue cds removal x');
    });

    for (const knowsTtl of [true, false]) {
      it(`§8.6, §8.1 what has expired is not kept for who runs the timer (${knowsTtl})`, () => {
        const { lab, client, raw } = settled(protocol);
        if (knowsTtl) {
          const is = create(NodeSchema, node({}, ['xds.config.supports-resource-ttl']));
          raw.send('cds', { node: is, responseNonce: client.nonces[0] ?? '' });
        }
        const shorter = (...names: readonly string[]): void =>
          lab.says({
            type: type('cds'),
            complete: true,
            puts: names.map((name) => ({
              ...realPut('cds', name, { type: 'STATIC' }),
              ttlMilliseconds: name === 'x' ? 5000 : undefined,
            })),
          });
        shorter('x');
        client.told();
        // Upstream removes it, and its time passes only then.
        shorter('y');
        expect(client.told()).to.deep.equal([union]);
        lab.clock.advance(5000);
        shorter('y', 'z');
        const rest = protocol === 'sotw' ? ['cds y z'] : ['cds z -x'];
        const kept = protocol === 'sotw' ? ['cds x y z'] : ['cds z'];
        expect(client.told()).to.deep.equal(knowsTtl ? rest : kept);
        // Its time passes first.
        shorter('x', 'y', 'z');
        client.told();
        lab.clock.advance(5000);
        lab.settle();
        expect(client.told()).to.deep.equal(knowsTtl ? [protocol === 'sotw' ? 'cds y z' : 'cds -x'] : []);
        clusters(lab, 'y');
        const end = protocol === 'sotw' ? 'cds y' : 'cds -z';
        expect(client.told()).to.deep.equal(protocol === 'sotw' && !knowsTtl ? ['cds x y'] : [end]);
      });
    }

    it('§8.6 with removal_grace 0 it goes at once', () => {
      const { lab, client } = settled(protocol, new InMemoryRelay());
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([exact.replace('cds -x', 'cds y -x')]);
    });

    it('§8.7 routes wait for a cluster that has not come', () => {
      const { lab, client } = settled(protocol);
      route(lab, 'y');
      expect(client.told()).to.deep.equal([]);
      clusters(lab, 'y');
      expect(client.told()).to.deep.equal([union, 'rds r', exact]);
    });

    it('§8.7 for a second at most, and that is told; what they led to before is not waited for', () => {
      const { lab, client } = settled(protocol);
      route(lab, 'elsewhere');
      lab.clock.advance(999);
      expect(client.told()).to.deep.equal([]);
      lab.clock.advance(1);
      expect(client.told()).to.deep.equal(['rds r']);
      expect(lab.events).to.include('overdue rds missing elsewhere');
      route(lab, 'elsewhere');
      clusters(lab, 'x', 'z');
      expect(client.told()).to.deep.equal([protocol === 'sotw' ? 'cds x z' : 'cds z']);
    });

    const alsoAskFor = (
      others: readonly string[],
      raw: SotwClient | DeltaClient,
      { nonces }: Accepting,
    ): void => {
      for (const [index, other] of others.entries())
        raw.send('rds', {
          ...(protocol === 'sotw'
            ? { responseNonce: nonces.at(-1) ?? '', resourceNames: ['r', ...others.slice(0, index + 1)] }
            : { resourceNamesSubscribe: [other] }),
        });
    };

    it('§8.7 what routes led to before is not waited for, although the client subscribes to others meanwhile', () => {
      for (const others of [['q'], ['q', 'p']]) {
        const { lab, client, raw } = settled(protocol);
        route(lab, 'missing');
        lab.clock.advance(1000);
        expect(client.told()).to.deep.equal(['rds r']);
        const routes = ['missing', 'y'].map((cluster) => ({ match: { prefix: '/' }, route: { cluster } }));
        const virtualHosts = [{ name: 'all', domains: ['*'], routes }];
        const puts = [realPut('rds', 'r', { virtualHosts })];
        lab.says({ type: type('rds'), holder: namedHolder, puts, resolved: [] });
        alsoAskFor(others, raw, client);
        expect(client.told()).to.deep.equal([]);
        clusters(lab, 'x', 'y');
        expect(client.told()).to.deep.equal([protocol === 'sotw' ? 'cds x y' : 'cds y', 'rds r']);
      }
    });

    it('§8.7 routes wait although the client subscribes to others meanwhile', () => {
      for (const others of [['q'], ['q', 'p']]) {
        const { lab, client, raw } = settled(protocol);
        route(lab, 'y');
        alsoAskFor(others, raw, client);
        expect(client.told()).to.deep.equal([]);
        clusters(lab, 'y');
        expect(client.told()).to.deep.equal([union, 'rds r', exact]);
        expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([]);
      }
    });

    it('§6.1 names in bodies count in whatever spelling', () => {
      const lab = makeLab();
      const uri = (id: string, query: string): string =>
        `xdstp://a/envoy.config.cluster.v3.Cluster/${id}?${query}`;
      const [x, y] = ['x', 'y'].map((id) => uri(id, 'a=1&b=2'));
      const told = (accepts: Accepting): string[] =>
        accepts.told().map((one) => one.replaceAll(/xdstp:\S*Cluster\/(\w)\S*/g, '$1'));
      const raw = protocol === 'sotw' ? lab.sotw() : lab.delta();
      const client = accepting(raw, { rds: ['r'] });
      raw.send('cds');
      clusters(lab, x ?? '');
      client.told();
      raw.send('rds', protocol === 'sotw' ? { resourceNames: ['r'] } : { resourceNamesSubscribe: ['r'] });
      route(lab, uri('x', 'b=2&a=1'));
      expect(client.told(), 'the cluster is there').to.deep.equal(['rds r']);
      clusters(lab, y ?? '');
      expect(told(client)).to.deep.equal([union]);
      route(lab, uri('y', 'b=2&a=1'));
      expect(told(client)).to.deep.equal(['rds r', exact]);
      expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([]);
    });

    /** The client of `settled`, whose parameters change then: of its routes nothing is known for those yet. */
    function changed(to: string) {
      const lab = new InMemoryRelay({
        rules: envAndVersion,
        limits: { removalGraceMilliseconds: grace },
      });
      const says = (env: string, short: string, put: Put): void => {
        const [url, constraints] = [type(short), when({ env })];
        const holder = { ...(short === 'cds' ? wildcardHolder : namedHolder), key: `${short} ${env}` };
        const resolved = [...lab.upstream.interests].filter(
          (one) => one.type === url && constraints.matches(one.parameters),
        );
        lab.says({ type: url, holder, resolved, puts: [{ ...put, constraints }] });
      };
      const saysCluster = (env: string, name: string): void =>
        says(env, 'cds', realPut('cds', name, { type: 'STATIC' }));
      const saysRoute = (env: string, cluster: string): void => {
        const routes = [{ match: { prefix: '/' }, route: { cluster } }];
        says(env, 'rds', realPut('rds', 'r', { virtualHosts: [{ name: 'all', domains: ['*'], routes }] }));
      };
      const raw = protocol === 'sotw' ? lab.sotw() : lab.delta();
      const client = accepting(raw, { rds: ['r'] });
      raw.send('cds', { node: node({ env: 'prod' }) });
      saysCluster('prod', 'x');
      client.told();
      const [responseNonce = ''] = client.nonces;
      raw.send('rds', protocol === 'sotw' ? { resourceNames: ['r'] } : { resourceNamesSubscribe: ['r'] });
      saysRoute('prod', to);
      lab.clock.advance(1000);
      expect(client.told()).to.deep.equal(['rds r']);
      raw.send('cds', { node: node({ env: 'test' }), responseNonce });
      expect(client.told()).to.deep.equal([]);
      return { lab, client, raw, saysCluster, saysRoute };
    }

    it('§8.6 a cluster stays while routes lead to it of which nothing is known any more', () => {
      const { client, saysCluster, saysRoute } = changed('x');
      saysCluster('test', 'y');
      expect(client.told()).to.deep.equal([union]);
      saysRoute('test', 'y');
      expect(client.told()).to.deep.equal(['rds r', exact]);
    });

    it('§8.7 what such routes led to before is not waited for', () => {
      const { lab, client, saysCluster, saysRoute } = changed('elsewhere');
      saysCluster('test', 'x');
      client.told();
      lab.events.length = 0;
      saysRoute('test', 'elsewhere');
      expect(client.told()).to.deep.equal(['rds r']);
      expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([]);
    });

    it('§3.5 such routes are sent again if the client has unsubscribed them meanwhile', () => {
      const { client, raw, saysRoute } = changed('x');
      const responseNonce = client.nonces.at(-1) ?? '';
      const asks = (...resourceNames: readonly string[]): void =>
        raw.send(
          'rds',
          protocol === 'sotw'
            ? { responseNonce, resourceNames: [...resourceNames] }
            : resourceNames.includes('r')
              ? { resourceNamesSubscribe: [...resourceNames] }
              : { resourceNamesSubscribe: [...resourceNames], resourceNamesUnsubscribe: ['r'] },
        );
      raw.blocked = true;
      asks('q');
      asks('q', 'r');
      raw.unblock();
      expect(client.told()).to.deep.equal([]);
      asks('q', 'r', 'p');
      saysRoute('test', 'x');
      expect(client.told().map((one) => one.slice(0, 5))).to.deep.equal(['rds r']);
    });

    it('§8.6 clients of one kind share the responses', () => {
      const lab = makeLab();
      const [one, other] = [settled(protocol, lab), settled(protocol, lab)];
      clusters(lab, 'y');
      route(lab, 'y');
      const told = one.client.told();
      expect(told).to.deep.equal(other.client.told()).and.deep.equal([union, 'rds r', exact]);
      expect(one.client.nonces.slice(-3)).to.deep.equal(other.client.nonces.slice(-3));
    });
  });
}

describe('what a client still refers to, on streams of single types', () => {
  const path = (service: string, method: string): string => `/envoy.service.${service}/${method}`;

  it('§8.6, §8.7 the streams of one node are one conversation', () => {
    const lab = makeLab();
    const cds = lab.delta(path('cluster.v3.ClusterDiscoveryService', 'DeltaClusters'));
    const rds = lab.delta(path('route.v3.RouteDiscoveryService', 'DeltaRoutes'));
    const [clustersOf, routesOf] = [accepting(cds, {}), accepting(rds, {})];
    cds.send('cds');
    clusters(lab, 'x');
    clustersOf.told();
    rds.send('rds', { resourceNamesSubscribe: ['r'] });
    route(lab, 'x');
    expect(routesOf.told()).to.deep.equal(['rds r']);
    clusters(lab, 'y');
    expect(clustersOf.told()).to.deep.equal(['cds y']);
    route(lab, 'y');
    expect(routesOf.told()).to.deep.equal(['rds r']);
    expect(clustersOf.told()).to.deep.equal(['cds -x']);
    route(lab, 'z');
    expect(routesOf.told()).to.deep.equal([]);
    clusters(lab, 'y', 'z');
    expect(clustersOf.told()).to.deep.equal(['cds z']);
    expect(routesOf.told()).to.deep.equal(['rds r']);
    rds.disconnect();
    clusters(lab, 'y');
    expect(clustersOf.told()).to.deep.equal(['cds -z']);
  });

  it('§8.7, §6.1 endpoints are accepted in whatever spelling the client asks for them', () => {
    const lab = makeLab();
    const streams = [
      ['cds', 'cluster.v3.ClusterDiscoveryService', 'DeltaClusters'],
      ['eds', 'endpoint.v3.EndpointDiscoveryService', 'DeltaEndpoints'],
      ['rds', 'route.v3.RouteDiscoveryService', 'DeltaRoutes'],
    ] as const;
    const open = ([, service, method]: (typeof streams)[number]) => lab.delta(path(service, method));
    const [cds, eds, rds] = streams.map(open);
    if (cds === undefined || eds === undefined || rds === undefined) throw new Error('no streams');
    const uri = (query: string): string =>
      `xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/e?${query}`;
    const says = (connectTimeout: string): void => {
      const edsClusterConfig = { serviceName: uri('b=2&a=1'), edsConfig: { ads: {} } };
      const x = realPut('cds', 'x', { type: 'EDS', edsClusterConfig, connectTimeout });
      lab.says({ type: type('cds'), complete: true, puts: [x] });
    };
    const [clustersOf, endpointsOf, routesOf] = [cds, eds, rds].map((one) => accepting(one, {}));
    cds.send('cds');
    eds.send('eds', { resourceNamesSubscribe: [uri('b=%32&a=1')] });
    rds.send('rds', { resourceNamesSubscribe: ['r'] });
    says('1s');
    clustersOf?.told();
    lab.says({ type: type('eds'), holder: namedHolder, puts: [realPut('eds', uri('a=1&b=2'), {})] });
    endpointsOf?.told();
    route(lab, 'x');
    routesOf?.told();
    says('2s');
    expect(clustersOf?.told()).to.deep.equal(['cds x']);
    lab.says({ type: type('rds'), holder: namedHolder, puts: [realPut('rds', 'r', {})], resolved: [] });
    expect(routesOf?.told(), 'at once').to.deep.equal(['rds r']);
  });
});

describe('routes and what their clusters need, on streams of single types (§8.3, §8.7)', () => {
  const tls = {
    '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
    commonTlsContext: { validationContextSdsSecretConfig: { name: 'ca', sdsConfig: { ads: {} } } },
  };
  const transportSocket = { name: 'tls', typedConfig: tls };

  /** A client with cluster a, its endpoints and the route r to it. It accepts clusters before they have endpoints. */
  function apart() {
    const lab = makeLab();
    const service = (name: string): string => `/envoy.service.${name}`;
    const cds = lab.delta(service('cluster.v3.ClusterDiscoveryService/DeltaClusters'));
    const eds = lab.delta(service('endpoint.v3.EndpointDiscoveryService/DeltaEndpoints'));
    const rds = lab.delta(service('route.v3.RouteDiscoveryService/DeltaRoutes'));
    const [clustersOf, endpointsOf, routesOf] = [accepting(cds, {}), accepting(eds, {}), accepting(rds, {})];
    const shown = new Map<string, Put>();
    /** Clusters come, and the client asks for their endpoints. */
    const come = (names: readonly string[], body: object = {}): void => {
      for (const name of names) shown.set(name, realPut('cds', name, { type: 'EDS', ...body }));
      lab.says({ type: type('cds'), complete: true, puts: [...shown.values()] });
    };
    const ask = (...names: readonly string[]): void =>
      eds.send('eds', { resourceNamesSubscribe: [...names] });
    const endpoints = (...names: readonly string[]): void => {
      const puts = names.map((name) => realPut('eds', name, {}));
      const resolved = [...lab.upstream.interests].filter(
        (one) => one.type === type('eds') && names.includes(one.selector),
      );
      lab.says({ type: type('eds'), holder: namedHolder, puts, resolved });
    };
    cds.send('cds');
    rds.send('rds', { resourceNamesSubscribe: ['r'] });
    come(['a']);
    clustersOf.told();
    ask('a');
    endpoints('a');
    endpointsOf.told();
    route(lab, 'a');
    expect(routesOf.told()).to.deep.equal(['rds r']);
    return { lab, come, ask, endpoints, clustersOf, endpointsOf, routesOf };
  }

  it('endpoints that never come hold up no routes later, and those that come do', () => {
    const { lab, come, ask, endpoints, clustersOf, endpointsOf, routesOf } = apart();
    come(['b']);
    clustersOf.told();
    ask('b');
    lab.clock.advance(3_600_000);
    come(['d']);
    clustersOf.told();
    ask('d');
    route(lab, 'd');
    expect(routesOf.told()).to.deep.equal([]);
    endpoints('d');
    expect(endpointsOf.told()).to.deep.equal(['eds d']);
    expect(routesOf.told()).to.deep.equal(['rds r']);
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([]);
  });

  it('the time for clusters begins anew once those before are accepted, with all that they need', () => {
    for (const later of [900, 3_600_000]) {
      const { lab, come, ask, endpoints, clustersOf, endpointsOf, routesOf } = apart();
      come(['b']);
      clustersOf.told();
      ask('b');
      endpoints('b');
      endpointsOf.told();
      lab.clock.advance(later);
      come(['d']);
      clustersOf.told();
      ask('d');
      route(lab, 'd');
      lab.clock.advance(999);
      expect(routesOf.told()).to.deep.equal([]);
      lab.clock.advance(1);
      expect(routesOf.told()).to.deep.equal(['rds r']);
      expect(lab.events).to.include('overdue rds warming');
    }
  });

  it('all that the last clusters need is waited for, although some of those before is accepted', () => {
    const { lab, come, ask, endpoints, clustersOf, endpointsOf, routesOf } = apart();
    come(['b', 'c']);
    clustersOf.told();
    ask('b', 'c');
    endpoints('b');
    endpointsOf.told();
    come(['d']);
    clustersOf.told();
    ask('d');
    endpoints('c');
    endpointsOf.told();
    route(lab, 'd');
    expect(routesOf.told()).to.deep.equal([]);
    endpoints('d');
    endpointsOf.told();
    expect(routesOf.told()).to.deep.equal(['rds r']);
  });

  it('secrets that the client does not ask for here hold up routes once', () => {
    const { lab, come, ask, endpoints, clustersOf, endpointsOf, routesOf } = apart();
    for (const [name, waits] of [
      ['b', true],
      ['d', false],
    ] as const) {
      come([name], { transportSocket });
      clustersOf.told();
      ask(name);
      endpoints(name);
      endpointsOf.told();
      route(lab, name);
      expect(routesOf.told()).to.deep.equal(waits ? [] : ['rds r']);
      lab.clock.advance(3_600_000);
      expect(routesOf.told()).to.deep.equal(waits ? ['rds r'] : []);
    }
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal(['overdue rds warming']);
  });

  it('clusters that the client never accepts hold up routes once', () => {
    const { lab, come, clustersOf, routesOf } = apart();
    for (const [name, waits] of [
      ['b', true],
      ['d', false],
    ] as const) {
      come([name], { type: 'STRICT_DNS' });
      expect(clustersOf.heard()).to.deep.equal([`cds ${name}`]);
      route(lab, name);
      expect(routesOf.told()).to.deep.equal(waits ? [] : ['rds r']);
      lab.clock.advance(1000);
      expect(routesOf.told()).to.deep.equal(waits ? ['rds r'] : []);
    }
  });
});

describe('what a client still refers to that was away (delta)', () => {
  /** It comes back with cluster x and the route r to it, and hears of cluster y. */
  function back(lab: InMemoryRelay): {
    raw: DeltaClient;
    client: Accepting;
    versions: Record<string, string>;
  } {
    const first = lab.delta();
    first.send('cds');
    first.send('rds', { resourceNamesSubscribe: ['r'] });
    clusters(lab, 'x');
    route(lab, 'x');
    const versions: Record<string, string> = {};
    for (const { resources: all } of first.received())
      for (const { name, version } of all) versions[name] = version;
    first.disconnect();
    clusters(lab, 'y');
    const raw = lab.delta();
    const client = accepting(raw, {});
    raw.send('cds', { initialResourceVersions: { x: versions['x'] ?? '' } });
    return { raw, client, versions };
  }
  const r = (versions: Record<string, string>): object => ({
    resourceNamesSubscribe: ['r'],
    initialResourceVersions: { r: versions['r'] },
  });

  it('§8.6 a cluster that was removed meanwhile stays until the client has accepted other routes', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    raw.send('rds', r(versions));
    expect(client.told()).to.deep.equal(['cds y']);
    lab.clock.advance(2000);
    expect(client.told()).to.deep.equal([]);
    route(lab, 'y');
    expect(client.told()).to.deep.equal(['rds r', 'cds -x']);
  });

  it('§8.6 routes that changed meanwhile go before it', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    route(lab, 'y');
    raw.send('rds', r(versions));
    expect(client.told()).to.deep.equal(['cds y', 'rds r']);
    lab.clock.advance(1999);
    expect(client.told()).to.deep.equal([]);
    lab.clock.advance(1);
    expect(client.told()).to.deep.equal(['cds -x']);
  });

  it('§8.6 a client of clusters alone is told of it 2 s later', () => {
    const lab = makeLab();
    const { client } = back(lab);
    expect(client.told()).to.deep.equal(['cds y']);
    lab.clock.advance(1999);
    expect(client.told()).to.deep.equal([]);
    lab.clock.advance(1);
    expect(client.told()).to.deep.equal(['cds -x']);
  });

  it('§8.6 streams of single types wait for nothing', () => {
    const lab = makeLab();
    lab.delta().send('cds');
    clusters(lab, 'y');
    const raw = lab.delta('/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters');
    raw.send('cds', { initialResourceVersions: { x: '1' } });
    expect(raw.received().map(({ removedResources }) => removedResources)).to.deep.equal([['x']]);
  });

  it('§8.6 after removal_grace it goes, and that is told', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    raw.send('rds', r(versions));
    client.told();
    lab.clock.advance(grace - 1);
    expect(client.told()).to.deep.equal([]);
    lab.clock.advance(1);
    expect(client.told()).to.deep.equal(['cds -x']);
    expect(lab.events).to.include('overdue cds removal x');
  });

  it('§8.6 endpoints that it names stay with their cluster', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    lab.delta().send('eds', { resourceNamesSubscribe: ['x'] });
    gone(lab, 'eds', 'x');
    raw.send('eds', { resourceNamesSubscribe: ['x'], initialResourceVersions: { x: '1' } });
    raw.send('rds', r(versions));
    expect(client.told()).to.deep.equal(['cds y']);
    lab.clock.advance(2000);
    expect(client.told()).to.deep.equal([]);
    route(lab, 'y');
    expect(client.told()).to.deep.equal(['rds r', 'cds -x', 'eds -x']);
  });

  it('§8.6 a name that it subscribes to and nobody answers for holds up nothing later', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    raw.send('rds', { ...r(versions), resourceNamesSubscribe: ['r', 'nobody'] });
    client.told();
    lab.clock.advance(grace);
    route(lab, 'y', ['r']);
    expect(client.told()).to.deep.equal(['cds -x', 'rds r']);
    clusters(lab, 'y', 'z');
    route(lab, 'z', ['r']);
    expect(client.told()).to.deep.equal(['cds z', 'rds r']);
    clusters(lab, 'z');
    expect(client.told()).to.deep.equal(['cds -y']);
    expect(lab.events.filter((event) => event.startsWith('overdue'))).to.deep.equal([
      'overdue cds removal x',
    ]);
  });

  it('§8.7 routes that changed meanwhile wait for clusters that have not come', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    route(lab, 'z');
    raw.send('rds', r(versions));
    expect(client.told()).to.deep.equal(['cds y']);
    lab.clock.advance(200);
    expect(client.told()).to.deep.equal([]);
    clusters(lab, 'y', 'z');
    expect(client.told()).to.deep.equal(['cds z', 'rds r']);
  });

  it('§8.6, §4.1 what comes back is not removed, and sent only if it is another', () => {
    const lab = makeLab();
    const { raw, client, versions } = back(lab);
    raw.send('rds', r(versions));
    client.told();
    clusters(lab, 'x', 'y');
    expect(client.told()).to.deep.equal([]);
    lab.clock.advance(2 * grace);
    expect(client.told()).to.deep.equal([]);
  });
});

describe('what a client still refers to that asks for a wildcard besides (delta)', () => {
  function asking() {
    const lab = makeLab();
    const raw = lab.delta();
    const client = accepting(raw, {});
    const removed = [{ name: resourceName('x'), constraints: UNCONSTRAINED }];
    const says = (part: { readonly puts: readonly Put[] } | { readonly removals: typeof removed }): void =>
      lab.says({ type: type('cds'), holder: namedHolder, resolved: [], ...part });
    const comes = (): void => says({ puts: [realPut('cds', 'x', { type: 'STATIC' })] });
    raw.send('cds', { resourceNamesSubscribe: ['x'] });
    comes();
    client.told();
    raw.send('rds', { resourceNamesSubscribe: ['r'] });
    route(lab, 'x');
    client.told();
    raw.send('cds', { resourceNamesSubscribe: ['*'] });
    client.told();
    return { lab, client, comes, goes: () => says({ removals: removed }) };
  }

  it('§8.6 after removal_grace it goes although the wildcard is not answered, and that is told', () => {
    const { lab, client, goes } = asking();
    goes();
    lab.clock.advance(grace - 1);
    expect(client.told()).to.deep.equal([]);
    lab.clock.advance(1);
    expect(client.told()).to.deep.equal(['cds -x']);
    expect(lab.events).to.include('overdue cds removal x');
  });

  it('§8.6 what comes back in the meantime is not removed', () => {
    const { lab, client, comes, goes } = asking();
    goes();
    comes();
    lab.clock.advance(2 * grace);
    expect(client.told()).to.deep.equal([]);
    goes();
    route(lab, 'y');
    lab.clock.advance(1000);
    expect(client.told()).to.deep.equal(['rds r', 'cds -x']);
  });
});

describe('a glob that a client adds and nobody answers (delta)', () => {
  function asking() {
    const { lab, client, raw } = settled('delta');
    raw.send('rds', { resourceNamesSubscribe: ['xdstp://a/envoy.config.route.v3.RouteConfiguration/dir/*'] });
    expect(client.told()).to.deep.equal([]);
    return { lab, client, leadsTo: (name: string) => route(lab, name, ['r']) };
  }

  it('§8.3 routes beside it wait until the client has accepted their clusters', () => {
    const { lab, client, leadsTo } = asking();
    const puts = ['x', 'y'].map((name) => realPut('cds', name, { type: name === 'x' ? 'STATIC' : 'EDS' }));
    lab.says({ type: type('cds'), complete: true, puts });
    expect(client.heard()).to.deep.equal(['cds y']);
    leadsTo('y');
    expect(client.heard()).to.deep.equal([]);
    client.accept();
    expect(client.told()).to.deep.equal(['rds r']);
  });

  it('§8.7 routes beside it wait for clusters that have not come', () => {
    const { lab, client, leadsTo } = asking();
    leadsTo('y');
    expect(client.told()).to.deep.equal([]);
    clusters(lab, 'x', 'y');
    expect(client.told()).to.deep.equal(['cds y', 'rds r']);
  });

  it('§8.6 once routes beside it were sent, what nothing refers to goes at once', () => {
    const { lab, client, leadsTo } = asking();
    clusters(lab, 'y');
    expect(client.told()).to.deep.equal(['cds y']);
    leadsTo('y');
    expect(client.told()).to.deep.equal(['rds r', 'cds -x']);
    clusters(lab, 'y', 'z');
    expect(client.told()).to.deep.equal(['cds z']);
    clusters(lab, 'y');
    expect(client.told()).to.deep.equal(['cds -z']);
  });
});

describe('what a client still refers to, of other types', () => {
  it('§8.6 thousands of endpoints that stay are looked at once for each change, and not for its answer', () => {
    const lab = makeLab();
    const raw = lab.delta();
    const client = accepting(raw, {});
    const names = Array.from({ length: 1000 }, (_, at) => `c-${at}`);
    const says = (part: Partial<Transaction>): void =>
      lab.says({ type: type('eds'), holder: namedHolder, ...part });
    const changes = (weight: number): void => {
      const policy = { overprovisioningFactor: weight };
      says({ puts: [realPut('eds', 'live', { policy })], resolved: [] });
      expect(client.told()).to.deep.equal(['eds live']);
    };
    raw.send('cds');
    clusters(lab, 'live', ...names);
    raw.send('eds', { resourceNamesSubscribe: ['live', ...names] });
    lab.clock.advance(0);
    says({ puts: ['live', ...names].map((name) => realPut('eds', name, {})) });
    client.told();
    says({ removals: names.map((name) => ({ name: resourceName(name), constraints: UNCONSTRAINED })) });
    expect(client.told()).to.deep.equal([]);
    expect(workOf(Cursor.prototype, ['refersTo'], () => changes(100))).to.be.at.most(1000);
    clusters(lab, 'live', ...names.slice(1));
    expect(client.told()).to.deep.equal(['cds -c-0', 'eds -c-0']);
    lab.clock.advance(grace);
    expect(client.told().map((one) => one.split(' ').length)).to.deep.equal([1000]);
  });

  it('§8.6 clients that keep different clusters share no response, whatever the names', () => {
    const lab = makeLab();
    const routesTo = (name: string, to: readonly string[]): Put => {
      const routes = to.map((cluster) => ({ match: { prefix: '/' }, route: { cluster } }));
      return realPut('rds', name, { virtualHosts: [{ name: 'all', domains: ['*'], routes }] });
    };
    const [raw, otherRaw] = [lab.delta(), lab.delta()];
    const [client, other] = [accepting(raw, {}), accepting(otherRaw, {})];
    raw.send('cds');
    otherRaw.send('cds');
    clusters(lab, 'a', 'b', 'a  b');
    raw.send('rds', { resourceNamesSubscribe: ['r'] });
    otherRaw.send('rds', { resourceNamesSubscribe: ['s'] });
    const puts = [routesTo('r', ['a', 'b']), routesTo('s', ['a  b'])];
    lab.says({ type: type('rds'), holder: namedHolder, puts });
    client.told();
    other.told();
    clusters(lab);
    expect(client.told()).to.deep.equal(['cds -a  b']);
    expect(other.told()).to.deep.equal(['cds -a -b']);
  });

  it('§8.6 endpoints stay with their cluster, and secrets too (delta)', () => {
    const lab = makeLab();
    const raw = lab.delta();
    const client = accepting(raw, {});
    const tls = {
      '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
      commonTlsContext: { validationContextSdsSecretConfig: { name: 'ca', sdsConfig: { ads: {} } } },
    };
    raw.send('cds');
    const transportSocket = { name: 'tls', typedConfig: tls };
    const edsClusterConfig = { edsConfig: { ads: {} } };
    const x = realPut('cds', 'x', { type: 'EDS', edsClusterConfig, transportSocket });
    lab.says({ type: type('cds'), complete: true, puts: [x] });
    client.told();
    raw.send('eds', { resourceNamesSubscribe: ['x'] });
    lab.says({ type: type('eds'), holder: namedHolder, puts: [realPut('eds', 'x', {})] });
    raw.send('sds', { resourceNamesSubscribe: ['ca'] });
    lab.says({ type: type('sds'), holder: namedHolder, puts: [realPut('sds', 'ca', { genericSecret: {} })] });
    client.told();
    gone(lab, 'eds', 'x');
    gone(lab, 'sds', 'ca');
    expect(client.told()).to.deep.equal([]);
    clusters(lab);
    expect(client.told().toSorted()).to.deep.equal(['cds -x', 'eds -x', 'sds -ca']);
  });
});
