import { expect } from 'chai';
import { type ControlPlane, subscriptions } from './support/controlplane.ts';
import type { Envoy } from './support/envoy.ts';
import { always, eventually } from './support/eventually.ts';
import { get } from './support/http.ts';
import { cluster, endpoints, routes, website } from './support/resources.ts';
import { prepare, type Setting, Stage, type Way } from './support/setting.ts';

const ways: readonly Way[] = [
  { transport: 'rest', protocol: 'DELTA', cache: 'snapshot' },
  { transport: 'rest', protocol: 'SOTW', cache: 'snapshot' },
];

describe('a real Envoy that polls: api_type REST for LDS, RDS, CDS and EDS', () => {
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const way of ways) {
    describe(`upstream ${way.protocol}`, () => {
      let stage: Stage;
      let first: Envoy;
      let again: ControlPlane;

      before(async () => {
        stage = await Stage.start(setting, way);
      });
      after(() => stage?.[Symbol.asyncDispose]());

      it('configuration arrives, and what changes afterwards; unchanged polls are 304', async () => {
        const { one, two } = setting;
        await stage.plane.set(website('rest', one.port));
        first = await stage.envoy('first');
        await first.answers('web', '/', 'one');

        await stage.plane.set(website('rest', two.port));
        await first.answers('web', '/', 'two');

        const [web] = website('rest', one.port);
        if (web === undefined) throw new Error('no listener');
        await stage.plane.set([
          web,
          routes('web-routes', { '/sale': 'shop', '/office': 'office' }),
          cluster('shop', 'rest'),
          endpoints('shop', one.port),
          cluster('office', 'rest'),
          endpoints('office', two.port),
        ]);
        await first.answers('web', '/sale', 'one');
        await first.answers('web', '/office', 'two');
        await first.answers('web', '/', { status: 404, body: '' });

        await eventually(async () => {
          expect(await first.stat('cluster.xds.upstream_rq_304')).to.be.at.least(10);
        });
        await eventually(async () => {
          const [client, ...others] = await stage.relay.clients();
          expect(others).to.deep.equal([]);
          expect(client?.types.map(({ type, state }) => `${type} ${state}`)).to.have.members([
            'lds SYNCED',
            'rds SYNCED',
            'cds SYNCED',
            'eds SYNCED',
          ]);
        });
        expect(await first.stat('listener_manager.lds.update_rejected')).to.equal(0);
        expect(await first.stat('cluster_manager.cds.update_rejected')).to.equal(0);
      });

      it('the control plane dies: traffic goes on, a new Envoy gets everything from the cache', async () => {
        const { one, two } = setting;
        await stage.plane.set(website('rest', one.port));
        await first.answers('web', '/', 'one');

        await stage.killControlPlane();
        const url = await first.url('web');
        await always(async () => {
          expect((await get(url)).body).to.equal('one');
        }, 1_000);
        const second = await stage.envoy('second');
        await second.answers('web', '/', 'one');

        again = await stage.controlPlaneAgain();
        await again.set(website('rest', two.port), { version: 'after' });
        await first.answers('web', '/', 'two');
        await second.answers('web', '/', 'two');
      });

      if (way !== ways[0]) return;

      it('four hundred pollers and two Envoys are one subscription each to whatever they share', async () => {
        for (let batch = 0; batch < 8; batch++) {
          const polls = Array.from({ length: 50 }, (_, index) =>
            fetch(`http://${stage.relay.rest}/v3/discovery:clusters`, {
              method: 'POST',
              headers: { 'content-type': 'application/json' },
              body: JSON.stringify({ node: { id: `poller-${batch}-${index}` } }),
            }),
          );
          for (const answer of await Promise.all(polls)) {
            expect(answer.status).to.equal(200);
            await answer.text();
          }
        }
        const all = subscriptions(await again.stats());
        expect(all).to.have.length(new Set(all).size);
      });
    });
  }
});
