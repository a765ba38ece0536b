import { expect } from 'chai';
import { ConstantRequests } from './support/constant-requests.ts';
import { ControlPlane } from './support/controlplane.ts';
import { Envoy } from './support/envoy.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import {
  cluster,
  configSource,
  customListener,
  endpoints,
  type Resource,
  routes,
  website,
} from './support/resources.ts';
import { reaches } from './support/rollout-state.ts';
import { prepare, type Setting } from './support/setting.ts';

const size = 10;
const rds = { rds: { route_config_name: 'web-routes', config_source: configSource('ads') } };
const router = {
  name: 'first-router',
  typed_config: { '@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router' },
};
/** Envoy takes a router only as the last filter. */
const badListener: Resource = customListener('web', rds, [router]);

describe('a rollout to real Envoys under constant requests', function () {
  this.timeout(180_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const transport of ['ads-delta', 'ads-sotw'] as const) {
    it(`${transport}: a listener that Envoy rejects stops at one of ten; the fix arrives everywhere; no request fails`, async () => {
      const { one, two } = setting;
      await using stack = new AsyncDisposableStack();
      const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
      await plane.set(website('ads', one.port));
      const rollout = { canary: { percent: 0.01 }, bake: '2s', types: ['lds', 'rds', 'cds'] };
      const upstreams = [upstream(plane.address, 'DELTA')];
      const relay = stack.use(await RelayProcess.start({ upstreams, rollout }));
      const envoys: Envoy[] = [];
      for (let at = 1; at <= size; at++) {
        const options = { xds: relay.xds, transport, id: `envoy-${at}` };
        envoys.push(stack.use(await Envoy.start(setting.envoyBinary, options)));
      }
      for (const envoy of envoys) await envoy.answers('web', '/', 'one', 60_000);
      await reaches(relay, 'IDLE');
      const requests: ConstantRequests[] = [];
      for (const envoy of envoys) requests.push(stack.use(new ConstantRequests(await envoy.url('web'), 1)));
      const rejected = (): Promise<readonly number[]> =>
        Promise.all(envoys.map((envoy) => envoy.stat('listener_manager.lds.update_rejected')));

      const shop = [routes('web-routes', { '/': 'shop' }), cluster('shop'), endpoints('shop', one.port)];
      await plane.set([badListener, ...shop]);
      const held = await reaches(relay, 'HELD');
      expect(held.reason).to.match(/^lds web: .*terminal/);
      await eventually(async () => expect((await rejected()).filter((count) => count > 0)).to.have.length(1));
      const canary = (await rejected()).findIndex((count) => count > 0);
      for (const [at, envoy] of envoys.entries()) {
        if (at !== canary) expect(await envoy.configDump()).to.not.contain('first-router');
      }

      // The fix brings another route too, so that it shows.
      const [web] = website('ads', one.port);
      if (web === undefined) throw new Error('no listener');
      const fixed = [routes('web-routes', { '/': 'shop', '/new': 'shop' }), ...shop.slice(1)];
      await plane.set([web, ...fixed, cluster('office'), endpoints('office', two.port)]);
      for (const envoy of envoys) {
        await eventually(async () => expect(await envoy.configDump()).to.contain('"/new"'), {
          timeout: 30_000,
        });
      }
      await reaches(relay, 'IDLE');
      expect((await rejected()).filter((count) => count > 0)).to.have.length(1);
      for (const running of requests) {
        await running.stop();
        expect([...running.answers.keys()]).to.deep.equal(['200 one']);
      }
    });
  }

  it('half the clusters missing, with their route: held, and an Envoy that starts then gets all of it', async () => {
    const { one, two } = setting;
    await using stack = new AsyncDisposableStack();
    const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
    const [web] = website('ads', one.port);
    if (web === undefined) throw new Error('no listener');
    const half = [web, cluster('shop'), endpoints('shop', one.port)];
    const whole = [
      ...half,
      routes('web-routes', { '/office': 'office', '/': 'shop' }),
      cluster('office'),
      endpoints('office', two.port),
    ];
    await plane.set(whole);
    const rollout = { canary: { percent: 0.01 }, bake: '1s' };
    const upstreams = [{ ...upstream(plane.address, 'DELTA'), max_removal_percent: 30 }];
    const relay = stack.use(await RelayProcess.start({ upstreams, rollout }));
    const start = async (id: string): Promise<Envoy> => {
      const options = { xds: relay.xds, transport: 'ads-delta', id } as const;
      const envoy = stack.use(await Envoy.start(setting.envoyBinary, options));
      await envoy.answers('web', '/', 'one', 60_000);
      await envoy.answers('web', '/office', 'two', 60_000);
      return envoy;
    };
    const requests: ConstantRequests[] = [];
    const running = async (id: string): Promise<void> => {
      const url = new URL('/office', await (await start(id)).url('web'));
      requests.push(stack.use(new ConstantRequests(url.href, 1)));
    };
    for (let at = 1; at <= 3; at++) await running(`envoy-${at}`);
    await reaches(relay, 'IDLE');
    await plane.set([...half, routes('web-routes', { '/': 'shop' })]);
    expect((await reaches(relay, 'HELD')).reason).to.match(/^1 of 2 cds of central would be removed/);
    await running('newcomer');
    await plane.set(whole);
    await reaches(relay, 'IDLE');
    const answers: string[] = [];
    for (const running of requests) {
      await running.stop();
      answers.push([...running.answers.keys()].toSorted().join());
    }
    // The canary had the shorter routes.
    expect(answers.filter((all) => all !== '200 two').length).to.be.at.most(1);
    expect(answers.at(-1)).to.equal('200 two');
  });
});
