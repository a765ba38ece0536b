import { checkFiles } from '../config/check-files.ts';
import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { parse, processTerminal, refuse, type Terminal, UsageError } from './usage.ts';

const usage = `Usage: distributary validate --config FILE

Checks a configuration and the files it names without running it.
Prints every problem as FILE:LINE:COLUMN: path: message.

  --config FILE  the configuration, YAML or JSON
  -h, --help     this text

Exit: 0 if it is good, 2 if it is not.`;

/** The command `validate`: its exit code. */
export async function validate(
  argv: readonly string[],
  terminal: Terminal = processTerminal,
): Promise<number> {
  const parsed = parse(argv, { config: { type: 'string' } }, usage);
  if (!parsed.ok) return refuse(parsed.error, terminal);
  const { config: file, help } = parsed.value;
  if (help === true) {
    terminal.out(`${usage}\n`);
    return 0;
  }
  if (file === undefined) return refuse(new UsageError('--config FILE is missing', usage), terminal);

  const loaded = loadConfig(file, terminal.environment);
  const problems = loaded.ok ? checkFiles(loaded.value) : loaded.error;
  if (!loaded.ok || problems.length > 0) {
    for (const problem of problems) terminal.err(`${problemLine(file, problem)}\n`);
    terminal.err(`${file}: ${problems.length === 1 ? '1 problem' : `${problems.length} problems`}\n`);
    return 2;
  }
  terminal.out(`${file}: ok\n${summary(loaded.value)}\n`);
  return 0;
}

function summary(config: Config): string {
  const upstreams = config.upstreams.map(({ name, kind }) => `${name} (${kind})`).join(', ');
  const rules = config.parameters.length;
  return `upstreams: ${upstreams}; parameter rules: ${rules}; authorization rules: ${config.xds.authorization.length}`;
}
