import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { z } from 'zod';
import { ClientStatusDiscoveryService } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { Health, HealthCheckResponse_ServingStatus as Serving } from '../../src/gen/health_pb.ts';
import { ADS_SERVICE, knownTypes } from '../../src/model/types.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane as ScriptedPlane } from '../upstream/ads/control-plane.ts';
import { run } from './support/command.ts';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { listedServices } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { get, send } from './support/http.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { outcome, Process, signalTo } from './support/process.ts';
import { distributary, type RelayConfig, RelayProcess, upstream } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { website } from './support/resources.ts';
import { need } from './support/skip.ts';
import { deltaNames, XdsClient } from './support/xds-client.ts';

const shop = (content: string) => new Map([['shop', content]]);

/** The body of /ready. */
const readiness = z.object({
  ready: z.boolean(),
  reason: z.string(),
  upstreams: z.array(
    z.strictObject({
      name: z.string(),
      connected: z.boolean(),
      stale: z.boolean(),
      since: z.iso.datetime().nullable(),
      reason: z.string().optional(),
    }),
  ),
});

/** The contract's list, by type. */
const metrics = {
  gauge: [
    'downstream_streams',
    'downstream_subscriptions',
    'upstream_connected',
    'upstream_sessions',
    'upstream_last_update_timestamp_seconds',
    'cache_resources',
    'cache_variants',
    'cache_bytes',
  ],
  counter: [
    'downstream_requests_total',
    'downstream_responses_total',
    'downstream_response_bytes_total',
    'downstream_coalesced_total',
    'downstream_rejected_total',
    'upstream_updates_total',
    'upstream_reconnects_total',
    'cache_lookups_total',
    'cache_evictions_total',
    'ambiguous_matches_total',
    'config_reloads_total',
  ],
  histogram: ['propagation_seconds'],
};

