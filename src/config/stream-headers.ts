import { fail, ok, type Result } from '../model/result.ts';
import { VIA_HEADER } from '../wire/via.ts';

/** They are gRPC's, HTTP/2's or the relay's own. */
const reserved = new Set([
  'connection',
  'content-length',
  'content-type',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
  VIA_HEADER,
]);

/** A header of the streams to a control plane, in lower case. */
export function checkHeaderName(text: string): Result<string> {
  const name = text.toLowerCase();
  if (reserved.has(name) || name.startsWith('grpc-'))
    return fail(`the header ${JSON.stringify(name)} is set by gRPC or by the relay: leave it out`);
  if (/^[a-z0-9_.-]+$/.test(name) && !name.endsWith('-bin')) return ok(name);
  return fail(
    `${JSON.stringify(text)} is not a header: use letters, digits, "-", "_" and ".", without "-bin" at the end`,
  );
}

/** The error does not repeat the value, which may be a secret. */
export function checkHeaderValue(value: string): Result<string> {
  return /^[\x20-\x7e]+$/.test(value) && value.trim() === value
    ? ok(value)
    : fail('the value of a header must be visible ASCII, without spaces at its ends');
}
