import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { ControlPlane } from './support/controlplane.ts';
import { Envoy } from './support/envoy.ts';
import { canariesOf, EnvoyFleet } from './support/envoy-fleet.ts';
import { eventually } from './support/eventually.ts';
import { RelayProcess, upstream } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';
import { prepare, type Setting } from './support/setting.ts';
import { badSites, firstSite, goodSite, wrongSite } from './support/sites.ts';

describe('a rollout to ten real Envoys under constant requests', function () {
  this.timeout(180_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const { workers, percent, count, who } of cases(
    { workers: 2, percent: 0.01, count: 1, who: 'one canary that is elected' },
    { workers: 0, percent: 3, count: 2, who: 'two canaries by percent' },
  )) {
    it(`what is bad stops at ${who} (workers: ${workers}): the others never hear of it, no request of theirs fails, each fix arrives everywhere, and so does a rollback`, async () => {
      await using stack = new AsyncDisposableStack();
      const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
      await plane.set(firstSite(setting));
      const rollout = { canary: { percent }, bake: '1s' };
      const upstreams = [{ ...upstream(plane.address, 'DELTA'), max_removal_percent: 30 }];
      const relay = stack.use(await RelayProcess.start({ upstreams, rollout, workers }));
      const fleet = stack.use(await EnvoyFleet.start(setting, relay.xds));
      const { revision } = await reaches(relay, 'IDLE');
      await plane.set(goodSite('good', setting));
      await fleet.allHave('good');
      await reaches(relay, 'IDLE');

      const canaries = canariesOf(count);
      for (const [index, { title, reason, site }] of badSites.entries()) {
        const before = await fleet.dumps(canaries);
        await plane.set(site(setting));
        expect((await reaches(relay, 'HELD')).reason, title).to.match(reason);
        const newcomer = await Envoy.start(setting.envoyBinary, {
          xds: relay.xds,
          transport: 'ads-delta',
          id: `newcomer-${index}`,
        });
        await newcomer.answers('web', '/office', 'two', 60_000);
        expect(await newcomer.configDump(), title).to.contain(
          index === 0 ? '"/good"' : `"/fix-${index - 1}"`,
        );
        await newcomer[Symbol.asyncDispose]();
        expect((await rolloutOf(relay)).state, title).to.equal('HELD');
        expect(await fleet.dumps(canaries), title).to.deep.equal(before);

        await plane.set(goodSite(`fix-${index}`, setting));
        await fleet.allHave(`fix-${index}`);
        await reaches(relay, 'IDLE');
        expect(fleet.failures(canaries), title).to.deep.equal([]);
      }
      const rolledBack = await operate(relay, 'Rollback', { to: revision });
      expect(rolledBack.status, JSON.stringify(rolledBack.body)).to.equal(200);
      await fleet.allHave('first');
      await operate(relay, 'Unfreeze');
      await fleet.allHave(`fix-${badSites.length - 1}`);
      await reaches(relay, 'IDLE');
      expect(fleet.failures(canaries)).to.deep.equal([]);
      expect(fleet.requests).to.be.greaterThan(1000);
    });
  }

  it('what Envoy accepts and is wrong: in mode MANUAL only the canary answers 503, until it is discarded', async () => {
    await using stack = new AsyncDisposableStack();
    const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
    await plane.set(goodSite('good', setting));
    const rollout = { canary: { percent: 0.01 }, bake: '100ms', mode: 'MANUAL' };
    const upstreams = [upstream(plane.address, 'DELTA')];
    const relay = stack.use(await RelayProcess.start({ upstreams, rollout }));
    const fleet = stack.use(await EnvoyFleet.start(setting, relay.xds));
    await reaches(relay, 'IDLE');
    const canaries = canariesOf(1);
    const [canary] = [...fleet.envoys].filter(([id]) => canaries.has(id)).map(([, envoy]) => envoy);
    const before = await fleet.dumps(canaries);
    await plane.set(wrongSite(setting));
    await canary?.answers('web', '/office', { status: 503, body: '' });
    await eventually(async () => expect((await rolloutOf(relay)).canaries).to.include({ accepted: 1 }));
    expect((await rolloutOf(relay)).state).to.equal('CANARY');
    await operate(relay, 'Discard');
    await canary?.answers('web', '/office', 'two');
    expect(await fleet.dumps(canaries)).to.deep.equal(before);
    expect(fleet.failures(canaries)).to.deep.equal([]);
  });
});
