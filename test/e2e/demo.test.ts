import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { root, temporaryDirectory } from './support/paths.ts';
import { outcome, Process } from './support/process.ts';
import { distributary } from './support/relay.ts';

describe('demo', () => {
  it('says which file is broken, and where, and what to type to look at a change and to undo it', async () => {
    using copy = temporaryDirectory();
    // It serves the files next to its own code.
    for (const name of ['src', 'deploy/demo', 'package.json'])
      cpSync(join(root, name), join(copy.path, name), { recursive: true });
    for (const name of ['node_modules', 'proto']) symlinkSync(join(root, name), join(copy.path, name));
    const demo = new Process({
      command: process.execPath,
      args: [join(copy.path, 'src/main.ts'), 'demo'],
    });
    try {
      await eventually(() => expect(demo.lines.join('\n')).to.include('Edit a file in'));
      const file = join(copy.path, 'deploy/demo/resources/routes.yaml');
      const good = readFileSync(file, 'utf8');
      writeFileSync(file, 'resources:\n  - "@type": [\n');
      const said = /WARN +\S+routes\.yaml:\d+:/;
      await eventually(() => expect(demo.errors.join('\n')).to.match(said));
      writeFileSync(file, good);
      await eventually(() => expect(demo.errors.join('\n')).to.match(/INFO +resolved: \S+routes\.yaml/));

      writeFileSync(file, good.replaceAll('cluster: shop', 'cluster: other'));
      const routes = () => demo.lines.filter((line) => /^\[\w+\] +rds +web/.test(line));
      await eventually(() => expect(routes()).to.have.length.above(3));
      const printed = new Map<string, string>();
      for (const [, line = ''] of demo.lines
        .join('\n')
        .matchAll(/^ {2}.*src\/main\.ts ((?:history|diff|rollback|unfreeze) .*)$/gm)) {
        const { code, output } = await outcome(distributary(...line.split(' ')));
        expect(code, output).to.equal(0);
        printed.set(line.split(' ', 1)[0] ?? '', output);
      }
      expect([...printed.keys()]).to.deep.equal(['history', 'diff', 'rollback', 'unfreeze']);
      expect(printed.get('diff')).to.match(/changed +rds +web/);
      expect(printed.get('rollback')).to.match(/^rolled back to revision 4: /);
    } finally {
      demo.signal('SIGTERM');
      expect(await demo.exited).to.equal(0);
    }
  });
});
