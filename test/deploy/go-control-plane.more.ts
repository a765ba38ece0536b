import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import type { Envoy } from '../e2e/support/envoy.ts';
import { always, eventually } from '../e2e/support/eventually.ts';
import { goBinary } from '../e2e/support/go.ts';
import { get } from '../e2e/support/http.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { Process } from '../e2e/support/process.ts';
import { RecipeCertificates, recipePath, startRecipe, startRecipeEnvoy } from '../e2e/support/recipe.ts';
import type { RelayProcess } from '../e2e/support/relay.ts';
import { type EnvoySetting, prepareEnvoy } from '../e2e/support/setting.ts';
import { need } from '../e2e/support/skip.ts';
import { ownPort } from '../support/ports.ts';

const recipe = 'go-control-plane';

/** A proxy, and the group of the backends file that it must get. */
interface Proxy {
  readonly id: string;
  readonly metadata?: object;
  readonly group: string;
}

interface Kind {
  readonly name: string;
  readonly proxies: readonly Proxy[];
  /** The node ids that the control plane sees. */
  readonly nodes: readonly string[];
}

const byEnv: readonly Proxy[] = [
  { id: 'edge-1', metadata: { env: 'prod' }, group: 'prod' },
  { id: 'edge-2', metadata: { env: 'prod' }, group: 'prod' },
  { id: 'edge-3', metadata: { env: 'test' }, group: 'test' },
];

const kinds: readonly Kind[] = [
  {
    name: 'snapshot-by-id',
    proxies: [
      { id: 'edge-7f9c', group: 'edge' },
      { id: 'edge-b4d1', group: 'edge' },
      { id: 'internal-1', group: 'internal' },
    ],
    nodes: ['edge', 'internal'],
  },
  { name: 'snapshot-by-metadata', proxies: byEnv, nodes: ['relay~prod', 'relay~test'] },
  {
    name: 'linear',
    proxies: [
      { id: 'edge-1', group: 'everybody' },
      { id: 'edge-2', group: 'everybody' },
    ],
    nodes: ['relay'],
  },
  { name: 'mux', proxies: byEnv, nodes: ['relay~prod', 'relay~test'] },
];

/** A kind of cache as its recipe has it: control plane, relay and proxies, with mutual TLS between all of them. */
class RecipeStage implements AsyncDisposable {
  readonly #kind: string;
  readonly #program: string;
  readonly #envoy: string;
  readonly #stack = new AsyncDisposableStack();
  readonly #certificates = this.#stack.use(new RecipeCertificates());
  readonly #state = this.#stack.use(temporaryDirectory()).path;
  readonly #backends = join(this.#stack.use(temporaryDirectory()).path, 'backends.json');

  constructor(kind: string, program: string, envoy: string) {
    this.#kind = kind;
    this.#program = program;
    this.#envoy = envoy;
  }

  /** What the control plane reads at its start and at SIGHUP. */
  write(ports: Readonly<Record<string, number>>): void {
    const all = Object.entries(ports).map(([group, port]) => [group, `127.0.0.1:${port}`]);
    writeFileSync(this.#backends, JSON.stringify(Object.fromEntries(all)));
  }

  /** `listen`: where it was before. */
  async controlPlane(listen?: string): Promise<{ plane: Process; address: string }> {
    const tls = this.#certificates.path('control-plane');
    const address = listen ?? `127.0.0.1:${await ownPort()}`;
    const args = ['-listen', address, '-backends', this.#backends, '-listener-port', '0', '-tls', tls];
    const plane = new Process({ command: this.#program, args });
    this.#stack.defer(async () => {
      await plane.stop('SIGKILL');
    });
    await plane.line(/^listening /);
    return { plane, address };
  }

  async relay(controlPlane: string): Promise<RelayProcess> {
    const env = { CONTROL_PLANE: controlPlane, TLS: this.#certificates.path('relay'), STATE: this.#state };
    return this.#stack.use(await startRecipe(`${recipe}/${this.#kind}/relay.yaml`, env));
  }

  async envoy(relay: RelayProcess, proxy: Proxy): Promise<Envoy> {
    return this.#stack.use(await startRecipeEnvoy(this.#envoy, relay, this.#certificates, proxy));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

describe('deploy/recipes/go-control-plane', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const { name, proxies, nodes } of kinds) {
    it(`${name}: ${proxies.length} proxies are ${nodes.length} sessions; change, outage, restart of either`, async function () {
      const program = await need(this, goBinary(name, recipePath(recipe)));
      await using stage = new RecipeStage(name, program, setting.envoyBinary);
      const { one, two } = setting;
      const [first = ''] = proxies.map(({ group }) => group);
      const groups = [...new Set(proxies.map(({ group }) => group))];
      const answers = (changed: boolean) => (group: string) => ((group === first) === changed ? one : two);
      const write = (changed: boolean): void =>
        stage.write(Object.fromEntries(groups.map((group) => [group, answers(changed)(group).port])));

      write(true);
      const { plane, address } = await stage.controlPlane();
      const relay = await stage.relay(address);
      const envoys: { readonly envoy: Envoy; readonly proxy: Proxy }[] = [];
      for (const proxy of proxies) envoys.push({ envoy: await stage.envoy(relay, proxy), proxy });
      const all = async (changed: boolean): Promise<void> => {
        for (const { envoy, proxy } of envoys)
          await envoy.answers('web', '/', answers(changed)(proxy.group).name);
      };
      await all(true);
      expect(await relay.metric('upstream_sessions')).to.equal(nodes.length);
      await eventually(() => {
        const seen = plane.lines.map((line) => / is of node (\S+)/.exec(line)?.[1]);
        expect(new Set(seen.filter((node) => node !== undefined))).to.deep.equal(new Set(nodes));
      });

      write(false);
      plane.signal('SIGHUP');
      await all(false);

      await plane.stop('SIGKILL');
      const [before] = envoys;
      if (before === undefined) throw new Error('no proxy');
      const url = await before.envoy.url('web');
      const last = answers(false)(before.proxy.group).name;
      await always(async () => {
        expect((await get(url)).body).to.equal(last);
      }, 500);
      // A relay drains for as long as it has clients.
      for (const { envoy } of envoys) await envoy[Symbol.asyncDispose]();
      expect(await relay.stop()).to.equal(0);
      const again = await stage.relay(address);
      const cold = await stage.envoy(again, before.proxy);
      await cold.answers('web', '/', last);
      expect((await again.get('/ready')).status, 'ready by what is on disk').to.equal(200);

      write(true);
      await stage.controlPlane(address);
      await cold.answers('web', '/', answers(true)(before.proxy.group).name, 90_000);
      await eventually(async () => {
        expect(await again.metric('upstream_connected')).to.equal(1);
        expect(plane.lines.filter((line) => line.includes(' rejects '))).to.deep.equal([]);
      });
    });
  }
});
