import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { nameKey } from '../../src/model/holds.ts';
import { placeOf } from '../../src/model/node-path.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { transaction } from '../../src/model/transaction.ts';
import type { RolloutSettings } from '../../src/releases/judge.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import type { Standing } from '../../src/releases/waiting.ts';
import { namedHolder, put, type } from '../support/in-memory-relay.ts';
import { unheard, withoutCanaries } from '../support/rollouts.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const cds = type('cds');
const names = Array.from({ length: 20 }, (_, at) => resourceName(`c${at}`));

/** Each name is of a tenant of its own, which has one client: a canary. */
class World {
  readonly clock = new VirtualClock();
  readonly store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
  readonly rollout: Rollout;
  says: (key: string) => Standing = () => ({ kind: 'accepted' });
  /** How often each was called. */
  readonly calls = { release: 0, discard: 0, removals: 0, released: 0, counted: 0, discarded: 0 };

  constructor({
    maxRemovalPercent = 100,
    onFailure = 'DISCARD',
    onTimeout = 'HOLD',
  }: { readonly maxRemovalPercent?: number } & Partial<
    Pick<RolloutSettings, 'onFailure' | 'onTimeout'>
  > = {}) {
    const { held } = this.store;
    const release = held.release.bind(held);
    const discard = held.discard.bind(held);
    const removals = held.removals.bind(held);
    held.release = (...given) => {
      this.calls.release++;
      release(...given);
    };
    held.discard = (...given) => {
      this.calls.discard++;
      discard(...given);
    };
    held.removals = (filter) => {
      this.calls.removals++;
      return removals(filter);
    };
    const settings = { ...withoutCanaries([cds]), onFailure, onTimeout };
    this.rollout = new Rollout(settings, {
      gate: held,
      fleet: {
        survey: () => ({
          complete: true,
          members: names.map((name) => ({
            nodeKey: name,
            place: placeOf(name),
            classKey: name,
            mayBeCanary: true,
            cohort: 'canary',
            subscribed: new Set([new Set([nameKey(cds, name)])]),
          })),
          canaries: names.map((name) => ({
            stream: name,
            node: name,
            classKey: name,
            standing: this.says(nameKey(cds, name)),
            names: [new Set([nameKey(cds, name)])],
          })),
        }),
        waitingChanged: () => {},
        isMoving: false,
        moved: () => {},
      },
      clock: this.clock,
      saved: undefined,
      removalLimits: () => [{ name: 'script', maxRemovalPercent, maxRemovalHoldMs: 60_000 }],
      events: {
        ...unheard,
        released: () => this.calls.released++,
        counted: (result) => {
          if (result === 'discarded') this.calls.counted++;
        },
        discarded: (of) => {
          this.calls.discarded += of.length;
        },
      },
    });
    for (const selector of names) this.store.addInterest({ type: cds, selector, parameters: NO_PARAMETERS });
    this.put('1');
  }

  removes(some = names, changes = some.length): void {
    const removals = some.map((name) => ({ name, constraints: UNCONSTRAINED }));
    this.store.apply(transaction({ holder: namedHolder, type: cds, removals }));
    this.#settle(100);
    expect(this.rollout.report().changes).to.have.length(changes);
  }

  #settle(milliseconds: number): void {
    this.store.held.notify();
    this.clock.advance(milliseconds);
  }

  put(content: string): void {
    const puts = names.map((name) => put(cds, name, content));
    this.store.apply(transaction({ holder: namedHolder, type: cds, puts }));
    this.#settle(0);
  }

  /** What has been called since. */
  after(milliseconds: number) {
    const none = { release: 0, discard: 0, removals: 0, released: 0, counted: 0, discarded: 0 };
    Object.assign(this.calls, none);
    this.clock.advance(milliseconds);
    return this.calls;
  }
}

