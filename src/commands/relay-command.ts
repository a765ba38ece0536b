import { readFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { type JsonValue, type Message, toJson } from '@bufbuild/protobuf';
import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import type { Environment } from '../config/document.ts';
import { AdminService } from '../gen/distributary/admin/v1/admin_pb.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { printable, withoutUserinfo } from '../model/text.ts';
import { type View } from '../observe/text-table.ts';
import { errorCode, explainError } from '../wire/node-error.ts';
import {
  type Command,
  commandWith,
  type Definition,
  type Flags,
  toggle,
  UsageError,
  type ValuesOf,
} from './command.ts';
import { flagNames, isHttps, type Place, type RelayFlags, relayFlags, relayOf } from './context.ts';
import { outputFlags, outputOf, type Shown, written } from './output.ts';
import { firstSignal, type Terminal, viewOf } from './terminal.ts';

/** Milliseconds. */
const rpcTimeoutMs = 10_000;
/** How often --watch asks, in milliseconds. */
const intervalMs = 2000;

export interface AdminClient {
  readonly url: string;
  readonly rpc: Client<typeof AdminService>;
  /** It is over TLS, and shows no certificate. */
  readonly anonymous: boolean;
}

const watchFlags = { watch: toggle(`repeat every ${intervalMs / 1000} s until Ctrl-C`) } as const;

/** What a command has to say. */
export interface Answer extends Shown {
  /** It is not as it was asked for: why, and exit 1. */
  readonly problem?: ((view: View) => string) | undefined;
  /** It was done, and this must be known. */
  readonly warning?: string | undefined;
  /** Another exit code. */
  readonly code?: number;
}

/** By the names of their messages. */
const outputs = new Map(AdminService.methods.map(({ output }) => [output.typeName, output]));

/** An answer of AdminService as JSON, as the admin listener itself writes it. */
export function messageJson(message: Message): JsonValue {
  const schema = outputs.get(message.$typeName);
  if (schema === undefined) throw new Error(`AdminService does not answer with ${message.$typeName}`);
  return toJson(schema, message, { alwaysEmitImplicit: true, useProtoFieldName: true });
}

export const answer = (
  message: Message & { readonly warning?: string | undefined },
  text: Answer['text'],
  problem?: Answer['problem'],
): Answer => ({ json: () => messageJson(message), text, problem, warning: message.warning });

/**
 * The whole of a list, which one answer may not hold: asks on where `next` says that the next part begins, until that is 0.
 * `listed`: how many rows there are already.
 */
export async function everyPart<
  List extends string,
  Next extends string,
  Part extends Record<List, unknown[]> & Record<Next, number>,
>(list: List, next: Next, ask: (from: number, listed: number) => Promise<Part>): Promise<Part> {
  const whole = await ask(0, 0);
  for (let from: number = whole[next]; from > 0; ) {
    const part = await ask(from, whole[list].length);
    whole[list].push(...part[list]);
    from = part[next];
  }
  return Object.assign(whole, { [next]: 0 });
}

interface Question<Declared extends Flags> extends Omit<Definition<Declared>, 'run'> {
  /** It has --watch. */
  readonly watch?: true;
  /** Where the relay cannot be asked: what is said on stdout, with -o json or yaml on stderr, and the exit code. Left out: a line on stderr, and 1. */
  readonly unanswered?: (
    values: ValuesOf<Declared>,
    why: string,
  ) => readonly [text: string, code: number] | undefined;
  /** What does not go together is refused before the relay is asked. */
  readonly ask: (
    values: ValuesOf<Declared>,
    operands: readonly string[],
  ) => UsageError | ((client: AdminClient, say: (line: string) => void) => Promise<Answer>);
}

/** A command that asks a relay once, or with --watch over and over. */
export function relayCommand<const Declared extends Flags>(question: Question<Declared>): Command {
  const { ask, unanswered, watch: watches, ...about } = question;
  const flags = { ...outputFlags, ...relayFlags };
  return commandWith(watches === true ? { ...watchFlags, ...flags } : flags, {
    ...about,
    run: (values, { terminal, operands, shared }) => {
      const asked = ask(values, operands);
      if (asked instanceof UsageError) return asked;
      const format = outputOf(shared);
      if (format instanceof UsageError) return format;
      const otherwise = (why: string): number | undefined => {
        const [said, code] = unanswered?.(values, why) ?? [];
        if (said === undefined) return code;
        // Whoever reads data finds none on stdout then.
        if (format === undefined || format === 'wide') terminal.out(`${said}\n`);
        else terminal.err(`${said}\n`);
        return code;
      };
      const run = async (client: AdminClient): Promise<number> => {
        // What is said meanwhile is for people, not for who reads the answer.
        const say = (line: string): void => terminal.err(`${printable(line)}\n`);
        if ('watch' in shared && shared.watch) {
          const read = async () => written(await asked(client, say), format, terminal, 0);
          return watch(terminal, read, (error) => refusal(client, error));
        }
        const said = await asked(client, say);
        if (said.problem !== undefined)
          terminal.err(`${said.problem(viewOf(terminal, format === 'wide'))}\n`);
        if (said.warning !== undefined) terminal.err(`${printable(said.warning)}\n`);
        const shown = await written(said, format, terminal, 2);
        if (shown !== '') terminal.out(`${shown}\n`);
        return said.code ?? (said.problem === undefined ? 0 : 1);
      };
      return withRelay(relayClient(shared, terminal.environment), terminal, run, otherwise);
    },
  });
}

/** The error is about what was given. */
export function relayClient(
  flags: RelayFlags,
  environment: Environment,
  names = flagNames,
): Result<AdminClient> {
  const place = relayOf(flags, environment, names);
  return place.ok ? adminClient(place.value) : place;
}

/** Asks a relay. What it refuses is one line on stderr, and exit 1, unless `otherwise` has said it and knows the exit code. */
export function withRelay(
  client: Result<AdminClient>,
  terminal: Terminal,
  run: (client: AdminClient) => Promise<number>,
  otherwise: (why: string) => number | undefined = () => undefined,
): UsageError | Promise<number | UsageError> {
  if (!client.ok) {
    const code = otherwise(client.error);
    return code === undefined ? new UsageError(client.error) : Promise.resolve(code);
  }
  return run(client.value).catch((error: unknown) => {
    const why = refusal(client.value, error);
    const code = otherwise(why);
    if (code === undefined) terminal.err(`${why}\n`);
    return code ?? 1;
  });
}

function refusal(client: AdminClient, error: unknown): string {
  const notFound = error instanceof ConnectError && error.code === Code.NotFound;
  return printable(notFound ? error.rawMessage : explainFailure(client, error));
}

/** The error: a file cannot be read. */
export function adminClient(place: Place): Result<AdminClient> {
  const { admin: url, cert } = place;
  const files = readPemFiles(place);
  if (!files.ok) return files;
  const transport = createConnectTransport({
    baseUrl: url.replace(/\/+$/, ''),
    httpVersion: '1.1',
    defaultTimeoutMs: rpcTimeoutMs,
    // Its connection must not keep the command alive.
    nodeOptions: { agent: false, ...files.value },
  });
  const anonymous = isHttps(url) && cert === '';
  return ok({ url: withoutUserinfo(url), anonymous, rpc: createClient(AdminService, transport) });
}

type PemFlag = 'cert' | 'key' | 'ca';

/** The content of the files that are named, by flag. */
export function readPemFiles(
  given: Pick<Place, PemFlag | 'names'>,
): Result<Partial<Record<PemFlag, Buffer>>> {
  const files: Partial<Record<PemFlag, Buffer>> = {};
  for (const flag of ['cert', 'key', 'ca'] as const) {
    if (given[flag] === '') continue;
    try {
      files[flag] = readFileSync(given[flag]);
    } catch (error) {
      return fail(`${given.names[flag]} ${given[flag]} cannot be read: ${explainError(error)}`);
    }
  }
  return ok(files);
}

const give = 'give --cert and --key';
/** What a command without a certificate sees of a listener that requires one: the TLS alert, or the end if that is read first. */
const hints: ReadonlyMap<string, string> = new Map([
  ['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', `; ${give}`],
  ['ECONNRESET', `; if it requires a client certificate, ${give}`],
  ['EPIPE', `; if it requires a client certificate, ${give}`],
]);

/** One line for people: what the relay refused, or why it was not reached. */
function explainFailure({ url, anonymous }: AdminClient, error: unknown): string {
  const { cause, rawMessage } = ConnectError.from(error);
  const code = errorCode(cause);
  if (code === undefined) return `${url}: ${rawMessage}`;
  const hint = anonymous ? (hints.get(code) ?? '') : '';
  return `cannot reach the relay's admin listener at ${url}: ${explainError(cause)}${hint}`;
}

/** Moves the cursor home and clears the screen. */
const clear = '\u001B[H\u001B[2J';

/**
 * Shows what `read` gives whenever it has changed, until Ctrl-C: on a terminal what fits, after clearing it. The first failure
 * is the caller's; later ones are shown, because the relay may come back.
 */
async function watch(
  { out, screen }: Terminal,
  read: () => Promise<string>,
  explain: (error: unknown) => string,
): Promise<0> {
  const interrupted = firstSignal('SIGINT', 'SIGTERM');
  const { signal } = interrupted;
  try {
    let shown = '';
    for (let text = await read(); !signal.aborted; ) {
      const fitting = text.split('\n').slice(0, screen && Math.max(1, screen.rows() - 1));
      if (text !== shown) out(`${screen === undefined ? '' : clear}${fitting.join('\n')}\n`);
      shown = text;
      await wait(intervalMs, undefined, { signal }).catch(() => {});
      if (!signal.aborted) text = await read().catch(explain);
    }
    return 0;
  } finally {
    interrupted.release();
  }
}