describe('the contract, on a running relay', () => {
  let files: ResourceFiles;
  let config: RelayConfig;
  let relay: RelayProcess;
  let client: XdsClient;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', shop('1'));
    config = {
      node: { id: 'relay', metadata: { api_token: 'hidden' } },
      upstreams: [files.upstream],
    };
    relay = await RelayProcess.start(config);
    client = new XdsClient(relay.xds, 'delta', { node: { id: 'a', cluster: 'b' } });
    client.subscribe('cds');
    await client.gets('cds');
  });

  after(async () => {
    await client?.[Symbol.asyncDispose]();
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('has every page of the admin listener', async () => {
    for (const path of ['/', '/healthz', '/ready', '/metrics', '/config_dump']) {
      expect((await relay.get(path)).status, path).to.equal(200);
    }
    expect((await relay.get('/nowhere')).status).to.equal(404);
    expect((await send('POST', `http://${relay.admin}/ready`)).status).to.equal(405);
    expect((await relay.get('/config_dump')).body)
      .to.include('api_token')
      .and.not.include('hidden');
  });

  it('has every method of the admin RPC, and CSDS', async () => {
    const call = async <T extends z.ZodType>(
      method: string,
      shape: T,
      body: object = {},
    ): Promise<z.output<T>> => {
      const { status, body: answer } = await relay.rpc(method, body);
      expect(status, answer).to.equal(200);
      return shape.parse(JSON.parse(answer));
    };
    const entries = z.array(z.looseObject({}));
    const admin = 'distributary.admin.v1.AdminService';
    const { upstreams } = await call(`${admin}/Status`, z.object({ upstreams: entries }));
    expect(upstreams[0]).to.include({ name: 'files', connected: true });
    const { resources } = await call(`${admin}/ListResources`, z.object({ resources: entries }));
    expect(resources[0]).to.include({ type: 'cds', name: 'shop' });
    const listed = z.object({
      clients: z.array(z.object({ id: z.string(), node: z.object({}).loose(), types: entries })),
    });
    const first = await eventually(async () => {
      const [one] = (await call(`${admin}/ListClients`, listed)).clients;
      expect(one?.types[0]).to.include({ type: 'cds', state: 'SYNCED', last_nack: '' });
      return one;
    });
    expect(first?.node).to.deep.equal({ id: 'a', cluster: 'b' });
    const query = { type: 'cds', name: 'shop', client: first?.id };
    const { variants } = await call(`${admin}/Explain`, z.object({ variants: entries }), query);
    expect(variants[0]).to.include({ matches: true });
    const csds = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';
    const { config } = await call(csds, z.object({ config: entries }));
    expect(config).to.have.length(2); // the client, and the relay itself
  });

  it('has every metric, and those of the process', async () => {
    const { body } = await relay.get('/metrics');
    for (const [type, names] of Object.entries(metrics)) {
      for (const name of names) expect(body).to.include(`# TYPE distributary_${name} ${type}\n`);
    }
    expect(body)
      .to.match(/^process_cpu_seconds_total \d/m)
      .and.match(/^nodejs_eventloop_lag_seconds \d/m);
    expect(body).to.match(/^distributary_downstream_streams\{transport="delta",service="ads"\} 1$/m);
    expect(body).to.match(/^distributary_upstream_connected\{upstream="files"\} 1$/m);
  });

  it('has health, reflection and CSDS on the xDS port', async () => {
    const transport = createGrpcTransport({ baseUrl: `http://${relay.xds}`, idleConnectionTimeoutMs: 100 });
    const listed = await listedServices(transport);
    const health = createClient(Health, transport);
    for (const service of listed)
      expect((await health.check({ service })).status, service).to.equal(Serving.SERVING);
    expect(Object.keys((await health.list({})).statuses)).to.have.members(['', ...listed]);
    expect(listed).to.include.members([
      ADS_SERVICE,
      'grpc.health.v1.Health',
      ClientStatusDiscoveryService.typeName,
    ]);
    const csds = createClient(ClientStatusDiscoveryService, transport);
    // Of other connections it tells nothing.
    expect((await csds.fetchClientStatus({})).config).to.deep.equal([]);
  });

  it('serves each type on its own service', async () => {
    for (const { service, streamMethod, deltaMethod, url } of knownTypes) {
      for (const method of [streamMethod, deltaMethod]) {
        if (method === undefined) continue;
        const protocol = method.startsWith('Stream') ? 'sotw' : 'delta';
        await using one = new XdsClient(relay.xds, protocol, { path: `/${service}/${method}` });
        one.subscribe(url);
        // "*" where an empty request would mean nothing.
        one.subscribe(url, ['*']);
        await one.gets(url);
      }
    }
  });

  it('SIGUSR1 opens no debugger: a line in the log, and it goes on', async () => {
    relay.signal('SIGUSR1');
    await relay.says(/^SIGUSR1 does nothing/);
    await using another = new XdsClient(relay.xds, 'delta');
    another.subscribe('cds');
    await another.gets('cds');
  });

  it('takes no more than limits.max_streams: RESOURCE_EXHAUSTED', async () => {
    const rejected = (): Promise<number> => relay.metric('downstream_rejected_total');
    const before = await rejected();
    await relay.reconfigure({ ...config, limits: { max_streams: 1 } });
    await using second = new XdsClient(relay.xds, 'delta');
    const { code, details } = await second.ends();
    expect(code).to.equal(Code.RESOURCE_EXHAUSTED);
    expect(details).to.include('limits.max_streams');
    expect(await rejected()).to.equal(before + 1);
    expect(client.status, 'one that was there stays').to.equal(undefined);
  });

  it('over a Unix socket: other relays connect there, and the limits of clients do not bind them', async () => {
    using directory = temporaryDirectory();
    const address = `unix:${join(directory.path, 'xds.sock')}`;
    const limits = { max_subscriptions_per_stream: 2 };
    await using one = await RelayProcess.start({ upstreams: [files.upstream], xds: { address }, limits });
    expect(one.xds).to.equal(address);
    await using other = new XdsClient(address, 'delta');
    other.subscribe('cds', ['a', 'b', 'c', 'shop']);
    await eventually(() => {
      expect(other.of('cds').flatMap(({ removed }) => removed)).to.have.members(['a', 'b', 'c']);
      expect(other.of('cds').flatMap(deltaNames)).to.deep.equal(['shop']);
    });
  });
});

