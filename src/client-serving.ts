import { create, fromJsonString } from '@bufbuild/protobuf';
import {
  type ClientStatusQuery,
  type ClientStatusResult,
  csds,
  csdsCalls,
  maxConnectBytes,
  type StatusScope,
} from './admin/csds.ts';
import type { ClientsView } from './admin/local-clients.ts';
import type { Awaitable } from './admin/service.ts';
import type { ClientTls, Config } from './config/config.ts';
import type { Core, ProcessRole } from './core.ts';
import { fetchRoutes } from './downstream/polls/polls.ts';
import { RestPolls } from './downstream/polls/rest-polls.ts';
import { routes } from './downstream/xds-server.ts';
import { LoadReportingService } from './gen/envoy/service/load_stats/v3/lrs_pb.ts';
import {
  ClientStatusDiscoveryService,
  type ClientStatusRequest,
  ClientStatusRequestSchema,
} from './gen/envoy/service/status/v3/csds_pb.ts';
import { Health } from './gen/health_pb.ts';
import { ServerReflection } from './gen/reflection_pb.ts';
import { takesLoadReports } from './load-reports.ts';
import type { Charged } from './model/brand.ts';
import { type Clock, systemClock } from './model/clock.ts';
import { LOAD_PATH } from './model/load.ts';
import { attempt, errorMessage, ok, type Result } from './model/result.ts';
import { TimeSlices } from './model/time-slices.ts';
import { ADS_SERVICE, knownTypes, type TypeInfo } from './model/types.ts';
import type { CountersOrPid } from './observe/figures.ts';
import type { Spans } from './observe/update-traces.ts';
import type { SessionKeeper, SessionsOf } from './session-keeper.ts';
import { readListenerTls } from './watched-tls.ts';
import type { Account } from './wire/accounts.ts';
import { formatAddress, formatHostPort } from './wire/address.ts';
import type { ListenerOptions } from './wire/client-connections.ts';
import { statusJson } from './wire/client-status.ts';
import { ConnectPaths } from './wire/connect.ts';
import { Code, type GrpcStatus } from './wire/grpc-status.ts';
import { health } from './wire/health.ts';
import { compressed, type HttpAnswer, jsonAnswer, problem, refusal } from './wire/http-answer.ts';
import { type HttpHandler, type HttpHead, type HttpServer, listenHttp } from './wire/http-server.ts';
import { type GrpcServer, listenGrpc } from './wire/http2-server.ts';
import { jsonWithout } from './wire/json-reader.ts';
import { verifiedIdentity } from './wire/peer.ts';
import { reflection, reflectionAliases } from './wire/reflection.ts';
import { lazyEnvoyRegistry } from './wire/registry.ts';
import type { ServerStream } from './wire/server-stream.ts';

/** The listeners for clients of one process. */
export interface ClientListeners {
  /** For each its name on stdout, and HOST:PORT or unix:PATH. */
  readonly addresses: readonly { readonly name: 'xds' | 'rest'; readonly address: string }[];
  /** Ends what clients have open, over the time given; then all are closed. */
  drain(milliseconds: number): Promise<void>;
}

/** Where clients connect, here or in workers. */
export interface ClientServing extends ClientListeners {
  readonly clients: ClientsView;
  /** Why no client can be served; undefined while one can. */
  notReadyReason(): string | undefined;
  /** Everything that the relay has counted, in the Prometheus text format. */
  metricsText(): Promise<string>;
  /** Of each process, for the charts of the status page. */
  counters(): Promise<readonly CountersOrPid[]>;
  reload(config: Config): void;
}

/** How the relay serves its clients. */
export interface ServingMode {
  /** The configuration by which this process serves streams itself. */
  configOf(config: Config): Config;
  readonly role: ProcessRole;
  /** `own`: the clients of this process. */
  open(
    core: Core,
    config: Config,
    answers: ClientAnswers,
    own: ClientsView,
    sessions: SessionKeeper,
  ): Promise<Result<ClientServing>>;
}

/** In this process. */
export const IN_PROCESS: ServingMode = {
  configOf: (config) => config,
  role: {},
  async open(core, _config, answers, clients, sessions) {
    const opened = await openClientListeners(core, answers, sessions.of);
    if (!opened.ok) return opened;
    return ok({
      ...opened.value,
      clients,
      notReadyReason: () => undefined,
      metricsText: () => core.metrics.text(),
      counters: () => Promise.resolve([core.counters()]),
      reload: () => {},
    });
  },
};

