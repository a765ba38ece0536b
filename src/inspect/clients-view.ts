import type { Long } from '../admin/answers.ts';
import type { TapQuery } from '../admin/delivery-ports.ts';
import type { ClientQuery } from '../admin/fleet-ports.ts';
import type { Awaitable, ClientsQuery, ExplainQuery, Plain, ResourceQuery } from '../admin/ports.ts';
import type {
  AccountStatus,
  ClientTypeState,
  GetResourceResponseSchema,
  ListClientsResponseSchema,
  NackStatus,
  WorkerStatus,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { CompareConfigurationResponse } from '../gen/distributary/admin/v1/configuration_pb.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { GetClientResponseSchema, ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Parameters } from '../model/parameters.ts';
import { fail, type Result } from '../model/result.ts';
import type { Side } from '../model/side.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientStatusQuery } from './client-configs.ts';
import type { Acceptance, AcceptanceQuery } from './missing-clients.ts';

/** The most rejected resources that Status lists. */
const maxNacks = 100;
/** The most accounts that it lists. */
export const shownAccounts = 5;

/** A summary of the clients. */
export interface ClientsSummary {
  readonly streams: number;
  /** Clients that poll. */
  readonly polling: number;
  /** By the type's label (observe/type-label.ts). */
  readonly subscriptions: ReadonlyMap<string, number>;
  /** The most recent first. */
  readonly nacks: readonly Plain<NackStatus>[];
  /** Clients that reject something: each counts once. */
  readonly rejecting: number;
  /** What is odd about them, for the operator; empty without streams. */
  readonly warnings: readonly string[];
  /** The heaviest first. */
  readonly accounts: readonly Plain<AccountStatus>[];
  /** The processes that serve them; empty if it is this one. */
  readonly workers: readonly Plain<WorkerStatus>[];
}

/** What Explain needs of a client. */
export interface ClientDetails {
  /** Those that it asks for the name with, or would. */
  readonly parameters: Parameters;
  readonly side: Side;
  /** Undefined: it has not subscribed to the type. */
  readonly state: Plain<ClientTypeState> | undefined;
}

export type TapMessages = AsyncIterable<Plain<TapMessage>>;

/** The clients of a relay, wherever their streams end: in this process, or in workers. */
export interface ClientsView {
  /** They are in workers: the streams of this process feed those. */
  readonly inWorkers: boolean;
  summary(): Awaitable<ClientsSummary>;
  list(query: ClientsQuery): Awaitable<Long<typeof ListClientsResponseSchema>>;
  /** The classes of clients, and what is wrong at their clients. */
  classes(): Promise<Plain<ListClassesResponse>>;
  /** NOT_FOUND: there is none. */
  client(query: ClientQuery): Awaitable<Result<Long<typeof GetClientResponseSchema>, GrpcStatus>>;
  /** By a stream's id. NOT_FOUND: there is none. */
  find(
    client: string,
    query: Pick<ExplainQuery, 'type' | 'name' | 'parameters'>,
  ): Awaitable<Result<ClientDetails, GrpcStatus>>;
  /** What a client (a stream's id) was last sent of a resource. NOT_FOUND: no such client, or nothing. */
  sent(
    client: string,
    query: ResourceQuery,
  ): Awaitable<Result<Long<typeof GetResourceResponseSchema>, GrpcStatus>>;
  /** What a reload with this configuration would change for them. INVALID_ARGUMENT: what is wrong with it. */
  reloadEffect(text: string): Awaitable<Result<Plain<CompareConfigurationResponse>, GrpcStatus>>;
  /** CSDS (protocol §9). INVALID_ARGUMENT: a matcher that is not accepted; RESOURCE_EXHAUSTED: too large. */
  configs(query: ClientStatusQuery): Awaitable<Result<EncodedStatus, GrpcStatus>>;
  /** Who has not accepted what there is. */
  acceptance(query: AcceptanceQuery): Promise<Acceptance>;
  /** Messages as they pass, until `signal` aborts. NOT_FOUND: no such client; RESOURCE_EXHAUSTED: too many read along. */
  tap(query: TapQuery, signal: AbortSignal): Result<TapMessages, GrpcStatus>;
}

/** Of a process that does not answer. */
export const emptySummary: ClientsSummary = {
  streams: 0,
  polling: 0,
  subscriptions: new Map(),
  nacks: [],
  rejecting: 0,
  warnings: [],
  accounts: [],
  workers: [],
};

/** The summaries of several processes as one. Clients that reject the same thing share a line. */
export function mergeSummaries(summaries: readonly ClientsSummary[]): ClientsSummary {
  const subscriptions = new Map<string, number>();
  const nacks = new Map<string, Plain<NackStatus>>();
  let [streams, polling, rejecting] = [0, 0, 0];
  for (const summary of summaries) {
    streams += summary.streams;
    polling += summary.polling;
    rejecting += summary.rejecting;
    for (const [type, count] of summary.subscriptions) {
      subscriptions.set(type, (subscriptions.get(type) ?? 0) + count);
    }
    for (const nack of summary.nacks) {
      const key = keyOfNack(nack);
      const known = nacks.get(key);
      nacks.set(key, known === undefined ? nack : mergeNacks(known, nack));
    }
  }
  const workers = summaries.flatMap((summary) => summary.workers);
  const warnings = sharedWarnings(summaries);
  const accounts = heaviest(summaries.flatMap((summary) => summary.accounts));
  return {
    streams,
    polling,
    subscriptions,
    nacks: mostRecent(nacks.values()),
    rejecting,
    warnings,
    accounts,
    workers,
  };
}

/** What all processes with clients say: a client of another one may be what this one misses. */
function sharedWarnings(summaries: readonly ClientsSummary[]): readonly string[] {
  const [first, ...others] = summaries.filter(({ streams }) => streams > 0);
  return (first?.warnings ?? []).filter((one) => others.every(({ warnings }) => warnings.includes(one)));
}

/** At most 100 of them. Times are RFC 3339 in UTC, so their order is that of the texts. */
export function mostRecent(nacks: Iterable<Plain<NackStatus>>): Plain<NackStatus>[] {
  return [...nacks]
    .toSorted((a, b) => (a.since === b.since ? 0 : a.since < b.since ? 1 : -1))
    .slice(0, maxNacks);
}

/** Clients that reject the same thing share a line. */
export function keyOfNack({ type, version, name, error }: Plain<NackStatus>): string {
  return JSON.stringify([type, version, name, error]);
}

export function mergeNacks(a: Plain<NackStatus>, b: Plain<NackStatus>): Plain<NackStatus> {
  return { ...a, clients: a.clients + b.clients, since: a.since < b.since ? a.since : b.since };
}

/** The answer about a stream that is not there. */
export function noSuchClient(client: string): Result<never, GrpcStatus> {
  const message = `there is no client ${client}: distributary clients lists those that are connected`;
  return fail({ code: Code.NOT_FOUND, message });
}

/** Those of several processes: a peer may have one in each. */
function heaviest(accounts: readonly Plain<AccountStatus>[]): readonly Plain<AccountStatus>[] {
  const sums = new Map<string, Plain<AccountStatus>>();
  for (const one of accounts) {
    const known = sums.get(one.key);
    sums.set(
      one.key,
      known === undefined
        ? one
        : {
            key: one.key,
            connections: known.connections + one.connections,
            streams: known.streams + one.streams,
            heldBytes: known.heldBytes + one.heldBytes,
            workPerSecond: known.workPerSecond + one.workPerSecond,
            waits: known.waits || one.waits,
          },
    );
  }
  return [...sums.values()]
    .toSorted((a, b) => b.workPerSecond - a.workPerSecond || Number(b.heldBytes - a.heldBytes))
    .slice(0, shownAccounts);
}
