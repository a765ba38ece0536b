import { expect } from 'chai';
import { ControlPlane } from './support/controlplane.ts';
import { Envoy } from './support/envoy.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import {
  cluster,
  configSource,
  customListener,
  endpoints,
  listener,
  type Resource,
  routes,
} from './support/resources.ts';
import { prepare, type Setting } from './support/setting.ts';

/** Of Envoy: shorter than the 15 s that it has by default. */
const initialFetch = '4s';
const config_source = configSource('ads', initialFetch);
const discovered = {
  name: 'no-filter',
  config_discovery: {
    config_source,
    type_urls: ['type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault'],
  },
};
const routed = (name: string): object => ({ rds: { route_config_name: name, config_source } });

/** Listeners that wait for something that nobody has, and what they answer once they do not wait any more. */
const waiting: Readonly<Record<string, readonly [listener: Resource, status: number]>> = {
  routes: [customListener('office', routed('office-routes')), 404],
  'a filter': [customListener('office', routed('web-routes'), [discovered]), 500],
};

describe('Envoy and what a listener waits for, of which the relay knows that it is not there', () => {
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const [what, [office, status]] of Object.entries(waiting)) {
    it(`§10.6 ${what}: an Envoy starts when its own initial_fetch_timeout is over, the second one too`, async () => {
      await using plane = await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' });
      await plane.set([
        listener('web', 'web-routes', 'ads'),
        routes('web-routes', { '/': 'shop' }),
        cluster('shop', 'ads'),
        endpoints('shop', setting.one.port),
        office,
      ]);
      await using relay = await RelayProcess.start({
        upstreams: [upstream(plane.address, 'DELTA', { resource_timeout: '500ms' })],
      });
      for (const id of ['first', 'second']) {
        await using envoy = await Envoy.start(setting.envoyBinary, {
          xds: relay.xds,
          transport: 'ads-delta',
          id,
        });
        await envoy.answers('web', '/', 'one');
        await eventually(async () => {
          expect((await envoy.get('office', '/')).status).to.equal(status);
        });
      }
    });
  }
});
