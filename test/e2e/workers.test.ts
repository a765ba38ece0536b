import { once } from 'node:events';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { create, fromBinary, fromJsonString, toBinary } from '@bufbuild/protobuf';
import { Metadata } from '@grpc/grpc-js';
import { expect } from 'chai';
import {
  type Client,
  ExplainResponseSchema,
  ListClientsResponseSchema,
  type StatusResponse,
  StatusResponseSchema,
} from '../../src/gen/distributary/admin/v1/admin_pb.ts';
import { DeltaDiscoveryRequestSchema } from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { ClientStatusResponseSchema } from '../../src/gen/envoy/service/status/v3/csds_pb.ts';
import { HealthCheckResponse_ServingStatus, HealthCheckResponseSchema } from '../../src/gen/health_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { envoyRegistry } from '../../src/wire/registry.ts';
import { openCall, rawClient, statusOf } from '../support/grpc-calls.ts';
import { type } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { nodesOf, unary } from './support/csds.ts';
import { always, eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { root, temporaryDirectory } from './support/paths.ts';
import { outcome, signalTo } from './support/process.ts';
import { distributary, type RelayConfig, RelayProcess, upstream } from './support/relay.ts';
import { deltaNames, sotwBodies, XdsClient } from './support/xds-client.ts';

const admin = 'distributary.admin.v1.AdminService';
const csds = 'envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';

async function status(relay: RelayProcess): Promise<StatusResponse> {
  return fromJsonString(StatusResponseSchema, (await relay.rpc(`${admin}/Status`, {})).body);
}

async function clientsOf(relay: RelayProcess): Promise<readonly Client[]> {
  return fromJsonString(ListClientsResponseSchema, (await relay.rpc(`${admin}/ListClients`, {})).body)
    .clients;
}

/** Of which worker a stream is. */
const workerOf = ({ id }: Client): string => id.slice(0, id.indexOf('-'));

/** The directories of the sockets between a primary and its workers. */
const feeds = (place: string): readonly string[] =>
  readdirSync(place).filter((name) => name.startsWith('distributary-feed-'));

/** Who may do what with a directory and with what is in it. */
const modes = (directory: string): readonly (readonly [string, string])[] =>
  ['.', ...readdirSync(directory).toSorted(byText)].map((name) => [
    name,
    (statSync(join(directory, name)).mode & 0o777).toString(8),
  ]);

/** With its temporary files in a place of its own. */
async function startIn(place: string, config: RelayConfig): Promise<RelayProcess> {
  const before = process.env['TMPDIR'];
  process.env['TMPDIR'] = place;
  try {
    return await RelayProcess.start(config);
  } finally {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  }
}

const byText = (a: string, b: string): number => (a < b ? -1 : 1);

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Half SotW, half delta. */
const fleet = (relay: RelayProcess, size: number, stack: AsyncDisposableStack): XdsClient[] =>
  Array.from({ length: size }, (_, index) => {
    const node = { id: `client-${index}`, cluster: 'fleet' };
    const client = new XdsClient(relay.xds, index % 2 === 0 ? 'sotw' : 'delta', { node });
    client.subscribe('cds');
    return stack.use(client);
  });

describe('workers: 2', () => {
  it('a worker that is killed: the others go on, it is replaced, and its clients come back', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers: 2 });
    await using stack = new AsyncDisposableStack();
    const clients = fleet(relay, 20, stack);
    for (const client of clients) await client.gets('cds');
    const counted = await relay.metric('downstream_responses_total');
    expect(counted).to.equal(20);
    const before = await status(relay);
    const victim = before.workers[0]?.pid ?? 0;
    signalTo(victim, 'SIGKILL');

    const lost = await eventually(() => {
      const ended = clients.filter((client) => client.status !== undefined);
      if (ended.length !== before.workers[0]?.clients) throw new Error(`${ended.length} streams have ended`);
      return ended;
    });
    expect(lost.length).to.be.within(1, 19);
    const again = fleet(relay, lost.length, stack);
    for (const client of again) await client.gets('cds');
    const after = await eventually(async () => {
      const { workers } = await status(relay);
      expect(workers.map(({ listening }) => listening)).to.deep.equal([true, true]);
      return workers;
    });
    expect([after[0]?.restarts, after[0]?.lastError]).to.deep.equal([1, 'signal SIGKILL']);
    expect(after[0]?.pid).not.to.equal(victim);
    expect((await relay.get('/ready')).status).to.equal(200);
    expect(await relay.metric('worker_restarts_total')).to.equal(1);
    expect(await relay.metric('downstream_responses_total'), 'counts do not shrink').to.equal(
      counted + lost.length,
    );

    files.write('cds', new Map([['shop', '2']]));
    const rest = clients.filter((client) => !lost.includes(client));
    for (const client of [...rest, ...again]) await client.gets('cds', 2);
    expect(rest.every((client) => client.status === undefined)).to.equal(true);

    // New connections go to the new process, too: on a busy machine whichever is awake takes most of them.
    let taken = 0;
    for (let round = 0; round < 5 && taken <= 2; round++) {
      for (const client of fleet(relay, 10, stack)) await client.gets('cds');
      taken = (await status(relay)).workers[0]?.clients ?? 0;
    }
    expect(taken).to.be.greaterThan(2);
  });

  for (const at of ['port', 'Unix socket'])
    it(`a worker that is killed while a connection is on its way to it: the connection is closed (${at})`, async () => {
      using files = new ResourceFiles();
      using place = temporaryDirectory();
      const xds = at === 'port' ? {} : { address: `unix:${join(place.path, 'xds.sock')}` };
      await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers: 1, xds });
      const pid = (await status(relay)).workers[0]?.pid ?? 0;
      signalTo(pid, 'SIGSTOP');
      const { hostname, port } = new URL(`http://${relay.xds.replace(/^unix:.*/, 'localhost:1')}`);
      const path = relay.xds.slice('unix:'.length);
      const socket = at === 'port' ? connect(Number(port), hostname) : connect(path);
      const closed = new Promise((resolve) => socket.on('error', () => {}).on('close', resolve));
      await once(socket, 'connect');
      // The primary sends it to the worker.
      await sleep(1000);
      signalTo(pid, 'SIGKILL');
      socket.resume();
      expect(
        await Promise.race([closed.then(() => 'closed'), sleep(20_000, 'open', { ref: false })]),
      ).to.equal('closed');
    });

  it('a worker that is stopped is left out, and the log says so; it is back when it goes on', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream], workers: 2 });
    await using stack = new AsyncDisposableStack();
    for (const client of fleet(relay, 8, stack)) await client.gets('cds');
    const [stopped] = (await status(relay)).workers;
    const pid = stopped?.pid ?? 0;
    expect(await relay.metric('downstream_responses_total')).to.equal(8);
    signalTo(pid, 'SIGSTOP');
    try {
      const others = await clientsOf(relay);
      expect(others).to.have.length(8 - (stopped?.clients ?? 0));
      expect((await status(relay)).clients).to.equal(others.length);
      const told = await relay.rpc(csds, {});
      const { config } = fromJsonString(ClientStatusResponseSchema, told.body, { registry: envoyRegistry() });
      expect(nodesOf(config).filter((id) => id.startsWith('client-'))).to.have.length(others.length);
      expect(await relay.metric('downstream_responses_total'), 'as last counted').to.equal(8);
      const silent = { no_answer: 'worker 1 does not answer' };
      for (const question of ['ListClients', 'ListClasses', 'CompareConfiguration']) {
        const { body } = await relay.rpc(
          `distributary.admin.v1.AdminService/${question}`,
          question === 'CompareConfiguration' ? { text: readFileSync(relay.file, 'utf8') } : {},
        );
        expect(JSON.parse(body), question).to.deep.include(silent);
      }
      const [warning] = await relay.says(
        /a worker does not answer: what is shown about clients is incomplete/,
      );
      expect(warning?.level).to.equal('warn');
    } finally {
      signalTo(pid, 'SIGCONT');
    }
    await eventually(async () => expect(await clientsOf(relay)).to.have.length(8));
  });

  it('a worker that is replaced after a reload listens where the others do, whatever the file says by then', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    const config = { upstreams: [files.upstream], workers: 1 };
    await using relay = await RelayProcess.start(config);
    await using stack = new AsyncDisposableStack();
    relay.configure({ ...config, xds: { address: `unix:/nowhere/${relay.pid}.sock` } });
    await eventually(async () => expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1));
    signalTo((await status(relay)).workers[0]?.pid, 'SIGKILL');
    await eventually(async () => {
      const [worker] = (await status(relay)).workers;
      expect([worker?.restarts, worker?.listening]).to.deep.equal([1, true]);
    });
    const [client] = fleet(relay, 1, stack);
    await client?.gets('cds');
  });

  it('SIGTERM drains all workers and leaves nothing behind', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    using place = temporaryDirectory();
    const config = { upstreams: [files.upstream], workers: 2, drain_timeout: '500ms' };
    const relay = await startIn(place.path, config);
    await using stack = new AsyncDisposableStack();
    const clients = fleet(relay, 10, stack);
    for (const client of clients) await client.gets('cds');
    const pids = (await status(relay)).workers.map(({ pid }) => pid);
    const [feed = '', ...others] = feeds(place.path);
    expect(others).to.deep.equal([]);
    expect(modes(join(place.path, feed))).to.deep.equal([
      ['.', '700'],
      ['feed', '600'],
      ['primary', '600'],
      ['worker-1', '600'],
      ['worker-2', '600'],
    ]);
    expect(await relay.stop()).to.equal(0);
    for (const client of clients) expect((await client.ends()).code).to.equal(14);
    expect(pids.map(runs)).to.deep.equal([false, false]);
    expect(feeds(place.path)).to.deep.equal([]);
    expect(relay.faults('warn')).to.deep.equal([]);
  });

  it('a primary that is killed takes its workers and its socket with it', async () => {
    using files = new ResourceFiles();
    using place = temporaryDirectory();
    const relay = await startIn(place.path, { upstreams: [files.upstream], workers: 2 });
    const pids = (await status(relay)).workers.map(({ pid }) => pid);
    expect(feeds(place.path)).to.have.length(1);
    await relay.kill();
    await eventually(() => {
      expect(pids.map(runs)).to.deep.equal([false, false]);
      expect(feeds(place.path)).to.deep.equal([]);
    });
  });

  it('limits.max_connections counts over all workers', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      workers: 2,
      limits: { max_connections: 3 },
    });
    await using stack = new AsyncDisposableStack();
    for (let opened = 0; opened < 3; opened++) {
      const [client] = fleet(relay, 1, stack);
      await client?.gets('cds');
    }
    await eventually(async () => expect(await relay.metric('downstream_connections')).to.equal(3));
    for (let refused = 0; refused < 2; refused++) {
      const [client] = fleet(relay, 1, stack);
      expect((await client?.ends())?.code).to.equal(14);
    }
    expect(await relay.metric('downstream_rejected_total', 'reason="connections"')).to.be.at.least(2);
  });

  it('each client gets its variant, whichever worker it has', async () => {
    const config = {
      upstreams: [{ name: 'files', filesystem: { path: join(root, 'deploy/demo/resources') } }],
      parameters: ['env', 'version'].map((key) => ({ key, from: `node.metadata.${key}` })),
    };
    await using alone = await RelayProcess.start(config);
    await using relay = await RelayProcess.start({ ...config, workers: 2 });
    await using stack = new AsyncDisposableStack();
    const bodies = async ({ xds }: RelayProcess, env: string, protocol: 'sotw' | 'delta') => {
      const node = { id: `${env}-${protocol}`, cluster: 'fleet', metadata: { env } };
      const client = stack.use(new XdsClient(xds, protocol, { node }));
      const texts: string[] = [];
      for (const type of ['cds', 'lds']) {
        client.subscribe(type);
        const response = await client.gets(type);
        const read = protocol === 'sotw' ? sotwBodies(response) : response.first;
        texts.push(...read.map((bytes) => Buffer.from(bytes).toString('hex')));
      }
      return texts.toSorted(byText);
    };
    for (const protocol of ['sotw', 'delta'] as const) {
      const [prod, test] = [await bodies(alone, 'prod', protocol), await bodies(alone, 'test', protocol)];
      expect(prod).not.to.deep.equal(test);
      for (let round = 0; round < 3; round++) {
        expect(await bodies(relay, 'prod', protocol), `prod ${protocol}`).to.deep.equal(prod);
        expect(await bodies(relay, 'test', protocol), `test ${protocol}`).to.deep.equal(test);
      }
    }
  });

  it('a port that is taken: exit 1, and the reason', async () => {
    using files = new ResourceFiles();
    await using taken = createServer();
    await new Promise<void>((resolve) => {
      taken.listen(0, '127.0.0.1', resolve);
    });
    const bound = taken.address();
    const port = typeof bound === 'object' && bound !== null ? bound.port : 0;
    files.writeText(
      'relay.json',
      JSON.stringify({
        node: { id: 'relay' },
        xds: { address: `127.0.0.1:${port}` },
        admin: { address: '127.0.0.1:0' },
        upstreams: [files.upstream],
        workers: 2,
      }),
    );
    const { path } = files.upstream.filesystem;
    const { code, output } = await outcome(distributary('run', '--config', join(path, 'relay.json')));
    expect(code, output).to.equal(1);
    expect(output).to.include(`cannot listen on 127.0.0.1:${port}`);
  });
});

