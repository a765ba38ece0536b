import { Code, ConnectError, type ConnectRouter, type HandlerContext } from '@connectrpc/connect';
import {
  AdminService,
  type ExplainRequest,
  type ListClientsRequest,
  type ListClientsResponse,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { ClientStatusDiscoveryService } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { systemClock } from '../model/clock.ts';
import { internParameters } from '../model/parameters.ts';
import { type SyncState, syncStates } from '../model/subscription.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { decodedResponse, encodedResponse } from '../wire/client-status.ts';
import { changesMethods } from './changes-rpc.ts';
import { deliveryMethods } from './delivery-rpc.ts';
import { fleetMethods } from './fleet-rpc.ts';
import { withKnownTypes } from './json-safe.ts';
import { logMethods } from './log-rpc.ts';
import { type Operation, operationOf } from './operations.ts';
import type { Awaitable, ClientsQuery, ExplainQuery, Inspector, Plain } from './ports.ts';
import { type Answer, optionalType, typeNamed, valueOf, withinAnswer } from './rpc-parts.ts';

const longestPage = 1000;

/** `failed` is called for bugs: an RPC that threw something other than a status. */
export type Failed = (error: unknown) => void;

/** `bounded`: for everybody but the primary, which adds up what its workers answer. */
export function adminRoutes(
  inspector: Inspector,
  failed: Failed,
  { bounded }: { readonly bounded: boolean },
): (router: ConnectRouter) => void {
  const answer: Answer = (run) => reported(run, failed);
  const operate = (
    verb: Operation['verb'],
    request: Parameters<typeof operationOf>[1],
    context: HandlerContext,
  ): Promise<number> =>
    answer(async () => valueOf(await inspector.operate(operationOf(verb, request, typeNamed, context))));
  return (router) => {
    router.service(AdminService, {
      freeze: async (request, context) => {
        await operate('freeze', request, context);
        return {};
      },
      unfreeze: async (request, context) => ({ pending: await operate('unfreeze', request, context) }),
      release: async (request, context) => ({ released: await operate('release', request, context) }),
      discard: async (request, context) => ({ discarded: await operate('discard', request, context) }),
      status: () => answer(() => inspector.status()),
      explain: (request) => answer(async () => valueOf(await inspector.explain(explainQuery(request)))),
      listResources: ({ type, namePrefix, pageSize, pageToken }) =>
        answer(async () =>
          valueOf(
            await inspector.listResources({
              type: optionalType(type),
              namePrefix,
              pageSize: pageSize === 0 ? longestPage : Math.min(pageSize, longestPage),
              pageToken,
            }),
          ),
        ),
      getResource: ({ type, name, client }) =>
        answer(async () => {
          const query = { type: typeNamed(type), name: nameGiven(name) };
          return valueOf(await inspector.getResource(query, client === '' ? undefined : client));
        }),
      releaseRemovals: ({ upstream, type }) =>
        answer(async () => ({
          removed: valueOf(await inspector.releaseRemovals(upstream, optionalType(type))),
        })),
      ...deliveryMethods(inspector.delivery, answer),
      ...fleetMethods(inspector.fleet, answer),
      ...changesMethods(inspector.changes, answer),
      ...logMethods(inspector, answer),
      compareConfiguration: ({ text }) =>
        answer(async () => valueOf(await inspector.compareConfiguration(text))),
      listClients: (request) =>
        answer(async () => {
          const list = await inspector.listClients(clientsQuery(request));
          return bounded ? clientsWithin(list, request) : list;
        }),
    });
  };
}

/** StreamClientStatus is for gRPC on the xDS listener: HTTP/1.1 has no streams in both directions. */
export function adminCsdsRoutes(inspector: Inspector, failed: Failed): (router: ConnectRouter) => void {
  const slices = new TimeSlices(systemClock);
  return (router) => {
    router.rpc(ClientStatusDiscoveryService.method.fetchClientStatus, (request, context) =>
      reported(async () => {
        const response = valueOf(await inspector.clientStatus(request));
        const json = context.requestHeader.get('content-type')?.includes('json') === true;
        if (!json) return encodedResponse(response);
        return slices.run((pace) => withKnownTypes(decodedResponse(response), pace));
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

function clientsWithin(list: Plain<ListClientsResponse>, { offset, limit }: ListClientsRequest) {
  const clients = withinAnswer(list.clients);
  const next = offset + clients.length;
  const wanted = limit === 0 ? list.matching : Math.min(list.matching, offset + limit);
  return { ...list, clients, nextOffset: clients.length > 0 && next < wanted ? next : 0 };
}

function clientsQuery({ limit, type, state, ...rest }: ListClientsRequest): ClientsQuery {
  const { offset, node, search, class: ofClass, resource } = rest;
  return {
    limit: limit === 0 ? undefined : limit,
    offset,
    node,
    search,
    class: ofClass,
    resource,
    type: optionalType(type),
    state: state === '' ? undefined : stateNamed(state),
  };
}

function stateNamed(text: string): SyncState {
  const state = syncStates.find((known) => known === text);
  if (state !== undefined) return state;
  const message = `unknown state ${JSON.stringify(text)}: accepted are ${syncStates.join(', ')}`;
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
