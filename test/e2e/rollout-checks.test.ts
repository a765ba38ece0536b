import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { reaches, rolloutOf } from './support/rollout-state.ts';
import { Webhook } from './support/webhook.ts';

for (const workers of cases(0, 2)) {
  describe(`checks of a rollout with workers: ${workers}`, () => {
    let plane: ModelPlane;
    let webhook: Webhook;

    before(async () => {
      plane = await ModelPlane.start();
      webhook = await Webhook.start();
    });

    after(async () => {
      webhook?.[Symbol.dispose]();
      await plane?.[Symbol.asyncDispose]();
    });

    async function start(rollout: object): Promise<RelayProcess> {
      plane.set('cds', { a: '1' });
      webhook.status = 200;
      return RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: {
          canary: { percent: 0.01 },
          bake: '400ms',
          checks: [{ name: 'smoke', interval: '50ms', webhook: { url: webhook.url } }],
          ...rollout,
        },
        workers,
      });
    }

    async function fleet(pool: ClientPool): Promise<readonly RecordingClient[]> {
      const clients = ['n1', 'n2', 'n3'].map((id) => pool.open('delta', id));
      for (const client of clients) client.subscribe('cds');
      for (const client of clients) await client.gets('cds', { a: '1' });
      return clients;
    }

    it('a good one lets a change go on, a bad one holds it, until upstream says something else', async () => {
      await using relay = await start({});
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('cds', { a: '2' });
      for (const client of clients) await client.gets('cds', { a: '2' });
      const [told = ''] = webhook.told;
      expect(JSON.parse(told)).to.include({ wave: 1, waves: 1, pending: 1 });
      webhook.status = 503;
      plane.set('cds', { a: '3' });
      const held = await reaches(relay, 'HELD');
      expect(held.cause).to.equal('check');
      expect(held.reason).to.match(/^check smoke: it answered 503 \(\d+ times in a row\)$/);
      expect(await relay.metric('rollout_check_state', 'name="smoke",state="BAD"')).to.equal(1);
      const status = await run('status', '--admin', `http://${relay.admin}`);
      expect(status.out).to.include('check smoke: BAD: it answered 503');
      webhook.status = 200;
      plane.set('cds', { a: '4' });
      for (const client of clients) await client.gets('cds', { a: '4' });
      await reaches(relay, 'IDLE');
    });

    it('on_failure: DISCARD: the canaries go back, and it counts as failed_check', async () => {
      await using relay = await start({ on_failure: 'DISCARD' });
      using pool = new ClientPool(relay.xds, workers + 1);
      await fleet(pool);
      webhook.status = 500;
      plane.set('cds', { a: '2' });
      await eventually(async () => {
        expect(await relay.metric('rollouts_total', 'result="failed_check"')).to.equal(1);
      });
      const { state, cause } = await rolloutOf(relay);
      expect([state, cause]).to.deep.equal(['IDLE', 'check']);
    });

    it('`check --name` asks now, and says what came', async () => {
      await using relay = await start({});
      const at = ['--admin', `http://${relay.admin}`];
      const good = await run('check', '--name', 'smoke', ...at);
      expect([good.code, good.out.trim(), good.err]).to.deep.equal([0, 'smoke: GOOD: it answered 200', '']);
      webhook.status = 404;
      const bad = await run('check', '--name', 'smoke', ...at, '--json');
      expect([bad.code, bad.err.trim()]).to.deep.equal([1, 'smoke: BAD: it answered 404']);
      // What is said on stderr is first, and in both.
      expect(JSON.parse(bad.out.slice(bad.err.length))).to.have.nested.property('check.state', 'BAD');
      webhook.status = 302;
      const unknown = await run('check', '--name', 'smoke', ...at);
      expect(unknown.code, 'exit 2 is for a wrong command line').to.equal(1);
      expect(unknown.err).to.include('smoke: UNKNOWN: it answered 302');
      expect(unknown.out).to.equal(`${unknown.err}\n${unknown.err}`);
      expect((await run('check', '--name', 'smok', ...at)).err).to.include('smoke');
    });
  });
}
