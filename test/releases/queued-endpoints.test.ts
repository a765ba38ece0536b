import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName, type TypeUrl } from '../../src/model/brand.ts';
import { endpointsIn } from '../../src/model/cluster.ts';
import { nameKey } from '../../src/model/holds.ts';
import { placeOf } from '../../src/model/node-path.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Holder, type Put, transaction } from '../../src/model/transaction.ts';
import type { RolloutSettings } from '../../src/releases/judge.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import { nothingSaved, type SavedRollout } from '../../src/releases/rollout-file.ts';
import { any, namedHolder, put, type } from '../support/in-memory-relay.ts';
import { unheard, withoutCanaries } from '../support/rollouts.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const [cds, eds, rtds] = [type('cds'), type('eds'), type('rtds')];
const names = ['a', 'b', 'c', 'd'];

const wave = (percent: number, bakeMs: number): RolloutSettings['waves'][number] => ({
  path: 'rollout.waves',
  percent,
  match: [],
  elects: true,
  bakeMs,
});
const settings: RolloutSettings = {
  ...withoutCanaries([cds]),
  waves: [wave(0.01, 300), wave(50, 600_000)],
  guard: { maxEmptiedPercent: 20 },
};

function assignment(name: string, count: number, mark: string): Put {
  const locality = Array.from({ length: count }, () => [0x12, 0]).flat();
  const value = Buffer.concat([
    any(eds, name, mark).value,
    Buffer.from([0x12, locality.length, ...locality]),
  ]);
  return { ...put(eds, name, mark), any: toBinary(AnySchema, create(AnySchema, { typeUrl: eds, value })) };
}

/** A relay with a canary in each wave, which accepts all that it is sent. */
class World {
  readonly clock = new VirtualClock();
  readonly store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
  readonly rollout: Rollout;
  /** Clients have yet to go back to their cohort. */
  isMoving = false;
  saved: SavedRollout = nothingSaved;

  /** `before`: after a restart of that, with these settings. */
  constructor(before?: World, now = settings) {
    const isMoving = (): boolean => this.isMoving;
    this.rollout = new Rollout(now, {
      gate: this.store.held,
      fleet: {
        survey: (waiting) => {
          const keys = [...waiting].flatMap(([url, own]) => [...own].map((name) => nameKey(url, name)));
          const subscribed = new Set(keys);
          const { reached } = this.rollout.canaries;
          const nodes = ['n1', 'n2'].slice(0, reached.size > 0 ? 2 : 1);
          return {
            complete: true,
            members: nodes.map((nodeKey) => ({
              nodeKey,
              place: placeOf(nodeKey),
              classKey: 'one',
              mayBeCanary: true,
              cohort: 'canary',
              subscribed: new Set([subscribed]),
            })),
            canaries: nodes.map((node) => ({
              node,
              classKey: 'one',
              stream: node,
              standing: { kind: 'accepted' },
              names: [subscribed],
            })),
          };
        },
        waitingChanged: () => {},
        get isMoving() {
          return isMoving();
        },
        moved: () => {},
      },
      clock: this.clock,
      saved: before?.saved ?? this.saved,
      removalLimits: () => [],
      events: {
        ...unheard,
        save: (state) => {
          this.saved = state;
        },
      },
    });
    for (const [url, all] of [
      [cds, ['x']],
      [eds, names],
      [rtds, ['r']],
    ] as const)
      for (const name of all)
        this.store.addInterest({ type: url, selector: resourceName(name), parameters: NO_PARAMETERS });
    const holder: Holder = before === undefined ? namedHolder : { ...namedHolder, restored: true };
    this.says(cds, [put(cds, 'x', '1')], holder);
    this.says(rtds, [put(rtds, 'r', '1')], holder);
    this.says(
      eds,
      names.map((name) => assignment(name, 2, '2')),
      holder,
    );
  }

  says(url: TypeUrl, puts: readonly Put[], holder: Holder = namedHolder): void {
    this.store.apply(transaction({ holder, type: url, puts }));
    this.store.held.notify();
    // The clients are looked at once a second.
    this.clock.advance(1100);
  }

  /** Upstream has so many in each assignment, or in each of these. */
  endpoints(count: number, of: readonly string[] = names): void {
    this.says(
      eds,
      of.map((name) => assignment(name, count, `${count}`)),
    );
  }

