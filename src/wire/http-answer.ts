import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { Code, codeName, type GrpcStatus } from './grpc-status.ts';

/** A whole answer over HTTP. */
export interface HttpAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

const json = 'application/json';

/** The body of every refusal: what kind it is, and what is wrong. */
export function problem(
  status: number,
  code: string,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): HttpAnswer {
  return { status, type: json, body: `${JSON.stringify({ code, message })}\n`, headers };
}

/** HTTP's status for each refusal that a gRPC client would get; what is not here is a bug. */
const statuses: ReadonlyMap<Code, number> = new Map<Code, number>([
  [Code.INVALID_ARGUMENT, 400],
  [Code.UNAUTHENTICATED, 401],
  [Code.PERMISSION_DENIED, 403],
  [Code.NOT_FOUND, 404],
  [Code.UNIMPLEMENTED, 404],
  [Code.DEADLINE_EXCEEDED, 408],
  [Code.RESOURCE_EXHAUSTED, 429],
  [Code.UNAVAILABLE, 503],
]);

export const httpStatusOf = (code: Code): number => statuses.get(code) ?? 500;

/** Codes are written as Connect writes them. */
export function refusal(
  { code, message }: GrpcStatus,
  status = httpStatusOf(code),
  headers: Readonly<Record<string, string>> = status === 429 || status === 503 ? { 'retry-after': '1' } : {},
): HttpAnswer {
  return problem(status, codeName(code).toLowerCase(), message, headers);
}

/**
 * Why a request is refused, whatever it asks for. Left to itself, Node answers these before anybody sees them: then nobody
 * is charged, and nothing bounds how many are open.
 */
export function refusedHead({
  httpVersion,
  headers: { host, expect },
}: Pick<IncomingMessage, 'httpVersion' | 'headers'>): HttpAnswer | undefined {
  if (host === undefined && httpVersion === '1.1')
    return problem(400, 'invalid_argument', 'the Host header is missing');
  if (expect === undefined || /100-continue/i.test(expect)) return undefined;
  return problem(417, 'unimplemented', 'expect takes 100-continue, and nothing else');
}

/** Why a body is not read: it is compressed. */
export function compressed({
  'content-encoding': encoding = 'identity',
}: IncomingHttpHeaders): HttpAnswer | undefined {
  if (encoding === 'identity') return undefined;
  const message = `content-encoding ${encoding} is not supported here: send requests uncompressed`;
  return problem(415, 'unimplemented', message, { 'accept-encoding': 'identity' });
}

export function jsonAnswer(
  body: string | Buffer,
  headers: Readonly<Record<string, string>> = {},
): HttpAnswer {
  return { status: 200, type: json, body, headers };
}

/**
 * Over HTTP/1.1 the connection may end with the answer. Many clients send all of a body before they read: to them a
 * connection that ends meanwhile is an error without a status.
 */
export function endAfter(response: ServerResponse, body: string | Buffer): void {
  const { req: request } = response;
  if (request.complete) {
    response.end(body);
    return;
  }
  response.write(body);
  request.once('end', () => response.end());
}
