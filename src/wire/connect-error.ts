import { Code, ConnectError } from '@connectrpc/connect';
import type { GrpcStatus } from './grpc-status.ts';

/** Connect's codes are gRPC's, so the number is the same. */
const codes: ReadonlyMap<number, Code> = new Map(
  Object.values(Code)
    .filter((code) => typeof code === 'number')
    .map((code) => [code, code]),
);

/** A refusal of ours as connect-node wants it thrown. */
export function rpcError({ code, message }: GrpcStatus): ConnectError {
  return new ConnectError(message, codes.get(code) ?? Code.Unknown);
}
