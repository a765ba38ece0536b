import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { issueCertificate } from '../support/certificates.ts';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { ModelPlane } from './support/model-plane.ts';
import { PemFiles } from './support/pem-files.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { XdsClient } from './support/xds-client.ts';

const central = (plane: ModelPlane): object => ({ name: 'central', ads: { endpoints: [plane.address] } });
const day = 86_400;

describe('metrics for operators', () => {
  for (const workers of cases(0, 2)) {
    it(`who rejects, who has not answered, and how many classes there are (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({ upstreams: [central(plane)], workers });
      // An autoscaler cannot read a metric that is not there.
      await eventually(async () =>
        expect(await relay.metric('downstream_streams', 'service="ads"')).to.equal(0),
      );
      const path = '/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints';
      const endpoints = 'transport="delta",service="eds"';
      {
        await using single = new XdsClient(relay.xds, 'delta', { path });
        single.subscribe('eds', ['a']);
        await eventually(async () => expect(await relay.metric('downstream_streams', endpoints)).to.equal(1));
      }
      await eventually(async () => expect(await relay.metric('downstream_streams', endpoints)).to.equal(0));
      using pool = new ClientPool(relay.xds, 4);
      const [good, bad, silent] = [pool.open('delta'), pool.open('sotw'), pool.open('delta')];
      bad.rejects = () => 'no';
      silent.answers = false;
      for (const client of [good, bad, silent]) {
        client.subscribe('cds');
        await eventually(() => expect(client.of('cds')).not.to.be.empty);
      }
      await eventually(async () => {
        expect(await relay.metric('downstream_rejecting', 'type="cds"')).to.equal(1);
        expect(await relay.metric('downstream_unacknowledged', 'type="cds"')).to.equal(1);
        // Each worker has classes of its own.
        expect(await relay.metric('classes', 'type="cds"')).to.be.within(1, Math.max(1, workers));
      });
      bad.rejects = () => undefined;
      plane.set('cds', { a: '2' });
      await eventually(async () =>
        expect(await relay.metric('downstream_rejecting', 'type="cds"')).to.equal(0),
      );
    });
  }

  for (const workers of cases(0, 2)) {
    it(`how long clients take to accept a change (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({ upstreams: [central(plane)], workers });
      using pool = new ClientPool(relay.xds, 4);
      const clients = [pool.open('delta'), pool.open('sotw'), pool.open('delta')];
      for (const client of clients) {
        client.subscribe('cds');
        await client.gets('cds', { a: '1' });
      }
      expect(await relay.metric('acknowledged_seconds_count', 'type="cds"')).to.equal(0);
      plane.set('cds', { a: '2' });
      await eventually(async () =>
        expect(await relay.metric('acknowledged_seconds_count', 'type="cds"')).to.equal(3),
      );
      expect(await relay.metric('propagation_seconds_count')).to.equal(3);
      const [handedOver, accepted] = [
        await relay.metric('propagation_seconds_sum'),
        await relay.metric('acknowledged_seconds_sum', 'type="cds"'),
      ];
      expect(accepted).to.be.greaterThan(handedOver).and.to.be.lessThan(30);
    });
  }

  for (const workers of cases(0, 1)) {
    it(`when certificates expire, also after they were replaced (workers: ${workers})`, async () => {
      const authority = issueCertificate({ name: 'authority', authority: true });
      const issue = (days: number) =>
        issueCertificate({ name: 'relay', issuer: authority, ips: ['127.0.0.1'], days });
      using pem = new PemFiles();
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      const tls = pem.identity('xds', issue(3));
      await using relay = await RelayProcess.start({
        upstreams: [central(plane)],
        xds: { tls },
        rest: { tls: pem.identity('rest', issue(5)) },
        workers,
      });
      const daysLeft = async (listener: string): Promise<number> => {
        const at = await relay.metric('certificate_expiry_timestamp_seconds', `listener="${listener}"`);
        return Math.round((at - Date.now() / 1000) / day);
      };
      await eventually(async () => expect(await daysLeft('xds')).to.equal(3));
      expect(await daysLeft('rest')).to.equal(5);
      pem.identity('xds', issue(9));
      await eventually(async () => expect(await daysLeft('xds')).to.equal(9));
    });
  }

  it('the bounds in force, readiness, versions, and when the configuration was read', async () => {
    await using plane = await ModelPlane.start();
    const config = (streams: number) => ({
      upstreams: [central(plane)],
      limits: { max_streams: streams, stalled_timeout: '1500ms' },
    });
    await using relay = await RelayProcess.start(config(100));
    await eventually(async () => expect(await relay.metric('ready')).to.equal(1));
    expect(await relay.metric('limit', 'name="max_streams"')).to.equal(100);
    expect(await relay.metric('limit', 'name="stalled_timeout"')).to.equal(1.5);
    const { limits } = z
      .object({ limits: z.record(z.string(), z.unknown()) })
      .parse(JSON.parse((await relay.get('/config_dump')).body));
    for (const name of Object.keys(limits).filter((key) => key !== 'relay_peers'))
      expect(await relay.metric('limit', `name="${name}"`), name).to.be.at.least(0);
    expect(await relay.metric('build_info', `node="${process.version}"`)).to.equal(1);
    const before = await relay.metric('config_last_reload_timestamp_seconds');
    relay.configure(config(200));
    await eventually(async () => expect(await relay.metric('limit', 'name="max_streams"')).to.equal(200));
    expect(await relay.metric('config_last_reload_timestamp_seconds')).to.be.greaterThan(before);
    expect(await relay.metric('config_last_reload_successful')).to.equal(1);
    relay.configure('upstreams: []');
    await eventually(async () => expect(await relay.metric('config_last_reload_successful')).to.equal(0));
    relay.configure(config(300));
    await eventually(async () => expect(await relay.metric('config_last_reload_successful')).to.equal(1));
  });

  it('an upstream that a reload has removed has no time of its last update any more', async () => {
    using files = new ResourceFiles();
    files.write('cds', new Map([['shop', '1']]));
    await using relay = await RelayProcess.start({ upstreams: [files.upstream] });
    const shown = async (): Promise<readonly string[]> =>
      [
        ...(await relay.get('/metrics')).body.matchAll(
          /^distributary_upstream_last_update\S*upstream="(\w+)"/gm,
        ),
      ].map(([, name = '']) => name);
    await eventually(async () => expect(await shown()).to.deep.equal([files.upstream.name]));
    await relay.reconfigure({ upstreams: [{ ...files.upstream, name: 'others' }] });
    await eventually(async () => expect(await shown()).to.deep.equal(['others']));
  });
});
