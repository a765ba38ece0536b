import { readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import * as z from 'zod';
import type { Environment } from '../config/document.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { expectedText, printable, unknownWord } from '../model/text.ts';
import { type Column, textTable } from '../observe/text-table.ts';
import { makeDirectory } from '../package/files.ts';
import { explainError } from '../wire/node-error.ts';
import { defineCommand, type Flag, file, text, UsageError, type ValuesOf } from './command.ts';
import { type Output, outputFlags, outputOf, type Shown, written } from './output.ts';
import { type Terminal } from './terminal.ts';

// Which relay a command asks: by its flags, else by the environment, else by the context in use, else the one of this
// machine.

const section = 'RELAY';
const variables = {
  admin: 'DISTRIBUTARY_ADMIN',
  cert: 'DISTRIBUTARY_CERT',
  key: 'DISTRIBUTARY_KEY',
  ca: 'DISTRIBUTARY_CA',
} as const;

const defaultAdmin = 'http://127.0.0.1:19000';
const adminForm = `http://HOST:PORT or https://HOST:PORT (as in ${defaultAdmin})`;

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

/** What each part of where to ask was given as, for errors. */
type Names = Readonly<Record<keyof RelayFlags, string>>;

export const flagNames: Names = { admin: '--admin', cert: '--cert', key: '--key', ca: '--ca' };

/** Where to ask, all of it. */
export interface Place extends RelayFlags {
  readonly names: Names;
}

/**
 * The flags, and what they leave out. A certificate and its key come from one place; those of a context are for its own
 * URL, and those of the environment for https only. `names`: what the flags are called.
 */
export function relayOf(flags: RelayFlags, environment: Environment, names = flagNames): Result<Place> {
  const set = { admin: '', cert: '', key: '', ca: '' };
  for (const flag of ['admin', 'cert', 'key', 'ca'] as const) set[flag] = environment[variables[flag]] ?? '';
  const kept = flags.admin === '' && set.admin === '' ? readContexts(environment) : ok(noContexts);
  if (!kept.ok) return kept;
  const { current, contexts } = kept.value;
  const byFlags = { ...flags, names };
  const byDefault = { admin: defaultAdmin, cert: '', key: '', ca: '', names };
  const given = [
    byFlags,
    { ...set, names: variables },
    { ...byDefault, ...contexts[current], names: namesIn(current) },
  ];
  const { admin, names: of } = given.find((one) => one.admin !== '') ?? byDefault;
  const asked = isHttps(admin) ? given : [byFlags];
  const pair = asked.find((one) => one.cert + one.key !== '') ?? byFlags;
  const trusted = asked.find((one) => one.ca !== '') ?? byFlags;
  return checked({
    ...{ admin, cert: pair.cert, key: pair.key, ca: trusted.ca },
    names: { ...pair.names, admin: of.admin, ca: trusted.names.ca },
  });
}

const namesIn = (context: string): Names => ({
  admin: `admin of context ${context}`,
  cert: `cert of context ${context}`,
  key: `key of context ${context}`,
  ca: `ca of context ${context}`,
});

const urlOf = (admin: string): URL | null => (/^https?:\/\/[^/]/i.test(admin) ? URL.parse(admin) : null);

export const isHttps = (admin: string): boolean => urlOf(admin)?.protocol === 'https:';

/** The error: nobody can be asked there. The files are not looked at. */
function checked(place: Place): Result<Place> {
  const { admin, cert, key, ca, names } = place;
  const url = urlOf(admin);
  if (url === null) return fail(`${names.admin}: ${expectedText(adminForm, admin)}`);
  if (cert + key + ca !== '' && url.protocol === 'http:')
    return fail(`${names.cert}, ${names.key} and ${names.ca} are only for https://, not for ${admin}`);
  return wholePair(place);
}

/** The error: a certificate or a key has no other half. */
export function wholePair<T extends Pick<Place, 'cert' | 'key' | 'names'>>(place: T): Result<T> {
  const { cert, key, names } = place;
  if ((cert === '') === (key === '')) return ok(place);
  const lacking = cert === '' ? names.cert : names.key;
  return fail(`${names.cert} and ${names.key} belong together: ${lacking} is missing`);
}

const noContexts: Contexts = { current: '', contexts: {} };

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
      return ok(noContexts);
    }
    return fail(`${path} cannot be read: ${explainError(error)}`);
  }
}