describe('many changes that wait', () => {
  it('what has just come was accepted by nobody, though what was there before was', () => {
    const world = new World();
    const accepted = (): readonly number[] => world.rollout.report().changes.map((one) => one.acceptedWave);
    world.put('2');
    world.after(200);
    expect(accepted()).to.deep.equal(names.map(() => 1));
    world.put('3');
    expect(accepted(), 'before it is looked at').to.deep.equal(names.map(() => 0));
    world.after(200);
    expect(accepted()).to.deep.equal(names.map(() => 1));
  });

  it('a look at them counts the removals of a type once', () => {
    const world = new World();
    world.removes();
    expect(world.after(1000).removals).to.be.within(1, 3);
  });

  it('those that end together are released together, and each is told', () => {
    const world = new World();
    world.removes();
    expect(world.after(31_000)).to.include({ release: 1, released: names.length });
    expect(world.store.held.pending).to.have.length(0);
  });

  it('removals that are too many are held for max_removal_hold from when upstream removes, however long the change waits', () => {
    const world = new World({ maxRemovalPercent: 1, onFailure: 'HOLD' });
    world.put('2');
    const rejected = { kind: 'rejected', reason: 'no', isFinal: true } as const;
    world.says = (key) => ({ ...rejected, names: new Set([key]) });
    world.after(120_000);
    world.says = () => ({ kind: 'accepted' });
    world.removes();
    expect(world.rollout.heldRemovals('script')).to.have.length(1);
    expect(world.after(59_000).released, 'within the hold').to.equal(0);
    expect(world.after(32_000).released, 'after it, and a bake').to.equal(names.length);
  });

  it('a removal more does not prolong the hold of those before it', () => {
    const world = new World({ maxRemovalPercent: 10, onFailure: 'HOLD' });
    world.removes(names.slice(1));
    world.after(50_000);
    expect(world.rollout.heldRemovals('script')).to.have.length(1);
    world.removes(names);
    expect(world.after(45_000).released).to.equal(names.length);
  });

  it('what was frozen meanwhile is held for as long from the end of the freeze', () => {
    const world = new World({ maxRemovalPercent: 10, onFailure: 'HOLD' });
    expect(world.rollout.freeze({}, { operator: 'somebody', reason: 'a test' }).ok).to.equal(true);
    world.removes(names, 0);
    world.after(120_000);
    expect(world.rollout.unfreeze({}).ok).to.equal(true);
    expect(world.rollout.heldRemovals('script')).to.have.length(1);
    expect(world.after(59_000).released, 'within the hold').to.equal(0);
    expect(world.after(32_000).released).to.equal(names.length);
  });

  it('what an operator lets through is what is removed then, and not what is removed later', () => {
    const world = new World({ maxRemovalPercent: 10, onFailure: 'HOLD' });
    world.removes(names.slice(10));
    expect(world.rollout.releaseRemovals('script', cds)).to.equal(10);
    world.after(1000);
    expect(world.rollout.heldRemovals('script')).to.deep.equal([]);
    world.removes(names);
    expect(world.rollout.heldRemovals('script')).to.have.length(1);
    expect(world.after(40_000).released).to.equal(10);
  });

  it('what an operator let through, and what has come again since, is held when it is removed again, whatever else has waited all the time', () => {
    const world = new World({ maxRemovalPercent: 10, onFailure: 'HOLD' });
    const bad = nameKey(cds, resourceName('c0'));
    world.says = (key) =>
      key === bad
        ? { kind: 'rejected', reason: 'no', names: new Set([key]), isFinal: true }
        : { kind: 'accepted' };
    world.put('2');
    expect(world.after(40_000).released).to.equal(19);
    for (const content of ['3', '4']) {
      world.removes(names.slice(10), 11);
      expect(world.rollout.heldRemovals('script')).to.have.length(1);
      expect(world.rollout.releaseRemovals('script', cds)).to.equal(10);
      expect(world.after(40_000).released).to.equal(10);
      world.put(content);
      expect(world.after(40_000).released).to.equal(9);
      expect(world.rollout.report().state.kind).to.equal('HELD');
    }
  });

  it('on_failure: DISCARD: those that are bad for one reason go back together, and count once', () => {
    const world = new World();
    world.removes();
    world.says = (key) => ({ kind: 'rejected', reason: 'no', names: new Set([key]), isFinal: true });
    expect(world.after(1000)).to.include({ discard: 1, counted: 1, discarded: names.length });
    expect(world.store.held.pending.every(({ masked }) => masked === 'discarded')).to.equal(true);
  });

  for (const onFailure of ['DISCARD', 'HOLD'] as const) {
    it(`on_failure: ${onFailure}, on_timeout: PROCEED: who may still reject it keeps it from going on`, () => {
      const world = new World({ onFailure, onTimeout: 'PROCEED' });
      const rejected = (key: string, isFinal: boolean): Standing => ({
        kind: 'rejected',
        reason: 'no',
        names: new Set([key]),
        isFinal,
      });
      world.says = (key) => rejected(key, false);
      world.put('2');
      expect(world.after(hour)).to.include({ released: 0, discarded: 0 });
      const [cause, discarded] = onFailure === 'DISCARD' ? ['timeout', names.length] : ['rejected', 0];
      expect(world.rollout.report().state).to.deep.include({ kind: 'HELD', cause });
      world.says = (key) => rejected(key, true);
      expect(world.after(2000)).to.include({ released: 0, discarded });
    });
  }

  it('on_failure: DISCARD, on_timeout: PROCEED: what nobody rejects any more goes on', () => {
    const world = new World({ onTimeout: 'PROCEED' });
    world.says = (key) => ({ kind: 'rejected', reason: 'no', names: new Set([key]), isFinal: false });
    world.put('2');
    world.after(hour);
    world.says = () => ({ kind: 'waiting' });
    expect(world.after(2000).released).to.equal(names.length);
  });
});

const hour = 3_600_000;

describe('a wall clock that is set', () => {
  for (const hours of [-1, 1]) {
    it(`by ${hours} h: no bake ends sooner or later, and what is shown goes by the new time`, () => {
      const world = new World();
      const { clock, rollout } = world;
      world.put('2');
      world.after(1000);
      const began = rollout.report();
      clock.step(hours * hour);
      world.after(1000);
      const { state, bakedAt, pending } = rollout.report();
      expect([state.kind, pending.length]).to.deep.equal(['CANARY', names.length]);
      expect(state.since - began.state.since).to.equal(hours * hour);
      expect((bakedAt ?? 0) - (began.bakedAt ?? 0)).to.equal(hours * hour);
      expect((bakedAt ?? 0) - clock.now()).to.be.within(27_000, 28_500);
      expect(world.after(27_000).released).to.equal(0);
      expect(world.after(2000).released).to.equal(names.length);
    });

    it(`by ${hours} h: removals that are too many are held for as long`, () => {
      const world = new World({ maxRemovalPercent: 1, onFailure: 'HOLD' });
      const { clock, rollout } = world;
      world.removes(names.slice(0, 1));
      expect(rollout.report().state.kind).to.equal('HELD');
      clock.step(hours * hour);
      world.after(58_000);
      expect(rollout.report().state.kind).to.equal('HELD');
      expect(clock.now() - (rollout.heldRemovals('script')[0]?.since ?? 0)).to.be.within(58_000, 58_500);
      world.after(2000);
      expect(rollout.report().state.kind).to.equal('CANARY');
    });
  }
});
