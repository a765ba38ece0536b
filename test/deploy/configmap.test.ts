import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { expect } from 'chai';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { ConfigMapVolume } from '../e2e/support/config-map.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { RecipeCertificates, recipePath, startRecipe, startRecipeEnvoy } from '../e2e/support/recipe.ts';
import { type EnvoySetting, prepareEnvoy } from '../e2e/support/setting.ts';

const read = (path: string): string => readFileSync(recipePath(`configmap/${path}`), 'utf8');

const manifest = z.looseObject({ kind: z.string() });

const generators = z
  .object({ configMapGenerator: z.array(z.object({ name: z.string(), files: z.array(z.string()) })) })
  .parse(parse(read('kustomization.yaml'))).configMapGenerator;

/** The data of a ConfigMap of the recipe, with other ports than the recipe's. */
function dataOf(name: string, ports: Readonly<Record<number, number>>): Map<string, string> {
  const files = generators.find((one) => one.name === name)?.files ?? [];
  const replaced = (text: string): string =>
    text.replaceAll(/(?<=port_value: )\d+/g, (port) => String(ports[Number(port)] ?? port));
  return new Map(files.map((file) => [basename(file), replaced(read(file))]));
}

describe('deploy/recipes/configmap', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('each proxy gets its variant; an update of the volume arrives, a bad one does not, a restart needs nobody', async () => {
    await using stack = new AsyncDisposableStack();
    const certificates = stack.use(new RecipeCertificates());
    const volume = stack.use(new ConfigMapVolume());
    const { one, two } = setting;
    const first = dataOf('resources', { 8080: 0, 9001: one.port, 9002: two.port });
    volume.update(first);
    const env = { RESOURCES: volume.path, TLS: certificates.path('relay'), METRICS: '127.0.0.1:0' };
    const relay = stack.use(await startRecipe('configmap/relay.yaml', env));
    const proxy = async (env: string) =>
      stack.use(
        await startRecipeEnvoy(setting.envoyBinary, relay, certificates, { id: env, metadata: { env } }),
      );
    const [prod, test] = [await proxy('prod'), await proxy('test')];
    await prod.answers('web', '/', 'one');
    await test.answers('web', '/', 'two');

    const swapped = dataOf('resources', { 8080: 0, 9001: two.port, 9002: one.port });
    volume.update(swapped);
    await prod.answers('web', '/', 'two');
    await test.answers('web', '/', 'one');

    volume.update(new Map([...first, ['endpoints.yaml', 'resources: [{ "@type": no such type']]));
    await eventually(async () => {
      const rejected = await relay.metric('upstream_updates_total', 'result="rejected"');
      expect(rejected).to.be.greaterThan(0);
    });
    await prod.answers('web', '/', 'two');

    volume.update(first);
    await prod.answers('web', '/', 'one');
    for (const envoy of [prod, test]) await envoy[Symbol.asyncDispose]();
    await relay.kill();

    const again = stack.use(await startRecipe('configmap/relay.yaml', env));
    const node = { id: 'test', metadata: { env: 'test' } };
    const late = stack.use(await startRecipeEnvoy(setting.envoyBinary, again, certificates, node));
    await late.answers('web', '/', 'two');
    expect((await again.get('/ready')).status).to.equal(200);
  });

  it('has every file of the recipe in a ConfigMap, mounted as a directory', () => {
    expect(
      generators.map(({ name, files }) => [name, files.map((file) => basename(file)).toSorted()]),
    ).to.have.deep.members([
      ['relay', ['relay.yaml']],
      ['resources', ['clusters.yaml', 'endpoints.yaml', 'listeners.yaml', 'routes.yaml']],
    ]);
    const kinds = parseAllDocuments(read('deployment.yaml')).map((one) => manifest.parse(one.toJSON()).kind);
    expect(kinds).to.include.members(['Deployment', 'Service']);
    expect(read('deployment.yaml')).to.not.match(/^\s+subPath:/m);
  });
});