/** By the core's configuration. All of them, or the reason why one could not be opened. */
export async function openClientListeners(
  core: Core,
  answers: ClientAnswers,
  sessions: SessionsOf,
): Promise<Result<ClientListeners>> {
  const xds = await openXdsListener(core, answers, sessions);
  if (!xds.ok) return xds;
  const rest = core.config.rest && (await openRestListener(core, core.config.rest, answers, sessions));
  if (rest?.ok === false) {
    await xds.value.drain(0);
    return rest;
  }
  return ok({
    addresses: [
      { name: 'xds', address: xds.value.address },
      ...(rest === undefined ? [] : [{ name: 'rest' as const, address: rest.value.address }]),
    ],
    async drain(milliseconds) {
      await Promise.all([xds.value.drain(milliseconds), rest?.value.drain(milliseconds)]);
    },
  });
}

/** What the listeners for clients say of more than their own streams. */
export interface ClientAnswers {
  /** For the health service. */
  readonly serving: () => boolean;
  readonly clientStatus: (query: ClientStatusQuery) => Awaitable<ClientStatusResult>;
}

/** `drain`: GOAWAY, and the end of what clients have open, over the time given; then it is closed. */
type ClientListener = Pick<GrpcServer | HttpServer, 'address' | 'drain'>;

const lostAuthorities =
  'authorities were removed from ca: connections with certificates of these were closed';

/**
 * Opens a listener for clients with its certificate, and what holds for its connections whatever is spoken on them: by the
 * core's configuration. `listener`: its section there. The error says which address could not be listened on, and why.
 */
async function openListener(
  core: Core,
  listener: 'xds' | 'rest',
  files: ClientTls | undefined,
  sessions: SessionsOf,
  listen: (
    connections: Omit<ListenerOptions, 'address' | 'maxRequestBytes'> &
      Pick<Required<ListenerOptions>, 'report'>,
  ) => Promise<Result<GrpcServer | HttpServer>>,
): Promise<Result<ClientListener>> {
  const tls = await readListenerTls(files, core, listener);
  if (!tls.ok) return tls;
  const { material, follow, close } = tls.value;
  // From 0: increase() does not see a series' first increment.
  if (material !== undefined) core.metrics.count.handshakes(listener, 'full');
  const listening = await listen({
    tls: material && { ...material, sessions: sessions(listener) },
    reusePort: core.sharesPort(listener),
    bounds: core.admission,
    shookHands: (how) => core.metrics.count.handshakes(listener, how).inc(),
    refused: (reason) => core.metrics.count.rejected(reason).inc(),
    accounts: core.accounts,
    maxConnectionAge: () => core.config.xds.maxConnectionAgeMs,
    reviewTime: () => core.config.drainTimeoutMs,
    reviewed: (connections: number) => {
      if (connections > 0) core.log.info(lostAuthorities, { listener, connections });
    },
    report: (message: string, error: unknown, peer?: string) =>
      core.conditions.set(`${listener} listener`, `${message}: ${String(error)}`, 'warn', message, {
        ...(peer === undefined ? {} : { peer }),
        error,
      }),
  });
  if (!listening.ok) {
    close();
    return listening;
  }
  const server = listening.value;
  follow(server);
  const drain = async (milliseconds: number): Promise<void> => {
    await server.drain(milliseconds);
    close();
  };
  return ok({ address: server.address, drain });
}

const resourceServices = [ADS_SERVICE, ...knownTypes.flatMap(({ service }) => service ?? [])];

/** The listener for clients: ADS, the per-type services, and beside them health, reflection and CSDS. */
function openXdsListener(
  core: Core,
  answers: ClientAnswers,
  sessions: SessionsOf,
): Promise<Result<ClientListener>> {
  const { address, unixMode, tls } = core.config.xds;
  const reports = (stream: ServerStream) => core.acceptReports(stream);
  return openListener(core, 'xds', tls, sessions, (connections) =>
    listenGrpc({
      ...connections,
      address: formatAddress(address),
      unixMode,
      accept: (path) => {
        const fetched = fetchRoutes.get(path);
        if (fetched !== undefined) return (stream) => core.relay.fetch(stream, fetched);
        if (path === LOAD_PATH)
          return takesLoadReports(core) ? (stream) => void taken(core, stream, reports) : undefined;
        const route = routes.get(path);
        if (route === undefined) return undefined;
        return (stream) => {
          if (core.siblings.isFor(stream)) {
            const refusal = core.siblings.accept(stream, route);
            if (refusal !== undefined) stream.end(refusal);
            return;
          }
          if (taken(core, stream, (one) => core.relay.server.accept(one, route)))
            core.loops.streamAccepted(stream);
        };
      },
      auxiliary: auxiliaryPaths(core, answers),
      maxRequestBytes: core.config.limits.maxRequestBytes,
      messageTimeout: () => core.config.limits.stalledTimeoutMs,
      connectionFailed: (peer, reason) => core.log.debug('a connection failed', { peer, reason }),
    }),
  );
}

