import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName, type TypeUrl } from '../../src/model/brand.ts';
import { UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Put, type Transaction, transaction, WILDCARD } from '../../src/model/transaction.ts';
import { typeInfo } from '../../src/model/types.ts';
import { Rollout } from '../../src/releases/rollout.ts';
import { cpuSeconds } from '../support/cpu.ts';
import { cluster, namedHolder, put, type, when, wildcardHolder } from '../support/in-memory-relay.ts';
import { anyOf } from '../support/real-bodies.ts';
import { unheard, withoutCanaries } from '../support/rollouts.ts';
import { VirtualClock } from '../support/virtual-clock.ts';

const [cds, eds, rds] = [type('cds'), type('eds'), type('rds')];
const decision = { operator: 'somebody', reason: 'a test' };
const bakeMs = 30_000;
const prod = when({ env: 'prod' });
const inProd = internParameters([['env', 'prod']]);

/** The route `web`. */
function routeTo(target: string): Put {
  const routes = [{ match: { prefix: '/' }, route: { cluster: target } }];
  const fields = { name: 'web', virtualHosts: [{ name: 'all', domains: ['*'], routes }] };
  return put(rds, 'web', target, { any: anyOf(rds, fields) });
}

const removalOf = (name: string): Partial<Transaction> => ({
  removals: [{ name: resourceName(name), constraints: UNCONSTRAINED }],
});

/** Nobody is a canary: a change goes to everybody after its bake. `web` leads to `old`. */
class World {
  readonly clock = new VirtualClock();
  readonly store = new Store({ clock: this.clock, ambiguous: () => {}, expiring: () => {} });
  readonly rollout: Rollout;

  constructor() {
    this.rollout = new Rollout(withoutCanaries([cds, eds, rds]), {
      gate: this.store.held,
      fleet: {
        survey: () => ({ complete: true, members: [], canaries: [] }),
        waitingChanged: () => {},
        isMoving: false,
        moved: () => {},
      },
      clock: this.clock,
      saved: undefined,
      removalLimits: () => [],
      events: unheard,
    });
    for (const [url, name] of [
      [rds, 'web'],
      [cds, 'old'],
      [cds, 'new'],
      [cds, 'other'],
      [eds, 'a'],
    ] as const)
      this.store.addInterest({ type: url, selector: resourceName(name), parameters: NO_PARAMETERS });
    this.says(eds, { puts: [put(eds, 'a', '1')] });
    this.says(cds, { puts: [cluster('old', '1', 'a'), put(cds, 'new', '1'), put(cds, 'other', '1')] });
    this.says(rds, { puts: [routeTo('old')] });
  }

  says(url: TypeUrl, part: Partial<Transaction>): void {
    this.hears(url, part);
    this.clock.advance(100);
  }

  /** Clients are sent nothing before this has returned. */
  hears(url: TypeUrl, part: Partial<Transaction>): void {
    this.store.apply(transaction({ holder: namedHolder, type: url, ...part }));
    this.store.held.notify();
  }

  removes(url: TypeUrl, name: string): void {
    this.says(url, removalOf(name));
  }

  /** What everybody has after a bake, and what waits. */
  after(): string {
    this.clock.advance(2 * bakeMs);
    const pending = [...this.store.held.pending].map(
      (one) => `${typeInfo(one.type).short} ${one.name} ${one.masked ?? 'waits'}`,
    );
    return [this.#has('released'), ...pending.toSorted()].join(', ');
  }

  canaries(): string {
    return this.#has('canary');
  }

  #has(cohort: Cohort): string {
    const names = ([cds, eds] as const).flatMap((url) =>
      ['old', 'new', 'other', 'a'].filter(
        (name) => this.store.held.contentOf(url, resourceName(name), cohort).length > 0,
      ),
    );
    return names.join(' ');
  }
}

/** The new route is discarded, and upstream has heard that it was accepted. */
function discarded(): World {
  const world = new World();
  world.says(rds, { puts: [routeTo('new')] });
  world.rollout.discard({}, 'a test');
  return world;
}

