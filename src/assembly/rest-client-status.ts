import { create, fromJson } from '@bufbuild/protobuf';
import {
  type ClientStatusRequest,
  ClientStatusRequestSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { maxConnectBytes } from '../inspect/client-configs.ts';
import type { StatusScope } from '../inspect/client-status-scope.ts';
import { csdsCalls } from '../inspect/csds.ts';
import type { Charged } from '../model/brand.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import type { TimeSlices } from '../model/time-slices.ts';
import type { Account } from '../wire/accounts.ts';
import { statusJson } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { type HttpAnswer, jsonAnswer, problem, refusal } from '../wire/http-answer.ts';
import type { HttpHandler, HttpHead } from '../wire/http-exchange.ts';
import { isJsonValue } from '../wire/json-fault.ts';
import { type JsonBounds, parseJson, usualDepth } from '../wire/json-reader.ts';
import type { Core } from './core.ts';
import type { XdsListenerCallbacks } from './xds-listener.ts';

export const clientStatusPath = '/v3/discovery:client_status';

/** As on the xDS port, and counted with those there. */
const { name, max, maxPerPeer } = csdsCalls;
/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 256 << 10;
const bounds: JsonBounds = { depth: usualDepth, values: 20_000 };

/** CSDS over REST (protocol §9): a peer is told what it would be told on the xDS port (ADR 65). */
export class RestClientStatus {
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
  message: `${max} ${name} are open, or ${maxPerPeer} of this peer: that is the most`,
};
