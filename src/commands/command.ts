import { parseArgs } from 'node:util';
import { parseDuration } from '../config/duration.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { expectedText, nearest, printable, unknownWord } from '../model/text.ts';
import { knownTypes, typeByName, typeInfo, unknownType } from '../model/types.ts';
import { wrapped } from '../observe/text-table.ts';
import { version } from '../package/files.ts';
import { columnsOf, processTerminal, type Terminal } from './terminal.ts';

/** A flag as it is declared, once: reading it, its line in the help, completion and docs/reference come from this. */
export interface Flag<Value = unknown> {
  /** What stands for its value in the help, as in `--type T`; empty: it takes none. */
  readonly value: string;
  readonly says: string;
  /** What a shell completes its value with. */
  readonly words: readonly string[] | 'file';
  /** May be given more than once; else the last counts. */
  readonly many?: true;
  readonly required?: true;
  /** One letter. */
  readonly short?: string;
  /** Its section in the help, of which the usage line has the name only. */
  readonly section?: string;
  /** `texts`: what it was given, in order; a flag without a value is given ''. */
  readonly read: (texts: readonly string[], name: string) => Result<Value>;
}

export type Flags = Readonly<Record<string, Flag>>;

export type ValuesOf<Declared extends Flags> = {
  readonly [Name in keyof Declared]: Declared[Name] extends Flag<infer Value> ? Value : never;
};

const flag = <Value>(
  value: string,
  says: string,
  read: Flag<Value>['read'],
  words: Flag['words'] = [],
): Flag<Value> => ({ value, says, words, read });

export const toggle = (says: string): Flag<boolean> => flag('', says, (given) => ok(given.length > 0));

/** Empty: it is not given. */
export const text = (value: string, says: string): Flag<string> =>
  flag(value, says, (given) => ok(given.at(-1) ?? ''));

export const texts = (value: string, says: string): Flag<readonly string[]> => ({
  ...flag<readonly string[]>(value, says, ok),
  many: true,
});

/** A path; empty: it is not given. */
export const file = (value: string, says: string): Flag<string> => ({ ...text(value, says), words: 'file' });

/** A positive integer; `otherwise` where it is not given. */
export const count = (value: string, says: string, otherwise: number, least = 1): Flag<number> =>
  flag(value, says, ([...given], name) =>
    given.length === 0 ? ok(otherwise) : readCount(given.at(-1) ?? '', name, least),
  );

/** That of a uint32. */
const highestCount = 2 ** 32 - 1;

export function readCount(given: string, name: string, least = 1): Result<number> {
  const value = Number(given);
  if (/^[0-9]+$/.test(given) && value >= least && value <= highestCount) return ok(value);
  return fail(`${name}: ${expectedText(`a whole number from ${least} to ${highestCount}`, given)}`);
}

/** One of these words, in whatever case; undefined: it is not given. */
export const oneOf = <Word extends string>(
  value: string,
  words: readonly Word[],
  says: string,
): Flag<Word | undefined> =>
  flag<Word | undefined>(
    value,
    says,
    (given, name) => {
      const word = given.at(-1);
      const known = words.find((one) => one.toLowerCase() === word?.toLowerCase());
      return word === undefined || known !== undefined ? ok(known) : fail(unknownWord(name, word, words));
    },
    words,
  );

/** Milliseconds; undefined: it is not given. */
export const duration = (value: string, says: string): Flag<number | undefined> =>
  flag<number | undefined>(value, says, (given, name) => {
    const time = given.at(-1);
    if (time === undefined) return ok(undefined);
    const read = parseDuration(time);
    return read.ok ? read : fail(`${name} ${read.error}`);
  });

const shortTypes = knownTypes.map(({ short }) => short);

/** A type URL or a short name, as the short name if it has one; empty: it is not given. */
export const type = (says = ''): Flag<string> =>
  flag(
    'T',
    `${says}${says === '' ? '' : ': '}a type URL, or one of ${shortTypes.join(' ')}`,
    (given) => {
      const name = given.at(-1) ?? '';
      if (name === '') return ok('');
      const url = typeByName(name);
      return url === undefined ? fail(unknownType(name)) : ok(typeInfo(url).short);
    },
    shortTypes,
  );

/** Parameters: KEY=VALUE for each. */
export const parameters = (says: string): Flag<Readonly<Record<string, string>>> => ({
  ...flag('KEY=VALUE', says, readParameters),
  many: true,
});

function readParameters(given: readonly string[], name: string): Result<Readonly<Record<string, string>>> {
  const read = new Map<string, string>();
  for (const pair of given) {
    const equals = pair.indexOf('=');
    if (equals <= 0) return fail(`${name}: ${expectedText('KEY=VALUE (as in env=prod)', pair)}`);
    const key = pair.slice(0, equals);
    if (read.has(key)) return fail(`${name} ${key} is given twice`);
    read.set(key, pair.slice(equals + 1));
  }
  return ok(Object.fromEntries(read));
}