describe('what upstream removes, and what is discarded or frozen refers to', () => {
  it('stays, with what it refers to itself, and nothing else does', () => {
    const world = discarded();
    world.removes(cds, 'old');
    world.removes(cds, 'other');
    world.removes(eds, 'a');
    expect(world.after()).to.equal('old new a, cds old queued, eds a queued, rds web discarded');
  });

  it('is not taken from everybody by a reload', () => {
    const world = discarded();
    world.removes(cds, 'old');
    world.after();
    const why =
      'while something discarded or frozen needs what would go (cds: 1 name): wait until the control plane sends something else, or run "distributary unfreeze", then send SIGHUP';
    expect(world.rollout.objectionTo(undefined)).to.equal(`rollout: it cannot be taken out ${why}`);
    expect(world.rollout.objectionTo(withoutCanaries([rds]))).to.equal(
      `rollout.types: cds cannot be taken out ${why}`,
    );
    expect(world.rollout.objectionTo(withoutCanaries([cds, rds]))).to.equal(undefined);
  });

  it('goes when upstream says something else that everybody gets', () => {
    const world = discarded();
    world.removes(cds, 'old');
    world.removes(eds, 'a');
    world.after();
    world.says(rds, { puts: [routeTo('other')] });
    expect(world.after()).to.equal('new other');
  });

  it('stays if its removal waited when the other was discarded', () => {
    const world = new World();
    world.says(rds, { puts: [routeTo('new')] });
    world.removes(cds, 'old');
    world.rollout.discard({ type: rds }, 'a test');
    expect(world.after()).to.equal('old new other a, cds old queued, rds web discarded');
  });

  it('stays if only wildcards would lose it', () => {
    const world = new World();
    world.store.addInterest({ type: cds, selector: WILDCARD, parameters: NO_PARAMETERS });
    world.says(cds, { holder: wildcardHolder, puts: [cluster('old', '1', 'a')] });
    world.after();
    world.says(rds, { puts: [routeTo('new')] });
    world.rollout.discard({}, 'a test');
    world.says(cds, { holder: wildcardHolder, ...removalOf('old') });
    expect(world.after()).to.equal('old new other a, cds old queued, rds web discarded');
  });

  it('is not lost by canaries for a moment either, be the removal a change of its own or of what was discarded', () => {
    const world = discarded();
    world.hears(cds, removalOf('old'));
    expect(world.canaries()).to.equal('old new other a');
    world.says(cds, { puts: [cluster('old', '2', 'a')] });
    world.rollout.discard({}, 'a test');
    world.hears(cds, removalOf('old'));
    expect(world.canaries()).to.equal('old new other a');
  });

  it('is not lost by canaries for a moment if upstream removes it right after the change that is frozen', () => {
    const world = new World();
    world.rollout.freeze({ type: rds }, decision);
    world.hears(rds, { puts: [routeTo('new')] });
    world.hears(cds, removalOf('old'));
    expect(world.canaries()).to.equal('old new other a');
    expect(world.after()).to.equal('old new other a, cds old queued, rds web frozen');
  });

  it('is not lost by canaries that have a newer one, nor do they get an older one', () => {
    const world = discarded();
    const versions = (): readonly string[] =>
      world.store.held.contentOf(cds, resourceName('old'), 'canary').map(({ variant }) => variant.version);
    world.says(cds, { puts: [cluster('old', '2', 'a')] });
    world.hears(cds, { puts: [cluster('old', '3', 'a')] });
    expect(versions(), 'an update is seen at once').to.deep.equal(['v-3']);
    world.says(cds, removalOf('old'));
    expect(versions()).to.deep.equal(['v-3']);
    expect(world.after()).to.equal('old new other a, cds old queued, rds web discarded');
    expect(versions()).to.deep.equal(['v-3']);
    world.says(rds, { puts: [routeTo('other')] });
    expect(world.after()).to.equal('new other a');
  });

  it('is not queued any more when upstream has it again', () => {
    const world = discarded();
    world.removes(cds, 'old');
    world.says(cds, { puts: [cluster('old', '1', 'a')] });
    expect(world.after()).to.equal('old new other a, rds web discarded');
    world.removes(cds, 'old');
    world.says(cds, { puts: [cluster('old', '2', 'a')] });
    expect(world.after()).to.equal('old new other a, rds web discarded');
  });

  it('stays while one type alone is frozen', () => {
    const world = new World();
    world.rollout.freeze({ type: rds }, decision);
    world.says(rds, { puts: [routeTo('new')] });
    world.removes(cds, 'old');
    expect(world.after()).to.equal('old new other a, cds old queued, rds web frozen');
    world.rollout.unfreeze({});
    expect(world.after()).to.equal('new other a');
  });

  describe('and canaries have the change that is frozen', () => {
    /** Canaries had lost `old`, which everybody's route leads to, and their route leads to `new`. */
    function frozen(): World {
      const world = new World();
      world.says(rds, { puts: [routeTo('new')] });
      world.removes(cds, 'old');
      world.rollout.freeze({ type: rds }, decision);
      world.says(rds, { puts: [routeTo('other')] });
      return world;
    }

    it('they keep what they have: what they have lost does not come back', () => {
      const world = frozen();
      expect(world.after()).to.equal('old new other a, cds old queued, rds web frozen');
      expect(world.canaries()).to.equal('new other a');
      world.says(cds, { puts: [cluster('old', '2', 'a')] });
      expect(world.canaries()).to.equal('old new other a');
    });

    it('it comes back with the route that leads to it', () => {
      const world = frozen();
      world.removes(cds, 'other');
      world.rollout.discard({}, 'a test');
      world.clock.advance(100);
      expect(world.canaries()).to.equal('old new other a');
      const waits = 'cds old queued, cds other discarded, rds web frozen';
      expect(world.after()).to.equal(`old new other a, ${waits}`);
    });

    describe('and one has left, whose route leads to it', () => {
      const interest = { type: rds, selector: resourceName('web'), parameters: inProd };
      const route = { puts: [{ ...routeTo('old'), constraints: prod }], resolved: [interest] };

      function left(): World {
        const world = new World();
        world.store.addInterest(interest);
        world.says(rds, route);
        world.says(rds, { puts: [routeTo('new')] });
        world.store.removeInterest(interest);
        world.removes(cds, 'old');
        world.rollout.freeze({ type: rds }, decision);
        world.says(rds, { puts: [routeTo('other')] });
        world.clock.advance(2 * bakeMs);
        expect(world.canaries()).to.equal('new other a');
        return world;
      }

      for (const [said, part] of [
        ['has the route', route],
        ['has removed the route', { resolved: [interest] }],
        ['says nothing', undefined],
      ] as const)
        it(`it comes back with that one, if upstream ${said}`, () => {
          const world = left();
          world.store.addInterest(interest);
          if (part !== undefined) world.says(rds, part);
          world.clock.advance(1000);
          expect(world.canaries()).to.equal('old new other a');
        });

      for (const [what, asks] of [
        ['a client answers', (rollout: Rollout) => rollout.answered()],
        ['an operator asks', (rollout: Rollout) => rollout.objectionTo(undefined)],
      ] as const)
        it(`nothing is looked at any more while the relay drains, although ${what}`, () => {
          const world = left();
          world.rollout.stop();
          asks(world.rollout);
          world.store.addInterest(interest);
          world.says(rds, route);
          world.clock.advance(1000);
          expect(world.canaries()).to.equal('new other a');
        });
    });

    it('what their route leads to is not removed either', () => {
      const world = frozen();
      world.removes(cds, 'new');
      expect(world.canaries()).to.equal('new other a');
      world.rollout.unfreeze({});
      expect(world.after()).to.equal('other a');
    });
  });

  it('of a chain of thousands of clusters, each is looked at once', () => {
    const world = new World();
    const names = Array.from({ length: 3000 }, (_, index) => `c${index}`);
    const aggregate = (name: string, next: string): Put => {
      const typedConfig = {
        '@type': 'type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig',
        clusters: [next],
      };
      const clusterType = { name: 'envoy.clusters.aggregate', typedConfig };
      return put(cds, name, '', { any: anyOf(cds, { name, clusterType }) });
    };
    for (const name of names)
      world.store.addInterest({ type: cds, selector: resourceName(name), parameters: NO_PARAMETERS });
    world.says(cds, { puts: names.map((name, index) => aggregate(name, `c${index + 1}`)) });
    world.says(rds, { puts: [routeTo('c0')] });
    world.after();
    world.says(rds, { puts: [routeTo('new')] });
    world.rollout.discard({}, 'a test');
    const removals = names.map((name) => ({ name: resourceName(name), constraints: UNCONSTRAINED }));
    const before = cpuSeconds();
    world.hears(cds, { removals });
    expect(cpuSeconds() - before).to.be.below(1.5);
    expect(world.store.held.pending.filter(({ queued }) => queued)).to.have.length(3000);
  });

  it('is read when it changes, and not all that is frozen with each update', () => {
    const world = new World();
    const names = Array.from({ length: 500 }, (_, index) => `c${index}`);
    const all = (content: string): Partial<Transaction> => ({
      puts: names.map((name) => put(cds, name, content)),
    });
    for (const name of names)
      world.store.addInterest({ type: cds, selector: resourceName(name), parameters: NO_PARAMETERS });
    world.says(cds, all('1'));
    world.after();
    world.rollout.freeze({}, decision);
    world.says(cds, all('2'));
    world.says(cds, { puts: [put(cds, 'c0', '3')] });
    const { held } = world.store;
    const contentOf = held.contentOf.bind(held);
    let reads = 0;
    held.contentOf = (...one) => {
      reads++;
      return contentOf(...one);
    };
    world.hears(cds, { puts: [put(cds, 'c1', '3')] });
    expect(reads).to.be.within(1, 10);
  });
});
