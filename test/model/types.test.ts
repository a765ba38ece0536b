import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { ADS_SERVICE, knownTypes, typeByName, typeInfo } from '../../src/model/types.ts';

/** Protocol §2, as it is written there; the second part is §3.6 and §3.7. */
const table = `
lds  config.listener.v3.Listener                 listener.v3.ListenerDiscoveryService          Listeners              listeners          full wildcard
rds  config.route.v3.RouteConfiguration          route.v3.RouteDiscoveryService                Routes                 routes             -    -
srds config.route.v3.ScopedRouteConfiguration    route.v3.ScopedRoutesDiscoveryService         ScopedRoutes           scoped-routes      full wildcard
vhds config.route.v3.VirtualHost                 route.v3.VirtualHostDiscoveryService          DeltaVirtualHosts      -                  -    wildcard
cds  config.cluster.v3.Cluster                   cluster.v3.ClusterDiscoveryService            Clusters               clusters           full wildcard
eds  config.endpoint.v3.ClusterLoadAssignment    endpoint.v3.EndpointDiscoveryService          Endpoints              endpoints          -    -
leds config.endpoint.v3.LbEndpoint               endpoint.v3.LocalityEndpointDiscoveryService  DeltaLocalityEndpoints -                  -    -
sds  extensions.transport_sockets.tls.v3.Secret  secret.v3.SecretDiscoveryService              Secrets                secrets            -    -
rtds service.runtime.v3.Runtime                  runtime.v3.RuntimeDiscoveryService            Runtime                runtime            -    -
ecds config.core.v3.TypedExtensionConfig         extension.v3.ExtensionConfigDiscoveryService  ExtensionConfigs       extension_configs  -    -
`
  .trim()
  .split('\n')
  .map((line) => line.split(/ +/));

describe('types', () => {
  for (const [short = '', message, service, methods = '', rest, state, wildcard] of table)
    it(`§2 ${short}`, () => {
      const url = typeUrl(`type.googleapis.com/envoy.${message}`);
      const deltaOnly = methods.startsWith('Delta');
      const { order, ...info } = typeInfo(url);
      expect(info).to.deep.equal({
        url,
        short,
        service: `envoy.service.${service}`,
        streamMethod: deltaOnly ? undefined : `Stream${methods}`,
        deltaMethod: deltaOnly ? methods : `Delta${methods}`,
        fetchMethod: deltaOnly ? undefined : `Fetch${methods}`,
        rest: rest === '-' ? undefined : rest,
        fullState: state === 'full',
        legacyWildcard: wildcard === 'wildcard',
      });
      expect(order).to.be.below(knownTypes.length);
      expect(typeByName(short)).to.equal(url);
      expect(typeByName(short.toUpperCase())).to.equal(url);
      expect(typeByName(url)).to.equal(url);
    });

  it('§2 has these and no other', () => {
    expect(knownTypes).to.have.length(table.length);
  });

  it('§2 the aggregated service', () => {
    expect(ADS_SERVICE).to.equal('envoy.service.discovery.v3.AggregatedDiscoveryService');
  });

  it('§8 on ADS clusters come first, then endpoints, listeners, routes and virtual hosts', () => {
    const order = ['cds', 'eds', 'lds', 'rds', 'vhds'].map(
      (short) => knownTypes.find((info) => info.short === short)?.order ?? Number.NaN,
    );
    expect(order).to.deep.equal(order.toSorted((a, b) => a - b));
    expect(new Set(knownTypes.map((info) => info.order)).size).to.equal(knownTypes.length);
  });

  it('§3.6 an unknown type has partial state, the legacy wildcard, no service of its own, and comes last', () => {
    const url = typeUrl('type.googleapis.com/example.Custom');
    const info = typeInfo(url);
    expect(info).to.include({ url, short: url, fullState: false, legacyWildcard: true });
    expect(
      [info.service, info.streamMethod, info.deltaMethod, info.fetchMethod, info.rest].every(
        (part) => part === undefined,
      ),
    ).to.equal(true);
    expect(info.order).to.be.above(Math.max(...knownTypes.map((known) => known.order)));
  });

  it('§6.4 a list collection goes in the order of its elements, and has no wildcard', () => {
    const [endpoints, lists, listeners] = [
      'config.endpoint.v3.ClusterLoadAssignment',
      'config.endpoint.v3.LbEndpointCollection',
      'config.listener.v3.Listener',
    ].map((message) => typeInfo(typeUrl(`type.googleapis.com/envoy.${message}`)).order);
    expect(lists)
      .to.be.above(endpoints ?? Number.NaN)
      .and.below(listeners ?? Number.NaN);
    const url = typeUrl('type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection');
    expect(typeInfo(url)).to.include({ short: url, legacyWildcard: false, fullState: false });
    const of = typeInfo(typeUrl('type.googleapis.com/example.CustomCollection'));
    expect(of).to.include({ legacyWildcard: true, order: knownTypes.length });
  });

  it('a name that is neither short nor a type URL is none', () => {
    expect(typeByName('xyz')).to.equal(undefined);
    expect(typeByName('__proto__')).to.equal(undefined);
    expect(typeByName('type.googleapis.com/example.Custom')).to.equal('type.googleapis.com/example.Custom');
  });
});
