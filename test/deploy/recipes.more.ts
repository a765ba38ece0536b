import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { z } from 'zod';
import { parseConfig } from '../../src/config/load.ts';
import { envoyBinary } from '../e2e/support/envoy-binary.ts';
import { run } from '../e2e/support/process.ts';
import { recipePath } from '../e2e/support/recipe.ts';
import { need } from '../e2e/support/skip.ts';

const root = recipePath('');
const index = readFileSync(join(root, 'README.md'), 'utf8');

const bootstrap = z.looseObject({
  node: z.looseObject({ id: z.string() }),
  admin: z.object({ address: z.object({ socket_address: z.looseObject({ port_value: z.number() }) }) }),
});

describe('deploy/recipes', () => {
  it('has for each recipe a page in the list, and configurations that are accepted as they are', () => {
    const files = globSync('**/relay.yaml', { cwd: root });
    expect(files).to.have.length.of.at.least(8);
    for (const file of files) {
      const [recipe = ''] = dirname(file).split('/');
      expect(existsSync(join(root, recipe, 'README.md')), recipe).to.equal(true);
      expect(index).to.include(`(${recipe}/README.md)`);
      const parsed = parseConfig(readFileSync(join(root, file), 'utf8'), file, {});
      expect(parsed.ok || parsed.error, file).to.equal(true);
    }
  });

  it('envoy-gateway: the commands put each file where Envoy Gateway looks for it', () => {
    const page = readFileSync(join(root, 'envoy-gateway/README.md'), 'utf8');
    const [gateway, proxies] = ['envoy-gateway/envoy-gateway.yaml', 'envoy-gateway/gateway.yaml'].map(
      (file) => readFileSync(join(root, file), 'utf8'),
    );
    const resources = /paths: \[(.*)\]/.exec(gateway ?? '')?.[1] ?? '';
    expect(page).to.include(`mkdir -p ${resources}\ncp gateway.yaml ${resources}/\n`);
    const data = /dataHome: (\S+)/.exec(gateway ?? '')?.[1] ?? '';
    const version = /envoyVersion: ([\d.]+)/.exec(proxies ?? '')?.[1] ?? '';
    expect(page).to.include(`cp no-proxy ${data}/envoy-versions/${version}/bin/envoy\n`);
    expect(statSync(join(root, 'envoy-gateway/no-proxy')).mode & 0o111).to.equal(0o111);
    const port = /address: 127\.0\.0\.1, port: (\d+)/.exec(proxies ?? '')?.[1] ?? '';
    expect(page).to.include(`127.0.0.1:${port}`).and.to.include(`http.server ${port} `);
  });

  it('envoy-gateway: the second proxy has an id and an admin port of its own, and Envoy reads that', async function () {
    const envoy = await need(this, envoyBinary());
    const page = readFileSync(join(root, 'envoy-gateway/README.md'), 'utf8');
    const [, baseId = '', more = ''] =
      /envoy\.yaml --base-id (\d+) --config-yaml \\\n +"(.*)"/.exec(page) ?? [];
    const first = bootstrap.parse(parse(readFileSync(join(root, 'envoy-gateway/envoy.yaml'), 'utf8')));
    const second = bootstrap.parse(parse(more));
    expect(second.node.id).not.to.equal(first.node.id);
    const portOf = ({ admin }: typeof first): number => admin.address.socket_address.port_value;
    expect(portOf(second)).not.to.equal(portOf(first));
    await run({ command: envoy, args: ['--mode', 'validate', '--base-id', baseId, '--config-yaml', more] });
  });

  it('has bootstraps that Envoy reads', async function () {
    const envoy = await need(this, envoyBinary());
    const files = globSync('**/envoy.yaml', { cwd: root });
    expect(files).to.have.length.of.at.least(2);
    for (const file of files) {
      const text = readFileSync(join(root, file), 'utf8').replace(/^ {6}transport_socket:[^]*/m, '');
      await run({ command: envoy, args: ['--mode', 'validate', '--config-yaml', text] });
    }
  });
});
