import { RestPolls } from '../downstream/polls/rest-polls.ts';
import { systemClock } from '../model/clock.ts';
import { ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { formatHostPort } from '../wire/address.ts';
import { type HttpAnswer, problem } from '../wire/http-answer.ts';
import type { HttpHandler, HttpHead } from '../wire/http-exchange.ts';
import { type HttpServer, listenHttp } from '../wire/http-server.ts';
import { verifiedIdentity } from '../wire/peer-identity.ts';
import { connectionOptions } from './connection-options.ts';
import type { Core } from './core.ts';
import { PollTraces } from './poll-traces.ts';
import { clientStatusPath, RestClientStatus } from './rest-client-status.ts';
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
    const tls = await watchTls(
      files,
      () => opened.server,
      core.log,
      (at) => core.metrics.certificateExpiry('rest', at),
    );
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
  'this needs a client certificate with a URI or DNS name, of an authority in rest.tls.ca: none was shown',
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
    const message = `content-encoding ${encoding} is not served here: requests come uncompressed`;
    return problem(415, 'unimplemented', message, { 'accept-encoding': 'identity' });
  }
  const type = headers['content-type'];
  if (type === undefined || /^application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(type)) return undefined;
  return problem(415, 'unimplemented', `content-type ${type} is not served here: application/json is`);
}
