import {
  cluster,
  configSource,
  customListener,
  endpoints,
  type Resource,
  routes,
  socketAddress,
} from './resources.ts';
import type { Backends } from './sites.ts';

/* Changes that Envoy accepts, and that break its requests to `/office`. */

const api = 'type.googleapis.com/envoy';
const all = { numerator: 100 };
const rds = { rds: { route_config_name: 'web-routes', config_source: configSource('ads') } };
const listener = (filters: readonly object[] = [], more: object = {}): Resource =>
  customListener('web', { ...rds, ...more }, filters);

/** With an HTTP filter before the router. */
const filtered = (name: string, type: string, config: object): Resource =>
  listener([{ name, typed_config: { '@type': `${api}.extensions.filters.http.${type}`, ...config } }]);

/** Below HTTP. */
function onConnections(filter: object, match: object = {}): Resource {
  const web = listener();
  const [chain] = web['filter_chains'] as { readonly filters: readonly object[] }[];
  return { ...web, filter_chains: [{ filters: [filter, ...(chain?.filters ?? [])].flat(), ...match }] };
}

const networkFilter = (name: string, type: string, config: object): object => ({
  name,
  typed_config: { '@type': `${api}.extensions.filters.network.${type}`, stat_prefix: name, ...config },
});

const everything = { any: true };
const denyAll = {
  rules: { action: 'DENY', policies: { all: { permissions: [everything], principals: [everything] } } },
};
const oneAMinute = { max_tokens: 1, tokens_per_fill: 1, fill_interval: '60s' };
const always = { default_value: all, runtime_key: 'none' };

const listeners: Readonly<Record<string, Resource>> = {
  'a filter that aborts': filtered('fault', 'fault.v3.HTTPFault', {
    abort: { http_status: 503, percentage: all },
  }),
  'a filter that delays': filtered('fault', 'fault.v3.HTTPFault', {
    delay: { fixed_delay: '3s', percentage: all },
  }),
  'rules that allow nobody': filtered('rbac', 'rbac.v3.RBAC', denyAll),
  'a rate limit of one request a minute': filtered('limit', 'local_ratelimit.v3.LocalRateLimit', {
    stat_prefix: 'limit',
    token_bucket: oneAMinute,
    filter_enabled: always,
    filter_enforced: always,
  }),
  'a script that answers 500': filtered('lua', 'lua.v3.Lua', {
    default_source_code: {
      inline_string: 'function envoy_on_request(h) h:respond({[":status"] = "500"}, "") end',
    },
  }),
  'an authorization server that is not there': filtered('authz', 'ext_authz.v3.ExtAuthz', {
    http_service: { server_uri: { uri: 'http://authz', cluster: 'annex', timeout: '0.1s' } },
  }),
  'rules for connections that allow nobody': onConnections(networkFilter('rbac', 'rbac.v3.RBAC', denyAll)),
  'one connection a minute': onConnections(
    networkFilter('limit', 'local_ratelimit.v3.LocalRateLimit', { token_bucket: oneAMinute }),
  ),
  'a filter chain for another port': onConnections([], { filter_chain_match: { destination_port: 1 } }),
  'HTTP/2 for clients that speak HTTP/1': listener([], { codec_type: 'HTTP2' }),
};

/** One route for everything, beside the mark. */
const routed = (match: object, action: object): object => ({ match: { prefix: '/', ...match }, ...action });
const toOffice = { route: { cluster: 'office' } };
const present = (name: string): object => ({ name, present_match: true });

function hosts(route: object, more: object = {}): Resource {
  return {
    ...routes('web-routes', {}),
    virtual_hosts: [{ name: 'all', domains: ['*'], routes: [route], ...more }],
  };
}

const routeConfigurations: Readonly<Record<string, Resource>> = {
  'a route to a cluster that is not there': hosts(routed({}, { route: { cluster: 'annex' } })),
  'a route to the cluster of a header': hosts(routed({}, { route: { cluster_header: 'x-cluster' } })),
  'weights for a cluster that is not there': hosts(
    routed({}, { route: { weighted_clusters: { clusters: [{ name: 'annex', weight: 1 }] } } }),
  ),
  'a typing error in the path': hosts(routed({ prefix: '/ofice' }, toOffice)),
  'another host': hosts(routed({}, toOffice), { domains: ['shop.example'] }),
  'TLS that clients do not have': hosts(routed({}, toOffice), { require_tls: 'ALL' }),
  'maintenance for everybody': hosts(routed({}, { direct_response: { status: 503 } })),
  'a redirect to nowhere': hosts(routed({}, { redirect: { host_redirect: 'gone.example' } })),
  'a header that nobody sends': hosts(routed({ headers: [present('x-beta')] }, toOffice)),
  'a query that nobody sends': hosts(routed({ query_parameters: [present('beta')] }, toOffice)),
  'a method that nobody uses': hosts(
    routed({ headers: [{ name: ':method', string_match: { exact: 'TRACE' } }] }, toOffice),
  ),
  'a share of zero': hosts(routed({ runtime_fraction: { default_value: { numerator: 0 } } }, toOffice)),
};

