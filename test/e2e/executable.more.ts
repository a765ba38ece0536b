import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { root, type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { outcome, run } from './support/process.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const node = { id: 'client', cluster: 'fleet' };

describe('the single executable', function () {
  this.timeout(400_000);
  let place: TemporaryDirectory;
  let executable: string;

  before(async () => {
    place = temporaryDirectory();
    executable = join(place.path, 'distributary');
    const script = join(root, 'scripts/build-executable.ts');
    await run({ command: process.execPath, args: [script, '--output', executable] });
  });

  after(() => place[Symbol.dispose]());

  // Away from the project: nothing of it is found by chance.
  const distributary = (...args: readonly string[]) =>
    outcome({ command: executable, args, cwd: place.path, env: { TMPDIR: place.path } });

  it('knows its version and its commands, and carries the licences of what is in it', async () => {
    const version = /"version": "([^"]+)"/.exec(readFileSync(join(root, 'package.json'), 'utf8'))?.[1];
    // A second line warns where the Node inside has known faults.
    const said = await distributary('version');
    expect([said.code, said.output.split('\n')[0]]).to.deep.equal([0, version]);
    expect((await distributary('--help')).output).to.include('distributary COMMAND --help');
    expect((await distributary('rnu')).code).to.equal(2);
    const licences = readFileSync(join(place.path, 'LICENSES.txt'), 'utf8');
    for (const name of [`-${process.platform}-${process.arch}`, '@grpc/grpc-js', 'zod'])
      expect(licences).to.match(new RegExp(`^==== node_modules/\\S*${name}/`, 'm'));
    expect(licences).to.not.include('mocha');
  });

  it('validates a configuration with resources, for which it has the Envoy API inside', async () => {
    const config = join(place.path, 'relay.json');
    const path = join(root, 'deploy/demo/resources');
    const upstreams = [{ name: 'files', filesystem: { path } }];
    writeFileSync(config, JSON.stringify({ node, upstreams, xds: { address: '127.0.0.1:0' } }));
    const { code, output } = await distributary('validate', '--config', config);
    expect(output).to.include('ok');
    expect(code).to.equal(0);
  });

  it('shows the demo from files that it brings, and removes them', async () => {
    const { code, output } = await distributary('demo', '--once');
    expect(output).to.include('env == "test" and not exists(version)');
    expect(code).to.equal(0);
    const folder = /A relay over (\S+) and/.exec(output)?.[1] ?? '';
    expect(folder).to.include(join(place.path, 'distributary-demo-'));
    expect(statSync(folder, { throwIfNoEntry: false })).to.equal(undefined);
  });

  it('serves with workers, from files, and from a relay above with a cache on disk and traces', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    const options = { executable, cwd: place.path };
    await using above = await RelayProcess.start(
      { upstreams: [files.upstream], drain_timeout: '200ms' },
      options,
    );
    const cache = join(place.path, 'cache');
    await using below = await RelayProcess.start(
      {
        node: { id: 'below', cluster: 'relays' },
        upstreams: [upstream(above.xds, 'DELTA', { variants: 'NATIVE' })],
        cache: { persistence: { path: cache } },
        tracing: { otlp_endpoint: 'http://127.0.0.1:1', ratio: 1 },
        workers: 2,
        drain_timeout: '200ms',
      },
      options,
    );
    await using client = new XdsClient(below.xds, 'delta', { node });
    client.subscribe('cds');
    await client.gets('cds');
    files.write('cds', new Map([['shop', '2']]));
    await client.gets('cds');
    expect((await below.get('/')).body).to.include('<!doctype html>');
    await eventually(async () => expect((await below.get('/metrics')).body).to.include('worker="2"'));
    await eventually(() => expect(statSync(join(cache, 'cache.sqlite')).size).to.be.greaterThan(0));
    expect(below.faults()).to.deep.equal([]);
    expect(await below.stop()).to.equal(0);
  });

  it('says where it stands still, and aborts', async () => {
    using files = new ResourceFiles();
    const script = join(place.path, 'standstill.cjs');
    writeFileSync(script, "process.on('SIGUSR2', function standsStill() { for (;;); });");
    const env = { NODE_OPTIONS: `--require=${script}` };
    const config = { upstreams: [files.upstream], watchdog: { timeout: '3s' } };
    await using relay = await RelayProcess.start(config, { executable, cwd: place.path, env });
    relay.signal('SIGUSR2');
    expect(await relay.exited).to.equal('SIGABRT');
    expect(relay.log.at(-1)?.['stack']).to.match(/^standsStill /);
  });
});
