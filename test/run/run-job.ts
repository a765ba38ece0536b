import { type ChildProcess, spawn } from 'node:child_process';
import { fstatSync, openSync, readSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { shortLife } from '../support/heap.ts';
import type { Job } from './jobs.ts';
import { type Order, type Report, reportSchema, root } from './report.ts';

export interface Outcome extends Report {
  readonly job: Job;
  /** Tests, and the process itself when it did not end as it should. */
  readonly failed: number;
  readonly output: string;
  readonly seconds: number;
}

/** In milliseconds. A job that does not end until then is stuck. */
const longest = 30 * 60_000;
/** The same of a process that has nothing to do any more. */
const longestEnd = 60_000;
const command = [
  ...shortLife,
  '--single-threaded-gc', // other jobs have work for the other cores
  '--disable-warning=ExperimentalWarning',
  join(root, 'test/run/mocha-process.ts'),
];

/**
 * Runs jobs with mocha, one after another in one process: what they all import is loaded once. One that crashes it, or
 * leaves something open, fails and costs the process; the next job has a new one. Nothing of a process is left after it.
 */
export class MochaProcess {
  #child: Child | undefined;

  /** `env`: for its tests. */
  async run(job: Job, env: Order['env']): Promise<Outcome> {
    const began = performance.now();
    this.#child ??= new Child();
    const answer = await this.#child.ask({ files: [...job.files], env });
    let output = this.#child.output();
    const isCrash = typeof answer !== 'object';
    const report: Report = isCrash
      ? { passed: 0, failures: [], skipped: [], missing: [], stillOpen: [] }
      : answer;
    if (isCrash) output += `\nthe process ended with ${answer}\n`;
    const isClean = !isCrash && report.stillOpen.length === 0;
    if (!isClean) {
      this.#child.kill();
      this.#child = undefined;
    }
    return {
      ...report,
      job,
      failed: Math.max(report.failures.length, isClean ? 0 : 1),
      output,
      seconds: (performance.now() - began) / 1000,
    };
  }

  /** After the last job: the exit code, or the signal that ended it. */
  async end(): Promise<number | string> {
    return (await this.#child?.end()) ?? 0;
  }
}

const running = new Set<Child>();

class Child {
  readonly #process: ChildProcess;
  readonly #ended: Promise<number | string>;
  /** What it and those that it starts write, in order: a file has all of it when the report is there. */
  readonly #written: number;
  #read = 0;

  constructor() {
    using directory = temporaryDirectory();
    const path = join(directory.path, 'output');
    this.#written = openSync(path, 'a+');
    rmSync(path);
    this.#process = spawn(process.execPath, command, {
      cwd: root,
      detached: true, // a group of its own, so that nothing of it is left
      stdio: ['ignore', this.#written, this.#written, 'ipc'],
    });
    this.#ended = new Promise((resolve) => {
      this.#process.once('exit', (code, signal) => resolve(code ?? signal ?? 'unknown'));
    });
    running.add(this);
  }

  /** The report, or how the process ended. */
  async ask(order: Order): Promise<Report | number | string> {
    const timer = setTimeout(() => this.kill(), longest);
    const reported = new Promise<Report>((resolve) => {
      this.#process.once('message', (message) => resolve(reportSchema.parse(message)));
    });
    this.#process.send(order, () => undefined); // to one that has ended, it fails
    try {
      return await Promise.race([reported, this.#ended]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** What was written since this was asked the last time. */
  output(): string {
    const bytes = Buffer.alloc(fstatSync(this.#written).size - this.#read);
    this.#read += readSync(this.#written, bytes, 0, bytes.length, this.#read);
    return bytes.toString();
  }

  /** It has nothing to do any more: its exit code, or the signal that ended it. */
  async end(): Promise<number | string> {
    const timer = setTimeout(() => this.kill(), longestEnd);
    if (this.#process.connected) this.#process.disconnect();
    const how = await this.#ended;
    clearTimeout(timer);
    this.kill();
    return how;
  }

  /** The process and all that it has started. */
  kill(): void {
    if (!running.delete(this)) return;
    if (this.#process.pid === undefined) return;
    try {
      process.kill(-this.#process.pid, 'SIGKILL');
    } catch {
      // All of them have ended.
    }
  }
}

process.once('exit', () => {
  for (const child of running) child.kill();
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));
