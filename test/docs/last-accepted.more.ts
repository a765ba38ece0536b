import { expect } from 'chai';
import { run } from '../e2e/support/command.ts';
import { ControlPlane } from '../e2e/support/controlplane.ts';
import { Envoy } from '../e2e/support/envoy.ts';
import { eventually } from '../e2e/support/eventually.ts';
import { temporaryDirectory } from '../e2e/support/paths.ts';
import { RelayProcess } from '../e2e/support/relay.ts';
import { reaches } from '../e2e/support/rollout-state.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';
import { badSites, firstSite, goodSite } from '../e2e/support/sites.ts';
import { blocksOf } from './page.ts';

const configuration = blocksOf('docs/how-to/last-accepted.md').find(({ info }) => info === 'yaml relay');
const [rejected] = badSites;

describe('docs/how-to/last-accepted.md', function () {
  this.timeout(240_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it('an Envoy that starts while a change is held gets what was released, after a restart in an outage too', async () => {
    await using stack = new AsyncDisposableStack();
    const { envoyBinary } = setting;
    const state = stack.use(temporaryDirectory()).path;
    let plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot' }));
    const { address } = plane;
    const startRelay = async (): Promise<RelayProcess> =>
      stack.use(
        await RelayProcess.start(configuration?.text ?? '', {
          env: { XDS: '127.0.0.1:0', ADMIN: '127.0.0.1:0', CONTROL_PLANE: address, STATE: state, BAKE: '1s' },
        }),
      );
    const startEnvoy = async (relay: RelayProcess, id: string): Promise<Envoy> => {
      const options = { xds: relay.xds, transport: 'ads-delta', id, cluster: 'ns/eg' } as const;
      return stack.use(await Envoy.start(envoyBinary, options));
    };
    await plane.set(firstSite(setting));
    const relay = await startRelay();
    const running = [await startEnvoy(relay, 'proxy-1'), await startEnvoy(relay, 'proxy-2')];
    for (const envoy of running) await envoy.answers('web', '/office', 'two');

    await plane.set(rejected?.site(setting) ?? []);
    const held = await reaches(relay, 'HELD');
    expect(held.reason).to.match(rejected?.reason ?? /^$/);
    for (const command of [['status'], ['diff', '--pending']]) {
      const { code, out } = await run(...command, '--admin', `http://${relay.admin}`);
      expect([code, out], command.join(' ')).to.satisfy(() => code === 0 && out.includes('web'));
    }
    const late = await startEnvoy(relay, 'proxy-3');
    await late.answers('web', '/office', 'two');
    expect(await late.stat('listener_manager.lds.update_rejected')).to.equal(0);

    for (const envoy of [...running, late]) await envoy[Symbol.asyncDispose]();
    await plane[Symbol.asyncDispose]();
    await relay.stop();
    const restarted = await startRelay();
    const cold = await startEnvoy(restarted, 'proxy-4');
    await cold.answers('web', '/office', 'two');
    expect(await cold.stat('listener_manager.lds.update_rejected')).to.equal(0);

    plane = stack.use(await ControlPlane.start(setting.controlPlaneBinary, { cache: 'snapshot', address }));
    await plane.set(goodSite('fixed', setting));
    // The relay waits for the canary that it had before its restart: one of these.
    const all = [cold, await startEnvoy(restarted, 'proxy-1'), await startEnvoy(restarted, 'proxy-2')];
    // The relay tries the control plane again up to half a minute after it is back.
    for (const envoy of all)
      await eventually(async () => expect(await envoy.configDump()).to.include('"/fixed"'), {
        timeout: 120_000,
      });
    await reaches(restarted, 'IDLE');
  });
});
