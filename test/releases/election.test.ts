import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { placeOf } from '../../src/model/node-path.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { transaction } from '../../src/model/transaction.ts';
import { Canaries, elect, isInWave, type Member, waveOf } from '../../src/releases/canaries.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import { nothingSaved, type SavedRollout } from '../../src/releases/rollout-file.ts';
import { namedHolder, put, type } from '../support/in-memory-relay.ts';
import { unheard, withoutCanaries } from '../support/rollouts.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');

const all = new Set(['cds a', 'cds b']);
const onlyA = new Set(['cds a']);
const onlyB = new Set(['cds b']);

const member = (
  nodeKey: string,
  classKey: string,
  cohort: Cohort,
  ...subscribed: readonly ReadonlySet<string>[]
): Member => ({
  nodeKey,
  place: placeOf(nodeKey),
  mayBeCanary: true,
  classKey,
  cohort,
  subscribed: new Set(subscribed),
});

const lowest = (...ids: readonly string[]): string | undefined =>
  ids.toSorted((a, b) => placeOf(a) - placeOf(b))[0];

describe('canaries', () => {
  it('a class without a canary gets the first by the hash of the node id', () => {
    const ids = ['n1', 'n2', 'n3'];
    expect(elect(ids.map((id) => member(id, 'prod', 'released', all)))).to.deep.equal([lowest(...ids)]);
  });

  it('a class with a canary that subscribes to all of it gets no other', () => {
    expect(elect([member('n1', 'prod', 'released', all), member('n2', 'prod', 'canary', all)])).to.deep.equal(
      [],
    );
  });

  it('each class gets its own', () => {
    const members = [member('n1', 'prod', 'canary', all), member('n2', 'test', 'released', all)];
    expect(elect(members)).to.deep.equal(['n2']);
  });

  it('a canary that does not subscribe to a change is none for it', () => {
    const members = [member('n1', 'prod', 'canary', onlyA), member('n2', 'prod', 'released', onlyB)];
    expect(elect(members)).to.deep.equal(['n2']);
  });

  it('canaries of different selections cover a wildcard together', () => {
    const members = [
      member('n1', 'prod', 'canary', onlyA),
      member('n2', 'prod', 'canary', onlyB),
      member('n3', 'prod', 'released', all),
    ];
    expect(elect(members)).to.deep.equal([]);
  });

  it('one node is enough where it subscribes to everything, over all its types', () => {
    const ids = ['n1', 'n2', 'n3'];
    expect(elect(ids.map((id) => member(id, 'prod', 'released', onlyA, onlyB)))).to.have.length(1);
  });

  it('a class whose canary may still come after a restart waits for it', () => {
    expect(elect([member('n1', 'prod', 'released', all)], (key) => key === 'prod')).to.deep.equal([]);
  });

  it('a share of the nodes, stable: a larger percentage only adds', () => {
    const ids = Array.from({ length: 2000 }, (_, index) => `node-${index}`);
    const none = internParameters([]);
    const canariesAt = (percent: number): readonly string[] =>
      ids.filter((id) => isInWave({ percent, match: [] }, { place: placeOf(id), parameters: none }));
    expect(canariesAt(100)).to.have.length(2000);
    expect(canariesAt(0)).to.have.length(0);
    expect(canariesAt(10).length).to.be.within(140, 260);
    expect(canariesAt(20)).to.include.members([...canariesAt(10)]);
  });

  it('any of the matches makes a canary', () => {
    const rules = {
      percent: 0,
      match: [
        { key: 'env', value: 'canary' },
        { key: 'tier', value: 'lab' },
      ],
    };
    const is = (entries: readonly (readonly [string, string])[]): boolean =>
      isInWave(rules, { place: placeOf('n'), parameters: internParameters(entries) });
    expect(is([['env', 'canary']])).to.equal(true);
    expect(
      is([
        ['tier', 'lab'],
        ['env', 'prod'],
      ]),
    ).to.equal(true);
    expect(is([['env', 'prod']])).to.equal(false);
    expect(is([])).to.equal(false);
  });

  it('a change that has ended leaves nobody of its later waves behind', () => {
    const wave = { path: 'rollout.waves[0]', match: [], bakeMs: undefined };
    const waves = [
      { ...wave, percent: 0, elects: false },
      { ...wave, percent: 0.01, elects: true },
    ];
    const canaries = new Canaries(waves, undefined, 0);
    const [n1] = ['n1', 'n2'].map((id) => member(id, 'prod', 'released', all));
    if (n1 === undefined) throw new Error('no member');
    const cohortOf = () => canaries.cohortOf({ ...n1, parameters: internParameters([]) });
    expect([...canaries.elect([n1])]).to.deep.equal([]);
    expect(canaries.reach(new Map([['prod', 2]]))?.(n1)).to.equal(true);
    expect([...canaries.elect([n1])]).to.deep.equal(['n1']);
    canaries.remember([{ ...n1, cohort: 'canary' }]);
    expect(cohortOf()).to.equal('canary');
    // Another change may still wait, and may be found bad.
    canaries.reach(new Map());
    canaries.open = new Set();
    expect(cohortOf()).to.equal('released');
    expect([...canaries.named]).to.deep.equal([]);
  });

  it('a change that has ended leaves nobody behind who is of another class by now', () => {
    const waves = [0, 30].map((percent) => ({
      path: '',
      percent,
      match: [],
      elects: percent > 0,
      bakeMs: undefined,
    }));
    const canaries = new Canaries(waves, undefined, 0);
    canaries.reach(new Map([['prod', 2]]));
    const elected = canaries.elect([member('n1', 'prod', 'released', all)]);
    expect([...elected]).to.deep.equal(['n1']);
    const isMoved = canaries.reach(new Map());
    expect(['n1', 'n2'].map((nodeKey) => isMoved?.({ nodeKey, classKey: 'test' }))).to.deep.equal([
      true,
      false,
    ]);
  });

  it('who was a canary before a restart, and has nothing of what waits after a minute, is told to be none', () => {
    const waves = [{ path: 'rollout.waves[0]', percent: 0, match: [], elects: true, bakeMs: undefined }];
    const canaries = new Canaries(
      waves,
      new Map([
        ['n1', 'prod'],
        ['n2', 'prod'],
      ]),
      0,
    );
    const [n1] = ['n1'].map((id) => member(id, 'prod', 'canary', all));
    if (n1 === undefined) throw new Error('no member');
    expect([...canaries.expire(59_000)]).to.deep.equal([]);
    // The rollout is late.
    canaries.remember([n1]);
    expect([...canaries.expire(61_000)]).to.deep.equal(['n2']);
    expect([...canaries.named], 'what waits is its').to.deep.equal(['n1']);
  });

  it('after the end of a worker clients may come back for a minute; those of before a restart no longer', () => {
    const waves = [{ path: 'rollout.waves[0]', percent: 0, match: [], elects: true, bakeMs: undefined }];
    const canaries = new Canaries(waves, new Map([['n1', 'prod']]), 0);
    expect([canaries.mayComeBack(59_000, 0), canaries.mayComeBack(60_000, 0)]).to.deep.equal([true, false]);
    canaries.clientsLeft(59_000);
    const late = 70_000;
    expect([canaries.mayComeBack(118_000, late), canaries.mayComeBack(119_000, late)]).to.deep.equal([
      true,
      false,
    ]);
    canaries.clientsLeft(100_000);
    expect(
      [canaries.mayComeBack(129_000, late), canaries.mayComeBack(130_000, late)],
      'a minute at most',
    ).to.deep.equal([true, false]);
    expect([...canaries.expire(60_000)]).to.deep.equal(['n1']);
  });

  it('a client is in the first wave that takes it, that it was elected in, or with everybody', () => {
    const wave = (path: string, percent: number, match: string | undefined, elects: boolean) => ({
      ...{ path, percent, elects, bakeMs: undefined },
      match: match === undefined ? [] : [{ key: 'env', value: match }],
    });
    const waves = [
      wave('a', 0, 'canary', false),
      wave('b', 10, undefined, true),
      wave('c', 50, undefined, true),
    ];
    const client = (env: string, place: number) => ({
      ...{ nodeKey: 'n', classKey: env, place, parameters: internParameters([['env', env]]) },
    });
    const at = (reached: number, cohort: Cohort, env: string, place: number, named = false): number =>
      waveOf(
        { waves, reached: new Map([[env, reached]]), named: new Set(named ? ['n'] : []) },
        client(env, place),
        cohort,
      );
    expect(at(1, 'canary', 'canary', 0.9)).to.equal(1);
    expect(at(1, 'released', 'prod', 0.05)).to.equal(2);
    expect(at(1, 'released', 'prod', 0.3)).to.equal(3);
    expect(at(1, 'released', 'prod', 0.9)).to.equal(4);
    expect(at(2, 'canary', 'prod', 0.05)).to.equal(2);
    expect(at(3, 'canary', 'prod', 0.05), 'later too').to.equal(2);
    expect(at(3, 'canary', 'prod', 0.9, true), 'elected').to.equal(2);
    expect(at(1, 'canary', 'prod', 0.3, true), 'it has it since before a restart').to.equal(1);
    expect(at(3, 'released', 'prod', 0.05), 'it may not be a canary').to.equal(4);
  });
});