const office = cluster('office');
/** With endpoints of its own. */
const fixed = (address: object | undefined, more: object = {}): Resource => ({
  '@type': office['@type'],
  name: 'office',
  connect_timeout: '1s',
  type: 'STATIC',
  load_assignment: {
    cluster_name: 'office',
    endpoints: address === undefined ? [] : [{ lb_endpoints: [{ endpoint: { address } }] }],
  },
  ...more,
});
const tls = {
  name: 'tls',
  typed_config: { '@type': `${api}.extensions.transport_sockets.tls.v3.UpstreamTlsContext` },
};
const http2 = {
  'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
    '@type': `${api}.extensions.upstreams.http.v3.HttpProtocolOptions`,
    explicit_http_config: { http2_protocol_options: {} },
  },
};

const officeClusters: Readonly<Record<string, Resource>> = {
  'an endpoint that refuses': fixed(socketAddress(1)),
  'no endpoint': fixed(undefined),
  'a socket that is not there': fixed({ pipe: { path: '/no/such/socket' } }),
  'a name that nobody resolves': fixed(
    { socket_address: { address: 'office.invalid', port_value: 80 } },
    { type: 'STRICT_DNS' },
  ),
  'TLS that the backend does not speak': { ...office, transport_socket: tls },
  'HTTP/2 that the backend does not speak': { ...office, typed_extension_protocol_options: http2 },
  'a source address of another machine': {
    ...office,
    upstream_bind_config: { source_address: { address: '203.0.113.1', port_value: 0 } },
  },
  'room for no request': {
    ...office,
    circuit_breakers: { thresholds: [{ max_requests: 0, max_pending_requests: 0, max_connections: 0 }] },
  },
  'subsets without a fallback': {
    ...office,
    lb_subset_config: { fallback_policy: 'NO_FALLBACK', subset_selectors: [{ keys: ['version'] }] },
  },
  'a health check that nothing passes': {
    ...office,
    common_lb_config: { healthy_panic_threshold: { value: 0 } },
    health_checks: [
      {
        timeout: '1s',
        interval: '1s',
        no_traffic_interval: '1s',
        unhealthy_threshold: 1,
        healthy_threshold: 1,
        http_health_check: { path: '/', expected_statuses: [{ start: 599, end: 600 }] },
      },
    ],
  },
};

export interface BrokenSite {
  readonly title: string;
  readonly site: (backends: Backends) => readonly Resource[];
}

const good = listener();
const goodRoutes = routes('web-routes', { '/office': 'office', '/': 'shop' });

function siteOf(
  { one, two }: Backends,
  {
    web = good,
    paths = goodRoutes,
    toOffice: own = office,
  }: { web?: Resource; paths?: Resource; toOffice?: Resource },
): readonly Resource[] {
  const clusters = [cluster('shop'), endpoints('shop', one.port), own, endpoints('office', two.port)];
  return [web, paths, ...clusters];
}

/** What each of these breaks, `mark` shows as a path. */
export const workingSite = (backends: Backends, mark: string): readonly Resource[] =>
  siteOf(backends, {
    paths: routes('web-routes', { '/office': 'office', [`/${mark}`]: 'shop', '/': 'shop' }),
  });

export const brokenSites: readonly BrokenSite[] = [
  ...Object.entries(routeConfigurations).map(([title, paths]) => ({
    title,
    site: (backends: Backends) => siteOf(backends, { paths }),
  })),
  ...Object.entries(officeClusters).map(([title, own]) => ({
    title,
    site: (backends: Backends) => siteOf(backends, { toOffice: own }),
  })),
  ...Object.entries(listeners).map(([title, web]) => ({
    title,
    site: (backends: Backends) => siteOf(backends, { web }),
  })),
];
