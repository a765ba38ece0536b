import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { cases } from '../support/cases.ts';
import { always, eventually } from './support/eventually.ts';
import { get } from './support/http.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { signalTo } from './support/process.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { clientsOf, statusOf } from './support/relay-state.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

const backoff = { initial: '20ms', max: '100ms' };
const bake = '500ms';

/** One class of clients, of which nobody is a canary by the hash: one of them is elected. */
const configOf = (plane: ModelPlane, rollout: object = {}, more: object = {}): RelayConfig => ({
  upstreams: [{ name: 'central', ads: { endpoints: [plane.address], backoff } }],
  metrics: {},
  rollout: { canary: { percent: 0.01 }, bake, ...rollout },
  ...more,
});

const ids = ['n1', 'n2', 'n3'];

async function fleetOf(
  pool: ClientPool,
  contents: Readonly<Record<string, string>>,
): Promise<RecordingClient[]> {
  const clients = ids.map((id, index) => pool.open(index % 2 === 0 ? 'delta' : 'sotw', id));
  for (const client of clients) client.subscribe('cds');
  for (const client of clients) await client.gets('cds', contents);
  return clients;
}

/** The one that has a content that the others do not have. */
function ahead(clients: readonly RecordingClient[], name: string, content: string): RecordingClient {
  const found = clients.filter((client) =>
    client.of('cds').some(({ resources }) => resources.get(name) === content),
  );
  const [only] = found;
  if (only === undefined || found.length > 1)
    throw new Error(`${found.length} clients have heard of ${content}`);
  return only;
}

/** The others have heard of a content only when one of them had accepted it and stayed, for 400 ms at least. */
function expectOneAhead(clients: readonly RecordingClient[], name: string, content: string): void {
  const [first = 0, ...others] = clients
    .map((client) => client.of('cds').find(({ resources }) => resources.get(name) === content)?.at ?? 0)
    .toSorted((one, other) => one - other);
  for (const other of others) expect(other - first).to.be.greaterThan(400);
}

async function checkState(relay: RelayProcess, state: string): Promise<void> {
  expect((await rolloutOf(relay)).state).to.equal(state);
}

