import { type Client, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { errorCode, explainError } from '../wire/node-error.ts';

export const defaultAdmin = 'http://127.0.0.1:19000';

/** As the admin listener itself writes JSON. */
export const jsonOptions = { alwaysEmitImplicit: true, useProtoFieldName: true };

/** Milliseconds. */
const patience = 10_000;

export interface AdminClient {
  readonly url: string;
  readonly rpc: Client<typeof AdminService>;
}

/** For `--admin URL`; the error is about the URL. */
export function adminClient(url: string): Result<AdminClient> {
  const parsed = URL.parse(url);
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol)) {
    return fail(
      `--admin ${JSON.stringify(url)} is not a URL: accepted is http://HOST:PORT, as in ${defaultAdmin}`,
    );
  }
  const transport = createConnectTransport({
    baseUrl: url.replace(/\/+$/, ''),
    httpVersion: '1.1',
    defaultTimeoutMs: patience,
    // Its connection must not keep the command alive.
    nodeOptions: { agent: false },
  });
  return ok({ url, rpc: createClient(AdminService, transport) });
}

/** One line for people: what the relay refused, or why it was not reached. */
export function explainFailure(client: AdminClient, error: unknown): string {
  const { cause, rawMessage } = ConnectError.from(error);
  return errorCode(cause) === undefined
    ? `${client.url}: ${rawMessage}`
    : `cannot reach the relay's admin listener at ${client.url}: ${explainError(cause)}`;
}