/** Takes a stream unless it leads to a loop of relays. False: it has ended. */
function taken(
  core: Core,
  stream: ServerStream,
  accept: (stream: ServerStream) => GrpcStatus | undefined,
): boolean {
  const loop = core.loops.refusal(stream);
  if (loop !== undefined) core.refuseLoop(stream.peer, loop);
  const refusal = loop ?? accept(stream);
  if (refusal !== undefined) stream.end(refusal);
  return refusal === undefined;
}

function auxiliaryPaths(core: Core, answers: ClientAnswers): ConnectPaths {
  const { serving, clientStatus } = answers;
  const services = (): readonly string[] => [
    ...resourceServices,
    ...(takesLoadReports(core) ? [LoadReportingService.typeName] : []),
    ...(core.statusScopes.enabled ? [ClientStatusDiscoveryService.typeName] : []),
    Health.typeName,
    ServerReflection.typeName,
  ];
  return new ConnectPaths({
    clock: systemClock,
    stalledMilliseconds: () => core.config.limits.stalledTimeoutMs,
    services: [
      health(services, serving, (changed) => core.onChange(changed)),
      reflection(services),
      csds(
        (peer) => core.statusScopes.of(peer),
        clientStatus,
        () => core.config.limits.maxResponseBytes,
      ),
    ],
    aliases: reflectionAliases,
    jsonOptions: { useProtoFieldName: true, registry: lazyEnvoyRegistry },
    refused: (reason) => core.metrics.count.rejected(reason).inc(),
    threw: (error, path) => core.log.error('a handler failed', { path, error }),
  });
}

/** The listener for clients that poll: REST-JSON, and CSDS beside it (protocol §7). Polls that wait are answered before its end. */
function openRestListener(
  core: Core,
  { address, tls }: NonNullable<Core['config']['rest']>,
  answers: ClientAnswers,
  sessions: SessionsOf,
): Promise<Result<ClientListener>> {
  return openListener(core, 'rest', tls, sessions, (connections) => {
    const route = restRoutes(core, answers, connections.report);
    return listenHttp({
      ...connections,
      address: formatHostPort(address.host, address.port),
      route: tls?.ca === undefined ? route : askingForCertificates(route),
      maxRequestBytes: core.config.limits.maxPollBytes,
      stalledTimeout: () => core.config.limits.stalledTimeoutMs,
    });
  });
}

type Route = (head: HttpHead) => HttpHandler | HttpAnswer;

/** Where client certificates are verified: who has shown none is told that one is missing, and not only "denied". */
function askingForCertificates(route: Route): Route {
  const asking = (answer: HttpAnswer): HttpAnswer => (answer.status === 403 ? unauthenticated : answer);
  return (head) => {
    const routed = route(head);
    if (verifiedIdentity(head.peer) !== undefined) return routed;
    if (typeof routed !== 'function') return asking(routed);
    return (body, answered) => routed(body, (answer) => answered(asking(answer)));
  };
}

/** HTTP wants the header with each 401 (RFC 9110 §11.6.1). There is no registered scheme for certificates. */
const unauthenticated = problem(
  401,
  'unauthenticated',
  'this needs a client certificate with a URI or DNS name, issued by an authority in rest.tls.ca: none was sent',
  { 'www-authenticate': 'ClientCertificate' },
);

/** Refuses what can be refused by the head of a request. */
function restRoutes(
  core: Core,
  answers: ClientAnswers,
  report: (message: string, error: unknown) => void,
): Route {
  const slices = new TimeSlices(systemClock);
  const polls = new RestPolls({
    traced: core.spans && pollTraces(core.spans, systemClock),
    polls: core.relay.polls,
    clock: systemClock,
    slices,
    maxBytes: () => core.config.limits.maxResponseBytes,
    unreadable: (typeUrl) =>
      core.conditions.set(`rest ${typeUrl}`, 'unreadable', 'warn', unreadableMessage, { type: typeUrl }),
    threw: (error, path) => report(`the answer to ${path} could not be made`, error),
  });
  const clientStatus = clientStatusRoute(core, answers.clientStatus, slices);
  const paths = [...polls.paths, clientStatusPath];
  const served = paths.map((path) => `POST ${path}`).join(', ');
  return (head) => {
    const refused = paths.includes(head.path)
      ? refusalOf(head)
      : problem(404, 'not_found', `there is no ${head.path} here: there is ${served}`);
    if (refused !== undefined) {
      core.metrics.count.rejected('malformed').inc();
      return refused;
    }
    return polls.route(head) ?? clientStatus(head);
  };
}