  /** A change of clusters is past its first wave. */
  inSecondWave(): void {
    this.says(cds, [put(cds, 'x', '2')]);
    this.clock.advance(1000);
    expect(this.rollout.report()).to.include({ wave: 2 });
  }

  freeze(): void {
    this.rollout.freeze({}, { operator: 'somebody', reason: 'a test' });
  }

  unfreeze(): void {
    this.rollout.unfreeze({});
    this.clock.advance(100);
  }

  /** The endpoints of each assignment that a cohort has. */
  has(cohort: Cohort): string {
    return names
      .map((name) => this.store.held.contentOf(eds, resourceName(name), cohort))
      .map(([one]) => (one?.variant.payload === undefined ? '-' : endpointsIn(one.variant.payload.bytes)))
      .join(' ');
  }

  both(): string {
    return `${this.has('released')} | ${this.has('canary')}`;
  }

  state(): string {
    const { state } = this.rollout.report();
    return state.kind === 'HELD' ? `HELD ${state.cause}` : state.kind;
  }
}

describe('what is queued behind a change that is past its first wave', () => {
  it('a reload that takes its type out is refused: everybody would get what nobody has judged', () => {
    const world = new World();
    const both = { ...settings, types: [cds, rtds] };
    world.rollout.reload(both);
    world.inSecondWave();
    world.says(rtds, [put(rtds, 'r', '2')]);
    expect(world.store.held.pending.find(({ type: of }) => of === rtds)?.masked).to.equal('queued');
    expect(world.rollout.objectionTo(settings)).to.match(/^rollout.types: rtds cannot be taken out/);
    expect(world.rollout.objectionTo(both)).to.equal(undefined);
  });

  it('so is one just after the change before it was decided, while clients go back', () => {
    const world = new World();
    world.rollout.reload({ ...settings, types: [cds, rtds] });
    world.inSecondWave();
    world.says(rtds, [put(rtds, 'r', '2')]);
    world.isMoving = true;
    expect(world.rollout.discard({}, 'a test').ok).to.equal(true);
    expect(world.rollout.objectionTo(settings)).to.match(/^rollout.types: rtds cannot be taken out/);
    expect(world.rollout.objectionTo(undefined)).to.match(/^rollout: it cannot be taken out/);
  });
});

describe('endpoints behind a change of clusters that is past its first wave', () => {
  it('those that the guard stops nobody has, and a reload changes nothing of that', () => {
    const world = new World();
    world.inSecondWave();
    world.endpoints(0);
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 2 2 2 2', 'HELD content']);
    world.rollout.reload({ ...settings });
    world.clock.advance(100);
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 2 2 2 2', 'HELD content']);
  });

  it('what came with those that the guard stops goes to everybody', () => {
    const world = new World();
    world.inSecondWave();
    world.says(eds, [...['a', 'b'].map((name) => assignment(name, 0, '0')), assignment('c', 3, '3')]);
    expect([world.both(), world.state()]).to.deep.equal(['2 2 3 2 | 2 2 3 2', 'HELD content']);
  });

  it('unfreeze: what is not gated goes to everybody', () => {
    const world = new World();
    world.inSecondWave();
    world.freeze();
    world.endpoints(3);
    world.says(rtds, [put(rtds, 'r', '2')]);
    expect(world.both()).to.equal('2 2 2 2 | 2 2 2 2');
    world.unfreeze();
    expect(world.both()).to.equal('3 3 3 3 | 3 3 3 3');
    expect(world.store.held.pending.map(({ type: url }) => url)).to.deep.equal([cds]);
  });

  it('unfreeze: nobody gets what the guard stops', () => {
    const world = new World();
    world.inSecondWave();
    world.freeze();
    world.endpoints(0);
    world.unfreeze();
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 2 2 2 2', 'HELD content']);
  });
});

