import { expect } from 'chai';
import { Envoy } from './support/envoy.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane, realBody } from './support/model-plane.ts';
import { RelayProcess } from './support/relay.ts';
import { cluster, ENDPOINTS, listener, routes, socketAddress } from './support/resources.ts';
import { type EnvoySetting, prepareEnvoy } from './support/setting.ts';

const kind = 'envoy.config.endpoint.v3.LbEndpoint';
const collection = `xdstp://shop.example/${kind}/shop`;
const leds = {
  leds_config: { resource_api_version: 'V3', ads: {} },
  leds_collection_name: `${collection}/*`,
};
const assignment = {
  '@type': ENDPOINTS,
  cluster_name: 'shop',
  endpoints: [{ locality: { region: 'here' }, load_balancing_weight: 1, leds_cluster_locality_config: leds }],
};

/** One endpoint, as a resource of its own. */
const member = (port: number): Readonly<Record<string, string>> => ({
  [`${collection}/a`]: JSON.stringify({
    '@type': `type.googleapis.com/${kind}`,
    endpoint: { address: socketAddress(port) },
  }),
});

async function startPlane(port: number): Promise<ModelPlane> {
  const plane = await ModelPlane.start(realBody);
  plane.set('cds', { shop: JSON.stringify(cluster('shop')) });
  plane.set('lds', { web: JSON.stringify(listener('web', 'web-routes')) });
  plane.set('rds', { 'web-routes': JSON.stringify(routes('web-routes', { '/': 'shop' })) });
  plane.set('eds', { shop: JSON.stringify(assignment) });
  plane.set('leds', member(port));
  return plane;
}

describe('endpoints one by one (LEDS) through the relay', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('Envoy gets the members of a glob collection, follows them, and a new one gets them in an outage', async () => {
    const { envoyBinary, one, two } = setting;
    await using plane = await startPlane(one.port);
    await using relay = await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
    });
    const options = { xds: relay.xds, transport: 'ads-delta' } as const;
    await using envoy = await Envoy.start(envoyBinary, options);
    await envoy.answers('web', '/', 'one');
    plane.set('leds', member(two.port));
    await envoy.answers('web', '/', 'two');
    const asked = plane.requests.filter(
      (request) => 'resourceNamesSubscribe' in request && request.resourceNamesSubscribe.length > 0,
    );
    const order = [...new Set(asked.map(({ typeUrl }) => typeUrl.slice(typeUrl.lastIndexOf('.') + 1)))];
    expect(order.indexOf('LbEndpoint')).to.be.above(order.indexOf('ClusterLoadAssignment'));

    plane.set('cds', { shop: JSON.stringify({ ...cluster('shop'), connect_timeout: '3s' }) });
    await eventually(async () => {
      expect(await envoy.stat('cluster_manager.cluster_modified')).to.equal(1);
      expect(await envoy.stat('cluster_manager.warming_clusters')).to.equal(0);
    });
    await envoy.answers('web', '/', 'two');

    plane.kill();
    await using late = await Envoy.start(envoyBinary, { ...options, id: 'late' });
    await late.answers('web', '/', 'two');
  });
});
