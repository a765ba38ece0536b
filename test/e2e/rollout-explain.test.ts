import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { explainedOf, run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { clientsOf } from './support/relay-state.ts';
import { operate, reaches } from './support/rollout-state.ts';

for (const workers of cases(0, 2)) {
  describe(`explain while a change waits (workers: ${workers})`, () => {
    it('a client that is no canary gets what is released, and reads what waits; a canary gets the change', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent: 0.01 }, mode: 'MANUAL' },
        workers,
      });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = new Map(['n1', 'n2', 'n3'].map((id) => [id, pool.open('delta', id)]));
      for (const client of clients.values()) client.subscribe('cds');
      for (const client of clients.values()) await client.gets('cds', { a: '1', b: '1' });
      plane.set('cds', { a: '2' });
      await reaches(relay, 'CANARY');
      const canary = await eventually(() => {
        const found = [...clients].filter(([, client]) => client.has('cds')['a'] === '2');
        expect(found).to.have.length(1);
        return found[0]?.[0] ?? '';
      });
      const explain = async (name: string): Promise<string> =>
        (await run('explain', '--type', 'cds', '--name', name, '--admin', `http://${relay.admin}`)).out;

      for (const id of clients.keys()) {
        const [a, b] = [await explainedOf(relay, id, 'cds', 'a'), await explainedOf(relay, id, 'cds', 'b')];
        if (id === canary) {
          expect(a).to.match(/yes +\(all\) +[0-9a-f]{16} +v2 +no constraints$/m);
          expect(a).to.include('It is a canary').and.not.match(/ v1 /);
          expect(b).to.not.match(/ v1 /);
        } else {
          expect(a).to.match(/yes +\(all\) +[0-9a-f]{16} +v1 +no constraints$/m);
          expect(a).to.match(/no +\(all\) +[0-9a-f]{16} +v2 +only canaries have it yet$/m);
          expect(b).to.match(/yes +\(all\) +[0-9a-f]{16} +v1 +no constraints$/m);
        }
      }
      expect(await explain('a'), 'of some client').to.match(
        /yes +\(all\) +[0-9a-f]{16} +v1 +no constraints$/m,
      );

      await operate(relay, 'Discard');
      await eventually(async () => {
        expect(await explain('a')).to.match(
          /no +\(all\) +[0-9a-f]{16} +v2 +what upstream has now was discarded$/m,
        );
      });
    });

    it('what was rolled back is not said to be denied, although something else is', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start({
        upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
        rollout: { canary: { percent: 0.01 } },
        xds: { authorization: { rules: [{ names: ['secret'], allow: false }, { allow: true }] } },
        workers,
      });
      using pool = new ClientPool(relay.xds, 1);
      const client = pool.open('delta', 'tenant');
      client.subscribe('cds', ['a', 'new', 'secret']);
      await client.gets('cds', { a: '1' });
      plane.set('cds', { a: '1', new: '1', secret: '1' });
      await client.gets('cds', { a: '1', new: '1' });
      const at = ['--admin', `http://${relay.admin}`];
      const back = await run('rollback', '--to', '1', '--reason', 'bad', ...at);
      expect(back.code, back.out).to.equal(0);
      await client.gets('cds', { a: '1' });
      await eventually(async () => {
        const [{ id } = { id: '' }] = await clientsOf(relay);
        const { out } = await run('explain', '--client', id, ...at);
        expect(out)
          .to.match(/^cds +secret +MISSING +xds\.authorization does not allow it$/m)
          .and.match(/^cds +new +MISSING +it was rolled back and frozen/m);
        const one = await run('explain', '--type', 'cds', '--name', 'new', '--client', id, ...at);
        expect(one.err).to.include('no variant matches').and.not.include('other class');
      });
    });
  });
}