describe('endpoints that the guard has stopped, after a restart', () => {
  /** It finds nothing wrong with them any more. */
  const loose = { ...settings, guard: { maxEmptiedPercent: 100 } };

  it('held: they stay held, though they come one by one', () => {
    const before = new World();
    before.endpoints(0);
    expect(before.state()).to.equal('HELD content');
    const world = new World(before, loose);
    for (const name of names) world.endpoints(0, [name]);
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 0 0 0 0', 'HELD content']);
    world.endpoints(3);
    expect([world.both(), world.state()]).to.deep.equal(['3 3 3 3 | 3 3 3 3', 'IDLE']);
    expect(world.saved.verdicts).to.deep.equal([]);
  });

  it('discarded: nobody gets them, until upstream says something else', () => {
    const before = new World();
    before.endpoints(0);
    expect(before.rollout.discard({}, 'a test').ok).to.equal(true);
    const world = new World(before, loose);
    for (const name of names) world.endpoints(0, [name]);
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 2 2 2 2', 'IDLE']);
    world.endpoints(3);
    expect([world.both(), world.state()]).to.deep.equal(['3 3 3 3 | 3 3 3 3', 'IDLE']);
    expect(world.saved.discards).to.deep.equal([]);
  });

  /** After a restart they come one by one, and so nothing is wrong with them. */
  function comeAlone(before: World, mark: string): World {
    expect(before.state()).to.equal('HELD content');
    const world = new World(before, loose);
    for (const name of names) world.says(eds, [assignment(name, 0, mark)]);
    return world;
  }

  it('held with another content meanwhile, which is as bad: that stays held', () => {
    const before = new World();
    before.endpoints(0);
    before.says(
      eds,
      names.map((name) => assignment(name, 0, 'other')),
    );
    const world = comeAlone(before, 'other');
    expect([world.both(), world.state()]).to.deep.equal(['2 2 2 2 | 0 0 0 0', 'HELD content']);
  });

  it('behind a change in a later wave: they stay held', () => {
    const before = new World();
    before.inSecondWave();
    before.endpoints(0);
    const world = comeAlone(before, '0');
    expect([world.has('released'), world.state()]).to.deep.equal(['2 2 2 2', 'HELD content']);
    world.endpoints(3);
    expect([world.both(), world.state()]).to.deep.equal(['3 3 3 3 | 3 3 3 3', 'IDLE']);
  });

  it('behind a change in a later wave, with another content meanwhile: that stays held', () => {
    const before = new World();
    before.inSecondWave();
    before.endpoints(0);
    before.says(
      eds,
      names.map((name) => assignment(name, 0, 'other')),
    );
    expect(comeAlone(before, 'other').has('released')).to.equal('2 2 2 2');
  });

  it('behind a change in a later wave that has ended: they stay held', () => {
    const before = new World();
    before.inSecondWave();
    before.endpoints(0);
    before.clock.advance(700_000);
    expect(before.both()).to.equal('2 2 2 2 | 0 0 0 0');
    expect(comeAlone(before, '0').has('released')).to.equal('2 2 2 2');
  });

  it('with on_failure: DISCARD what waits with them stays for its canaries', () => {
    const before = new World();
    before.endpoints(0, ['a', 'b']);
    expect(before.state()).to.equal('HELD content');
    const world = new World(before, loose);
    world.endpoints(0, ['a']);
    world.says(cds, [put(cds, 'x', '2')]);
    expect(world.state()).to.equal('HELD content');
    world.rollout.reload({ ...loose, onFailure: 'DISCARD' });
    world.clock.advance(100);
    const { pending } = world.rollout.report();
    expect(pending.map(({ name, masked }) => `${name}: ${masked}`)).to.deep.equal([
      'x: undefined',
      'a: discarded',
    ]);
  });

  it('what is harmless goes to everybody, though it comes with them', () => {
    const before = new World();
    before.endpoints(0, ['a']);
    expect(before.rollout.discard({}, 'a test').ok).to.equal(true);
    const world = new World(before, loose);
    world.says(eds, [assignment('a', 0, '0'), assignment('b', 1, '1')]);
    expect(world.both()).to.equal('2 1 2 2 | 2 1 2 2');
  });
});

describe('endpoints that were frozen', () => {
  it('the guard sees them after unfreeze', () => {
    const world = new World();
    world.freeze();
    world.endpoints(0);
    world.unfreeze();
    expect([world.has('released'), world.state()]).to.deep.equal(['2 2 2 2', 'HELD content']);
  });

  it('a few at a time, over several bakes, they are still seen together', () => {
    const world = new World();
    world.freeze();
    for (const name of names) {
      world.endpoints(0, [name]);
      world.clock.advance(3_600_000);
    }
    world.unfreeze();
    expect([world.has('released'), world.state()]).to.deep.equal(['2 2 2 2', 'HELD content']);
  });

  it('without rollout they go to everybody with unfreeze', () => {
    const world = new World();
    world.rollout.reload(undefined);
    world.freeze();
    world.endpoints(0);
    world.unfreeze();
    expect([world.both(), world.state()]).to.deep.equal(['0 0 0 0 | 0 0 0 0', 'IDLE']);
  });
});
