import { chmodSync, existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { eventually } from '../e2e/support/eventually.ts';
import { ModelPlane } from '../e2e/support/model-plane.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { outcome } from '../e2e/support/process.ts';
import { distributary, RelayProcess } from '../e2e/support/relay.ts';
import { reaches } from '../e2e/support/rollout-state.ts';
import { Connections, type VariantClient } from '../e2e/support/variant-client.ts';
import { Webhook } from '../e2e/support/webhook.ts';
import { blocksOf } from './page.ts';

const page = blocksOf('docs/how-to/pipelines.md');
const blockOf = (info: string): string => page.find((block) => block.info === info)?.text ?? '';
const flagger = z.object({
  analysis: z.object({ webhooks: z.array(z.object({ metadata: z.object({ cmd: z.string() }) })) }),
});
const environments = ['canary', 'prod', 'prod', 'test'];

/** The relay of the document with four clients, its webhook, and a shell that has the command `distributary`. */
class World implements AsyncDisposable {
  readonly plane: ModelPlane;
  readonly webhook: Webhook;
  readonly relay: RelayProcess;
  readonly clients: readonly VariantClient[];
  /** Of clients that are not of the first wave: all that they were told. */
  readonly othersWereTold: string[] = [];
  readonly #connections: Connections;
  readonly #bin = temporaryDirectory();

  private constructor(plane: ModelPlane, webhook: Webhook, relay: RelayProcess) {
    this.plane = plane;
    this.webhook = webhook;
    this.relay = relay;
    this.#connections = new Connections(relay.xds);
    this.clients = environments.map((env, index) => {
      const node = { id: `${env}-${index}`, metadata: { env } };
      const accepts = (said: readonly string[]): boolean => {
        if (env !== 'canary') this.othersWereTold.push(...said);
        return true;
      };
      const client = this.#connections.open({ protocol: 'delta', node, accepts });
      client.want('cds', { names: ['*'] });
      return client;
    });
    const { command, args } = distributary();
    const file = join(this.#bin.path, 'distributary');
    const words = [command, ...args].map((word) => `'${word}'`).join(' ');
    writeFileSync(file, `#!/bin/sh\nexec ${words} "$@"\n`);
    chmodSync(file, 0o755);
  }

  static async start(): Promise<World> {
    const plane = await ModelPlane.start();
    plane.set('cds', { shop: '1' });
    const webhook = await Webhook.start();
    const relay = await RelayProcess.start(blockOf('yaml relay'), {
      env: { XDS: '127.0.0.1:0', ADMIN: '127.0.0.1:0', CONTROL_PLANE: plane.address, SMOKE: webhook.url },
    });
    const world = new World(plane, webhook, relay);
    await Promise.all(world.clients.map((client) => client.gets('cds', ['shop: 1'])));
    return world;
  }

  /** How many clients have this content. */
  having(content: string): number {
    return this.clients.filter((client) => client.has('cds').includes(`shop: ${content}`)).length;
  }

  /** Runs the script of the page; its `deploy` makes the control plane say this. */
  async deploys(content: Readonly<Record<string, string>>): ReturnType<World['sh']> {
    const asked = join(this.#bin.path, 'asked');
    const file = join(this.#bin.path, 'deploy');
    writeFileSync(file, `#!/bin/sh\ntouch '${asked}'\n`);
    chmodSync(file, 0o755);
    const over = this.sh(blockOf('sh'));
    await eventually(() => {
      expect(existsSync(asked)).to.equal(true);
    });
    this.plane.set('cds', content);
    return over;
  }

  sh(script: string): Promise<{ readonly code: number | string; readonly output: string }> {
    const env = {
      PATH: `${this.#bin.path}:${process.env['PATH'] ?? ''}`,
      DISTRIBUTARY_ADMIN: `http://${this.relay.admin}`,
    };
    return outcome({ command: 'sh', args: ['-c', script], env });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connections[Symbol.dispose]();
    await this.relay.kill();
    await this.plane[Symbol.asyncDispose]();
    this.webhook[Symbol.dispose]();
    this.#bin[Symbol.dispose]();
  }
}

describe('docs/how-to/pipelines.md', function () {
  this.timeout(240_000);

  it('the script takes a good change through the waves to everybody', async () => {
    await using world = await World.start();
    const { code, output } = await world.deploys({ shop: '2' });
    expect(code, output).to.equal(0);
    expect(world.having('2')).to.equal(environments.length);
    await reaches(world.relay, 'IDLE');
    expect(world.webhook.told.length).to.be.at.least(2);
  });

  it('the script ends at a check that is bad, and takes the change back from those who have it', async () => {
    await using world = await World.start();
    world.webhook.status = 500;
    const { code, output } = await world.deploys({ shop: 'bad' });
    expect(code, output).to.equal(1);
    await eventually(() => {
      expect(world.having('1')).to.equal(environments.length);
    });
    expect(world.othersWereTold.join()).to.include('shop').and.not.to.include('bad');
    await reaches(world.relay, 'IDLE');
  });

  it("the commands of Flagger's webhooks succeed one after another", async () => {
    await using world = await World.start();
    world.plane.set('cds', { shop: '2' });
    await reaches(world.relay, 'CANARY');
    const { webhooks } = flagger.parse(parse(blockOf('yaml'))).analysis;
    expect(webhooks).to.have.length(3);
    for (const { metadata } of webhooks) {
      const { code, output } = await world.sh(metadata.cmd);
      expect(code, `${metadata.cmd}: ${output}`).to.equal(0);
    }
    await eventually(() => {
      expect(world.having('2')).to.be.at.least(2);
    });
  });
});
