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
import { type HttpHandler, type HttpHead, type HttpServer, listenHttp } from '../wire/http-server.ts';
import { isJsonValue } from '../wire/json-fault.ts';
import { type JsonBounds, parseJson, usualDepth } from '../wire/json-reader.ts';
import { verifiedIdentity } from '../wire/peer-identity.ts';
import { connectionOptions } from './connection-options.ts';
import type { Core } from './core.ts';
import { watchTls } from './watched-tls.ts';
import type { XdsListenerCallbacks } from './xds-listener.ts';

type RestConfig = NonNullable<Core['config']['rest']>;

/** The listener for clients that poll: REST-JSON, and CSDS beside it (protocol §7). */
export class RestListener {
  readonly #server: HttpServer;
  readonly #close: () => void;

  private constructor(server: HttpServer, close: () => void) {
    this.#server = server;
    this.#close = close;
  }

  /** The error says which address could not be listened on, and why. */
  static async open(
    core: Core,
    { address, tls: files }: RestConfig,
    answers: XdsListenerCallbacks,
  ): Promise<Result<RestListener>> {
    const opened: { server?: HttpServer } = {};
    const tls = await watchTls(files, () => opened.server, core, 'rest');
    if (!tls.ok) return tls;
    const connections = connectionOptions(core, 'rest');
    const route = restRoutes(core, answers, connections.report);
    const listening = await listenHttp({
      address: formatHostPort(address.host, address.port),
      tls: tls.value.material,
      route: files?.ca === undefined ? route : askingForCertificates(route),
      maxRequestBytes: core.config.limits.maxPollBytes,
      stalledTimeout: () => core.config.limits.stalledTimeoutMs,
      ...connections,
    });
    if (!listening.ok) {
      tls.value.close();
      return listening;
    }
    opened.server = listening.value;
    return ok(new RestListener(opened.server, () => tls.value.close()));
  }

  get address(): string {
    return this.#server.address;
  }

  /** Polls that wait are answered; then the connections end, over the time given. */
  async drain(milliseconds: number): Promise<void> {
    await this.#server.drain(milliseconds);
    this.#close();
  }
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
  answers: XdsListenerCallbacks,
  report: (message: string, error: unknown) => void,
): Route {
  const slices = new TimeSlices(systemClock);
  const traces = core.spans && new PollTraces(core.spans, systemClock);
  const polls = new RestPolls({
    traced: traces && ((head, info, answered) => traces.traced(head, info, answered)),
    polls: core.relay.polls,
    clock: systemClock,
    slices,
    maxBytes: () => core.config.limits.maxResponseBytes,
    unreadable: (typeUrl) =>
      core.conditions.set(`rest ${typeUrl}`, 'unreadable', 'warn', unreadableMessage, { type: typeUrl }),
    threw: (error, path) => report(`the answer to ${path} could not be made`, error),
  });
  const status = new RestClientStatus(core, answers.clientStatus, slices);
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
    return polls.route(head) ?? status.route(head);
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
class RestClientStatus {
  readonly #core: Core;
  readonly #answerTo: XdsListenerCallbacks['clientStatus'];
  readonly #slices: TimeSlices;
  #open = 0;

  constructor(core: Core, answerTo: XdsListenerCallbacks['clientStatus'], slices: TimeSlices) {
    this.#core = core;
    this.#answerTo = answerTo;
    this.#slices = slices;
  }

  route({ peer }: HttpHead): HttpHandler | HttpAnswer {
    const scope = this.#core.statusScopes.of(peer);
    if (!scope.ok) {
      this.#core.metrics.rejected('denied').inc();
      return refusal(scope.error);
    }
    return (body, answered) => {
      const { account } = peer;
      if (this.#open >= max || account.count(name) >= maxPerPeer) {
        this.#core.metrics.rejected('calls').inc();
        answered(refusal(busy));
        return () => {};
      }
      this.#open++;
      account.enter(name);
      void this.#call(scope.value, body, account).then(answered);
      return () => {};
    };
  }

  async #call(scope: StatusScope, body: Charged, account: Account): Promise<HttpAnswer> {
    try {
      return await this.#answer(scope, body, account);
    } catch (error) {
      this.#core.log.error('a handler failed', { path: clientStatusPath, error });
      return refusal({ code: Code.INTERNAL, message: 'this is a bug: see the log' });
    } finally {
      this.#open--;
      account.leave(name);
    }
  }

  async #answer(scope: StatusScope, body: Charged, payer: Account): Promise<HttpAnswer> {
    if (body.length > maxRequestBytes) return this.#refused('request_bytes', tooLarge);
    const request = readRequest(body);
    if (!request.ok) {
      return this.#refused('malformed', refusal({ code: Code.INVALID_ARGUMENT, message: request.error }));
    }
    const maxBytes = Math.min(this.#core.config.limits.maxResponseBytes, maxConnectBytes);
    const answered = await this.#answerTo({ scope, request: request.value, maxBytes, payer });
    if (!answered.ok) return refusal(answered.error);
    const bound = { useProtoFieldName: false, maxBytes };
    const written = await this.#slices.run((pace) => statusJson(answered.value, bound, pace), payer);
    return written.ok ? jsonAnswer(Buffer.concat(written.value)) : refusal(written.error);
  }

  #refused(reason: string, answer: HttpAnswer): HttpAnswer {
    this.#core.metrics.rejected(reason).inc();
    return answer;
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

/** The spans of REST polls whose client has sent a traceparent: they belong to the client's trace. */
class PollTraces {
  readonly #spans: Spans;
  readonly #clock: Clock;
  #second = 0;
  #started = 0;

  constructor(spans: Spans, clock: Clock) {
    this.#spans = spans;
    this.#clock = clock;
  }

  /** Returns a function to answer with, which ends the span. A poll that its client gives up has none. */
  traced(
    { headers, path }: HttpHead,
    info: TypeInfo,
    answered: (answer: HttpAnswer) => void,
  ): (answer: HttpAnswer) => void {
    const { traceparent } = headers;
    if (typeof traceparent !== 'string' || !this.#hasRoom()) return answered;
    const attributes = { 'http.request.method': 'POST', 'url.path': path, 'distributary.type': info.short };
    const span = this.#spans.start('poll', this.#clock.monotonic(), attributes, traceparent);
    if (span === undefined) return answered;
    this.#started++;
    return (answer) => {
      answered(answer);
      span.end(this.#clock.monotonic(), { 'http.response.status_code': answer.status });
    };
  }

  #hasRoom(): boolean {
    const second = Math.floor(this.#clock.monotonic() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#started = 0;
    }
    return this.#started < mostPerSecond;
  }
}