export const context = defineCommand({
  name: 'context',
  does: 'names the relays that commands ask: add NAME, use NAME, list',
  about: `Keeps the addresses of relays by name. The first one added is used, until use selects another. Flags take precedence over
the environment, and the environment over the context.

  distributary context add prod --admin https://relay.example:19000 --ca ca.pem
  distributary context use prod
  distributary context list

-o and --json are for list.`,
  usage: '(add NAME --admin URL [--cert F --key F] [--ca F] | use NAME | list)',
  operands: { most: 2, words: ['add', 'use', 'list'] },
  flags: { ...outputFlags, ...relayFlags },
  exit: '0; 1 if the file of contexts cannot be read or written.',
  run: ({ output, json, ...flags }, { terminal, operands: [verb = '', name = ''] }) => {
    const format = outputOf({ output, json });
    if (format instanceof UsageError) return format;
    const problem = problemOf(flags, verb, name);
    if (problem !== undefined) return new UsageError(problem);
    if (format !== undefined && verb !== 'list')
      return new UsageError(`${verb} prints no table: -o is for list`);
    const done = verb === 'list' ? listed(terminal) : changed(flags, verb, name, terminal.environment);
    if (done instanceof UsageError) return done;
    return said(done, format, terminal);
  },
});

async function said(done: Result<Shown>, format: Output, terminal: Terminal): Promise<number> {
  if (done.ok) terminal.out(`${await written(done.value, format, terminal, 2)}\n`);
  else terminal.err(`${printable(done.error)}\n`);
  return done.ok ? 0 : 1;
}

function listed({ environment }: Terminal): Result<Shown> {
  const read = readContexts(environment);
  if (!read.ok) return read;
  const { current, contexts } = read.value;
  const rows = Object.entries(contexts).map(([name, one]) =>
    Object.assign({ name, current: name === current }, one),
  );
  return ok({
    json: () => ({ contexts: rows }),
    text: (view) =>
      rows.length === 0 ? `no contexts: commands ask ${defaultAdmin}` : textTable(rows, columns, view),
  });
}

const columns: readonly Column<
  z.infer<typeof contextSchema> & { readonly name: string; readonly current: boolean }
>[] = [
  ['', ({ current }) => (current ? '*' : '')],
  ['CONTEXT', 'name'],
  'admin',
  ['CERT', 'cert', 'wide'],
  ['KEY', 'key', 'wide'],
  ['CA', 'ca', 'wide'],
];

function changed(
  { admin, cert, key, ca }: RelayFlags,
  verb: string,
  name: string,
  environment: Environment,
): UsageError | Result<Shown> {
  const read = readContexts(environment);
  if (!read.ok) return read;
  const { current, contexts } = read.value;
  if (verb === 'use') {
    if (!Object.hasOwn(contexts, name)) {
      const known = Object.keys(contexts);
      const none = `there is no context ${JSON.stringify(name)}: add one first`;
      return new UsageError(known.length === 0 ? none : unknownWord('context', name, known));
    }
    return write(pathOf(environment), { current: name, contexts }, `${printable(name)} is now in use`);
  }
  const added = { admin, cert: whole(cert), key: whole(key), ca: whole(ca) };
  const used = current === '' ? name : current;
  const done = `added ${printable(name)}${used === name ? ', now in use' : ''}`;
  return write(pathOf(environment), { current: used, contexts: { ...contexts, [name]: added } }, done);
}

function problemOf(flags: RelayFlags, verb: string, name: string): string | undefined {
  if (!['add', 'use', 'list'].includes(verb)) return 'expected add NAME, use NAME or list';
  const [given] = Object.entries(flags).find(([, value]) => value !== '') ?? [];
  if (verb !== 'add' && given !== undefined) return `${verb} takes no --${given}`;
  if (verb === 'list') return name === '' ? undefined : `unexpected argument ${JSON.stringify(name)}`;
  if (name === '') return `the name of the context is missing: ${verb} NAME`;
  if (verb === 'use') return undefined;
  const place = checked({ ...flags, names: flagNames });
  return place.ok ? undefined : place.error;
}

/** A command may run in another directory. */
const whole = (path: string): string => (path === '' ? '' : resolve(path));

function write(path: string, contexts: Contexts, done: string): Result<Shown> {
  try {
    makeDirectory(resolve(dirname(path)));
    writeFileSync(path, `${JSON.stringify(contexts, null, 2)}\n`, { mode: 0o600 });
    return ok({ json: () => ({}), text: () => done });
  } catch (error) {
    return fail(`${path} cannot be written: ${explainError(error)}`);
  }
}
