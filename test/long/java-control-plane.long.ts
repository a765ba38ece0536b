import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { javaControlPlane } from '../e2e/support/java-control-plane.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { Process, type Spawn } from '../e2e/support/process.ts';
import { RecipeCertificates, startRecipe, startRecipeEnvoy } from '../e2e/support/recipe.ts';
import { type EnvoySetting, prepareEnvoy } from '../e2e/support/setting.ts';
import { need } from '../e2e/support/skip.ts';

const patience = 60_000;

describe('deploy/recipes/java-control-plane', function () {
  this.timeout(5 * 60_000);
  let setting: EnvoySetting;
  let program: Spawn;

  before(async function () {
    setting = await prepareEnvoy(this);
    program = await need(this, javaControlPlane());
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('three proxies of two environments are two sessions; change, outage, restart of either', async () => {
    await using stack = new AsyncDisposableStack();
    const { one, two } = setting;
    const certificates = stack.use(new RecipeCertificates());
    const directory = stack.use(temporaryDirectory()).path;
    const backends = join(directory, 'backends.properties');
    const write = (prod: number, test: number): void =>
      writeFileSync(backends, `prod=127.0.0.1:${prod}\ntest=127.0.0.1:${test}\n`);
    const start = async (port: string): Promise<{ plane: Process; port: string }> => {
      const args = [...program.args, port, backends, certificates.path('control-plane'), '0'];
      const plane = new Process({ ...program, args });
      stack.defer(async () => {
        await plane.stop('SIGKILL');
      });
      const [, bound = ''] = await plane.line(/^listening (\d+)/, patience);
      return { plane, port: bound };
    };
    write(one.port, two.port);
    const { plane, port } = await start('0');
    const env = { CONTROL_PLANE: `127.0.0.1:${port}`, TLS: certificates.path('relay'), STATE: directory };
    const relay = stack.use(await startRecipe('java-control-plane/relay.yaml', env));
    const proxy = async (behind: typeof relay, id: string, env: string) =>
      stack.use(await startRecipeEnvoy(setting.envoyBinary, behind, certificates, { id, metadata: { env } }));
    const first = await proxy(relay, 'edge-1', 'prod');
    const second = await proxy(relay, 'edge-2', 'prod');
    const third = await proxy(relay, 'edge-3', 'test');
    for (const envoy of [first, second]) await envoy.answers('web', '/', 'one', patience);
    await third.answers('web', '/', 'two', patience);
    expect(await relay.metric('upstream_sessions')).to.equal(2);
    const seen = plane.lines.map((line) => / is of node (\S+)/.exec(line)?.[1]);
    expect(seen).to.include.members(['relay~prod', 'relay~test']);

    write(two.port, one.port);
    await first.answers('web', '/', 'two', patience);
    await third.answers('web', '/', 'one', patience);

    await plane.stop('SIGKILL');
    await second.answers('web', '/', 'two');
    for (const envoy of [first, second, third]) await envoy[Symbol.asyncDispose]();
    expect(await relay.stop()).to.equal(0);
    const again = stack.use(await startRecipe('java-control-plane/relay.yaml', env));
    const late = await proxy(again, 'edge-4', 'prod');
    await late.answers('web', '/', 'two', patience);

    write(one.port, two.port);
    await start(port);
    await late.answers('web', '/', 'one', patience);
  });
});
