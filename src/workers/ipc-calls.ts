import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { z } from 'zod';
import type { Plain } from '../admin/ports.ts';
import {
  ExplainRequestSchema,
  ExplainResponseSchema,
  ListClientsRequestSchema,
  type ListClientsResponse,
  ListClientsResponseSchema,
  StatusResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { ClientStatusRequestSchema } from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { ClientStatusQuery } from '../inspect/client-configs.ts';
import { ALL_CLIENTS } from '../inspect/client-status-scope.ts';
import type { ClientDetails, ClientsSummary, ClientsView } from '../inspect/clients-view.ts';
import { type TypeUrl, typeUrl } from '../model/brand.ts';
import { internParameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { readSeries, type Series } from '../observe/series.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { IpcResult, IpcRpc } from './ipc-rpc.ts';

type IpcReply<T> = Promise<Result<T, GrpcStatus>>;

/** What a worker answers: the messages of the admin API, of which only what concerns clients is filled in. */
export interface WorkerSources {
  readonly clients: ClientsView;
  readonly series: () => Promise<readonly Series[]>;
}

export async function answerPrimary(
  what: string,
  body: unknown,
  { clients, series }: WorkerSources,
): Promise<IpcResult> {
  switch (what) {
    case 'summary':
      return ok(summaryBytes(await clients.summary()));
    case 'list': {
      const { limit } = fromBinary(ListClientsRequestSchema, bytes(body));
      const list = await clients.list(limit === 0 ? undefined : limit);
      return ok(toBinary(ListClientsResponseSchema, create(ListClientsResponseSchema, list)));
    }
    case 'find': {
      const { client, type, name } = fromBinary(ExplainRequestSchema, bytes(body));
      const found = await clients.find(client, { type: typeUrl(type), name });
      return found.ok ? ok(detailsBytes(found.value)) : found;
    }
    case 'configs':
      return statusBytes(await clients.configs(readStatusQuery(body)));
    case 'series':
      return ok(await series());
    default:
      return fail({ code: Code.UNIMPLEMENTED, message: `unknown request ${what}` });
  }
}

export async function callSummary(rpc: IpcRpc): IpcReply<ClientsSummary> {
  return mapped(await rpc.call('summary', undefined), (body) => {
    const { clients, types, nacks } = fromBinary(StatusResponseSchema, bytes(body));
    return {
      streams: clients,
      subscriptions: new Map(types.map(({ type, subscriptions }) => [type, subscriptions])),
      nacks,
      workers: [],
    };
  });
}

export async function callList(rpc: IpcRpc, limit: number | undefined): IpcReply<Plain<ListClientsResponse>> {
  const request = create(ListClientsRequestSchema, { limit: limit ?? 0 });
  const answered = await rpc.call('list', toBinary(ListClientsRequestSchema, request));
  return mapped(answered, (body) => fromBinary(ListClientsResponseSchema, bytes(body)));
}

export async function callFind(
  rpc: IpcRpc,
  client: string,
  type: TypeUrl,
  name: string,
): IpcReply<ClientDetails> {
  const request = create(ExplainRequestSchema, { client, type, name });
  const answered = await rpc.call('find', toBinary(ExplainRequestSchema, request));
  return mapped(answered, (body) => {
    const { parameters, client: state } = fromBinary(ExplainResponseSchema, bytes(body));
    return { parameters: internParameters(Object.entries(parameters)), state };
  });
}

export async function callConfigs(rpc: IpcRpc, query: ClientStatusQuery): IpcReply<EncodedStatus> {
  return mapped(await rpc.call('configs', statusQueryBody(query)), (body) => [bytes(body)]);
}

export async function callSeries(rpc: IpcRpc): IpcReply<readonly Series[]> {
  return mapped(await rpc.call('series', undefined), readSeries);
}

/**
 * A worker that gets a CSDS request asks the primary, because the answer has streams of all workers. A request about
 * a single connection is answered by the worker itself.
 */
export async function callClientStatus(rpc: IpcRpc, query: ClientStatusQuery): IpcReply<EncodedStatus> {
  return mapped(await rpc.call('client status', statusQueryBody(query)), (body) => [bytes(body)]);
}

export async function answerWorker(
  what: string,
  body: unknown,
  clientStatus: (query: ClientStatusQuery) => MaybeReply<EncodedStatus>,
): Promise<IpcResult> {
  if (what === 'client status') return statusBytes(await clientStatus(readStatusQuery(body)));
  return fail({ code: Code.UNIMPLEMENTED, message: `unknown request ${what}` });
}

const statusBody = z.object({
  request: z.instanceof(Uint8Array),
  /** Undefined: all clients. */
  identity: z.string().optional(),
  maxBytes: z.number(),
});

function statusQueryBody({ scope, request, maxBytes }: ClientStatusQuery): z.infer<typeof statusBody> {
  if (scope.kind === 'connection') throw new Error('only one process has the connection');
  const encoded = toBinary(ClientStatusRequestSchema, request);
  return scope.kind === 'all'
    ? { request: encoded, maxBytes }
    : { request: encoded, identity: scope.identity, maxBytes };
}

function readStatusQuery(body: unknown): ClientStatusQuery {
  const { request, identity, maxBytes } = statusBody.parse(body);
  const scope = identity === undefined ? ALL_CLIENTS : { kind: 'identity' as const, identity };
  return { scope, request: fromBinary(ClientStatusRequestSchema, request), maxBytes };
}

function statusBytes(status: Result<EncodedStatus, GrpcStatus>): IpcResult {
  return status.ok ? ok(Buffer.concat(status.value)) : status;
}

type MaybeReply<T> = IpcReply<T> | Result<T, GrpcStatus>;

function summaryBytes({ streams, subscriptions, nacks }: ClientsSummary): Uint8Array {
  const types = [...subscriptions].map(([type, count]) => ({ type, subscriptions: count }));
  const response = create(StatusResponseSchema, { clients: streams, types, nacks: [...nacks] });
  return toBinary(StatusResponseSchema, response);
}

function detailsBytes({ parameters, state }: ClientDetails): Uint8Array {
  const response = create(ExplainResponseSchema, {
    parameters: Object.fromEntries(parameters.entries),
    ...(state === undefined ? {} : { client: state }),
  });
  return toBinary(ExplainResponseSchema, response);
}

const bytesSchema = z.instanceof(Uint8Array);
const bytes = (body: unknown): Uint8Array => bytesSchema.parse(body);

function mapped<T>(answered: IpcResult, read: (body: unknown) => T): Result<T, GrpcStatus> {
  return answered.ok ? ok(read(answered.value)) : answered;
}
