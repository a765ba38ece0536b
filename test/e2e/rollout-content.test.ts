import { create } from '@bufbuild/protobuf';
import { type Any, AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { z } from 'zod';
import type { TypeUrl } from '../../src/model/brand.ts';
import { cases } from '../support/cases.ts';
import { any } from '../support/in-memory-relay.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';
import { Webhook } from './support/webhook.ts';

const clusters = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'];

/** A ClusterLoadAssignment; `none` and what begins so: without endpoints. */
const assignment = (url: TypeUrl, name: string, content: string): Any => {
  const plain = any(url, name, content);
  const endpoints = content.startsWith('none') ? [] : [0x12, 2, 0x12, 0];
  return create(AnySchema, { typeUrl: url, value: Buffer.concat([plain.value, Buffer.from(endpoints)]) });
};

/** Endpoints of ten clusters, but for these. */
const assignments = (empty: readonly string[], content = '80'): Record<string, string> =>
  Object.fromEntries(clusters.map((name) => [name, empty.includes(name) ? 'none' : content]));

/** Of a notification; the reasons of the guard are left out. */
const notified = z
  .object({
    event: z.string(),
    cause: z.string().optional(),
    types: z.array(z.string()),
    count: z.number(),
    reason: z.string().optional(),
  })
  .transform(({ event, cause = '', types, count, reason = '' }) => ({
    told: `${event} ${cause} ${types.join(' ')} ${count}${event === 'RESOLVED' ? ` ${reason}` : ''}`,
  }));

for (const workers of cases(0, 2)) {
  describe(`changes that take the endpoints of many clusters, workers: ${workers}`, () => {
    let plane: ModelPlane;

    before(async () => {
      plane = await ModelPlane.start(assignment);
    });

    after(() => plane?.[Symbol.asyncDispose]());

    const configOf = (rollout: object): RelayConfig => ({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      rollout: { canary: { percent: 0.01 }, bake: '30s', ...rollout },
      workers,
    });

    async function start(rollout: object = {}): Promise<RelayProcess> {
      plane.set('eds', assignments([]));
      return RelayProcess.start(configOf(rollout));
    }

    async function fleet(pool: ClientPool): Promise<readonly RecordingClient[]> {
      const clients = ['n1', 'n2', 'n3'].map((id) => pool.open('delta', id));
      for (const client of clients) client.subscribe('eds', clusters);
      for (const client of clients) await eventually(() => expect(used(client)).to.deep.equal(clusters));
      return clients;
    }

    /** Clusters of which a client has endpoints. */
    const used = (client: RecordingClient): readonly string[] =>
      Object.entries(client.has('eds'))
        .filter(([, content]) => !content.startsWith('none'))
        .map(([name]) => name)
        .toSorted();

    const counts = (clients: readonly RecordingClient[]): readonly number[] =>
      clients.map((client) => used(client).length).toSorted((a, b) => a - b);

    it('two of ten go to everybody at once, as every change of endpoints does', async () => {
      await using relay = await start();
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(['a', 'b']));
      await eventually(() => expect(counts(clients)).to.deep.equal([8, 8, 8]));
      expect((await rolloutOf(relay)).state).to.equal('IDLE');
    });

    it('three of ten are held with the cause content, until upstream has endpoints again', async () => {
      await using relay = await start();
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(['a', 'b', 'c']));
      const held = await reaches(relay, 'HELD');
      expect(held.cause).to.equal('content');
      expect(held.reason).to.equal(
        '3 of 10 eds would have no endpoints any more; rollout.guard.max_emptied_percent allows 20 %',
      );
      expect(counts(clients).slice(1)).to.deep.equal([10, 10]);
      // Other clusters are not held.
      plane.set('eds', { ...assignments(['a', 'b', 'c']), d: '81' });
      for (const client of clients) await eventually(() => expect(client.has('eds')['d']).to.equal('81'));
      // One more is too many too.
      plane.set('eds', { ...assignments(['a', 'b', 'c', 'd']), e: '81' });
      await eventually(() =>
        expect(clients.filter((one) => one.has('eds')['e'] === '81').length).to.equal(3),
      );
      await eventually(() => expect(counts(clients)).to.deep.equal([6, 10, 10]));
      await eventually(async () => expect((await rolloutOf(relay)).reason).to.match(/^4 of 10 eds/));
      plane.set('eds', assignments(['a'], '81'));
      await reaches(relay, 'IDLE');
      await eventually(() => expect(counts(clients)).to.deep.equal([9, 9, 9]));
    });

    it('one after another within a bake they count together', async () => {
      await using relay = await start();
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      for (const [at, empty] of [['a'], ['a', 'b']].entries()) {
        plane.set('eds', assignments(empty));
        await eventually(() => expect(counts(clients)).to.deep.equal([9 - at, 9 - at, 9 - at]));
      }
      plane.set('eds', assignments(['a', 'b', 'c']));
      expect((await reaches(relay, 'HELD')).reason).to.match(/^3 of 10 eds/);
      await eventually(() => expect(counts(clients)).to.deep.equal([7, 8, 8]));
      plane.set('eds', assignments(['b', 'c']));
      await reaches(relay, 'IDLE');
      await eventually(() => expect(counts(clients)).to.deep.equal([8, 8, 8]));
    });

    it('max_growth_percent and max_changed_percent: a change of clusters is held, and a reload counts at once', async () => {
      const names = ['v', 'w', 'x', 'y'];
      const all = (content: string) => Object.fromEntries(names.map((name) => [name, content]));
      plane.set('cds', all('1'));
      await using relay = await start({ guard: { max_growth_percent: 100, max_changed_percent: 75 } });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = ['n1', 'n2', 'n3'].map((id) => pool.open('delta', id));
      for (const client of clients) client.subscribe('cds');
      for (const client of clients) await client.gets('cds', all('1'));
      plane.set('cds', { ...all('1'), x: 'x'.repeat(10_000) });
      const grown = await reaches(relay, 'HELD');
      expect(grown.cause).to.equal('content');
      expect(grown.reason).to.match(
        /^cds: [\d,]+ bytes became 10,\d{3} \(\+\d+ %\); rollout\.guard\.max_growth_percent allows 100 %$/,
      );
      plane.set('cds', all('2'));
      await eventually(async () => {
        expect((await rolloutOf(relay)).reason).to.equal(
          '4 of 4 cds would change at once; rollout.guard.max_changed_percent allows 75 %',
        );
      });
      relay.configure(configOf({ guard: { max_growth_percent: 100 }, bake: '200ms' }));
      for (const client of clients) await client.gets('cds', all('2'));
      await reaches(relay, 'IDLE');
      relay.configure(configOf({ guard: { max_emptied_percent: 100, max_changed_percent: 0 } }));
      await eventually(async () =>
        expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(2),
      );
      plane.set('cds', { ...all('2'), x: '3' });
      expect((await reaches(relay, 'HELD')).reason).to.match(/^1 of 4 cds/);
      plane.set('cds', {});
    });

    it('rollout.notify: what ends a hold is told: RELEASED, DISCARDED, else RESOLVED with the reason', async () => {
      using hook = await Webhook.start();
      plane.set('cds', { x: '1' });
      await using relay = await start({ guard: { max_growth_percent: 100 }, notify: [{ url: hook.url }] });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      for (const client of clients) client.subscribe('cds');
      for (const client of clients) await client.gets('cds', { x: '1' });
      const tells = async (...news: readonly string[]): Promise<void> => {
        await eventually(() =>
          expect(hook.told.map((body) => notified.parse(JSON.parse(body)).told)).to.deep.equal(news),
        );
        hook.told.length = 0;
      };
      plane.set('eds', assignments(['a', 'b', 'c']));
      await tells('HELD content eds 3');
      plane.set('eds', assignments([], '81'));
      await tells('RESOLVED content eds 3 nothing of it waits any more');
      const large = { x: 'x'.repeat(10_000) };
      plane.set('cds', large);
      await tells('HELD content cds 1');
      plane.set('cds', { x: '2' });
      await tells('RESOLVED content cds 1 it is judged again');
      plane.set('cds', large);
      await tells('HELD content cds 1');
      await operate(relay, 'Freeze');
      await tells('RESOLVED content cds 1 it is frozen');
      await operate(relay, 'Unfreeze');
      await tells('HELD content cds 1');
      await operate(relay, 'Discard');
      await tells('DISCARDED  cds 1');
      plane.set('eds', assignments(['a', 'b', 'c']));
      await tells('HELD content eds 3');
      await operate(relay, 'Release');
      await tells('RELEASED  eds 3');
      plane.set('cds', {});
    });

    it('release gives it to everybody', async () => {
      await using relay = await start();
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(clusters));
      await reaches(relay, 'HELD');
      expect((await operate(relay, 'Release')).status).to.equal(200);
      await eventually(() => expect(counts(clients)).to.deep.equal([0, 0, 0]));
      await reaches(relay, 'IDLE');
    });

    it('on_failure: DISCARD: nobody keeps it; what comes next goes to everybody at once', async () => {
      await using relay = await start({ on_failure: 'DISCARD' });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(clusters));
      await eventually(async () => {
        const { state, cause } = await rolloutOf(relay);
        expect([state, cause]).to.deep.equal(['IDLE', 'content']);
      });
      await eventually(() => expect(counts(clients)).to.deep.equal([10, 10, 10]));
      plane.set('eds', assignments([], '82'));
      for (const client of clients) await client.gets('eds', assignments([], '82'));
      await reaches(relay, 'IDLE');
    });

    it('on_failure: DISCARD: a few at a time, said in another way, go to nobody either', async () => {
      await using relay = await start({ on_failure: 'DISCARD', bake: '200ms' });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(clusters));
      const discards = (count: number) =>
        eventually(async () =>
          expect(await relay.metric('rollouts_total', 'result="discarded"')).to.be.at.least(count),
        );
      await discards(1);
      for (const [at, [a, b]] of [['a', 'b'] as const, ['c', 'd'] as const].entries()) {
        plane.set('eds', { ...assignments(clusters), [a]: 'none again', [b]: 'none again' });
        await discards(at + 2);
        await eventually(() => expect(counts(clients)).to.deep.equal([10, 10, 10]));
      }
    });

    it('counts over all classes of clients, with a session and a few assignments each', async () => {
      plane.set('eds', assignments([]));
      const ads = { endpoints: [plane.address] };
      await using relay = await RelayProcess.start({
        parameters: [{ key: 'env', from: 'node.id' }],
        upstreams: [{ name: 'central', ads }],
        rollout: { canary: { percent: 0.01 }, bake: '30s' },
        workers,
      });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = clusters.map((name, at) => ({ name, client: pool.open('delta', `n${at}`) }));
      for (const { name, client } of clients) {
        client.subscribe('eds', [name, 'a']);
        await client.gets('eds', { [name]: '80', a: '80' });
      }
      plane.set('eds', assignments(clusters));
      const held = await reaches(relay, 'HELD');
      expect(held.cause).to.equal('content');
      plane.set('eds', assignments([], '81'));
      for (const { name, client } of clients) await client.gets('eds', { [name]: '81', a: '81' });
      await reaches(relay, 'IDLE');
    });

    /** A change of clusters is in its second wave. */
    async function inSecondWave(relay: RelayProcess, clients: readonly RecordingClient[]): Promise<void> {
      for (const client of clients) client.subscribe('cds');
      for (const client of clients) await client.gets('cds', { x: '1' });
      plane.set('cds', { x: '2' });
      await eventually(async () => {
        const { state, wave } = await rolloutOf(relay);
        expect([state, wave]).to.deep.equal(['CANARY', 2]);
      });
    }

    const twoWaves = {
      canary: undefined,
      waves: [
        { percent: 0.01, bake: '300ms' },
        { percent: 50, bake: '600s' },
      ],
      max_wait: '1h',
    };
    const reason =
      '10 of 10 eds would have no endpoints any more; rollout.guard.max_emptied_percent allows 20 %; nobody has it: it is queued';

    it('behind a change in a later wave they are held at once, and nobody has them', async () => {
      plane.set('cds', { x: '1' });
      await using relay = await start(twoWaves);
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      await inSecondWave(relay, clients);
      plane.set('eds', assignments(clusters));
      const held = await reaches(relay, 'HELD');
      expect(held).to.include({ cause: 'content', reason, wave: 2 });
      expect(held.canaries.total).to.be.above(0);
      expect(await relay.metric('rollout_state', 'state="HELD"')).to.equal(1);
      expect(await relay.metric('rollouts_total', 'result="held"')).to.equal(1);
      const [line] = await relay.says(/^a change is held: nobody has it$/);
      expect(line).to.include({ cause: 'content', reason, names: 10 });
      const at = ['--admin', `http://${relay.admin}`];
      expect((await run('status', ...at)).out)
        .to.include('\nqueued: 10 names (eds) until the change before it has ended\n')
        .and.to.include('A change that nobody has is held')
        .and.to.not.include('$ distributary discard');
      expect((await run('history', ...at)).out).to.match(/ HELD: content /);
      relay.configure(configOf({ ...twoWaves, max_wait: '2h' }));
      await eventually(async () =>
        expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1),
      );
      await reaches(relay, 'HELD');
      expect(counts(clients)).to.deep.equal([10, 10, 10]);
      // The change before it has ended: it goes on as what it is.
      expect((await operate(relay, 'Release')).status).to.equal(200);
      await eventually(() => expect(counts(clients)).to.deep.equal([0, 10, 10]));
      expect((await rolloutOf(relay)).reason).to.equal(reason.slice(0, reason.lastIndexOf(';')));
      expect(await relay.metric('rollouts_total', 'result="held"')).to.equal(1);
      plane.set('eds', assignments([], '81'));
      for (const client of clients) await client.gets('eds', assignments([], '81'));
      await reaches(relay, 'IDLE');
      plane.set('cds', {});
    });

    it('on_failure: DISCARD: behind a change in a later wave they are discarded when that has ended', async () => {
      plane.set('cds', { x: '1' });
      await using relay = await start({ ...twoWaves, on_failure: 'DISCARD' });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      await inSecondWave(relay, clients);
      plane.set('eds', assignments(clusters));
      expect(await reaches(relay, 'HELD')).to.include({ cause: 'content', reason });
      expect(await relay.metric('rollouts_total', 'result="discarded"')).to.equal(0);
      expect(counts(clients)).to.deep.equal([10, 10, 10]);
      expect((await operate(relay, 'Release')).status).to.equal(200);
      const { state, cause } = await reaches(relay, 'IDLE');
      expect([state, cause]).to.deep.equal(['IDLE', 'content']);
      expect(await relay.metric('rollouts_total', 'result="discarded"')).to.equal(1);
      expect(await relay.metric('rollouts_total', 'result="held"'), 'it counts once').to.equal(0);
      const at = ['--admin', `http://${relay.admin}`];
      expect((await run('history', ...at)).out).to.match(
        / DISCARDED in wave 1: content | DISCARDED: content /,
      );
      await eventually(() => expect(counts(clients)).to.deep.equal([10, 10, 10]));
      plane.set('eds', assignments([], '81'));
      for (const client of clients) await client.gets('eds', assignments([], '81'));
      plane.set('cds', {});
    });

    for (const waves of [1, 2]) {
      it(`endpoints do not wait for a change of clusters that is judged, in wave ${waves}`, async () => {
        plane.set('cds', { x: '1' });
        await using relay = await start({
          canary: undefined,
          waves: [
            { percent: 0.01, bake: waves === 1 ? '600s' : '300ms' },
            { percent: 50, bake: '600s' },
          ],
          bake: '600s',
          max_wait: '1h',
        });
        using pool = new ClientPool(relay.xds, workers + 1);
        const clients = await fleet(pool);
        for (const client of clients) client.subscribe('cds');
        for (const client of clients) await client.gets('cds', { x: '1' });
        plane.set('cds', { x: '2' });
        await eventually(async () => {
          const { state, wave } = await rolloutOf(relay);
          expect([state, wave]).to.deep.equal(['CANARY', waves]);
        });
        plane.set('eds', assignments(clusters));
        await eventually(() => expect(counts(clients).at(-1)).to.equal(10));
        plane.set('eds', assignments([], '81'));
        for (const client of clients) await client.gets('eds', assignments([], '81'));
        plane.set('eds', assignments(['a'], '82'));
        for (const client of clients) await client.gets('eds', assignments(['a'], '82'));
        expect((await rolloutOf(relay)).wave).to.equal(waves);
        plane.set('cds', {});
      });
    }

    it('max_emptied_percent: 100: endpoints never wait', async () => {
      await using relay = await start({ guard: { max_emptied_percent: 100 } });
      using pool = new ClientPool(relay.xds, workers + 1);
      const clients = await fleet(pool);
      plane.set('eds', assignments(clusters));
      await eventually(() => expect(counts(clients)).to.deep.equal([0, 0, 0]));
    });
  });
}
