import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { ControlPlane } from '../e2e/support/controlplane.ts';
import { canariesOf, EnvoyFleet } from '../e2e/support/envoy-fleet.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { RelayProcess, upstream } from '../e2e/support/relay.ts';
import { rolloutOf } from '../e2e/support/rollout-state.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';
import { badSites, firstSite, goodSite } from '../e2e/support/sites.ts';
import { Random } from '../simulator/random.ts';
import { ownPort } from '../support/ports.ts';

/** In each a bad change and its fix, and the relay is killed after each of them. */
const rounds = 10;
/** After a restart Envoys come back when their backoff says so. */
const patience = { timeout: 90_000 };

describe('a relay that is killed in the middle of rollouts to ten real Envoys', function () {
  this.timeout(1_200_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const workers of [0, 2]) {
    it(`${2 * rounds} times (workers: ${workers}): the others never hear of what is bad, no request of theirs fails, and each fix arrives everywhere`, async () => {
      const seed = Date.now() % 1_000_000;
      const random = new Random(seed);
      await using stack = new AsyncDisposableStack();
      const directory = stack.use(temporaryDirectory());
      const plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
      await plane.set(firstSite(setting));
      const config = {
        upstreams: [{ ...upstream(plane.address, 'DELTA'), max_removal_percent: 30 }],
        rollout: { canary: { percent: 3 }, bake: '1s' },
        cache: { persistence: { path: directory.path } },
        workers,
      };
      const xds = `127.0.0.1:${await ownPort()}`;
      const start = (): Promise<RelayProcess> => RelayProcess.start({ ...config, xds: { address: xds } });
      let relay = await start();
      stack.defer(() => relay[Symbol.asyncDispose]());
      const kills = new Map<string, number>();
      /** At a random moment of the rollout, which is over after two seconds. */
      const killed = async (): Promise<void> => {
        await sleep(random.below(2000));
        const { state } = await rolloutOf(relay);
        kills.set(state, (kills.get(state) ?? 0) + 1);
        await relay.kill();
        relay = await start();
      };
      const held = (reason: RegExp): Promise<void> =>
        eventually(async () => {
          const now = await rolloutOf(relay);
          expect(`${now.state} ${now.reason}`).to.match(
            new RegExp(`^HELD ${reason.source.replace('^', '')}`),
          );
        }, patience);
      const fleet = stack.use(await EnvoyFleet.start(setting, xds));
      await eventually(async () => expect(await relay.metric('persistence_lag_seconds')).to.equal(0));
      const canaries = canariesOf(2);
      const where = (round: number, what: string): string => `${what}, round ${round}, seed ${seed}`;

      for (let round = 0; round < rounds; round++) {
        const bad = badSites[round % badSites.length];
        if (bad === undefined) throw new Error('nothing bad');
        await plane.set(bad.site(setting));
        await killed();
        await held(bad.reason);
        for (const [id, dump] of await fleet.dumps(canaries))
          expect(dump, where(round, id)).to.not.contain('"/bad"');
        await plane.set(goodSite(`fix-${round}`, setting));
        await killed();
        await fleet.allHave(`fix-${round}`);
        expect(fleet.failures(canaries), where(round, bad.title)).to.deep.equal([]);
      }
      console.log(`${fleet.requests} requests; killed in the states ${JSON.stringify([...kills])}`);
    });
  }
});
