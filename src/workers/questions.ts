import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { z } from 'zod';
import type { Plain } from '../admin/ports.ts';
import type { StatusQuestion } from '../assembly/client-status.ts';
import { ALL } from '../assembly/client-status-scope.ts';
import type { Census, ClientPart, ClientsView } from '../assembly/clients-view.ts';
import {
  ExplainRequestSchema,
  ExplainResponseSchema,
  ListClientsRequestSchema,
  type ListClientsResponse,
  ListClientsResponseSchema,
  StatusResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { ClientStatusRequestSchema } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { type TypeUrl, typeUrl } from '../model/brand.ts';
import { internParameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { readSeries, type Series } from '../observe/series.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';
import type { Answered, Line } from './line.ts';

type Outcome<T> = Promise<Result<T, GrpcStatus>>;

/** What a worker answers: the messages of the admin API, of which only what concerns clients is filled in. */
export interface Questioned {
  readonly clients: ClientsView;
  readonly series: () => Promise<readonly Series[]>;
}

export async function answerQuestion(
  what: string,
  body: unknown,
  { clients, series }: Questioned,
): Promise<Answered> {
  switch (what) {
    case 'census':
      return ok(censusBytes(await clients.census()));
    case 'list': {
      const { limit } = fromBinary(ListClientsRequestSchema, bytes(body));
      const list = await clients.list(limit === 0 ? undefined : limit);
      return ok(toBinary(ListClientsResponseSchema, create(ListClientsResponseSchema, list)));
    }
    case 'find': {
      const { client, type, name } = fromBinary(ExplainRequestSchema, bytes(body));
      const found = await clients.find(client, { type: typeUrl(type), name });
      return found.ok ? ok(partBytes(found.value)) : found;
    }
    case 'configs':
      return statusBytes(await clients.configs(readStatusQuestion(body)));
    case 'series':
      return ok(await series());
    default:
      return fail({ code: Code.UNIMPLEMENTED, message: `nobody knows ${what} here` });
  }
}

export async function askCensus(line: Line): Outcome<Census> {
  return mapped(await line.ask('census', undefined), (body) => {
    const { clients, types, nacks } = fromBinary(StatusResponseSchema, bytes(body));
    return {
      streams: clients,
      subscriptions: new Map(types.map(({ type, subscriptions }) => [type, subscriptions])),
      nacks,
      workers: [],
    };
  });
}

export async function askList(line: Line, limit: number | undefined): Outcome<Plain<ListClientsResponse>> {
  const request = create(ListClientsRequestSchema, { limit: limit ?? 0 });
  const answered = await line.ask('list', toBinary(ListClientsRequestSchema, request));
  return mapped(answered, (body) => fromBinary(ListClientsResponseSchema, bytes(body)));
}

export async function askFind(line: Line, client: string, type: TypeUrl, name: string): Outcome<ClientPart> {
  const request = create(ExplainRequestSchema, { client, type, name });
  const answered = await line.ask('find', toBinary(ExplainRequestSchema, request));
  return mapped(answered, (body) => {
    const { parameters, client: state } = fromBinary(ExplainResponseSchema, bytes(body));
    return { parameters: internParameters(Object.entries(parameters)), state };
  });
}

export async function askConfigs(line: Line, question: StatusQuestion): Outcome<EncodedStatus> {
  return mapped(await line.ask('configs', statusQuestion(question)), (body) => [bytes(body)]);
}

export async function askSeries(line: Line): Outcome<readonly Series[]> {
  return mapped(await line.ask('series', undefined), readSeries);
}

/**
 * CSDS asked at a worker is about streams of all of them: the other way round, a worker asks the primary. Not so what is
 * about one connection, which is the worker's own.
 */
export async function askClientStatus(line: Line, question: StatusQuestion): Outcome<EncodedStatus> {
  return mapped(await line.ask('client status', statusQuestion(question)), (body) => [bytes(body)]);
}

export async function answerWorker(
  what: string,
  body: unknown,
  clientStatus: (question: StatusQuestion) => Answer<EncodedStatus>,
): Promise<Answered> {
  if (what === 'client status') return statusBytes(await clientStatus(readStatusQuestion(body)));
  return fail({ code: Code.UNIMPLEMENTED, message: `nobody knows ${what} here` });
}

const statusBody = z.object({
  request: z.instanceof(Uint8Array),
  /** Undefined: all clients. */
  identity: z.string().optional(),
  maxBytes: z.number(),
});

function statusQuestion({ scope, request, maxBytes }: StatusQuestion): z.infer<typeof statusBody> {
  if (scope.kind === 'connection') throw new Error('only one process has the connection');
  const encoded = toBinary(ClientStatusRequestSchema, request);
  return scope.kind === 'all'
    ? { request: encoded, maxBytes }
    : { request: encoded, identity: scope.identity, maxBytes };
}

function readStatusQuestion(body: unknown): StatusQuestion {
  const { request, identity, maxBytes } = statusBody.parse(body);
  const scope = identity === undefined ? ALL : { kind: 'identity' as const, identity };
  return { scope, request: fromBinary(ClientStatusRequestSchema, request), maxBytes };
}

function statusBytes(status: Result<EncodedStatus, GrpcStatus>): Answered {
  return status.ok ? ok(Buffer.concat(status.value)) : status;
}

type Answer<T> = Outcome<T> | Result<T, GrpcStatus>;

function censusBytes({ streams, subscriptions, nacks }: Census): Uint8Array {
  const types = [...subscriptions].map(([type, count]) => ({ type, subscriptions: count }));
  const response = create(StatusResponseSchema, { clients: streams, types, nacks: [...nacks] });
  return toBinary(StatusResponseSchema, response);
}

function partBytes({ parameters, state }: ClientPart): Uint8Array {
  const response = create(ExplainResponseSchema, {
    parameters: Object.fromEntries(parameters.entries),
    ...(state === undefined ? {} : { client: state }),
  });
  return toBinary(ExplainResponseSchema, response);
}

const bytesSchema = z.instanceof(Uint8Array);
const bytes = (body: unknown): Uint8Array => bytesSchema.parse(body);

function mapped<T>(answered: Answered, read: (body: unknown) => T): Result<T, GrpcStatus> {
  return answered.ok ? ok(read(answered.value)) : answered;
}