for (const workers of cases(2, 0)) {
  describe(`a rollout with workers: ${workers}`, function () {
    this.timeout(180_000);

    /** Each worker has clients. */
    const connections = workers + 1;

    const config = (plane: ModelPlane, rollout: object = {}, more: object = {}): RelayConfig => {
      const { upstreams, ...rest } = configOf(plane, rollout, { workers, ...more });
      return { ...rest, upstreams: upstreams.map((one) => ({ ...one, max_removal_percent: 50 })) };
    };

    /** Of all cases that need no relay with a past of its own. */
    let plane: ModelPlane;
    let relay: RelayProcess;
    let configured = '{}';

    before(async () => {
      plane = await ModelPlane.start();
      relay = await RelayProcess.start(config(plane));
    });

    after(async () => {
      await relay?.stop();
      await plane?.[Symbol.asyncDispose]();
    });

    /** From now on everybody who comes has this, with these keys of `rollout`, and nothing of the case before waits. */
    async function begins(contents: Readonly<Record<string, string>>, rollout: object = {}): Promise<void> {
      if (JSON.stringify(rollout) !== configured) {
        const before = await counted('config_reloads_total', 'accepted');
        relay.configure(config(plane, rollout));
        await eventually(async () => {
          expect(await counted('config_reloads_total', 'accepted')).to.be.greaterThan(before);
        });
        configured = JSON.stringify(rollout);
      }
      plane.set('cds', contents);
      {
        using pool = new ClientPool(relay.xds, 1);
        const client = pool.open('delta', 'before');
        client.subscribe('cds');
        await eventually(async () => {
          await operate(relay, 'Release');
          expect(client.has('cds')).to.deep.equal(contents);
          await checkState(relay, 'IDLE');
        });
      }
      // It may be a canary of what comes until all workers have seen it go.
      await eventually(async () => expect(await clientsOf(relay)).to.deep.equal([]));
    }

    /** A counter without a sample yet is 0. */
    const counted = async (name: string, labels?: string): Promise<number> =>
      (await relay.metric(name, labels)) || 0;

    it('goes to one client of the class, and to the others when that one has accepted it and stayed', async () => {
      await begins({ a: '1', b: '1' });
      const counts = async (): Promise<number[]> => [
        await counted('rollouts_total', 'released'),
        await counted('rollout_duration_seconds_count'),
      ];
      const [released = 0, durations = 0] = await counts();
      using pool = new ClientPool(relay.xds, connections);
      const clients = await fleetOf(pool, { a: '1', b: '1' });
      expect((await rolloutOf(relay)).state).to.equal('IDLE');
      plane.set('cds', { a: '2', b: '1' });
      for (const client of clients) await client.gets('cds', { a: '2', b: '1' });
      expectOneAhead(clients, 'a', '2');
      const after = await reaches(relay, 'IDLE');
      expect(after.revision).to.equal(after.pending_revision);
      expect(await counts()).to.deep.equal([released + 1, durations + 1]);
      expect(await relay.metric('rollout_state', 'IDLE')).to.equal(1);
      expect(clients.map(contentsOfA)).to.deep.equal(['1 2', '1 2', '1 2']);
    });

    it('what the canary rejects is never heard of by the others, nor by newcomers; the fix reaches all', async () => {
      await begins({ a: '1', b: '1' });
      const before = await counted('rollouts_total', 'held');
      using pool = new ClientPool(relay.xds, connections);
      const clients = await fleetOf(pool, { a: '1', b: '1' });
      for (const client of clients) {
        client.rejects = ({ resources }) => (resources.get('a') === 'bad' ? 'no such filter' : undefined);
      }
      plane.set('cds', { a: 'bad', b: '1' });
      const held = await reaches(relay, 'HELD');
      expect(held.reason).to.equal('cds a: no such filter');
      expect(held.canaries).to.deep.include({ total: 1, accepted: 0, rejected: 1 });
      const first = ahead(clients, 'a', 'bad');
      using newcomer = pool.open('delta', 'n4');
      newcomer.subscribe('cds');
      await newcomer.gets('cds', { a: '1', b: '1' });
      await always(() => checkState(relay, 'HELD'), 1500);
      expect(await relay.metric('rollout_state', 'HELD')).to.equal(1);
      expect(await counted('rollouts_total', 'held')).to.equal(before + 1);
      const ready = (await relay.get('/ready')).body;
      expect(ready).to.include('"state": "HELD"').and.to.include('"reason": "cds a: no such filter"');
      const probed = (await get(`http://${relay.metrics}/ready`)).body;
      expect(probed).to.include('"state": "HELD"').and.to.include('"cause": "rejected"');
      expect(probed, 'whoever probes reads no words of clients').to.not.include('no such filter');
      plane.set('cds', { a: '2', b: '1' });
      for (const client of [...clients, newcomer]) await client.gets('cds', { a: '2', b: '1' });
      await reaches(relay, 'IDLE');
      expect(ahead([...clients, newcomer], 'a', 'bad')).to.equal(first);
    });

    it('too many removals are held, and released by the RPC of the shrink guard', async () => {
      await begins({ a: '1', b: '1', c: '1', d: '1' });
      using pool = new ClientPool(relay.xds, connections);
      const clients = await fleetOf(pool, { a: '1', b: '1', c: '1', d: '1' });
      plane.set('cds', { a: '1' });
      const held = await reaches(relay, 'HELD');
      expect(held.reason).to.equal('3 of 4 cds of central would be removed: max_removal_percent is 50');
      const [central] = (await statusOf(relay)).upstreams;
      expect(central?.held_removals.map(({ type, count }) => [type, count])).to.deep.equal([['cds', 3]]);
      const service = 'distributary.admin.v1.AdminService/ReleaseRemovals';
      expect((await relay.rpc(service, { upstream: 'central' })).body)
        .to.include('"removed"')
        .and.include('3');
      for (const client of clients) await client.gets('cds', { a: '1' });
      await reaches(relay, 'IDLE');
    });

    it('release gives everybody what is held; discard takes it back from the canary', async () => {
      await begins({ a: '1' }, { mode: 'MANUAL' });
      const operations = () => relay.log.filter(({ message }) => message.startsWith('an operator has'));
      const before = operations().length;
      using pool = new ClientPool(relay.xds, connections);
      const clients = await fleetOf(pool, { a: '1' });
      expect((await operate(relay, 'Release')).body).to.deep.include({ code: 'failed_precondition' });
      plane.set('cds', { a: '2' });
      await reaches(relay, 'CANARY');
      await eventually(() => ahead(clients, 'a', '2'));
      await always(() => checkState(relay, 'CANARY'), 1000);
      expect(await operate(relay, 'Release')).to.deep.equal({ status: 200, body: { released: 1 } });
      for (const client of clients) await client.gets('cds', { a: '2' });
      expect((await operate(relay, 'Release')).body).to.deep.include({ code: 'failed_precondition' });
      plane.set('cds', { a: '3' });
      const canary = await eventually(() => ahead(clients, 'a', '3'));
      expect((await operate(relay, 'Discard', { type: 'lds' })).status).to.equal(400);
      expect(await operate(relay, 'Discard', { type: 'cds', reason: 'bad cluster' })).to.deep.equal({
        status: 200,
        body: { discarded: 1 },
      });
      await canary.gets('cds', { a: '2' });
      expect(await reaches(relay, 'IDLE')).to.deep.include({ reason: 'bad cluster' });
      plane.set('cds', { a: '4' });
      await reaches(relay, 'CANARY');
      await operate(relay, 'Release', { upstream: 'central', reason: 'looked at it' });
      for (const client of clients) await client.gets('cds', { a: '4' });
      // The log comes later than answers.
      const audit = await eventually(() => {
        const lines = operations().slice(before);
        expect(lines.map(({ what, reason }) => [what, reason])).to.deep.equal([
          ['release', 'a test'],
          ['discard', 'bad cluster'],
          ['release', 'looked at it'],
        ]);
        return lines;
      });
      expect(audit.every(({ who }) => String(who).startsWith('127.0.0.1:'))).to.equal(true);
    });

    it('canaries that leave within the bake hold a change, and nobody else is asked', async () => {
      await begins({ a: '1' }, { bake: '3s' });
      using pool = new ClientPool(relay.xds, connections);
      const clients = await fleetOf(pool, { a: '1' });
      plane.set('cds', { a: '2' });
      const canary = await eventually(() => ahead(clients, 'a', '2'));
      const during = await reaches(relay, 'CANARY');
      expect(during).to.deep.include({ upstream: 'central', types: ['cds'], names: ['a'] });
      expect(during.pending_revision).to.be.greaterThan(during.revision);
      canary[Symbol.dispose]();
      expect((await reaches(relay, 'HELD')).reason).to.match(/^1 of 1 canary streams ended within the bake/);
      await always(() => {
        for (const client of clients)
          if (client !== canary) expect(client.has('cds')).to.deep.equal({ a: '1' });
      }, 1500);
      expect((await operate(relay, 'Release')).status).to.equal(200);
      for (const client of clients) if (client !== canary) await client.gets('cds', { a: '2' });
    });

    if (workers > 0) {
      it('each worker is killed while a change is held: it stays held, and nobody but the canary ever hears of it', async () => {
        await begins({ a: '1', b: '1' });
        const heardBad = new Set<string>();
        const connect = (pool: ClientPool, id: string): RecordingClient => {
          const client = pool.open('delta', id);
          client.rejects = ({ resources }) => {
            if (resources.get('a') !== 'bad') return undefined;
            heardBad.add(id);
            return 'no such filter';
          };
          client.subscribe('cds');
          return client;
        };
        using pool = new ClientPool(relay.xds, ids.length);
        const clients = new Map(ids.map((id) => [id, connect(pool, id)]));
        for (const client of clients.values()) await client.gets('cds', { a: '1', b: '1' });
        plane.set('cds', { a: 'bad', b: '1' });
        await reaches(relay, 'HELD');
        for (const index of [0, 1]) {
          const victim = (await eventually(() => workersOf(relay)))[index];
          signalTo(victim?.pid, 'SIGKILL');
          await eventually(async () => {
            const workers = await workersOf(relay);
            expect(workers.some(({ pid }) => pid === victim?.pid)).to.equal(false);
          });
          for (const [id, { status }] of clients)
            if (status !== undefined) clients.set(id, connect(pool, id));
          await always(() => checkState(relay, 'HELD'), 500);
          for (const [id, client] of clients) {
            if (!heardBad.has(id)) await client.gets('cds', { a: '1', b: '1' });
          }
        }
        expect([...heardBad]).to.have.length(1);
        plane.set('cds', { a: '2', b: '1' });
        for (const client of clients.values()) await client.gets('cds', { a: '2', b: '1' });
        await reaches(relay, 'IDLE');
      });
    }

    it('a freeze holds every type, outlives a kill, and is refused twice', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      plane.set('eds', { a: '1' });
      using directory = temporaryDirectory();
      const cache = { persistence: { path: directory.path } };
      const all = config(plane, {}, { cache });
      const first = await RelayProcess.start(all);
      {
        using pool = new ClientPool(first.xds, connections);
        const clients = await fleetOf(pool, { a: '1' });
        expect((await operate(first, 'Freeze', { reason: ' ' })).body).to.deep.include({
          code: 'invalid_argument',
        });
        expect((await operate(first, 'Freeze', { upstream: 'x' })).body).to.deep.include({
          code: 'not_found',
        });
        expect((await operate(first, 'Freeze', { reason: 'black friday' })).status).to.equal(200);
        const again = await operate(first, 'Freeze', { type: 'cds' });
        expect(again.body['message']).to.match(/everything is already frozen.*black friday/);
        expect(await reaches(first, 'FROZEN')).to.deep.include({ reason: 'black friday' });
        expect(await first.metric('frozen')).to.equal(1);
        plane.set('cds', { a: '2' });
        await eventually(async () => expect((await rolloutOf(first)).names).to.deep.equal(['a']));
        await always(
          () => clients.forEach((client) => expect(client.has('cds')).to.deep.equal({ a: '1' })),
          700,
        );
        await eventually(async () => expect(await first.metric('persistence_lag_seconds')).to.equal(0));
        first.signal('SIGKILL');
        await first.exited;
      }
      await using second = await RelayProcess.start(all);
      using pool = new ClientPool(second.xds, connections);
      const clients = await fleetOf(pool, { a: '1' });
      const [frozen] = (await reaches(second, 'FROZEN')).freezes;
      expect(await second.metric('frozen')).to.equal(1);
      expect(frozen?.operator).to.match(/^127\.0\.0\.1:\d+$/);
      await eventually(async () => expect((await rolloutOf(second)).names).to.deep.equal(['a']));
      expect((await operate(second, 'Unfreeze', { type: 'cds' })).body['message']).to.match(
        /cds is not frozen: what is frozen is everything/,
      );
      const open = await operate(second, 'Unfreeze');
      expect([open.status, open.body['pending']]).to.deep.equal([200, 1]);
      for (const client of clients) await client.gets('cds', { a: '2' });
      expectOneAhead(clients, 'a', '2');
      await reaches(second, 'IDLE');
      await second.stop();
      await first.stop();
    });

    it('killed again and again while a change is held: nobody but the canary ever hears of it', async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      using directory = temporaryDirectory();
      const persistent = config(plane, {}, { cache: { persistence: { path: directory.path } } });
      const heardBad = new Set<string>();
      for (let round = 0; round <= 3; round++) {
        const relay = await RelayProcess.start(persistent);
        using pool = new ClientPool(relay.xds, connections);
        // The canary of before comes last.
        const order = ids.toSorted((a, b) => Number(heardBad.has(a)) - Number(heardBad.has(b)));
        const clients = new Map(order.map((id) => [id, pool.open('delta', id)]));
        for (const [id, client] of clients) {
          client.rejects = ({ resources }) => {
            if (resources.get('a') !== 'bad') return undefined;
            heardBad.add(id);
            return 'no such filter';
          };
          client.subscribe('cds');
        }
        const released = round < 3 ? '1' : '2';
        if (round === 0) {
          for (const client of clients.values()) await client.gets('cds', { a: '1' });
          plane.set('cds', { a: 'bad' });
        }
        if (round < 3) {
          await reaches(relay, 'HELD');
          for (const [id, client] of clients) {
            if (!heardBad.has(id)) await client.gets('cds', { a: released });
          }
          await eventually(async () => expect(await relay.metric('persistence_lag_seconds')).to.equal(0));
          // What is not on the disk yet, a kill may take with it.
          await eventually(() =>
            expect(readFileSync(join(directory.path, 'rollout.json'), 'utf8')).to.include('no such filter'),
          );
        } else {
          plane.set('cds', { a: '2' });
          for (const client of clients.values()) await client.gets('cds', { a: released });
        }
        relay.signal(round < 3 ? 'SIGKILL' : 'SIGTERM');
        await relay.stop();
      }
      expect([...heardBad]).to.have.length(1);
    });
  });
}

