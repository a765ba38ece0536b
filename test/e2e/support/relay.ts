import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { slowness } from '../../support/cpu.ts';
import { shortLife } from '../../support/heap.ts';
import { ownPort } from '../../support/ports.ts';
import { eventually } from './eventually.ts';
import { type Answer, get, send } from './http.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { Process, type Spawn, signalTo } from './process.ts';

/** The configuration's keys as the contract has them. Addresses default to any free port. */
export interface RelayConfig {
  readonly upstreams: readonly object[];
  readonly xds?: object;
  readonly admin?: object;
  readonly rest?: object;
  readonly metrics?: object;
  readonly [key: string]: unknown;
}

const listed = z.object({
  /** Of workers that took too long: their clients are left out. */
  no_answer: z.undefined().optional(),
  clients: z.array(
    z.object({
      id: z.string(),
      node: z.object({ id: z.string() }),
      transport: z.string(),
      types: z.array(
        z.object({ type: z.string(), state: z.string(), version: z.string(), last_poll: z.string() }),
      ),
    }),
  ),
});

/** `npm test` bundles it once, and so does the searching attacker. */
const main = (): string => process.env['TESTS_RELAY'] ?? join(root, 'src/main.ts');
const run = join(root, 'src/commands/command-line.ts');
const probe = join(root, 'test/e2e/support/memory-probe.ts');
const loopProbe = `${pathToFileURL(join(root, 'test/e2e/support/loop-probe.ts')).href}?startedBy=${process.pid}`;

/** Path of the command. */
export async function relayCommand(): Promise<Result<string>> {
  return existsSync(main()) && existsSync(run) ? ok(main()) : fail('the relay has no command run yet');
}

const any = '127.0.0.1:0';

/** What workers listen on: a port that their primary has chosen is free until the first of them listens. */
async function workersAddresses(config: RelayConfig | string): Promise<{ xds: string; rest: string }> {
  if (!hasWorkers(config)) return { xds: any, rest: any };
  return { xds: `127.0.0.1:${await ownPort()}`, rest: `127.0.0.1:${await ownPort()}` };
}

/** Of one that is text, nobody knows. */
const hasWorkers = (config: RelayConfig | string): boolean =>
  typeof config === 'string' || (config['workers'] ?? 0) !== 0;

/** The next relay may begin with it. */
const savesItsCache = (config: RelayConfig | string): boolean =>
  (typeof config === 'string' ? config : JSON.stringify(config['cache'] ?? '')).includes('persistence');

function withDefaults(
  config: RelayConfig,
  addresses: { readonly xds: string; readonly rest: string },
): object {
  const node = { id: 'relay', cluster: 'relays' };
  const rest = config.rest === undefined ? {} : { rest: { address: addresses.rest, ...config.rest } };
  const metrics = config.metrics === undefined ? {} : { metrics: { address: any, ...config.metrics } };
  const listeners = {
    xds: { address: addresses.xds, ...config.xds },
    admin: { address: any, ...config.admin },
  };
  return { node, ...config, ...listeners, ...rest, ...metrics };
}

export interface RelayOptions {
  /** Of Node itself. */
  readonly flags?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Of the command `run`, beside --config. */
  readonly arguments?: readonly string[];
  /** The single executable, instead of the sources on this Node. */
  readonly executable?: string;
}

const memory = z.object({ rss: z.number(), used: z.number() });
/** Bytes, after a garbage collection. `used`: heap and buffers; `rss`: what the system has given. */
export type Memory = z.infer<typeof memory>;
const blocked = z.object({ cpu: z.number(), wall: z.number() });
/** The longest time without a turn of the event loop, in milliseconds; `cpu`: what its thread has used of it (`slowness`). */
export type Blocked = z.infer<typeof blocked>;
const workerPids = z.object({ workers: z.array(z.object({ pid: z.number() })) });
const logLine = z.looseObject({ level: z.string(), time: z.iso.datetime(), message: z.string() });
export type LogLine = z.infer<typeof logLine>;

/** The command `distributary`, for a Process. */
export function distributary(...argv: readonly string[]): Spawn {
  return {
    command: process.execPath,
    args: [...shortLife, '--disable-warning=ExperimentalWarning', main(), ...argv],
  };
}

type Addresses = Pick<RelayProcess, 'xds' | 'rest' | 'admin' | 'metrics'>;

