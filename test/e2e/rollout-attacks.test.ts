import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { reaches, rolloutOf } from './support/rollout-state.ts';

/** The class of a client is the beginning of its node's id. */
const parameters = [{ key: 'team', from: 'node.id', pattern: '^([a-z]+)' }];
const config = (plane: ModelPlane, rollout: object = {}, more: object = {}): RelayConfig => ({
  upstreams: [
    { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '100ms' } } },
  ],
  parameters,
  rollout: { canary: { percent: 0.01 }, bake: '300ms', ...rollout },
  ...more,
});

const bad = 'bad';
const rejectsBad: RecordingClient['rejects'] = ({ resources }) =>
  [...resources.values()].some((content) => content.startsWith(bad)) ? 'no such filter' : undefined;

const heard = (client: RecordingClient, content: string): boolean =>
  client.said.some(({ resources }) => [...resources.values()].includes(content));

class Fleet implements Disposable {
  readonly pool: ClientPool;
  readonly clients = new Map<string, RecordingClient>();

  constructor(relay: RelayProcess) {
    this.pool = new ClientPool(relay.xds, 1);
  }

  open(id: string, protocol: 'sotw' | 'delta', names: readonly string[] = []): RecordingClient {
    const client = this.pool.open(protocol, id);
    client.rejects = rejectsBad;
    client.subscribe('cds', names);
    this.clients.set(id, client);
    return client;
  }

  async allGet(contents: Readonly<Record<string, string>>, except: readonly string[] = []): Promise<void> {
    for (const [id, client] of this.clients) if (!except.includes(id)) await client.gets('cds', contents);
  }

  /** Who has heard of a content. */
  heard(content: string): string[] {
    return [...this.clients].flatMap(([id, client]) => (heard(client, content) ? [id] : []));
  }

  /** For so many milliseconds nobody else hears of a content. */
  only(id: string, content: string, milliseconds: number): Promise<void> {
    return always(() => {
      expect(this.heard(content)).to.deep.equal([id]);
    }, milliseconds);
  }

  [Symbol.dispose](): void {
    this.pool[Symbol.dispose]();
  }
}

