import { type TypeUrl, typeUrl } from './brand.ts';
import { unknownWord } from './text.ts';

/** One row of protocol §2. */
export interface TypeInfo {
  readonly url: TypeUrl;
  readonly short: string;
  /** Path of the per-type gRPC service, without the leading slash. */
  readonly service?: string;
  readonly streamMethod?: string | undefined;
  readonly deltaMethod?: string;
  readonly fetchMethod?: string | undefined;
  /** `POST /v3/discovery:<rest>`. */
  readonly rest?: string | undefined;
  /** SotW responses hold the complete subscribed set; absence deletes (§3.7). */
  readonly fullState: boolean;
  /** An empty first request means `*` (§3.6). */
  readonly legacyWildcard: boolean;
  /** Where on an ADS stream it is sent: lower first (§8, Order on ADS). */
  readonly order: number;
}

type Row = Pick<TypeInfo, 'short' | 'rest'> &
  Partial<Pick<TypeInfo, 'fullState' | 'legacyWildcard'>> &
  Readonly<Record<'message' | 'service' | 'methods', string>> & { readonly deltaOnly?: boolean };

// biome-ignore format: a table, one row a line
const rows: readonly Row[] = [
  { short: 'cds', message: 'config.cluster.v3.Cluster', service: 'cluster.v3.ClusterDiscoveryService', methods: 'Clusters', rest: 'clusters', fullState: true, legacyWildcard: true },
  { short: 'eds', message: 'config.endpoint.v3.ClusterLoadAssignment', service: 'endpoint.v3.EndpointDiscoveryService', methods: 'Endpoints', rest: 'endpoints' },
  { short: 'leds', message: 'config.endpoint.v3.LbEndpoint', service: 'endpoint.v3.LocalityEndpointDiscoveryService', methods: 'LocalityEndpoints', deltaOnly: true },
  { short: 'lds', message: 'config.listener.v3.Listener', service: 'listener.v3.ListenerDiscoveryService', methods: 'Listeners', rest: 'listeners', fullState: true, legacyWildcard: true },
  { short: 'srds', message: 'config.route.v3.ScopedRouteConfiguration', service: 'route.v3.ScopedRoutesDiscoveryService', methods: 'ScopedRoutes', rest: 'scoped-routes', fullState: true, legacyWildcard: true },
  { short: 'rds', message: 'config.route.v3.RouteConfiguration', service: 'route.v3.RouteDiscoveryService', methods: 'Routes', rest: 'routes' },
  { short: 'vhds', message: 'config.route.v3.VirtualHost', service: 'route.v3.VirtualHostDiscoveryService', methods: 'VirtualHosts', deltaOnly: true, legacyWildcard: true },
  { short: 'sds', message: 'extensions.transport_sockets.tls.v3.Secret', service: 'secret.v3.SecretDiscoveryService', methods: 'Secrets', rest: 'secrets' },
  { short: 'rtds', message: 'service.runtime.v3.Runtime', service: 'runtime.v3.RuntimeDiscoveryService', methods: 'Runtime', rest: 'runtime' },
  { short: 'ecds', message: 'config.core.v3.TypedExtensionConfig', service: 'extension.v3.ExtensionConfigDiscoveryService', methods: 'ExtensionConfigs', rest: 'extension_configs' },
];

export const knownTypes: readonly TypeInfo[] = rows.map((row, order) => ({
  url: typeUrl(`type.googleapis.com/envoy.${row.message}`),
  short: row.short,
  service: `envoy.service.${row.service}`,
  streamMethod: row.deltaOnly ? undefined : `Stream${row.methods}`,
  deltaMethod: `Delta${row.methods}`,
  fetchMethod: row.deltaOnly ? undefined : `Fetch${row.methods}`,
  rest: row.rest,
  fullState: row.fullState ?? false,
  legacyWildcard: row.legacyWildcard ?? false,
  order,
}));

export const ADS_SERVICE = 'envoy.service.discovery.v3.AggregatedDiscoveryService';

/** Bytes of a type's URL, which is a key in many places: peers send none that is longer. */
export const longestTypeUrl = 256;

const byUrl = new Map<string, TypeInfo>(knownTypes.map((info) => [info.url, info]));
const byShort = new Map(knownTypes.map((info) => [info.short, info]));

export function isKnownType(url: string): boolean {
  return byUrl.has(url);
}

const collection = 'Collection';
/** The type of what is in a list collection, as LbEndpoint in LbEndpointCollection; undefined: none that is known (§6.4). */
const elementOf = (url: TypeUrl): TypeInfo | undefined =>
  url.endsWith(collection) ? byUrl.get(url.slice(0, -collection.length)) : undefined;

/**
 * What is known of a type; of an unknown one, the defaults: partial state, legacy wildcard (§3.6), last in order. A list
 * collection goes where its elements would go, and has no wildcard.
 */
export function typeInfo(url: TypeUrl): TypeInfo {
  const known = byUrl.get(url);
  if (known !== undefined) return known;
  const element = elementOf(url);
  return {
    url,
    short: url,
    fullState: false,
    legacyWildcard: element === undefined,
    order: element?.order ?? knownTypes.length,
  };
}

/** `cds`, or a type URL as it is; undefined if it is neither. */
export function typeByName(name: string): TypeUrl | undefined {
  const known = byShort.get(name.toLowerCase());
  if (known !== undefined) return known.url;
  return name.includes('/') ? typeUrl(name) : undefined;
}

/** `Cluster`, `clusters`, `CDS`: one word for each way to name a type. */
const plainWord = (word: string): string => word.toLowerCase().replaceAll(/[-_ ]/g, '').replace(/s$/, '');

/** Short names by words: `cds` by `cluster`. */
const byWord = new Map(
  rows.flatMap(({ short, message, methods }) =>
    [message.slice(message.lastIndexOf('.') + 1), methods].map((word) => [plainWord(word), short] as const),
  ),
);

/** What to tell somebody whose word names no type. */
export function unknownType(word: string): string {
  const meant = byWord.get(plainWord(word));
  return meant === undefined
    ? unknownWord('type', word, [...knownTypes.map(({ short }) => short), 'a type URL'])
    : `unknown type ${JSON.stringify(word)}: did you mean ${JSON.stringify(meant)}?`;
}

/** Endpoints and runtime values change often and must be fast. */
const ungated = new Set(['eds', 'leds', 'rtds']);

/** The types that go to canaries first where rollout.types says nothing. */
export const gatedByDefault: ReadonlySet<TypeUrl> = new Set(
  knownTypes.filter(({ short }) => !ungated.has(short)).map(({ url }) => url),
);
