import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { isIP, SocketAddress } from 'node:net';
import { TLSSocket } from 'node:tls';
import { fromBinary } from '@bufbuild/protobuf';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import {
  Code,
  ConnectError,
  type ConnectRouter,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type Interceptor,
} from '@connectrpc/connect';
import type { UniversalServerResponse } from '@connectrpc/connect/protocol';
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node';
import type { Config } from '../config/config.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import { Paced, systemClock } from '../model/clock.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { anyOf, expectedText, quote } from '../model/text.ts';
import type { Log } from '../observe/log.ts';
import { problemKinds, wrongOnes } from '../observe/problems.ts';
import { packageFile } from '../package/files.ts';
import { compileGlob } from '../security/pattern.ts';
import { isLoopback } from '../wire/address.ts';
import { BodyPieces, tooSmallMessage } from '../wire/half-sent.ts';
import { compressed, type HttpAnswer, problem } from '../wire/http-answer.ts';
import { pathOf } from '../wire/http-server.ts';
import { isDisconnect } from '../wire/node-error.ts';
import { answerJson, takerKey, written } from './answers.ts';
import {
  type HttpListener,
  type HttpListenerOptions,
  json,
  respond,
  startHttpListener,
} from './http-listener.ts';
import { fallback, type LivePage, livePage, modelMaker, shell, streamEvents } from './page/page.ts';
import { operatorKey, operatorOf } from './requests.ts';
import { adminCsdsRoutes, adminRoutes } from './rpc.ts';
import type { Awaitable, Inspector, Plain, ReadinessReport } from './service.ts';

interface AdminOptions extends HttpListenerOptions {
  /** Called for each request. */
  readonly access: () => AdminAccess;
  readonly inspector: Inspector;
}

