import { expect } from 'chai';
import { placeOf } from '../../src/model/node-path.ts';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { reaches, rolloutOf } from './support/rollout-state.ts';

const percent = 50;
const isCanary = (id: string): boolean => placeOf(id) * 100 < percent;
const ids = Array.from({ length: 100 }, (_, index) => `node-${index}`);
const [canary = '', ...laterCanaries] = ids.filter(isCanary);
const [other = '', ...laterOthers] = ids.filter((id) => !isCanary(id));

const hasHeardOf = (client: RecordingClient, content: string): boolean =>
  client.of('cds').some(({ resources }) => resources.get('a') === content);

for (const workers of cases(2, 0)) {
  describe(`newcomers while a change is held, workers: ${workers}`, () => {
    it('a node that the percentage makes a canary is not shown what a canary has rejected; it gets the fix', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent }, bake: '500ms' },
        workers,
      });
      using pool = new ClientPool(relay.xds, workers + 1);
      const open = (id: string): RecordingClient => {
        const client = pool.open('delta', id);
        client.rejects = ({ resources }) => (resources.get('a') === 'bad' ? 'no such filter' : undefined);
        client.subscribe('cds');
        return client;
      };
      const [first, second] = [open(canary), open(other)];
      for (const client of [first, second]) await client.gets('cds', { a: '1' });
      plane.set('cds', { a: 'bad' });
      await reaches(relay, 'HELD');
      expect([hasHeardOf(first, 'bad'), hasHeardOf(second, 'bad')]).to.deep.equal([true, false]);

      const newcomers = [...laterCanaries.slice(0, 4), ...laterOthers.slice(0, 2)].map(open);
      for (const client of newcomers) await client.gets('cds', { a: '1' });
      const again = open(canary);
      await eventually(() => {
        expect(hasHeardOf(again, 'bad'), 'all streams of a node are in one cohort').to.equal(true);
      });
      const held = await rolloutOf(relay);
      expect(held).to.deep.include({ state: 'HELD', reason: 'cds a: no such filter' });

      plane.set('cds', { a: '2' });
      const all = [first, second, again, ...newcomers];
      for (const client of all) await client.gets('cds', { a: '2' });
      await reaches(relay, 'IDLE');
      expect(newcomers.filter((client) => hasHeardOf(client, 'bad'))).to.deep.equal([]);
    });
  });
}
