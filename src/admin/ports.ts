import type {
  ExplainResponse,
  GetResourceResponseSchema,
  ListClientsResponseSchema,
  ListResourcesResponseSchema,
  StatusResponse,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { CompareConfigurationResponse } from '../gen/distributary/admin/v1/configuration_pb.ts';
import type { SetLogLevelResponse } from '../gen/distributary/admin/v1/log_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { ClientStatusRequest } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import type { ClientState } from '../model/subscription.ts';
import type { LogLevel } from '../observe/log-levels.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Long } from './answers.ts';
import type { Changes } from './changes-ports.ts';
import type { Delivery } from './delivery-ports.ts';
import type { Fleet } from './fleet-ports.ts';
import type { Operation } from './operations.ts';
import type { PageSource } from './page-ports.ts';
import type { Awaitable, Plain } from './plain.ts';

export type { Awaitable, Plain };

/** Where a change stands (AdminService's RolloutStatus has all of it). */
export interface RolloutSummary {
  readonly state: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
  readonly reason: string;
}

export interface ReadinessReport {
  readonly ready: boolean;
  /** Undefined: changes go to everybody at once. */
  readonly rollout: RolloutSummary | undefined;
  /** Why not, for people; empty when ready. */
  readonly reason: string;
  readonly upstreams: readonly {
    readonly name: string;
    /** The relay is not ready before this one was connected once. */
    readonly required: boolean;
    readonly connected: boolean;
    /** What is cached from here may be out of date. */
    readonly stale: boolean;
    /** Milliseconds since the epoch: since when it is stale. */
    readonly since: number | undefined;
    /** Why it is stale; empty while it is not. */
    readonly staleReason: string;
    /** Milliseconds since the epoch: since when siblings' answers are served. */
    readonly fromSiblingsSince: number | undefined;
    readonly lastError: string;
    /** Streams that ended without an answer and are tried again. */
    readonly refusedStreams: number;
    /** What is otherwise odd about it; empty: nothing. */
    readonly warning: string;
    /** Short names of types that seem to make the control plane end streams. */
    readonly suspectTypes: readonly string[];
  }[];
}

export interface ExplainQuery {
  readonly type: TypeUrl;
  /** As the operator wrote it. */
  readonly name: string;
  /** Undefined: the client's. */
  readonly parameters: Parameters | undefined;
  /** A stream's id. */
  readonly client: string | undefined;
}

export interface ResourcesQuery {
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  readonly namePrefix: string;
  readonly pageSize: number;
  /** `next_page_token` of the answer before; empty for the first page. */
  readonly pageToken: string;
}

export interface ResourceQuery {
  readonly type: TypeUrl;
  /** As the operator wrote it. */
  readonly name: string;
  /** So many variants are left out. */
  readonly offset: number;
}

export interface ClientsQuery {
  /** At most so many, those with a rejected response first; undefined: all. */
  readonly limit: number | undefined;
  /** So many of those that would be listed first are left out. */
  readonly offset: number;
  /** At most so many in this answer; undefined: as many as it holds. */
  readonly pageSize: number | undefined;
  /** Of nodes with this id; `*` stands for any characters. Empty: of all. */
  readonly node: string;
  /** Undefined: every type. */
  readonly type: TypeUrl | undefined;
  /** Undefined: every state. */
  readonly state: ClientState | undefined;
  /** Part of a stream's id, node, cluster or peer, in whatever case. Empty: all. */
  readonly search: string;
  /** Of this class. Empty: of all. */
  readonly class: string;
  /** Of those that subscribe to this name; with the state ERROR of those that have rejected it. Empty: of all. */
  readonly resource: string;
}

export const EVERY_CLIENT: ClientsQuery = {
  limit: undefined,
  offset: 0,
  pageSize: undefined,
  node: '',
  type: undefined,
  state: undefined,
  search: '',
  class: '',
  resource: '',
};

/** Another log level for a time. */
export interface LogLevelChange {
  /** Undefined: the level of the start again. */
  readonly level: LogLevel | undefined;
  /** Lines about this node id only; undefined: all lines. */
  readonly node: string | undefined;
  readonly milliseconds: number;
  /** Who. */
  readonly operator: string;
}

/** All that the admin listener knows of the relay. `releaseRemovals`, `operate` and `setLogLevel` change something. */
export interface Inspector {
  readonly delivery: Delivery;
  readonly changes: Changes;
  readonly fleet: Fleet;
  readonly page: PageSource;
  status(): Awaitable<Plain<StatusResponse>>;
  ready(): ReadinessReport;
  /** Those of `status`, for probes: as of a few seconds ago. Undefined: not known yet. */
  problems(): Awaitable<readonly Plain<Problem>[] | undefined>;
  /** NOT_FOUND: there is no such client. A name that nothing is known of is an answer like any other. */
  explain(query: ExplainQuery): Awaitable<Result<Plain<ExplainResponse>, GrpcStatus>>;
  /** INVALID_ARGUMENT: not a page token. */
  listResources(
    query: ResourcesQuery,
  ): Awaitable<Result<Long<typeof ListResourcesResponseSchema>, GrpcStatus>>;
  /** What is cached, or what a client (a stream's id) was last sent. NOT_FOUND, INVALID_ARGUMENT: the name. */
  getResource(
    query: ResourceQuery,
    client: string | undefined,
  ): Awaitable<Result<Long<typeof GetResourceResponseSchema>, GrpcStatus>>;
  listClients(query: ClientsQuery): Awaitable<Long<typeof ListClientsResponseSchema>>;
  /** What the shrink guard holds back, of one type or (undefined) of all: how many. NOT_FOUND: no such upstream. */
  releaseRemovals(upstream: string, type: TypeUrl | undefined): Awaitable<Result<number, GrpcStatus>>;
  /**
   * How many names that was for. NOT_FOUND: no such upstream. FAILED_PRECONDITION: there is nothing to do, as when
   * another operator was faster.
   */
  operate(operation: Operation): Awaitable<Result<number, GrpcStatus>>;
  /** RESOURCE_EXHAUSTED: too many nodes have a level of their own. */
  setLogLevel(change: LogLevelChange): Awaitable<Result<Plain<SetLogLevelResponse>, GrpcStatus>>;
  /** What a reload with this configuration (YAML or JSON) would change. INVALID_ARGUMENT: what is wrong with it. */
  compareConfiguration(text: string): Awaitable<Result<Plain<CompareConfigurationResponse>, GrpcStatus>>;
  /** The configuration in force as JSON, secrets redacted. */
  configDump(): unknown;
  /** The Prometheus text format. */
  metricsText(): Awaitable<string>;
  /** CSDS (protocol §9), of all clients and of the relay itself. RESOURCE_EXHAUSTED: that would be too large. */
  clientStatus(request: ClientStatusRequest, maxBytes: number): Awaitable<Result<EncodedStatus, GrpcStatus>>;
}
