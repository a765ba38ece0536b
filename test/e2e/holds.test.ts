import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { ControlPlane, controlPlaneBinary, subscriptions } from './support/controlplane.ts';
import { always, eventually } from './support/eventually.ts';
import { cpuSeconds } from './support/process-figures.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { CLUSTER, cluster, ENDPOINTS, endpoints, website } from './support/resources.ts';
import { need } from './support/skip.ts';
import { type NodeInit, XdsClient } from './support/xds-client.ts';

describe('one conversation upstream, however many clients', function () {
  this.timeout(180_000);
  let binary: string;

  before(async function () {
    binary = await need(this, controlPlaneBinary());
  });

  const resources = [...website('ads', 1), cluster('office'), endpoints('office', 2)];
  /** In two kinds by their order: half SotW, half delta. */
  const fleet = (relay: RelayProcess, size: number, env: string): XdsClient[] =>
    Array.from({ length: size }, (_, index) => {
      const node: NodeInit = { id: `${env}-${index}`, cluster: 'fleet', metadata: { env } };
      return new XdsClient(relay.xds, index % 2 === 0 ? 'sotw' : 'delta', { node });
    });

  for (const protocol of cases('DELTA' as const, 'SOTW' as const)) {
    it(`50 clients are one stream, and one subscription to each name (upstream ${protocol})`, async () => {
      await using plane = await ControlPlane.start(binary, { cache: 'linear' });
      await plane.set(resources);
      await using relay = await RelayProcess.start({ upstreams: [upstream(plane.address, protocol)] });
      await using stack = new AsyncDisposableStack();
      const clients = fleet(relay, 50, 'prod').map((client) => stack.use(client));
      for (const client of clients) {
        client.subscribe('cds');
        client.subscribe('lds');
        client.subscribe('eds', ['shop', 'office']);
        client.subscribe('rds', ['web-routes']);
      }
      for (const client of clients) {
        for (const type of ['cds', 'lds', 'eds', 'rds']) await client.gets(type);
      }
      const stats = await plane.stats();
      expect([stats.opened, stats.open]).to.deep.equal([1, 1]);
      const all = subscriptions(stats);
      expect(all).to.have.length(new Set(all).size);
      expect(all).to.include.members([`${CLUSTER} *`, `${ENDPOINTS} shop`, `${ENDPOINTS} office`]);
      // However often clients acknowledge: upstream hears one ACK of each response.
      expect(stats.requests.length).to.be.at.most(16);
      expect(await relay.metric('downstream_streams')).to.equal(50);
    });
  }

  it('clients of two kinds (a rule tells them apart) are two streams, and one again when a kind has gone', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'snapshot', key: 'env' });
    await plane.set(website('ads', 1), { key: 'prod' });
    await plane.set(website('ads', 2), { key: 'test' });
    await using relay = await RelayProcess.start({
      upstreams: [upstream(plane.address, 'DELTA')],
      parameters: [{ key: 'env', from: 'node.metadata.env' }],
      cache: { idle_ttl: '0s' },
    });
    await using stack = new AsyncDisposableStack();
    const prod = fleet(relay, 20, 'prod').map((client) => stack.use(client));
    await using tests = new AsyncDisposableStack();
    const test = fleet(relay, 20, 'test').map((client) => tests.use(client));
    for (const client of [...prod, ...test]) client.subscribe('eds', ['shop']);
    for (const client of [...prod, ...test]) await client.gets('eds');
    expect(prod[0]?.of('eds')[0]?.first).to.not.deep.equal(test[0]?.of('eds')[0]?.first);
    const { opened, open, requests } = await plane.stats();
    expect([opened, open]).to.deep.equal([2, 2]);
    expect(requests.filter(({ names }) => names.includes('shop'))).to.have.length(2);
    const envs = requests.map(({ node }) => JSON.stringify(node?.['metadata'])).filter(Boolean);
    expect([...new Set(envs)].toSorted()).to.deep.equal(['{"env":"prod"}', '{"env":"test"}']);
    await tests.disposeAsync();
    await eventually(async () => expect((await plane.stats()).open).to.equal(1));
  });
});

describe('upstream is gone for a while', function () {
  this.timeout(180_000);

  it('one line in the log, little CPU, streams fail UNAVAILABLE; one more line when it is back', async function () {
    const binary = await need(this, controlPlaneBinary());
    const plane = await ControlPlane.start(binary, { cache: 'linear' });
    await plane[Symbol.asyncDispose]();
    await using relay = await RelayProcess.start({
      upstreams: [upstream(plane.address, 'DELTA', { backoff: { initial: '10ms', max: '50ms' } })],
    });
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('cds');
    const { code, details } = await client.ends();
    expect([code, details]).to.deep.equal([
      14,
      'no control plane can be reached, and nothing that this stream asks for is cached',
    ]);
    expect((await relay.get('/ready')).status).to.equal(503);
    const attempts = await relay.metric('upstream_reconnects_total');
    const cpu = cpuSeconds(relay.pid);
    await always(() => {}, 2_000);
    const spent = cpuSeconds(relay.pid) - cpu;
    // On a busy machine they take longer.
    await eventually(async () =>
      expect(await relay.metric('upstream_reconnects_total'), 'attempts').to.be.greaterThan(attempts + 10),
    );
    expect(spent, 'seconds of CPU in 2 s with a try each 25 ms').to.be.lessThan(1);
    const failures = () => relay.log.filter(({ message }) => message === 'control plane failed');
    expect(failures()).to.have.length(1);

    await using again = await ControlPlane.start(binary, { cache: 'linear', address: plane.address });
    await again.set(website('ads', 1));
    await eventually(async () => expect((await relay.get('/ready')).status).to.equal(200));
    await eventually(() => {
      const connected = relay.log.filter(({ message }) => message === 'connected to the control plane');
      expect(connected).to.have.length(1);
    });
    expect(failures()).to.have.length(1);
  });
});
