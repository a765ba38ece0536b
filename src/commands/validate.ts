import type { Config } from '../config/config.ts';
import { loadConfig } from '../config/load.ts';
import { type ConfigProblem, problemLine } from '../config/source.ts';
import { warningLine, warnings } from '../config/warnings.ts';
import { checkResourceFiles } from '../upstream/filesystem/check-resource-files.ts';
import { formatProblem } from '../upstream/filesystem/problem.ts';
import { defineCommand } from './command.ts';
import { printableJson } from './printable.ts';
import { UsageError } from './usage.ts';

const usage = `Usage: distributary validate --config FILE [--json]

Checks a configuration and the files it names, resources too, without running it.
Prints every problem as FILE:LINE:COLUMN: path: message. What is dangerous but may be intended is printed as
FILE:LINE:COLUMN: warning: path: message.

  --config FILE  the configuration, YAML or JSON
  --json         on stdout: {file, ok, problems[], warnings[]}, each with file, line, column, path and message
  -h, --help     this text

Exit: 0 if it is good, with warnings too, 2 if it is not.`;

/** The command `validate`: its exit code. */
export const validate = defineCommand({
  usage,
  options: { config: { type: 'string' }, json: { type: 'boolean' } },
  run: async ({ config: file, json }, terminal) => {
    if (file === undefined) return new UsageError('--config FILE is missing', usage);
    const loaded = loadConfig(file, terminal.environment);
    const problems = loaded.ok
      ? await resourceProblems(loaded.value)
      : loaded.error.map((problem) => foundIn(file, problem));
    const warned = loaded.ok ? warnings(loaded.value).map((warning) => foundIn(file, warning)) : [];
    const good = loaded.ok && problems.length === 0;
    if (json === true) {
      const report = { file, ok: good, problems: problems.map(shown), warnings: warned.map(shown) };
      terminal.out(`${printableJson(JSON.stringify(report, null, 2))}\n`);
      return good ? 0 : 2;
    }
    for (const { line } of problems) terminal.err(`${line}\n`);
    if (!good) {
      terminal.err(`${file}: ${problems.length === 1 ? '1 problem' : `${problems.length} problems`}\n`);
      return 2;
    }
    for (const warning of warnings(loaded.value)) terminal.err(`${warningLine(file, warning)}\n`);
    terminal.out(`${file}: ok\n${summary(loaded.value)}\n`);
    return 0;
  },
});

/** A problem for people, and for --json. */
interface Found {
  /** FILE:LINE:COLUMN: path: message. */
  readonly line: string;
  readonly at: FoundAt;
}

/** Left out: what the format of the file does not have. */
interface FoundAt {
  readonly file: string;
  readonly line?: number;
  readonly column?: number;
  readonly path?: string;
  readonly message: string;
}

const shown = ({ at }: Found): FoundAt => at;

function foundIn(file: string, problem: ConfigProblem): Found {
  const { line, column, path, message } = problem;
  return { line: problemLine(file, problem), at: { file, line, column, path, message } };
}

/** Of the files of filesystem upstreams. `run` goes on without them, and says so. */
async function resourceProblems({ upstreams, limits }: Config): Promise<readonly Found[]> {
  const found: Found[] = [];
  for (const upstream of upstreams) {
    if (upstream.kind !== 'filesystem') continue;
    for (const problem of await checkResourceFiles(upstream.path, limits.maxConstraintDepth)) {
      const { file, line, message } = problem;
      const at = { file, ...(line === undefined ? {} : { line }), message };
      found.push({ line: formatProblem(problem), at });
    }
  }
  return found;
}

function summary(config: Config): string {
  const upstreams = config.upstreams.map(({ name, kind }) => `${name} (${kind})`).join(', ');
  const rules = config.parameters.length;
  return `upstreams: ${upstreams}; parameter rules: ${rules}; authorization rules: ${config.xds.authorization.length}`;
}
