import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from './eventually.ts';
import { ModelPlane, realBody } from './model-plane.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { ClientPool, type RecordingClient } from './recording-client.ts';
import { type RelayConfig, RelayProcess } from './relay.ts';

const runtime = (name: string, fields: object): string =>
  JSON.stringify({ '@type': 'type.googleapis.com/envoy.service.runtime.v3.Runtime', name, layer: fields });

const classes = [
  ['prod', 9],
  ['test', 5],
  ['dev', 2],
] as const;

/** A relay with two upstreams and clients of three environments, as the status page would show it. */
export class PageWorld implements AsyncDisposable {
  readonly plane: ModelPlane;
  readonly relay: RelayProcess;
  readonly clients: readonly RecordingClient[];
  readonly pool: ClientPool;
  readonly #files: TemporaryDirectory;

  private constructor(
    plane: ModelPlane,
    relay: RelayProcess,
    pool: ClientPool,
    clients: readonly RecordingClient[],
    files: TemporaryDirectory,
  ) {
    this.plane = plane;
    this.relay = relay;
    this.pool = pool;
    this.clients = clients;
    this.#files = files;
  }

  /** Resolves when every client has what there is. */
  static async start(more: Partial<RelayConfig> = {}): Promise<PageWorld> {
    const files = temporaryDirectory();
    cpSync(join(root, 'deploy/demo/resources'), files.path, { recursive: true });
    const plane = await ModelPlane.start(realBody);
    plane.set('rtds', {
      flags: runtime('flags', { checkout: 1 }),
      limits: runtime('limits', { requests: 100 }),
    });
    const backoff = { initial: '20ms', max: '100ms' };
    const relay = await RelayProcess.start({
      node: { id: 'relay-eu-1', cluster: 'relays' },
      upstreams: [
        { name: 'central', types: ['rtds'], ads: { endpoints: [plane.address], backoff } },
        { name: 'files', filesystem: { path: files.path } },
      ],
      parameters: [{ key: 'env', from: 'node.id', pattern: '^([a-z]+)-' }],
      ...more,
    });
    const pool = new ClientPool(relay.xds, 4);
    const clients = classes.flatMap(([env, count]) =>
      Array.from({ length: count }, (_, index) => {
        const client = pool.open(index % 2 === 0 ? 'delta' : 'sotw', `${env}-${index + 1}`);
        subscribe(client, env === 'dev' ? [] : ['shop', 'web']);
        return client;
      }),
    );
    await eventually(() => {
      const behind = clients.filter((client) => client.holds.get('rtds')?.size !== 2);
      if (behind.length > 0) throw new Error(`${behind.length} clients do not have flags and limits yet`);
    });
    return new PageWorld(plane, relay, pool, clients, files);
  }

  get url(): string {
    return `http://${this.relay.admin}/`;
  }

  /** All of an environment. */
  of(env: string): readonly RecordingClient[] {
    const from = classes.findIndex(([name]) => name === env);
    const before = classes.slice(0, from).reduce((sum, [, count]) => sum + count, 0);
    return this.clients.slice(before, before + (classes[from]?.[1] ?? 0));
  }

  change(checkout: number): void {
    this.plane.set('rtds', {
      flags: runtime('flags', { checkout }),
      limits: runtime('limits', { requests: 100 }),
    });
  }

  /** Waves of changes, so that pictures of the charts show something. */
  async changeFor(milliseconds: number): Promise<void> {
    const end = Date.now() + milliseconds;
    for (let count = 0; Date.now() < end; count += 1) {
      this.plane.set('rtds', {
        flags: runtime('flags', { checkout: 1, count }),
        limits: runtime('limits', { requests: 100 }),
      });
      await sleep(300 + 250 * Math.sin(count / 25));
    }
    this.change(1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.pool[Symbol.dispose]();
    await this.relay[Symbol.asyncDispose]();
    await this.plane[Symbol.asyncDispose]();
    this.#files[Symbol.dispose]();
  }
}

/** `special`: what not every environment has. */
export function subscribe(client: RecordingClient, special: readonly string[] = ['shop', 'web']): void {
  client.subscribe('lds');
  client.subscribe('cds');
  if (special.includes('web')) client.subscribe('rds', ['web']);
  client.subscribe('eds', ['recommendations', ...special.filter((name) => name === 'shop')]);
  client.subscribe('rtds', ['flags', 'limits']);
}
