import { expect } from 'chai';
import { referencesOf } from '../../src/wire/references.ts';
import { type } from '../support/in-memory-relay.ts';
import { anyOf } from '../support/real-bodies.ts';

const found = (short: string, fields: object): readonly string[] => {
  const bytes = anyOf(type(short), fields);
  return [...referencesOf({ payload: { bytes, hash: '' } })].toSorted();
};

const api = 'type.googleapis.com/envoy.extensions';

describe('what a resource refers to', () => {
  it('§8.6 routes: clusters, weighted ones, mirrors, those of a filter for one host', () => {
    const routes = [
      { match: { prefix: '/a' }, route: { cluster: 'a' } },
      {
        match: { prefix: '/b' },
        route: {
          weightedClusters: {
            clusters: [
              { name: 'b1', weight: 1 },
              { name: 'b2', weight: 1 },
            ],
          },
        },
      },
      {
        match: { prefix: '/c' },
        route: { clusterHeader: 'x', requestMirrorPolicies: [{ cluster: 'mirror' }] },
      },
    ];
    const perRoute = {
      '@type': `${api}.filters.http.ext_authz.v3.ExtAuthzPerRoute`,
      checkSettings: { grpcService: { envoyGrpc: { clusterName: 'checks' } } },
    };
    const host = { name: 'shop', domains: ['*'], routes, typedPerFilterConfig: { 'ext-authz': perRoute } };
    const fields = { name: 'r', virtualHosts: [host], requestMirrorPolicies: [{ cluster: 'all' }] };
    const expected = ['cds a', 'cds all', 'cds b1', 'cds b2', 'cds checks', 'cds mirror'];
    expect(found('rds', fields)).to.deep.equal(expected);
  });

  it('§8.6 listeners: TCP, the routes by name and in place, filters, access logs, secrets', () => {
    const tcp = {
      '@type': `${api}.filters.network.tcp_proxy.v3.TcpProxy`,
      statPrefix: 'tcp',
      weightedClusters: { clusters: [{ name: 't1', weight: 1 }] },
    };
    const manager = {
      '@type': `${api}.filters.network.http_connection_manager.v3.HttpConnectionManager`,
      statPrefix: 'http',
      rds: { routeConfigName: 'r', configSource: { ads: {} } },
      httpFilters: [
        {
          name: 'found',
          configDiscovery: { configSource: { ads: {} }, typeUrls: ['x'] },
        },
        {
          name: 'limit',
          typedConfig: {
            '@type': `${api}.filters.http.ratelimit.v3.RateLimit`,
            domain: 'd',
            rateLimitService: {
              grpcService: { envoyGrpc: { clusterName: 'limits' } },
              transportApiVersion: 'V3',
            },
          },
        },
      ],
    };
    const tls = {
      '@type': `${api}.transport_sockets.tls.v3.DownstreamTlsContext`,
      commonTlsContext: { tlsCertificateSdsSecretConfigs: [{ name: 'own', sdsConfig: { ads: {} } }] },
    };
    const fields = {
      name: 'l',
      filterChains: [
        { filters: [{ name: 'tcp', typedConfig: tcp }] },
        {
          filters: [{ name: 'http', typedConfig: manager }],
          transportSocket: { name: 'tls', typedConfig: tls },
        },
      ],
    };
    const all = found('lds', fields);
    expect(all).to.include.members(['cds t1', 'rds r', 'ecds found', 'cds limits', 'sds own']);
    expect(all.filter((one) => one.startsWith('cds '))).to.deep.equal(['cds limits', 'cds t1']);
  });

  it('§8.6 clusters: endpoints by name and service name, secrets; scoped routes', () => {
    const tls = {
      '@type': `${api}.transport_sockets.tls.v3.UpstreamTlsContext`,
      commonTlsContext: { validationContextSdsSecretConfig: { name: 'ca', sdsConfig: { ads: {} } } },
    };
    const fields = {
      name: 'c',
      type: 'EDS',
      edsClusterConfig: { serviceName: 's', edsConfig: { ads: {} } },
      transportSocket: { name: 'tls', typedConfig: tls },
    };
    expect(found('cds', fields)).to.deep.equal(['eds c', 'eds s', 'sds ca']);
    const scope = { name: 'one', routeConfigurationName: 'r', key: { fragments: [{ stringKey: 'k' }] } };
    expect(found('srds', scope)).to.deep.equal(['rds r']);
  });

  it('more than 100,000 of one resource are not read', () => {
    const clusters = Array.from({ length: 100_005 }, (_, at) => ({ name: `c${at}`, weight: 1 }));
    const routes = [{ match: { prefix: '/' }, route: { weightedClusters: { clusters } } }];
    expect(found('rds', { name: 'r', virtualHosts: [{ name: 'a', domains: ['*'], routes }] })).to.have.length(
      100_000,
    );
  });

  it('what is malformed or unknown refers to nothing', () => {
    for (const bytes of [Buffer.from([0xff, 0xff]), Buffer.from([0x0a, 3, 0x61, 0x2f, 0x62, 0x12, 1, 0xff])])
      expect(referencesOf({ payload: { bytes, hash: '' } }).size).to.equal(0);
    expect(referencesOf({ payload: undefined }).size).to.equal(0);
  });
});
