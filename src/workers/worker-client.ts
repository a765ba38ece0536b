import { type Client, Code, ConnectError, createClient, type Transport } from '@connectrpc/connect';
import type { TapQuery } from '../admin/delivery-ports.ts';
import type { ClientQuery } from '../admin/fleet-ports.ts';
import type { ClientsQuery, ExplainQuery, Plain, ResourceQuery } from '../admin/ports.ts';
import {
  AdminService,
  type GetResourceResponse,
  type ListClientsResponse,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { CompareConfigurationResponse } from '../gen/distributary/admin/v1/configuration_pb.ts';
import type { GetClientResponse, ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { ClientStatusQuery } from '../inspect/client-configs.ts';
import type { ClientDetails, ClientsSummary, TapMessages } from '../inspect/clients-view.ts';
import type { Acceptance, AcceptanceQuery } from '../inspect/missing-clients.ts';
import { internParameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import { type Counters, readCounters } from '../observe/counters.ts';
import { readSeries, type Series } from '../observe/series.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { fetchClientStatus } from './client-status-rpc.ts';
import { attempt, getJson, privateTransport } from './private-socket.ts';

/** A worker that takes longer for an answer is left out. */
const longestAnswerMs = 3000;

/** Where a worker's metrics are, as prom-client's JSON. */
export const metricsPath = '/metrics';
/** What the status page draws (observe/counters.ts). */
export const countersPath = '/counters';

type Answered<T> = Promise<Result<T, GrpcStatus>>;

/** What the primary asks a worker: its AdminService, CSDS and metrics. */
export class WorkerClient {
  readonly #socket: string;
  readonly #timeoutMs: number;
  readonly #transport: Transport;
  readonly #admin: Client<typeof AdminService>;
  /** Long answers are asked for one after the other, so that none waits behind others until it is left out. */
  #long: Promise<unknown> = Promise.resolve();

  constructor(socket: string, timeoutMs = longestAnswerMs) {
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    this.#transport = privateTransport(socket, timeoutMs);
    this.#admin = createClient(AdminService, this.#transport);
  }

  summary(): Answered<ClientsSummary> {
    return attempt(
      this.#admin.status({}).then((status) => {
        const { clients: streams, pollingClients: polling, types, nacks, warnings, accounts } = status;
        const { rejectingClients: rejecting } = status;
        // The primary itself reports types that are only cached.
        const subscribed = types.filter(({ subscriptions }) => subscriptions > 0);
        const subscriptions = new Map(subscribed.map((row) => [row.type, row.subscriptions]));
        return { streams, polling, subscriptions, nacks, rejecting, warnings, accounts, workers: [] };
      }),
    );
  }

  list({ limit, pageSize, type, state, ...query }: ClientsQuery): Answered<ListClientsResponse> {
    const bounds = { limit: limit ?? 0, pageSize: pageSize ?? 0 };
    const asked = { ...query, ...bounds, type: type ?? '', state: state ?? '' };
    return this.#inTurn(() => attempt(this.#admin.listClients(asked)));
  }

  classes(): Answered<Plain<ListClassesResponse>> {
    return attempt(this.#admin.listClasses({}));
  }

  client(query: ClientQuery): Answered<GetClientResponse> {
    return this.#inTurn(() => attempt(this.#admin.getClient(query)));
  }

  counters(): Answered<Counters> {
    return attempt(getJson(this.#socket, countersPath, this.#timeoutMs).then(readCounters));
  }

  find(
    client: string,
    { type, name, parameters: asked }: Pick<ExplainQuery, 'type' | 'name' | 'parameters'>,
  ): Answered<ClientDetails> {
    const parameters = Object.fromEntries(asked?.entries ?? []);
    return attempt(
      this.#admin
        .explain({ client, type, name, parameters })
        .then(({ parameters, canary, client: state }) => ({
          parameters: internParameters(Object.entries(parameters)),
          side: canary ? 'canary' : 'released',
          state,
        })),
    );
  }

  sent(client: string, { type, name, offset }: ResourceQuery): Answered<GetResourceResponse> {
    return attempt(this.#admin.getResource({ client, type, name, offset }));
  }

  reloadEffect(text: string): Answered<Plain<CompareConfigurationResponse>> {
    return attempt(this.#admin.compareConfiguration({ text }));
  }

  acceptance({ type, names }: AcceptanceQuery): Answered<Acceptance> {
    return attempt(
      this.#admin
        .wait({ type: type ?? '', names: [...names], minClients: 0 })
        .then(({ clients, missing, missingClients }) => ({ clients, missing, listed: missingClients })),
    );
  }

  /** Ends when the worker ends. */
  async *tap({ client, type }: TapQuery, signal: AbortSignal): TapMessages {
    try {
      yield* this.#admin.tap({ client: client ?? '', type: type ?? '' }, { signal, timeoutMs: 0 });
    } catch (error) {
      const { code } = ConnectError.from(error);
      if (code === Code.NotFound || code === Code.ResourceExhausted) throw error;
    }
  }

  configs(query: ClientStatusQuery): Answered<EncodedStatus> {
    return this.#inTurn(() => attempt(fetchClientStatus(this.#transport, query)));
  }

  series(): Answered<readonly Series[]> {
    return attempt(getJson(this.#socket, metricsPath, this.#timeoutMs).then(readSeries));
  }

  #inTurn<T>(ask: () => Answered<T>): Answered<T> {
    const answered = this.#long.then(ask);
    this.#long = answered;
    return answered;
  }
}
