import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { contentHash } from '../../src/model/payloads.ts';
import { cases } from '../support/cases.ts';
import { any, type } from '../support/in-memory-relay.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { temporaryDirectory } from './support/paths.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches } from './support/rollout-state.ts';

const ids = ['n1', 'n2', 'n3'];

const configOf = (planes: readonly ModelPlane[], more: object = {}): RelayConfig => ({
  upstreams: [
    {
      name: 'central',
      ads: {
        endpoints: planes.map(({ address }) => address),
        backoff: { initial: '20ms', max: '100ms' },
      },
    },
  ],
  rollout: { canary: { percent: 0.01 }, bake: '300ms' },
  ...more,
});

/** Clients that reject `bad`. */
function connect(pool: ClientPool, nodeIds: readonly string[]): RecordingClient[] {
  const clients = nodeIds.map((id) => pool.open('delta', id));
  for (const client of clients) {
    client.rejects = ({ resources }) => (resources.get('a') === 'bad' ? 'no such filter' : undefined);
    client.subscribe('cds');
  }
  return clients;
}

const hasHeard = (client: RecordingClient, content: string): boolean =>
  client.of('cds').some(({ resources }) => resources.get('a') === content);

const heard = (clients: readonly RecordingClient[], content: string): number =>
  clients.filter((client) => hasHeard(client, content)).length;

const written = (relay: RelayProcess): Promise<void> =>
  eventually(async () => {
    expect(await relay.metric('persistence_lag_seconds')).to.equal(0);
  });