describe('a worker ends again and again', () => {
  const waves = [
    {
      path: 'rollout.waves[0]',
      percent: 0,
      match: [{ key: 'a', value: 'b' }],
      elects: false,
      bakeMs: undefined,
    },
    { path: 'rollout.waves[1]', percent: 50, match: [], elects: true, bakeMs: undefined },
  ];

  /** Nobody is connected. */
  class World {
    readonly #clock = new VirtualClock();
    readonly #store = new Store({ clock: this.#clock, ambiguous: () => {}, expiring: () => {} });
    readonly #rollout: Rollout;

    constructor(saved?: SavedRollout) {
      this.#rollout = new Rollout(
        { ...withoutCanaries([cds]), waves },
        {
          gate: this.#store.held,
          fleet: {
            survey: () => ({ complete: true, members: [], canaries: [] }),
            waitingChanged: () => {},
            isMoving: false,
            moved: () => {},
          },
          clock: this.#clock,
          saved,
          removalLimits: () => [],
          events: unheard,
        },
      );
      this.#store.addInterest({ type: cds, selector: resourceName('x'), parameters: NO_PARAMETERS });
      this.says('1');
    }

    says(content: string): void {
      const puts = [put(cds, resourceName('x'), content)];
      this.#store.apply(transaction({ holder: namedHolder, type: cds, puts }));
      this.#store.held.notify();
      this.#clock.advance(100);
    }

    endsEach(milliseconds: number, times: number): void {
      for (let at = 0; at < times; at++) {
        this.#rollout.canaries.clientsLeft(this.#clock.monotonic());
        this.#clock.advance(milliseconds);
      }
    }

    get state(): string {
      const { state, pending, changes } = this.#rollout.report();
      const isQueued = pending.some(({ masked }) => masked !== undefined);
      return isQueued ? 'queued' : `${state.kind} ${changes[0]?.wave ?? 0}`;
    }
  }

  it('a change without subscribers waits for a minute in each wave, and bakes: no longer', () => {
    const world = new World();
    world.endsEach(10_000, 1);
    world.says('2');
    world.endsEach(10_000, 5);
    expect(world.state).to.equal('CANARY 1');
    world.endsEach(10_000, 6);
    expect(world.state).to.equal('CANARY 2');
    world.endsEach(10_000, 2);
    expect(world.state, 'its bake').to.equal('CANARY 2');
    world.endsEach(10_000, 3);
    expect(world.state).to.equal('IDLE 0');
  });

  it('what is queued after a restart waits for a minute: no longer', () => {
    const shown = [{ type: cds, name: resourceName('gone') }];
    const world = new World({ ...nothingSaved, shown });
    world.says('2');
    world.endsEach(10_000, 5);
    expect(world.state).to.equal('queued');
    world.endsEach(10_000, 2);
    expect(world.state).to.equal('CANARY 1');
    world.endsEach(10_000, 16);
    expect(world.state).to.equal('IDLE 0');
  });
});
