import { expect } from 'chai';
import { type } from '../support/in-memory-relay.ts';
import { Envoy } from './support/envoy.ts';
import { ResourceFiles } from './support/files.ts';
import { RelayProcess } from './support/relay.ts';
import { cluster, endpoints, listener, type Resource, routes } from './support/resources.ts';
import { type EnvoySetting, prepareEnvoy } from './support/setting.ts';

const wrapped = (resource: Resource, name: string, seconds: number): object => ({
  '@type': 'type.googleapis.com/envoy.service.discovery.v3.Resource',
  name,
  ttl: `${seconds}s`,
  resource,
});

/** Envoy knows of times to live, but says so only if it is told to. */
const node = { id: 'envoy', cluster: 'web', client_features: ['xds.config.supports-resource-ttl'] };

describe('a real Envoy and times to live', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const transport of ['ads-sotw', 'ads-delta'] as const) {
    it(`§4.11 ${transport}: what is prolonged beside what has changed is accepted with it`, async () => {
      const { one, two, envoyBinary } = setting;
      using files = new ResourceFiles();
      const write = (short: string, version: number, resources: readonly object[]): void =>
        files.writeText(
          `${short}.json`,
          JSON.stringify({ version_info: `${version}`, type_url: type(short), resources }),
        );
      // Each version has another TTL: that is news of the office, too.
      const serve = (version: number, port: number): void =>
        write('eds', version, [
          wrapped(endpoints('shop', port), 'shop', 60 + version),
          wrapped(endpoints('office', two.port), 'office', 60 + version),
        ]);
      write('lds', 1, [listener('web', 'web-routes')]);
      write('rds', 1, [routes('web-routes', { '/office': 'office', '/': 'shop' })]);
      write('cds', 1, [cluster('shop'), cluster('office')]);
      serve(1, one.port);
      await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
      await using envoy = await Envoy.start(envoyBinary, { xds: relay.xds, transport, bootstrap: { node } });
      await envoy.answers('web', '/', 'one');
      await envoy.answers('web', '/office', 'two');
      // Envoy says to the second what it did with the first.
      for (const [version, port, answer] of [
        [2, two.port, 'two'],
        [3, one.port, 'one'],
      ] as const) {
        serve(version, port);
        await envoy.answers('web', '/', answer);
      }
      for (const name of ['shop', 'office'])
        expect(await envoy.stat(`cluster.${name}.update_rejected`), name).to.equal(0);
    });
  }
});
