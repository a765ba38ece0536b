import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { errorMessage, fail, ok, type Result } from '../model/result.ts';

/** Where a command writes, and its environment: the process's, or a test's. */
export interface Terminal {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export const processTerminal: Terminal = {
  out: (text) => process.stdout.write(text),
  err: (text) => process.stderr.write(text),
  environment: process.env,
};

/** The command line cannot be understood: exit 2, usage on stderr. */
export class UsageError extends Error {
  readonly usage: string;

  constructor(message: string, usage: string) {
    super(message);
    this.name = 'UsageError';
    this.usage = usage;
  }
}

const help = { help: { type: 'boolean', short: 'h' } } as const;

type Parsed<Options extends ParseArgsOptionsConfig> = ReturnType<
  typeof parseArgs<{ args: string[]; options: Options & typeof help; strict: true; allowPositionals: false }>
>['values'];

/** node:util parseArgs, strict, without positionals; `--help` and `-h` are always known. */
export function parse<const Options extends ParseArgsOptionsConfig>(
  argv: readonly string[],
  options: Options,
  usage: string,
): Result<Parsed<Options>, UsageError> {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: { ...options, ...help },
      strict: true,
      allowPositionals: false,
    });
    return ok(values);
  } catch (error) {
    return fail(new UsageError(errorMessage(error), usage));
  }
}

/** Writes the error and the usage. Returns the exit code. */
export function refuse(error: UsageError, terminal: Terminal): 2 {
  terminal.err(`${error.message}\n\n${error.usage}\n`);
  return 2;
}
