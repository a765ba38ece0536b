import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { JsonWriteOptions } from '@bufbuild/protobuf';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextValues,
  type Interceptor,
} from '@connectrpc/connect';
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node';
import { fail, ok, type Result } from '../model/result.ts';
import type { Log } from '../observe/log.ts';
import { formatHostPort } from '../wire/address.ts';
import { lazyEnvoyRegistry } from '../wire/json-registry.ts';
import { explainError, isDisconnect } from '../wire/node-error.ts';
import { checkTlsMaterial, secureContextOptions, type TlsMaterial } from '../wire/tls-material.ts';
import { refusedHost, refusedOrigin } from './browser-guard.ts';
import { callerKey, callerOf, guardChanges } from './guard-changes.ts';
import type { Awaitable, Inspector } from './ports.ts';
import { type HttpAnswer, problem, respond } from './respond.ts';
import { httpRoutes } from './routes.ts';
import { adminCsdsRoutes, adminRoutes } from './rpc.ts';

export interface AdminOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Undefined: plaintext. */
  readonly tls: TlsMaterial | undefined;
  /** Called for each request. */
  readonly access: () => AdminAccess;
  readonly inspector: Inspector;
  readonly log: Log;
}

export interface AdminAccess {
  /** Hosts that requests may name, beside loopback and the bound address; `*` stands for any characters. */
  readonly hosts: readonly string[];
  /** Nothing can be changed. */
  readonly readOnly: boolean;
}

/** Requests are a name and a few parameters. */
const maxRequestBytes = 1024 * 1024;
/** How long a request, in milliseconds, may take to arrive: what is slower holds a socket and nothing else. */
const requestTimeoutMs = 30_000;
const maxConnections = 1000;

/**
 * Fields are in snake_case, as on Envoy's admin pages; clients generated from the proto take either spelling. Admin
 * responses show fields that are false or 0. CSDS leaves them out: most fields of a resource have their default.
 */
const csdsJson = { useProtoFieldName: true, registry: lazyEnvoyRegistry };
const adminJson = { useProtoFieldName: true, alwaysEmitImplicit: true };

type Handler = ReturnType<typeof createConnectRouter>['handlers'][number];

/** The admin listener: pages and probes over plain HTTP, the RPCs over Connect, gRPC-Web too. */
export async function startAdminServer(options: AdminOptions): Promise<Result<AdminServer>> {
  const { tls, host, port } = options;
  const checked = tls === undefined ? undefined : checkTlsMaterial(tls);
  if (checked?.ok === false) return checked;
  const server = createNodeServer(tls, listener(options));
  return new Promise((resolve) => {
    const refused = (error: Error): void =>
      resolve(fail(`cannot listen on ${formatHostPort(host, port)}: ${explainError(error)}`));
    server.once('error', refused);
    server.listen({ host, port }, () => {
      server.off('error', refused);
      server.on('error', (error) => options.log.error('admin: cannot accept connections', { error }));
      resolve(ok(new AdminServer(server, host, tls?.ca)));
    });
  });
}

function createNodeServer(tls: TlsMaterial | undefined, handle: RequestListener): Server | TlsServer {
  const timeouts = { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs };
  const server =
    tls === undefined
      ? createServer(timeouts, handle)
      : createTlsServer(
          {
            ...timeouts,
            ...secureContextOptions(tls),
            // Without `ca`, Node would believe the public authorities. With it, clients need a certificate.
            requestCert: tls.ca !== undefined,
            rejectUnauthorized: tls.ca !== undefined,
          },
          handle,
        );
  server.maxConnections = maxConnections;
  return server;
}

export class AdminServer {
  /** HOST:PORT with the port that was bound. */
  readonly address: string;
  readonly #server: Server | TlsServer;
  #ca: Buffer | undefined;

  constructor(server: Server | TlsServer, host: string, ca: Buffer | undefined) {
    this.#server = server;
    this.#ca = ca;
    const bound = server.address();
    this.address =
      typeof bound === 'object' && bound !== null ? formatHostPort(bound.address, bound.port) : host;
  }

  /** The new certificate holds for connections from now on. If `ca` is another one, those that are open are cut. */
  setTls(material: TlsMaterial): Result<undefined> {
    const server = this.#server;
    if (!('setSecureContext' in server)) return fail(`${this.address} is served without TLS`);
    const checked = checkTlsMaterial(material);
    if (!checked.ok) return checked;
    server.setSecureContext(secureContextOptions(material));
    const { ca } = material;
    if (ca !== undefined && this.#ca?.equals(ca) !== true) server.closeAllConnections();
    this.#ca = ca;
    return ok(undefined);
  }

  /** Stops listening and cuts what is open: no answer of this listener takes long. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}

function listener({ host, inspector, log, access }: AdminOptions): RequestListener {
  const failed = (error: unknown): void => log.error('admin: a request failed', { error });
  const guard = [guardChanges(() => access().readOnly)];
  const rpcs = new Map(
    [
      ...handlersOf(adminRoutes(inspector, failed), adminJson, guard),
      ...handlersOf(adminCsdsRoutes(inspector, failed), csdsJson),
    ].map((handler) => [handler.requestPath, handler]),
  );
  const routes = httpRoutes(inspector);

  return (request, response) => {
    const path = pathOf(request);
    const refusal = refusalOf(request, path);
    if (refusal !== undefined) {
      request.resume();
      respond(response, refusal, request.method === 'HEAD');
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
    const foreign = reads ? undefined : refusedOrigin(request);
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
  jsonOptions: Partial<JsonWriteOptions>,
  interceptors: Interceptor[] = [],
): readonly Handler[] {
  const router = createConnectRouter({ readMaxBytes: maxRequestBytes, jsonOptions, interceptors });
  routes(router);
  return router.handlers;
}

function answerTo(
  method: string,
  path: string,
  routes: ReadonlyMap<string, () => Awaitable<HttpAnswer>>,
  rpcs: ReadonlyMap<string, Handler>,
): Awaitable<HttpAnswer> {
  const route = routes.get(path);
  if (route === undefined) {
    const served = [
      ...routes.keys().map((known) => `GET ${known}`),
      ...rpcs.keys().map((known) => `POST ${known}`),
    ];
    return problem(404, 'not_found', `there is no ${path} here: there is ${served.join(', ')}`);
  }
  if (method === 'GET' || method === 'HEAD') return route();
  return problem(405, 'unimplemented', `${path} takes GET and HEAD, not ${method}`, { allow: 'GET, HEAD' });
}

async function callRpc(rpc: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.method !== 'POST') {
    request.resume();
    const message = `${rpc.requestPath} takes POST, not ${request.method ?? ''}`;
    respond(response, problem(405, 'unimplemented', message, { allow: 'POST' }), request.method === 'HEAD');
    return;
  }
  const type = request.headers['content-type'];
  if (!rpc.supportedContentType(type ?? null)) {
    request.resume();
    const message = `content-type ${type ?? '(none)'} is not served here: application/json and application/proto are`;
    respond(response, problem(415, 'unimplemented', message), false);
    return;
  }
  const values = createContextValues().set(callerKey, callerOf(request));
  const answer = await rpc(universalRequestFromNodeRequest(request, response, undefined, values));
  await universalResponseToNodeResponse(answer, response);
}

function pathOf({ url = '/' }: IncomingMessage): string {
  const target = url.startsWith('/') ? url : (URL.parse(url)?.pathname ?? url);
  const query = target.indexOf('?');
  return query < 0 ? target : target.slice(0, query);
}
