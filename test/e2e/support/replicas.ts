import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { ownPort } from '../../support/ports.ts';
import { eventually } from './eventually.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './paths.ts';
import { RelayProcess } from './relay.ts';
import { readyOf } from './relay-state.ts';

const probe = join(root, 'test/e2e/support/names-probe.ts');
export const peersName = 'peers.test';

interface ReplicaTls {
  /** Of their xds listeners. */
  readonly server?: object;
  /** Towards each other. */
  readonly client?: object;
}

/** Replicas of one relay under one host name, as a headless service has them: each on an address of its own. */
export class Replicas implements AsyncDisposable {
  readonly #files: TemporaryDirectory = temporaryDirectory();
  readonly #running = new Map<string, RelayProcess>();
  readonly #port: number;
  readonly #endpoint: string;
  readonly #tls: ReplicaTls;
  #next = 1;

  private constructor(port: number, endpoint: string, tls: ReplicaTls) {
    this.#tls = tls;
    this.#port = port;
    this.#endpoint = endpoint;
    this.#publish();
  }

  /** `endpoint`: of their control plane. */
  static async of(endpoint: string, tls: ReplicaTls = {}): Promise<Replicas> {
    return new Replicas(await ownPort(), endpoint, tls);
  }

  get all(): readonly RelayProcess[] {
    return [...this.#running.values()];
  }

  /** One more, with these keys beside the usual ones. */
  async start(more: object = {}): Promise<RelayProcess> {
    const host = `127.0.10.${this.#next++}`;
    const backoff = { initial: '20ms', max: '100ms' };
    const relay = await RelayProcess.start(
      {
        node: { id: `replica-${host}`, cluster: 'relays' },
        xds: { address: `${host}:${this.#port}`, ...(this.#tls.server && { tls: this.#tls.server }) },
        upstreams: [
          {
            name: 'central',
            ads: { endpoints: [this.#endpoint], backoff },
            siblings: {
              address: `${peersName}:${this.#port}`,
              ...(this.#tls.client && { tls: this.#tls.client }),
            },
          },
        ],
        drain_timeout: '100ms',
        ...more,
      },
      { flags: [`--import=${probe}`], env: { ...process.env, NAMES: this.#names } },
    );
    this.#running.set(host, relay);
    this.#publish();
    return relay;
  }

  async kill(relay: RelayProcess): Promise<void> {
    for (const [host, one] of this.#running) if (one === relay) this.#running.delete(host);
    this.#publish();
    await relay.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.all.map((relay) => relay.kill()));
    this.#files[Symbol.dispose]();
  }

  get #names(): string {
    return join(this.#files.path, 'names.json');
  }

  #publish(): void {
    writeFileSync(`${this.#names}.new`, JSON.stringify({ [peersName]: [...this.#running.keys()] }));
    renameSync(`${this.#names}.new`, this.#names);
  }
}

/** It serves what its siblings have. */
export async function isReadyAndStale(relay: RelayProcess): Promise<void> {
  await eventually(async () => {
    const { status, connected, stale } = await readyOf(relay);
    expect([status, connected, stale]).to.deep.equal([200, false, true]);
    expect(await relay.metric('upstream_from_siblings')).to.equal(1);
  });
}