/** Hosts that requests may name, beside loopback and the bound address; and whether nothing can be changed. */
export type AdminAccess = Pick<Config['admin'], 'hosts' | 'readOnly'>;

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
      ...handlersOf((router) => adminRoutes(router, inspector, failed), guard),
      ...handlersOf((router) => adminCsdsRoutes(router, inspector, failed)),
    ].map((handler) => [handler.requestPath, handler]),
  );
  const model = modelMaker(inspector);
  const live = livePage(systemClock, model, () => inspector.page.figures(), failed);
  const routes = httpRoutes(inspector, live);
  const streamed = [`GET ${eventsPath}`, ...rpcs.keys().map((known) => `POST ${known}`)];

  return (request, response) => {
    const path = pathOf(request.url ?? '/');
    const refusal = refusalOf(request, path);
    if (refusal !== undefined) {
      respond(response, refusal);
      return;
    }
    if (path === eventsPath) {
      streamEvents(live, request, response);
      return;
    }
    const rpc = rpcs.get(path);
    const run =
      rpc === undefined ? plain(request, response, routes, streamed) : callRpc(rpc, request, response);
    run.catch((error: unknown) => {
      if (isDisconnect(error) || ConnectError.from(error).code === Code.Aborted) return;
      failed(error);
      respond(response, problem(500, 'internal', 'this is a bug: see the log'));
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
}

/** `alsoServed`: beside the routes, for the answer to an unknown path. */
async function plain(
  request: IncomingMessage,
  response: ServerResponse,
  routes: HttpRoutes,
  alsoServed: readonly string[] = [],
): Promise<void> {
  // A body would be read as the next request.
  request.resume();
  const path = pathOf(request.url ?? '/');
  const route = routes.get(path);
  const { method = '' } = request;
  if (route === undefined) {
    const served = [...routes.keys().map((known) => `GET ${known}`), ...alsoServed];
    respond(response, problem(404, 'not_found', `there is no ${path} here: expected ${anyOf(served)}`));
  } else if (method === 'GET' || method === 'HEAD') respond(response, await route());
  else {
    const message = `${path} takes GET and HEAD, not ${method}`;
    respond(response, problem(405, 'unimplemented', message, { allow: 'GET, HEAD' }));
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

async function callRpc(rpc: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const refusal = refusalOfHead(rpc, request);
  if (refusal !== undefined) {
    respond(response, refusal);
    return;
  }
  const body = await wholeBody(request, maxRequestBytes);
  if (body === undefined) return;
  if (!body.ok) {
    respond(response, problem(429, 'resource_exhausted', body.error));
    return;
  }
  const isBinary = request.headers['content-type'] === 'application/proto';
  const fault = isBinary ? undecodable(rpc, body.value) : undefined;
  if (fault !== undefined) {
    respond(response, problem(400, 'invalid_argument', fault));
    return;
  }
  const taker: Pick<UniversalServerResponse, 'body'> = {};
  const values = createContextValues()
    .set(takerKey, taker)
    .set(callerKey, callerOf(request))
    .set(operatorKey, operatorOf(request));
  const called = universalRequestFromNodeRequest(request, response, undefined, values);
  const answer = await rpc({ ...called, body: written([body.value]) });
  const { body: answered } = taker;
  // Of an error the body says what it is.
  if (answered === undefined || answer.status !== 200) {
    await universalResponseToNodeResponse(answer, response);
    return;
  }
  answer.header?.delete('content-length'); // of the empty message
  await universalResponseToNodeResponse({ ...answer, body: answered }, response);
}

/** Connect's own refusals have no words. */
function refusalOfHead(rpc: Handler, { method, headers }: IncomingMessage): HttpAnswer | undefined {
  if (method !== 'POST') {
    const message = `${rpc.requestPath} takes POST, not ${method ?? ''}`;
    return problem(405, 'unimplemented', message, { allow: 'POST' });
  }
  if (headers.host === undefined) return problem(400, 'invalid_argument', 'the Host header is missing');
  const unreadable = compressed(headers);
  if (unreadable !== undefined) return unreadable;
  const type = headers['content-type'];
  if (rpc.supportedContentType(type ?? null)) return undefined;
  // A stream of messages has types of its own.
  const own = rpc.method.methodKind === 'unary' ? 'application/' : 'application/connect+';
  const message = `content-type: ${expectedText(`${own}json or ${own}proto`, type ?? '')}`;
  return problem(415, 'unimplemented', message);
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

/** How the caller of an RPC is known: without TLS, by a verified certificate, or over TLS without one. */
type Caller = 'plaintext' | 'verified' | 'anonymous';

const callerKey = createContextKey<Caller>('anonymous', { description: 'caller' });

function callerOf({ socket }: IncomingMessage): Caller {
  if (!(socket instanceof TLSSocket)) return 'plaintext';
  return socket.authorized ? 'verified' : 'anonymous';
}

/**
 * Refuses methods that change something to those who may not call them. The proto marks methods that only read
 * (NO_SIDE_EFFECTS), so a new method is guarded until it is marked. The log has each attempt.
 */
function guardChanges(readOnly: () => boolean, log: Log): Interceptor {
  return (next) => (request) => {
    const { method, contextValues } = request;
    if (method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS) {
      const refusal = refused(method.name, readOnly(), contextValues.get(callerKey));
      if (refusal !== undefined) {
        const said = { who: contextValues.get(operatorKey), what: method.localName, error: refusal };
        log.warn('an RPC that changes something was refused', said);
        throw new ConnectError(refusal, Code.PermissionDenied);
      }
    }
    return next(request);
  };
}

function refused(method: string, readOnly: boolean, caller: Caller): string | undefined {
  if (readOnly) return `${method} changes something, and this listener is read-only (admin.read_only: true)`;
  if (caller === 'anonymous') {
    return `${method} changes something: over TLS that needs a client certificate, verified against admin.tls.ca`;
  }
  return undefined;
}

/** `bound`: as configured in admin.address. */
type ServedHosts = Pick<AdminAccess, 'hosts'> & { readonly bound: string };

/** They reveal little, and a probe through a NAT names an address that is not the relay's own. */
const probes: ReadonlySet<string> = new Set(['/healthz', '/ready', '/metrics']);

/**
 * Why a request for such a host is refused; undefined: it is served. A web page could make its own name point here, so
 * that the browser lets it read answers (DNS rebinding, ADR 71). The Host header still says that name: browsers always
 * send one.
 */
function refusedHost(request: IncomingMessage, path: string, served: ServedHosts): string | undefined {
  const refused = namedHosts(request).find((named) => {
    const host = hostOf(named);
    return host === undefined || !isServed(host, request, path, served);
  });
  if (refused === undefined) return undefined;
  const hosts = served.hosts.length === 0 ? 'none yet' : served.hosts.join(', ');
  return `the host ${quote(refused, 100)} is refused (DNS rebinding): expected localhost, a loopback address, ${served.bound} (admin.address), the address that was connected to, or a name in admin.hosts: ${hosts}`;
}

/**
 * Why a request that may change something is refused; undefined: it is served. A web page can make its reader's browser
 * send it without reading the answer (ADR 71): browsers mark such requests.
 */
function refusedOrigin({ headers }: IncomingMessage): string | undefined {
  const site = headers['sec-fetch-site'];
  const crossSite = site !== undefined && site !== 'same-origin' && site !== 'none';
  const { origin } = headers;
  const crossOrigin =
    origin !== undefined && URL.parse(origin)?.host.toLowerCase() !== headers.host?.toLowerCase();
  if (!crossSite && !crossOrigin) return undefined;
  const from = origin === undefined ? 'another site' : quote(origin, 100);
  return `a web page of ${from} may not call this: only pages of this listener may, and clients that are not browsers`;
}

/** A request as to a proxy (RFC 9112 §3.2.2) names a host in its target, too: both must be served. */
function namedHosts({ url = '', headersDistinct }: IncomingMessage): readonly string[] {
  const named = headersDistinct['host'] ?? [];
  return url.startsWith('/') || url === '*' ? named : [...named, URL.parse(url)?.host ?? url];
}

function isServed(host: string, { socket }: IncomingMessage, path: string, served: ServedHosts): boolean {
  // DNS rebinding needs a name: a page from an address belongs to whoever has the address.
  if (probes.has(path) && isIP(host) !== 0) return true;
  if (isLoopback(host) || host === canonical(socket.localAddress ?? '')) return true;
  if (host === canonical(served.bound)) return true;
  return served.hosts.some((pattern) => compileGlob(canonical(pattern))(host));
}

/** Without the port: it may be a forwarded one. Undefined: it is no host at all. */
function hostOf(authority: string): string | undefined {
  const [, address, name] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d*)?$/i.exec(authority) ?? [];
  const host = address ?? name;
  return host === undefined ? undefined : canonical(host);
}

/** In lower case, without the root's dot; addresses in their one spelling, mapped ones (::ffff:10.0.0.1) as IPv4. */
function canonical(host: string): string {
  const plain = host
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
  if (isIP(plain) !== 6) return plain;
  const { address } = new SocketAddress({ address: plain, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1] ?? address;
}

/** The body of a request: Connect would keep a buffer for each piece in which it comes. Undefined: its client has gone. */
export function wholeBody(
  request: IncomingMessage,
  mostBytes: number,
): Promise<Result<Uint8Array> | undefined> {
  const body = new BodyPieces();
  return new Promise((resolve) => {
    const refuse = (message: string): void => {
      request.off('data', take).resume();
      body.drop();
      resolve(fail(message));
    };
    const take = (piece: Buffer): void => {
      if (body.bytes + piece.length > mostBytes) {
        refuse(`the request is larger than ${mostBytes} bytes`);
        return;
      }
      body.add(piece, mostBytes);
      if (body.areTooSmall) refuse(`the request is refused: ${tooSmallMessage}`);
    };
    request.on('data', take);
    request.once('end', () => resolve(ok(body.take())));
    request.once('close', () => resolve(undefined));
  });
}

/** What scrapers and probes ask, and nothing else: everybody who can reach this listener may read it. */
export function startMetricsServer(options: Omit<AdminOptions, 'access'>): Promise<Result<HttpListener>> {
  const routes = probeRoutes(options.inspector, 'METRICS');
  return startHttpListener('metrics', options, (request, response) => {
    plain(request, response, routes).catch((error: unknown) => {
      options.log.error('metrics: a request failed', { error });
      respond(response, problem(500, 'internal', 'this is a bug: see the log'));
    });
  });
}

type HttpRoutes = ReadonlyMap<string, () => Awaitable<HttpAnswer>>;

/** The plain HTTP routes by their paths: all of them GET (and HEAD). */
function httpRoutes(inspector: Inspector, live: LivePage): HttpRoutes {
  return new Map([
    ['/', shared(() => page(inspector, live))],
    ...[...runbooks].map((name) => [`/runbooks/${name}`, () => runbook(name)] as const),
    ...probeRoutes(inspector, 'ADMIN'),
    ['/config_dump', shared(() => json(inspector.configDump()))],
  ]);
}

/**
 * What probes and scrapers ask. On the listener for metrics it names no client and no resource, but in the words of a
 * control plane (`reason` of an upstream, `last_error`).
 */
function probeRoutes(inspector: Inspector, listener: 'ADMIN' | 'METRICS'): HttpRoutes {
  return new Map<string, () => Awaitable<HttpAnswer>>([
    ['/healthz', () => ({ status: 200, type: 'text/plain; charset=utf-8', body: 'ok\n' })],
    ['/ready', async () => readiness(inspector.ready(), await inspector.problems(), listener)],
    [
      '/metrics',
      shared(async () => ({ status: 200, type: metricsType, body: await inspector.metricsText() })),
    ],
  ]);
}

const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

/** Whoever asks at about the same time gets the same answer: one packet has room for a thousand requests. */
function shared(answer: () => Awaitable<HttpAnswer>): () => Promise<HttpAnswer> {
  const paced = new Paced(systemClock, async () => answer(), 1);
  return () => paced.current();
}

async function page(inspector: Inspector, live: LivePage): Promise<HttpAnswer> {
  const status = await inspector.status();
  const model = await live.modelText();
  return shell(status, model, live.figures(), fallback(status, Date.now()));
}

function readiness(
  { ready, reason, upstreams, rollout }: ReadinessReport,
  problems: readonly Plain<Problem>[] | undefined,
  listener: 'ADMIN' | 'METRICS',
): HttpAnswer {
  const shown = upstreams.map(
    ({ name, required, connected, stale, refusedStreams, suspectTypes, ...said }) => ({
      name,
      ...(required ? {} : { required }),
      connected,
      stale,
      since: stale ? said.staleSince : null,
      ...(stale ? { reason: said.staleReason } : {}),
      ...(said.fromSiblingsSince === '' ? {} : { from_siblings_since: said.fromSiblingsSince }),
      ...(refusedStreams === 0 ? {} : { refused_streams: refusedStreams, last_error: said.lastError }),
      ...(suspectTypes.length === 0 ? {} : { suspect_types: suspectTypes.map(({ type }) => type) }),
    }),
  );
  const why = ready ? staleText(upstreams) : reason;
  const wrong = problems === undefined ? null : wrongOnes(problems).map(problemJson);
  const answer = { ready, reason: why, problems: wrong, upstreams: shown, ...rolloutJson(rollout, listener) };
  return json(answer, ready ? 200 : 503);
}

const titles = new Map<string, string>(
  Object.entries(problemKinds).map(([kind, { means }]) => [kind, means]),
);

/** Whoever reaches this listener may read it: it has no names of clients or resources, so its title is that of the kind. */
function problemJson({ kind, severity, since, clients, upstream, runbook: page }: Plain<Problem>): object {
  return {
    kind,
    title: titles.get(kind) ?? kind,
    severity,
    since: since === '' ? null : since,
    ...(clients === 0 ? {} : { clients }),
    ...(upstream === '' ? {} : { upstream }),
    runbook: `docs/runbooks/${page}.md`,
  };
}

/** A relay that serves what may be out of date is ready, and says so. */
function staleText(upstreams: ReadinessReport['upstreams']): string {
  return upstreams
    .filter(({ stale }) => stale)
    .map(({ name, staleReason }) => `stale: ${name} (${staleReason})`)
    .join(', ');
}

function rolloutJson(rollout: ReadinessReport['rollout'], listener: 'ADMIN' | 'METRICS'): object {
  if (rollout === undefined) return {};
  const { state, since, cause, reason } = rollout;
  const why = reason === '' || listener === 'METRICS' ? {} : { reason };
  return { rollout: { state, since, cause, ...why } };
}

/** What a relay cannot say of itself: it is gone, or was. */
const ofOtherSources = ['relay-down', 'standstill'];

/** They are part of the package: they must be there when nothing else is. */
const runbooks: ReadonlySet<string> = new Set([
  ...Object.values(problemKinds).map(({ runbook }) => runbook),
  ...ofOtherSources,
]);

function runbook(name: string): HttpAnswer {
  const body = packageFile(`docs/runbooks/${name}.md`).toString();
  return { status: 200, type: 'text/plain; charset=utf-8', body };
}
