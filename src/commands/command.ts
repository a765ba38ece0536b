import type { ParseArgsOptionsConfig } from 'node:util';
import { type Parsed, parse, processTerminal, refuse, type Terminal, UsageError } from './usage.ts';

/** A command: called with what follows its name; resolves with the exit code. */
export interface Command {
  (argv: readonly string[], terminal?: Terminal): Promise<number>;
  /** Its flags, for node:util parseArgs; `--help` is known everywhere. */
  readonly options: ParseArgsOptionsConfig;
}

interface Definition<Options extends ParseArgsOptionsConfig> {
  /** What `--help` prints. The first paragraph is the usage line. */
  readonly usage: string;
  readonly options: Options;
  readonly run: (values: Parsed<Options>, terminal: Terminal) => Promise<number | UsageError> | UsageError;
}

/** Reads the flags, answers `--help`, and refuses what cannot be understood. */
export function defineCommand<const Options extends ParseArgsOptionsConfig>({
  usage,
  options,
  run,
}: Definition<Options>): Command {
  const command = async (argv: readonly string[], terminal: Terminal = processTerminal): Promise<number> => {
    const parsed = parse(argv, options, usage);
    if (!parsed.ok) return refuse(parsed.error, terminal);
    if ('help' in parsed.value && parsed.value.help === true) {
      terminal.out(`${usage}\n`);
      return 0;
    }
    const outcome = await run(parsed.value, terminal);
    return outcome instanceof UsageError ? refuse(outcome, terminal) : outcome;
  };
  return Object.assign(command, { options });
}
