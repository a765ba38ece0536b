import type { ConnectRouter } from '@connectrpc/connect';
import {
  ClientStatusDiscoveryService,
  type ClientStatusRequest,
  type ClientStatusResponse,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import type { Result } from '../model/result.ts';
import { rpcError } from '../wire/connect-error.ts';
import type { GrpcStatus } from '../wire/status.ts';

type Answer = Result<ClientStatusResponse, GrpcStatus>;

/** CSDS over gRPC: request and response, not a watch (protocol §9). */
export function csdsRoutes(
  answer: (request: ClientStatusRequest) => Answer | Promise<Answer>,
): (router: ConnectRouter) => void {
  const orThrow = async (request: ClientStatusRequest): Promise<ClientStatusResponse> => {
    const result = await answer(request);
    if (!result.ok) throw rpcError(result.error);
    return result.value;
  };
  return (router) => {
    router.service(ClientStatusDiscoveryService, {
      fetchClientStatus: orThrow,
      async *streamClientStatus(requests) {
        for await (const request of requests) yield await orThrow(request);
      },
    });
  };
}
