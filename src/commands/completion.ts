import { syncStates } from '../model/subscription.ts';
import { knownTypes } from '../model/types.ts';
import { logFormats } from '../observe/log-format.ts';
import { levels } from '../observe/log-levels.ts';
import type { Command } from './command.ts';
import { commandFlags } from './command-flags.ts';
import { type CommandFlags, type Flag, scripts } from './completion-scripts.ts';
import { parse, processTerminal, refuse, type Terminal, UsageError } from './usage.ts';

const shells = [...scripts.keys()];

const usage = `Usage: distributary completion ${shells.join('|')}

Prints a script by which the shell completes commands, flags, types and states.

  bash   source <(distributary completion bash), in ~/.bashrc
  zsh    distributary completion zsh > a file _distributary in a directory of $fpath
  fish   distributary completion fish > ~/.config/fish/completions/distributary.fish

  -h, --help   this text

Exit: 0.`;

/** What the table of commands has. */
interface Listed {
  readonly name: string;
  readonly does: string;
}

/** The command `completion`. Its shell is the only argument of any command that is no flag. */
export function completionOf(catalog: readonly Listed[]): Command {
  const command = async (argv: readonly string[], terminal: Terminal = processTerminal): Promise<number> => {
    const [shell = '', ...rest] = argv;
    const script = rest.length === 0 ? scripts.get(shell) : undefined;
    if (script !== undefined) {
      terminal.out(script(catalog.map(flagsOf)));
      return 0;
    }
    const parsed = parse(
      argv.filter((word) => word.startsWith('-')),
      {},
      usage,
    );
    if (!parsed.ok) return refuse(parsed.error, terminal);
    if (parsed.value.help === true) {
      terminal.out(`${usage}\n`);
      return 0;
    }
    return refuse(new UsageError(problemOf(argv), usage), terminal);
  };
  return Object.assign(command, { options: {} });
}

function problemOf([shell, extra]: readonly string[]): string {
  const accepted = `accepted is one of ${shells.join(', ')}`;
  if (shell === undefined) return `the shell is missing: ${accepted}`;
  if (!scripts.has(shell)) return `unknown shell ${JSON.stringify(shell)}: ${accepted}`;
  return `unexpected argument ${JSON.stringify(extra)}`;
}

function flagsOf({ name, does }: Listed): CommandFlags {
  const flags = [...(commandFlags.get(name) ?? []), ['help', 'boolean'] as const].map(flagOf);
  return { name, does, flags, words: name === 'completion' ? shells : [] };
}

/** The same flag means the same in every command. */
const values: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ['type', knownTypes.map(({ short }) => short)],
  ['state', syncStates],
  ['level', levels],
  ['log-level', levels],
  ['log-format', logFormats],
]);

const files: ReadonlySet<string> = new Set(['config', 'cert', 'key', 'ca']);

function flagOf([name, type]: readonly [string, 'boolean' | 'string']): Flag {
  if (type === 'boolean') return { name, value: { kind: 'none' } };
  if (files.has(name)) return { name, value: { kind: 'file' } };
  const words = values.get(name);
  return { name, value: words === undefined ? { kind: 'any' } : { kind: 'words', words } };
}
