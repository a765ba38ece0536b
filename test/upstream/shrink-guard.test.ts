import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Interest, type Transaction, transaction, WILDCARD } from '../../src/model/transaction.ts';
import { ShrinkGuard } from '../../src/upstream/shrink-guard.ts';
import { namedHolder, put, type, when, wildcardHolder } from '../support/in-memory-relay.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

const cds = type('cds');
const everything: Interest = { type: cds, selector: WILDCARD, parameters: NO_PARAMETERS };
const names = (count: number, from = 0): string[] =>
  Array.from({ length: count }, (_, at) => `c${at + from}`);

class Bench {
  readonly clock = new VirtualClock();
  readonly store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
  readonly guard: ShrinkGuard;
  readonly events: string[] = [];
  current = true;

  constructor(maxRemovalPercent = 50) {
    this.store.addInterest(everything);
    this.guard = new ShrinkGuard(
      {
        apply: (applied) => this.store.apply(applied),
        restamp: (restamp) => this.store.restamp(restamp),
        changed: () => {},
        isRestored: (interest) => this.store.isRestored(interest),
      },
      {
        cache: this.store,
        maxRemovalPercent,
        maxRemovalHoldMs: 600_000,
        watchMs: 30_000,
        current: () => this.current,
        clock: this.clock,
        guards: () => true,
        held: () => {},
        log: {
          warn: (_, { removals, cached } = {}) =>
            this.events.push(`alarm ${[removals, cached].join(' of ')}`),
          info: (_, { how, removed } = {}) => this.events.push([how, removed].join(' ')),
        },
      },
    );
  }

  /** A SotW response, or the first answer of a wildcard. */
  full(...all: readonly string[]): void {
    this.says({ puts: all.map((name) => put(cds, name, 'x')), complete: true, resolved: [everything] });
  }

  removes(...all: readonly string[]): void {
    this.says({ removals: all.map((name) => ({ name: resourceName(name), constraints: UNCONSTRAINED })) });
  }

  adds(...all: readonly string[]): void {
    this.says({ puts: all.map((name) => put(cds, name, 'x')) });
  }

  reconnect(): void {
    this.guard.streamReopened([wildcardHolder.key, namedHolder.key]);
  }

  unwanted(...all: readonly string[]): void {
    const removals = all.map((name) => ({ name: resourceName(name), constraints: UNCONSTRAINED }));
    this.says({ removals, unwanted: true });
  }

  get cached(): string[] {
    return [...this.store.members(cds, WILDCARD, NO_PARAMETERS)].toSorted();
  }

  get held(): number {
    return this.guard.held()[0]?.count ?? 0;
  }

  says(part: Partial<Transaction>): void {
    this.guard.apply(transaction({ holder: wildcardHolder, type: cds, version: '1', ...part }));
  }
}

