import { chmodSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { any, type, when } from '../support/in-memory-relay.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { ClientPool } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { notTyped, Operator } from './support/runbook.ts';
import { writeVariants } from './support/variant-files.ts';

const environments = { key: 'env', from: 'node.id', pattern: '^([a-z]+)-' };

describe('what is wrong is said everywhere, and its runbook ends it: files and clients', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;
  let pool: ClientPool;
  let operator: Operator;
  const listeners = (contents: Readonly<Record<string, string>>): void =>
    writeVariants(
      files,
      'lds',
      Object.entries(contents).map(([env, content]) => ['web', content, when({ env })]),
    );
  let config: RelayConfig;

  before(async () => {
    files = new ResourceFiles();
    listeners({ prod: 'good', test: 'good' });
    config = { upstreams: [files.upstream], parameters: [environments] };
    relay = await RelayProcess.start(config);
    pool = new ClientPool(relay.xds, 1);
    operator = await Operator.at(relay);
    for (const id of ['prod-1', 'prod-2', 'test-1']) {
      const client = pool.open('delta', id);
      client.rejects = ({ resources }) => (resources.get('web') === 'bad' ? 'no such filter' : undefined);
      client.subscribe('lds', ['web']);
      await client.gets('lds', { web: 'good' });
    }
  });

  after(async () => {
    pool[Symbol.dispose]();
    await operator[Symbol.asyncDispose]();
    await relay[Symbol.asyncDispose]();
    files[Symbol.dispose]();
  });

  const idOf = (node: string): Promise<string> =>
    eventually(async () => {
      const found = (await clientsOf(relay)).find((one) => one.node.id === node);
      if (found === undefined) throw new Error(`${node} is not connected`);
      return found.id;
    });

  it('a bad listener, until it is rolled back and mended', async () => {
    listeners({ prod: 'bad', test: 'good' });
    await operator.rehearse({
      runbook: 'clients-reject',
      kind: 'clients_reject',
      check: 2,
      says: /^2 clients with env=prod reject lds web: no such filter/,
      metric: ['downstream_rejecting', 'type="lds"', (value) => value === 2],
      set: { TYPE: 'lds', NAME: 'web', BEFORE: '1', REV: '2' },
      mendsBefore: /unfreeze/,
      mends: () => listeners({ prod: 'better', test: 'good' }),
    });
  });

  it('a client of a class that gets nothing, until it says the right one', async () => {
    const wrong = pool.open('delta', 'prd-1');
    wrong.subscribe('lds', ['web']);
    await operator.rehearse({
      runbook: 'missing-resources',
      kind: 'missing',
      check: 1,
      says: /^1 client with env=prd gets no lds web: no variant matches; env=prod has one, env=test has one; 2 other classes have one/,
      metric: ['unmatched_subscriptions', 'type="lds"', (value) => value === 1],
      set: { TYPE: 'lds', NAME: 'web', PARAM: 'env=prd', CLIENT: await idOf('prd-1') },
      fails: /explain/,
      mends: async () => {
        wrong[Symbol.dispose]();
        const right = pool.open('delta', 'prod-3');
        right.subscribe('lds', ['web']);
        await right.gets('lds', { web: 'better' });
      },
    });
  });

  it('a refused configuration, until one is accepted', async () => {
    relay.configure('nodes: {}\n');
    await operator.rehearse({
      runbook: 'configuration-refused',
      kind: 'configuration_refused',
      check: 1,
      says: /^The new configuration is refused: .*:1:1: nodes: /,
      metric: ['config_last_reload_successful', '', (value) => value === 0],
      set: { FILE: relay.file },
      fails: /validate/,
      mends: () => relay.configure(config),
    });
  });

  it('a file that is refused, until it is mended', async () => {
    files.writeText(
      'broken.json',
      '{ "resources": [ { "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster" } ] }',
    );
    await operator.rehearse({
      runbook: 'updates-refused',
      kind: 'updates_refused',
      check: 1,
      says: /broken\.json.* has no name/,
      metric: ['upstream_updates_total', 'type="cds",result="rejected"', (value) => value === 1],
      set: { FILE: relay.file },
      fails: /validate/,
      mends: () => files.remove('broken.json'),
    });
  });

  it('a limit that is reached, until it is raised', async () => {
    relay.configure({ ...config, limits: { max_streams: 4 } });
    await relay.says(/configuration reloaded/, 2);
    pool.open('delta', 'prod-4').subscribe('lds', ['web']);
    await operator.rehearse({
      runbook: 'limits',
      kind: 'limit_near',
      check: 2,
      says: /^limits\.max_streams is at 100%/,
      metric: ['downstream_streams', '', (value) => value === 4],
      mends: () => relay.configure(config),
    });
  });
});

