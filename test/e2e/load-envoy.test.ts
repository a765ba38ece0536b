import { expect } from 'chai';
import { Envoy } from './support/envoy.ts';
import { eventually } from './support/eventually.ts';
import { LoadPlane } from './support/load-plane.ts';
import { RelayProcess } from './support/relay.ts';
import { readyOf } from './support/relay-state.ts';
import {
  customListener,
  httpOptions,
  reporting,
  socketAddress,
  staticCluster,
  XDS_CLUSTER,
} from './support/resources.ts';
import { type EnvoySetting, prepareEnvoy } from './support/setting.ts';

/** An Envoy that asks for nothing and reports its load. */
function bootstrap(relay: RelayProcess, backend: number, id: string): object {
  const route = { match: { prefix: '/' }, route: { cluster: 'shop' } };
  const virtualHost = { name: 'all', domains: ['*'], routes: [route] };
  const { '@type': _type, ...web } = customListener('web', {
    route_config: { name: 'r', virtual_hosts: [virtualHost] },
  });
  const port = Number(relay.xds.slice(relay.xds.lastIndexOf(':') + 1));
  return {
    node: { id, cluster: 'test' },
    admin: { address: socketAddress(0) },
    ...reporting,
    static_resources: {
      listeners: [web],
      clusters: [
        staticCluster(XDS_CLUSTER, port, httpOptions({ http2_protocol_options: {} })),
        staticCluster('shop', backend),
      ],
    },
  };
}

describe('load reports of real Envoys', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('what they sent is what the control plane got, exactly, over its outage', async () => {
    const asked = { clusters: ['shop'], loadReportingInterval: { nanos: 300_000_000 } };
    await using plane = await new LoadPlane(asked).listen();
    const ads = { endpoints: [plane.address], backoff: { initial: '50ms', max: '200ms' } };
    await using relay = await RelayProcess.start({ upstreams: [{ name: 'central', ads }] });
    await using one = await Envoy.boot(setting.envoyBinary, bootstrap(relay, setting.one.port, 'one'));
    await using two = await Envoy.boot(setting.envoyBinary, bootstrap(relay, setting.one.port, 'two'));
    const reports = (): Promise<number> => relay.metric('load_reports_total', 'direction="received"');
    // Envoy counts from when it was asked.
    await eventually(async () => expect(await reports()).to.be.above(3));
    const request = async (envoy: Envoy, count: number): Promise<void> => {
      for (let at = 0; at < count; at++) await envoy.answers('web', '/', 'one');
    };
    await request(one, 40);
    await request(two, 20);
    await eventually(() => expect(plane.issued('shop')).to.equal(60));
    plane.kill();
    // What is sent on a connection that breaks is lost.
    await eventually(async () => expect((await readyOf(relay)).connected).to.equal(false));
    await request(one, 5);
    await request(two, 5);
    const before = await reports();
    await eventually(async () => expect(await reports()).to.be.above(before + 2));
    await plane.listen();
    await eventually(() => expect(plane.issued('shop')).to.equal(70));
    expect(await relay.metric('load_requests_total', 'outcome="success"')).to.equal(70);
  });
});
