import { type Client, Code, ConnectError, createClient, type Transport } from '@connectrpc/connect';
import type { Request } from '../admin/requests.ts';
import type { Call } from '../admin/service.ts';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { ClientStatusQuery } from '../inspect/csds.ts';
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

  /** Of AdminService, as the primary itself was asked. */
  ask<T>(question: (admin: Client<typeof AdminService>) => Promise<T>): Answered<T> {
    return attempt(question(this.#admin));
  }

  askInTurn<T>(question: (admin: Client<typeof AdminService>) => Promise<T>): Answered<T> {
    return this.#inTurn(() => this.ask(question));
  }

  counters(): Answered<Counters> {
    return attempt(getJson(this.#socket, countersPath, this.#timeoutMs).then(readCounters));
  }

  /** Ends when the worker ends. */
  async *tap(request: Request<'tap'>, { signal }: Call): AsyncIterable<TapMessage> {
    try {
      yield* this.#admin.tap(request, { signal, timeoutMs: 0 });
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
