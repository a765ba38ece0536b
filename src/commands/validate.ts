import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { problemLine } from '../config/source.ts';
import { warningLine, warnings } from '../config/warnings.ts';
import { checkResourceFiles } from '../upstream/filesystem/check-resource-files.ts';
import { formatProblem } from '../upstream/filesystem/problem.ts';
import { defineCommand } from './command.ts';
import { UsageError } from './usage.ts';

const usage = `Usage: distributary validate --config FILE

Checks a configuration and the files it names, resources too, without running it.
Prints every problem as FILE:LINE:COLUMN: path: message. What is dangerous but may be intended is printed as
FILE:LINE:COLUMN: warning: path: message.

  --config FILE  the configuration, YAML or JSON
  -h, --help     this text

Exit: 0 if it is good, with warnings too, 2 if it is not.`;

/** The command `validate`: its exit code. */
export const validate = defineCommand({
  usage,
  options: { config: { type: 'string' } },
  run: async (values, terminal) => {
    const { config: file } = values;
    if (file === undefined) return new UsageError('--config FILE is missing', usage);

    const loaded = loadConfig(file, terminal.environment);
    const problems = loaded.ok
      ? await resourceProblems(loaded.value)
      : loaded.error.map((problem) => problemLine(file, problem));
    if (!loaded.ok || problems.length > 0) {
      for (const problem of problems) terminal.err(`${problem}\n`);
      terminal.err(`${file}: ${problems.length === 1 ? '1 problem' : `${problems.length} problems`}\n`);
      return 2;
    }
    for (const warning of warnings(loaded.value)) terminal.err(`${warningLine(file, warning)}\n`);
    terminal.out(`${file}: ok\n${summary(loaded.value)}\n`);
    return 0;
  },
});

/** Of the files of filesystem upstreams. `run` goes on without them, and says so. */
async function resourceProblems({ upstreams, limits }: Config): Promise<readonly string[]> {
  const found: string[] = [];
  for (const upstream of upstreams) {
    if (upstream.kind !== 'filesystem') continue;
    const problems = await checkResourceFiles(upstream.path, limits.maxConstraintDepth);
    found.push(...problems.map(formatProblem));
  }
  return found;
}

function summary(config: Config): string {
  const upstreams = config.upstreams.map(({ name, kind }) => `${name} (${kind})`).join(', ');
  const rules = config.parameters.length;
  return `upstreams: ${upstreams}; parameter rules: ${rules}; authorization rules: ${config.xds.authorization.length}`;
}
