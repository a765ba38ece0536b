import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { run } from './support/command.ts';
import { eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool } from './support/recording-client.ts';
import { RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

const admin = 'distributary.admin.v1.AdminService';
const changes = z.object({
  changes: z.array(
    z.object({
      revision: z.number(),
      verdict: z.string(),
      state: z.string().optional(),
      canaries_seconds: z.number(),
      clients_seconds: z.number(),
      accepted: z.number(),
      rejected: z.number(),
    }),
  ),
});

async function newest(relay: RelayProcess) {
  const { body } = await relay.rpc(`${admin}/History`, { limit: 1 });
  const [change] = changes.parse(JSON.parse(body)).changes;
  if (change === undefined) throw new Error('nothing has changed yet');
  return change;
}

/** Three clients that have content 1, one of them a canary. */
async function fleetOfThree(workers: number, bake = '300ms') {
  await using stack = new AsyncDisposableStack();
  const plane = stack.use(await ModelPlane.start());
  plane.set('cds', { a: '1' });
  const relay = stack.use(
    await RelayProcess.start({
      upstreams: [{ name: 'central', ads: { endpoints: [plane.address] } }],
      rollout: { canary: { percent: 0.01 }, bake },
      workers,
    }),
  );
  const pool = stack.use(new ClientPool(relay.xds));
  const clients = ['n1', 'n2', 'n3'].map((id) => pool.open('delta', id));
  for (const client of clients) client.subscribe('cds');
  for (const client of clients) await client.gets('cds', { a: '1' });
  const owned = stack.move();
  return { plane, relay, clients, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

describe('the history of a rollout', () => {
  for (const workers of cases(2, 0)) {
    it(`says who has accepted it and how long that took, and the status what everybody has (workers: ${workers})`, async () => {
      await using fleet = await fleetOfThree(workers);
      const { plane, relay, clients } = fleet;
      plane.set('cds', { a: '2' });
      for (const client of clients) await client.gets('cds', { a: '2' });
      await reaches(relay, 'IDLE');
      const took = await eventually(async () => {
        const change = await newest(relay);
        expect(change.verdict).to.equal('RELEASED');
        expect(change.clients_seconds).to.be.greaterThan(0);
        expect(change).to.include({ accepted: 3, rejected: 0 });
        return change;
      });
      expect(took.canaries_seconds).to.be.greaterThan(0);
      expect(await rolloutOf(relay)).to.include({ revision: 2, pending_revision: 2 });

      expect((await relay.rpc(`${admin}/Rollback`, { to: 1, reason: 'a test' })).status).to.equal(200);
      for (const client of clients) await client.gets('cds', { a: '1' });
      expect(await rolloutOf(relay)).to.include({ state: 'FROZEN', revision: 3, pending_revision: 3 });
      plane.set('cds', { a: '3' });
      await eventually(async () => {
        expect(await rolloutOf(relay)).to.include({ revision: 3, pending_revision: 4 });
      });
    });

    it(`says that a canary has rejected it, and wait ends when it is discarded (workers: ${workers})`, async () => {
      await using fleet = await fleetOfThree(workers);
      const { plane, relay, clients } = fleet;
      for (const client of clients) client.rejects = () => 'not to my taste';
      plane.set('cds', { a: '2' });
      await reaches(relay, 'HELD');
      await eventually(async () => {
        expect(await newest(relay)).to.include({
          verdict: 'PENDING',
          state: 'HELD',
          accepted: 0,
          rejected: 1,
        });
      });

      const { revision } = await newest(relay);
      const asked = ['--revision', String(revision), '--timeout', '50s', '--admin', `http://${relay.admin}`];
      const waiting = run('wait', ...asked);
      await operate(relay, 'Discard');
      const { code, err } = await waiting;
      expect([code, err]).to.deep.equal([
        1,
        `http://${relay.admin}: revision ${revision} was discarded: nobody will get it`,
      ]);
    });
  }

  it('wait ends for a change of which a part was discarded, but not for what was new in it', async () => {
    await using fleet = await fleetOfThree(0, '60s');
    const { plane, relay, clients } = fleet;
    plane.set('cds', { a: '2', b: '1' });
    await reaches(relay, 'CANARY');
    const { revision } = await newest(relay);
    await operate(relay, 'Discard');
    plane.set('cds', { a: '3', b: '1' });
    await reaches(relay, 'CANARY');
    await operate(relay, 'Release');
    for (const client of clients) await client.gets('cds', { a: '3', b: '1' });
    const asked = ['--revision', String(revision), '--timeout', '20s', '--admin', `http://${relay.admin}`];
    const all = await run('wait', ...asked);
    expect([all.code, all.err]).to.deep.equal([
      1,
      `http://${relay.admin}: revision ${revision} was discarded: nobody will get it`,
    ]);
    const ofNew = await run('wait', '--type', 'cds', '--name', 'b', ...asked);
    expect([ofNew.code, ofNew.err]).to.deep.equal([0, '']);
    expect((await operate(relay, 'Rollback', { to: revision })).status).to.equal(200);
    for (const client of clients) await client.gets('cds', { a: '1', b: '1' });
  });
});
