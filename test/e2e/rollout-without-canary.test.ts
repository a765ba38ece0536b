import { expect } from 'chai';
import { placeOf } from '../../src/model/node-path.ts';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches } from './support/rollout-state.ts';

const percent = 50;
const isCanary = (id: string): boolean => placeOf(id) * 100 < percent;
const ids = Array.from({ length: 100 }, (_, index) => `node-${index}`);
const canary = ids.find(isCanary) ?? '';
const other = ids.find((id) => !isCanary(id)) ?? '';

const command = 'distributary release --reason "…"';

for (const workers of cases(0, 2)) {
  describe(`a fix that comes while the only canary is away, workers: ${workers}`, () => {
    let plane: ModelPlane;
    let config: RelayConfig;
    let relay: RelayProcess;
    const stack = new AsyncDisposableStack();

    before(async () => {
      plane = stack.use(await ModelPlane.start());
      plane.set('cds', { a: '1' });
      const { path } = stack.use(temporaryDirectory());
      config = {
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent }, bake: '120s' },
        cache: { persistence: { path } },
        workers,
      };
      relay = stack.use(await RelayProcess.start(config));
    });

    after(() => stack.disposeAsync());

    function open(pool: ClientPool, id: string): RecordingClient {
      const client = pool.open('delta', id);
      client.rejects = ({ resources }) =>
        resources.get('a')?.startsWith('bad') === true ? 'no such filter' : undefined;
      client.subscribe('cds');
      return client;
    }

    /** Whether it serves, and one sentence. */
    const firstLines = async (): Promise<string> => {
      const { out } = await run('status', '--admin', `http://${relay.admin}`);
      return out.split('\n').slice(0, 2).join('\n');
    };

    it('status and the page say first that it is held, and the command that releases it', async () => {
      using away = new ClientPool(relay.xds, 1);
      using stays = new ClientPool(relay.xds, 1);
      const [first, second] = [open(away, canary), open(stays, other)];
      for (const client of [first, second]) await client.gets('cds', { a: '1' });
      expect(await firstLines()).to.match(/: ready\nServing 2 clients; all is well\.$/);

      plane.set('cds', { a: 'fix' });
      await first.gets('cds', { a: 'fix' });
      expect(await firstLines()).to.match(/: ready\n/);
      away[Symbol.dispose]();
      await reaches(relay, 'HELD');
      await eventually(async () => {
        expect(await firstLines()).to.match(
          /: ready \(serves; 1 problem\)\nServing 1 client; a change is held: no canary is connected \(run /,
        );
      });
      expect(await firstLines()).to.include(command);
      const { body } = await relay.get('/');
      expect(body).to.include(
        '; a change is held: no canary is connected (run distributary release --reason',
      );
      const [, problem] = /"problems":\[\{[^}]*?"title":"([^"]*)"/.exec(body) ?? [];
      expect(problem).to.equal('A change is held: no canary is connected');

      const released = await run(
        'release',
        '--reason',
        'the canary is away',
        '--admin',
        `http://${relay.admin}`,
      );
      expect(released.code, released.err).to.equal(0);
      await second.gets('cds', { a: 'fix' });
      expect(await firstLines()).to.match(/: ready\nServing 1 client; all is well\.$/);
    });

    it('the same after a restart, while the canary that it remembers has not come back', async () => {
      {
        using pool = new ClientPool(relay.xds, 1);
        const clients = [open(pool, canary), open(pool, other)];
        for (const client of clients) await client.gets('cds', { a: 'fix' });
        plane.set('cds', { a: 'bad' });
        await reaches(relay, 'HELD');
        await eventually(async () => {
          expect(await relay.metric('persistence_lag_seconds')).to.equal(0);
        });
        await relay.stop();
      }
      relay = stack.use(await RelayProcess.start(config));
      using pool = new ClientPool(relay.xds, 1);
      await open(pool, other).gets('cds', { a: 'fix' });
      plane.set('cds', { a: 'another fix' });
      await eventually(async () => {
        expect(await firstLines()).to.include('; a change waits: no canary is connected (run ');
      });
      using later = new ClientPool(relay.xds, 1);
      await open(later, canary).gets('cds', { a: 'another fix' });
      await eventually(async () => {
        expect(await firstLines()).to.match(/: ready\n/);
      });
      expect((await operate(relay, 'Release')).status).to.equal(200);
    });

    it('nothing of the kind where a canary has rejected it and left: to release that would break the others', async () => {
      using away = new ClientPool(relay.xds, 1);
      using stays = new ClientPool(relay.xds, 1);
      const [first, second] = [open(away, canary), open(stays, other)];
      for (const client of [first, second]) await client.gets('cds', { a: 'another fix' });
      plane.set('cds', { a: 'bad again' });
      const { reason } = await reaches(relay, 'HELD');
      expect(reason).to.equal('cds a: no such filter');
      away[Symbol.dispose]();
      await eventually(async () => {
        expect((await reaches(relay, 'HELD')).canaries.total).to.equal(0);
      });
      expect(await firstLines())
        .to.match(/; a change is held \(for /)
        .and.not.include('no canary')
        .and.not.include(command);
    });
  });
}
