import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { ControlPlane as ScriptedControlPlane } from '../upstream/ads/control-plane.ts';
import { typeOf } from '../upstream/ads/responses.ts';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { always, eventually } from './support/eventually.ts';
import { get } from './support/http.ts';
import { type TemporaryDirectory, temporaryDirectory } from './support/paths.ts';
import { Process } from './support/process.ts';
import { distributary, type RelayConfig, RelayProcess, relayCommand, upstream } from './support/relay.ts';
import { cluster, endpoints, type Resource } from './support/resources.ts';
import { need } from './support/skip.ts';
import { deltaNames, XdsClient } from './support/xds-client.ts';

const readiness = z.object({
  ready: z.boolean(),
  reason: z.string(),
  upstreams: z.array(z.object({ name: z.string(), stale: z.boolean(), since: z.string().nullable() })),
});

const any = { address: '127.0.0.1:0' };
const names = Array.from({ length: 30 }, (_, index) => `c${String(index).padStart(2, '0')}`);
const worldOf = (all: readonly string[]): Resource[] =>
  all.flatMap((name) => [cluster(name), endpoints(name, 1000 + Number(name.slice(1)))]);

describe('persistence, on the real process', () => {
  let binary: string;
  let directory: TemporaryDirectory;

  before(async function () {
    await need(this, relayCommand());
    binary = await need(this, controlPlaneBinary());
  });
  beforeEach(() => {
    directory = temporaryDirectory();
  });
  afterEach(() => directory[Symbol.dispose]());

  function config(address: string, protocol: 'SOTW' | 'DELTA'): RelayConfig {
    const backoff = { initial: '100ms', max: '500ms' };
    return {
      upstreams: [upstream(address, protocol, { backoff, resource_timeout: '2s' })],
      cache: { persistence: { path: join(directory.path, 'kept') } },
    };
  }

  async function written(relay: RelayProcess): Promise<void> {
    await eventually(async () => {
      expect(await relay.metric('persistence_last_write_timestamp_seconds')).to.be.above(0);
      expect(await relay.metric('persistence_lag_seconds')).to.equal(0);
    });
  }

  async function ready(
    relay: RelayProcess,
  ): Promise<z.output<typeof readiness> & { readonly status: number }> {
    const { status, body } = await relay.get('/ready');
    return { status, ...readiness.parse(JSON.parse(body)) };
  }

  for (const [protocol, cache] of [
    ['DELTA', 'linear'],
    ['SOTW', 'snapshot'],
    ['SOTW', 'linear'],
  ] as const) {
    it(`${protocol} upstream (${cache}): relay and control plane killed; the relay alone serves everything; one is removed later: one removal`, async () => {
      await using planes = new AsyncDisposableStack();
      const first = planes.use(await ControlPlane.start(binary, { cache }));
      await first.set(worldOf(names));
      const { address } = first;
      const before = await RelayProcess.start(config(address, protocol));
      {
        await using client = new XdsClient(before.xds, 'delta');
        client.subscribe('cds');
        expect(deltaNames(await client.gets('cds'))).to.have.members(names);
        client.subscribe('eds', names);
        await eventually(() => expect(client.of('eds').flatMap(deltaNames)).to.have.members(names));
        await written(before);
      }
      const killedAt = Date.now();
      await before.kill();
      await first[Symbol.asyncDispose]();

      await using relay = await RelayProcess.start(config(address, protocol));
      const state = await ready(relay);
      expect(state).to.include({ status: 200, ready: true });
      expect(state.reason, 'why it is stale').to.match(/^stale: central \(.+\)$/);
      expect(state.upstreams[0]).to.include({ name: 'central', stale: true });
      expect(Date.parse(state.upstreams[0]?.since ?? '')).to.be.within(killedAt - 60_000, killedAt + 1000);

      await using delta = new XdsClient(relay.xds, 'delta');
      delta.subscribe('cds');
      expect(deltaNames(await delta.gets('cds'))).to.have.members(names);
      delta.subscribe('eds', names);
      expect(deltaNames(await delta.gets('eds'))).to.have.members(names);
      await using sotw = new XdsClient(relay.xds, 'sotw');
      sotw.subscribe('cds');
      expect(await sotw.gets('cds')).to.include({ resources: names.length });

      const [gone = '', ...rest] = names;
      const second = planes.use(await ControlPlane.start(binary, { cache, address }));
      await second.set(worldOf(rest));
      const removal = await delta.gets('cds', 2);
      expect([removal.resources, removal.removed]).to.deep.equal([0, [gone]]);
      expect(await sotw.gets('cds', 2)).to.include({ resources: rest.length });
      await eventually(async () => expect((await ready(relay)).upstreams[0]).to.include({ stale: false }));
      // Where silence means absence in the end (protocol §3.9) the endpoints go; else they are served on.
      if (protocol === 'DELTA') expect((await delta.gets('eds', 2)).removed).to.deep.equal([gone]);
      await always(() => {
        expect(delta.of('cds').length).to.equal(2);
        expect(delta.of('eds').length).to.equal(protocol === 'DELTA' ? 2 : 1);
        expect(sotw.of('cds').length).to.equal(2);
      }, 1000);
      expect(delta.status ?? sotw.status).to.equal(undefined);
    });
  }

  for (const [protocol, type] of [
    ['DELTA', 'eds'],
    ['SOTW', 'cds'],
  ] as const) {
    it(`§3.9 ${protocol} upstream: names that are restored stay at a control plane that accepts streams and says nothing`, async () => {
      const url = typeOf(type);
      using ends = new DisposableStack();
      const plane = await new ScriptedControlPlane().listen();
      ends.defer(() => plane.kill());
      plane.answer = (stream, { typeUrl, responseNonce }) => {
        if (typeUrl === url && responseNonce === '') stream.send(url, '1', 'a:1@1', 'b:1@1');
      };
      const settings = config(`127.0.0.1:${plane.port}`, protocol);
      const before = await RelayProcess.start(settings);
      {
        await using client = new XdsClient(before.xds, 'delta');
        client.subscribe(type, ['a', 'b']);
        expect(deltaNames(await client.gets(type))).to.have.members(['a', 'b']);
        await written(before);
      }
      await before.kill();
      plane.kill();
      plane.streams.length = 0;
      plane.answer = () => {};
      await plane.listen();

      await using relay = await RelayProcess.start(settings);
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe(type, ['a', 'b']);
      expect(deltaNames(await client.gets(type))).to.have.members(['a', 'b']);
      await eventually(() => expect(plane.requests.some(({ typeUrl }) => typeUrl === url)).to.equal(true));
      await always(() => {
        expect(client.of(type).length).to.equal(1);
      }, 5000);

      // It has one of them now: silence about the other one, or its lack, counts.
      for (const stream of plane.openStreams) stream.send(url, '2', 'a:1@2');
      await eventually(() => expect(client.of(type).flatMap(({ removed }) => removed)).to.deep.equal(['b']));
    });
  }

  it('what is known at SIGTERM is on disk, and standard error is JSON with no word of Node', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'linear' });
    await plane.set(worldOf(names));
    const { address } = plane;
    const first = await RelayProcess.start(config(address, 'DELTA'));
    await using client = new XdsClient(first.xds, 'delta');
    client.subscribe('cds');
    await client.gets('cds');
    expect(await first.stop()).to.equal(0);
    await plane[Symbol.asyncDispose]();
    const second = await RelayProcess.start(config(address, 'DELTA'));
    const [loaded] = await second.says(/the persisted cache is loaded/);
    expect(loaded).to.include({ resources: names.length, subscriptions: 1 });
    await second.stop();

    // As users start it, with Node's warnings on.
    const file = join(directory.path, 'relay.json');
    writeFileSync(file, JSON.stringify({ ...config(address, 'DELTA'), xds: any, admin: any }));
    const { command, args } = distributary('run', '--config', file);
    const plain = new Process({
      command,
      args: args.filter((flag) => !flag.startsWith('--disable-warning')),
      env: { NODE_OPTIONS: '' },
    });
    await plain.line(/^listening admin/);
    await plain.line(/the persisted cache is loaded/);
    expect(await plain.stop()).to.equal(0);
    for (const line of plain.errors) expect(JSON.parse(line)).to.have.property('message');
  });

  it('a disk without room: serving goes on, a metric and one line say so', async function () {
    if (process.platform === 'win32') this.skip();
    await using plane = await ControlPlane.start(binary, { cache: 'linear' });
    await plane.set(worldOf(names));
    const file = join(directory.path, 'relay.json');
    writeFileSync(file, JSON.stringify({ ...config(plane.address, 'DELTA'), xds: any, admin: any }));
    const { command, args } = distributary('run', '--config', file);
    // No file of the process may grow beyond 64 KiB; a write that tries fails instead of ending it.
    const limited = `trap '' XFSZ; ulimit -f 64; exec "$@"`;
    const relay = new Process({ command: 'bash', args: ['-c', limited, 'bash', command, ...args] });
    const [, xds = ''] = await relay.line(/^listening xds (\S+)/);
    const [, admin = ''] = await relay.line(/^listening admin (\S+)/);
    await using client = new XdsClient(xds, 'delta');
    client.subscribe('cds');
    expect(deltaNames(await client.gets('cds'))).to.have.members(names);
    const many = Array.from({ length: 1000 }, (_, index) => `d${index}`);
    await plane.set(worldOf([...names, ...many]));
    await eventually(() => {
      const total = client.of('cds').reduce((sum, { resources }) => sum + resources, 0);
      expect(total).to.be.at.least(names.length + many.length);
    });
    await eventually(async () => {
      const { body } = await get(`http://${admin}/metrics`);
      const [, failures] =
        /^distributary_persistence_errors_total\{reason="(?:io|full)"\} (\d+)$/m.exec(body) ?? [];
      expect(Number(failures)).to.be.at.least(3);
    });
    await plane.set(worldOf(names));
    await eventually(() => expect(client.of('cds').flatMap(({ removed }) => removed)).to.include('d999'));
    expect(relay.errors.filter((line) => line.includes('cannot be persisted')).length).to.equal(1);
    expect(await relay.stop()).to.equal(0);
  });

  it('two relays in one directory: the second says so and serves', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'linear' });
    await plane.set(worldOf(names));
    const kept = join(directory.path, 'kept');
    const content = { type: 'cds', name: 'gone', hashes: [] };
    const rollout = JSON.stringify({
      freezes: [{ of: 'another version' }],
      canaries: [],
      verdicts: [{ cause: 'rejected', reason: 'no', contents: [content] }],
    });
    mkdirSync(kept, { mode: 0o700 });
    writeFileSync(join(kept, 'rollout.json'), rollout);
    await using first = await RelayProcess.start(config(plane.address, 'DELTA'));
    await using second = await RelayProcess.start(config(plane.address, 'DELTA'));
    await eventually(() => {
      expect(second.faults().map(({ kind }) => kind)).to.include('locked');
    });
    await using client = new XdsClient(second.xds, 'delta');
    client.subscribe('cds');
    expect(deltaNames(await client.gets('cds'))).to.have.members(names);
    expect(await second.metric('persistence_errors_total', 'reason="locked"')).to.be.above(0);
    expect(readdirSync(kept).filter((name) => name.startsWith('rollout'))).to.deep.equal(['rollout.json']);
    expect(readFileSync(join(kept, 'rollout.json'), 'utf8'), 'of no verdict of its own').to.equal(rollout);
    expect(first.output).to.include('what can be read of the file is kept');
  });
});
