import { expect } from 'chai';
import { type as typeOf } from '../support/in-memory-relay.ts';
import { ControlPlane, controlPlaneBinary } from './support/controlplane.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { apiListener, cluster, endpoints, routes } from './support/resources.ts';
import { need } from './support/skip.ts';
import { XdsClient } from './support/xds-client.ts';

const site = (port: number) => [
  apiListener('web', 'r'),
  routes('r', { '': 'c' }),
  cluster('c'),
  endpoints('c', port),
];

describe('a control plane that serves only the services of single types', () => {
  let binary: string;
  before(async function () {
    binary = await need(this, controlPlaneBinary());
  });

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    for (const cache of ['snapshot', 'linear'] as const) {
      it(`is asked by a stream for each type (${protocol}, go-control-plane, ${cache})`, async () => {
        await using plane = await ControlPlane.start(binary, { cache, ads: false });
        await plane.set(site(1));
        await using relay = await RelayProcess.start({
          drain_timeout: '100ms',
          upstreams: [upstream(plane.address, protocol, { services: 'PER_TYPE' })],
        });
        await using client = new XdsClient(relay.xds, 'delta');
        for (const type of ['lds', 'cds']) client.subscribe(type);
        client.subscribe('rds', ['r']);
        client.subscribe('eds', ['c']);
        for (const type of ['lds', 'cds', 'rds', 'eds'])
          expect((await client.gets(type)).resources).to.equal(1);
        const { requests, open } = await plane.stats();
        const streams = Map.groupBy(requests, ({ stream }) => stream);
        for (const of of streams.values()) expect(new Set(of.map(({ type }) => type)).size).to.equal(1);
        expect(open).to.equal(4);

        await plane.set(site(2));
        await client.gets('eds', 2);
        expect(requests.some(({ nack }) => nack)).to.equal(false);
      });
    }
  }

  it('with ADS, which it does not have, the relay says UNIMPLEMENTED; a reload to PER_TYPE repairs it', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'linear', ads: false });
    await plane.set(site(1));
    const config = (changes: object) => ({
      drain_timeout: '100ms',
      upstreams: [
        upstream(plane.address, 'DELTA', { backoff: { initial: '100ms', max: '200ms' }, ...changes }),
      ],
    });
    await using relay = await RelayProcess.start(config({}));
    await using early = new XdsClient(relay.xds, 'delta');
    early.subscribe('cds');
    await eventually(async () =>
      expect((await relay.get('/ready')).body).to.match(/unknown service .*Aggregated/),
    );
    relay.configure(config({ services: 'PER_TYPE' }));
    relay.signal('SIGHUP');
    await eventually(async () => {
      await using client = new XdsClient(relay.xds, 'delta');
      client.subscribe('cds');
      await client.gets('cds');
    });
  });

  it('types without a service are nobody’s there: other upstreams may claim them', async () => {
    await using plane = await ControlPlane.start(binary, { cache: 'linear', ads: false });
    await using relay = await RelayProcess.start({
      drain_timeout: '100ms',
      upstreams: [upstream(plane.address, 'SOTW', { services: 'PER_TYPE' })],
    });
    await using client = new XdsClient(relay.xds, 'delta');
    client.subscribe('example.com/some.Type', ['a']);
    client.subscribe('leds', ['a']);
    for (const type of ['example.com/some.Type', typeOf('leds')])
      expect((await client.gets(type)).resources).to.equal(0);
    expect((await plane.stats()).opened).to.equal(0);
  });
});
