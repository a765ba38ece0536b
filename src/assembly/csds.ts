import { create } from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import { withKnownTypes } from '../admin/json-safe.ts';
import {
  ClientStatusDiscoveryService,
  type ClientStatusRequest,
  type ClientStatusResponse,
  ClientStatusResponseSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Access } from '../model/access.ts';
import { typeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import { callerKey } from '../wire/connect.ts';
import { rpcError } from '../wire/connect-error.ts';
import type { GrpcStatus } from '../wire/status.ts';
import type { Peer } from '../wire/transport.ts';

type Answer = Result<ClientStatusResponse, GrpcStatus>;

/**
 * CSDS over gRPC: request and response, not a watch (protocol §9). Who may not subscribe to a resource is not told of it
 * here either.
 */
export function csdsRoutes(
  answer: (request: ClientStatusRequest) => Answer | Promise<Answer>,
  accessOf: (peer: Peer) => Access,
): (router: ConnectRouter) => void {
  const orThrow = async (
    request: ClientStatusRequest,
    { values, requestHeader }: HandlerContext,
  ): Promise<ClientStatusResponse> => {
    const result = await answer(request);
    if (!result.ok) throw rpcError(result.error);
    const peer = values.get(callerKey);
    const shown = peer === undefined ? result.value : allowed(result.value, accessOf(peer));
    // Connect speaks JSON too, which needs to know every type.
    const json = requestHeader.get('content-type')?.includes('json') === true;
    return json ? create(ClientStatusResponseSchema, withKnownTypes(shown)) : shown;
  };
  return (router) => {
    router.service(ClientStatusDiscoveryService, {
      fetchClientStatus: orThrow,
      async *streamClientStatus(requests, context) {
        for await (const request of requests) yield await orThrow(request, context);
      },
    });
  };
}

function allowed(response: ClientStatusResponse, access: Access): ClientStatusResponse {
  for (const config of response.config) {
    config.genericXdsConfigs = config.genericXdsConfigs.filter(({ typeUrl: url, name }) =>
      access.allows(typeUrl(url), name),
    );
  }
  return response;
}
