import { EmptySchema } from '@bufbuild/protobuf/wkt';
import {
  type ConnectRouter,
  decodeBinaryHeader,
  encodeBinaryHeader,
  type Transport,
} from '@connectrpc/connect';
import { valueOf } from '../admin/requests.ts';
import type { Awaitable } from '../admin/service.ts';
import { ClientStatusDiscoveryService } from '../gen/envoy/service/status/v3/csds_pb.ts';
import { ALL_CLIENTS, type ClientStatusQuery, type StatusScope } from '../inspect/csds.ts';
import type { Result } from '../model/result.ts';
import { type EncodedStatus, encodedResponse } from '../wire/client-status.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';

/**
 * CSDS between the primary and its workers. Headers carry what the request has no field for: whose streams are meant, and
 * how large the answer may be. A worker forwards a client's request to the primary, because the answer has streams of all
 * workers; the primary asks each worker for its own.
 */

/** The identity whose streams are meant; left out: all clients. In base64, as it may have any characters. */
const identityHeader = 'distributary-identity-bin';
/** Bodies are to be compared, so they are whole. */
const wholeHeader = 'distributary-whole';
/** Of the answer. */
const maxBytesHeader = 'distributary-max-bytes';

const { fetchClientStatus: fetchMethod } = ClientStatusDiscoveryService.method;

type Answer = (query: ClientStatusQuery) => Awaitable<Result<EncodedStatus, GrpcStatus>>;

export function clientStatusRoutes(answer: Answer): (router: ConnectRouter) => void {
  return (router) => {
    router.rpc(fetchMethod, async (request, { requestHeader }) => {
      const maxBytes = Number(requestHeader.get(maxBytesHeader) ?? '0');
      const whole = requestHeader.has(wholeHeader);
      const query = { scope: scopeOf(requestHeader), request, maxBytes, whole };
      return encodedResponse(valueOf(await answer(query)));
    });
  };
}

/** Without fields, everything of the answer is unknown and stays bytes: decoding megabytes would block the process. */
const undecoded = { ...fetchMethod, output: EmptySchema };
/** ClientStatusResponse.config. */
const configTag = Buffer.from([(1 << 3) | 2]);

export async function fetchClientStatus(
  transport: Transport,
  { scope, request, maxBytes, whole = false }: ClientStatusQuery,
): Promise<EncodedStatus> {
  const headers = {
    [maxBytesHeader]: String(maxBytes),
    ...(whole ? { [wholeHeader]: '1' } : {}),
    ...scopeHeader(scope),
  };
  const { message } = await transport.unary(undecoded, undefined, undefined, headers, request);
  const configs = message.$unknown ?? [];
  return configs.length === 0 ? [] : [Buffer.concat(configs.flatMap(({ data }) => [configTag, data]))];
}

function scopeHeader(scope: StatusScope): Readonly<Record<string, string>> {
  switch (scope.kind) {
    case 'all':
      return {};
    case 'identity':
      return { [identityHeader]: encodeBinaryHeader(Buffer.from(scope.identity)) };
    case 'connection':
      throw new Error('only the process of the connection knows its streams');
    default:
      return scope satisfies never;
  }
}

function scopeOf(headers: Headers): StatusScope {
  const identity = headers.get(identityHeader);
  if (identity === null) return ALL_CLIENTS;
  return { kind: 'identity', identity: Buffer.from(decodeBinaryHeader(identity)).toString() };
}
