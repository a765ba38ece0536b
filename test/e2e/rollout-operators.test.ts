import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { always, eventually } from './support/eventually.ts';
import { ModelPlane } from './support/model-plane.ts';
import { ClientPool, type RecordingClient } from './support/recording-client.ts';
import { type RelayConfig, RelayProcess } from './support/relay.ts';
import { operate, reaches, rolloutOf } from './support/rollout-state.ts';

const ids = ['n1', 'n2', 'n3'];
const manual = { canary: { percent: 0.01 }, bake: '200ms', mode: 'MANUAL' };

type Answer = Awaited<ReturnType<typeof operate>>;

/** What upstream has said, and the revision that it has become. */
interface Said {
  readonly content: string;
  readonly revision: number;
}

class World implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly plane: ModelPlane;
  readonly relay: RelayProcess;
  readonly clients: readonly RecordingClient[];
  readonly #workers: number;
  #content = 0;

  private constructor(plane: ModelPlane, relay: RelayProcess, pool: ClientPool, workers: number) {
    for (const one of [plane, relay]) this.#stack.use(one);
    this.#stack.use(pool);
    this.plane = plane;
    this.relay = relay;
    this.#workers = workers;
    this.clients = ids.map((id) => pool.open('delta', id));
  }

  static async start(workers: number): Promise<World> {
    const plane = await ModelPlane.start();
    plane.set('cds', { a: '0', b: '0' });
    const relay = await RelayProcess.start(configOf(plane, workers, manual));
    const world = new World(plane, relay, new ClientPool(relay.xds, workers + 1), workers);
    for (const client of world.clients) client.subscribe('cds');
    await world.everybodyHas('0');
    return world;
  }

  /** Whatever there was before: everybody has had `first`, has `second`, and `third` is with the canary. */
  async begin(): Promise<{ readonly first: Said; readonly second: Said; readonly third: Said }> {
    if ((await rolloutOf(this.relay)).freezes.length > 0) await operate(this.relay, 'Unfreeze');
    return { first: await this.#released(), second: await this.#released(), third: await this.waits() };
  }

  async #released(): Promise<Said> {
    const said = await this.waits();
    expect((await operate(this.relay, 'Release')).status).to.equal(200);
    await this.everybodyHas(said.content);
    return said;
  }

  /** Sends something new under both names, and waits until a canary has them and the relay has heard so. */
  async waits(): Promise<Said> {
    const content = String(++this.#content);
    this.plane.set('cds', { a: content, b: content });
    await reaches(this.relay, 'CANARY');
    return eventually(async () => {
      expect(this.having(content)).to.equal(1);
      const { canaries, pending_revision: revision } = await rolloutOf(this.relay);
      expect(canaries.accepted).to.equal(1);
      return { content, revision };
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

for (const workers of cases(0, 2)) {
  describe(`operators, with workers: ${workers}`, () => {
    let world: World;
    let relay: RelayProcess;

    before(async () => {
      world = await World.start(workers);
      ({ relay } = world);
    });
    after(() => world?.[Symbol.asyncDispose]());

    it('release and discard at once: one does it for all names, the other hears why not', async () => {
      const { second, third } = await world.begin();
      const [released, discarded] = await Promise.all([operate(relay, 'Release'), operate(relay, 'Discard')]);
      const [done, refused] = answers([released, discarded]);
      expect(done).to.equal('200: done');
      expect(refused).to.match(/^400: nothing waits: /);
      await world.everybodyHas((released.status === 200 ? third : second).content);
      await reaches(relay, 'IDLE');
    });

    it('two releases, or two discards, at once: one does it', async () => {
      const { second } = await world.begin();
      const discards = await Promise.all([operate(relay, 'Discard'), operate(relay, 'Discard')]);
      expect(answers(discards)[0]).to.equal('200: done');
      expect(answers(discards)[1]).to.match(/^400: nothing waits: what upstream says was discarded/);
      await world.everybodyHas(second.content);
      const { content } = await world.waits();
      const releases = await Promise.all([operate(relay, 'Release'), operate(relay, 'Release')]);
      expect(answers(releases)[0]).to.equal('200: done');
      expect(answers(releases)[1]).to.match(/^400: nothing waits: it was released or discarded before/);
      await world.everybodyHas(content);
    });

    it('rollback and release at once: everybody has what there was, whoever was first', async () => {
      const { first } = await world.begin();
      const [back, released] = await Promise.all([
        operate(relay, 'Rollback', { to: first.revision }),
        operate(relay, 'Release'),
      ]);
      expect(said(back)).to.equal('200: done');
      if (released.status !== 200)
        expect(said(released)).to.match(/^400: nothing waits: .*unfreeze it first/);
      await world.everybodyHas(first.content);
      await reaches(relay, 'FROZEN');
    });

    it('two rollbacks at once: everybody has one of both, whole, and one unfreeze ends them', async () => {
      const { first, second, third } = await world.begin();
      const both = await Promise.all([
        operate(relay, 'Rollback', { to: first.revision }),
        operate(relay, 'Rollback', { to: second.revision }),
      ]);
      expect(answers(both)).to.deep.equal(['200: done', '200: done']);
      const [toFirst, toSecond] = both.map(({ body }) => Number(body['revision']));
      const { content } = Number(toSecond) > Number(toFirst) ? second : first;
      await world.everybodyHas(content);
      await reaches(relay, 'FROZEN');
      expect((await operate(relay, 'Unfreeze')).status).to.equal(200);
      await eventually(() => {
        const all = [content, content, third.content].map((one) => `${one} ${one}`);
        expect(world.contents.toSorted()).to.deep.equal(all.toSorted());
      });
    });

    it('two freezes, and two ends of one, at once: the second hears who was first', async () => {
      await world.begin();
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
      const { first, third } = await world.begin();
      const before = await rolloutOf(relay);
      const contents = world.contents.toSorted();
      const wrong: readonly [Parameters<typeof operate>[1], object, RegExp][] = [
        ['Rollback', { to: 999 }, /revision 999/],
        ['Rollback', { to: 0 }, /to is missing/],
        ['Rollback', { to: third.revision }, new RegExp(`revision ${third.revision} was never released`)],
        ['Rollback', { to: first.revision, type: 'eds' }, /eds is not gated/],
        ['Rollback', { to: first.revision, upstream: 'other' }, /unknown upstream "other"/],
        ['Rollback', { to: first.revision, reason: ' ' }, /reason/],
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
      for (const [method, field] of [
        ['GetClient', 'id'],
        ['Check', 'name'],
        ['ReleaseRemovals', 'upstream'],
      ]) {
        const { status, body } = await relay.rpc(`distributary.admin.v1.AdminService/${method}`, {});
        expect([status, body.includes(`"${field} is missing"`)], method).to.deep.equal([400, true]);
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
