import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { parseConfig } from '../../src/config/load.ts';
import { envoyBinary } from '../e2e/support/envoy-binary.ts';
import { run } from '../e2e/support/process.ts';
import { recipePath } from '../e2e/support/recipe.ts';
import { need } from '../e2e/support/skip.ts';

const root = recipePath('');
const index = readFileSync(join(root, 'README.md'), 'utf8');

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

  it('has bootstraps that Envoy reads', async function () {
    this.timeout(60_000);
    const envoy = await need(this, envoyBinary());
    const files = globSync('**/envoy.yaml', { cwd: root });
    expect(files).to.have.length.of.at.least(2);
    for (const file of files) {
      const text = readFileSync(join(root, file), 'utf8').replace(/^ {6}transport_socket:[^]*/m, '');
      await run({ command: envoy, args: ['--mode', 'validate', '--config-yaml', text] });
    }
  });
});