describe('what is wrong is said everywhere, and its runbook ends it: control plane and disk', () => {
  let directory: TemporaryDirectory;
  let plane: ModelPlane;
  let relay: RelayProcess;
  let operator: Operator;
  let pool: ClientPool;

  before(async () => {
    directory = temporaryDirectory();
    const path = join(directory.path, 'kept');
    // Where a directory of the database should be, there is a file.
    writeFileSync(path, 'no directory');
    plane = await ModelPlane.start((url, name, content) =>
      any(content === 'of another type' ? type('lds') : url, name, content),
    );
    plane.set('cds', { a: '1' });
    plane.kill();
    relay = await RelayProcess.start({
      // However long it fails: the next try comes soon.
      upstreams: [
        { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '1s' } } },
      ],
      cache: { persistence: { path } },
    });
    pool = new ClientPool(relay.xds, 1);
    operator = await Operator.at(relay);
  });

  after(async () => {
    pool[Symbol.dispose]();
    await operator[Symbol.asyncDispose]();
    await relay[Symbol.asyncDispose]();
    await plane[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  });

  // First: the longer it fails, the longer the relay waits before it tries again.
  it('a disk that cannot be written, until it can', async () => {
    const path = join(directory.path, 'kept');
    await operator.rehearse({
      runbook: 'disk',
      kind: 'disk_fails',
      check: 2,
      says: /^The cache cannot be written to disk: /,
      metric: ['persistence_errors_total', '', (value) => value > 0],
      set: { DIRECTORY: path },
      mends: () => {
        renameSync(path, `${path}.moved`);
        mkdirSync(path);
        chmodSync(path, 0o700);
      },
    });
  });

  it('a relay that is not ready, until its control plane is there', async () => {
    await operator.rehearse({
      runbook: 'not-ready',
      kind: 'not_ready',
      check: 2,
      says: /^The relay is not ready: not connected yet: central/,
      metric: ['ready', '', (value) => value === 0],
      mends: () => plane.again(),
    });
  });

  it('a control plane that is away, until it is back', async () => {
    const client = pool.open('delta', 'client');
    client.subscribe('cds');
    await client.gets('cds', { a: '1' });
    plane.kill();
    await operator.rehearse({
      runbook: 'control-plane-away',
      kind: 'upstream_away',
      check: 2,
      says: /^Upstream central is unreachable: /,
      metric: ['upstream_connected', 'upstream="central"', (value) => value === 0],
      set: { ENDPOINT: plane.address, NAME: 'control-plane.test', CA: '/etc/ssl/certs' },
      fails: /^distributary reach /,
      mends: async () => {
        plane.set('cds', { a: '2' });
        await plane.again();
      },
    });
    await client.gets('cds', { a: '2' });
  });

  it('a response that is refused says which resource it is, until it is mended', async () => {
    plane.set('cds', { a: 'of another type' });
    await operator.rehearse({
      runbook: 'updates-refused',
      kind: 'updates_refused',
      check: 1,
      says: /^The relay refuses cds of upstream central: .* resource "a" is of type /,
      metric: ['upstream_updates_total', 'type="cds",result="rejected"', (value) => value === 1],
      leaves: /validate/,
      mends: () => plane.set('cds', { a: '5' }),
      isOver: () => relay.says(/responses are accepted again/),
    });
  });

  it('types every command of these runbooks', () => {
    expect(notTyped()).to.deep.equal([]);
  });
});

describe('what is wrong is in the log', () => {
  it('though nobody asks for it, and so is its end', async () => {
    await using stack = new AsyncDisposableStack();
    const plane = stack.use(await ModelPlane.start());
    plane.set('cds', { shop: '1' });
    const backoff = { initial: '20ms', max: '1s' };
    const relay = stack.use(
      await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff } }],
      }),
    );
    using pool = new ClientPool(relay.xds, 1);
    const client = pool.open('delta', 'client');
    client.subscribe('cds');
    await client.gets('cds', { shop: '1' });
    plane.kill();
    await relay.says(/^problem: .*central/);
    await plane.again();
    await relay.says(/^resolved: .*central/);
  });
});
