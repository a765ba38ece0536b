import { createClient } from '@connectrpc/connect';
import { createGrpcTransport } from '@connectrpc/connect-node';
import { expect } from 'chai';
import { LoadReportingService } from '../../src/gen/envoy/service/load_stats/v3/lrs_pb.ts';
import { Health, HealthCheckResponse_ServingStatus as Serving } from '../../src/gen/health_pb.ts';
import { ADS_SERVICE } from '../../src/model/types.ts';
import { isBusy } from '../support/busy.ts';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { listedServices } from './support/csds.ts';
import { eventually } from './support/eventually.ts';
import { LoadPlane, LoadReporter } from './support/load-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { readyOf } from './support/relay-state.ts';
import { XdsClient } from './support/xds-client.ts';

const interval = { loadReportingInterval: { nanos: 200_000_000 } };
const asked = { clusters: ['shop'], ...interval };

const upstreamOf = (plane: LoadPlane, name = 'central', more: object = {}): object => ({
  name,
  ads: { endpoints: [plane.address], backoff: { initial: '50ms', max: '200ms' } },
  ...more,
});

for (const workers of cases(0, 2)) {
  describe(`load reports: ${workers === 0 ? 'one process' : `${workers} workers`}`, () => {
    const parameters = [{ key: 'env', from: 'node.metadata.env' }];

    it('one stream for each session goes up, what is asked comes down, and the sums are exact', async () => {
      await using plane = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({ workers, parameters, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a', { env: 'x' });
      using b = new LoadReporter(relay.xds, 'b', { env: 'x' });
      using c = new LoadReporter(relay.xds, 'c', { env: 'y' });
      const all = [a, b, c];
      await eventually(() => expect(all.map(({ told }) => told.length)).to.deep.equal([1, 1, 1]));
      expect(a.told[0]?.clusters).to.deep.equal(['shop']);
      expect(plane.open).to.have.lengthOf(2);
      const nodes = plane.open.map(({ requests }) => requests[0]?.node?.metadata);
      expect(nodes).to.have.deep.members([{ env: 'x' }, { env: 'y' }]);
      for (let round = 0; round < 20; round++)
        for (const [at, each] of all.entries()) each.report('shop', 10 ** at);
      await eventually(() => expect(plane.issued('shop')).to.equal(20 * 111));
      plane.ask({ ...asked, clusters: ['shop', 'cart'], reportEndpointGranularity: true });
      await eventually(() => expect(c.told.at(-1)?.clusters).to.deep.equal(['shop', 'cart']));
      expect(c.told.at(-1)?.reportEndpointGranularity).to.equal(true);
    });

    it('§5c.3 an interval that is no duration is the longest one, for a client that may know of some clusters only', async () => {
      const unreal = { ...asked, loadReportingInterval: { seconds: 2n ** 63n - 1n } };
      await using plane = await new LoadPlane(unreal).listen();
      const authorization = { rules: [{ types: ['cds'], names: ['shop'], allow: true }] };
      await using relay = await RelayProcess.start({
        workers,
        upstreams: [upstreamOf(plane)],
        xds: { authorization },
      });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      expect(a.told[0]?.loadReportingInterval?.seconds).to.equal(315_576_000_000n);
    });

    it('what is in progress is of those that live', async () => {
      await using plane = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({ workers, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a');
      const b = new LoadReporter(relay.xds, 'b');
      await eventually(() => expect(a.told.length + b.told.length).to.equal(2));
      a.report('shop', 1, 5);
      b.report('shop', 1, 7);
      const latest = (): number => {
        const last = plane.open.flatMap(({ requests }) => requests.at(-1) ?? []);
        const stats = last
          .flatMap(({ clusterStats }) => clusterStats)
          .flatMap((each) => each.upstreamLocalityStats);
        return Number(stats[0]?.totalRequestsInProgress ?? -1);
      };
      await eventually(() => expect(latest()).to.equal(12), { pause: 20 });
      b[Symbol.dispose]();
      await eventually(() => expect(latest()).to.equal(5), { pause: 20 });
    });

    it('nothing is lost while the control plane is away', async () => {
      await using plane = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({ workers, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      a.report('shop', 1);
      await eventually(() => expect(plane.issued('shop')).to.equal(1));
      plane.kill();
      // What is sent on a connection that breaks is lost.
      await eventually(async () => expect((await readyOf(relay)).connected).to.equal(false));
      a.report('shop', 10);
      a.report('shop', 100);
      await plane.listen();
      await eventually(() => expect(plane.issued('shop')).to.equal(111));
      expect(a.status).to.equal(undefined);
    });

    it('a client that ends mid-interval has reported what it reported, and the stream goes up no longer', async () => {
      await using plane = await new LoadPlane({ ...asked, loadReportingInterval: { seconds: 1n } }).listen();
      await using relay = await RelayProcess.start({ workers, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      a.report('shop', 7);
      await eventually(async () =>
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(7),
      );
      a[Symbol.dispose]();
      await eventually(() => expect(plane.issued('shop')).to.equal(7));
      await eventually(() => expect(plane.open).to.have.lengthOf(0));
    });

    it('a control plane without the service: clients stay, and hear nothing', async () => {
      await using plane = await new LoadPlane(asked).listen();
      plane.isWithout = true;
      await using relay = await RelayProcess.start({ workers, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(async () =>
        expect(await relay.metric('load_report_streams', 'direction="received"')).to.equal(1),
      );
      await eventually(() => expect(relay.output).to.include('takes no load reports'));
      a.report('shop', 1);
      await eventually(async () =>
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(1),
      );
      expect(a.told).to.deep.equal([]);
      expect(await relay.metric('load_report_streams', 'direction="sent"')).to.equal(0);
      expect(a.status).to.equal(undefined);
    });

    it('a reload moves the sums to another control plane', async () => {
      await using before = await new LoadPlane({
        ...asked,
        loadReportingInterval: { seconds: 600n },
      }).listen();
      await using after = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({ workers, upstreams: [upstreamOf(before)] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      a.report('shop', 5);
      await eventually(async () => {
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(5);
      });
      await relay.reconfigure({ workers, upstreams: [upstreamOf(after)] });
      await eventually(() => expect(after.issued('shop')).to.equal(5));
      expect(before.issued('shop')).to.equal(0);
      expect(a.status).to.equal(undefined);
    });

    it('a client neither hears of nor reports clusters that xds.authorization denies it', async () => {
      const clusters = ['bank-orders', 'shop'];
      await using plane = await new LoadPlane({ ...asked, clusters }).listen();
      const rules = (name: string): object => ({
        authorization: {
          rules: [
            { names: [name], allow: false },
            { types: ['cds'], allow: true },
          ],
        },
      });
      const upstreams = [upstreamOf(plane)];
      await using relay = await RelayProcess.start({ workers, upstreams, xds: rules('bank*') });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      expect(a.told[0]?.clusters).to.deep.equal(['shop']);
      a.report('bank-orders', 7);
      a.report('shop', 5);
      await eventually(() => expect(plane.issued('shop')).to.equal(5));
      expect(plane.issued('bank-orders')).to.equal(0);
      expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(5);
      plane.ask({ ...asked, clusters, sendAllClusters: true });
      await eventually(() => expect(a.told.at(-1)?.sendAllClusters).to.equal(true));
      expect(a.told.at(-1)?.clusters).to.deep.equal([]);
      plane.ask({ ...asked, clusters });
      await relay.reconfigure({ workers, upstreams, xds: rules('shop*') });
      await eventually(() => expect(a.told.at(-1)?.clusters).to.deep.equal(['bank-orders']));
      a.report('shop', 1);
      a.report('bank-orders', 7);
      await eventually(() => expect(plane.issued('bank-orders')).to.equal(7));
      expect(plane.issued('shop')).to.equal(5);
    });

    it('OFF: the service is UNIMPLEMENTED, and neither health nor reflection has it, until a reload', async () => {
      await using plane = await new LoadPlane(asked).listen();
      const off = upstreamOf(plane, 'central', { load_reports: 'OFF' });
      await using relay = await RelayProcess.start({ workers, upstreams: [off] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.status).to.equal(12));
      const { typeName: service } = LoadReportingService;
      const transport = createGrpcTransport({ baseUrl: `http://${relay.xds}`, idleConnectionTimeoutMs: 100 });
      const health = createClient(Health, transport);
      const leave = new AbortController();
      const watched = health.watch({ service }, { signal: leave.signal })[Symbol.asyncIterator]();
      expect(await watched.next()).to.have.nested.property('value.status', Serving.SERVICE_UNKNOWN);
      expect((await health.list({})).statuses)
        .to.include.keys(ADS_SERVICE)
        .and.not.have.property(service);
      expect(await health.check({ service }).catch(String)).to.match(/not_found/);
      expect(await listedServices(transport))
        .to.include(ADS_SERVICE)
        .and.not.include(service);
      await relay.reconfigure({ workers, upstreams: [upstreamOf(plane)] });
      expect(await watched.next()).to.have.nested.property('value.status', Serving.SERVING);
      expect((await health.check({ service })).status).to.equal(Serving.SERVING);
      expect(await listedServices(transport)).to.include(service);
      leave.abort();
    });

    it('more clusters than limits.max_load_report_clusters are left out and counted', async () => {
      await using plane = await new LoadPlane({ sendAllClusters: true, ...interval }).listen();
      const limits = { max_load_report_clusters: 3 };
      await using relay = await RelayProcess.start({ workers, limits, upstreams: [upstreamOf(plane)] });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      a.send({ clusterStats: Array.from({ length: 5 }, (_, at) => ({ clusterName: `c${at}` })) });
      await eventually(async () =>
        expect(await relay.metric('load_report_clusters_dropped_total')).to.equal(2),
      );
      await eventually(() => {
        const reported = plane.open.flatMap(({ requests }) =>
          requests.flatMap(({ clusterStats }) => clusterStats),
        );
        expect(reported.map(({ clusterName }) => clusterName)).to.include.members(['c0', 'c1', 'c2']);
      });
    });

    it('with rollout.traffic clusters that nobody asked for do not take the place of others', async () => {
      await using plane = await new LoadPlane({ clusters: ['c4'], ...interval }).listen();
      await using relay = await RelayProcess.start({
        workers,
        upstreams: [upstreamOf(plane)],
        limits: { max_load_report_clusters: 3 },
        rollout: { traffic: { interval: '200ms' } },
      });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told.at(-1)?.sendAllClusters).to.equal(true));
      await eventually(() => expect(plane.open).to.have.lengthOf(1));
      const clusterStats = ['c0', 'c1', 'c2', 'c3', 'c4'].map((clusterName) => ({
        clusterName,
        upstreamLocalityStats: [{ totalIssuedRequests: 10n }],
      }));
      // Until the control plane has asked, nothing counts for it.
      await eventually(
        () => {
          a.send({ clusterStats });
          expect(plane.issued('c4')).to.be.above(0);
        },
        { pause: 100 },
      );
      expect(plane.issued('c0')).to.equal(0);
      expect(await relay.metric('load_report_clusters_dropped_total')).to.equal(0);
    });

    it('one peer may report to as many sessions as it may use: to all, where the limit is small', async () => {
      await using plane = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({
        workers,
        parameters,
        limits: { max_upstream_sessions: 4 },
        upstreams: [upstreamOf(plane)],
      });
      await using stack = new AsyncDisposableStack();
      const reporters = ['a', 'b', 'c', 'd'].map((env) =>
        stack.use(new LoadReporter(relay.xds, env, { env })),
      );
      await eventually(() => expect(reporters.map(({ told }) => told.length)).to.deep.equal([1, 1, 1, 1]));
      expect(await relay.metric('downstream_rejected_total', 'reason="upstream_sessions"')).to.equal(0);
    });

    it('`load` shows requests, errors and drops by cluster and class', async () => {
      await using plane = await new LoadPlane(asked).listen();
      await using relay = await RelayProcess.start({ workers, parameters, upstreams: [upstreamOf(plane)] });
      const at = ['--admin', `http://${relay.admin}`];
      expect((await run('load', ...at)).out).to.equal('no client has reported any request');
      using a = new LoadReporter(relay.xds, 'a', { env: 'x' });
      using b = new LoadReporter(relay.xds, 'b', { env: 'x' });
      using c = new LoadReporter(relay.xds, 'c', { env: 'y' });
      await eventually(() => expect([a, b, c].map(({ told }) => told.length)).to.deep.equal([1, 1, 1]));
      for (const each of [a, b]) each.report('shop', 10, 0, 2);
      c.report('shop', 5);
      c.report('cart', 1, 0, 1);
      c.send({ clusterStats: [{ clusterName: 'cart', totalDroppedRequests: 4n }] });
      const shown = async (...more: readonly string[]) => {
        const { out } = await run('load', ...at, '--json', ...more);
        return (JSON.parse(out) as { readonly loads: readonly Record<string, unknown>[] }).loads.map(
          ({ cluster, parameters: of, requests, errors, dropped }) => [
            cluster,
            of,
            requests,
            errors,
            dropped,
          ],
        );
      };
      const [x, y] = [{ env: 'x' }, { env: 'y' }];
      await eventually(async () =>
        expect(await shown()).to.deep.equal([
          ['shop', x, 20, 4, 0],
          ['shop', y, 5, 0, 0],
          ['cart', y, 1, 1, 4],
        ]),
      );
      expect(await shown('--cluster', '*ar*')).to.deep.equal([['cart', y, 1, 1, 4]]);
      expect(await shown('--cluster', 'ca*')).to.deep.equal([['cart', y, 1, 1, 4]]);
      expect(await shown('--class', 'env=x')).to.deep.equal([['shop', x, 20, 4, 0]]);
      const first = async (asked: object): Promise<unknown> => {
        const { body } = await relay.rpc('distributary.admin.v1.AdminService/Load', asked);
        const { loads, total } = JSON.parse(body) as {
          readonly loads: readonly { readonly cluster: string }[];
          readonly total: number;
        };
        return [loads.map(({ cluster }) => cluster), total];
      };
      a.report('failing', 3, 0, 3);
      await eventually(async () => expect(await first({ limit: 1 })).to.deep.equal([['shop'], 4]));
      b.report('failing', 3, 0, 3);
      await eventually(async () =>
        expect(await first({ limit: 2, errors_first: true })).to.deep.equal([['failing', 'shop'], 4]),
      );
      const { out } = await run('load', ...at, '--cluster', 'shop');
      expect(out).to.match(
        /^CLUSTER +CLASS +REQUESTS\/S +ERRORS +DROPPED\/S\nshop +env=x +[\d.]+ +20\.0 % +0\.0\n/,
      );
      expect(out).to.match(/\n2 rows of the last \d+ s$/);
      c.send({ clusterStats: [{ clusterName: 'idle', totalDroppedRequests: 2n }] });
      await eventually(async () => {
        const idle = await run('load', ...at, '--cluster', 'idle');
        expect(idle.out).to.match(/\nidle +env=y +0\.0 +– +[\d.]+\n/);
      });
    });

    it('at a drain what was not sent is sent', async () => {
      await using plane = await new LoadPlane({
        ...asked,
        loadReportingInterval: { seconds: 600n },
      }).listen();
      await using relay = await RelayProcess.start({
        workers,
        drain_timeout: '1s',
        upstreams: [upstreamOf(plane)],
      });
      using a = new LoadReporter(relay.xds, 'a');
      await eventually(() => expect(a.told).to.have.lengthOf(1));
      a.report('shop', 7);
      await eventually(async () =>
        expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(7),
      );
      await relay.stop();
      expect(plane.issued('shop')).to.equal(7);
    });
  });
}

describe('a large load report', () => {
  /** What the bound of 10 ms leaves for garbage collection and for a machine that does something else too. */
  const longestTurnMs = (): number => (isBusy() ? 60 : 30);

  it('is read in turns of the event loop', async () => {
    await using plane = await new LoadPlane({
      sendAllClusters: true,
      loadReportingInterval: { seconds: 600n },
    }).listen();
    await using relay = await RelayProcess.startProbed({
      upstreams: [upstreamOf(plane)],
      drain_timeout: '1s',
    });
    using a = new LoadReporter(relay.xds, 'a');
    await eventually(() => expect(a.told).to.have.lengthOf(1));
    const load = { totalSuccessfulRequests: 1n, totalErrorRequests: 2n, totalIssuedRequests: 3n };
    const localities = Array.from({ length: 120_000 }, (_, at) => ({
      locality: { zone: `zone-${at % 20_000}` },
      ...load,
    }));
    const large = { clusterStats: [{ clusterName: 'shop', upstreamLocalityStats: localities }] };
    const counted = (reports: number): Promise<unknown> =>
      eventually(async () => {
        const [success, errors] = await Promise.all(
          ['success', 'error'].map((outcome) => relay.metric('load_requests_total', `outcome="${outcome}"`)),
        );
        expect([success, errors]).to.deep.equal([reports * 120_000, reports * 240_000]);
      });
    for (const reports of [1, 2, 3]) {
      a.send(large);
      await counted(reports); // compiles it
    }
    await relay.blocked();
    a.send(large);
    await counted(4);
    const { cpu } = await relay.blocked();
    expect(cpu).to.be.below(longestTurnMs());
    await relay.stop();
    expect(plane.issued('shop')).to.equal(4 * 360_000);
  });
});

/** The two clients have a connection each, and so with workers perhaps a process each. */
describe('load reports to several control planes', () => {
  it('a client reports to each upstream of which it has a subscription, what that one has asked for', async () => {
    await using clusters = await new LoadPlane({ ...asked, clusters: ['a', 'b'] }).listen();
    await using endpoints = await new LoadPlane({
      clusters: ['b', 'c'],
      loadReportingInterval: { seconds: 600n },
    }).listen();
    await using relay = await RelayProcess.start({
      upstreams: [
        upstreamOf(clusters, 'clusters', { types: ['cds'] }),
        upstreamOf(endpoints, 'endpoints', { types: ['eds'] }),
      ],
    });
    await using both = new XdsClient(relay.xds, 'delta', { node: { id: 'both' } });
    both.subscribe('cds');
    both.subscribe('eds', ['x']);
    using nothing = new LoadReporter(relay.xds, 'nothing');
    await eventually(() => expect(nothing.told[0]?.clusters).to.deep.equal(['a', 'b']));
    await eventually(async () => {
      expect((await relay.clients()).find(({ node }) => node.id === 'both')?.types).to.have.lengthOf(2);
    });
    using client = new LoadReporter(relay.xds, 'both');
    await eventually(() => expect(client.told.at(-1)?.clusters).to.deep.equal(['a', 'b', 'c']));
    expect(client.told.at(-1)?.loadReportingInterval?.nanos).to.equal(200_000_000);
    endpoints.ask({ clusters: ['b', 'c'], ...interval });
    for (const cluster of ['a', 'b', 'c']) client.report(cluster, 1);
    await eventually(() => {
      expect(['a', 'b', 'c'].map((name) => clusters.issued(name))).to.deep.equal([1, 1, 0]);
      expect(['a', 'b', 'c'].map((name) => endpoints.issued(name))).to.deep.equal([0, 1, 1]);
    });
  });

  it('with rollout.traffic also what is of one that takes none is counted, for that one', async () => {
    await using clusters = await new LoadPlane(asked).listen();
    await using endpoints = await new LoadPlane(asked).listen();
    await using relay = await RelayProcess.start({
      upstreams: [
        upstreamOf(clusters, 'clusters', { types: ['cds'] }),
        upstreamOf(endpoints, 'endpoints', { types: ['eds'], load_reports: 'OFF' }),
      ],
      rollout: { traffic: { interval: '100ms' } },
    });
    await using xds = new XdsClient(relay.xds, 'delta', { node: { id: 'a' } });
    xds.subscribe('eds', ['x']);
    await eventually(async () => expect((await relay.clients())[0]?.types).to.have.lengthOf(1));
    using client = new LoadReporter(relay.xds, 'a');
    await eventually(() => expect(client.told.at(-1)?.sendAllClusters).to.equal(true));
    client.report('shop', 1);
    const received = (upstream: string) =>
      relay.metric('load_reports_total', `direction="received",upstream="${upstream}"`);
    await eventually(async () => expect(await received('endpoints')).to.equal(1));
    expect([await received('clusters'), clusters.issued('shop')]).to.deep.equal([0, 0]);
  });

  it('§5c.2 a type that the first has no service for is subscribed from the second, which gets the reports', async () => {
    await using perType = await new LoadPlane({ ...asked, clusters: ['a'] }).listen();
    await using aggregated = await new LoadPlane({ ...asked, clusters: ['b'] }).listen();
    await using relay = await RelayProcess.start({
      upstreams: [
        { name: 'per-type', names: ['x*'], ads: { endpoints: [perType.address], services: 'PER_TYPE' } },
        upstreamOf(aggregated, 'aggregated'),
      ],
    });
    await using tables = new XdsClient(relay.xds, 'delta', { node: { id: 'tables' } });
    tables.subscribe('type.googleapis.com/istio.networking.nds.v1.NameTable', ['x']);
    await eventually(async () => {
      expect((await relay.clients()).find(({ node }) => node.id === 'tables')?.types).to.have.lengthOf(1);
    });
    using client = new LoadReporter(relay.xds, 'tables');
    await eventually(() => expect(client.told.at(-1)?.clusters).to.deep.equal(['b']));
  });

  for (const workers of cases(2, 0)) {
    it(`its subscriptions may be on another connection; workers: ${workers}`, async () => {
      await using clusters = await new LoadPlane({ ...asked, clusters: ['a', 'b'] }).listen();
      await using endpoints = await new LoadPlane({ ...asked, clusters: ['b', 'c'] }).listen();
      await using relay = await RelayProcess.start({
        workers,
        upstreams: [
          upstreamOf(clusters, 'clusters', { types: ['cds'] }),
          upstreamOf(endpoints, 'endpoints', { types: ['eds'] }),
        ],
      });
      // So many that some have the two connections in different workers.
      const nodes = Array.from({ length: 8 }, (_, index) => `node-${index}`);
      await using stack = new AsyncDisposableStack();
      for (const id of nodes) {
        const pool = stack.use(new ClientPool(relay.xds, 1));
        pool.open('delta', id).subscribe('eds', ['x']);
      }
      await eventually(async () => {
        const subscribed = (await relay.clients()).filter(({ types }) => types.length > 0);
        expect(subscribed).to.have.lengthOf(nodes.length);
      });
      const reporters = nodes.map((id) => stack.use(new LoadReporter(relay.xds, id)));
      await eventually(() => {
        const told = reporters.map((reporter) => reporter.told.at(-1)?.clusters);
        expect(told).to.deep.equal(nodes.map(() => ['b', 'c']));
      });
      for (const reporter of reporters) reporter.report('b', 1);
      await eventually(() => expect(endpoints.issued('b')).to.equal(nodes.length));
      expect(clusters.issued('b')).to.equal(0);
    });
  }
});
