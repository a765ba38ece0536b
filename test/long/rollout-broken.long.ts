import { expect } from 'chai';
import { brokenSites, workingSite } from '../e2e/support/broken-sites.ts';
import { ControlPlane } from '../e2e/support/controlplane.ts';
import { canariesOf, EnvoyFleet } from '../e2e/support/envoy-fleet.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { type Resource, reporting } from '../e2e/support/resources.ts';
import { reaches, rolloutOf } from '../e2e/support/rollout-state.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';

/** Before these of the changes. */
const failoverAt = 10;
const restartAt = 20;
const patience = { timeout: 60_000 };
/** Envoy waits up to half a minute before it tries again, and again. */
const longPatience = { timeout: 150_000 };

describe('changes that Envoy accepts and that break it, ten Envoys under constant requests', function () {
  this.timeout(900_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it(`${brokenSites.length} of them: each is found by its traffic and goes back, the first wave serves again, and no request fails elsewhere, over a failover and a restart`, async () => {
    await using stack = new AsyncDisposableStack();
    using files = temporaryDirectory();
    const planes = [await startPlane(), await startPlane()];
    for (const plane of planes) stack.use(plane);
    const set = async (site: readonly Resource[]): Promise<void> => {
      for (const plane of planes) await plane.set(site);
    };
    await set(workingSite(setting, 'first'));
    const endpoints = planes.map(({ address }) => address);
    const config = {
      upstreams: [{ name: 'central', ads: { endpoints, protocol: 'DELTA' } }],
      rollout: {
        canary: { percent: 0.01 },
        bake: '20s',
        on_failure: 'DISCARD',
        traffic: { interval: '1s', min_requests: 20 },
      },
      cache: { persistence: { path: files.path } },
      workers: 2,
    };
    let relay = stack.use(await RelayProcess.start(config));
    const { xds } = relay;
    const fleet = stack.use(
      await EnvoyFleet.start(setting, xds, { bootstrap: reporting, rate: 30, keepAlive: false }),
    );
    await reaches(relay, 'IDLE');
    await haveSaidWhatIsUsual(relay);
    const canaries = canariesOf(1);
    const [canary] = [...fleet.envoys].filter(([id]) => canaries.has(id)).map(([, envoy]) => envoy);
    let found = 0;
    for (const [index, { title, site }] of brokenSites.entries()) {
      if (index === failoverAt) await planes.shift()?.[Symbol.asyncDispose]();
      if (index === restartAt) {
        await relay[Symbol.asyncDispose]();
        relay = stack.use(await RelayProcess.start({ ...config, xds: { address: xds } }));
        found = 0;
        // Who comes first would be the canary otherwise.
        await eventually(async () => {
          const streams = ['sotw', 'delta'].map((one) =>
            relay.metric('downstream_streams', `transport="${one}"`),
          );
          const [sotw = 0, delta = 0] = await Promise.all(streams);
          const { body } = await relay.rpc('distributary.admin.v1.AdminService/ListClients', {});
          const there = Array.from(body.matchAll(/"node":\{"id":"([^"]+)"/g), ([, id]) => id);
          expect(sotw + delta, `there: ${there.join(' ')}`).to.equal(fleet.envoys.size);
          expect(await relay.metric('load_report_streams', 'direction="received"')).to.equal(
            fleet.envoys.size,
          );
        }, longPatience);
        await haveSaidWhatIsUsual(relay);
      }
      await set(site(setting));
      await eventually(async () => {
        const now = await relay.metric('rollouts_total', 'result="failed_traffic"');
        expect(now, `${title}: ${JSON.stringify(await rolloutOf(relay))}`).to.equal(found + 1);
      }, patience);
      found++;
      await canary?.answers('web', '/office', 'two');
      expect(fleet.failures(canaries), title).to.deep.equal([]);
      if (index % 8 !== 7) continue;
      // Its clients come back by and by, and a change that comes meanwhile would be judged by that.
      await fleet.serves(canaries);
      await set(workingSite(setting, `good-${index}`));
      await fleet.allHave(`good-${index}`).catch(async (cause: unknown) => {
        throw new Error(`${title}, then a good change: ${JSON.stringify(await rolloutOf(relay))}`, { cause });
      });
    }
  });

  /** In ten reports each (`rollout.traffic.interval` is a second). Otherwise no client is known to have any requests. */
  const haveSaidWhatIsUsual = async (relay: RelayProcess): Promise<void> => {
    const reports = (): Promise<number> => relay.metric('load_reports_total', 'direction="received"');
    const before = await reports();
    await eventually(async () => expect((await reports()) - before).to.be.at.least(100), longPatience);
  };

  const startPlane = (): Promise<ControlPlane> =>
    ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' });
});
