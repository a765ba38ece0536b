import { type IncomingMessage, request as plainRequest, type RequestOptions } from 'node:http';
import { request as tlsRequest } from 'node:https';
import type { Clock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { redacted } from '../model/text.ts';
import { readTlsFiles } from '../security/tls-files.ts';
import { readToken } from '../wire/named-file.ts';
import { explainError } from '../wire/node-error.ts';
import { secureContextOptions } from '../wire/tls-material.ts';

/** Who is asked, as configured. */
export interface WebPeer {
  /** http:// or https://. */
  readonly url: string;
  /** A file whose token is sent as `authorization: Bearer …`; read for each request. */
  readonly tokenFile?: string | undefined;
  /** Paths of PEM files, read for each request; undefined: the authorities that come with Node. */
  readonly tls?:
    | {
        readonly ca?: string | undefined;
        readonly identity?: { readonly certificate: string; readonly privateKey: string } | undefined;
        readonly serverName?: string | undefined;
      }
    | undefined;
}

export interface WebRequest {
  readonly url: URL;
  readonly method: 'GET' | 'POST';
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** JSON. */
  readonly body?: string | undefined;
  /** False: the status says it all, and the body is not read. */
  readonly readsBody: boolean;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** The process may end while it waits for the answer. */
  readonly isUnref: boolean;
}

export interface WebAnswer {
  readonly status: number;
  /** Text; empty if it is not read. */
  readonly body: string;
  /** A text in it without the token, if the other end repeats it. */
  readonly redact: (text: string) => string;
}

/** A larger body is refused: one sample is short, and reading holds others up. Bytes. */
const maxBodyBytes = 64 * 1024;

/**
 * One HTTP request, on a connection of its own. No redirect is followed. The time is for all of it: files, name,
 * connection, headers and body. The error says why there is no answer, and has neither the token nor the URL, which may be a secret.
 */
export function askWeb(peer: WebPeer, request: WebRequest): Promise<Result<WebAnswer>> {
  const { clock, timeoutMs } = request;
  const over = new AbortController();
  const { promise, resolve } = Promise.withResolvers<Result<WebAnswer>>();
  const timer = clock.after(timeoutMs, () => {
    resolve(fail(`no answer within the timeout of ${timeoutMs / 1000} s`));
    over.abort();
  });
  void exchange(peer, request, over.signal)
    .catch((error: unknown) => fail(explainError(error)))
    .then(resolve);
  return promise.finally(() => {
    timer.cancel();
    over.abort();
  });
}

async function exchange(
  { tokenFile, tls }: WebPeer,
  { url, method, headers, body, readsBody, isUnref }: WebRequest,
  signal: AbortSignal,
): Promise<Result<WebAnswer>> {
  const token = tokenFile === undefined ? undefined : readToken(tokenFile);
  if (token?.ok === false) return fail(`token_file ${token.error}`);
  const isTls = url.protocol === 'https:';
  const material = isTls ? await readTlsFiles({ ...fileOf(tls?.ca), ...tls?.identity }) : ok({});
  if (!material.ok) return fail(`tls.${material.error}`);
  if (signal.aborted) return fail('aborted');
  const options: RequestOptions = {
    method,
    signal,
    agent: false,
    headers: {
      ...headers,
      accept: 'application/json',
      ...(body === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token.value}` }),
    },
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const name = tls?.serverName === undefined ? {} : { servername: tls.serverName };
    const sent = isTls
      ? tlsRequest(url, { ...options, ...secureContextOptions(material.value), ...name })
      : plainRequest(url, options);
    if (isUnref) sent.on('socket', (socket) => void socket.unref());
    sent.on('response', resolve).on('error', reject).end(body);
  });
  const { statusCode: status = 0 } = response;
  const redact = (text: string): string =>
    token === undefined ? text : text.replaceAll(token.value, redacted);
  if (!readsBody) {
    response.on('error', () => undefined).destroy();
    return ok({ status, body: '', redact });
  }
  const text = await bodyOf(response);
  if (!text.ok) return text;
  return ok({ status, body: text.value, redact });
}

async function bodyOf(response: IncomingMessage): Promise<Result<string>> {
  const chunks: Buffer[] = [];
  let size = 0;
  const parts: AsyncIterable<Buffer> = response;
  for await (const bytes of parts) {
    size += bytes.length;
    if (size > maxBodyBytes) return fail(`the answer has more than ${maxBodyBytes} bytes`);
    chunks.push(bytes);
  }
  return ok(Buffer.concat(chunks).toString());
}

const fileOf = (ca: string | undefined) => (ca === undefined ? {} : { ca });
