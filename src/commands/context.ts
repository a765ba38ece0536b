import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { z } from 'zod';
import type { Environment } from '../config/environment.ts';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError } from '../wire/node-error.ts';
import { defineCommand, type Flag, file, text, UsageError, type ValuesOf } from './command.ts';
import { textTable, viewOf } from './terminal.ts';

// Which relay a command asks: by its flags, else by the environment, else by the context in use, else the one of this
// machine.

const section = 'RELAY';
const variables = {
  admin: 'DISTRIBUTARY_ADMIN',
  cert: 'DISTRIBUTARY_CERT',
  key: 'DISTRIBUTARY_KEY',
  ca: 'DISTRIBUTARY_CA',
} as const;

export const defaultAdmin = 'http://127.0.0.1:19000';

export const certificateFlags = {
  cert: file('F', 'PEM file of a client certificate, where the listener asks for one'),
  key: file('F', 'PEM file of its key'),
  ca: file(
    'F',
    "PEM file of the authorities of the listener's certificate; default: those that come with Node",
  ),
} as const;

const inSection = (flag: Flag<string>, variable: string): Flag<string> => ({
  ...flag,
  says: `${flag.says} (${variable})`,
  section,
});

/** Of every command that asks a relay. */
export const relayFlags = {
  admin: inSection(
    text('URL', `the relay's admin listener; default: the context's, else ${defaultAdmin}`),
    variables.admin,
  ),
  cert: inSection(certificateFlags.cert, variables.cert),
  key: inSection(certificateFlags.key, variables.key),
  ca: inSection(certificateFlags.ca, variables.ca),
} as const;

/** Where to ask; empty: not said. */
export type RelayFlags = ValuesOf<typeof relayFlags>;

const contextSchema = z.object({
  admin: z.string(),
  cert: z.string().default(''),
  key: z.string().default(''),
  ca: z.string().default(''),
});
const contextsSchema = z.object({ current: z.string(), contexts: z.record(z.string(), contextSchema) });
type Contexts = z.infer<typeof contextsSchema>;

/**
 * The flags, and what they leave out. A certificate and its key come from one place; those of a context are for its own
 * URL, and those of the environment for https only.
 */
export function relayOf(flags: RelayFlags, environment: Environment): Result<RelayFlags> {
  const set = Object.fromEntries(
    Object.entries(variables).map(([flag, variable]) => [flag, environment[variable] ?? '']),
  );
  const { admin = '', cert = '', key = '', ca = '' } = set;
  const kept: Result<Contexts> =
    flags.admin === '' && admin === '' ? readContexts(environment) : ok({ current: '', contexts: {} });
  if (!kept.ok) return kept;
  const context = kept.value.contexts[kept.value.current];
  const url = flags.admin || admin || context?.admin || defaultAdmin;
  if (!url.startsWith('https:')) return ok({ ...flags, admin: url });
  const pairs = [flags, { cert, key }, context].filter((one) => one !== undefined);
  const pair = pairs.find((one) => one.cert !== '' || one.key !== '');
  return ok({
    admin: url,
    cert: pair?.cert ?? '',
    key: pair?.key ?? '',
    ca: flags.ca || ca || (context?.ca ?? ''),
  });
}

const pathOf = ({ XDG_CONFIG_HOME: home, HOME: user }: Environment): string =>
  join(home || join(user || homedir(), '.config'), 'distributary', 'contexts.json');

function readContexts(environment: Environment): Result<Contexts> {
  const path = pathOf(environment);
  try {
    const parsed: unknown = JSON.parse(readFileSync(path, 'utf8'));
    const read = contextsSchema.safeParse(parsed);
    return read.success ? ok(read.data) : fail(`${path} has no contexts: remove it, and add them again`);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      return ok({ current: '', contexts: {} });
    }
    return fail(`${path} cannot be read: ${explainError(error)}`);
  }
}

export const context = defineCommand({
  name: 'context',
  does: 'which relay the commands ask: add NAME, use NAME, list',
  about: `Names the relays that commands ask. The first that is added is used; use names another one. Flags win over the
environment, and the environment wins over the context.

  distributary context add prod --admin https://relay.example:19000 --ca ca.pem
  distributary context use prod
  distributary context list`,
  usage: '(add NAME --admin URL [--cert F --key F] [--ca F] | use NAME | list)',
  operands: { most: 2, words: ['add', 'use', 'list'] },
  flags: relayFlags,
  exit: '0; 1 if the file of contexts cannot be read or written.',
  run: (flags, { terminal, operands: [verb = '', name] }) => {
    const { environment, err, out } = terminal;
    const problem = problemOf(flags, verb, name);
    if (problem !== undefined) return new UsageError(problem);
    const read = readContexts(environment);
    if (!read.ok) {
      err(`${printable(read.error)}\n`);
      return Promise.resolve(1);
    }
    const { current, contexts } = read.value;
    if (name === undefined) {
      const rows = Object.entries(contexts).map(([one, { admin }]) => [
        one === current ? '*' : '',
        one,
        admin,
      ]);
      out(
        rows.length === 0
          ? `no context: commands ask ${defaultAdmin}\n`
          : `${textTable(['', 'CONTEXT', 'ADMIN'], rows, viewOf(terminal, false))}\n`,
      );
      return Promise.resolve(0);
    }
    if (verb === 'use' && contexts[name] === undefined) {
      const known = Object.keys(contexts).join(', ') || 'none: add one';
      return new UsageError(`there is no context ${JSON.stringify(name)}: there are ${known}`);
    }
    const added = { admin: flags.admin, cert: whole(flags.cert), key: whole(flags.key), ca: whole(flags.ca) };
    const used = verb === 'use' || current === '' ? name : current;
    const failed = write(pathOf(environment), {
      current: used,
      contexts: verb === 'use' ? contexts : { ...contexts, [name]: added },
    });
    if (failed !== undefined) err(`${printable(failed)}\n`);
    else
      out(
        `${verb === 'add' ? 'added' : 'using'} ${printable(name)}${verb === 'add' && used === name ? ', and using it' : ''}\n`,
      );
    return Promise.resolve(failed === undefined ? 0 : 1);
  },
});

function problemOf(flags: RelayFlags, verb: string, name: string | undefined): string | undefined {
  if (!['add', 'use', 'list'].includes(verb)) return 'add NAME, use NAME or list is missing';
  if (verb === 'list') return name === undefined ? undefined : `unexpected argument ${JSON.stringify(name)}`;
  if (name === undefined || name === '') return `the name of the context is missing: ${verb} NAME`;
  const given = Object.entries(flags).filter(([, value]) => value !== '');
  if (verb === 'use') return given.length > 0 ? `use takes no --${given[0]?.[0] ?? ''}` : undefined;
  if (!/^https?:\/\/[^/]/.test(flags.admin)) {
    return `--admin ${JSON.stringify(flags.admin)} is not a URL: accepted is http://HOST:PORT or https://HOST:PORT`;
  }
  return undefined;
}

/** A command may run in another directory. */
const whole = (path: string): string => (path === '' ? '' : resolve(path));

function write(path: string, contexts: Contexts): string | undefined {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(path, `${JSON.stringify(contexts, null, 2)}\n`, { mode: 0o600 });
    return undefined;
  } catch (error) {
    return `${path} cannot be written: ${explainError(error)}`;
  }
}