const unreadableMessage =
  'a resource holds a type that is not part of the Envoy API that this build knows: REST clients get it as bytes in base64';

/** Why the body of a request is not read. */
function refusalOf({ method, path, headers }: HttpHead): HttpAnswer | undefined {
  if (method !== 'POST') {
    return problem(405, 'unimplemented', `${path} takes POST, not ${method}`, { allow: 'POST' });
  }
  const unreadable = compressed(headers);
  if (unreadable !== undefined) return unreadable;
  const type = headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(type)) return undefined;
  return problem(415, 'unimplemented', `content-type ${type} is not supported here: use application/json`);
}

const clientStatusPath = '/v3/discovery:client_status';

/** As on the xDS port, and counted with those there. */
const { name, max, maxPerPeer } = csdsCalls;
/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 256 << 10;
const mostValues = 20_000;

/** CSDS over REST (protocol §9): a peer is told what it would be told on the xDS port (ADR 65). */
function clientStatusRoute(core: Core, answerTo: ClientAnswers['clientStatus'], slices: TimeSlices): Route {
  let open = 0;
  return ({ peer }) => {
    const { account } = peer;
    const scope = core.statusScopes.of(peer);
    if (!scope.ok) return refused('denied', refusal(scope.error));
    return (body, answered) => {
      if (open >= max || account.count(name) >= maxPerPeer) answered(refused('calls', refusal(busy)));
      else void call(scope.value, body, account).then(answered);
      return () => {};
    };
  };

  async function call(scope: StatusScope, body: Charged, account: Account): Promise<HttpAnswer> {
    open++;
    account.enter(name);
    try {
      return await answer(scope, body, account);
    } catch (error) {
      core.log.error('a handler failed', { path: clientStatusPath, error });
      return refusal({ code: Code.INTERNAL, message: 'this is a bug: see the log' });
    } finally {
      open--;
      account.leave(name);
    }
  }

  async function answer(scope: StatusScope, body: Charged, payer: Account): Promise<HttpAnswer> {
    if (body.length > maxRequestBytes) return refused('request_bytes', tooLarge);
    const request = attempt(() => readRequest(body), notRead);
    if (!request.ok) return refused('malformed', refusal(request.error));
    const maxBytes = Math.min(core.config.limits.maxResponseBytes, maxConnectBytes);
    const status = await answerTo({ scope, request: request.value, maxBytes, payer });
    const written = status.ok ? await statusJson(status.value, maxBytes, slices, payer) : status;
    return written.ok ? jsonAnswer(Buffer.concat(written.value)) : refusal(written.error);
  }

  function refused(reason: string, why: HttpAnswer): HttpAnswer {
    core.metrics.count.rejected(reason).inc();
    return why;
  }
}

/** An empty body asks for everything, as an empty message does. */
const readRequest = (body: Buffer): ClientStatusRequest =>
  body.length === 0
    ? create(ClientStatusRequestSchema)
    : fromJsonString(ClientStatusRequestSchema, jsonWithout(['node'], body, mostValues), {
        ignoreUnknownFields: true,
      });

const notRead = (error: unknown): GrpcStatus => ({
  code: Code.INVALID_ARGUMENT,
  message: `the body is not a ClientStatusRequest: ${errorMessage(error)}`,
});

const tooLarge = problem(413, 'resource_exhausted', `the body is larger than ${maxRequestBytes} bytes`);

const busy: GrpcStatus = {
  code: Code.RESOURCE_EXHAUSTED,
  message: `${max} ${name} are open, or ${maxPerPeer} of this peer, which is the maximum`,
};

/** Clients can ask for a trace with each poll: they must not crowd out the others. */
const mostPerSecond = 50;

/**
 * The spans of REST polls whose client has sent a traceparent: they belong to the client's trace. Returns a function to
 * answer with, which ends the span. A poll that its client gives up has none.
 */
function pollTraces(spans: Spans, clock: Clock) {
  let [second, started] = [0, 0];
  return (
    { headers, path }: HttpHead,
    info: TypeInfo,
    answered: (answer: HttpAnswer) => void,
  ): ((answer: HttpAnswer) => void) => {
    const { traceparent } = headers;
    if (typeof traceparent !== 'string') return answered;
    const now = Math.floor(clock.monotonic() / 1000);
    if (now !== second) [second, started] = [now, 0];
    if (started >= mostPerSecond) return answered;
    const attributes = { 'http.request.method': 'POST', 'url.path': path, 'distributary.type': info.short };
    const span = spans.start('poll', clock.monotonic(), attributes, traceparent);
    if (span === undefined) return answered;
    started++;
    return (answer) => {
      answered(answer);
      span.end(clock.monotonic(), { 'http.response.status_code': answer.status });
    };
  };
}
