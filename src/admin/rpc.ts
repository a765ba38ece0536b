import { create, type DescMessage, type DescMethodUnary, type MessageShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from '@connectrpc/connect';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  ClientStatusDiscoveryService,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { systemClock } from '../model/clock.ts';
import { TimeSlices, Turns } from '../model/time-slices.ts';
import { encodedResponse, statusJson } from '../wire/client-status.ts';
import { answered, type Long, maxAnswerBytes, takerKey, written } from './answers.ts';
import { ALL_CLIENTS } from './csds.ts';
import { type Methods, operationOf, operatorKey, valueOf, verbs } from './requests.ts';
import type { Answer, Awaitable, Call, ClientMethods, Inspector } from './service.ts';

/** `failed` is called for bugs: an RPC that threw something other than a status. */
export type Failed = (error: unknown) => void;

const { method } = AdminService;

type Operations = Methods[(typeof verbs)[number]];

export function adminRoutes(router: ConnectRouter, inspector: Inspector, failed: Failed): void {
  clientRoutes(router, inspector, () => inspector.status(), failed);
  const unary = unaryOn(router, failed);
  // What an operator decides about changes: with a warning if a restart would lose it.
  const kept = async <T>(done: Awaitable<T>) => {
    // What is refused may have changed something before.
    const [answer] = await Promise.allSettled([done]);
    const warning = await inspector.notKept();
    if (answer.status === 'rejected') throw answer.reason;
    return { ...answer.value, warning };
  };
  unary(method.explainClient, (request) => inspector.explainClient(request));
  unary(method.listResources, (request) => inspector.listResources(request));
  unary(method.listMatches, (request) => inspector.listMatches(request));
  unary(method.history, (request) => inspector.history(request));
  unary(method.diff, (request) => inspector.diff(request));
  unary(method.rollback, (request, call) => kept(inspector.rollback(request, call)));
  unary(method.check, (request) => inspector.check(request));
  unary(method.setLogLevel, (request, call) => inspector.setLogLevel(request, call));
  unary(method.releaseRemovals, (request) => inspector.releaseRemovals(request));
  for (const verb of verbs)
    unary<Operations['input'], Operations['output']>(method[verb], (request, { operator }) => {
      const operate = async () => {
        const { names, ...wave } = await inspector.operate(operationOf(verb, request, operator));
        // Each answer takes what it has a field for.
        return { pending: names, released: names, promoted: names, discarded: names, ...wave };
      };
      return kept(operate());
    });
}

/** What a worker is asked too. */
export function clientRoutes(
  router: ConnectRouter,
  clients: ClientMethods,
  status: () => Awaitable<Partial<Answer<'status'>>>,
  failed: Failed,
): void {
  const unary = unaryOn(router, failed);
  unary(method.status, status);
  unary(method.explain, (request) => clients.explain(request));
  unary(method.getResource, (request) => clients.getResource(request));
  unary(method.listClients, (request) => clients.listClients(request));
  unary(method.getClient, (request) => clients.getClient(request));
  unary(method.listClasses, () => clients.listClasses());
  unary(method.load, (request) => clients.load(request));
  unary(method.compareConfiguration, (request, call) => clients.compareConfiguration(request, call));
  unary(method.wait, (request, call) => clients.wait(request, call));
  router.rpc(method.tap, async function* (request, context) {
    yield* clients.tap(request, callOf(context));
  });
}

const callOf = ({ values, signal }: HandlerContext): Call => ({ operator: values.get(operatorKey), signal });

/** Writes the answers, within what they may have (answers.ts). What a method throws by mistake is logged. */
function unaryOn(router: ConnectRouter, failed: Failed) {
  const slices = new TimeSlices(systemClock);
  return <I extends DescMessage, O extends DescMessage>(
    of: DescMethodUnary<I, O>,
    run: (request: MessageShape<I>, call: Call) => Awaitable<Long<O>>,
  ): void => {
    router.rpc(of, (request, context) =>
      reported(async () => answered(of.output, await run(request, callOf(context)), context, slices), failed),
    );
  };
}

/** StreamClientStatus is for gRPC on the xDS listener: HTTP/1.1 has no streams in both directions. */
export function adminCsdsRoutes(router: ConnectRouter, inspector: Inspector, failed: Failed): void {
  const slices = new TimeSlices(systemClock);
  // Made whole, to know whether it is too large: one after the other.
  const turns = new Turns<undefined>();
  router.rpc(ClientStatusDiscoveryService.method.fetchClientStatus, (request, context) =>
    reported(async () => {
      const taker = context.values.get(takerKey);
      const type = context.requestHeader.get('content-type') ?? '';
      const isBody = taker !== undefined && !type.startsWith('application/grpc');
      const pieces = await turns.run(undefined, async () => {
        const found = valueOf(
          await inspector.clientStatus({ scope: ALL_CLIENTS, request, maxBytes: maxAnswerBytes }),
        );
        return isBody && type.includes('json')
          ? valueOf(await statusJson(found, maxAnswerBytes, slices, undefined, { useProtoFieldName: true }))
          : found;
      });
      if (!isBody) return encodedResponse(pieces);
      taker.body = written(pieces);
      return create(ClientStatusResponseSchema);
    }, failed),
  );
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
