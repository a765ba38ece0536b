import type { TypeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import { typeByName } from '../model/types.ts';
import { checkAddress, checkTcpAddress } from './check-address.ts';
import type { AdsUpstreamConfig, Config, ServerTls, UpstreamConfig } from './config.ts';
import { parseDuration } from './duration.ts';
import { defaultTo } from './node-path.ts';
import type { ConfigFile } from './schema.ts';
import type { ConfigSource } from './source.ts';

/** The file's values as the program's: parsed and in its units. The schema has checked all that is parsed here. */
export function toConfig(file: ConfigFile, source: ConfigSource): Config {
  const { xds, limits, cache } = file;
  const { region, zone, sub_zone: subZone } = file.node.locality;
  return {
    node: { ...file.node, locality: { region, zone, subZone } },
    xds: {
      address: certain(checkAddress(xds.address)),
      tls: serverTls(xds.tls),
      authorization: xds.authorization.rules.map(({ principals, types, names, allow }) => ({
        principals,
        types: types?.map(type),
        names,
        allow,
      })),
      sotwVersions: xds.sotw_versions,
      plainClients: xds.plain_clients,
      legacyWildcard: xds.legacy_wildcard?.map(type),
      maxConnectionAgeMs:
        xds.max_connection_age === undefined ? undefined : milliseconds(xds.max_connection_age),
      clientStatus: xds.client_status,
    },
    rest: file.rest && listener(file.rest),
    admin: { ...listener(file.admin), hosts: file.admin.hosts, readOnly: file.admin.read_only },
    upstreams: file.upstreams.map(upstream),
    parameters: file.parameters.map((rule) => ({
      key: rule.key,
      from: rule.from,
      authorities: rule.authorities,
      pattern: rule.pattern,
      default: rule.default,
      values: rule.values,
      to: rule.to ?? defaultTo(rule.key),
      trusted: rule.trusted,
    })),
    cache: {
      maxBytes: cache.max_bytes,
      idleTtlMs: milliseconds(cache.idle_ttl),
      persistence: cache.persistence,
    },
    limits: {
      maxStreams: limits.max_streams,
      maxSubscriptionsPerStream: limits.max_subscriptions_per_stream,
      maxRequestBytes: limits.max_request_bytes,
      maxResponseBytes: limits.max_response_bytes,
      subscriptionChangesPerSecond: limits.subscription_changes_per_second,
      maxConstraintDepth: limits.max_constraint_depth,
      maxUpstreamSessions: limits.max_upstream_sessions,
      stalledTimeoutMs: milliseconds(limits.stalled_timeout),
      firstRequestTimeoutMs: milliseconds(limits.first_request_timeout),
      maxConnections: limits.max_connections,
      maxConnectionsPerPeer: limits.max_connections_per_peer,
      maxStreamsPerPeer: limits.max_streams_per_peer,
      relayPeers: limits.relay_peers,
    },
    workers: file.workers,
    drainTimeoutMs: milliseconds(file.drain_timeout),
    otlpEndpoint: file.tracing.otlp_endpoint === '' ? undefined : file.tracing.otlp_endpoint,
    source,
  };
}

type UpstreamFile = ConfigFile['upstreams'][number];

function upstream(entry: UpstreamFile): UpstreamConfig {
  const base = {
    name: entry.name,
    claims: { authorities: entry.authorities, types: entry.types.map(type), names: entry.names },
    maxRemovalPercent: entry.max_removal_percent,
    maxRemovalHoldMs: milliseconds(entry.max_removal_hold),
  };
  if (entry.ads !== undefined) return { kind: 'ads', ...base, ...ads(entry.ads) };
  if (entry.filesystem !== undefined) return { kind: 'filesystem', ...base, path: entry.filesystem.path };
  throw new Error(`upstream ${entry.name} has no kind: the schema lets none through`);
}

function ads(
  entry: NonNullable<UpstreamFile['ads']>,
): Omit<AdsUpstreamConfig, 'kind' | 'name' | 'claims' | 'maxRemovalPercent' | 'maxRemovalHoldMs'> {
  return {
    endpoints: entry.endpoints.map((text) => certain(checkAddress(text))),
    protocol: entry.protocol,
    variants: entry.variants,
    tls: clientTls(entry.tls ?? {}),
    connectTimeoutMs: milliseconds(entry.connect_timeout),
    resourceTimeoutMs: milliseconds(entry.resource_timeout),
    keepalive: {
      timeMs: milliseconds(entry.keepalive.time),
      timeoutMs: milliseconds(entry.keepalive.timeout),
    },
    backoff: { initialMs: milliseconds(entry.backoff.initial), maxMs: milliseconds(entry.backoff.max) },
    failbackAfterMs: milliseconds(entry.failback_after),
  };
}

/** An empty `tls` is none. */
function clientTls(tls: NonNullable<NonNullable<UpstreamFile['ads']>['tls']>): AdsUpstreamConfig['tls'] {
  if (Object.keys(tls).length === 0) return undefined;
  const { ca, certificate, private_key: privateKey, server_name: serverName } = tls;
  const identity =
    certificate !== undefined && privateKey !== undefined ? { certificate, privateKey } : undefined;
  return { ca, identity, serverName, serverIdentities: tls.server_identities ?? [] };
}

function listener(entry: NonNullable<ConfigFile['rest']>): NonNullable<Config['rest']> {
  return { address: certain(checkTcpAddress(entry.address)), tls: serverTls(entry.tls) };
}

/** An empty `tls` is none. */
function serverTls(tls: ConfigFile['admin']['tls']): ServerTls | undefined {
  const {
    certificate,
    private_key: privateKey,
    ca,
    require_client_certificate: requireClientCertificate,
  } = tls;
  if (certificate === undefined || privateKey === undefined) return undefined;
  return { certificate, privateKey, ca, requireClientCertificate };
}

const milliseconds = (text: string): number => certain(parseDuration(text));

function type(text: string): TypeUrl {
  const url = typeByName(text);
  if (url === undefined) throw new Error(`type ${text}: the schema lets no unknown type through`);
  return url;
}

function certain<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(`the schema let through what it should not: ${result.error}`);
  return result.value;
}
