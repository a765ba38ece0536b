import { z } from 'zod';
import type { Result } from '../../../src/model/result.ts';
import { ownPort } from '../../support/ports.ts';
import { goBinary } from './go.ts';
import { send } from './http.ts';
import { Process } from './process.ts';
import type { Resource } from './resources.ts';

/** Path of the control plane's binary, built once; the error says why there is none. */
export const controlPlaneBinary = (): Promise<Result<string>> => goBinary('controlplane');

/** The same with go-control-plane 0.13.4, which is silent about a name that comes back (protocol §3.9). */
export const olderControlPlaneBinary = (): Promise<Result<string>> =>
  goBinary('controlplane-0.13.4', undefined, './controlplane', 'go-control-plane-0.13.4.work');

/** A NULL of Go's is an empty list. */
const list = <T extends z.ZodType>(of: T) =>
  z
    .array(of)
    .nullable()
    .transform((all) => all ?? []);

const asked = z.object({
  stream: z.number(),
  protocol: z.enum(['sotw', 'delta']),
  type: z.string(),
  node: z
    .object({ id: z.string().default(''), cluster: z.string().default('') })
    .loose()
    .optional(),
  /** Delta: subscribe. */
  names: list(z.string()),
  unsubscribe: list(z.string()),
  locators: list(z.object({ name: z.string(), parameters: z.record(z.string(), z.string()).nullable() })),
  version: z.string(),
  nonce: z.string(),
  nack: z.boolean(),
  error: z.string(),
  initialVersions: z.record(z.string(), z.string()).default({}),
});
/** Of one cluster, of all load reports that it got; what is in progress is of the last. */
const load = z.object({
  issued: z.number(),
  succeeded: z.number(),
  failed: z.number(),
  inProgress: z.number(),
  dropped: z.number(),
  categories: z.record(z.string(), z.number()),
  metrics: z.record(z.string(), z.object({ requests: z.number(), sum: z.number() })),
});
const stats = z.object({
  opened: z.number(),
  open: z.number(),
  requests: z.array(asked),
  loads: z.record(z.string(), load),
});

/** One request that the control plane got. */
type Asked = z.infer<typeof asked>;
/** `opened`: streams since the start; `open`: streams now; the requests in order. */
export type Stats = z.infer<typeof stats>;

export interface ControlPlaneOptions {
  /** A SnapshotCache, or a LinearCache per type. */
  readonly cache: 'snapshot' | 'linear';
  /** SnapshotCache's own flag `ads`: types in order, and no answer to a request that names less than there is. */
  readonly ordered?: boolean;
  /** What a Snapshot is kept by: one for all nodes, node.id, or node.metadata.env. */
  readonly key?: 'one' | 'id' | 'env';
  /** Reads resource_locators as plain names, which it ignores by default. */
  readonly locators?: boolean;
  /** False: only the services of single types. */
  readonly ads?: boolean;
  /** It takes load reports of all clusters, so often (a duration of Go's). */
  readonly load?: string;
  /** To start again where another one was: it serves from the first `set` on. */
  readonly address?: string;
}

/** go-control-plane, with what it was asked. */
export class ControlPlane implements AsyncDisposable {
  /** HOST:PORT of its xDS server. */
  readonly address: string;
  readonly #process: Process;
  readonly #control: string;
  #version = 0;

  private constructor(child: Process, address: string, control: string) {
    this.#process = child;
    this.address = address;
    this.#control = control;
  }

  static async start(binary: string, options: ControlPlaneOptions): Promise<ControlPlane> {
    const { cache, key = 'one', ordered = false, locators = false, ads = true, load = '0' } = options;
    const { address = `127.0.0.1:${await ownPort()}` } = options;
    // Where another one was, clients wait: they must not be told that there is nothing before `set` has come.
    const hold = options.address !== undefined;
    const flags = [
      `-ordered=${ordered}`,
      `-locators=${locators}`,
      `-ads=${ads}`,
      `-load=${load}`,
      `-hold=${hold}`,
    ];
    const args = ['-cache', cache, '-key', key, ...flags, '-listen', address];
    const child = new Process({ command: binary, args });
    const xds = await child.line(/^listening xds (\S+)/);
    const control = await child.line(/^listening control (\S+)/);
    return new ControlPlane(child, xds[1] ?? '', control[1] ?? '');
  }

  /** From now on it has these and nothing else; with a key, for those nodes. The version grows by itself. */
  async set(
    resources: readonly Resource[],
    options: { readonly key?: string; readonly version?: string } = {},
  ): Promise<void> {
    this.#version += 1;
    const { key = '*', version = String(this.#version) } = options;
    const body = JSON.stringify({ version, key, resources });
    const answer = await send('PUT', `http://${this.#control}/resources`, body);
    if (answer.status !== 204) throw new Error(`the control plane refused: ${answer.body}`);
  }

  async stats(): Promise<Stats> {
    const answer = await send('GET', `http://${this.#control}/stats`);
    return stats.parse(JSON.parse(answer.body));
  }

  /** Killed, as a crash would. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop('SIGKILL');
  }
}

/**
 * What is subscribed on each stream at least once: `type name` or, for a locator, `type name {parameters}`. A wildcard
 * without names is `type *`.
 */
export function subscriptions({ requests }: Stats): readonly string[] {
  const all = requests.flatMap((request) => [
    ...(opensWildcard(request, requests) ? [`${request.stream} ${request.type} *`] : []),
    ...request.names.map((name) => `${request.stream} ${request.type} ${name}`),
    ...request.locators.map(
      ({ name, parameters }) =>
        `${request.stream} ${request.type} ${name} ${JSON.stringify(parameters ?? {})}`,
    ),
  ]);
  return [...new Set(all)].map((line) => line.slice(line.indexOf(' ') + 1));
}

function opensWildcard(request: Asked, requests: readonly Asked[]): boolean {
  const first = requests.find(({ stream, type }) => stream === request.stream && type === request.type);
  return request === first && request.names.length === 0 && request.locators.length === 0;
}
