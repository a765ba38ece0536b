import type { MessageShape } from '@bufbuild/protobuf';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { ClientStatusRequest } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Result } from '../model/result.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Long } from './answers.ts';
import type { Operation } from './operations.ts';
import type { PageSource } from './page-ports.ts';
import type { Awaitable, Plain } from './plain.ts';
import type { Method, Methods, Request } from './requests.ts';

/** Answers with a list that may be long: it is written row by row. */
type Listing =
  | 'listResources'
  | 'getResource'
  | 'listClients'
  | 'getClient'
  | 'listMatches'
  | 'history'
  | 'diff';

export type Answer<M extends Method> = M extends Listing
  ? Long<Methods[M]['output']>
  : Plain<MessageShape<Methods[M]['output']>>;

/** Who asks. */
export interface Call {
  /** For the log. */
  readonly operator: string;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
}

type Asked<M extends Method> = M extends 'status' | 'listClasses'
  ? []
  : M extends 'wait' | 'rollback' | 'setLogLevel'
    ? [request: Request<M>, call: Call]
    : [request: Request<M>];

/**
 * Methods of AdminService, as the relay answers them: proto/distributary/admin/v1 says what they mean. Refusals are
 * thrown as ConnectErrors.
 */
type Handlers<M extends Method> = {
  readonly [K in M]: (...asked: Asked<K>) => Awaitable<Answer<K>>;
};

/** Those that are about clients. With workers, the primary asks each of them the same. */
export interface ClientMethods
  extends Handlers<'explain' | 'getResource' | 'listClients' | 'getClient' | 'listClasses'>,
    Handlers<'compareConfiguration' | 'wait'> {
  /** Messages as they pass, until the caller's signal aborts. */
  tap(request: Request<'tap'>, call: Call): AsyncIterable<Plain<TapMessage>>;
}

/** What has changed. */
export interface Changes extends Handlers<'history' | 'diff' | 'rollback'> {
  /** Of the newest change; 0: there was none yet. */
  readonly revision: number;
}

/** All that the admin listener knows of the relay. */
export interface Inspector
  extends ClientMethods,
    Handlers<'status' | 'listResources' | 'listMatches' | 'releaseRemovals' | 'setLogLevel'> {
  readonly changes: Changes;
  readonly page: PageSource;
  ready(): ReadinessReport;
  /** Those of `status`, for probes: as of a few seconds ago. Undefined: not known yet. */
  problems(): Awaitable<readonly Plain<Problem>[] | undefined>;
  /** Freeze, Unfreeze, Release or Discard: how many names that was for. */
  operate(operation: Operation): Awaitable<number>;
  /** Why a restart would lose what operators do; undefined if it would not, or nothing is persisted at all. */
  notKept(): Awaitable<string | undefined>;
  /** The configuration in force as JSON, secrets redacted. */
  configDump(): unknown;
  /** The Prometheus text format. */
  metricsText(): Awaitable<string>;
  /** CSDS (protocol §9), of all clients and of the relay itself. RESOURCE_EXHAUSTED: that would be too large. */
  clientStatus(request: ClientStatusRequest, maxBytes: number): Awaitable<Result<EncodedStatus, GrpcStatus>>;
}

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
