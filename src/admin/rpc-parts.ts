import { Code, ConnectError } from '@connectrpc/connect';
import type { TypeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import { knownTypes, typeByName } from '../model/types.ts';
import { rpcError } from '../wire/connect-error.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import type { Awaitable } from './ports.ts';

/** Runs a method; what it throws by mistake is logged and answered with INTERNAL. */
export type Answer = <T>(run: () => Awaitable<T>) => Promise<T>;

/** An answer has so many bytes, as JSON: what a list has beyond that is asked for again, from where it ended. */
const maxListBytes = 8 << 20;

/** The first of them, as many as an answer holds, and one at the least. */
export function withinAnswer<T>(list: readonly T[]): T[] {
  let bytes = 0;
  const end = list.findIndex((one, index) => {
    bytes += Buffer.byteLength(JSON.stringify(one, plainNumbers));
    return bytes > maxListBytes && index > 0;
  });
  return list.slice(0, end < 0 ? undefined : end);
}

const plainNumbers = (_key: string, value: unknown): unknown =>
  typeof value === 'bigint' ? value.toString() : value;

/** By a short name or a type URL. */
export function typeNamed(text: string): TypeUrl {
  const url = typeByName(text);
  if (url !== undefined) return url;
  const accepted = knownTypes.map(({ short }) => short).join(', ');
  const problem = text === '' ? 'type is missing' : `unknown type ${JSON.stringify(text)}`;
  throw new ConnectError(`${problem}: accepted are ${accepted}, or a type URL`, Code.InvalidArgument);
}

/** Empty: every type. */
export function optionalType(text: string): TypeUrl | undefined {
  return text === '' ? undefined : typeNamed(text);
}

export function valueOf<T>(result: Result<T, GrpcStatus>): T {
  if (result.ok) return result.value;
  throw rpcError(result.error);
}