describe('workers: 2, which nothing happens to', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    // Any port, of an address that nobody else uses: the primary chooses one, and it is free until a worker listens.
    const address = process.platform === 'linux' ? '127.0.77.1:0' : '127.0.0.1:0';
    relay = await RelayProcess.start({ upstreams: [files.upstream], xds: { address }, workers: 2 });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('health says that the whole relay is ready, whichever worker is asked', async () => {
    await eventually(async () => {
      for (let asked = 0; asked < 4; asked++) expect(await isServing(relay.xds)).to.equal(true);
    });
    expect((await relay.get('/ready')).status).to.equal(200);
  });

  it('50 clients are shared out, an update reaches all, and what is counted adds up', async () => {
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    await using stack = new AsyncDisposableStack();
    const clients = fleet(relay, 50, stack);
    for (const client of clients) await client.gets('cds');
    files.write('cds', new Map([['shop', '2']]));
    for (const client of clients) await client.gets('cds', 2);

    const { workers, clients: streams, types } = await status(relay);
    expect(workers.map(({ listening }) => listening)).to.deep.equal([true, true]);
    for (const worker of workers) expect(worker.clients).to.be.greaterThan(0);
    expect(streams).to.equal(50);
    const [cds] = types;
    expect([cds?.type, cds?.resources, cds?.subscriptions]).to.deep.equal(['cds', 1, 50]);

    expect(await relay.metric('downstream_streams')).to.equal(50);
    expect(await relay.metric('downstream_streams', 'transport="delta"')).to.equal(25);
    expect(await relay.metric('downstream_subscriptions', 'type="cds"')).to.equal(50);
    expect(await relay.metric('downstream_responses_total', 'type="cds"')).to.equal(100);
    await eventually(async () => {
      expect(await relay.metric('downstream_requests_total', 'kind="ack"')).to.equal(100);
    });
    expect(await relay.metric('propagation_seconds_count')).to.be.greaterThan(49);
    expect(await relay.metric('worker_feed_seconds_count')).to.be.greaterThan(1);
    expect(await relay.metric('cache_resources', 'type="cds"')).to.equal(1);
    expect(await relay.metric('upstream_updates_total')).to.be.within(2, 4);
    const { body } = await relay.get('/metrics');
    expect(body.match(/^process_cpu_seconds_total.*? /gm)).to.deep.equal([
      'process_cpu_seconds_total ',
      'process_cpu_seconds_total{worker="1"} ',
      'process_cpu_seconds_total{worker="2"} ',
    ]);
    expect(relay.stdout.filter((line) => line.startsWith('listening xds'))).to.have.length(1);
  });

  it('ListClients, Explain, CSDS and rejections are of all workers', async () => {
    await eventually(async () => expect(await clientsOf(relay)).to.deep.equal([]));
    await using stack = new AsyncDisposableStack();
    // So many that by chance no worker stays without one.
    const clients = fleet(relay, 24, stack);
    for (const client of clients) await client.gets('cds');
    const nodes = clients.map((_, index) => `client-${index}`).toSorted(byText);

    const listed = await clientsOf(relay);
    expect(listed.map(({ node }) => node?.id ?? '').toSorted(byText)).to.deep.equal(nodes);
    expect(new Set(listed.map(({ id }) => id)).size).to.equal(24);
    expect(new Set(listed.map(workerOf)).size).to.equal(2);
    for (const { id } of listed) {
      const { body } = await relay.rpc(`${admin}/Explain`, { type: 'cds', name: 'shop', client: id });
      const explained = fromJsonString(ExplainResponseSchema, body);
      expect([explained.matchFound, explained.client?.type, explained.variants.length]).to.deep.equal([
        true,
        'cds',
        1,
      ]);
    }
    const nobody = await relay.rpc(`${admin}/Explain`, { type: 'cds', name: 'shop', client: '1-999' });
    expect([nobody.status, nobody.body.includes('distributary clients')]).to.deep.equal([404, true]);
    const command = await run(
      ...['explain', '--type', 'cds', '--name', 'shop'],
      ...['--client', listed.at(-1)?.id ?? '', '--admin', `http://${relay.admin}`],
    );
    expect(command.code, command.out).to.equal(0);

    const { body } = await relay.rpc(csds, {});
    const { config } = fromJsonString(ClientStatusResponseSchema, body, { registry: envoyRegistry() });
    const ids = nodesOf(config).filter((id) => id.startsWith('client-'));
    expect(ids.toSorted(byText)).to.deep.equal(nodes);
    expect(config.filter(({ clientScope }) => clientScope === 'upstream')).to.have.length(1);

    for (const [index, client] of clients.entries()) {
      const { nonce } = await client.gets('cds');
      const rejection = { responseNonce: nonce, errorDetail: { code: 3, message: 'no such filter' } };
      if (index % 2 === 0) client.sotw('cds', rejection);
      else client.delta('cds', rejection);
    }
    await eventually(async () => {
      const { nacks } = await status(relay);
      expect(nacks.map(({ type, error, clients: count }) => [type, error, count])).to.deep.equal([
        ['cds', 'no such filter', 24],
      ]);
    });
  });

  it('a reloaded configuration holds in all workers', async () => {
    await using stack = new AsyncDisposableStack();
    const clients = fleet(relay, 8, stack).filter((_, index) => index % 2 === 1);
    for (const client of clients) await client.gets('cds');
    const rules = [{ types: ['cds'], names: ['shop'], allow: false }, { allow: true }];
    relay.configure({ upstreams: [files.upstream], workers: 2, xds: { authorization: { rules } } });
    for (const client of clients) {
      const { removed } = await client.gets('cds', 2);
      expect(removed).to.deep.equal(['shop']);
    }
    expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1);
  });
});

