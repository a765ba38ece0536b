import { expect } from 'chai';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

const ids = ['n1', 'n2', 'n3'];
const manual = { canary: { percent: 0.01 }, bake: '200ms', mode: 'MANUAL' };

type Answer = Awaited<ReturnType<typeof operate>>;

class World implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly plane: ModelPlane;
  readonly relay: RelayProcess;
  readonly clients: readonly RecordingClient[];
  readonly #workers: number;

  private constructor(plane: ModelPlane, relay: RelayProcess, pool: ClientPool, workers: number) {
    for (const one of [plane, relay]) this.#stack.use(one);
    this.#stack.use(pool);
    this.plane = plane;
    this.relay = relay;
    this.#workers = workers;
    this.clients = ids.map((id) => pool.open('delta', id));
  }

  /** Everybody has had `1`, has `2`, and `3` is with the canary. */
  static async start(workers: number): Promise<World> {
    const plane = await ModelPlane.start();
    plane.set('cds', { a: '1', b: '1' });
    const relay = await RelayProcess.start(configOf(plane, workers, manual));
    const world = new World(plane, relay, new ClientPool(relay.xds, workers + 1), workers);
    for (const client of world.clients) client.subscribe('cds');
    await world.everybodyHas('1');
    await world.waits('2');
    expect((await operate(relay, 'Release')).status).to.equal(200);
    await world.everybodyHas('2');
    await world.waits('3');
    return world;
  }

  /** Sends both names, and waits until a canary has them and the relay has heard so. */
  async waits(content: string): Promise<void> {
    this.plane.set('cds', { a: content, b: content });
    await reaches(this.relay, 'CANARY');
    await eventually(async () => {
      expect(this.having(content)).to.equal(1);
      expect((await rolloutOf(this.relay)).canaries.accepted).to.equal(1);
    });
  }

  async everybodyHas(content: string): Promise<void> {
    for (const client of this.clients) await client.gets('cds', { a: content, b: content });
  }

  /** How many clients have a content under both names. */
  having(content: string): number {
    return this.contents.filter((one) => one === `${content} ${content}`).length;
  }

  /** What each client has. */
  get contents(): readonly string[] {
    return this.clients.map((client) => {
      const held = client.holds.get('cds');
      return `${held?.get('a')} ${held?.get('b')}`;
    });
  }

  reload(rollout: object): void {
    this.relay.configure(configOf(this.plane, this.#workers, rollout));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}

const configOf = (plane: ModelPlane, workers: number, rollout: object): RelayConfig => ({
  upstreams: [
    { name: 'central', ads: { endpoints: [plane.address], backoff: { initial: '20ms', max: '100ms' } } },
  ],
  workers,
  rollout,
});

const said = ({ status, body }: Answer): string =>
  `${status}: ${status === 200 ? 'done' : String(body['message'])}`;
/** The answers of both, the one that did it first. */
const answers = (both: readonly Answer[]): readonly string[] => both.map(said).toSorted();

for (const workers of [0, 2]) {
  describe(`operators, with workers: ${workers}`, function () {
    this.timeout(60_000);

    it('release and discard at once: one does it for all names, the other hears why not', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const [released, discarded] = await Promise.all([operate(relay, 'Release'), operate(relay, 'Discard')]);
      const [done, refused] = answers([released, discarded]);
      expect(done).to.equal('200: done');
      expect(refused).to.match(/^400: nothing waits: /);
      await world.everybodyHas(released.status === 200 ? '3' : '2');
      await reaches(relay, 'IDLE');
    });

    it('two releases, or two discards, at once: one does it', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const discards = await Promise.all([operate(relay, 'Discard'), operate(relay, 'Discard')]);
      expect(answers(discards)[0]).to.equal('200: done');
      expect(answers(discards)[1]).to.match(/^400: nothing waits: what upstream says was discarded/);
      await world.everybodyHas('2');
      await world.waits('4');
      const releases = await Promise.all([operate(relay, 'Release'), operate(relay, 'Release')]);
      expect(answers(releases)[0]).to.equal('200: done');
      expect(answers(releases)[1]).to.match(/^400: nothing waits: it was released or discarded before/);
      await world.everybodyHas('4');
    });

    it('rollback and release at once: everybody has what there was, whoever was first', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const [back, released] = await Promise.all([
        operate(relay, 'Rollback', { to: 1 }),
        operate(relay, 'Release'),
      ]);
      expect(said(back)).to.equal('200: done');
      if (released.status !== 200)
        expect(said(released)).to.match(/^400: nothing waits: .*unfreeze it first/);
      await world.everybodyHas('1');
      await reaches(relay, 'FROZEN');
    });

    it('two rollbacks at once: everybody has one of both, whole, and one unfreeze ends them', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const both = await Promise.all([
        operate(relay, 'Rollback', { to: 1 }),
        operate(relay, 'Rollback', { to: 2 }),
      ]);
      expect(answers(both)).to.deep.equal(['200: done', '200: done']);
      const last = Number(both[1].body['revision']) > Number(both[0].body['revision']) ? '2' : '1';
      await world.everybodyHas(last);
      await reaches(relay, 'FROZEN');
      expect((await operate(relay, 'Unfreeze')).status).to.equal(200);
      await eventually(() => {
        expect(world.contents.toSorted()).to.deep.equal([`${last} ${last}`, `${last} ${last}`, '3 3']);
      });
    });

    it('two freezes, and two ends of one, at once: the second hears who was first', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const both = await Promise.all(['Ann', 'Bob'].map((reason) => operate(relay, 'Freeze', { reason })));
      const [done, refused] = answers(both);
      expect(done).to.equal('200: done');
      const first = both[0]?.status === 200 ? 'Ann' : 'Bob';
      expect(refused).to.match(
        new RegExp(`^400: everything is already frozen, since .*Z, by 127\\.0\\.0\\.1:\\d+ \\(${first}\\)$`),
      );
      expect((await rolloutOf(relay)).freezes).to.have.length(1);
      const ends = await Promise.all([operate(relay, 'Unfreeze'), operate(relay, 'Unfreeze')]);
      expect(answers(ends)).to.deep.equal(['200: done', '400: nothing is frozen']);
      await reaches(relay, 'CANARY');
    });

    it('what is wrong is refused with a reason, and changes nothing', async () => {
      await using world = await World.start(workers);
      const { relay } = world;
      const before = await rolloutOf(relay);
      const contents = world.contents.toSorted();
      const wrong: readonly [Parameters<typeof operate>[1], object, RegExp][] = [
        ['Rollback', { to: 999 }, /revision 999/],
        ['Rollback', { to: 0 }, /revision/],
        ['Rollback', { to: 3 }, /revision 3 was never released/],
        ['Rollback', { to: 1, type: 'eds' }, /eds is not gated/],
        ['Rollback', { to: 1, upstream: 'other' }, /unknown upstream "other"/],
        ['Rollback', { to: 1, reason: ' ' }, /reason/],
        ['Release', { type: 'lds' }, /nothing of lds waits/],
        ['Discard', { upstream: 'other' }, /unknown upstream "other"/],
        ['Freeze', { reason: '' }, /reason/],
        ['Freeze', { type: 'clusters' }, /clusters/],
        ['Unfreeze', {}, /nothing is frozen/],
      ];
      for (const [method, request, message] of wrong) {
        const { status, body } = await operate(relay, method, request);
        expect(status, `${method} ${JSON.stringify(request)}`).to.be.greaterThanOrEqual(400);
        expect(String(body['message'])).to.match(message);
      }
      const configurations: readonly [object, RegExp][] = [
        [{ ...manual, canary: { percent: 0 } }, /rollout\.canary\.percent: must be at least 0\.01/],
        [{ ...manual, canary: { percent: 101 } }, /rollout\.canary\.percent: must be at most 100/],
        [{ ...manual, canary: { match: [{ key: 'env', value: 'x' }] } }, /is not the key of any rule/],
      ];
      for (const [index, [rollout, message]] of configurations.entries()) {
        world.reload(rollout);
        await eventually(async () => {
          expect(await relay.metric('config_reloads_total', 'rejected')).to.equal(index + 1);
        });
        const refusals = await relay.says(/the new configuration is refused/, index + 1);
        expect(JSON.stringify(refusals.at(-1))).to.match(message);
      }
      await always(() => {
        expect(world.contents.toSorted()).to.deep.equal(contents);
      }, 300);
      expect(await rolloutOf(relay)).to.deep.equal(before);
    });
  });
}
