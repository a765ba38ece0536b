import { create, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { type ResourceName, resourceName, type TypeUrl } from '../../src/model/brand.ts';
import { endpointsIn } from '../../src/model/cluster.ts';
import { type Constraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { nameKey } from '../../src/model/holds.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { Payload } from '../../src/model/resource.ts';
import type { HeldVariant } from '../../src/model/rollout.ts';
import { type Holder, type Put, transaction } from '../../src/model/transaction.ts';
import { Guard } from '../../src/releases/guard.ts';
import { Judge, type RolloutSettings, unjudged } from '../../src/releases/judge.ts';
import { waitingNames } from '../../src/releases/waiting.ts';
import { any, namedHolder, put, type, when, wildcardHolder } from '../support/in-memory-relay.ts';
import { compiled, is, not } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

const cds = type('cds');
const eds = type('eds');
const bakeMs = 30_000;
const letters = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j'];

/** A ClusterLoadAssignment with so many endpoints. */
function assignment(name: string, count: number, mark = '', constraints = UNCONSTRAINED): Put {
  const plain = any(eds, name, mark).value;
  const locality = Buffer.from(Array.from({ length: count }, () => [0x12, 0]).flat());
  const value = Buffer.concat([plain, Buffer.from([0x12, locality.length]), locality]);
  const body = toBinary(AnySchema, create(AnySchema, { typeUrl: eds, value }));
  return { ...put(eds, name, mark), any: body, constraints };
}

const assignments = (counts: Readonly<Record<string, number>>): readonly Put[] =>
  Object.entries(counts).map(([name, count]) => assignment(name, count));

/** Clusters with bodies of this length. */
const clusters = (lengths: Readonly<Record<string, number>>): readonly Put[] =>
  Object.entries(lengths).map(([name, length]) => put(cds, name, 'x'.repeat(length)));

/** What upstream says, and a guard that looks at it as a rollout does. */
class World {
  readonly clock = new VirtualClock();
  readonly store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
  readonly guard = new Guard(this.store.held, this.clock);

  constructor(bounds: Partial<RolloutSettings['guard']> = {}) {
    this.store.held.gatedTypes(new Set([cds]));
    this.store.held.guarding((one) => this.guard.stops(one));
    this.configure(bounds);
  }

  configure(bounds: Partial<RolloutSettings['guard']>): void {
    this.guard.configure({ guard: { maxEmptiedPercent: 20, ...bounds }, types: [cds], bakeMs });
  }

  /** Each is a response. */
  says(url: TypeUrl, ...responses: readonly (readonly Put[])[]): void {
    for (const puts of responses) this.#apply(url, puts, namedHolder);
  }

  saysTo(holder: Holder, puts: readonly Put[]): void {
    this.#apply(eds, puts, holder);
  }

  #apply(url: TypeUrl, puts: readonly Put[], holder: Holder): void {
    this.store.apply(transaction({ holder, type: url, puts }));
    this.store.held.notify();
    this.look();
  }

  /** Why what waits is held; empty: it is not. */
  look(): string {
    const waits = () => waitingNames([...this.store.held.pending].filter((one) => one.masked === undefined));
    const stopped = this.guard.weigh(waits(), []);
    const free = waits().names.filter((one) => one.type === eds && !stopped.has(one.key));
    if (free.length > 0) this.store.held.release({}, new Set(free.map(({ key }) => key)));
    const { names, keys } = waits();
    this.guard.weigh(waits(), []);
    const change = { names, keys, classes: new Set<string>(), judge: new Judge(unjudged, 0) };
    return this.guard.look([{ change, canaries: [], isNew: false }])[0]?.verdict?.reason ?? '';
  }

  /** As a file does, which is all of a type. */
  replaces(url: TypeUrl, puts: readonly Put[], holder = namedHolder): void {
    this.store.apply(transaction({ holder, type: url, puts, complete: true }));
    this.store.held.notify();
    this.look();
  }

  /** A client with `env: prod`. */
  subscribes(url: TypeUrl, names: readonly string[]): void {
    const parameters = internParameters([['env', 'prod']]);
    for (const selector of names.map(resourceName))
      this.store.addInterest({ type: url, selector, parameters });
  }

  /** As an operator, or `on_failure: DISCARD`. */
  discard(): void {
    this.store.held.discard();
    this.look();
  }

  /** Names of eds that a cohort has without an endpoint. */
  empty(cohort: Cohort, names: readonly string[] = letters): string {
    const isEmpty = (name: ResourceName): boolean =>
      this.store.held
        .contentOf(eds, name, cohort)
        .some(({ variant }) => endpointsIn(variant.payload?.bytes ?? new Uint8Array(), 1) === 0);
    return names.filter((name) => isEmpty(resourceName(name))).join('');
  }
}

const all = (count: number): Record<string, number> =>
  Object.fromEntries(letters.map((name) => [name, count]));

describe('the guard: assignments that lose their endpoints', () => {
  let world: World;

  beforeEach(() => {
    world = new World();
    world.says(eds, assignments(all(1)));
  });

  it('the first content is no change', () => {
    const cold = new World();
    cold.says(eds, assignments(all(0)));
    expect(cold.look()).to.equal('');
    expect(cold.empty('released')).to.equal(letters.join(''));
  });

  it('20 percent of a session go to everybody, and more wait', () => {
    world.says(eds, assignments({ a: 0, b: 0 }));
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('ab');
    const other = new World();
    other.says(eds, assignments(all(1)), assignments({ a: 0, b: 0, c: 0 }));
    expect(other.look()).to.equal(
      '3 of 10 eds would have no endpoints any more; rollout.guard.max_emptied_percent allows 20 %',
    );
    expect([other.empty('released'), other.empty('canary')]).to.deep.equal(['', 'abc']);
  });

  it('one after another within a bake they count together', () => {
    world.says(eds, ...['a', 'b', 'c'].map((name) => assignments({ [name]: 0 })));
    expect(world.look()).to.match(/^3 of 10 eds/);
    expect([world.empty('released'), world.empty('canary')]).to.deep.equal(['ab', 'abc']);
    // Time does not let it through.
    world.clock.advance(10 * bakeMs);
    expect(world.look()).to.match(/^3 of 10 eds/);
    world.says(eds, assignments({ d: 0 }));
    expect(world.look()).to.match(/^4 of 10 eds/);
    // Upstream has endpoints again.
    world.says(eds, assignments({ a: 1, b: 1 }));
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('cd');
  });

  for (const hours of [-1, 1])
    it(`the bake is not another one when the wall clock is set by ${hours} h`, () => {
      world.says(eds, assignments({ a: 0, b: 0 }));
      world.clock.step(hours * 3_600_000);
      world.says(eds, assignments({ c: 0 }));
      expect(world.look()).to.match(/^3 of 10 eds/);
      world.says(eds, assignments({ c: 1 }));
      world.clock.advance(bakeMs + 1);
      world.says(eds, assignments({ c: 0 }));
      expect(world.look()).to.equal('');
    });

  it('what was lost longer ago than a bake does not count, whatever else is held meanwhile', () => {
    const few: Holder = { key: 'few', upstream: 'script', role: 'named' };
    const small = (count: number): readonly Put[] =>
      ['x', 'y'].map((name) => assignment(name, count, '', when({ env: 'few' })));
    world.saysTo(few, small(1));
    world.saysTo(few, small(0));
    expect(world.look()).to.match(/^2 of 2 eds/);
    for (const name of ['a', 'b', 'c']) {
      world.says(eds, assignments({ [name]: 0 }));
      world.clock.advance(bakeMs + 1);
    }
    expect(world.look()).to.match(/^2 of 2 eds/);
    expect(world.empty('released')).to.equal('abc');
  });

  it('what was lost longer ago than a bake does not count', () => {
    world.says(eds, assignments({ a: 0, b: 0 }));
    world.clock.advance(bakeMs + 1);
    world.says(eds, assignments({ c: 0, d: 0 }));
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('abcd');
  });

  it('an assignment that has endpoints again does not count, nor does one that is removed', () => {
    world.configure({ maxEmptiedPercent: 25 });
    world.says(eds, assignments({ a: 0, b: 0 }), assignments({ a: 1 }), assignments({ c: 0 }));
    expect(world.look()).to.equal('');
    const removals = [{ name: resourceName('b'), constraints: UNCONSTRAINED }];
    world.store.apply(transaction({ holder: namedHolder, type: eds, removals }));
    world.says(eds, assignments({ d: 0 }));
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('cd');
  });

  it('the same again, and other endpoints in the same response, are not stopped', () => {
    world.says(eds, assignments({ a: 0, b: 0, c: 0 }));
    world.says(eds, [...assignments({ a: 0, b: 0, c: 0 }), assignment('d', 1, 'new')]);
    const held = [...world.store.held.pending].map(({ name }) => name).toSorted();
    expect(held).to.deep.equal(['a', 'b', 'c']);
  });

  it('empty in another way is still empty: it does not slip through behind a change that is judged', () => {
    world.store.held.queueing(() => true);
    world.says(eds, assignments({ a: 0, b: 0, c: 0 }));
    expect([world.empty('released'), world.empty('canary')]).to.deep.equal(['', '']);
    world.says(eds, [assignment('a', 0, 'other')]);
    expect([world.empty('released'), world.empty('canary')]).to.deep.equal(['', '']);
  });

  it('what is queued is found as soon as it is there, with what waits', () => {
    world.store.held.queueing((one) => one.name !== 'a');
    const weighed = () => {
      const [queued, waiting] = [true, false].map((isQueued) =>
        [...world.store.held.pending].filter(({ masked }) => (masked === 'queued') === isQueued),
      );
      return world.guard.weigh(waitingNames(waiting ?? []), queued ?? []);
    };
    world.store.apply(
      transaction({ holder: namedHolder, type: eds, puts: assignments({ b: 0, c: 0, d: 0 }) }),
    );
    const keys = ['b', 'c', 'd'].map((name) => nameKey(eds, resourceName(name)));
    expect([...weighed()]).to.deep.equal(keys);
    expect(world.guard.objectionTo(new Set(keys))?.reason).to.match(/^3 of 10 eds/);
    world.store.apply(transaction({ holder: namedHolder, type: eds, puts: assignments({ a: 0 }) }));
    expect(world.guard.objectionTo(weighed())?.reason).to.match(/^4 of 10 eds/);
    world.store.apply(transaction({ holder: namedHolder, type: eds, puts: assignments({ b: 1, c: 1 }) }));
    expect([...weighed()]).to.deep.equal([]);
  });

  it('what was discarded still counts, as long as upstream says it', () => {
    world.says(eds, assignments(all(0)));
    world.discard();
    for (const pair of [['a', 'b'] as const, ['c', 'd'] as const, ['e', 'f'] as const]) {
      world.clock.advance(10 * bakeMs);
      world.says(
        eds,
        pair.map((name) => assignment(name, 0, 'other')),
      );
      expect(world.look()).to.match(/^10 of 10 eds/);
      world.discard();
    }
    expect([world.empty('released'), world.empty('canary')]).to.deep.equal(['', '']);
    // What has endpoints goes to everybody, and so does what is not too much any more.
    world.says(eds, assignments({ a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1 }));
    world.says(eds, [assignment('i', 0, 'other')]);
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('i');
  });

  it('what an operator has released is no loss any more', () => {
    world.says(eds, assignments(all(0)));
    world.store.held.release();
    world.says(eds, [assignment('a', 0, 'other'), assignment('b', 0, 'other'), assignment('c', 0, 'other')]);
    expect([world.look(), world.store.held.size]).to.deep.equal(['', 0]);
  });

  it('while something is held endpoints are not counted again at every look', () => {
    world.says(eds, assignments(all(0)));
    const { held } = world.store;
    let reads = 0;
    let revision = 0;
    const watched = new Map<string, Payload>();
    const watch = ({ variant, holders }: HeldVariant): HeldVariant => {
      const { hash, bytes } = variant.payload ?? { hash: '', bytes: new Uint8Array() };
      const payload = watched.get(hash) ?? {
        hash,
        get bytes() {
          reads++;
          return bytes;
        },
      };
      watched.set(hash, payload);
      return { variant: { ...variant, payload }, holders };
    };
    const guard = new Guard(
      {
        pending: held.pending,
        // Something else is said meanwhile.
        get revision() {
          return revision++;
        },
        releasedByHolder: (url) => held.releasedByHolder(url),
        contentOf: (...of) => held.contentOf(...of).map(watch),
      },
      world.clock,
    );
    guard.configure({ guard: { maxEmptiedPercent: 20 }, types: [cds], bakeMs });
    const waiting = () => waitingNames([...held.pending]);
    expect(guard.weigh(waiting(), []).size).to.equal(10);
    const first = reads;
    for (let look = 0; look < 3; look++) expect(guard.weigh(waiting(), []).size).to.equal(10);
    expect([first, reads]).to.deep.equal([20, 20]);
  });

  it('while something is held and nothing is said, nothing is looked at again', () => {
    world.says(eds, assignments(all(0)));
    const { held } = world.store;
    let asked = 0;
    const guard = new Guard(
      {
        pending: held.pending,
        get revision() {
          return held.revision;
        },
        releasedByHolder: (url) => held.releasedByHolder(url),
        contentOf: (...of) => {
          asked++;
          return held.contentOf(...of);
        },
      },
      world.clock,
    );
    guard.configure({ guard: { maxEmptiedPercent: 20 }, types: [cds], bakeMs });
    const waiting = waitingNames([...held.pending]);
    const weighed = (): readonly number[] => [guard.weigh(waiting, []).size, asked];
    expect([weighed(), weighed()]).to.deep.equal([
      [10, 20],
      [10, 20],
    ]);
    // Of another type: what waits is the same. There may be fewer names, or others that are lost.
    world.says(cds, clusters({ x: 1 }));
    expect(weighed()).to.deep.equal([10, 20]);
    guard.configure({ guard: { maxEmptiedPercent: 100 }, types: [cds], bakeMs });
    expect(weighed()[0]).to.equal(0);
  });

  it('each session counts for itself', () => {
    const few: Holder = { key: 'few', upstream: 'script', role: 'named' };
    const variants = (counts: readonly [number, number]) =>
      ['x', 'y'].map((name, at) => assignment(name, counts[at] ?? 0, '', when({ env: 'few' })));
    world.saysTo(few, variants([1, 1]));
    world.saysTo(few, variants([1, 0]));
    expect(world.look()).to.match(/^1 of 2 eds/);
    expect(world.empty('released', ['x', 'y'])).to.equal('');
  });

  it('one session with variants for many classes: an assignment counts once', () => {
    const wide = new World();
    const envs = ['p', 'q', 'r'].map((env) => when({ env }));
    const of = (empty: string): readonly Put[] =>
      envs.flatMap((env) => letters.map((name) => assignment(name, empty.includes(name) ? 0 : 1, '', env)));
    wide.says(eds, of(''), of('ab'));
    expect(wide.look()).to.equal('');
    wide.says(eds, of('abc'));
    expect(wide.look()).to.match(/^3 of 10 eds/);
    const one = new World();
    one.says(eds, of(''));
    one.says(
      eds,
      letters.map((name) => assignment(name, 0, '', when({ env: 'q' }))),
    );
    expect(one.look()).to.match(/^10 of 10 eds/);
  });

  describe('with other constraints', () => {
    const prod = when({ env: 'prod' });
    const test = when({ env: 'test' });
    const of = (names: readonly string[], count: number, constraints: Constraints): readonly Put[] =>
      names.map((name) => assignment(name, count, '', constraints));

    beforeEach(() => {
      world = new World({ maxLostEndpointsPercent: 50 });
      world.subscribes(eds, letters);
      world.says(eds, of(letters, 4, prod));
    });

    it('what they had before is lost', () => {
      world.replaces(eds, of(letters, 0, UNCONSTRAINED));
      expect(world.look()).to.match(/^10 of 10 eds/);
      expect(world.empty('released')).to.equal('');
      world.replaces(eds, of(letters, 1, UNCONSTRAINED));
      expect(world.look()).to.match(/^eds a: 4 endpoints became 1 \(-75 %\), and 9 more/);
      world.replaces(eds, of(letters, 2, UNCONSTRAINED));
      expect([world.look(), world.store.held.size]).to.deep.equal(['', 0]);
    });

    it('also if the old ones go only later', () => {
      world.says(eds, of(letters, 0, UNCONSTRAINED));
      expect(world.look()).to.match(/^10 of 10 eds/);
      world.replaces(eds, of(letters, 0, UNCONSTRAINED));
      expect(world.look()).to.match(/^10 of 10 eds/);
      expect(world.empty('released')).to.equal('');
    });

    it('what was lost before within the bake still counts', () => {
      world.configure({});
      world.says(eds, of(['a', 'b'], 0, prod));
      expect(world.empty('released')).to.equal('ab');
      world.replaces(eds, [...of(['a', 'b'], 0, UNCONSTRAINED), ...of(letters.slice(2), 4, prod)]);
      world.says(eds, of(['c'], 0, prod));
      expect(world.look()).to.match(/^3 of 10 eds/);
    });

    it('a class that nobody had anything for loses nothing', () => {
      world.says(eds, of(letters, 0, test));
      expect([world.look(), world.store.held.size]).to.deep.equal(['', 0]);
    });
  });

  it('max_emptied_percent: 100: never; a reload counts for what comes next, and for what waits', () => {
    world.configure({ maxEmptiedPercent: 100 });
    world.says(eds, assignments({ a: 0, b: 0, c: 0 }));
    expect(world.empty('released')).to.equal('abc');
    world.configure({});
    world.says(eds, assignments({ d: 0, e: 0, f: 0 }));
    expect(world.look()).to.match(/of 10 eds/);
    world.configure({ maxEmptiedPercent: 100 });
    expect(world.look()).to.equal('');
    expect(world.empty('released')).to.equal('abcdef');
  });

  it('max_lost_endpoints_percent: of one assignment, over all responses of a bake', () => {
    world = new World({ maxLostEndpointsPercent: 50 });
    world.says(eds, assignments(all(10)), assignments({ a: 5 }));
    expect(world.look()).to.equal('');
    world.says(eds, assignments({ a: 4 }));
    expect(world.look()).to.equal(
      'eds a: 10 endpoints became 4 (-60 %); rollout.guard.max_lost_endpoints_percent allows 50 %',
    );
    world.says(eds, assignments({ b: 0 }));
    expect(world.look()).to.equal(
      'eds b: 10 endpoints became 0 (-100 %), and 1 more lose too many; rollout.guard.max_lost_endpoints_percent allows 50 %',
    );
    world.says(eds, assignments({ a: 5, b: 9 }));
    expect(world.look()).to.equal('');
    expect(world.store.held.size).to.equal(0);
  });
});

describe('the guard: how much of a gated type changes', () => {
  const four = { a: 1000, b: 1000, c: 1000, d: 1000 };

  for (const [what, bounds, after, reason] of [
    ['nothing is bounded by default', {}, { a: 9000, b: 1, c: 1, d: 1 }, ''],
    ['twice as many bytes are the bound', { maxGrowthPercent: 100 }, { a: 5000 }, ''],
    [
      'more than twice as many',
      { maxGrowthPercent: 100 },
      { a: 6000 },
      'cds: 4,252 bytes became 9,252 (+118 %); rollout.guard.max_growth_percent allows 100 %',
    ],
    ['what shrinks beside it makes up for it', { maxGrowthPercent: 100 }, { a: 6000, b: 1, c: 1 }, ''],
    ['names that nobody has yet pass', { maxGrowthPercent: 0, maxChangedPercent: 0 }, { e: 9000 }, ''],
    ['half of the names are the bound', { maxChangedPercent: 50 }, { a: 1, b: 1 }, ''],
    [
      'more than half',
      { maxChangedPercent: 50 },
      { a: 1, b: 1, c: 1 },
      '3 of 4 cds would change at once; rollout.guard.max_changed_percent allows 50 %',
    ],
  ] as const) {
    it(what, () => {
      const world = new World(bounds);
      world.says(cds, clusters(four), clusters(after));
      expect(world.look()).to.equal(reason);
    });
  }

  it('all that waits counts, in however many responses it came, and less of it ends it', () => {
    const world = new World({ maxChangedPercent: 50 });
    world.says(cds, clusters(four), clusters({ a: 1 }), clusters({ b: 1 }));
    expect(world.look()).to.equal('');
    world.says(cds, clusters({ c: 1 }));
    expect(world.look()).to.match(/^3 of 4 cds/);
    world.says(cds, clusters({ a: 1000 }));
    expect(world.look()).to.equal('');
  });

  it('what gets other constraints is compared with what it had before', () => {
    const world = new World({ maxGrowthPercent: 100 });
    const of = (length: number, constraints: Constraints): readonly Put[] =>
      ['a', 'b'].map((name) => put(cds, name, 'x'.repeat(length), { constraints }));
    world.subscribes(cds, ['a', 'b']);
    world.says(cds, of(1000, when({ env: 'prod' })));
    world.replaces(cds, of(1500, UNCONSTRAINED));
    expect([world.look(), world.store.held.size]).to.deep.equal(['', 2]);
    world.replaces(cds, of(3000, UNCONSTRAINED));
    expect(world.look()).to.match(/^cds: 2,\d{3} bytes became 6,\d{3} \(\+\d+ %\)/);
    world.configure({ maxChangedPercent: 50 });
    expect(world.look()).to.match(/^2 of 2 cds would change at once/);
  });

  it('of many variants that clients may have had, those with the most endpoints count', () => {
    const world = new World({ maxLostEndpointsPercent: 50 });
    world.subscribes(eds, ['a']);
    const shard = (at: number): Put =>
      assignment('a', at < 100 ? 1 : 20, '', compiled(not(is('shard', String(at).padStart(3, '0')))));
    world.says(
      eds,
      Array.from({ length: 150 }, (_, at) => shard(at)),
    );
    world.says(eds, [assignment('a', 1)]);
    expect(world.look()).to.match(/^eds a: 20 endpoints became 1 /);
  });

  it('thousands of variants of one assignment without endpoints are read once, and not for each of them', () => {
    const reads = (count: number): number => {
      const world = new World();
      world.subscribes(eds, ['a']);
      const variants = (key: string, endpoints: number): readonly Put[] =>
        Array.from({ length: count }, (_, at) =>
          assignment('a', endpoints, '', compiled(not(is(key, `${at}`)))),
        );
      world.says(eds, variants('k', 1));
      const { held } = world.store;
      return workOf(Object.getPrototypeOf(held) as object, ['contentOf'], () =>
        world.says(eds, variants('j', 0)),
      );
    };
    expect(reads(400)).to.be.below(3 * reads(200));
  });

  it('a removal is a change', () => {
    const world = new World({ maxChangedPercent: 20 });
    world.store.addInterest({ type: cds, selector: resourceName('a'), parameters: NO_PARAMETERS });
    world.says(cds, clusters(four));
    const removals = [{ name: resourceName('a'), constraints: UNCONSTRAINED }];
    world.store.apply(transaction({ holder: namedHolder, type: cds, removals }));
    expect(world.look()).to.match(/^1 of 4 cds/);
  });
});

it('the guard finds what an upstream gives as all that it has, and clients ask for by name', () => {
  const world = new World({ maxGrowthPercent: 100 });
  const says = (url: TypeUrl, puts: readonly Put[]): string => {
    world.subscribes(url, letters);
    world.replaces(url, puts, wildcardHolder);
    return world.look();
  };
  says(eds, assignments(all(1)));
  expect(says(eds, assignments({ ...all(1), a: 0, b: 0, c: 0 }))).to.match(/^3 of 10 eds/);
  expect([world.empty('released'), world.empty('canary')]).to.deep.equal(['', 'abc']);
  expect(says(eds, assignments(all(1)))).to.equal('');
  says(cds, clusters(all(1000)));
  expect(says(cds, clusters(all(3000)))).to.match(/^cds: 10,\d{3} bytes became 30,\d{3}/);
});
