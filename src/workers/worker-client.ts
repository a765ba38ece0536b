import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { type Client, Code, ConnectError, createClient, type HandlerContext } from '@connectrpc/connect';
import { ALL_CLIENTS, type ClientStatusQuery } from '../admin/csds.ts';
import { type Request, valueOf } from '../admin/requests.ts';
import type { Call } from '../admin/service.ts';
import type { ClientAnswers } from '../client-serving.ts';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { TapMessage } from '../gen/distributary/admin/v1/delivery_pb.ts';
import {
  type ClientStatusQuery as Asked,
  type NodeSubscriptions,
  WorkerService,
} from '../gen/distributary/workers/v1/workers_pb.ts';
import { ClientStatusRequestSchema } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Result } from '../model/result.ts';
import { Turns } from '../model/time-slices.ts';
import type { Counters } from '../observe/figures.ts';
import { readSeries, type Series } from '../observe/series.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { rpcError } from '../wire/connect.ts';
import { type GrpcStatus, Code as Status } from '../wire/grpc-status.ts';
import { answerOf, privateTransport } from './private-socket.ts';

/** A worker that takes longer for an answer is left out. */
const longestAnswerMs = 3000;

type Answered<T> = Promise<Result<T, GrpcStatus>>;

/** What the primary asks a worker: its AdminService and its WorkerService. */
export class WorkerClient {
  readonly #admin: Client<typeof AdminService>;
  readonly #worker: Client<typeof WorkerService>;
  /** Long answers are asked for one after the other, so that none waits behind others until it is left out. */
  readonly #long = new Turns<'CSDS' | 'lists'>();

  constructor(socket: string, timeoutMs = longestAnswerMs) {
    const transport = privateTransport(socket, timeoutMs);
    this.#admin = createClient(AdminService, transport);
    this.#worker = createClient(WorkerService, transport);
  }

  /** Of AdminService, as the primary itself was asked. */
  ask<T>(question: (admin: Client<typeof AdminService>) => Promise<T>): Answered<T> {
    return answerOf(question(this.#admin));
  }

  askInTurn<T>(question: (admin: Client<typeof AdminService>) => Promise<T>): Answered<T> {
    return this.#long.run('lists', () => this.ask(question));
  }

  counters(): Answered<Counters> {
    return answerOf(this.#worker.counters({}).then(({ value }) => countersOf(JSON.parse(value))));
  }

  /**
   * A worker that drains ends it. Of one client it ends with a worker that has exited, too. Of all, those of the next
   * worker would be missing: UNAVAILABLE.
   */
  async *tap(request: Request<'tap'>, { signal }: Call): AsyncIterable<TapMessage> {
    try {
      yield* this.#admin.tap(request, { signal, timeoutMs: 0 });
    } catch (error) {
      const { code } = ConnectError.from(error);
      if (code === Code.NotFound || code === Code.ResourceExhausted) throw error;
      if (request.client !== '' || signal.aborted) return;
      const message = 'a worker has exited: tap again to see all clients';
      throw rpcError({ code: Status.UNAVAILABLE, message });
    }
  }

  configs(query: ClientStatusQuery): Answered<EncodedStatus> {
    return this.#long.run('CSDS', () => answerOf(askClientStatus(this.#worker, query)));
  }

  subscribed(nodes: string[]): Answered<readonly NodeSubscriptions[]> {
    return answerOf(this.#worker.subscribedUpstreams({ nodes }).then(({ subscribed }) => subscribed));
  }

  series(): Answered<readonly Series[]> {
    return answerOf(this.#worker.series({}).then(({ value }) => readSeries(JSON.parse(value))));
  }
}

/** Both ends are of the same build (ipc-messages.ts). */
function countersOf(value: unknown): Counters {
  if (isCounters(value)) return value;
  throw new Error('a worker answers with something else than its counters');
}
const isCounters = (value: unknown): value is Counters => typeof value === 'object' && value !== null;

/**
 * CSDS between the primary and its workers. A worker forwards a client's request to the primary, because the answer has
 * streams of all workers; the primary asks each worker for its own. The identity goes with it: each worker charges its account.
 * Answers stay bytes: decoding megabytes would block the process. This answers such a request.
 */
export const clientStatusBy =
  (answer: ClientAnswers['clientStatus']) =>
  async ({ request, identity, maxBytes, whole }: Asked, { signal: gone }: Pick<HandlerContext, 'signal'>) => {
    const scope = identity === undefined ? ALL_CLIENTS : { kind: 'identity' as const, identity };
    const asked = fromBinary(ClientStatusRequestSchema, request);
    return { value: Buffer.concat(valueOf(await answer({ scope, request: asked, maxBytes, whole, gone }))) };
  };

/** And this asks. */
export async function askClientStatus(
  process: Client<typeof WorkerService>,
  { scope, request, maxBytes, whole = false, gone }: ClientStatusQuery,
): Promise<EncodedStatus> {
  if (scope.kind === 'connection') throw new Error('only the process of the connection knows its streams');
  const { value } = await process.clientStatus(
    {
      request: toBinary(ClientStatusRequestSchema, request),
      ...(scope.kind === 'identity' ? { identity: scope.identity } : {}),
      maxBytes,
      whole,
    },
    gone === undefined ? {} : { signal: gone },
  );
  return value.length === 0 ? [] : [value];
}