export const required = <Value>(flag: Flag<Value>): Flag<Value> => ({
  ...flag,
  required: true,
  read: (given, name) =>
    (given.at(-1) ?? '').trim() === ''
      ? fail(`${name} ${flag.value} is missing: ${flag.says}`)
      : flag.read(given, name),
});

/** The flags do not go together: exit 2, the usage line on stderr. */
export class UsageError extends Error {}

const none = {} as const;

export interface Definition<Declared extends Flags, Shared extends Flags = typeof none> {
  readonly name: string;
  /** For the list of commands. */
  readonly does: string;
  /** Paragraphs; lines that begin with a space stay as they are. */
  readonly about: string;
  /** The start of its usage line, which has all flags but those that are named here. */
  readonly usage?: string;
  /** What may follow it beside flags: left out, nothing. */
  readonly operands?: { readonly most: number; readonly words: readonly string[] };
  readonly exit: string;
  readonly flags: Declared;
  readonly run: (
    values: ValuesOf<Declared>,
    call: {
      readonly terminal: Terminal;
      readonly operands: readonly string[];
      readonly shared: ValuesOf<Shared>;
    },
  ) => Promise<number | UsageError> | UsageError;
}

/** What of a command its help, completion and the reference tell. */
type About = Omit<Definition<Flags>, 'flags' | 'run'>;

/** A command: called with what follows its name; resolves with the exit code. */
export interface Command extends Pick<About, 'does' | 'operands'> {
  (argv: readonly string[], terminal?: Terminal): Promise<number>;
  readonly flags: Flags;
}

const everywhere = {
  help: { ...toggle('this text'), short: 'h' },
  version: toggle('the version'),
} as const;

/** Reads the flags, answers `--help` and `--version`, and refuses what cannot be understood. */
export const defineCommand = <const Declared extends Flags>(definition: Definition<Declared>): Command =>
  commandWith(none, definition);

/** With flags that several commands have. */
export function commandWith<const Shared extends Flags, const Declared extends Flags>(
  shared: Shared,
  definition: Definition<Declared, Shared>,
): Command {
  const { name, does, flags, operands, run } = definition;
  const all = { ...flags, ...shared, ...everywhere };
  const command = async (argv: readonly string[], terminal: Terminal = processTerminal): Promise<number> => {
    const columns = Math.min(columnsOf(terminal), widestHelp);
    const refuse = (message: string): 2 => {
      const more = `distributary ${name} --help shows what each flag is for.`;
      terminal.err(`${printable(message)}\n\n${usageLine(definition, all, columns)}\n\n${more}\n`);
      return 2;
    };
    const parsed = parse(argv, all, operands?.most);
    if (!parsed.ok) return refuse(parsed.error);
    const { texts, operands: given } = parsed.value;
    if (texts.has('help')) {
      terminal.out(`${helpText(definition, all, columns)}\n`);
      return 0;
    }
    if (texts.has('version')) {
      terminal.out(`${version()}\n`);
      return 0;
    }
    const own = valuesOf(flags, texts);
    if (!own.ok) return refuse(own.error);
    const others = valuesOf(shared, texts);
    if (!others.ok) return refuse(others.error);
    const outcome = await run(own.value, { terminal, operands: given, shared: others.value });
    return outcome instanceof UsageError ? refuse(outcome.message) : outcome;
  };
  const told = { does, flags: all, ...(operands === undefined ? {} : { operands }) };
  return Object.defineProperty(Object.assign(command, told), 'name', { value: name });
}

/** Longer lines are hard to read. */
const widestHelp = 100;

/** node:util parseArgs, whose own messages have no hints. */
export function parse(argv: readonly string[], flags: Flags, most = 0) {
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, { value, short }]) => [
      name,
      {
        type: value === '' ? ('boolean' as const) : ('string' as const),
        ...(short === undefined ? {} : { short }),
      },
    ]),
  );
  const { tokens } = parseArgs({ args: [...argv], options, strict: false, tokens: true });
  const texts = new Map<string, string[]>();
  const operands: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'option-terminator') continue;
    if (token.kind === 'positional') {
      operands.push(token.value);
      if (operands.length > most) return fail(`unexpected argument ${JSON.stringify(token.value)}`);
      continue;
    }
    const { name, value = '' } = token;
    const problem = problemOf(token, flags);
    if (problem !== undefined) return fail(problem);
    texts.set(name, [...(texts.get(name) ?? []), value]);
  }
  return ok({ texts, operands });
}

