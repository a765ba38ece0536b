import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { nearest } from '../config/suggest.ts';
import { printable } from '../model/printable.ts';
import { fail, ok, type Result } from '../model/result.ts';

/** Where a command writes, and its environment: the process's, or a test's. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Of `out`; left out: it is a file or a pipe. */
  readonly screen?: Screen | undefined;
}

interface Screen {
  readonly colours: boolean;
  /** Its height, called each time. */
  readonly rows: () => number;
}

export const processTerminal: Terminal = {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  environment: process.env,
  screen: process.stdout.isTTY
    ? { colours: process.stdout.hasColors(), rows: () => process.stdout.rows }
    : undefined,
};

/** The command line cannot be understood: exit 2, the usage line on stderr. */
export class UsageError extends Error {
  readonly usage: string;

  constructor(message: string, usage: string) {
    super(message);
    this.name = 'UsageError';
    this.usage = usage;
  }
}

const help = { help: { type: 'boolean', short: 'h' } } as const;

export type Parsed<Options extends ParseArgsOptionsConfig> = ReturnType<
  typeof parseArgs<{ args: string[]; options: Options & typeof help; strict: true; allowPositionals: false }>
>['values'];

/** node:util parseArgs, strict, without positionals; `--help` and `-h` are always known. */
export function parse<const Options extends ParseArgsOptionsConfig>(
  argv: readonly string[],
  options: Options,
  usage: string,
): Result<Parsed<Options>, UsageError> {
  const known: Options & typeof help = { ...options, ...help };
  const problem = problemOf(argv, known);
  if (problem !== undefined) return fail(new UsageError(problem, usage));
  const { values } = parseArgs({ args: [...argv], options: known, strict: true, allowPositionals: false });
  return ok(values);
}

/** What is wrong with the first flag that is. parseArgs has messages of its own, without hints. */
function problemOf(argv: readonly string[], options: ParseArgsOptionsConfig): string | undefined {
  const { tokens } = parseArgs({ args: [...argv], options, strict: false, tokens: true });
  for (const token of tokens) {
    if (token.kind === 'positional') return `unexpected argument ${JSON.stringify(token.value)}`;
    if (token.kind !== 'option') continue;
    const { name, rawName, value, inlineValue } = token;
    const option = Object.hasOwn(options, name) ? options[name] : undefined;
    if (option === undefined) return unknownFlag(rawName, Object.keys(options));
    if (option.type === 'boolean' && value !== undefined) return `${rawName} takes no value`;
    // `--type --name x`: the value was forgotten.
    if (option.type === 'string' && (value === undefined || (!inlineValue && /^-./.test(value))))
      return `the value of ${rawName} is missing${value === undefined ? '' : ` (one that begins with "-" is given as ${rawName}=${value})`}`;
  }
  return undefined;
}

function unknownFlag(rawName: string, names: readonly string[]): string {
  const meant = nearest(rawName.replace(/^-+/, ''), names);
  const hint = meant === undefined ? '' : `: did you mean --${meant}?`;
  return `unknown flag ${JSON.stringify(rawName)}${hint}`;
}

/** Writes the error and the usage line. Returns the exit code. */
export function refuse(error: UsageError, terminal: Terminal): 2 {
  const [line = ''] = error.usage.split('\n\n');
  const [name] = /distributary \S+/.exec(line) ?? ['distributary'];
  terminal.err(`${printable(error.message)}\n\n${line}\n\n${name} --help shows what each flag is for.\n`);
  return 2;
}
