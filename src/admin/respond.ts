import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpAnswer } from '../wire/http-answer.ts';

/* Whole answers of the plain HTTP routes. */

export function json(
  value: unknown,
  status = 200,
  headers: Readonly<Record<string, string>> = {},
): HttpAnswer {
  return { status, type: 'application/json', body: `${JSON.stringify(value, null, 2)}\n`, headers };
}

/** HTTP statuses with the names of the codes that Connect uses in its bodies. */
export function problem(
  status: number,
  code: string,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): HttpAnswer {
  return json({ code, message }, status, headers);
}

/** `head`: without the body, as HEAD asks. */
export function respond(response: ServerResponse, answer: HttpAnswer, head: boolean): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  response.writeHead(answer.status, {
    'content-type': answer.type,
    'content-length': Buffer.byteLength(answer.body),
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...(bodyComes(response.req) ? { connection: 'close' } : {}),
    ...answer.headers,
  });
  response.end(head ? undefined : answer.body);
}

/** What nobody asked for is not read to its end. */
const bodyComes = ({ complete, headers }: IncomingMessage): boolean =>
  !complete && (headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0);
