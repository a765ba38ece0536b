import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { fromBinary } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextValues,
  type Interceptor,
} from '@connectrpc/connect';
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node';
import { systemClock } from '../model/clock.ts';
import { errorMessage, type Result } from '../model/result.ts';
import { expectedText } from '../model/suggest.ts';
import { isDisconnect } from '../wire/node-error.ts';
import { answerJson, type BodyTaker, takerKey } from './answers.ts';
import { refusedHost, refusedOrigin } from './browser-guard.ts';
import { callerKey, callerOf, guardChanges } from './guard-changes.ts';
import { type HttpListener, type HttpListenerOptions, startHttpListener } from './http-listener.ts';
import { operatorKey, operatorOf } from './operations.ts';
import { streamEvents } from './page/event-stream.ts';
import { LivePage } from './page/live-page.ts';
import { ModelMaker } from './page/make-model.ts';
import type { Awaitable } from './plain.ts';
import { type HttpAnswer, problem, respond } from './respond.ts';
import { answerByRoute, type HttpRoutes, httpRoutes, pathOf } from './routes.ts';
import { adminCsdsRoutes, adminRoutes } from './rpc.ts';
import type { Inspector } from './service.ts';
import { wholeBody } from './whole-body.ts';

export interface AdminOptions extends HttpListenerOptions {
  /** Called for each request. */
  readonly access: () => AdminAccess;
  readonly inspector: Inspector;
}

export interface AdminAccess {
  /** Hosts that requests may name, beside loopback and the bound address; `*` stands for any characters. */
  readonly hosts: readonly string[];
  /** Nothing can be changed. */
  readonly readOnly: boolean;
}

/** What an open page listens to. */
const eventsPath = '/events';

/** Requests are a name and a few parameters, or hold a node, 61 KB of Envoy's. JSON of so many bytes is parsed in 20 ms. */
const maxRequestBytes = 128 * 1024;

type Handler = ReturnType<typeof createConnectRouter>['handlers'][number];

/** The admin listener: pages and probes over plain HTTP, the RPCs over Connect, gRPC-Web too. */
export function startAdminServer(options: AdminOptions): Promise<Result<HttpListener>> {
  return startHttpListener('admin', options, listener(options));
}

function listener({ host, inspector, log, access }: AdminOptions): RequestListener {
  const failed = (error: unknown): void => log.error('admin: a request failed', { error });
  const guard = [guardChanges(() => access().readOnly, log)];
  const rpcs = new Map(
    [
      ...handlersOf(adminRoutes(inspector, failed), guard),
      ...handlersOf(adminCsdsRoutes(inspector, failed)),
    ].map((handler) => [handler.requestPath, handler]),
  );
  const maker = new ModelMaker(inspector, systemClock);
  const live = new LivePage({
    clock: systemClock,
    model: () => maker.make(),
    figures: () => inspector.page.figures(),
    failed,
  });
  const routes = httpRoutes(inspector, live);

  return (request, response) => {
    const path = pathOf(request);
    const refusal = refusalOf(request, path);
    if (refusal !== undefined) {
      request.resume();
      respond(response, refusal, request.method === 'HEAD');
      return;
    }
    if (path === eventsPath) {
      streamEvents(live, request, response);
      return;
    }
    const rpc = rpcs.get(path);
    const run = rpc === undefined ? plain(request, response, path) : callRpc(rpc, request, response);
    run.catch((error: unknown) => {
      if (isDisconnect(error) || ConnectError.from(error).code === Code.Aborted) return;
      failed(error);
      respond(response, problem(500, 'internal', 'this is a bug: see the log'), request.method === 'HEAD');
    });
  };

  /** Why a request that a foreign web page may have made is refused (ADR 71). */
  function refusalOf(request: IncomingMessage, path: string): HttpAnswer | undefined {
    const misdirected = refusedHost(request, path, { bound: host, hosts: access().hosts });
    if (misdirected !== undefined) return problem(421, 'permission_denied', misdirected);
    const reads = request.method === 'GET' || request.method === 'HEAD';
    // An event stream takes one of the places for pages.
    const foreign = reads && path !== eventsPath ? undefined : refusedOrigin(request);
    return foreign === undefined ? undefined : problem(403, 'permission_denied', foreign);
  }

  async function plain(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    // A body would be read as the next request.
    request.resume();
    const answer = await answerTo(request.method ?? '', path, routes, rpcs);
    respond(response, answer, request.method === 'HEAD');
  }
}

function handlersOf(
  routes: (router: ConnectRouter) => void,
  interceptors: Interceptor[] = [],
): readonly Handler[] {
  const router = createConnectRouter({
    readMaxBytes: maxRequestBytes,
    jsonOptions: answerJson,
    interceptors,
  });
  routes(router);
  return router.handlers;
}

function answerTo(
  method: string,
  path: string,
  routes: HttpRoutes,
  rpcs: ReadonlyMap<string, Handler>,
): Awaitable<HttpAnswer> {
  const streamed = [`GET ${eventsPath}`, ...rpcs.keys().map((known) => `POST ${known}`)];
  return answerByRoute(method, path, routes, streamed);
}

async function callRpc(rpc: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.method !== 'POST') {
    request.resume();
    const message = `${rpc.requestPath} takes POST, not ${request.method ?? ''}`;
    respond(response, problem(405, 'unimplemented', message, { allow: 'POST' }), request.method === 'HEAD');
    return;
  }
  if (request.headers.host === undefined) {
    request.resume();
    respond(response, problem(400, 'invalid_argument', 'the Host header is missing'), false);
    return;
  }
  const type = request.headers['content-type'];
  if (!rpc.supportedContentType(type ?? null)) {
    request.resume();
    const message = `content-type: ${expectedText('application/json or application/proto', type ?? '')}`;
    respond(response, problem(415, 'unimplemented', message), false);
    return;
  }
  const body = await wholeBody(request, maxRequestBytes);
  if (body === undefined) return;
  if (!body.ok) {
    respond(response, problem(429, 'resource_exhausted', body.error), false);
    return;
  }
  const fault = type === 'application/proto' ? undecodable(rpc, body.value) : undefined;
  if (fault !== undefined) {
    respond(response, problem(400, 'invalid_argument', fault), false);
    return;
  }
  const taker: BodyTaker = {};
  const values = createContextValues()
    .set(takerKey, taker)
    .set(callerKey, callerOf(request))
    .set(operatorKey, operatorOf(request));
  const called = universalRequestFromNodeRequest(request, response, undefined, values);
  const answer = await rpc({ ...called, body: asParts(body.value) });
  const { body: answered } = taker;
  // Of an error the body says what it is.
  if (answered === undefined || answer.status !== 200) {
    await universalResponseToNodeResponse(answer, response);
    return;
  }
  answer.header?.delete('content-length'); // of the empty message
  await universalResponseToNodeResponse({ ...answer, body: answered }, response);
}

/** Connect would take it for a fault of ours. */
function undecodable({ method: { input } }: Handler, body: Uint8Array): string | undefined {
  try {
    fromBinary(input, body);
    return undefined;
  } catch (error) {
    return `the request is not a valid ${input.typeName}: ${errorMessage(error)}`;
  }
}

async function* asParts(body: Uint8Array): AsyncGenerator<Uint8Array> {
  yield body;
}