type Token = Extract<NonNullable<ReturnType<typeof parseArgs>['tokens']>[number], { kind: 'option' }>;

function problemOf({ name, rawName, value, inlineValue }: Token, flags: Flags): string | undefined {
  const flag = Object.hasOwn(flags, name) ? flags[name] : undefined;
  if (flag === undefined) return unknownFlag(rawName, Object.keys(flags));
  if (flag.value === '') return value === undefined ? undefined : `${rawName} takes no value`;
  if (value === undefined) return `the value of ${rawName} is missing`;
  // Of a variable of the shell that is not set. Without it the command would be about everything.
  if (value === '') return `the value of ${rawName} is empty`;
  // `--type --name x`: the value was forgotten.
  return inlineValue || !/^-./.test(value)
    ? undefined
    : `the value of ${rawName} is missing (if it begins with "-", write ${rawName}=${value})`;
}

function unknownFlag(rawName: string, names: readonly string[]): string {
  const meant = nearest(rawName.replace(/^-+/, ''), names);
  const hint = meant === undefined ? '' : `: did you mean --${meant}?`;
  return `unknown flag ${JSON.stringify(rawName)}${hint}`;
}

function valuesOf<Declared extends Flags>(
  flags: Declared,
  given: ReadonlyMap<string, readonly string[]>,
): Result<ValuesOf<Declared>> {
  const values = new Map<string, unknown>();
  for (const [name, flag] of Object.entries(flags)) {
    const read = flag.read(given.get(name) ?? [], `--${name}`);
    if (!read.ok) return read;
    values.set(name, read.value);
  }
  const all: object = Object.fromEntries(values);
  return isOf(flags, all) ? ok(all) : fail('a flag was not read');
}

/** Each value is what its flag's `read` gives. */
const isOf = <Declared extends Flags>(flags: Declared, values: object): values is ValuesOf<Declared> =>
  Object.keys(flags).every((name) => Object.hasOwn(values, name));

/** `Usage: distributary get --type T --name N [--client ID]`, on as many lines as it needs. */
function usageLine({ name, usage = '' }: About, flags: Flags, columns: number): string {
  const named = new Set([...usage.matchAll(/--([\w-]+)/g)].map(([, flag]) => flag));
  const own = Object.entries(flags).filter(([flag]) => !Object.hasOwn(everywhere, flag) && !named.has(flag));
  const parts = own
    .filter(([, { section }]) => section === undefined)
    .map(([flag, { value, short, many, required: needed }]) => {
      const written = `${short === undefined ? `--${flag}` : `-${short}`}${value === '' ? '' : ` ${value}`}`;
      const said = needed === true ? written : `[${written}]`;
      return many === true ? `${said}...` : said;
    });
  const sections = new Set(own.flatMap(([, { section }]) => (section === undefined ? [] : [`[${section}]`])));
  const words = [...usage.split(/(?<=[\])]) /), ...parts, ...sections].filter((word) => word !== '');
  // A flag and its value stay together.
  const glued = words.map((word) => word.replaceAll(/(?<=^\[?--[\w-]+) /g, '\u00A0'));
  return wrapped(`Usage: distributary ${name} ${glued.join(' ')}`.trimEnd(), columns, 7);
}

function helpText(definition: About, flags: Flags, columns: number): string {
  const { about, exit } = definition;
  const labels = new Map(
    Object.entries(flags).map(([flag, { value, short }]) => [
      flag,
      `${short === undefined ? '' : `-${short}, `}--${flag}${value === '' ? '' : ` ${value}`}`,
    ]),
  );
  const width = Math.max(...[...labels.values()].map(({ length }) => length)) + 2;
  const linesOf = (section: string | undefined): string =>
    Object.entries(flags)
      .filter(([, flag]) => flag.section === section)
      .map(([flag, { says }]) =>
        wrapped(
          `${`  ${labels.get(flag) ?? ''}`.padEnd(width + 2).replaceAll(' ', '\u00A0')}${says}`,
          columns,
          width + 2,
        ),
      )
      .join('\n');
  const sections = new Set(Object.values(flags).flatMap(({ section }) => section ?? []));
  return [
    usageLine(definition, flags, columns),
    ...about.split('\n\n').map((paragraph) => paragraphText(paragraph, columns)),
    linesOf(undefined),
    ...[...sections].map((section) => `${section}:\n${linesOf(section)}`),
    wrapped(`Exit: ${exit}`, columns, 0),
  ].join('\n\n');
}

const paragraphText = (paragraph: string, columns: number): string =>
  /^ /m.test(paragraph) ? paragraph : wrapped(paragraph.replaceAll('\n', ' '), columns, 0);