describe('the life of a relay', () => {
  it('/ready and health: 503 until each upstream was connected once, and from then on even while one is down', async function () {
    const binary = await need(this, controlPlaneBinary());
    const early = await ControlPlane.start(binary, { cache: 'linear' });
    await early[Symbol.asyncDispose]();
    const backoff = { initial: '50ms', max: '200ms' };
    await using relay = await RelayProcess.start({
      upstreams: [upstream(early.address, 'DELTA', { backoff })],
    });
    const health = createClient(
      Health,
      createGrpcTransport({ baseUrl: `http://${relay.xds}`, idleConnectionTimeoutMs: 100 }),
    );
    const ready = async () => {
      const { status, body } = await relay.get('/ready');
      return { status, ...readiness.parse(JSON.parse(body)) };
    };
    await eventually(async () => {
      const { status, reason } = await ready();
      expect(status).to.equal(503);
      expect(reason).to.match(/not connected yet: central \(127\.0\.0\.1:\d+: .*refused/i);
    });
    expect((await relay.get('/healthz')).status).to.equal(200);
    expect((await health.check({})).status).to.equal(Serving.NOT_SERVING);

    const plane = await ControlPlane.start(binary, { cache: 'linear', address: early.address });
    await plane.set(website('ads', 1));
    await eventually(async () => expect((await ready()).status).to.equal(200));
    expect((await health.check({})).status).to.equal(Serving.SERVING);
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds');
    await client.gets('cds');
    expect((await ready()).upstreams).to.deep.equal([
      { name: 'central', connected: true, stale: false, since: null },
    ]);
    const killedAt = Date.now();
    await plane[Symbol.asyncDispose]();
    await eventually(async () => {
      const { status, upstreams } = await ready();
      const [central] = upstreams;
      expect([status, central?.connected, central?.stale]).to.deep.equal([200, false, true]);
      expect(Date.parse(central?.since ?? '')).to.be.within(killedAt, Date.now());
    });
    expect(client.status).to.equal(undefined);
  });

  it('SIGTERM: not ready first, then streams end over drain_timeout with UNAVAILABLE; exit 0', async () => {
    using files = new ResourceFiles();
    files.write('cds', shop('1'));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], drain_timeout: '4s' });
    await using stack = new AsyncDisposableStack();
    const clients = Array.from({ length: 20 }, () => stack.use(new XdsClient(relay.xds, 'delta')));
    for (const client of clients) client.subscribe('cds');
    for (const client of clients) await client.gets('cds');
    const start = performance.now();
    relay.signal('SIGTERM');
    await eventually(async () => {
      const { status, body } = await relay.get('/ready');
      expect([status, readiness.parse(JSON.parse(body)).reason]).to.deep.equal([503, 'draining']);
    });
    for (const client of clients) {
      const { code, details } = await client.ends();
      expect([code, details]).to.deep.equal([Code.UNAVAILABLE, 'draining: connect to another replica']);
    }
    expect(await relay.exited).to.equal(0);
    const took = performance.now() - start;
    expect(took, 'spread, not all at once').to.be.at.least(1000);
    const said = relay.log.map(({ message }) => message);
    // A busy machine may have stopped it for a while.
    expect(said.filter((message) => message !== 'the event loop is blocked')).to.deep.equal([
      'the relay starts',
      'draining',
      'drained',
    ]);
  });

  it('a response over limits.max_response_bytes is refused with the limit in the log; the last good stays', async () => {
    const plane = await new ScriptedPlane().listen();
    plane.answer = (stream, request) => {
      if (request.responseNonce === '') stream.send(typeOf('cds'), '1', 'shop:small');
    };
    const backoff = { initial: '50ms', max: '100ms' };
    await using relay = await RelayProcess.start({
      upstreams: [upstream(`127.0.0.1:${plane.port}`, 'DELTA', { backoff })],
      limits: { max_response_bytes: 10_000 },
    });
    try {
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds');
      await client.gets('cds');
      plane.openStreams[0]?.sendRaw(Buffer.alloc(20_000));
      await eventually(() => expect(JSON.stringify(relay.log)).to.match(/larger than max \(\d+ vs 10000\)/));
      await eventually(() => expect(plane.openStreams).to.have.length(1));
      expect(client.status).to.equal(undefined);
      await using second = new XdsClient(relay.xds, 'delta');
      second.subscribe('cds');
      expect((await second.gets('cds')).resources).to.equal(1);
    } finally {
      plane.kill();
    }
  });

  describe('a reload', () => {
    let files: ResourceFiles;
    let config: RelayConfig;
    let relay: RelayProcess;

    before(async () => {
      files = new ResourceFiles();
      files.write('cds', shop('1'));
      config = { upstreams: [files.upstream] };
      relay = await RelayProcess.start(config);
    });
    after(async () => {
      await relay?.[Symbol.asyncDispose]();
      files?.[Symbol.dispose]();
    });

    it('a changed file and SIGHUP reload; what is bad is refused, logged and counted, and the old one stays', async () => {
      const reloads = async () =>
        Promise.all(
          ['accepted', 'rejected'].map((result) =>
            relay.metric('config_reloads_total', `result="${result}"`),
          ),
        );
      expect(await reloads()).to.deep.equal([0, 0]);
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds');
      await client.gets('cds');

      relay.configure({ ...config, xds: { authorization: { rules: [{ types: ['cds'], allow: false }] } } });
      await eventually(async () => expect(await reloads()).to.deep.equal([1, 0]));
      // What a client may no longer see is removed from it, while it is connected.
      expect((await client.gets('cds', 2)).removed).to.deep.equal(['shop']);
      relay.signal('SIGHUP');
      await eventually(async () => expect(await reloads()).to.deep.equal([2, 0]));

      relay.configure({ ...config, upstream: [] });
      await eventually(async () => expect(await reloads()).to.deep.equal([2, 1]));
      relay.configure('{ nothing');
      await eventually(async () => expect(await reloads()).to.deep.equal([2, 2]));
      // The log is written without waiting for it: its lines come a moment later.
      const refused = await eventually(() => {
        const errors = relay.faults();
        expect(errors).to.have.length(2);
        return errors;
      });
      expect(JSON.stringify(refused[0])).to.include('unknown key').and.include('upstreams');
      expect((await relay.get('/config_dump')).body).to.include('"allow": false');

      relay.configure(config);
      await eventually(async () => expect(await reloads()).to.deep.equal([3, 2]));
      expect((await client.gets('cds', 3)).resources).to.equal(1);
      expect(client.status).to.equal(undefined);
    });

    it('SIGHUP while the relay starts reloads it when it has started', async () => {
      using directory = temporaryDirectory();
      const file = join(directory.path, 'relay.json');
      const any = { address: '127.0.0.1:0' };
      // A file is no directory: the log says so before anything listens.
      const cache = { persistence: { path: join(file, 'kept') } };
      writeFileSync(file, JSON.stringify({ ...config, xds: any, admin: any, cache, workers: 1 }));
      const starting = new Process(distributary('run', '--config', file));
      try {
        await starting.line(/the cache cannot be persisted/);
        starting.signal('SIGHUP');
        const [, admin = ''] = await starting.line(/^listening admin (\S+)/);
        await eventually(async () => {
          const { body } = await get(`http://${admin}/metrics`);
          expect(body).to.match(/^distributary_config_reloads_total\{result="accepted"\} 1$/m);
        });
      } finally {
        expect(await starting.stop()).to.equal(0);
      }
    });

    it('a reload that SIGTERM overtakes is no error, and the configuration is not refused', async () => {
      const slow = { ...config, workers: 1, drain_delay: '3s', drain_timeout: '100ms' };
      await using ending = await RelayProcess.start(slow);
      const [, worker] = await ending.pids();
      // What a reload changes is asked of it first.
      signalTo(worker, 'SIGSTOP');
      try {
        ending.signal('SIGHUP');
        await setTimeout(200);
        ending.signal('SIGTERM');
        await ending.says(/^what the new configuration changes was not computed in time$/);
      } finally {
        signalTo(worker, 'SIGCONT');
      }
      expect(await ending.exited).to.equal(0);
      expect(ending.faults()).to.deep.equal([]);
    });

    it('a lower cache.max_bytes makes room at once', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { shop: '1' });
      const asking = { upstreams: [upstream(plane.address, 'DELTA')] };
      await using full = await RelayProcess.start(asking);
      {
        await using client = new XdsClient(full.xds, 'delta');
        client.subscribe('cds');
        await client.gets('cds');
      }
      const evicted = async () => full.metric('cache_evictions_total', 'reason="size"');
      expect(await evicted()).to.equal(0);
      await eventually(async () => expect(await clientsOf(full)).to.deep.equal([]));
      // By then it lingers for `idle_ttl`, and nothing else looks at the room that there is.
      await setTimeout(2500);
      await full.reconfigure({ ...asking, cache: { max_bytes: 1 } });
      await eventually(async () => expect(await evicted()).to.equal(1));
    });

    it('what needs a restart is named with each reload, and /config_dump shows what is in force', async () => {
      const before = await relay.metric('config_reloads_total', 'result="accepted"');
      const said = () => relay.log.filter(({ message }) => message.includes('after a restart'));
      const reload = async (changes: object, times: number) => {
        await relay.reconfigure({ ...config, ...changes });
        await relay.says(/configuration reloaded/, before + times);
        const dump: unknown = JSON.parse((await relay.get('/config_dump')).body);
        return { keys: said().at(-1)?.['keys'], dump };
      };
      const changes = { node: { id: 'two' }, cache: { idle_ttl: '5s', max_bytes: 5000 } };
      const inForce = { node: { id: 'relay' }, cache: { idle_ttl: '600s', max_bytes: 5000 } };
      const first = await reload(changes, 1);
      expect(first.keys).to.deep.equal(['node', 'cache.idle_ttl']);
      expect(first.dump).to.containSubset(inForce);
      await reload({ cache: changes.cache }, 2);
      await reload({}, 3);
      expect(said().map(({ keys }) => keys)).to.deep.equal([['node', 'cache.idle_ttl'], ['cache.idle_ttl']]);
    });
  });

  it('bad configuration: every problem with its line, exit 2, for run and validate alike', async () => {
    using directory = temporaryDirectory();
    const file = join(directory.path, 'bad.yaml');
    writeFileSync(
      file,
      [
        'xds: { adress: "0.0.0.0:18000" }',
        'drain_timeout: soon',
        'upstreams:',
        '  - name: central',
        '    ads: { endpoints: ["cp:0"], protocol: GRPC }',
        '  - { name: central, filesystem: { path: /nowhere } }',
        'workers: 4',
      ].join('\n'),
    );
    const ends = await Promise.all([
      outcome(distributary('run', '--config', file)),
      run('validate', '--config', file).then(({ code, out }) => ({ code, output: out })),
    ]);
    for (const { code, output } of ends) {
      expect(code).to.equal(2);
      for (const problem of [
        /^\S+bad\.yaml:1:\d+: xds\.adress: .*"address"/m,
        /^\S+bad\.yaml:2:\d+: drain_timeout: /m,
        /^\S+bad\.yaml:5:\d+: upstreams\[0\]\.ads\.endpoints\[0\]: /m,
        /^\S+bad\.yaml:5:\d+: upstreams\[0\]\.ads\.protocol: /m,
        /^\S+bad\.yaml:6:\d+: upstreams\[1\]\.name: /m,
        /^\S+bad\.yaml:6:\d+: upstreams\[1\]\.filesystem\.path: \/nowhere cannot be listed/m,
      ]) {
        expect(output).to.match(problem);
      }
    }
  });

  it('a wrong command line: usage, exit 2; a taken port: exit 1 with the reason', async () => {
    const ends = async (argv: readonly string[], expected: number, says: RegExp) => {
      const { code, output } = await outcome(distributary(...argv));
      expect([code, says.test(output)], `${argv.join(' ')}: ${output}`).to.deep.equal([expected, true]);
    };
    await Promise.all([
      ends(['run', '--confg', 'x'], 2, /usage/i),
      ends([], 2, /usage/i),
      ends(['--help'], 0, /usage/i),
      ends(['run', '--version'], 0, /^\d+\.\d+\.\d+$/),
    ]);
    for (const argv of [[], ['--config', 'x', '--log-level', 'loud']]) {
      const { code, err } = await run('run', ...argv);
      expect([code, /usage/i.test(err)], err).to.deep.equal([2, true]);
    }
    const help = await run('run', '--help');
    expect([help.code, /usage/i.test(help.out)], help.out).to.deep.equal([0, true]);
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', () => resolve()));
    const address = taken.address();
    const port = typeof address === 'object' ? address?.port : 0;
    using files = new ResourceFiles();
    using directory = temporaryDirectory();
    const file = join(directory.path, 'relay.json');
    const admin = { address: '127.0.0.1:0' };
    writeFileSync(
      file,
      JSON.stringify({ xds: { address: `127.0.0.1:${port}` }, admin, upstreams: [files.upstream] }),
    );
    const [logged, silent] = await Promise.all(
      ['info', 'silent'].map((level) => outcome(distributary('run', '--config', file, '--log-level', level))),
    );
    taken.close();
    expect([logged?.code, silent?.code]).to.deep.equal([1, 1]);
    expect(logged?.output)
      .to.match(/"cannot start"/)
      .and.match(/in use/);
    expect(silent?.output, 'there is no log').to.match(/^cannot start: [^\n]*in use[^\n]*$/);
  });

  it('stdout has the listening lines and nothing else; stderr nothing but JSON lines; SIGINT ends it', async () => {
    using files = new ResourceFiles();
    files.writeText('bad.yaml', 'resources: [');
    await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
    await eventually(() => {
      const about = relay.log.find(({ level }) => level === 'warn');
      expect(JSON.stringify(about)).to.include('bad.yaml');
    });
    relay.signal('SIGINT');
    expect(await relay.exited).to.equal(0);
    expect(relay.log.at(-1)?.message).to.equal('drained');
    expect(relay.stdout).to.deep.equal([`listening xds ${relay.xds}`, `listening admin ${relay.admin}`]);
  });
});