describe('attacks on a rollout', () => {
  for (const protocol of ['sotw', 'delta'] as const) {
    it(`${protocol}: a canary that rejects a removal holds it`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      await using relay = await RelayProcess.start(config(plane));
      using fleet = new Fleet(relay);
      for (const id of ['x1', 'x2']) {
        const client = fleet.open(id, protocol);
        client.rejects = ({ resources, removed }) =>
          removed.includes('b') || (protocol === 'sotw' && !resources.has('b')) ? 'b is in use' : undefined;
      }
      await fleet.allGet({ a: '1', b: '1' });
      plane.set('cds', { a: '1' });
      expect((await reaches(relay, 'HELD')).reason).to.match(/b is in use/);
    });

    it(`${protocol}: what a canary rejected is not shown to the next one when it unsubscribes`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1', b: '1' });
      await using relay = await RelayProcess.start(config(plane));
      using fleet = new Fleet(relay);
      for (const id of ['x1', 'x2', 'x3']) fleet.open(id, protocol, ['a', 'b']);
      await fleet.allGet({ a: '1', b: '1' });
      plane.set('cds', { a: bad, b: '1' });
      await reaches(relay, 'HELD');
      const [canary = ''] = fleet.heard(bad);
      fleet.clients.get(canary)?.unsubscribe('cds', ['a']);
      await fleet.only(canary, bad, 1500);
      expect((await rolloutOf(relay)).state).to.equal('HELD');
    });
  }

  for (const protocol of ['sotw', 'delta'] as const)
    for (const workers of cases(0, 2)) {
      const where = workers === 0 ? '' : `, ${workers} workers`;
      it(`${protocol}${where}: clients that unsubscribe what they reject with the same request: the next one is not shown it`, async () => {
        await using plane = await ModelPlane.start();
        plane.set('cds', { a: '1', b: '1' });
        await using relay = await RelayProcess.start(config(plane, {}, workers === 0 ? {} : { workers }));
        using fleet = new Fleet(relay);
        for (const id of ['x1', 'x2', 'x3']) {
          const client = fleet.open(id, protocol, ['a', 'b']);
          client.rejects = (said) => {
            const message = rejectsBad(said);
            client.answers = message === undefined;
            if (message !== undefined) client.answer('cds', said.nonce, message, ['a']);
            return message;
          };
        }
        await fleet.allGet({ a: '1', b: '1' });
        plane.set('cds', { a: bad, b: '1' });
        expect((await reaches(relay, 'HELD')).reason).to.match(/no such filter/);
        const [canary = ''] = fleet.heard(bad);
        await fleet.only(canary, bad, 1500);
      });
    }

  it('a canary that rejected and left for good, then other changes: nobody else is asked', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    await using relay = await RelayProcess.start(config(plane, { max_disconnects: 100 }));
    using fleet = new Fleet(relay);
    for (const id of ['x1', 'x2', 'x3', 'x4']) fleet.open(id, 'delta');
    await fleet.allGet({ a: '1', b: '1' });
    plane.set('cds', { a: bad, b: '1' });
    await reaches(relay, 'HELD');
    const [canary = ''] = fleet.heard(bad);
    fleet.clients.get(canary)?.[Symbol.dispose]();
    for (let change = 2; change <= 4; change++) {
      plane.set('cds', { a: bad, b: String(change) });
      await fleet.only(canary, bad, 500);
    }
    plane.set('cds', { a: '2', b: '7' });
    await fleet.allGet({ a: '2', b: '7' }, [canary]);
  });

  it('canaries that crash, while other changes come: nobody else is asked', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    await using relay = await RelayProcess.start(config(plane, { bake: '2s' }));
    using fleet = new Fleet(relay);
    for (const id of ['x1', 'x2', 'x3', 'x4']) {
      const client = fleet.open(id, 'delta');
      client.rejects = ({ resources }) => {
        if (resources.get('a') === 'crash') client[Symbol.dispose]();
        return undefined;
      };
    }
    await fleet.allGet({ a: '1', b: '1' });
    plane.set('cds', { a: 'crash', b: '1' });
    await reaches(relay, 'HELD');
    const [canary = ''] = fleet.heard('crash');
    for (let change = 2; change <= 3; change++) {
      plane.set('cds', { a: 'crash', b: String(change) });
      await fleet.only(canary, 'crash', 700);
    }
    plane.set('cds', { a: '2', b: '7' });
    await fleet.allGet({ a: '2', b: '7' }, [canary]);
  });

  for (const workers of cases(2, 0)) {
    it(`workers: ${workers}: a canary that dies of a change at once, before anybody looks, is not passed over`, async () => {
      await using plane = await ModelPlane.start();
      plane.set('cds', { a: '1' });
      const waves = [{ match: [{ key: 'team', value: 'm' }] }, { percent: 100 }];
      await using relay = await RelayProcess.start(config(plane, { waves, canary: undefined }, { workers }));
      using fleet = new Fleet(relay);
      const canary = fleet.open('m1', 'delta', ['a']);
      for (const id of ['x1', 'x2']) fleet.open(id, 'delta', ['a', 'b']);
      await fleet.allGet({ a: '1' });
      canary.rejects = ({ resources }) => {
        if (resources.get('a') === 'crash') canary[Symbol.dispose]();
        return undefined;
      };
      // The relay looks when changes have come to rest.
      for (let change = 1; change <= 20; change++) {
        plane.set('cds', { a: 'crash', b: String(change) });
        await sleep(5);
      }
      expect((await reaches(relay, 'HELD')).reason).to.match(/^1 of 1 canary streams ended/);
      await fleet.only('m1', 'crash', 1500);
    });
  }

  it('canaries that come back in another class do not free the change, and nobody else is asked', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start(config(plane));
    using fleet = new Fleet(relay);
    for (const id of ['x1', 'x2', 'y1', 'y2']) fleet.open(id, 'sotw');
    await fleet.allGet({ a: '1' });
    plane.set('cds', { a: bad });
    // One of each class.
    await eventually(async () => expect((await rolloutOf(relay)).canaries.rejected).to.equal(2));
    await reaches(relay, 'HELD');
    const canaries = fleet.heard(bad);
    for (const id of canaries) fleet.clients.get(id)?.[Symbol.dispose]();
    // What upstream has for them waits for nobody: they have nothing else.
    const again = canaries.map((id) => `z${id}`);
    for (const id of again) fleet.open(id, 'delta');
    await eventually(() => expect(fleet.heard(bad)).to.include.members(again));
    await always(async () => {
      expect((await rolloutOf(relay)).state).to.equal('HELD');
      expect(fleet.heard(bad)).to.have.members([...canaries, ...again]);
    }, 1000);
    const others = ['x1', 'x2', 'y1', 'y2'].filter((id) => !canaries.includes(id));
    for (const id of others) expect(fleet.clients.get(id)?.has('cds')).to.deep.equal({ a: '1' });
  });

  it('a failover to a control plane that says something else bad: canaries first; an outage while HELD: nothing', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '1' });
    await using relay = await RelayProcess.start(config(plane));
    using fleet = new Fleet(relay);
    for (const id of ['x1', 'x2', 'x3']) fleet.open(id, 'delta');
    await fleet.allGet({ a: '1' });
    plane.set('cds', { a: bad });
    await reaches(relay, 'HELD');
    const [canary = ''] = fleet.heard(bad);
    plane.kill();
    const late = fleet.open('x9', 'sotw');
    await late.gets('cds', { a: '1' });
    plane.set('cds', { a: 'bad2', c: '1' });
    await plane.again();
    await eventually(() => expect(fleet.heard('bad2')).to.deep.equal([canary]));
    await fleet.allGet({ a: '1', c: '1' }, [canary]);
    await reaches(relay, 'HELD');
    plane.set('cds', { a: '3', c: '1' });
    await fleet.allGet({ a: '3', c: '1' });
    expect(fleet.heard(bad)).to.deep.equal([canary]);
    expect(fleet.heard('bad2')).to.deep.equal([canary]);
  });

  it('names removed and added again, 50 changes in a row: no mixture, and the last one arrives', async () => {
    await using plane = await ModelPlane.start();
    plane.set('cds', { a: '0', b: '0', c: '0' });
    await using relay = await RelayProcess.start(config(plane));
    using fleet = new Fleet(relay);
    for (const [index, id] of ['x1', 'x2', 'x3', 'y1', 'y2'].entries())
      fleet.open(id, index % 2 === 0 ? 'delta' : 'sotw');
    await fleet.allGet({ a: '0', b: '0', c: '0' });
    for (let change = 1; change <= 50; change++) {
      const content = String(change);
      plane.set(
        'cds',
        change % 3 === 0 ? { a: content, c: content } : { a: content, b: content, c: content },
      );
      if (change % 10 === 0) fleet.open(`x${change}`, change % 20 === 0 ? 'sotw' : 'delta');
      // Shorter than the bake: most changes join one that waits.
      await sleep(25);
      for (const client of fleet.clients.values()) {
        const has = client.has('cds');
        const { a, b, c } = has;
        if (Object.keys(has).length === 0) continue;
        expect(a, JSON.stringify(has)).to.equal(c);
        if (b !== undefined) expect(b, JSON.stringify(has)).to.equal(a);
      }
    }
    await fleet.allGet({ a: '50', b: '50', c: '50' });
    await reaches(relay, 'IDLE');
  });
});
