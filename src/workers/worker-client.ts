import { EmptySchema } from '@bufbuild/protobuf/wkt';
import {
  type Client,
  Code,
  ConnectError,
  type ConnectRouter,
  createClient,
  decodeBinaryHeader,
  encodeBinaryHeader,
  type Transport,
} from '@connectrpc/connect';
import type { Awaitable, Plain } from '../admin/plain.ts';
import { type Request, valueOf } from '../admin/requests.ts';
import type { Call } from '../admin/service.ts';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import { ClientStatusDiscoveryService } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { ALL_CLIENTS, type ClientStatusQuery, type StatusScope } from '../inspect/csds.ts';
import type { Result } from '../model/result.ts';
import { type Counters, readCounters } from '../observe/counters.ts';
import { readSeries, type Series } from '../observe/series.ts';
import { type EncodedStatus, encodedResponse } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
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
  async *tap(request: Request<'tap'>, { signal }: Call): AsyncIterable<Plain<TapMessage>> {
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

/**
 * CSDS between the primary and its workers. Headers carry what the request has no field for: whose streams are meant, and
 * how large the answer may be. A worker forwards a client's request to the primary, because the answer has streams of all
 * workers; the primary asks each worker for its own.
 */

/** The identity whose streams are meant; left out: all clients. In base64, as it may have any characters. */
const identityHeader = 'distributary-identity-bin';
/** Bodies are to be compared, so they are whole. */
const wholeHeader = 'distributary-whole';
/** Of the answer. */
const maxBytesHeader = 'distributary-max-bytes';

const { fetchClientStatus: fetchMethod } = ClientStatusDiscoveryService.method;

type Answer = (query: ClientStatusQuery) => Awaitable<Result<EncodedStatus, GrpcStatus>>;

export function clientStatusRoutes(answer: Answer): (router: ConnectRouter) => void {
  return (router) => {
    router.rpc(fetchMethod, async (request, { requestHeader }) => {
      const maxBytes = Number(requestHeader.get(maxBytesHeader) ?? '0');
      const whole = requestHeader.has(wholeHeader);
      const query = { scope: scopeOf(requestHeader), request, maxBytes, whole };
      return encodedResponse(valueOf(await answer(query)));
    });
  };
}

/** Without fields, everything of the answer is unknown and stays bytes: decoding megabytes would block the process. */
const undecoded = { ...fetchMethod, output: EmptySchema };
/** ClientStatusResponse.config. */
const configTag = Buffer.from([(1 << 3) | 2]);

export async function fetchClientStatus(
  transport: Transport,
  { scope, request, maxBytes, whole = false }: ClientStatusQuery,
): Promise<EncodedStatus> {
  const headers = {
    [maxBytesHeader]: String(maxBytes),
    ...(whole ? { [wholeHeader]: '1' } : {}),
    ...scopeHeader(scope),
  };
  const { message } = await transport.unary(undecoded, undefined, undefined, headers, request);
  const configs = message.$unknown ?? [];
  return configs.length === 0 ? [] : [Buffer.concat(configs.flatMap(({ data }) => [configTag, data]))];
}

function scopeHeader(scope: StatusScope): Readonly<Record<string, string>> {
  switch (scope.kind) {
    case 'all':
      return {};
    case 'identity':
      return { [identityHeader]: encodeBinaryHeader(Buffer.from(scope.identity)) };
    case 'connection':
      throw new Error('only the process of the connection knows its streams');
    default:
      return scope satisfies never;
  }
}

function scopeOf(headers: Headers): StatusScope {
  const identity = headers.get(identityHeader);
  if (identity === null) return ALL_CLIENTS;
  return { kind: 'identity', identity: Buffer.from(decodeBinaryHeader(identity)).toString() };
}
