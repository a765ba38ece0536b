import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Result } from '../../../src/model/result.ts';
import { debianBinaries } from './debian.ts';
import { eventually } from './eventually.ts';
import { get } from './http.ts';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { outcome, Process } from './process.ts';

/** The directory of Debian's `prometheus` and `promtool`. */
export const prometheusBinaries = (): Promise<Result<string>> => debianBinaries('prometheus');

/** Runs promtool to its end. `stdin`: a file. */
export function promtool(
  binaries: string,
  args: readonly string[],
  { cwd = '.', stdin = '/dev/null' }: { readonly cwd?: string; readonly stdin?: string } = {},
): ReturnType<typeof outcome> {
  const command = [join(binaries, 'promtool'), ...args];
  return outcome({ command: 'sh', args: ['-c', '"$@" <"$0"', stdin, ...command], cwd });
}

const answer = z.object({
  status: z.literal('success'),
  data: z.object({
    result: z.array(
      z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) }),
    ),
  }),
});

/** A sample of an answer: its labels and its value. */
type PromSample = z.infer<typeof answer>['data']['result'][number];

/** A real Prometheus that scrapes these every second. */
export class Prometheus implements AsyncDisposable {
  readonly #process: Process;
  readonly #address: string;
  readonly #files: TemporaryDirectory;

  private constructor(process: Process, address: string, files: TemporaryDirectory) {
    this.#process = process;
    this.#address = address;
    this.#files = files;
  }

  /** `targets`: HOST:PORT. `rules`: files with rules. */
  static async start(
    binaries: string,
    targets: readonly string[],
    rules: readonly string[],
  ): Promise<Prometheus> {
    const files = temporaryDirectory();
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: rules,
      scrape_configs: [{ job_name: 'distributary', static_configs: [{ targets }] }],
    };
    const path = join(files.path, 'prometheus.json');
    writeFileSync(path, JSON.stringify(config));
    const child = new Process({
      command: join(binaries, 'prometheus'),
      args: [
        `--config.file=${path}`,
        `--storage.tsdb.path=${join(files.path, 'data')}`,
        '--web.listen-address=127.0.0.1:0',
      ],
    });
    // Depending on its version.
    const line = await child.line(/(?:address=|"|on )(127\.0\.0\.1:(?!0\b)\d+)/);
    const started = new Prometheus(child, line[1] ?? '', files);
    await eventually(async () => {
      if ((await get(`http://${started.#address}/-/ready`)).status !== 200) throw new Error('not ready');
    });
    return started;
  }

  /** What an expression is now. */
  async query(expression: string): Promise<readonly PromSample[]> {
    const { body } = await get(
      `http://${this.#address}/api/v1/query?query=${encodeURIComponent(expression)}`,
    );
    const parsed = answer.safeParse(JSON.parse(body));
    if (!parsed.success) throw new Error(`${expression}: ${body}`);
    return parsed.data.data.result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop();
    this.#files[Symbol.dispose]();
  }
}
