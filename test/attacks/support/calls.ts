import type { ClientHttp2Session, ClientHttp2Stream, IncomingHttpHeaders } from 'node:http2';
import type { RawCall } from '../../support/grpc-calls.ts';

/** A gRPC call of which the attack writes the bytes; nothing of the answer is kept. */
export function rawCall(
  session: ClientHttp2Session,
  path: string,
  more: Readonly<Record<string, string>> = {},
): { readonly stream: ClientHttp2Stream; readonly ended: Promise<string> } {
  const headers = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' };
  const stream = session.request({ ...headers, ...more });
  let status = 'closed';
  const note = (fields: IncomingHttpHeaders): void => {
    status = String(fields['grpc-status'] ?? status);
  };
  stream.on('response', note);
  stream.on('trailers', note);
  stream.on('error', () => undefined);
  stream.resume();
  const ended = new Promise<string>((resolve) => stream.once('close', () => resolve(status)));
  return { stream, ended };
}

/** Everything that a call was sent until it ended, and its status code. */
export async function answerOf(call: RawCall): Promise<{ readonly code: number; readonly bytes: Buffer }> {
  const chunks: Buffer[] = [];
  call.on('data', (bytes: Buffer) => chunks.push(bytes));
  const code = await new Promise<number>((resolve) => call.once('status', (status) => resolve(status.code)));
  return { code, bytes: Buffer.concat(chunks) };
}
