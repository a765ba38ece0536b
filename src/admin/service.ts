import type { Message, MessageShape } from '@bufbuild/protobuf';
import type { AdsUpstreamConfig, Config } from '../config/config.ts';
import type { UpstreamStatus } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import type { CertificateState } from '../observe/certificates.ts';
import type { Figure, Recent } from '../observe/figures.ts';
import type { RecentLine } from '../observe/log.ts';
import type { Long } from './answers.ts';
import type { ClientStatusQuery, ClientStatusResult } from './csds.ts';
import type { Method, Methods, Operation, Request } from './requests.ts';

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
  : M extends 'wait' | 'rollback' | 'setLogLevel' | 'compareConfiguration'
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
  extends Handlers<'explain' | 'getResource' | 'listClients' | 'getClient' | 'listClasses' | 'load'>,
    Handlers<'compareConfiguration' | 'wait'> {
  /** Messages as they pass, until the caller's signal aborts. */
  tap(request: Request<'tap'>, call: Call): AsyncIterable<TapMessage>;
}

/** All that the admin listener knows of the relay. */
export interface Inspector
  extends ClientMethods,
    Handlers<
      | 'status'
      | 'explainClient'
      | 'listResources'
      | 'listMatches'
      | 'history'
      | 'diff'
      | 'rollback'
      | 'releaseRemovals'
      | 'setLogLevel'
      | 'check'
    > {
  /** What the status page shows beside what the commands do. */
  readonly page: {
    facts(): PageFacts;
    /** The last five minutes. */
    figures(): readonly Figure[];
    /** The last lines of the log, the newest first. */
    lines(): readonly RecentLine[];
    /** The upstream that serves a name, a glob or the wildcard of a type (a short name or a type URL). */
    upstreamOf(type: string, selector: string): string | undefined;
  };
  /** Of the newest change; 0: there was none yet. */
  revision(): number;
  ready(): ReadinessReport;
  /** Those of `status`, for probes: as of a few seconds ago. Undefined: not known yet. */
  problems(): Awaitable<readonly Plain<Problem>[] | undefined>;
  /** Freeze, Unfreeze, Promote, Release or Discard: how many names that was for, and the wave that has ended (0: none). */
  operate(operation: Operation): Awaitable<Readonly<Record<'names' | 'wave' | 'waves', number>>>;
  /** Why a restart would lose what operators do; undefined if it would not, or nothing is persisted at all. */
  notKept(): Awaitable<string | undefined>;
  /** The configuration in force as JSON, secrets redacted. */
  configDump(): unknown;
  /** The Prometheus text format. */
  metricsText(): Awaitable<string>;
  /** CSDS (protocol §9), within a scope. The relay's own view is only in answers about all clients. */
  clientStatus(query: ClientStatusQuery): Awaitable<ClientStatusResult>;
}

/** Where a change stands. */
export type RolloutSummary = Pick<Plain<RolloutStatus>, 'state' | 'since' | 'cause' | 'reason'>;

export interface ReadinessReport {
  readonly ready: boolean;
  /** Undefined: changes go to everybody at once. */
  readonly rollout: RolloutSummary | undefined;
  /** Why not, for people; empty when ready. */
  readonly reason: string;
  /** As in Status. */
  readonly upstreams: readonly (Plain<UpstreamStatus> & {
    /** The relay is not ready before this one was connected once. */
    readonly required: boolean;
  })[];
}

/** What the status page and the list of problems need beside the rest of Status. Times are milliseconds since the epoch. */
export interface PageFacts {
  /** The file of the configuration. */
  readonly file: string;
  /** Of its text that is in force. */
  readonly configuration: string;
  /** When that was read. */
  readonly configuredAt: number;
  readonly startedAt: number;
  readonly readOnly: boolean;
  /** Of what limits of the configuration bound, by their keys. */
  readonly usage: readonly { readonly name: string; readonly used: number; readonly limit: number }[];
  /** limits.max_work_per_peer, in milliseconds. */
  readonly workPerPeerMs: number;
  /** Of all processes: several have those of one listener. */
  readonly certificates: readonly CertificateState[];
  /** The last version of the configuration, if it is not in force. */
  readonly refusedConfiguration:
    | { readonly file: string; readonly problems: readonly string[]; readonly since: number }
    | undefined;
  /** Undefined: nothing is persisted. */
  readonly disk:
    | {
        readonly path: string;
        /** `unread`: rollout.json could not be read at the start. None: the last writes succeeded. */
        readonly failing: readonly {
          readonly what: 'cache' | 'rollout' | 'unread';
          readonly reason: string;
          readonly since: number;
        }[];
        readonly lagSeconds: number;
      }
    | undefined;
  readonly recent: Recent;
  /** Names of which nobody gets what upstream says, because it was discarded. Undefined: there are none. */
  readonly discarded:
    | {
        readonly names: number;
        /** Short names, sorted. */
        readonly types: readonly string[];
        readonly upstreams: readonly string[];
        /** Where it is one. */
        readonly only: { readonly type: string; readonly name: string } | undefined;
        /** The operators', or what was found bad, joined; empty: they are not known. */
        readonly reason: string;
      }
    | undefined;
  /** As configured. */
  readonly rollout: Pick<NonNullable<Config['rollout']>, 'mode' | 'maxWaitMs'> | undefined;
  /** Control planes as configured, by name. */
  readonly controlPlanes: ReadonlyMap<
    string,
    Pick<AdsUpstreamConfig, 'variants' | 'maxRemovalHoldMs' | 'tls'>
  >;
}

/** A generated message as a plain value: all its fields, nothing else. `truncated` is set where it is written. */
export type Plain<T> = T extends Message
  ? { [Key in keyof T as Exclude<Key, '$typeName' | '$unknown' | 'truncated'>]: Plain<T[Key]> }
  : T extends readonly (infer Element)[]
    ? Plain<Element>[]
    : T;

/** Other processes may have to be asked first. */
export type Awaitable<T> = T | Promise<T>;
