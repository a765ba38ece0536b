import { join } from 'node:path';
import { eventually } from '../../e2e/support/eventually.ts';
import { ResourceFiles } from '../../e2e/support/files.ts';
import { childrenOf } from '../../e2e/support/process-figures.ts';
import { RelayProcess, upstream } from '../../e2e/support/relay.ts';
import { writeVariants } from '../../e2e/support/variant-files.ts';
import { compiled, is } from '../../support/variants.ts';
import { Bystander } from './bystander.ts';
import { ChangingPlane } from './plane.ts';
import type { Stage } from './run-attack.ts';
import type { Target } from './target.ts';
import { SECRET, TenantFiles, tenantParameter, tenantsAuthorization, tenantsTls } from './tenants.ts';

const MB = 1024 * 1024;
const probe = join(import.meta.dirname, '../../e2e/support/memory-probe.ts');
/** The cluster of the well-behaved client. */
const changing = 'red-changing';

export type Kind = 'plain' | 'TLS' | 'workers';

export interface StageOptions {
  /** More of the configuration, at its top. */
  readonly config?: object;
  /** More of Node's flags. */
  readonly flags?: readonly string[];
  /** More upstreams, before the others. */
  readonly upstreams?: () => readonly object[];
}

/** A relay of the tests, with a control plane that changes something all the time, and somebody who watches it. */
export class RelayStage implements Stage, AsyncDisposable {
  readonly target: Target;
  readonly witness: Bystander;
  readonly relay: RelayProcess;
  readonly #pids: readonly number[];
  readonly #stack: AsyncDisposableStack;
  #ended: string | undefined;

  private constructor(target: Target, relay: RelayProcess, stack: AsyncDisposableStack) {
    this.target = target;
    this.relay = relay;
    this.#pids = target.pids ?? [];
    this.witness = stack.use(new Bystander({ target, cluster: changing, updates: true }));
    this.#stack = stack;
    void this.#watch();
  }

  static async start(
    kind: Kind,
    { config = {}, flags = [], upstreams = () => [] }: StageOptions = {},
  ): Promise<RelayStage> {
    await using stack = new AsyncDisposableStack();
    const clusters = { 'red-cluster': SECRET, 'blue-cluster': 'of blue', shop: 'x'.repeat(64_000) };
    const plane = stack.use(await ChangingPlane.start({ changing, clusters }));
    const files = stack.use(new ResourceFiles());
    writeSecrets(files);
    const pem = stack.use(new TenantFiles());
    const central = upstream(plane.address, 'DELTA', { resource_timeout: '500ms' });
    const relay = stack.use(
      await RelayProcess.start(
        {
          upstreams: [...upstreams(), { ...files.upstream, types: ['eds', 'sds'] }, central],
          parameters: [
            { key: 'env', from: 'node.metadata.env' },
            ...(kind === 'TLS' ? [tenantParameter] : []),
          ],
          xds: kind === 'TLS' ? { tls: pem.tls, authorization: tenantsAuthorization } : {},
          rest: kind === 'TLS' ? { tls: pem.tls } : {},
          workers: kind === 'workers' ? 2 : 0,
          cache: { max_bytes: 2 * MB },
          limits: { max_upstream_sessions: 20, stalled_timeout: '3s', first_request_timeout: '3s' },
          ...config,
        },
        { flags: ['--expose-gc', `--import=${probe}`, ...flags] },
      ),
    );
    await eventually(async () => {
      if ((await relay.get('/ready')).status !== 200) throw new Error('the relay is not ready');
    });
    const [host = '', port = ''] = relay.xds.split(':');
    const target: Target = {
      host,
      port: Number(port),
      rest: Number(relay.rest.split(':').at(-1)),
      tls: kind === 'TLS' ? tenantsTls : undefined,
      // Of the whole 127.0.0.0/8, on Linux alone.
      attackFrom: process.platform === 'linux' ? '127.0.0.2' : undefined,
      admin: `http://${relay.admin}`,
      pids: [relay.pid, ...childrenOf(relay.pid)],
    };
    return new RelayStage(target, relay, stack.move());
  }

  async memory(): Promise<number> {
    return (await this.relay.memory(this.#pids)).used;
  }

  alive(): string | undefined {
    return this.#ended;
  }

  async #watch(): Promise<void> {
    const how = await this.relay.exited;
    this.#ended = `the relay ended (${how}):\n${this.relay.output}`;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

/** Variants by tenant, and names of tenants. */
function writeSecrets(files: ResourceFiles): void {
  for (const type of ['eds', 'sds']) {
    writeVariants(files, type, [
      ['shop', SECRET, compiled(is('tenant', 'red'))],
      ['shop', 'of blue', compiled(is('tenant', 'blue'))],
      ['red-shop', SECRET, undefined],
    ]);
  }
}
