import { create, fromJson, toJson } from '@bufbuild/protobuf';
import { withKnownTypes } from '../admin/json-safe.ts';
import {
  type ClientStatusRequest,
  ClientStatusRequestSchema,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { maxConnectBytes } from '../inspect/client-configs.ts';
import type { StatusScope } from '../inspect/client-status-scope.ts';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';
import type { TimeSlices } from '../model/time-slices.ts';
import { decodedResponse } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { type HttpAnswer, jsonAnswer, problem, refusal } from '../wire/http-answer.ts';
import type { HttpHandler, HttpHead } from '../wire/http-exchange.ts';
import { isJsonValue } from '../wire/json-fault.ts';
import { lazyEnvoyRegistry } from '../wire/json-registry.ts';
import { peerKey } from '../wire/peer-identity.ts';
import type { Core } from './core.ts';
import type { XdsListenerCallbacks } from './xds-listener.ts';

export const clientStatusPath = '/v3/discovery:client_status';

/** Answers that are made at once, of all peers and of one: as on the xDS port. */
const maxCalls = 16;
const maxCallsPerPeer = 4;
/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 256 << 10;

/** CSDS over REST (protocol §9): a peer is told what it would be told on the xDS port (ADR 65). */
export class RestClientStatus {
  readonly #core: Core;
  readonly #answerTo: XdsListenerCallbacks['clientStatus'];
  readonly #slices: TimeSlices;
  /** By peer. */
  readonly #calls = new Map<string, number>();
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
      const key = peerKey(peer);
      const ofPeer = this.#calls.get(key) ?? 0;
      if (this.#open >= maxCalls || ofPeer >= maxCallsPerPeer) {
        this.#core.metrics.rejected('calls').inc();
        answered(refusal(busy));
        return () => {};
      }
      this.#open++;
      this.#calls.set(key, ofPeer + 1);
      void this.#call(scope.value, body, key).then(answered);
      return () => {};
    };
  }

  async #call(scope: StatusScope, body: Buffer, key: string): Promise<HttpAnswer> {
    try {
      return await this.#answer(scope, body);
    } catch (error) {
      this.#core.log.error('a handler failed', { path: clientStatusPath, error });
      return refusal({ code: Code.INTERNAL, message: 'this is a bug: see the log' });
    } finally {
      this.#release(key);
    }
  }

  async #answer(scope: StatusScope, body: Buffer): Promise<HttpAnswer> {
    if (body.length > maxRequestBytes) return this.#refused('request_bytes', tooLarge);
    const request = readRequest(body);
    if (!request.ok) {
      return this.#refused('malformed', refusal({ code: Code.INVALID_ARGUMENT, message: request.error }));
    }
    const maxBytes = Math.min(this.#core.config.limits.maxResponseBytes, maxConnectBytes);
    const answered = await this.#answerTo({ scope, request: request.value, maxBytes });
    if (!answered.ok) return refusal(answered.error);
    const known = await this.#slices.run((pace) => withKnownTypes(decodedResponse(answered.value), pace));
    const message = create(ClientStatusResponseSchema, known);
    return jsonAnswer(
      JSON.stringify(toJson(ClientStatusResponseSchema, message, { registry: lazyEnvoyRegistry })),
    );
  }

  #refused(reason: string, answer: HttpAnswer): HttpAnswer {
    this.#core.metrics.rejected(reason).inc();
    return answer;
  }

  #release(key: string): void {
    this.#open--;
    const left = (this.#calls.get(key) ?? 0) - 1;
    if (left > 0) this.#calls.set(key, left);
    else this.#calls.delete(key);
  }
}

/** An empty body asks for everything, as an empty message does. */
function readRequest(body: Buffer): Result<ClientStatusRequest> {
  if (body.length === 0) return ok(create(ClientStatusRequestSchema));
  try {
    const json: unknown = JSON.parse(body.toString('utf8'));
    if (!isJsonValue(json)) return fail('the body is nested too deeply');
    return ok(fromJson(ClientStatusRequestSchema, json, { ignoreUnknownFields: true }));
  } catch (error) {
    return fail(`the body is not a ClientStatusRequest: ${errorMessage(error)}`);
  }
}

const tooLarge = problem(413, 'resource_exhausted', `the body is larger than ${maxRequestBytes} bytes`);

const busy: GrpcStatus = {
  code: Code.RESOURCE_EXHAUSTED,
  message: `${maxCalls} CSDS calls are open, or ${maxCallsPerPeer} of this peer: that is the most`,
};
