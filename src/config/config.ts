import type { JsonObject } from '@bufbuild/protobuf';
import type { TypeUrl } from '../model/brand.ts';
import type { Address } from '../wire/address.ts';
import type { TcpAddress } from './check-address.ts';
import type { ConfigSource } from './source.ts';

/** The whole configuration, every default filled in. Durations are milliseconds (`…Ms`), sizes bytes (`…Bytes`). */
export interface Config {
  readonly node: NodeConfig;
  readonly xds: XdsConfig;
  /** Undefined: no REST listener. */
  readonly rest: ListenerConfig<TcpAddress> | undefined;
  readonly admin: AdminConfig;
  /** In order: the first that claims a name serves it. At least one. */
  readonly upstreams: readonly UpstreamConfig[];
  readonly parameters: readonly ParameterRule[];
  readonly cache: CacheConfig;
  readonly limits: LimitsConfig;
  /** 0: this process serves. */
  readonly workers: number;
  readonly drainTimeoutMs: number;
  /** Undefined: no traces. */
  readonly otlpEndpoint: string | undefined;
  /** Where it came from, for error messages and /config_dump. */
  readonly source: ConfigSource;
}

/** Who the relay is to control planes. */
interface NodeConfig {
  readonly id: string;
  readonly cluster: string;
  /** JSON: a google.protobuf.Struct. */
  readonly metadata: JsonObject;
  readonly locality: LocalityConfig;
}

/** Empty strings where nothing was given, as in the proto. */
interface LocalityConfig {
  readonly region: string;
  readonly zone: string;
  readonly subZone: string;
}

interface ListenerConfig<A extends Address = Address> {
  readonly address: A;
  /** Undefined: plaintext. */
  readonly tls: ServerTls | undefined;
}

interface AdminConfig extends ListenerConfig<TcpAddress> {
  /** Hosts that requests may name, beside loopback ones and the bound one; `*` stands for any characters. */
  readonly hosts: readonly string[];
  readonly readOnly: boolean;
}

/** Paths of PEM files. */
export interface ServerTls {
  readonly certificate: string;
  readonly privateKey: string;
  /** What client certificates are verified against. */
  readonly ca: string | undefined;
  readonly requireClientCertificate: boolean;
}

/** CSDS on the xDS port (the admin listener has its own). */
interface ClientStatusConfig {
  readonly enabled: boolean;
  /** Who sees all clients and the relay's own view; everyone else sees their own streams. */
  readonly principals: readonly string[];
}

interface XdsConfig extends ListenerConfig {
  /** First match wins; none: everyone may read everything; else the default is to deny. */
  readonly authorization: readonly AuthorizationRule[];
  /** Protocol §3.10. */
  readonly sotwVersions: 'VERBATIM' | 'CONTENT';
  /** Protocol §5: what clients that subscribe by plain names get of constrained resources. */
  readonly plainClients: 'PLAIN' | 'WITH_CONSTRAINTS';
  /** The types whose empty first request means `*`; undefined: those of protocol §3.6. */
  readonly legacyWildcard: readonly TypeUrl[] | undefined;
  /** Undefined: connections live as long as clients like. */
  readonly maxConnectionAgeMs: number | undefined;
  readonly clientStatus: ClientStatusConfig;
}

/** An undefined list matches all. */
interface AuthorizationRule {
  /** SANs: a URI as it is, a DNS name as `dns:NAME`; `*` within stands for any characters. */
  readonly principals: readonly string[] | undefined;
  readonly types: readonly TypeUrl[] | undefined;
  /** A trailing `*` makes a prefix. */
  readonly names: readonly string[] | undefined;
  readonly allow: boolean;
}

export type UpstreamConfig = AdsUpstreamConfig | FilesystemUpstreamConfig;

interface UpstreamBase {
  readonly name: string;
  readonly claims: ClaimsConfig;
  /** The shrink guard; undefined: off. */
  readonly maxRemovalPercent: number | undefined;
  readonly maxRemovalHoldMs: number;
}

/** What an upstream serves: see upstream/claims.ts; everything if all three are empty. */
interface ClaimsConfig {
  /** Authorities of xdstp names. */
  readonly authorities: readonly string[];
  readonly types: readonly TypeUrl[];
  /** A trailing `*` makes a prefix. */
  readonly names: readonly string[];
}

export interface AdsUpstreamConfig extends UpstreamBase {
  readonly kind: 'ads';
  /** In order of preference. At least one. */
  readonly endpoints: readonly Address[];
  readonly protocol: 'DELTA' | 'SOTW';
  readonly variants: 'PER_PARAMETERS' | 'NATIVE';
  /** Undefined: plaintext. */
  readonly tls: ClientTls | undefined;
  readonly connectTimeoutMs: number;
  /** Protocol §3.9: a name not answered by then is absent. */
  readonly resourceTimeoutMs: number;
  readonly keepalive: { readonly timeMs: number; readonly timeoutMs: number };
  readonly backoff: { readonly initialMs: number; readonly maxMs: number };
  /** How long a preferred endpoint must hold a connection before the sessions go back to it. */
  readonly failbackAfterMs: number;
}

/** Paths of PEM files. */
interface ClientTls {
  /** Undefined: the certificate authorities that come with Node. */
  readonly ca: string | undefined;
  readonly identity: { readonly certificate: string; readonly privateKey: string } | undefined;
  /** Undefined: the endpoint's host. */
  readonly serverName: string | undefined;
  /** SANs, one of which its certificate must have: a URI as it is, a DNS name as `dns:NAME`. Empty: the server's name. */
  readonly serverIdentities: readonly string[];
}

interface FilesystemUpstreamConfig extends UpstreamBase {
  readonly kind: 'filesystem';
  readonly path: string;
}

/** Derives one dynamic parameter for clients that send none of their own. */
interface ParameterRule {
  readonly key: string;
  /** A checked path, see node-path.ts: `node.…`, `peer.uri_san` or `peer.dns_san`. */
  readonly from: string;
  /** Empty: for every name. */
  readonly authorities: readonly string[];
  /** RE2; its first group is the value (the whole match where it has none). */
  readonly pattern: string | undefined;
  /** Undefined: without a value the key is absent. */
  readonly default: string | undefined;
  /** Another value counts as none; empty: any is allowed. */
  readonly values: readonly string[];
  /** A checked path: where a PER_PARAMETERS session shows it to the control plane. */
  readonly to: string;
  /** The derived value wins over one that the client sends. */
  readonly trusted: boolean;
}

interface CacheConfig {
  readonly maxBytes: number;
  readonly idleTtlMs: number;
  readonly persistence: { readonly path: string; readonly secrets: boolean } | undefined;
}

interface LimitsConfig {
  readonly maxStreams: number;
  readonly maxSubscriptionsPerStream: number;
  readonly maxRequestBytes: number;
  readonly maxResponseBytes: number;
  readonly subscriptionChangesPerSecond: number;
  readonly maxConstraintDepth: number;
  readonly maxUpstreamSessions: number;
  readonly stalledTimeoutMs: number;
  readonly firstRequestTimeoutMs: number;
  readonly maxConnections: number;
  /** 0: any number. */
  readonly maxConnectionsPerPeer: number;
  /** 0: any number. */
  readonly maxStreamsPerPeer: number;
  /** Principals that per-client limits do not bind. */
  readonly relayPeers: readonly string[];
}
