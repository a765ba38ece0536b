import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fail, ok, type Result } from '../../../src/model/result.ts';
import { type Answer, get, send } from './http.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { Process } from './process.ts';

/** The configuration's keys as the contract has them. Addresses default to any free port. */
export interface RelayConfig {
  readonly upstreams: readonly object[];
  readonly [key: string]: unknown;
}

const main = join(root, 'src/main.ts');
const run = join(root, 'src/commands/run.ts');

/** Path of the command. */
export async function relayCommand(): Promise<Result<string>> {
  return existsSync(main) && existsSync(run) ? ok(main) : fail('the relay has no command run yet');
}

/** The relay as users run it: a process of its own. */
export class RelayProcess implements AsyncDisposable {
  /** HOST:PORT. */
  readonly xds: string;
  readonly admin: string;
  readonly #process: Process;
  readonly #files: TemporaryDirectory;

  private constructor(child: Process, xds: string, admin: string, files: TemporaryDirectory) {
    this.#process = child;
    this.xds = xds;
    this.admin = admin;
    this.#files = files;
  }

  /** Resolves when it listens. */
  static async start(config: RelayConfig): Promise<RelayProcess> {
    const files = temporaryDirectory();
    const path = join(files.path, 'relay.json');
    const any = '127.0.0.1:0';
    const whole = {
      node: { id: 'relay', cluster: 'relays' },
      xds: { address: any },
      admin: { address: any },
      ...config,
    };
    writeFileSync(path, JSON.stringify(whole));
    const args = ['--disable-warning=ExperimentalWarning', main, 'run', '--config', path];
    const child = new Process({ command: process.execPath, args });
    const xds = await child.line(/^listening xds (\S+)/);
    const admin = await child.line(/^listening admin (\S+)/);
    return new RelayProcess(child, xds[1] ?? '', admin[1] ?? '', files);
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
    return send('POST', `http://${this.admin}/${method}`, JSON.stringify(body));
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

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/** An upstream at a control plane, as the configuration has it. */
export function upstream(endpoint: string, protocol: 'SOTW' | 'DELTA', changes: object = {}): object {
  return { name: 'central', ads: { endpoints: [endpoint], protocol, ...changes } };
}
