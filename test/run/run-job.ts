import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { rareCollections } from '../support/heap.ts';
import type { Job } from './jobs.ts';
import { type Report, reportSchema, root } from './report.ts';

export interface Outcome extends Report {
  readonly job: Job;
  /** Tests, and the process itself when it did not end as it should. */
  readonly failed: number;
  readonly output: string;
  readonly seconds: number;
}

/** In milliseconds. A process that does not end until then is stuck. */
const longest = 10 * 60_000;
const mocha = [
  rareCollections,
  '--single-threaded-gc', // other jobs have work for the other cores
  '--disable-warning=ExperimentalWarning',
  join(root, 'node_modules/mocha/lib/cli/cli.js'),
  '--forbid-only',
];

/** Runs the files with mocha. Whatever it has started is gone when this is over. */
export async function runJob(job: Job): Promise<Outcome> {
  const began = performance.now();
  // A group of its own, so that nothing of it is left.
  const child = spawn(process.execPath, [...mocha, ...job.files], {
    cwd: root,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  running.add(child);
  let output = '';
  let report: Report = { passed: 0, failures: [], skipped: [], missing: [] };
  let isReported = false;
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  child.on('message', (message) => {
    report = reportSchema.parse(message);
    isReported = true;
  });
  const timer = setTimeout(() => end(child), longest);
  const how = await new Promise<number | string>((resolve) => {
    child.once('close', (code, signal) => resolve(code ?? signal ?? 'unknown'));
  });
  clearTimeout(timer);
  end(child);
  const { length } = report.failures;
  const isClean = how === 0 || (length > 0 && how === length);
  if (!isClean || !isReported) output += `\nthe process ended with ${how}\n`;
  return {
    ...report,
    job,
    failed: Math.max(length, isClean && isReported ? 0 : 1),
    output,
    seconds: (performance.now() - began) / 1000,
  };
}

const running = new Set<ChildProcess>();

/** The process and all that it has started. */
function end(child: ChildProcess): void {
  running.delete(child);
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

process.once('exit', () => {
  for (const child of running) end(child);
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