describe('limits.max_streams, with workers: 2', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    relay = await RelayProcess.start({
      upstreams: [files.upstream],
      workers: 2,
      limits: { max_streams: 5 },
    });
  });

  beforeEach(() =>
    eventually(async () => expect(await relay.metric('downstream_streams')).not.to.be.greaterThan(0)),
  );

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('holds when streams open on all workers at the same time', async () => {
    const refused = async () => (await relay.metric('downstream_rejected_total', 'reason="streams"')) || 0;
    const before = await refused();
    await using stack = new AsyncDisposableStack();
    const clients = fleet(relay, 8, stack);
    await eventually(() => {
      const ended = clients.filter(({ status }) => status !== undefined);
      expect(ended.map(({ status }) => status?.code)).to.deep.equal([8, 8, 8]);
    });
    expect(await relay.metric('downstream_streams')).to.equal(5);
    expect((await refused()) - before).to.equal(3);
    const kept = clients.filter(({ status }) => status === undefined);
    await Promise.all(kept.map((client) => client.gets('cds')));
  });

  it('counts over all workers', async () => {
    await using stack = new AsyncDisposableStack();
    const taken: XdsClient[] = [];
    for (let opened = 0; opened < 5; opened++) {
      const [client] = fleet(relay, 1, stack);
      if (client === undefined) throw new Error('no client');
      await client.gets('cds');
      taken.push(client);
    }
    for (let refused = 0; refused < 2; refused++) {
      const [client] = fleet(relay, 1, stack);
      expect((await client?.ends())?.code).to.equal(8);
    }
    await taken[0]?.[Symbol.asyncDispose]();
    await eventually(async () => {
      const [client] = fleet(relay, 1, stack);
      await client?.gets('cds');
    });
    expect(await relay.metric('downstream_rejected_total', 'reason="streams"')).to.be.at.least(2);
  });

  it('counts streams of siblings over all workers, too', async () => {
    const metadata = new Metadata();
    metadata.set('x-distributary-sibling', 'b/1');
    const request = create(DeltaDiscoveryRequestSchema, { typeUrl: type('cds'), node: { id: 'b' } });
    using stack = new DisposableStack();
    const ends: number[] = [];
    for (let opened = 0; opened < 8; opened++) {
      const client = stack.adopt(rawClient(relay.xds), (one) => one.close());
      const call = openCall(client, `/${ADS_SERVICE}/DeltaAggregatedResources`, metadata);
      void statusOf(call).then(({ code }) => ends.push(code));
      call.write(Buffer.from(toBinary(DeltaDiscoveryRequestSchema, request)));
    }
    await eventually(() => expect(ends).to.deep.equal([8, 8, 8]));
    await using another = new AsyncDisposableStack();
    const [refused] = fleet(relay, 1, another);
    expect((await refused?.ends())?.code).to.equal(8);
  });
});