describe('the shrink guard', () => {
  let bench: Bench;

  beforeEach(() => {
    bench = new Bench();
    bench.full(...names(10));
  });

  it('a full state that removes more than the share after a reconnect: held, and what is new goes through', () => {
    bench.reconnect();
    bench.full('c0', 'new');
    expect(bench.cached).to.have.members([...names(10), 'new']);
    expect(bench.held).to.equal(9);
    expect(bench.events).to.deep.equal(['alarm 9 of 10']);
  });

  it('exactly the share is removed at once', () => {
    bench.reconnect();
    bench.full(...names(5));
    expect(bench.cached).to.deep.equal(names(5));
    expect(bench.events).to.deep.equal([]);
  });

  it('removals of several responses add up', () => {
    bench.reconnect();
    bench.removes(...names(3));
    expect(bench.cached).to.have.length(7);
    bench.removes(...names(3, 3));
    expect(bench.cached).to.have.length(7);
    expect(bench.held).to.equal(3);
  });

  it('the share is one of what was there before the first of them', () => {
    bench.reconnect();
    bench.removes(...names(3));
    bench.removes(...names(2, 3));
    expect(bench.cached).to.have.length(5);
    expect(bench.held).to.equal(0);
  });

  it('without a reconnect, and some time after it, everything is removed as upstream says', () => {
    bench.clock.advance(31_000);
    bench.full('c0');
    expect(bench.cached).to.deep.equal(['c0']);
    bench.full(...names(10));
    bench.reconnect();
    bench.full(...names(10));
    bench.clock.advance(31_000);
    bench.full('c0');
    expect(bench.cached).to.deep.equal(['c0']);
  });

  it('that time begins anew with each stream, also while something is held', () => {
    bench.reconnect();
    bench.full('c0');
    bench.clock.advance(60_000);
    bench.reconnect();
    bench.full(...names(10));
    bench.clock.advance(1000);
    bench.full('c0');
    expect(bench.held).to.equal(9);
  });

  it('what an operator releases of an earlier stream does not count for the new one', () => {
    bench.reconnect();
    bench.full('c0', 'c1', 'c2', 'c3');
    expect(bench.held).to.equal(6);
    bench.reconnect();
    bench.full('c0', 'c1', 'c2', 'c3');
    bench.guard.release();
    expect(bench.cached).to.have.length(4);
    bench.removes('c0', 'c1');
    expect([bench.held, bench.cached.length]).to.deep.equal([0, 2]);
  });

  it('a wall clock that is set does not end that time', () => {
    bench.reconnect();
    bench.full(...names(10));
    bench.clock.step(3_600_000);
    bench.full('c0');
    expect(bench.held).to.equal(9);
  });

  it('an answer that is late is looked at as closely', () => {
    bench.reconnect();
    bench.clock.advance(3_600_000);
    bench.full();
    expect(bench.held).to.equal(10);
  });

  it('what comes again is not held any more; when all of it has, that is the end', () => {
    bench.reconnect();
    bench.full();
    bench.adds(...names(4));
    expect(bench.held).to.equal(6);
    bench.adds(...names(6, 4));
    expect(bench.held).to.equal(0);
    expect(bench.events).to.deep.equal(['alarm 10 of 10', 'came again 0']);
    bench.clock.advance(700_000);
    expect(bench.cached).to.have.length(10);
  });

  it('what is within the share when nothing has come for a while is removed', () => {
    bench.reconnect();
    bench.full();
    bench.adds(...names(6));
    bench.clock.advance(1000);
    expect(bench.cached).to.have.length(10);
    bench.clock.advance(2100);
    expect(bench.cached).to.deep.equal(names(6));
    expect(bench.events).to.deep.equal(['alarm 10 of 10', 'within the limit 4']);
  });

  it('an operator releases it, by type', () => {
    bench.reconnect();
    bench.full('c1');
    expect(bench.guard.release(type('lds'))).to.equal(0);
    expect(bench.guard.release(cds)).to.equal(9);
    expect(bench.cached).to.deep.equal(['c1']);
    expect(bench.guard.held()).to.deep.equal([]);
    expect(bench.guard.release()).to.equal(0);
  });

  it('after the configured time it is removed, but not during an outage', () => {
    bench.reconnect();
    bench.full('c1');
    bench.current = false;
    bench.clock.advance(600_001);
    expect(bench.held).to.equal(9);
    bench.current = true;
    bench.clock.advance(600_001);
    expect(bench.cached).to.deep.equal(['c1']);
    expect(bench.events.at(-1)).to.equal('held for too long 9');
  });

  it('a further reconnect changes nothing of what is held', () => {
    bench.reconnect();
    bench.full('c1');
    bench.reconnect();
    bench.full('c1', 'c2');
    expect(bench.held).to.equal(8);
    expect(bench.cached).to.have.length(10);
  });

  it('what nobody wants any more is no removal by upstream', () => {
    bench.reconnect();
    bench.unwanted(...names(10));
    expect(bench.cached).to.deep.equal([]);
    expect(bench.events).to.deep.equal([]);
  });

  /** As after a restart with all of the cache. */
  function restart(): Bench {
    const restarted = new Bench();
    const variants = names(10).map((name) => {
      const variant = bench.store.resolve(cds, resourceName(name), NO_PARAMETERS);
      if (typeof variant === 'string') throw new Error('it is cached');
      const restored = { ...wildcardHolder, restored: true as const };
      return {
        type: cds,
        name: resourceName(name),
        variants: [{ variant, holders: [restored] }],
        bindings: [],
      };
    });
    restarted.store.restore({
      resources: variants,
      interests: [{ interest: everything, answer: 'restored', holder: wildcardHolder }],
      versions: [],
    });
    return restarted;
  }

  it('a cache from before a restart is guarded like one from before a reconnect', () => {
    const restarted = restart();
    // As a delta session has it: it holds nothing yet, so nothing is removed by name.
    restarted.adds('c0', 'new');
    restarted.guard.apply(transaction({ holder: wildcardHolder, type: cds, resolved: [everything] }));
    expect(restarted.cached).to.have.members([...names(10), 'new']);
    expect(restarted.held).to.equal(9);
    expect(restarted.guard.release()).to.equal(9);
    expect(restarted.cached).to.deep.equal(['c0', 'new']);
  });

  for (const [what, restored] of [
    ['siblings', { key: 'sibling x', upstream: 'script', role: 'wildcard', restored: true }],
    ['an upstream before it', { key: 'old wildcard', upstream: 'old', role: 'wildcard' }],
  ] as const)
    it(`so is what came from ${what}`, () => {
      const other = new Bench();
      other.store.apply(
        transaction({
          holder: restored,
          type: cds,
          puts: names(10).map((name) => put(cds, name, 'x')),
          resolved: [everything],
        }),
      );
      other.store.markRestored('old', () => 'script');
      expect(other.cached).to.have.length(10);
      other.full('c0');
      other.guard.apply(transaction({ holder: wildcardHolder, type: cds, resolved: [everything] }));
      expect([other.held, other.cached.length]).to.deep.equal([9, 10]);
      other.guard.release();
      expect(other.cached).to.deep.equal(['c0']);
    });

  it('an answer for now removes nothing, so nothing is held back, and its release removes nothing', () => {
    const restarted = restart();
    restarted.adds('c0');
    // As files with one among them that shows no type.
    const holder = { ...wildcardHolder, restored: true } as const;
    restarted.guard.apply(transaction({ holder, type: cds, resolved: [everything] }));
    expect([restarted.held, restarted.events]).to.deep.equal([0, []]);
    expect(restarted.guard.release()).to.equal(0);
    expect(restarted.cached).to.have.members(names(10));
    restarted.guard.apply(transaction({ holder: wildcardHolder, type: cds, resolved: [everything] }));
    expect(restarted.held, 'the answer itself').to.equal(9);
  });

  it('one variant in the place of another is a change', () => {
    const env = [{ name: resourceName('c0'), constraints: when({ env: 'prod' }) }];
    bench.reconnect();
    bench.full();
    expect(bench.held).to.equal(10);
    bench.says({ puts: env.map((one) => put(cds, one.name, 'x', one)), removals: [] });
    bench.reconnect();
    const other = when({ env: 'test' });
    bench.says({ puts: [put(cds, 'c0', 'x', { constraints: other })], removals: env });
    expect([...bench.store.heldBy(cds, wildcardHolder)].map(({ constraints }) => constraints.key))
      .to.include(other.key)
      .and.not.include(env[0]?.constraints.key);
  });

  it('0: nothing goes unasked; 100: everything does', () => {
    for (const [percent, left] of [
      [0, 10],
      [100, 0],
    ] as const) {
      const one = new Bench(percent);
      one.full(...names(10));
      one.reconnect();
      one.full();
      expect(one.cached, `${percent} %`).to.have.length(left);
    }
  });

  describe('of names that were restored and are confirmed at once', () => {
    /** How many variants are read, and how often one is held against an interest, for one answer to all names. */
    function steps(count: number, part: Partial<Transaction>): number {
      const other = new Bench();
      const interests = names(count).map(
        (name): Interest => ({ ...everything, selector: resourceName(name) }),
      );
      for (const interest of interests) other.store.addInterest(interest);
      const removals = interests.map(({ selector: name }) => ({ name, constraints: UNCONSTRAINED }));
      const holder = namedHolder;
      const puts = names(count).map((name) => put(cds, name, 'x'));
      other.says({ holder, puts, resolved: interests });
      other.store.markRestored(holder.upstream, () => undefined);
      other.reconnect();
      let read = 0;
      const heldBy = other.store.heldBy.bind(other.store);
      other.store.heldBy = function* (...of) {
        for (const one of heldBy(...of)) {
          read++;
          const { aliases } = one;
          yield Object.defineProperty({ ...one }, 'aliases', {
            get: () => {
              read++;
              return aliases;
            },
          });
        }
      };
      other.says({ holder, resolved: interests, ...(part.removals === undefined ? {} : { removals }) });
      expect(other.held).to.equal(count);
      return read;
    }

    for (const [what, part] of [
      ['they are missing', {}],
      ['they are removed', { removals: [] }],
    ] as const) {
      it(`${what}: the work grows as they do`, () => {
        expect(steps(400, part)).to.be.at.most(4.5 * steps(100, part));
      });
    }
  });

  it('nothing is looked up for an answer that removes nothing', () => {
    bench.reconnect();
    const work = workOf(Store.prototype, ['heldBy'], () => bench.adds('c0', 'new'));
    expect(work).to.equal(0);
    bench.full('c1');
    expect(bench.events).to.deep.equal(['alarm 10 of 11']);
    expect(workOf(Store.prototype, ['heldBy'], () => bench.adds('c0'))).to.equal(0);
    expect(bench.held).to.equal(9);
  });
});
