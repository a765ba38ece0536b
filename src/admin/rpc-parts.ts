import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext } from '@connectrpc/connect';
import type { TypeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import { typeByName, unknownType } from '../model/types.ts';
import { rpcError } from '../wire/connect.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Long } from './answers.ts';
import type { Awaitable } from './ports.ts';

/**
 * Runs a method and writes its answer, within what an answer may have (answers.ts). What it throws by mistake is logged
 * and answered with INTERNAL.
 */
export type Answer = <Desc extends DescMessage>(
  desc: Desc,
  context: HandlerContext,
  run: () => Awaitable<Long<Desc>>,
) => Promise<MessageShape<Desc>>;

/** By a short name or a type URL. */
export function typeNamed(text: string): TypeUrl {
  const url = typeByName(text);
  if (url !== undefined) return url;
  throw new ConnectError(text === '' ? 'type is missing' : unknownType(text), Code.InvalidArgument);
}

/** Empty: every type. */
export function optionalType(text: string): TypeUrl | undefined {
  return text === '' ? undefined : typeNamed(text);
}

export function valueOf<T>(result: Result<T, GrpcStatus>): T {
  if (result.ok) return result.value;
  throw rpcError(result.error);
}