/** When it listens everywhere. */
async function addressesOf(child: Process, config: RelayConfig | string): Promise<Addresses> {
  const { rest, metrics }: Partial<RelayConfig> = typeof config === 'string' ? {} : config;
  const listening = async (name: string): Promise<string> =>
    (await child.line(new RegExp(`^listening ${name} (\\S+)`)))[1] ?? '';
  return {
    xds: await listening('xds'),
    rest: rest === undefined ? '' : await listening('rest'),
    admin: await listening('admin'),
    metrics: metrics === undefined ? '' : await listening('metrics'),
  };
}

/** The relay as users run it: a process of its own. */
export class RelayProcess implements AsyncDisposable {
  /** HOST:PORT. */
  readonly xds: string;
  readonly admin: string;
  /** Empty without `rest`. */
  readonly rest: string;
  /** Empty without `metrics`. */
  readonly metrics: string;
  readonly #process: Process;
  readonly #files: TemporaryDirectory;

  readonly #hasMoreToDo: boolean;
  readonly #given: { readonly xds: string; readonly rest: string };

  private constructor(
    child: Process,
    config: RelayConfig | string,
    given: { readonly xds: string; readonly rest: string },
    { xds, rest, admin, metrics }: Addresses,
    files: TemporaryDirectory,
  ) {
    this.#process = child;
    this.#hasMoreToDo = hasWorkers(config) || savesItsCache(config);
    this.#given = given;
    this.xds = xds;
    this.admin = admin;
    this.rest = rest;
    this.metrics = metrics;
    this.#files = files;
  }

  /**
   * Resolves when it listens; if that fails, no process is left. A configuration that is a string is taken as it is:
   * without `rest` and `metrics`.
   */
  static async start(
    config: RelayConfig | string,
    { flags = [], arguments: given = [], executable, ...environment }: RelayOptions = {},
  ): Promise<RelayProcess> {
    const files = temporaryDirectory();
    const path = join(files.path, 'relay.json');
    const addresses = await workersAddresses(config);
    writeFileSync(
      path,
      typeof config === 'string' ? config : JSON.stringify(withDefaults(config, addresses)),
    );
    const argv = ['run', '--config', path, ...given];
    const sources = distributary(...argv);
    const child = new Process({
      ...(executable === undefined
        ? { command: sources.command, args: [...flags, ...sources.args] }
        : { command: executable, args: argv }),
      ...environment,
    });
    try {
      return new RelayProcess(child, config, addresses, await addressesOf(child, config), files);
    } catch (error) {
      await child.stop('SIGKILL');
      files[Symbol.dispose]();
      throw error;
    }
  }

  /** A relay whose `memory` can be asked for. */
  static startMeasurable(config: RelayConfig): Promise<RelayProcess> {
    return RelayProcess.start(config, { flags: [`--import=${probe}`] });
  }

  /** A relay whose `blocked` can be asked for. */
  static startProbed(config: RelayConfig, flags: readonly string[] = []): Promise<RelayProcess> {
    return RelayProcess.start(config, { flags: [`--import=${loopProbe}`, ...flags] });
  }