describe('a rollout over restarts and failovers', () => {
  it('what a canary rejected stays held after a kill, though that canary never comes back', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    using directory = temporaryDirectory();
    const config = configOf([plane], { cache: { persistence: { path: directory.path } } });
    await using first = await RelayProcess.start(config);
    const rejecting = new Set<string>();
    {
      using pool = new ClientPool(first.xds);
      const clients = connect(pool, ids);
      for (const client of clients) await client.gets('cds', { a: '1' });
      plane.set('cds', { a: 'bad' });
      await reaches(first, 'HELD');
      for (const [index, client] of clients.entries())
        if (hasHeard(client, 'bad')) rejecting.add(ids[index] ?? '');
      await written(first);
      await eventually(() =>
        expect(readFileSync(join(directory.path, 'rollout.json'), 'utf8')).to.include('no such filter'),
      );
      first.signal('SIGKILL');
      await first.stop();
    }
    await using second = await RelayProcess.start(config);
    using pool = new ClientPool(second.xds);
    const others = connect(
      pool,
      ids.filter((id) => !rejecting.has(id)),
    );
    expect(others).to.have.length(2);
    for (const client of others) await client.gets('cds', { a: '1' });
    expect((await reaches(second, 'HELD')).reason).to.equal('cds a: no such filter');
    await always(() => {
      expect(heard(others, 'bad')).to.equal(0);
    }, 700);
    expect((await operate(second, 'Discard')).status).to.equal(200);
    plane.set('cds', { a: '2' });
    await reaches(second, 'CANARY');
    expect((await operate(second, 'Release')).status).to.equal(200);
    for (const client of others) await client.gets('cds', { a: '2' });
    expect(heard(others, 'bad')).to.equal(0);
  });

  it('a second process on the directory shows nobody what was discarded, while the first one runs and after', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    using directory = temporaryDirectory();
    const rollout = { canary: { percent: 0.01 }, bake: '300ms', mode: 'MANUAL' };
    const config = configOf([plane], { rollout, cache: { persistence: { path: directory.path } } });
    await using first = await RelayProcess.start(config);
    using pool = new ClientPool(first.xds);
    const clients = connect(pool, ids);
    for (const client of clients) await client.gets('cds', { a: '1' });
    plane.set('cds', { a: 'wrong' });
    await eventually(() => expect(heard(clients, 'wrong')).to.equal(1));
    expect((await operate(first, 'Discard')).status).to.equal(200);
    await written(first);
    await using second = await RelayProcess.start(config);
    using others = new ClientPool(second.xds);
    const moved = connect(others, ids);
    for (const client of moved) await client.gets('cds', { a: '1' });
    await first.stop();
    await always(() => {
      expect(heard(moved, 'wrong')).to.equal(0);
    }, 1500);
  });

  for (const workers of cases(2, 0)) {
    it(`what an operator discarded is seen by nobody after a kill, until upstream says something else (workers: ${workers})`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      using directory = temporaryDirectory();
      const more = { workers, cache: { persistence: { path: directory.path } } };
      const rollout = { canary: { percent: 0.01 }, bake: '300ms', mode: 'MANUAL' };
      await using first = await RelayProcess.start(configOf([plane], { ...more, rollout }));
      {
        using pool = new ClientPool(first.xds);
        const clients = connect(pool, ids);
        for (const client of clients) await client.gets('cds', { a: '1', b: '1' });
        plane.set('cds', { a: 'wrong', b: '1' });
        await eventually(() => expect(heard(clients, 'wrong')).to.equal(1));
        expect((await operate(first, 'Discard')).status).to.equal(200);
        for (const client of clients) await client.gets('cds', { a: '1', b: '1' });
        await written(first);
        const discarded = contentHash(toBinary(AnySchema, any(type('cds'), 'a', 'wrong')));
        const file = readFileSync(join(directory.path, 'rollout.json'), 'utf8');
        expect(file, 'a guess cannot be tried').to.include('"hashes":["').and.not.include(discarded);
        expect(statSync(join(directory.path, 'rollout.key')).mode & 0o777).to.equal(0o600);
        first.signal('SIGKILL');
        await first.stop();
      }
      await using second = await RelayProcess.start(configOf([plane], more));
      using pool = new ClientPool(second.xds);
      const clients = connect(pool, ids);
      for (const client of clients) await client.gets('cds', { a: '1', b: '1' });
      plane.set('cds', { a: 'wrong', b: '2' });
      for (const client of clients) await client.gets('cds', { a: '1', b: '2' });
      await reaches(second, 'IDLE');
      await always(() => {
        expect(heard(clients, 'wrong')).to.equal(0);
      }, 700);
      expect((await operate(second, 'Release')).body['message']).to.include('was discarded, until it says');
      plane.set('cds', { a: '2', b: '2' });
      for (const client of clients) await client.gets('cds', { a: '2', b: '2' });
      expect(heard(clients, 'wrong')).to.equal(0);
    });
  }

  it('what upstream says otherwise after a restart goes to one canary first', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    using directory = temporaryDirectory();
    const config = configOf([plane], { cache: { persistence: { path: directory.path } } });
    await using first = await RelayProcess.start(config);
    {
      using pool = new ClientPool(first.xds);
      for (const client of connect(pool, ids)) await client.gets('cds', { a: '1' });
      await written(first);
    }
    await first.stop();
    plane.set('cds', { a: 'bad' });
    await using second = await RelayProcess.start(config);
    using pool = new ClientPool(second.xds);
    const clients = connect(pool, ids);
    for (const client of clients) await client.gets('cds', { a: '1' });
    await reaches(second, 'HELD');
    await always(() => {
      expect(heard(clients, 'bad')).to.equal(1);
    }, 500);
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
  });

  it('what another control plane says otherwise after a failover goes to one canary first', async () => {
    await using preferred = await ModelPlane.start();
    await using other = await ModelPlane.start();
    preferred.set('cds', { a: '1' });
    other.set('cds', { a: 'bad' });
    await using relay = await RelayProcess.start(configOf([preferred, other]));
    using pool = new ClientPool(relay.xds);
    const clients = connect(pool, ids);
    for (const client of clients) await client.gets('cds', { a: '1' });
    preferred.kill();
    expect((await reaches(relay, 'HELD')).reason).to.equal('cds a: no such filter');
    await always(() => {
      expect(heard(clients, 'bad')).to.equal(1);
    }, 500);
    other.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
    await reaches(relay, 'IDLE');
    expect(heard(clients, 'bad')).to.equal(1);
  });

  it('a freeze is answered, with a warning, also while the disk does not answer', async () => {
    await using plane = await ModelPlane.start();
    using directory = temporaryDirectory();
    // Who opens it for writing waits for a reader.
    execFileSync('mkfifo', [join(directory.path, 'rollout.json.new')]);
    await using relay = await RelayProcess.start(
      configOf([plane], { cache: { persistence: { path: directory.path } } }),
    );
    expect((await operate(relay, 'Freeze')).body['warning']).to.equal(
      'this may not survive a restart: rollout.json is not written yet (the disk does not answer)',
    );
    await reaches(relay, 'FROZEN');
    relay.signal('SIGKILL');
  });

  it('a freeze that cannot be written says so, and given again when the disk works it survives a kill', async () => {
    await using plane = await ModelPlane.start();
    using directory = temporaryDirectory();
    const path = join(directory.path, 'kept');
    // Where the directory should be, there is a file.
    writeFileSync(path, 'no directory');
    const config = configOf([plane], { cache: { persistence: { path } } });
    await using first = await RelayProcess.start(config);
    const { status, body } = await operate(first, 'Freeze');
    expect(status).to.equal(200);
    expect(body)
      .to.have.property('warning')
      .that.matches(/^this does not survive a restart: the cache cannot be written \(.+\)$/);
    rmSync(path);
    mkdirSync(path, { mode: 0o700 });
    expect((await operate(first, 'Freeze')).body)
      .to.have.property('message')
      .that.matches(/frozen/);
    first.signal('SIGKILL');
    await first.stop();
    await using second = await RelayProcess.start(config);
    await reaches(second, 'FROZEN');
  });
});
