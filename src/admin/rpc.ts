import { create } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from '@connectrpc/connect';
import {
  AdminService,
  type ExplainRequest,
  ExplainResponseSchema,
  GetResourceResponseSchema,
  type ListClientsRequest,
  ListClientsResponseSchema,
  ListResourcesResponseSchema,
  ReleaseRemovalsResponseSchema,
  StatusResponseSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { CompareConfigurationResponseSchema } from '../gen/distributary/admin/v1/configuration_pb.ts';
import {
  DiscardResponseSchema,
  FreezeResponseSchema,
  ReleaseResponseSchema,
  UnfreezeResponseSchema,
} from '../gen/distributary/admin/v1/rollout_pb.ts';
import {
  ClientStatusDiscoveryService,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { systemClock } from '../model/clock.ts';
import { internParameters } from '../model/parameters.ts';
import { type ClientState, clientStates } from '../model/subscription.ts';
import { unknownWord } from '../model/suggest.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { encodedResponse, statusJson } from '../wire/client-status.ts';
import { answered, maxAnswerBytes, takerKey, written } from './answers.ts';
import { changesMethods } from './changes-rpc.ts';
import { deliveryMethods } from './delivery-rpc.ts';
import { fleetMethods } from './fleet-rpc.ts';
import { logMethods } from './log-rpc.ts';
import { type Operation, operationOf } from './operations.ts';
import type { Awaitable, ClientsQuery, ExplainQuery, Inspector } from './ports.ts';
import { type Answer, optionalType, typeNamed, valueOf } from './rpc-parts.ts';

const longestPage = 1000;

/** `failed` is called for bugs: an RPC that threw something other than a status. */
export type Failed = (error: unknown) => void;

export function adminRoutes(inspector: Inspector, failed: Failed): (router: ConnectRouter) => void {
  const slices = new TimeSlices(systemClock);
  const answer: Answer = (desc, context, run) =>
    reported(async () => answered(desc, await run(), context, slices), failed);
  const operate = async (
    verb: Operation['verb'],
    request: Parameters<typeof operationOf>[1],
    context: HandlerContext,
  ): Promise<number> => valueOf(await inspector.operate(operationOf(verb, request, typeNamed, context)));
  return (router) => {
    router.service(AdminService, {
      freeze: (request, context) =>
        answer(FreezeResponseSchema, context, async () => {
          await operate('freeze', request, context);
          return {};
        }),
      unfreeze: (request, context) =>
        answer(UnfreezeResponseSchema, context, async () => ({
          pending: await operate('unfreeze', request, context),
        })),
      release: (request, context) =>
        answer(ReleaseResponseSchema, context, async () => ({
          released: await operate('release', request, context),
        })),
      discard: (request, context) =>
        answer(DiscardResponseSchema, context, async () => ({
          discarded: await operate('discard', request, context),
        })),
      status: (_, context) => answer(StatusResponseSchema, context, () => inspector.status()),
      explain: (request, context) =>
        answer(ExplainResponseSchema, context, async () =>
          valueOf(await inspector.explain(explainQuery(request))),
        ),
      listResources: ({ type, namePrefix, pageSize, pageToken }, context) =>
        answer(ListResourcesResponseSchema, context, async () =>
          valueOf(
            await inspector.listResources({
              type: optionalType(type),
              namePrefix,
              pageSize: pageSize === 0 ? longestPage : Math.min(pageSize, longestPage),
              pageToken,
            }),
          ),
        ),
      getResource: ({ type, name, client, offset }, context) =>
        answer(GetResourceResponseSchema, context, async () => {
          const query = { type: typeNamed(type), name: nameGiven(name), offset };
          return valueOf(await inspector.getResource(query, client === '' ? undefined : client));
        }),
      releaseRemovals: ({ upstream, type }, context) =>
        answer(ReleaseRemovalsResponseSchema, context, async () => ({
          removed: valueOf(await inspector.releaseRemovals(upstream, optionalType(type))),
        })),
      ...deliveryMethods(inspector.delivery, answer),
      ...fleetMethods(inspector.fleet, answer),
      ...changesMethods(inspector.changes, answer),
      ...logMethods(inspector, answer),
      compareConfiguration: ({ text }, context) =>
        answer(CompareConfigurationResponseSchema, context, async () =>
          valueOf(await inspector.compareConfiguration(text)),
        ),
      listClients: (request, context) =>
        answer(ListClientsResponseSchema, context, () => inspector.listClients(clientsQuery(request))),
    });
  };
}

/** StreamClientStatus is for gRPC on the xDS listener: HTTP/1.1 has no streams in both directions. */
export function adminCsdsRoutes(inspector: Inspector, failed: Failed): (router: ConnectRouter) => void {
  const slices = new TimeSlices(systemClock);
  const bound = { useProtoFieldName: true, maxBytes: maxAnswerBytes };
  // Made whole, to know whether it is too large: one after the other.
  let last: Promise<unknown> = Promise.resolve();
  const inTurn = <T>(make: () => Promise<T>): Promise<T> => {
    const made = last.then(make);
    last = made.catch(() => undefined);
    return made;
  };
  return (router) => {
    router.rpc(ClientStatusDiscoveryService.method.fetchClientStatus, (request, context) =>
      reported(async () => {
        const taker = context.values.get(takerKey);
        const type = context.requestHeader.get('content-type') ?? '';
        const isBody = taker !== undefined && !type.startsWith('application/grpc');
        const pieces = await inTurn(async () => {
          const found = valueOf(await inspector.clientStatus(request, maxAnswerBytes));
          return isBody && type.includes('json')
            ? valueOf(await slices.run((pace) => statusJson(found, bound, pace)))
            : found;
        });
        if (!isBody) return encodedResponse(pieces);
        taker.body = written(pieces);
        return create(ClientStatusResponseSchema);
      }, failed),
    );
  };
}

function explainQuery({ type, name, parameters, client }: ExplainRequest): ExplainQuery {
  const url = typeNamed(type);
  const entries = Object.entries(parameters);
  return {
    type: url,
    name: nameGiven(name),
    parameters: entries.length === 0 && client !== '' ? undefined : internParameters(entries),
    client: client === '' ? undefined : client,
  };
}

function nameGiven(name: string): string {
  if (name === '') throw new ConnectError('name is missing', Code.InvalidArgument);
  return name;
}

function clientsQuery({ limit, type, state, ...rest }: ListClientsRequest): ClientsQuery {
  const { offset, pageSize, node, search, class: ofClass, resource } = rest;
  return {
    limit: limit === 0 ? undefined : limit,
    offset,
    pageSize: pageSize === 0 ? undefined : pageSize,
    node,
    search,
    class: ofClass,
    resource,
    type: optionalType(type),
    state: state === '' ? undefined : stateNamed(state),
  };
}

function stateNamed(text: string): ClientState {
  const state = clientStates.find((known) => known === text);
  if (state !== undefined) return state;
  const message = unknownWord('state', text, clientStates);
  throw new ConnectError(message, Code.InvalidArgument);
}

async function reported<T>(run: () => Awaitable<T>, failed: Failed): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof ConnectError) throw error;
    failed(error);
    throw new ConnectError('this is a bug: see the log', Code.Internal);
  }
}
