import { create, fromJson } from '@bufbuild/protobuf';
import { RestPolls } from '../downstream/polls/rest-polls.ts';
import {
  type ClientStatusRequest,
  ClientStatusRequestSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { csdsCalls, maxConnectBytes, type StatusScope } from '../inspect/csds.ts';
import type { Charged } from '../model/brand.ts';
import { type Clock, systemClock } from '../model/clock.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import type { TypeInfo } from '../model/types.ts';
import type { Spans } from '../observe/update-traces.ts';
import type { Account } from '../wire/accounts.ts';
import { formatHostPort } from '../wire/address.ts';
import { statusJson } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { type HttpAnswer, jsonAnswer, problem, refusal } from '../wire/http-answer.ts';
import { type HttpHandler, type HttpHead, listenHttp } from '../wire/http-server.ts';
import { isJsonValue } from '../wire/json-fault.ts';
import { type JsonBounds, parseJson, usualDepth } from '../wire/json-reader.ts';
import { verifiedIdentity } from '../wire/peer-identity.ts';
import { type ClientAnswers, type ClientListener, openListener } from './client-listener.ts';
import type { Core } from './core.ts';

/** The listener for clients that poll: REST-JSON, and CSDS beside it (protocol §7). Polls that wait are answered before its end. */
export function openRestListener(
  core: Core,
  { address, tls }: NonNullable<Core['config']['rest']>,
  answers: ClientAnswers,
): Promise<Result<ClientListener>> {
  return openListener(core, 'rest', tls, (connections) => {
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
      core.metrics.rejected('malformed').inc();
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
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') {
    const message = `content-encoding ${encoding} is not supported here: send requests uncompressed`;
    return problem(415, 'unimplemented', message, { 'accept-encoding': 'identity' });
  }
  const type = headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(type)) return undefined;
  return problem(415, 'unimplemented', `content-type ${type} is not supported here: use application/json`);
}

const clientStatusPath = '/v3/discovery:client_status';

/** As on the xDS port, and counted with those there. */
const { name, max, maxPerPeer } = csdsCalls;
/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 256 << 10;
const bounds: JsonBounds = { depth: usualDepth, values: 20_000 };

/** CSDS over REST (protocol §9): a peer is told what it would be told on the xDS port (ADR 65). */
function clientStatusRoute(core: Core, answerTo: ClientAnswers['clientStatus'], slices: TimeSlices): Route {
  let open = 0;
  return ({ peer }) => {
    const scope = core.statusScopes.of(peer);
    if (!scope.ok) {
      core.metrics.rejected('denied').inc();
      return refusal(scope.error);
    }
    return (body, answered) => {
      const { account } = peer;
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
    const request = readRequest(body);
    if (!request.ok)
      return refused('malformed', refusal({ code: Code.INVALID_ARGUMENT, message: request.error }));
    const maxBytes = Math.min(core.config.limits.maxResponseBytes, maxConnectBytes);
    const status = await answerTo({ scope, request: request.value, maxBytes, payer });
    if (!status.ok) return refusal(status.error);
    const bound = { useProtoFieldName: false, maxBytes };
    const written = await slices.run((pace) => statusJson(status.value, bound, pace), payer);
    return written.ok ? jsonAnswer(Buffer.concat(written.value)) : refusal(written.error);
  }

  function refused(reason: string, why: HttpAnswer): HttpAnswer {
    core.metrics.rejected(reason).inc();
    return why;
  }
}

/** An empty body asks for everything, as an empty message does. */
function readRequest(body: Buffer): Result<ClientStatusRequest> {
  if (body.length === 0) return ok(create(ClientStatusRequestSchema));
  try {
    const json = parseJson(body, bounds, ['node']);
    if (!isJsonValue(json)) return fail('the body is nested too deeply');
    return ok(fromJson(ClientStatusRequestSchema, json, { ignoreUnknownFields: true }));
  } catch (error) {
    return fail(`the body is not a ClientStatusRequest: ${errorMessage(error)}`);
  }
}

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