describe('limits.max_streams, lowered below what is open', () => {
  it('a refusal names the limit, and not how many are open', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    const config = { upstreams: [files.upstream] };
    await using relay = await RelayProcess.start(config);
    await using stack = new AsyncDisposableStack();
    await Promise.all(fleet(relay, 3, stack).map((client) => client.gets('cds')));
    await relay.reconfigure({ ...config, limits: { max_streams: 2 } });
    const [refused] = fleet(relay, 1, stack);
    expect((await refused?.ends())?.details).to.equal(
      '2 streams are open, the maximum of this relay (limits.max_streams)',
    );
  });
});

describe('workers: 2, and an upstream that cannot be reached', () => {
  let files: ResourceFiles;
  let relay: RelayProcess;

  before(async () => {
    files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    const dead = upstream('127.0.0.1:1', 'DELTA', { backoff: { initial: '10ms', max: '50ms' } });
    relay = await RelayProcess.start({
      upstreams: [{ ...files.upstream, types: ['cds'] }, dead],
      workers: 2,
    });
  });

  after(async () => {
    await relay?.[Symbol.asyncDispose]();
    files?.[Symbol.dispose]();
  });

  it('§8 a cold cache without an upstream: streams fail UNAVAILABLE; what is not asked of it goes on', async () => {
    await using cold = new XdsClient(relay.xds, 'delta');
    cold.subscribe('lds');
    const { code, details } = await cold.ends();
    expect([code, details]).to.deep.equal([
      14,
      'no control plane can be reached, and nothing that this stream asks for is cached',
    ]);
    await using warm = new XdsClient(relay.xds, 'delta');
    warm.subscribe('cds');
    expect(deltaNames(await warm.gets('cds'))).to.deep.equal(['shop']);
    await always(() => {
      expect(warm.status).to.equal(undefined);
    }, 2000);
  });

  it('health says that the whole relay is not ready, whichever worker is asked', async () => {
    for (let asked = 0; asked < 4; asked++) expect(await isServing(relay.xds)).to.equal(false);
    expect((await relay.get('/ready')).status).to.equal(503);
  });
});

async function isServing(address: string): Promise<boolean> {
  const client = rawClient(address);
  const answer = await unary(client, '/grpc.health.v1.Health/Check', Buffer.alloc(0));
  client.close();
  return fromBinary(HealthCheckResponseSchema, answer).status === HealthCheckResponse_ServingStatus.SERVING;
}
