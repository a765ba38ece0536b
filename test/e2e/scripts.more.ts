import { cpSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { bundleRelay } from '../run/bundle.ts';
import { ownPort } from '../support/ports.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { outcome, Process } from './support/process.ts';

/** Says for each script whether V8 has taken the code that it was given. */
const probe = `
  const vm = require('node:vm');
  vm.Script = class extends vm.Script {
    constructor(text, options) {
      super(text, options);
      if (options.cachedData !== undefined) console.log('taken', require('node:path').basename(options.filename), !this.cachedDataRejected);
    }
  };
  require('node:module').syncBuiltinESMExports();`;

/** Of a function in src/commands/serve.ts. */
const beginning = 'function sayStart(';

describe('the scripts of dist/', () => {
  let directory: string;
  let copy: TemporaryDirectory;

  before(async () => {
    directory = dirname(process.env['TESTS_RELAY'] ?? (await bundleRelay()));
    copy = temporaryDirectory();
    cpSync(directory, join(copy.path, 'dist'), { recursive: true });
    for (const path of ['package.json', 'proto', 'deploy/demo'])
      cpSync(join(root, path), join(copy.path, path), { recursive: true });
  });

  after(() => copy[Symbol.dispose]());

  // Away from the project: no package is found by chance.
  const distributary = (...args: readonly string[]) =>
    outcome({ command: process.execPath, args: [join(copy.path, 'dist/main.js'), ...args], cwd: copy.path });
  const compiled = (within: string) => globSync(join(within, 'compiled/*/*'));

  it('are compiled by the build, and V8 takes that code, also where its memory is bounded', async () => {
    const preload = join(copy.path, 'probe.cjs');
    writeFileSync(preload, probe);
    for (const options of [[], ['--max-old-space-size=512', '--max-semi-space-size=8']]) {
      const args = ['--require', preload, ...options, join(copy.path, 'dist/main.js'), 'demo', '--once'];
      const { output } = await outcome({ command: process.execPath, args });
      expect(output.match(/^taken .*/gm)).to.deep.equal([
        'taken program.cjs true',
        'taken commands.cjs true',
        'taken relay.cjs true',
      ]);
    }
    const config = join(copy.path, 'relay.json');
    const address = '127.0.0.1:0';
    const upstreams = [{ name: 'files', filesystem: { path: join(copy.path, 'deploy/demo/resources') } }];
    const xds = { address: `127.0.0.1:${await ownPort()}` };
    const keys = { node: { id: 'relay' }, xds, admin: { address }, upstreams, workers: 1 };
    writeFileSync(config, JSON.stringify(keys));
    const relay = new Process({
      command: process.execPath,
      args: [join(copy.path, 'dist/main.js'), 'run', '--config', config],
      env: { NODE_OPTIONS: `--require=${preload}` },
    });
    await relay.line(/^listening admin /);
    expect(await relay.stop()).to.equal(0);
    const ofRelays = relay.output.match(/^taken relay.*/gm);
    expect(ofRelays, 'of the primary and its worker').to.deep.equal([
      'taken relay.cjs true',
      'taken relay.cjs true',
    ]);
  });

  it('run with nothing installed, with code that V8 refuses, and without any', async () => {
    const demo = async (): Promise<void> => {
      const { code, output } = await distributary('demo', '--once');
      expect(output).to.include('each client got the variant for its environment');
      expect(code).to.equal(0);
    };
    await demo();
    for (const file of compiled(join(copy.path, 'dist')))
      writeFileSync(file, readFileSync(file).subarray(0, 1000));
    await demo();
    rmSync(join(copy.path, 'dist/compiled'), { recursive: true });
    await demo();
  });

  describe('where V8 is given the wrong code', () => {
    const success = 'each client got the variant for its environment';
    let damaged: TemporaryDirectory;
    beforeEach(() => {
      damaged = temporaryDirectory();
      cpSync(copy.path, damaged.path, { recursive: true });
      cpSync(join(directory, 'compiled'), join(damaged.path, 'dist/compiled'), { recursive: true });
    });
    afterEach(() => damaged[Symbol.dispose]());

    const demo = () =>
      outcome({ command: process.execPath, args: [join(damaged.path, 'dist/main.js'), 'demo', '--once'] });

    it('as a disk has damaged it: compile the text', async () => {
      for (const file of compiled(join(damaged.path, 'dist'))) {
        const code = readFileSync(file);
        writeFileSync(file, code.fill(0xff, code.length / 2, code.length / 2 + 1000));
      }
      const { code, output } = await demo();
      expect(output).to.include(success);
      expect(code).to.equal(0);
    });

    it('of another text of the same length: run the text', async () => {
      const main = join(damaged.path, 'dist/main.js');
      const file = join(damaged.path, 'dist/commands.cjs');
      writeFileSync(file, readFileSync(file, 'latin1').replaceAll('Usage: ', 'USAGE: '));
      const { output } = await outcome({ command: process.execPath, args: [main, '--help'] });
      expect(output).to.include('USAGE: ');
    });

    it('that cannot be read: compile the text', async () => {
      for (const file of compiled(join(damaged.path, 'dist'))) {
        rmSync(file);
        mkdirSync(file);
      }
      expect((await demo()).output).to.include(success);
    });
  });

  it('have source maps, by which scripts/stack.ts says where in src/ a place is', async () => {
    const place = (file: string): { readonly row: number; readonly column: number } => {
      const lines = readFileSync(file, 'latin1').split('\n');
      const index = lines.findIndex((line) => line.includes(beginning));
      return { row: index + 1, column: (lines[index]?.indexOf(beginning) ?? -1) + 1 };
    };
    const [of, is] = [place(join(directory, 'relay.cjs')), place(join(root, 'src/commands/serve.ts'))];
    const text = `at sayStart (/app/dist/relay.cjs:${of.row}:${of.column}), at /app/dist/unknown.cjs:1:1`;
    const command = `echo '${text}' | '${process.execPath}' scripts/stack.ts '${directory}'`;
    const { output } = await outcome({ command: 'sh', args: ['-c', command], cwd: root });
    expect(output.trim()).to.equal(
      `at sayStart (src/commands/serve.ts:${is.row}:${is.column}), at /app/dist/unknown.cjs:1:1`,
    );
  });
});
