import { fromBinary, toBinary } from '@bufbuild/protobuf';
import type { Client, HandlerContext } from '@connectrpc/connect';
import { valueOf } from '../admin/requests.ts';
import type { Awaitable } from '../admin/service.ts';
import type { ClientStatusQuery as Asked, WorkerService } from '../gen/distributary/workers/v1/workers_pb.ts';
import { ClientStatusRequestSchema } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { ALL_CLIENTS, type ClientStatusQuery } from '../inspect/csds.ts';
import type { Result } from '../model/result.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';

/**
 * CSDS between the primary and its workers. A worker forwards a client's request to the primary, because the answer has
 * streams of all workers; the primary asks each worker for its own. The identity goes with it: each worker charges its account.
 * Answers stay bytes: decoding megabytes would block the process.
 */

type Answer = (query: ClientStatusQuery) => Awaitable<Result<EncodedStatus, GrpcStatus>>;

export const clientStatusBy =
  (answer: Answer) =>
  async ({ request, identity, maxBytes, whole }: Asked, { signal: gone }: Pick<HandlerContext, 'signal'>) => {
    const scope = identity === undefined ? ALL_CLIENTS : { kind: 'identity' as const, identity };
    const asked = fromBinary(ClientStatusRequestSchema, request);
    return { value: Buffer.concat(valueOf(await answer({ scope, request: asked, maxBytes, whole, gone }))) };
  };

export async function askClientStatus(
  process: Client<typeof WorkerService>,
  { scope, request, maxBytes, whole = false, gone }: ClientStatusQuery,
): Promise<EncodedStatus> {
  if (scope.kind === 'connection') throw new Error('only the process of the connection knows its streams');
  const { value } = await process.clientStatus(
    {
      request: toBinary(ClientStatusRequestSchema, request),
      ...(scope.kind === 'identity' ? { identity: scope.identity } : {}),
      maxBytes,
      whole,
    },
    gone === undefined ? {} : { signal: gone },
  );
  return value.length === 0 ? [] : [value];
}
