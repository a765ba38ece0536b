import { Metadata } from '@grpc/grpc-js';
import { ok, type Result } from '../../model/result.ts';
import { readToken } from '../../wire/token-file.ts';
import { VIA_HEADER } from '../../wire/via.ts';

/** What streams to a control plane carry in their headers. */
export interface StreamHeaders {
  /** Name and value; undefined: none. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  /** Path of a file with a token, read for each stream: a token lives for minutes, a connection for months. */
  readonly tokenFile?: string | undefined;
}

/** The headers of a stream that is opened now. The error says why there is no token. */
export function streamMetadata({ headers = [], tokenFile }: StreamHeaders, via: string): Result<Metadata> {
  const metadata = new Metadata();
  for (const [name, value] of headers) metadata.set(name, value);
  if (tokenFile !== undefined) {
    const token = readToken(tokenFile);
    if (!token.ok) return token;
    metadata.set('authorization', `Bearer ${token.value}`);
  }
  if (via !== '') metadata.set(VIA_HEADER, via);
  return ok(metadata);
}
