import { readFileSync } from 'node:fs';
import { type Client, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { errorCode, explainError } from '../wire/node-error.ts';

const defaultAdmin = 'http://127.0.0.1:19000';

/** Milliseconds. */
const rpcTimeoutMs = 10_000;

export interface AdminClient {
  readonly url: string;
  readonly rpc: Client<typeof AdminService>;
  /** It is over TLS, and shows no certificate. */
  readonly anonymous: boolean;
}

/** Of every command that asks a relay, for node:util parseArgs. */
export const adminOptions = {
  admin: { type: 'string', default: defaultAdmin },
  cert: { type: 'string' },
  key: { type: 'string' },
  ca: { type: 'string' },
} as const;

export interface AdminFlags {
  readonly admin: string;
  /** Paths of PEM files. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly ca?: string | undefined;
}

/** How the commands' usages tell of these; `width` is that of the column of flags. */
export function adminUsage(width: number): string {
  const line = `  ${'--admin URL'.padEnd(width)}the relay's admin listener; default ${defaultAdmin}`;
  return `${line}\n${certificateUsage(width)}`;
}

export function certificateUsage(width: number): string {
  const lines = [
    ['--cert F', 'PEM file of a client certificate, where the listener asks for one'],
    ['--key F', 'PEM file of its key'],
    [
      '--ca F',
      "PEM file of the authorities of the listener's certificate; default: those that come with Node",
    ],
  ] as const;
  return lines.map(([flag, meaning]) => `  ${flag.padEnd(width)}${meaning}`).join('\n');
}

/** The error is about the flags. */
export function adminClient({ admin: url, cert, key, ca }: AdminFlags): Result<AdminClient> {
  const parsed = URL.parse(url);
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol)) {
    return fail(
      `--admin ${JSON.stringify(url)} is not a URL: accepted is http://HOST:PORT or https://HOST:PORT, as in ${defaultAdmin}`,
    );
  }
  const given = cert !== undefined || key !== undefined || ca !== undefined;
  if (given && parsed.protocol === 'http:')
    return fail(`--cert, --key and --ca are for https://, not ${url}`);
  if ((cert === undefined) !== (key === undefined)) {
    return fail(`--cert and --key belong together: --${cert === undefined ? 'cert' : 'key'} is missing`);
  }
  const files = new Map<'cert' | 'key' | 'ca', Buffer>();
  for (const [flag, path] of [
    ['cert', cert],
    ['key', key],
    ['ca', ca],
  ] as const) {
    if (path === undefined) continue;
    const content = read(path);
    if (!content.ok) return fail(`--${flag} ${path} cannot be read: ${content.error}`);
    files.set(flag, content.value);
  }
  const transport = createConnectTransport({
    baseUrl: url.replace(/\/+$/, ''),
    httpVersion: '1.1',
    defaultTimeoutMs: rpcTimeoutMs,
    // Its connection must not keep the command alive.
    nodeOptions: { agent: false, ...Object.fromEntries(files) },
  });
  const anonymous = parsed.protocol === 'https:' && cert === undefined;
  return ok({ url, anonymous, rpc: createClient(AdminService, transport) });
}

function read(path: string): Result<Buffer> {
  try {
    return ok(readFileSync(path));
  } catch (error) {
    return fail(explainError(error));
  }
}

/** What a command sees of a listener that wants a certificate, if the connection is gone before the TLS alert is read. */
const endsOfConnections: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/** One line for people: what the relay refused, or why it was not reached. */
export function explainFailure({ url, anonymous }: AdminClient, error: unknown): string {
  const { cause, rawMessage } = ConnectError.from(error);
  const code = errorCode(cause);
  if (code === undefined) return `${url}: ${rawMessage}`;
  const hint =
    anonymous && endsOfConnections.has(code)
      ? '; if it wants a client certificate, give --cert and --key'
      : '';
  return `cannot reach the relay's admin listener at ${url}: ${explainError(cause)}${hint}`;
}
