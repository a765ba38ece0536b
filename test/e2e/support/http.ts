import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';

export interface Answer {
  readonly status: number;
  readonly body: string;
}

/** A bound on hanging: a busy machine may take seconds. */
const timeout = 30_000;

/** One request on a connection of its own, so that nothing outlives it. */
export async function send(
  method: string,
  url: string,
  body = '',
  type = 'text/plain',
  more: Readonly<Record<string, string>> = {},
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = { 'content-length': Buffer.byteLength(body), 'content-type': type, ...more };
  request(url, { method, agent: false, timeout, headers })
    .on('timeout', function (this: ClientRequest) {
      this.destroy(new Error(`${method} ${url}: no answer for ${timeout} ms`));
    })
    .on('error', reject)
    .on('response', resolve)
    .end(body);
  const response = await promise;
  return { status: response.statusCode ?? 0, body: await text(response) };
}

export const get = (url: string): Promise<Answer> => send('GET', url);
