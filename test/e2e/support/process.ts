import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';

const startTimeout = 90_000;
const stopTimeout = 30_000;
const keptLines = 2_000;

/** Whatever is still running when the tests end is killed, by its pid. */
const running = new Set<number>();
process.once('exit', killRunning);

/** Every process that was started here, by its pid. */
export function killRunning(): void {
  for (const pid of running) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // it ended by itself
    }
  }
}

/** Refuses 0, which stands for a process that is not there: it is the group of the tests themselves. */
export function signalTo(pid: number | undefined, name: NodeJS.Signals): void {
  if (pid === undefined || pid <= 0) throw new Error(`no process to send ${name} to`);
  try {
    process.kill(pid, name);
  } catch (error) {
    // One that has ended meanwhile need not go on.
    if (name !== 'SIGCONT') throw error;
  }
}

export interface Spawn {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** A process of a test: its output by lines, and an end that is waited for. */
export class Process {
  /** The last lines of stdout and stderr. */
  readonly lines: string[] = [];
  /** The last lines of stderr alone. */
  readonly errors: string[] = [];
  /** How many lines of stderr there were, ever. */
  errorCount = 0;
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #command: string;
  readonly #watchers = new Set<(line: string) => void>();
  readonly #exited: Promise<number | string>;

  constructor({ command, args, env = {}, cwd }: Spawn) {
    this.#command = command;
    this.#child = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
      ...(cwd === undefined ? {} : { cwd }),
    });
    const { pid } = this.#child;
    if (pid !== undefined) running.add(pid);
    createInterface({ input: this.#child.stdout }).on('line', (line) => this.#take(line));
    createInterface({ input: this.#child.stderr }).on('line', (line) => {
      keep(this.errors, line);
      this.errorCount += 1;
      this.#take(line);
    });
    this.#exited = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve(error.message));
      // Not 'exit': its last lines may still be on their way then.
      this.#child.once('close', (code, signal) => {
        if (pid !== undefined) running.delete(pid);
        resolve(code ?? signal ?? 'unknown');
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** The exit code, or the name of the signal. */
  get exited(): Promise<number | string> {
    return this.#exited;
  }

  /** The last lines of output, for a failure's message. */
  get output(): string {
    return this.lines.slice(-60).join('\n');
  }

  /** Waits for a line; those that came before count. Rejects when the process ends first. */
  async line(pattern: RegExp, timeout: number = startTimeout): Promise<RegExpExecArray> {
    for (const line of this.lines) {
      const match = pattern.exec(line);
      if (match !== null) return match;
    }
    const { promise, resolve, reject } = Promise.withResolvers<RegExpExecArray>();
    const fail = (why: string) =>
      reject(new Error(`${this.#command} ${why}, without ${String(pattern)}:\n${this.output}`));
    const timer = setTimeout(() => fail(`is silent for ${timeout} ms`), timeout);
    const watch = (line: string) => {
      const match = pattern.exec(line);
      if (match !== null) resolve(match);
    };
    this.#watchers.add(watch);
    void this.#exited.then((how) => fail(`ended (${how})`));
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#watchers.delete(watch);
    }
  }

  write(line: string): void {
    this.#child.stdin.write(`${line}\n`);
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Sends the signal, and SIGKILL if that does not end it in time. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | string> {
    this.signal(signal);
    const timer = setTimeout(() => this.signal('SIGKILL'), stopTimeout);
    try {
      return await this.#exited;
    } finally {
      clearTimeout(timer);
    }
  }

  #take(line: string): void {
    keep(this.lines, line);
    for (const watch of this.#watchers) watch(line);
  }
}

function keep(lines: string[], line: string): void {
  lines.push(line);
  if (lines.length > keptLines) lines.shift();
}

/** Runs a command to its end, however it ends. */
export async function outcome(
  options: Spawn,
): Promise<{ readonly code: number | string; readonly output: string }> {
  const child = new Process(options);
  return { code: await child.exited, output: child.output };
}

/** Runs a command to its end; rejects with its output unless it succeeds. */
export async function run(options: Spawn): Promise<string> {
  const child = new Process(options);
  const how = await child.exited;
  if (how !== 0)
    throw new Error(`${options.command} ${options.args.join(' ')} ended with ${how}\n${child.output}`);
  return child.output;
}
