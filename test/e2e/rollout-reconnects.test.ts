import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { reaches } from './support/rollout-state.ts';

const names = ['web'];

describe('a canary that comes back with what it has accepted', () => {
  for (const workers of cases(2, 0)) {
    it(`by initial_resource_versions (workers: ${workers}): it is sent nothing, and the change goes to everybody`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('rds', { web: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent: 0.01 }, bake: '3s', max_disconnects: 100 },
        workers,
      });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = ['n1', 'n2'].map((id) => ({ id, client: pool.open('delta', id) }));
      for (const { client } of clients) client.subscribe('rds', names);
      for (const { client } of clients) await client.gets('rds', { web: '1' });
      plane.set('rds', { web: '2' });
      const { id, client: canary } = await eventually(() => {
        const found = clients.find(({ client }) => client.has('rds')['web'] === '2');
        if (found === undefined) throw new Error('nobody has it');
        return found;
      });
      canary[Symbol.dispose]();
      const again = pool.open('delta', id);
      again.subscribe('rds', names, canary);
      const other = clients.find((one) => one.id !== id)?.client;
      await other?.gets('rds', { web: '2' });
      await reaches(relay, 'IDLE');
      expect(again.of('rds')).to.deep.equal([]);
    });
  }
});
