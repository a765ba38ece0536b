import type { Issued } from '../../support/certificates.ts';
import {
  cluster,
  configSource,
  customListener,
  endpoints,
  listener,
  type Resource,
  routes,
  website,
} from './resources.ts';

/** Resources that refer to others, and those others. */
export interface ByReference {
  /** All but what is referred to. */
  readonly first: readonly Resource[];
  /** What is referred to: with it a request gets to the backend `one`. */
  readonly second: readonly Resource[];
  /** The same, changed. */
  readonly changed: readonly Resource[];
  /** More of Envoy's bootstrap. */
  readonly bootstrap?: object;
}

const api = 'type.googleapis.com/envoy';
/** It waits for as long as a test may look at it. */
const ads = configSource('ads', '60s');
const withListener = (web: Resource, port: number): readonly Resource[] => [
  web,
  ...website('ads', port).slice(1),
];

const FAULT = `${api}.extensions.filters.http.fault.v3.HTTPFault`;

/** ECDS: a filter of the listener; changed, it answers every request with 418. */
export function extension(port: number): ByReference {
  const filter = { name: 'gate', config_discovery: { config_source: ads, type_urls: [FAULT] } };
  const rds = { route_config_name: 'web-routes', config_source: ads };
  const fault = (percent: number): Resource => ({
    '@type': `${api}.config.core.v3.TypedExtensionConfig`,
    name: 'gate',
    typed_config: { '@type': FAULT, abort: { http_status: 418, percentage: { numerator: percent } } },
  });
  return {
    first: withListener(customListener('web', { rds }, [filter]), port),
    second: [fault(0)],
    changed: [fault(100)],
  };
}

/** RTDS: the only route is for the share of requests that the runtime says; changed, for none. */
export function runtime(port: number): ByReference {
  const share = { default_value: { numerator: 0 }, runtime_key: 'routing.share' };
  const match = { prefix: '/', runtime_fraction: share };
  const table: Resource = {
    ...routes('web-routes', {}),
    virtual_hosts: [{ name: 'all', domains: ['*'], routes: [{ match, route: { cluster: 'shop' } }] }],
  };
  const layer = (percent: number): Resource => ({
    '@type': `${api}.service.runtime.v3.Runtime`,
    name: 'central',
    layer: { 'routing.share': percent },
  });
  const central = { name: 'central', rtds_layer: { name: 'central', rtds_config: ads } };
  return {
    first: [listener('web', 'web-routes'), table, cluster('shop'), endpoints('shop', port)],
    second: [layer(100)],
    changed: [layer(0)],
    bootstrap: { layered_runtime: { layers: [central] } },
  };
}

/** SDS by reference: the certificate that Envoy shows to the backend, and the authority that it trusts. */
export function secrets(port: number, authority: Issued, before: Issued, after: Issued): ByReference {
  const tls = {
    '@type': `${api}.extensions.transport_sockets.tls.v3.UpstreamTlsContext`,
    sni: 'localhost',
    common_tls_context: {
      tls_certificate_sds_secret_configs: [{ name: 'own', sds_config: ads }],
      validation_context_sds_secret_config: { name: 'authority', sds_config: ads },
    },
  };
  const [web, table, , assignment] = website('ads', port);
  const shop = { ...cluster('shop'), transport_socket: { name: 'tls', typed_config: tls } };
  const secret = (name: string, content: object): Resource => ({
    '@type': `${api}.extensions.transport_sockets.tls.v3.Secret`,
    name,
    ...content,
  });
  const trusted = secret('authority', {
    validation_context: { trusted_ca: { inline_string: authority.certificate } },
  });
  const own = ({ certificate, privateKey }: Issued): Resource =>
    secret('own', {
      tls_certificate: {
        certificate_chain: { inline_string: certificate },
        private_key: { inline_string: privateKey },
      },
    });
  return {
    first: [web, table, shop, assignment].filter((one) => one !== undefined),
    second: [trusted, own(before)],
    changed: [trusted, own(after)],
  };
}

/** SRDS: the first part of the path says which routes a request gets; changed, other routes. */
export function scopes(one: number, two: number): ByReference {
  const scoped_routes = {
    name: 'scopes',
    rds_config_source: ads,
    scope_key_builder: {
      fragments: [{ header_value_extractor: { name: ':path', element_separator: '/', index: 1 } }],
    },
    scoped_rds: { scoped_rds_config_source: ads },
  };
  const scope = (table: string): Resource => ({
    '@type': `${api}.config.route.v3.ScopedRouteConfiguration`,
    name: 'shop-scope',
    route_configuration_name: table,
    key: { fragments: [{ string_key: 'shop' }] },
  });
  return {
    first: [
      customListener('web', { scoped_routes }),
      routes('web-routes', { '/shop': 'shop' }),
      routes('office-routes', { '/shop': 'office' }),
      ...[cluster('shop'), endpoints('shop', one), cluster('office'), endpoints('office', two)],
    ],
    second: [scope('web-routes')],
    changed: [scope('office-routes')],
  };
}

const onDemand = (config: object = {}): object => ({
  name: 'on_demand',
  typed_config: { '@type': `${api}.extensions.filters.http.on_demand.v3.OnDemand`, ...config },
});
const rds = { route_config_name: 'web-routes', config_source: ads };

/** VHDS: a virtual host that is asked for when the first request for it comes; changed, it leads elsewhere. */
export function virtualHost(host: string, one: number, two: number): ByReference {
  const table: Resource = {
    '@type': `${api}.config.route.v3.RouteConfiguration`,
    name: 'web-routes',
    vhds: { config_source: configSource('delta-grpc') },
  };
  const to = (name: string, domain: string = host): Resource => ({
    '@type': `${api}.config.route.v3.VirtualHost`,
    name: `web-routes/${domain}`,
    domains: [domain],
    routes: [{ match: { prefix: '/' }, route: { cluster: name } }],
  });
  return {
    first: [
      customListener('web', { rds }, [onDemand()]),
      table,
      // Envoy opens the listener at the first virtual host, or after 15 s.
      to('office', 'office.example.com'),
      ...[cluster('shop'), endpoints('shop', one), cluster('office'), endpoints('office', two)],
    ],
    second: [to('shop')],
    changed: [to('office')],
  };
}

/** ODCDS: a cluster that is asked for when the first request for it comes; changed, it has other endpoints. */
export function clusterOnDemand(one: number, two: number): ByReference {
  const filter = onDemand({ odcds: { source: ads, timeout: '60s' } });
  return {
    first: [customListener('web', { rds }, [filter]), routes('web-routes', { '/': 'shop' })],
    second: [cluster('shop'), endpoints('shop', one)],
    changed: [cluster('shop'), endpoints('shop', two)],
    // Without CDS: with it, Envoy would have all clusters before anybody asks.
    bootstrap: {
      dynamic_resources: {
        lds_config: ads,
        ads_config: {
          api_type: 'DELTA_GRPC',
          transport_api_version: 'V3',
          grpc_services: [{ envoy_grpc: { cluster_name: 'xds' } }],
        },
      },
    },
  };
}
