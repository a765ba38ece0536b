import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The fan-out benchmark (README.md here), against this checkout. Arguments go to the Go program; besides there are
 *
 *   --quick   a minute: a few workloads, one round; with `-workloads`, these in small doses
 *   -list     the workloads, and the subjects
 *   --gate    for CI: fails if an update costs more CPU than in the Go relay; three tries, the best counts, as the
 *             machine may be busy with something else
 */
const root = new URL('..', import.meta.url).pathname;
const gated: readonly string[] = ['small', 'eds-delta'];
const tries = 3;

interface Summary {
  readonly workload: string;
  readonly subject: string;
  readonly errors: number;
  readonly ratios: Readonly<Record<string, number>>;
}

function hasGo(): boolean {
  return spawnSync('go', ['version'], { stdio: 'ignore' }).status === 0;
}

function run(command: string, args: readonly string[], directory: string): number {
  const { status } = spawnSync(command, args, {
    cwd: directory,
    stdio: 'inherit',
    env: { ...process.env, PROJECT: root },
  });
  return status ?? 1;
}

const benchmark = (args: readonly string[]): number => run('go', ['run', '.', ...args], join(root, 'bench'));

/** Ratios to the Go relay by workload; throws if the benchmark found an error. */
function measureOnce(directory: string): Map<string, number> {
  const file = join(directory, 'result.json');
  const args = [
    '-workloads',
    gated.join(','),
    '-rounds',
    '1',
    '-subjects',
    'distributary,gorelay',
    '-json',
    file,
  ];
  if (benchmark(args) !== 0) throw new Error('the benchmark failed: see above');
  const report = JSON.parse(readFileSync(file, 'utf8')) as { readonly summary: readonly Summary[] };
  const ratios = new Map<string, number>();
  for (const { workload, subject, ratios: to } of report.summary) {
    const ratio = to['gorelay'];
    if (subject === 'distributary' && ratio !== undefined) ratios.set(workload, ratio);
  }
  return ratios;
}

function gate(): number {
  const directory = mkdtempSync(join(tmpdir(), 'distributary-bench-'));
  const best = new Map<string, number>();
  try {
    for (let attempt = 1; attempt <= tries; attempt++) {
      for (const [workload, ratio] of measureOnce(directory)) {
        best.set(workload, Math.min(ratio, best.get(workload) ?? Number.POSITIVE_INFINITY));
      }
      const worst = Math.max(...gated.map((workload) => best.get(workload) ?? Number.POSITIVE_INFINITY));
      const said = gated
        .map((workload) => `${workload} ${best.get(workload)?.toFixed(2) ?? 'none'}`)
        .join(', ');
      console.log(`CPU per update against the Go relay, best of ${attempt}: ${said}`);
      if (worst <= 1) return 0;
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  console.error('an update costs more CPU than in the Go relay');
  return 1;
}

function main(args: readonly string[]): number {
  if (!hasGo()) {
    console.log('no table: the peers and the load generator need Go ≥ 1.26, and there is none');
    return process.env['CI'] === 'true' ? 1 : 0;
  }
  const built = run('npm', ['run', '--silent', 'build'], root);
  if (built !== 0) return built;
  if (args.includes('--gate')) return gate();
  return benchmark(args.map((argument) => (argument === '--quick' ? '-quick' : argument)));
}

process.exitCode = main(process.argv.slice(2));
