import { expect } from 'chai';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches } from './support/rollout-state.ts';

const ids = ['n1', 'n2', 'n3'];
const gated = { canary: { percent: 0.01 }, bake: '200ms' };

const configOf = (plane: ModelPlane, rollout: object | undefined): RelayConfig => ({
  upstreams: [
    { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '100ms' } } },
  ],
  rollout,
});

/** A relay whose canary has rejected a cluster, and all its clients. */
async function held(plane: ModelPlane, relay: RelayProcess, pool: ClientPool): Promise<RecordingClient[]> {
  const clients = ids.map((id) => pool.open('delta', id));
  for (const client of clients) {
    client.rejects = ({ resources }) => (resources.get('a') === 'bad' ? 'no such filter' : undefined);
    client.subscribe('cds');
  }
  for (const client of clients) await client.gets('cds', { a: '1' });
  plane.set('cds', { a: 'bad' });
  await reaches(relay, 'HELD');
  return clients;
}

const heardBad = (clients: readonly RecordingClient[]): number =>
  clients.filter((client) => client.of('cds').some(({ resources }) => resources.get('a') === 'bad')).length;

describe('a reload of rollout while a change is held', () => {
  const attacks: readonly {
    readonly name: string;
    readonly rollout: object | undefined;
    readonly path: string;
  }[] = [
    { name: 'without rollout', rollout: undefined, path: 'rollout:' },
    { name: 'without the type', rollout: { ...gated, types: ['lds'] }, path: 'rollout.types:' },
    {
      name: 'with more percent',
      rollout: { ...gated, canary: { percent: 100 } },
      path: 'rollout.canary.percent:',
    },
  ];
  for (const { name, rollout, path } of attacks) {
    it(`${name}: refused, and only the canary has heard of what it rejected`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      await using relay = await RelayProcess.start(configOf(plane, gated));
      using pool = new ClientPool(relay.xds);
      const clients = await held(plane, relay, pool);
      relay.configure(configOf(plane, rollout));
      const refusal = await eventually(() => {
        const found = relay.log.find(({ message }) => message.startsWith('the new configuration is refused'));
        if (found === undefined) throw new Error('no refusal in the log');
        return found;
      });
      expect(String(refusal['problems'])).to.include(path).and.include('cds a: no such filter');
      expect(await relay.metric('config_reloads_total', 'rejected')).to.equal(1);
      await always(() => {
        expect(heardBad(clients)).to.equal(1);
      }, 500);
      await reaches(relay, 'HELD');
    });
  }

  it('without rollout while canaries have not decided yet: refused, until everybody has the change', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    const manual = { ...gated, mode: 'MANUAL' };
    await using relay = await RelayProcess.start(configOf(plane, manual));
    using pool = new ClientPool(relay.xds);
    const clients = ids.map((id) => pool.open('delta', id));
    for (const client of clients) client.subscribe('cds');
    for (const client of clients) await client.gets('cds', { a: '1' });
    plane.set('cds', { a: 'bad' });
    await eventually(() => {
      expect(heardBad(clients)).to.equal(1);
    });
    relay.configure(configOf(plane, undefined));
    await eventually(async () => {
      expect(await relay.metric('config_reloads_total', 'rejected')).to.equal(1);
    });
    await eventually(() => {
      const refusal = relay.log.find(({ message }) => message.startsWith('the new configuration is refused'));
      expect(String(refusal?.['problems'])).to.include(
        'rollout: it cannot be taken out while a change waits for canaries',
      );
    });
    await always(() => {
      expect(heardBad(clients)).to.equal(1);
    }, 500);
    expect((await operate(relay, 'Release')).status).to.equal(200);
    for (const client of clients) await client.gets('cds', { a: 'bad' });
    relay.signal('SIGHUP');
    await eventually(async () => {
      expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1);
    });
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
  });

  it('after a discard it is accepted, and what was discarded still reaches nobody', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start(configOf(plane, gated));
    using pool = new ClientPool(relay.xds);
    const clients = await held(plane, relay, pool);
    expect((await operate(relay, 'Discard')).status).to.equal(200);
    for (const client of clients) await client.gets('cds', { a: '1' });
    relay.configure(configOf(plane, undefined));
    await eventually(async () => {
      expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1);
    });
    await always(() => {
      expect(heardBad(clients)).to.equal(1);
    }, 500);
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
  });

  it('with other parameters: refused, also when it was discarded, until nothing waits', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start(configOf(plane, gated));
    using pool = new ClientPool(relay.xds);
    const clients = await held(plane, relay, pool);
    const isRefused = (times: number, why: string) =>
      eventually(() => {
        const all = relay.log.filter(({ message }) => message.startsWith('the new configuration is refused'));
        expect(all).to.have.length(times);
        expect(String(all.at(-1)?.['problems'])).to.include(`parameters: they cannot change while ${why}`);
      });
    // They would be other sessions, of which nothing was ever released.
    relay.configure({ ...configOf(plane, gated), parameters: [{ key: 'id', from: 'node.id' }] });
    await isRefused(1, 'a change waits (cds: 1 name)');
    expect((await operate(relay, 'Discard')).status).to.equal(200);
    relay.signal('SIGHUP');
    await isRefused(
      2,
      'a change is discarded (cds: 1 name): wait until the control plane sends something else',
    );
    await always(() => {
      expect(heardBad(clients)).to.equal(1);
    }, 500);
    plane.set('cds', { a: '2' });
    for (const client of clients) await client.gets('cds', { a: '2' });
    await reaches(relay, 'IDLE');
    relay.signal('SIGHUP');
    await eventually(async () => {
      expect(await relay.metric('config_reloads_total', 'accepted')).to.equal(1);
    });
  });
});