  /** What it holds, garbage collected; `pids`: of several of its processes together. */
  async memory(pids: readonly number[] = [this.pid]): Promise<Memory> {
    const all = (await this.#answersOf('memory ', pids)).map((answer) => memory.parse(answer));
    return {
      rss: all.reduce((sum, { rss }) => sum + rss, 0),
      used: all.reduce((sum, { used }) => sum + used, 0),
    };
  }

  /** The longest time that its event loop was blocked since this was asked the last time; `pids`: of its processes. */
  async blocked(pids: readonly number[] = [this.pid]): Promise<Blocked> {
    const all = (await this.#answersOf('blocked ', pids)).map((answer) => blocked.parse(answer));
    return {
      cpu: Math.max(...all.map(({ cpu }) => cpu)) / slowness(),
      wall: Math.max(...all.map(({ wall }) => wall)),
    };
  }

  /** Of itself and of its workers. */
  async pids(): Promise<readonly number[]> {
    const { body } = await this.rpc('distributary.admin.v1.AdminService/Status', {});
    const { workers } = workerPids.parse(JSON.parse(body));
    return [this.pid, ...workers.map(({ pid }) => pid)];
  }

  /** What the probes in these processes write when they are asked. */
  async #answersOf(start: string, pids: readonly number[]): Promise<readonly unknown[]> {
    const before = this.#process.errorCount;
    for (const pid of pids) signalTo(pid, 'SIGUSR2');
    return eventually(() => {
      // Of a log that is longer than what is kept, too.
      const fresh = this.#process.errorCount - before;
      const lines = (fresh === 0 ? [] : this.#process.errors.slice(-fresh)).filter((line) =>
        line.startsWith(start),
      );
      if (lines.length < pids.length) throw new Error('no answer to SIGUSR2');
      return lines.map((line): unknown => JSON.parse(line.slice(start.length)));
    });
  }

  /** Its log, each line parsed: throws if one is not what a line of the log must be. */
  get log(): readonly LogLine[] {
    return this.#process.errors
      .filter((line) => !/^(?:blocked|memory) \{/.test(line)) // answers of the probes
      .map((line) => logLine.parse(JSON.parse(line)));
  }

  /** The lines with this in their message, once there are as many: the log comes later than answers, by a way of its own. */
  says(text: RegExp, count = 1): Promise<readonly LogLine[]> {
    return eventually(() => {
      const lines = this.log.filter(({ message }) => text.test(message));
      if (lines.length < count)
        throw new Error(`${lines.length} lines of the log have ${String(text)}:\n${this.output}`);
      return lines;
    });
  }

  /** What its log has of this level or worse, but for that a busy machine has stopped it for a while. */
  faults(least: 'warn' | 'error' = 'error'): readonly LogLine[] {
    const levels = least === 'warn' ? ['warn', 'error', 'fatal'] : ['error', 'fatal'];
    return this.log.filter(
      ({ level, message }) => levels.includes(level) && message !== 'the event loop is blocked',
    );
  }

  /** Its log as it is. */
  get logged(): readonly string[] {
    return this.#process.errors;
  }

  /** What it printed on stdout. */
  get stdout(): readonly string[] {
    return this.#process.lines.filter((line) => !this.#process.errors.includes(line));
  }

  /** The path of its configuration. */
  get file(): string {
    return join(this.#files.path, 'relay.json');
  }

  /** Replaces its configuration file, at once and whole; a string as it is. */
  configure(config: RelayConfig | string): void {
    const path = this.file;
    writeFileSync(
      `${path}.new`,
      typeof config === 'string' ? config : JSON.stringify(withDefaults(config, this.#given)),
    );
    renameSync(`${path}.new`, path);
  }

  /** The same, and waits until it is in force; a worker hears of it a moment later. */
  async reconfigure(config: RelayConfig): Promise<void> {
    const before = readFileSync(this.file, 'utf8');
    const reloads = (): Promise<number> => this.metric('config_reloads_total', 'result="accepted"');
    const count = await reloads();
    this.configure(config);
    if (readFileSync(this.file, 'utf8') === before) return;
    await eventually(async () => {
      if ((await reloads()) === count) throw new Error(`the configuration is not in force:\n${this.output}`);
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#process.signal(name);
  }

  /** Its exit code, or the name of the signal that ended it. */
  get exited(): Promise<number | string> {
    return this.#process.exited;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Its log's end. */
  get output(): string {
    return this.#process.output;
  }

  async get(path: string): Promise<Answer> {
    return get(`http://${this.admin}${path}`);
  }

  async rpc(method: string, body: object): Promise<Answer> {
    return send('POST', `http://${this.admin}/${method}`, JSON.stringify(body), 'application/json');
  }

  /** As ListClients lists them, of all workers. */
  clients() {
    return eventually(async () => {
      const { body } = await this.rpc('distributary.admin.v1.AdminService/ListClients', {});
      return listed.parse(JSON.parse(body)).clients;
    });
  }

  /** The sum of a metric's samples whose labels contain `labels`; NaN if there are none. */
  async metric(name: string, labels: string = ''): Promise<number> {
    const { body } = await this.get('/metrics');
    const samples = body
      .split('\n')
      .filter((line) => line.startsWith(`distributary_${name}{`) || line.startsWith(`distributary_${name} `))
      .filter((line) => line.includes(labels))
      .map((line) => Number(line.slice(line.lastIndexOf(' ') + 1)));
    return samples.length === 0 ? Number.NaN : samples.reduce((sum, value) => sum + value, 0);
  }

  /** Drains and ends: its exit code. */
  async stop(): Promise<number | string> {
    const how = await this.#process.stop();
    this.#files[Symbol.dispose]();
    return how;
  }

  async kill(): Promise<void> {
    await this.#process.stop('SIGKILL');
    this.#files[Symbol.dispose]();
  }

  /** Without an order that takes time and CPU, unless workers have sockets to remove, or a cache is to be saved. */
  async [Symbol.asyncDispose](): Promise<void> {
    await (this.#hasMoreToDo ? this.stop() : this.kill());
  }
}

/** An upstream at a control plane, as the configuration has it. */
export function upstream(endpoint: string, protocol: 'SOTW' | 'DELTA', changes: object = {}): object {
  return { name: 'central', ads: { endpoints: [endpoint], protocol, ...changes } };
}
