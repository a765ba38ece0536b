import { create } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import type { Awaitable } from '../admin/plain.ts';
import { valueOf } from '../admin/requests.ts';
import {
  ClientStatusDiscoveryService,
  type ClientStatusRequest,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { fail, type Result } from '../model/result.ts';
import type { TimeSlices } from '../model/time-slices.ts';
import type { AuxiliaryCall, CallKind } from '../wire/auxiliary-calls.ts';
import { type EncodedStatus, encodedResponse, sizeOf, statusJson } from '../wire/client-status.ts';
import { type AuxiliaryService, callKey } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import type { Peer } from '../wire/server-stream.ts';
import { type ClientStatusQuery, maxConnectBytes } from './client-configs.ts';
import type { StatusScope } from './client-status-scope.ts';

export interface CsdsOptions {
  readonly scopeOf: (peer: Peer) => Result<StatusScope, GrpcStatus>;
  readonly answer: (query: ClientStatusQuery) => Awaitable<Result<EncodedStatus, GrpcStatus>>;
  readonly maxResponseBytes: () => number;
  readonly slices: TimeSlices;
}

/** A request may hold a node, 61 KB of Envoy's, which is not read. */
const maxRequestBytes = 128 << 10;

/** On all listeners together. */
export const csdsCalls: CallKind = { name: 'CSDS calls', max: 16, maxPerPeer: 4, whenExceeded: 'REFUSED' };

/** CSDS on the xDS port: request and response, not a watch (protocol §9). */
export function csds(options: CsdsOptions): AuxiliaryService {
  const answers = new Csds(options);
  return {
    maxRequestBytes,
    kindOf: () => csdsCalls,
    refusal: (peer) => {
      const scope = options.scopeOf(peer);
      return scope.ok ? undefined : scope.error;
    },
    routes: (router: ConnectRouter) => {
      router.service(ClientStatusDiscoveryService, {
        fetchClientStatus: (request, context) => answers.to(request, context),
        async *streamClientStatus(requests, context) {
          for await (const request of requests) yield await answers.to(request, context);
        },
      });
    },
  };
}

class Csds {
  readonly #options: CsdsOptions;

  constructor(options: CsdsOptions) {
    this.#options = options;
  }

  /** The caller's scope is checked for each request, because the rules may have changed since the stream began. */
  async to(
    request: ClientStatusRequest,
    { values, requestHeader }: HandlerContext,
  ): Promise<ClientStatusResponse> {
    const call = values.get(callKey);
    if (call === undefined) throw new Error('a call without a caller');
    const scope = valueOf(this.#options.scopeOf(call.peer));
    const contentType = requestHeader.get('content-type') ?? '';
    const grpc = contentType.startsWith('application/grpc');
    const release = call.hold();
    try {
      const { account: payer } = call.peer;
      const pieces = valueOf(
        await this.#answer({ scope, request, maxBytes: this.#maxBytes(grpc), payer }, call),
      );
      if (grpc) {
        call.answerWith(pieces);
        return create(ClientStatusResponseSchema);
      }
      if (!contentType.includes('json')) return encodedResponse(pieces);
      const bound = { useProtoFieldName: false, maxBytes: this.#maxBytes(false) };
      const json = valueOf(await this.#options.slices.run((pace) => statusJson(pieces, bound, pace), payer));
      call.answerWith(json, contentType.startsWith('application/connect'));
      return create(ClientStatusResponseSchema);
    } finally {
      release();
    }
  }

  async #answer(query: ClientStatusQuery, call: AuxiliaryCall): Promise<Result<EncodedStatus, GrpcStatus>> {
    const answered = await this.#options.answer(query);
    if (!answered.ok || query.scope.kind === 'all') return answered;
    // A slow reader keeps its answer in memory.
    const excess = call.keepAnswer(sizeOf(answered.value));
    return excess === undefined ? answered : fail({ code: Code.RESOURCE_EXHAUSTED, message: excess });
  }

  #maxBytes(grpc: boolean): number {
    const most = this.#options.maxResponseBytes();
    return grpc ? most : Math.min(most, maxConnectBytes);
  }
}
