import { expect } from 'chai';
import { type ControlPlane, subscriptions } from './support/controlplane.ts';
import { type Envoy, sourceOf } from './support/envoy.ts';
import { always, eventually } from './support/eventually.ts';
import { get } from './support/http.ts';
import { cluster, endpoints, listener, routes, website } from './support/resources.ts';
import { prepare, type Setting, Stage, titleOf, ways } from './support/setting.ts';

const notFound = { status: 404, body: '' };

describe('a real Envoy through the relay', () => {
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const way of ways) {
    const source = sourceOf(way.transport);
    const { protocol } = way;

    describe(titleOf(way), () => {
      let stage: Stage;
      let first: Envoy;
      let second: Envoy;
      let again: ControlPlane;

      before(async () => {
        stage = await Stage.start(setting, way, { resource_timeout: '1s' });
      });
      after(() => stage?.[Symbol.asyncDispose]());

      it('listeners, routes, clusters and endpoints arrive, and what changes afterwards', async () => {
        const { one, two } = setting;
        await stage.plane.set(website(source, one.port));
        first = await stage.envoy('first');
        await first.answers('web', '/', 'one');

        await stage.plane.set(website(source, two.port));
        await first.answers('web', '/', 'two');

        const [web] = website(source, one.port);
        const both = [cluster('shop', source), endpoints('shop', one.port)];
        if (web === undefined) throw new Error('no listener');
        await stage.plane.set([web, routes('web-routes', { '/sale': 'shop' }), ...both]);
        await first.answers('web', '/', notFound);
        await first.answers('web', '/sale', 'one');

        const more = [cluster('office', source), endpoints('office', two.port)];
        await stage.plane.set([
          web,
          routes('web-routes', { '/sale': 'shop', '/office': 'office' }),
          ...both,
          ...more,
        ]);
        await first.answers('web', '/office', 'two');

        await stage.plane.set([web, routes('web-routes', { '/sale': 'shop' }), ...both]);
        await first.answers('web', '/office', notFound);
        await eventually(async () => {
          const { body } = await first.admin('/clusters');
          expect(body).to.not.contain('office::');
        });
      });

      it('§8 what Envoy refuses is not sent again nor refused upstream; the last good stays', async () => {
        const good = website(source, setting.one.port);
        await stage.plane.set(good);
        await first.answers('web', '/', 'one');

        const bad = listener('bad', 'nothing', source);
        await stage.plane.set([
          ...good,
          { ...bad, filter_chains: [{ filters: [{ name: 'no such filter' }] }] },
        ]);
        await eventually(async () => {
          expect(await first.stat('listener_manager.lds.update_rejected')).to.be.at.least(1);
        });
        await always(async () => {
          expect(await first.stat('listener_manager.lds.update_rejected')).to.be.at.most(3);
          await first.answers('web', '/', 'one');
        }, 1_000);
        expect(await stage.relay.metric('downstream_requests_total', 'kind="nack"')).to.be.at.least(1);
        const { requests } = await stage.plane.stats();
        expect(requests.filter(({ nack }) => nack)).to.deep.equal([]);

        await stage.plane.set(website(source, setting.two.port));
        await first.answers('web', '/', 'two');
      });

      it(`§3.9 names that the control plane never answers for (${protocol}) hold up nothing else`, async () => {
        const web = website(source, setting.one.port);
        const dangling = [cluster('ghost', source, '1s'), listener('mistyped', 'nowhere', source, '1s')];
        await stage.plane.set([...web, ...dangling]);
        // Neither the start of an Envoy, nor a change.
        second = await stage.envoy('second');
        for (const envoy of [second, first]) await envoy.answers('web', '/', 'one');
        const late = [routes('nowhere', { '/': 'ghost' }), endpoints('ghost', setting.two.port)];
        await stage.plane.set([...web, ...dangling, ...late]);
        for (const envoy of [second, first]) await envoy.answers('mistyped', '/', 'two');
      });

      it('the control plane dies: traffic goes on, a new Envoy gets everything from the cache', async () => {
        const { one, two } = setting;
        await stage.plane.set(website(source, one.port));
        await first.answers('web', '/', 'one');

        await stage.killControlPlane();
        const url = await first.url('web');
        await always(async () => {
          expect((await get(url)).body).to.equal('one');
        }, 1_500);
        const third = await stage.envoy('third');
        await third.answers('web', '/', 'one');

        again = await stage.controlPlaneAgain();
        await again.set(website(source, two.port), { version: 'after' });
        for (const envoy of [first, second, third]) await envoy.answers('web', '/', 'two');
      });

      it('several Envoys are one subscription each to whatever they share', async () => {
        const stats = await again.stats();
        const all = subscriptions(stats);
        expect(all).to.have.length(new Set(all).size);
        expect(stats.opened, 'streams to the control plane').to.be.at.most(2);
        expect(await stage.relay.metric('downstream_streams')).to.be.at.least(3);
      });
    });
  }

  it('SIGTERM ends it with 0, with Envoys connected', async () => {
    const [way] = ways;
    if (way === undefined) throw new Error('no way');
    await using stage = await Stage.start(setting, way);
    await stage.plane.set(website('ads', setting.one.port));
    const envoy = await stage.envoy();
    await envoy.answers('web', '/', 'one');
    expect(await stage.relay.stop()).to.equal(0);
    await envoy.answers('web', '/', 'one');
  });
});
