import type { Awaitable, Plain } from '../admin/plain.ts';
import type { ClientMethods } from '../admin/service.ts';
import type { AccountStatus, NackStatus, StatusResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { Result } from '../model/result.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { ClientStatusQuery } from './client-configs.ts';

/** The most rejected resources that Status lists. */
const maxNacks = 100;
/** The most accounts that it lists. */
export const shownAccounts = 5;

/** What Status says of clients. Of types only how many clients subscribe. */
export type ClientsStatus = Pick<
  Plain<StatusResponse>,
  'clients' | 'pollingClients' | 'types' | 'nacks' | 'rejectingClients' | 'warnings' | 'accounts' | 'workers'
>;

/**
 * The clients of a relay, wherever their streams end: in this process, or in workers. Of ExplainResponse they say which
 * parameters and side a client has and what it was sent; of WaitResponse who has not accepted what there is now.
 */
export interface ClientsView extends ClientMethods {
  /** They are in workers: the streams of this process feed those. */
  readonly inWorkers: boolean;
  status(): Awaitable<ClientsStatus>;
  /** CSDS (protocol §9). INVALID_ARGUMENT: a matcher that is not accepted; RESOURCE_EXHAUSTED: too large. */
  configs(query: ClientStatusQuery): Awaitable<Result<EncodedStatus, GrpcStatus>>;
}

/** What several processes say, as one. Clients that reject the same thing share a line. */
export function mergeStatus(all: readonly ClientsStatus[]): ClientsStatus {
  const types = new Map<string, ClientsStatus['types'][number]>();
  const nacks = new Map<string, Plain<NackStatus>>();
  for (const status of all) {
    for (const row of status.types) {
      const subscriptions = (types.get(row.type)?.subscriptions ?? 0) + row.subscriptions;
      types.set(row.type, { ...row, subscriptions });
    }
    for (const nack of status.nacks) {
      const key = keyOfNack(nack);
      const known = nacks.get(key);
      nacks.set(key, known === undefined ? nack : mergeNacks(known, nack));
    }
  }
  const sum = (key: 'clients' | 'pollingClients' | 'rejectingClients'): number =>
    all.reduce((count, status) => count + status[key], 0);
  return {
    clients: sum('clients'),
    pollingClients: sum('pollingClients'),
    rejectingClients: sum('rejectingClients'),
    types: [...types.values()],
    nacks: mostRecent(nacks.values()),
    warnings: sharedWarnings(all),
    accounts: heaviest(all.flatMap(({ accounts }) => accounts)),
    workers: all.flatMap(({ workers }) => workers),
  };
}

/** What all processes with clients say: a client of another one may be what this one misses. */
function sharedWarnings(all: readonly ClientsStatus[]): string[] {
  const [first, ...others] = all.filter(({ clients }) => clients > 0);
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
export function noSuchClient(client: string): never {
  const message = `there is no client ${client}: distributary clients lists those that are connected`;
  throw rpcError({ code: Code.NOT_FOUND, message });
}

/** Those of several processes: a peer may have one in each. */
function heaviest(accounts: readonly Plain<AccountStatus>[]): Plain<AccountStatus>[] {
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
