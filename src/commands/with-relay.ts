import { Code, ConnectError } from '@connectrpc/connect';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { knownTypes, typeByName, typeMeant } from '../model/types.ts';
import { type AdminClient, type AdminFlags, adminClient, explainFailure } from './admin-client.ts';
import { refuse, type Terminal, UsageError } from './usage.ts';
import { watch } from './watch.ts';

export const shortTypes = knownTypes.map(({ short }) => short).join(' ');

/** Asks a relay. What it refuses is one line on stderr, and exit 1. */
export async function withRelay(
  flags: AdminFlags,
  usage: string,
  terminal: Terminal,
  run: (client: AdminClient) => Promise<number>,
): Promise<number> {
  const client = adminClient(flags);
  if (!client.ok) return refuse(new UsageError(client.error, usage), terminal);
  try {
    return await run(client.value);
  } catch (error) {
    terminal.err(`${refusal(client.value, error)}\n`);
    return 1;
  }
}

/** Shows what a relay answers: once, or with --watch over and over. */
export function showRelay(
  flags: AdminFlags & { readonly watch?: boolean | undefined },
  usage: string,
  terminal: Terminal,
  read: (client: AdminClient) => Promise<string>,
): Promise<number> {
  return withRelay(flags, usage, terminal, async (client) => {
    if (flags.watch === true) {
      return watch(
        terminal,
        () => read(client),
        (error) => refusal(client, error),
      );
    }
    terminal.out(`${await read(client)}\n`);
    return 0;
  });
}

function refusal(client: AdminClient, error: unknown): string {
  const notFound = error instanceof ConnectError && error.code === Code.NotFound;
  return printable(notFound ? error.rawMessage : explainFailure(client, error));
}

/** The value of --type; empty: it is not given. */
export function readType(type: string | undefined): Result<string> {
  if (type === undefined) return ok('');
  if (typeByName(type) !== undefined) return ok(type);
  const meant = typeMeant(type);
  const hint = meant === undefined ? `accepted are ${shortTypes}, or a type URL` : `did you mean ${meant}?`;
  return fail(`unknown --type ${JSON.stringify(type)}: ${hint}`);
}

/** A positive integer; `otherwise` where it is not given. */
export function readCount(flag: string, text: string | undefined, otherwise: number): Result<number> {
  if (text === undefined) return ok(otherwise);
  const value = Number(text);
  if (/^[0-9]+$/.test(text) && value >= 1 && value < 2 ** 32) return ok(value);
  return fail(`${flag} ${JSON.stringify(text)} is not accepted: a whole number from 1 is`);
}