/** The processes that serve. */
async function workersOf(
  relay: RelayProcess,
): Promise<readonly { readonly pid: number; readonly clients: number }[]> {
  const { body } = await relay.rpc('distributary.admin.v1.AdminService/Status', {});
  const worker = z.object({ pid: z.number(), clients: z.number(), listening: z.boolean() });
  const { workers } = z.object({ workers: z.array(worker) }).parse(JSON.parse(body));
  expect(workers.every(({ listening }) => listening)).to.equal(true);
  return workers;
}

describe('a rollout with workers', function () {
  this.timeout(180_000);

  it('a reload with other canaries: who is none any more goes back; a rollout that goes away waits for the next start', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const everybody = { canary: { percent: 100 }, mode: 'MANUAL' };
    await using relay = await RelayProcess.start(configOf(plane, everybody, { workers: 2 }));
    using pool = new ClientPool(relay.xds, ids.length);
    const clients = await fleetOf(pool, { a: '1' });
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
    await eventually(async () => {
      expect((await rolloutOf(relay)).canaries).to.deep.include({ total: 3, accepted: 3 });
    });
    relay.configure(configOf(plane, { mode: 'MANUAL' }, { workers: 2 }));
    const seen = await eventually(() => {
      const all = clients.map(contentsOfA).toSorted();
      expect(all).to.deep.equal(['1 2 1', '1 2 1', '1 2 1 2']);
      return all;
    });
    await always(() => {
      expect(clients.map(contentsOfA).toSorted()).to.deep.equal(seen);
    }, 500);
    await operate(relay, 'Release');
    await eventually(() => {
      expect(clients.map(contentsOfA).toSorted()).to.deep.equal(['1 2 1 2', '1 2 1 2', '1 2 1 2']);
    });
    await reaches(relay, 'IDLE');
    relay.configure(configOf(plane, {}, { workers: 2, rollout: undefined }));
    await eventually(() => {
      const warned = relay.log.find(({ message }) => message.includes('take effect after a restart'));
      expect(warned?.['keys']).to.deep.equal(['rollout']);
    });
    await always(() => {
      expect(clients.map(contentsOfA).toSorted()).to.deep.equal(['1 2 1 2', '1 2 1 2', '1 2 1 2']);
    }, 500);
  });
});

/** What a client had of `a`, one after the other. */
function contentsOfA(client: RecordingClient): string {
  const contents = client.of('cds').flatMap(({ resources }) => resources.get('a') ?? []);
  return contents.filter((content, index) => content !== contents[index - 1]).join(' ');
}
