/** Resources as JSON of an Any, the least that Envoy and gRPC need to route a request to a backend. */
export interface Resource {
  readonly '@type': string;
  readonly [field: string]: unknown;
}

const api = 'type.googleapis.com/envoy';
const LISTENER = `${api}.config.listener.v3.Listener`;
const ROUTES = `${api}.config.route.v3.RouteConfiguration`;
export const CLUSTER = `${api}.config.cluster.v3.Cluster`;
export const ENDPOINTS = `${api}.config.endpoint.v3.ClusterLoadAssignment`;

/** The cluster of the bootstrap that leads to the xDS server. */
export const XDS_CLUSTER = 'xds';

/** Of a bootstrap: it reports its load to the relay. */
export const reporting = {
  cluster_manager: {
    load_stats_config: {
      api_type: 'GRPC',
      transport_api_version: 'V3',
      grpc_services: [{ envoy_grpc: { cluster_name: XDS_CLUSTER } }],
    },
  },
};

/** Where a resource's own resources come from. */
export type Source = 'ads' | 'grpc' | 'delta-grpc' | 'rest';

/** Often, so that tests are quick; how long a poll may take is Envoy's default. */
const polling = {
  api_type: 'REST',
  transport_api_version: 'V3',
  cluster_names: [XDS_CLUSTER],
  refresh_delay: '0.2s',
};

/** `patience`: how long Envoy waits for the first answer. */
export function configSource(source: Source, patience: string = '15s'): object {
  const common = { resource_api_version: 'V3', initial_fetch_timeout: patience };
  if (source === 'ads') return { ...common, ads: {} };
  if (source === 'rest') return { ...common, api_config_source: polling };
  return {
    ...common,
    api_config_source: {
      api_type: source === 'grpc' ? 'GRPC' : 'DELTA_GRPC',
      transport_api_version: 'V3',
      grpc_services: [{ envoy_grpc: { cluster_name: XDS_CLUSTER } }],
    },
  };
}

const connectionManager = (routes: string, source: object): object =>
  managerOf({ rds: { route_config_name: routes, config_source: source } });

/** An HTTP connection manager with routes from somewhere, and filters before the router. */
function managerOf(routes: object, filters: readonly object[] = []): object {
  const router = {
    name: 'router',
    typed_config: { '@type': `${api}.extensions.filters.http.router.v3.Router` },
  };
  return {
    '@type': `${api}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`,
    stat_prefix: 'in',
    ...routes,
    http_filters: [...filters, router],
  };
}

export const socketAddress = (port: number) => ({
  socket_address: { address: '127.0.0.1', port_value: port },
});

/** A cluster of a bootstrap with one endpoint on the loopback. */
export const staticCluster = (name: string, port: number, more: object = {}): object => ({
  name,
  type: 'STATIC',
  connect_timeout: '1s',
  load_assignment: {
    cluster_name: name,
    endpoints: [{ lb_endpoints: [{ endpoint: { address: socketAddress(port) } }] }],
  },
  ...more,
});

/** How a cluster of a bootstrap is spoken to. */
export const httpOptions = (explicit_http_config: object): object => ({
  typed_extension_protocol_options: {
    'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
      '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
      explicit_http_config,
    },
  },
});

/** A listener on any free port: ask Envoy which. */
export function listener(name: string, routes: string, source: Source = 'ads', patience?: string): Resource {
  return listenerOf(name, connectionManager(routes, configSource(source, patience)));
}

/** The same with routes from somewhere else, or with filters. */
export const customListener = (name: string, routes: object, filters?: readonly object[]): Resource =>
  listenerOf(name, managerOf(routes, filters));

function listenerOf(name: string, manager: object): Resource {
  const filter = { name: 'http', typed_config: manager };
  return { '@type': LISTENER, name, address: socketAddress(0), filter_chains: [{ filters: [filter] }] };
}

/** A listener as gRPC clients look for it. */
export function apiListener(name: string, routes: string): Resource {
  return {
    '@type': LISTENER,
    name,
    api_listener: { api_listener: connectionManager(routes, configSource('ads')) },
  };
}

/** Routes of every host, by path prefix to cluster. */
export function routes(name: string, byPrefix: Readonly<Record<string, string>>): Resource {
  const all = Object.entries(byPrefix).map(([prefix, cluster]) => ({
    match: { prefix },
    route: { cluster },
  }));
  return { '@type': ROUTES, name, virtual_hosts: [{ name: 'all', domains: ['*'], routes: all }] };
}

export function cluster(name: string, source: Source = 'ads', patience?: string): Resource {
  const eds = { eds_config: configSource(source, patience) };
  return { '@type': CLUSTER, name, type: 'EDS', connect_timeout: '1s', eds_cluster_config: eds };
}

export function endpoints(cluster: string, ...ports: readonly number[]): Resource {
  const all = ports.map((port) => ({ endpoint: { address: socketAddress(port) } }));
  const locality = { region: 'here' };
  return {
    '@type': ENDPOINTS,
    cluster_name: cluster,
    endpoints: [{ locality, load_balancing_weight: 1, lb_endpoints: all }],
  };
}

/** Listener `web` → routes `web-routes` → cluster `shop` → a backend. */
export function website(source: Source, port: number): readonly Resource[] {
  return [
    listener('web', 'web-routes', source),
    routes('web-routes', { '/': 'shop' }),
    cluster('shop', source),
    endpoints('shop', port),
  ];
}

/** What leads from `xds:///NAME` to a backend. */
export const grpcService = (name: string, port: number): readonly Resource[] => [
  apiListener(name, `${name}-routes`),
  ...behindListener(name, port),
];

/** What leads from Envoy's listener NAME to a backend. */
export const envoyService = (name: string, port: number, source: Source): readonly Resource[] => [
  listener(name, `${name}-routes`, source),
  ...behindListener(name, port, source),
];

const behindListener = (name: string, port: number, source: Source = 'ads'): readonly Resource[] => [
  routes(`${name}-routes`, { '': `${name}-cluster` }),
  cluster(`${name}-cluster`, source),
  endpoints(`${name}-cluster`, port),
];
