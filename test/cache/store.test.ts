import { expect } from 'chai';
import { CachedResource } from '../../src/cache/cached-resource.ts';
import { Store } from '../../src/cache/store.ts';
import { resourceName } from '../../src/model/brand.ts';
import { type Commit, isVariant, type Value } from '../../src/model/catalog.ts';
import { type Constraints, UNCONSTRAINED } from '../../src/model/constraints.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import {
  type Holder,
  type Interest,
  type Put,
  type Transaction,
  transaction,
  WILDCARD,
} from '../../src/model/transaction.ts';
import { VariantIndex } from '../../src/model/variant-index.ts';
import { namedHolder, put, type, wildcardHolder } from '../support/in-memory-relay.ts';
import { compiled, is, not } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

const cds = type('cds');
const kind = 'envoy.config.cluster.v3.Cluster';
const prod = compiled(is('env', 'prod'));
const notProd = compiled(not(is('env', 'prod')));
const inProd = internParameters([['env', 'prod']]);
const inTest = internParameters([['env', 'test']]);
const otherHolder: Holder = { key: 'another stream', upstream: 'other', role: 'named' };

class Setting {
  readonly clock = new VirtualClock();
  readonly ambiguous: string[] = [];
  readonly expiring: string[] = [];
  readonly store = new Store({
    clock: this.clock,
    ambiguous: (_, name, parameters, choices) =>
      this.ambiguous.push(`${name} ${parameters.key} ${choices.map((one) => one.constraints.key).join(' ')}`),
    expiring: (_, { name }) => this.expiring.push(name),
  });

  want(selector: string, parameters: Parameters = NO_PARAMETERS): Interest {
    const interest = { type: cds, selector: resourceName(selector), parameters };
    this.store.addInterest(interest);
    return interest;
  }

  apply(part: Partial<Transaction>): Commit {
    return this.store.apply(transaction({ holder: namedHolder, type: cds, ...part }));
  }

  /** The content that is seen, or absent, or unknown. */
  see(name: string, parameters: Parameters = NO_PARAMETERS): string {
    return shown(this.store.resolve(cds, resourceName(name), parameters));
  }

  /** Their constraints. */
  errorsOf(name: string, parameters: Parameters = NO_PARAMETERS): string[] {
    return this.store
      .resourceErrors(cds, resourceName(name), parameters)
      .map(({ constraints }) => constraints.key);
  }

  members(selector: string, parameters: Parameters = NO_PARAMETERS): string[] {
    return [...this.store.members(cds, resourceName(selector), parameters)].toSorted();
  }
}

const countOf = (store: Store): number =>
  [...store.tables].reduce((sum, [, table]) => sum + table.ambiguousCount, 0);

const shown = (value: Value): string => (isVariant(value) ? `${value.name} ${value.version}` : value);
const cluster = (
  name: string,
  content: string,
  constraints: Constraints = UNCONSTRAINED,
  more: Partial<Put> = {},
) => put(cds, name, content, { constraints, version: content, ...more });
const gone = (name: string, constraints: Constraints = UNCONSTRAINED) => ({
  name: resourceName(name),
  constraints,
});
const size = (name: string, content: string): number => cluster(name, content).any?.length ?? 0;
const changedNames = (commit: Commit): string[] => [...commit.changed.keys()].toSorted();

describe('store', () => {
  describe('a transaction', () => {
    it('counts from the arrival of its response, which was judged before; else from now', () => {
      const setting = use();
      const arrivedAt = setting.clock.monotonic();
      setting.clock.advance(400);
      expect(setting.apply({ puts: [cluster('a', '1')], arrivedAt }).receivedAt).to.equal(arrivedAt);
      expect(setting.apply({ puts: [cluster('a', '2')] }).receivedAt).to.equal(arrivedAt + 400);
    });
    it('new stamps count from before the work for them', () => {
      const setting = use();
      const { clock, store } = setting;
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '1')] });
      const started = clock.monotonic();
      const move = {
        holder: namedHolder,
        name: resourceName('a'),
        from: UNCONSTRAINED,
        get to() {
          clock.advance(100);
          return prod;
        },
      };
      expect(store.restamp({ type: cds, moves: [move], unresolved: [] }).receivedAt).to.equal(started);
    });
    it('is one revision, and says which names and constraints it changed', () => {
      const setting = use();
      const { store } = setting;
      const before = store.revision;
      const commit = setting.apply({ puts: [cluster('a', '1'), cluster('b', '1', prod)], version: 'v7' });
      expect(commit.revision).to.equal(before + 1);
      expect(store.revision).to.equal(commit.revision);
      expect(commit.version).to.equal('v7');
      expect([...commit.changed]).to.deep.equal([
        ['a', [UNCONSTRAINED]],
        ['b', [prod]],
      ]);
    });
    it('removes before it adds: a swap looks ambiguous at no time', () => {
      const setting = use();
      const { ambiguous } = setting;
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '1')] });
      const commit = setting.apply({ puts: [cluster('a', '2', prod)], removals: [gone('a')] });
      expect(setting.see('a', inProd)).to.equal('a 2');
      expect(commit.changed.get(resourceName('a'))).to.have.members([UNCONSTRAINED, prod]);
      expect(ambiguous).to.deep.equal([]);
    });
    it('leaves what it both removes and puts', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2')], removals: [gone('a')] });
      expect(setting.see('a')).to.equal('a 2');
    });
    it('with content that is there already changes nothing, whatever the version', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1')] });
      const commit = setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, { version: 'other' })] });
      expect(commit.changed.size).to.equal(0);
      expect(setting.see('a')).to.equal('a 1');
    });
    const differences: readonly [string, Partial<Put>][] = [
      ['aliases', { aliases: ['x'] }],
      ['metadata', { metadata: Buffer.from('m') }],
      ['do_not_cache', { doNotCache: true }],
      ['no body', { any: undefined }],
    ];
    for (const [what, more] of differences) {
      it(`with other ${what} changes the resource`, () => {
        const setting = use();
        setting.apply({ puts: [cluster('a', '1')] });
        expect(changedNames(setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, more)] }))).to.include(
          'a',
        );
      });
    }
  });

  it('what was chosen upstream for exactly these parameters wins over whatever else matches', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    const of = (exactParameters: Parameters): Holder => ({
      key: exactParameters.key,
      upstream: 'primary',
      role: 'named',
      exactParameters,
    });
    setting.apply({ holder: of(inTest), puts: [cluster('a', 'for all')] });
    expect(setting.see('a', inProd)).to.equal('a for all');
    setting.apply({ holder: of(inProd), puts: [cluster('a', 'for prod', prod)] });
    expect([setting.see('a', inProd), setting.see('a', inTest)]).to.deep.equal(['a for prod', 'a for all']);
    // The other way round, too: what comes later for others changes nothing.
    setting.apply({ holder: of(inTest), puts: [cluster('a', 'newer')] });
    expect(setting.see('a', inProd)).to.equal('a for prod');
    setting.apply({ holder: of(inProd), removals: [gone('a', prod)], puts: [cluster('a', 'newer')] });
    expect(setting.see('a', inProd)).to.equal('a newer');
  });

  describe('settled, absent, unknown (protocol §3.9)', () => {
    it('what nobody answered is unknown, what was answered and is not there is absent', () => {
      const setting = use();
      const interest = setting.want('a');
      expect(setting.see('a')).to.equal('unknown');
      expect(setting.store.isResolved(interest)).to.equal(false);
      const commit = setting.apply({ resolved: [interest] });
      expect(commit.resolved).to.deep.equal([interest]);
      expect(setting.see('a')).to.equal('absent');
      expect(setting.store.isResolved(interest)).to.equal(true);
      expect(setting.apply({ resolved: [interest] }).resolved, 'told once').to.deep.equal([]);
    });
    it('by parameter set: another one is still unknown', () => {
      const setting = use();
      const interest = setting.want('a', inProd);
      setting.want('a', inTest);
      setting.apply({ resolved: [interest] });
      expect(setting.see('a', inProd)).to.equal('absent');
      expect(setting.see('a', inTest)).to.equal('unknown');
    });
    it('what is there is seen before anything is settled', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.see('a')).to.equal('a 1');
    });
    it('removed_resources of what is not cached answers those that it is about', () => {
      const setting = use();
      const interest = setting.want('a', inProd);
      setting.want('a', inTest);
      const commit = setting.apply({ removals: [gone('a', prod)] });
      expect(commit.resolved).to.deep.equal([interest]);
      expect(setting.see('a', inTest)).to.equal('unknown');
    });
    it('that nobody subscribes to what is not cached answers nobody', () => {
      const setting = use();
      setting.want('a', inProd);
      setting.apply({ removals: [gone('a', prod)], unwanted: true });
      expect(setting.see('a', inProd)).to.equal('unknown');
    });
    it('resource_errors NOT_FOUND answers, other errors do not', () => {
      for (const [code, expected] of [
        [5, 'absent'],
        [14, 'unknown'],
      ] as const) {
        const setting = use();
        setting.want('a');
        setting.apply({ resourceErrors: [fault('a', code)] });
        expect(setting.see('a'), String(code)).to.equal(expected);
      }
    });
    it('a resource that is removed is absent to those who asked for it by name', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      expect(changedNames(setting.apply({ removals: [gone('a')] }))).to.deep.equal(['a']);
      expect(setting.see('a')).to.equal('absent');
    });
    it('a session for exactly these parameters says what is absent for them, and for nobody else', () => {
      const inProdToo = internParameters([...inProd.entries, ['group', 'a']]);
      for (const [how, end] of [
        ['removed', { removals: [gone('a', prod)] }],
        ['removed by its name', { removals: [gone('a')] }],
        ['a full state without it', { complete: true }],
        [
          'NOT_FOUND',
          { removals: [gone('a', prod)], resourceErrors: [{ ...fault('a', 5), constraints: prod }] },
        ],
      ] as const) {
        const setting = use();
        const holder: Holder = { ...namedHolder, exactParameters: inProd };
        setting.want('a', inProd);
        setting.want('a', inProdToo);
        const isThere = how !== 'removed by its name';
        if (isThere) setting.apply({ holder, puts: [cluster('a', '1', prod)] });
        expect(setting.see('a', inProdToo), how).to.equal(isThere ? 'a 1' : 'unknown');
        setting.apply({ holder, ...end });
        expect(setting.see('a', inProd), how).to.equal('absent');
        expect(setting.see('a', inProdToo), how).to.equal('unknown');
      }
    });
    it('of a name that nobody wants nothing is known', () => {
      expect(use().see('never')).to.equal('unknown');
    });
    it('an interest ends, and what was known of it is unknown again', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ resolved: [interest] });
      setting.store.removeInterest(interest);
      setting.want('a');
      expect(setting.see('a')).to.equal('unknown');
    });
    it('§3.10 what no response says leaves the version', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ puts: [cluster('a', '1')], resolved: [interest], version: '7' });
      const commit = setting.apply({ removals: [gone('a')], version: undefined });
      expect(commit.version).to.equal(undefined);
      expect(setting.store.version(interest)).to.equal('7');
    });
    it('the version is that of the last response of whoever answered', () => {
      const setting = use();
      const interest = setting.want('a');
      expect(setting.store.version(interest)).to.equal('');
      setting.apply({ resolved: [interest], version: 'v1' });
      setting.apply({ holder: otherHolder, version: 'other' });
      setting.apply({ version: 'v2' });
      expect(setting.store.version(interest)).to.equal('v2');
    });
    it('versions of sessions that have ended are forgotten, here and on disk; those that are needed stay', () => {
      const rows = new Set<string>();
      const journal = {
        resource: () => undefined,
        interest: () => undefined,
        version: (_: unknown, holder: string) => {
          if (store.tables.get(cds)?.version(holder) === undefined) rows.delete(holder);
          else rows.add(holder);
        },
      };
      const store: Store = new Store({
        clock: new VirtualClock(),
        ambiguous: () => undefined,
        expiring: () => undefined,
        journal,
      });
      const answer = (key: string, parameters: Parameters): Interest => {
        const interest = { type: cds, selector: WILDCARD, parameters };
        store.addInterest(interest);
        const holder: Holder = { key, upstream: 'u', role: 'wildcard' };
        store.apply(
          transaction({ holder, type: cds, version: `of ${key}`, complete: true, resolved: [interest] }),
        );
        return interest;
      };
      const kept = Array.from({ length: 10 }, (_, index) =>
        answer(`kept ${index}`, internParameters([['kept', `${index}`]])),
      );
      for (let index = 0; index < 5000; index++)
        store.removeInterest(answer(`gone ${index}`, internParameters([['k', `${index}`]])));
      expect(store.tables.get(cds)?.versions.size).to.be.at.most(1000);
      expect(rows.size).to.equal(store.tables.get(cds)?.versions.size);
      expect(kept.map((one) => store.version(one))).to.deep.equal(kept.map((_, index) => `of kept ${index}`));
    });
  });

  describe('full state', () => {
    it('sweeps what its holder had and did not confirm', () => {
      const setting = use();
      setting.want('*');
      const holder = wildcardHolder;
      setting.apply({
        holder,
        puts: [cluster('a', '1'), cluster('b', '1'), cluster('c', '1', prod)],
        complete: true,
      });
      const commit = setting.apply({ holder, puts: [cluster('a', '1'), cluster('d', '1')], complete: true });
      expect(changedNames(commit)).to.deep.equal(['b', 'c', 'd']);
      expect(setting.members('*')).to.deep.equal(['a', 'd']);
    });
    it('leaves what another holder has', () => {
      const setting = use();
      setting.want('b');
      setting.apply({ puts: [cluster('b', '1')] });
      setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1'), cluster('b', '1')], complete: true });
      setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1')], complete: true });
      expect(setting.see('b')).to.equal('b 1');
      expect(setting.members('*'), 'but no longer a member of the wildcard').to.deep.equal(['a']);
    });
    it('without anything empties the holder', () => {
      const setting = use();
      setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1')], complete: true });
      setting.apply({ holder: wildcardHolder, complete: true });
      expect(setting.store.bodyBytes).to.equal(0);
      expect(setting.members('*')).to.deep.equal([]);
    });
  });

  describe('holders', () => {
    it('a resource stays until the last one loses it', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ holder: otherHolder, puts: [cluster('a', '1')] });
      setting.apply({ removals: [gone('a')] });
      expect(setting.see('a')).to.equal('a 1');
      setting.apply({ holder: otherHolder, removals: [gone('a')] });
      expect(setting.see('a')).to.equal('absent');
    });
    it('one that never had it cannot remove it', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.apply({ holder: otherHolder, removals: [gone('a')] }).changed.size).to.equal(0);
      expect(setting.see('a')).to.equal('a 1');
    });
    it('a named resource is no member of the wildcard, until the wildcard brings it too', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.members('*')).to.deep.equal([]);
      const commit = setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1')] });
      expect(changedNames(commit)).to.deep.equal(['a']);
      expect(setting.members('*')).to.deep.equal(['a']);
    });
  });

  describe('members', () => {
    it('of a wildcard: the names of which a variant matches', () => {
      const setting = use();
      setting.apply({
        holder: wildcardHolder,
        puts: [cluster('a', '1', prod), cluster('b', '1', notProd), cluster('c', '1')],
      });
      expect(setting.members('*', inProd)).to.deep.equal(['a', 'c']);
      expect(setting.members('*', inTest)).to.deep.equal(['b', 'c']);
      expect(setting.members('*')).to.deep.equal(['b', 'c']);
    });
    it('of a glob: one level, whoever holds them', () => {
      const setting = use();
      const name = (id: string): string => `xdstp://x/${kind}/${id}`;
      setting.apply({
        puts: [cluster(name('d/a'), '1'), cluster(name('d/e/b'), '1'), cluster(name('c'), '1')],
      });
      expect(setting.members(name('d/*'))).to.deep.equal([name('d/a')]);
    });
  });

  describe('ambiguity (protocol §5)', () => {
    const [first, second] = [prod, compiled(is('zone', 'z'))].toSorted((a, b) => (a.key < b.key ? -1 : 1));
    const both = internParameters([
      ['env', 'prod'],
      ['zone', 'z'],
    ]);

    it('the lowest canonical key, told once', () => {
      const setting = use();
      const { ambiguous } = setting;
      setting.apply({ puts: [cluster('a', '2', second), cluster('a', '1', first)] });
      expect(setting.see('a', both)).to.equal('a 1');
      expect(setting.see('a', both)).to.equal('a 1');
      expect(ambiguous).to.have.length(1);
    });
    it('who wants it and has a match keeps it, told once for each parameter set', () => {
      const setting = use();
      const { ambiguous } = setting;
      setting.want('a', both);
      setting.want('*', both);
      setting.apply({ puts: [cluster('a', '2', second)] });
      setting.apply({ puts: [cluster('a', '1', first)] });
      expect(setting.see('a', both)).to.equal('a 2');
      expect(ambiguous).to.have.length(1);
    });
    it('what a wildcard shows stays when a variant comes to it that was there for names alone', () => {
      for (const more of [[], [cluster('a', '3', UNCONSTRAINED)]]) {
        const setting = use();
        setting.want('*', both);
        setting.apply({ puts: [cluster('a', '1', first)] });
        setting.apply({ holder: wildcardHolder, puts: [cluster('a', '2', second)] });
        const seen = () => shown(setting.store.resolve(cds, resourceName('a'), both, undefined, true));
        expect(seen()).to.equal('a 2');
        const puts = [cluster('a', '1', first), cluster('a', '2', second), ...more];
        setting.apply({ holder: wildcardHolder, puts });
        expect(seen()).to.equal('a 2');
      }
    });
    it('it is by parameter set: another has its own', () => {
      const setting = use();
      setting.want('a', both);
      setting.apply({ puts: [cluster('a', '2', second)] });
      setting.apply({ puts: [cluster('a', '1', first)] });
      const other = internParameters([...both.entries, ['more', '1']]);
      expect(setting.see('a', other)).to.equal('a 1');
    });
    it('is counted as long as it lasts', () => {
      const setting = use();
      setting.want('a', both);
      setting.apply({ puts: [cluster('a', '2', second), cluster('a', '1', first)] });
      setting.see('a', both);
      expect(countOf(setting.store)).to.equal(1);
      setting.apply({ removals: [gone('a', first)] });
      expect(countOf(setting.store)).to.equal(0);
      expect(setting.see('a', both)).to.equal('a 2');
    });
    it('is not counted where one variant is left that matches, whatever others there are', () => {
      const setting = use();
      setting.want('a', both);
      const other = cluster('a', '3', compiled(is('elsewhere', '1')));
      setting.apply({ puts: [cluster('a', '2', second), cluster('a', '1', first), other] });
      setting.see('a', both);
      expect(countOf(setting.store)).to.equal(1);
      setting.apply({ removals: [gone('a', first)] });
      expect(countOf(setting.store)).to.equal(0);
    });
    it('is not counted where upstream cannot delete, and each parameter set matches one', () => {
      const setting = use();
      setting.want('a', both);
      setting.want('a', internParameters([['elsewhere', '1']]));
      setting.apply({ puts: [cluster('a', '2', second)], cannotDelete: true });
      setting.apply({ puts: [cluster('a', '3', compiled(is('elsewhere', '1')))], cannotDelete: true });
      setting.apply({ puts: [cluster('a', '4', second)], cannotDelete: true });
      expect(countOf(setting.store)).to.equal(0);
    });
    it('what a session of one parameter set sends last costs the same, however many sessions there are', () => {
      const lookedAt = (sessions: number): number => {
        const setting = use();
        const say = (at: number, content: string): void => {
          const env = [['env', `${at}`]] as const;
          const holder: Holder = { key: `${at}`, upstream: 'it', role: 'named' };
          setting.want('a', internParameters(env));
          const puts = [cluster('a', content, compiled(is('env', `${at}`)))];
          setting.apply({ holder, puts, cannotDelete: true });
        };
        for (let at = 0; at < sessions; at++) say(at, '1');
        const picks = workOf(CachedResource.prototype, ['pick'], () => say(0, '2'));
        expect(setting.see('a', internParameters([['env', '0']]))).to.equal('a 2');
        return picks;
      };
      expect(lookedAt(100)).to.equal(lookedAt(10));
    });
    const overlapping = (key: string, count: number): readonly Put[] =>
      Array.from({ length: count }, (_, at) => cluster('a', '1', compiled(not(is(key, `${at}`)))));
    const subscribed = (): Setting => {
      const setting = use();
      for (let at = 0; at < 5; at++) setting.want('a', internParameters([['own', `${at}`]]));
      return setting;
    };
    it('of variants that all match costs what they are, and not their square, when others replace them', () => {
      const work = (count: number): number => {
        const setting = subscribed();
        setting.apply({ puts: overlapping('k', count), cannotDelete: true });
        const puts = overlapping('j', count);
        const matched = workOf(VariantIndex.prototype, ['match'], () =>
          setting.apply({ puts, cannotDelete: true }),
        );
        expect(setting.store.tables.get(cds)?.resources.get(resourceName('a'))?.variants.size).to.equal(1);
        return matched;
      };
      expect(work(200)).to.be.below(3 * work(100));
    });
    it('of variants that all match costs no more when they are removed one by one', () => {
      const work = (count: number): number => {
        const setting = subscribed();
        const puts = overlapping('k', count);
        setting.apply({ puts });
        for (let at = 0; at < 5; at++) setting.see('a', internParameters([['own', `${at}`]]));
        expect(countOf(setting.store)).to.equal(5);
        const removals = puts.map(({ name, constraints }) => ({ name, constraints })).slice(1);
        const matched = workOf(VariantIndex.prototype, ['match'], () => {
          setting.apply({ removals });
          expect(countOf(setting.store)).to.equal(0);
        });
        return matched;
      };
      expect(work(200)).to.be.within(1, 3 * work(100));
    });
    it('a choice by alias is kept too', () => {
      const setting = use();
      const aliases = ['alias'];
      setting.want('alias', both);
      setting.apply({ puts: [cluster('a', '2', second, { aliases })] });
      setting.apply({ puts: [cluster('a', '1', first, { aliases })] });
      expect(setting.see('alias', both)).to.equal('a 2');
    });
  });

  it('what a commit says first costs names and wildcards, and not each for each', () => {
    const lookedAt = (names: number): number => {
      const store = new Store({
        clock: new VirtualClock(),
        ambiguous: () => {},
        expiring: () => {},
        recorded: true,
      });
      for (let at = 0; at < 100; at++) {
        const parameters = internParameters([['own', `${at}`]]);
        store.addInterest({ type: cds, selector: WILDCARD, parameters });
      }
      const puts = Array.from({ length: names }, (_, at) => cluster(`c${at}`, '1'));
      const readers: unknown = Object.getPrototypeOf(Object.getPrototypeOf((function* () {})()));
      if (typeof readers !== 'object' || readers === null) throw new Error('generators have no prototype');
      return workOf(readers, ['next'], () => {
        const { contents } = store.apply(transaction({ holder: wildcardHolder, type: cds, puts }));
        const first = contents?.values().toArray() ?? [];
        expect(first.map(({ saidFirst }) => saidFirst.size)).to.deep.equal(puts.map(() => 1));
      });
    };
    expect(lookedAt(20) - lookedAt(10)).to.be.below(100);
  });
  describe('aliases (protocol §4.8)', () => {
    const aliased = (name: string, content: string, ...aliases: string[]) =>
      cluster(name, content, UNCONSTRAINED, { aliases });

    it('lead to the resource, and are changed with it', () => {
      const setting = use();
      const resolved = [setting.want('x')];
      const commit = setting.apply({ puts: [aliased('a', '1', 'x', 'y')], resolved });
      expect(changedNames(commit)).to.deep.equal(['a', 'x', 'y']);
      expect(setting.see('x')).to.equal('a 1');
      expect(changedNames(setting.apply({ removals: [gone('a')] }))).to.deep.equal(['a', 'x', 'y']);
      expect(setting.see('x')).to.equal('absent');
    });
    it('a resource of that very name goes first', () => {
      const setting = use();
      setting.apply({ puts: [aliased('a', '1', 'x'), cluster('x', '2')] });
      expect(setting.see('x')).to.equal('x 2');
    });
    it('one that is taken away leads nowhere, and is told so', () => {
      const setting = use();
      const resolved = [setting.want('x')];
      setting.apply({ puts: [aliased('a', '1', 'x')], resolved });
      const commit = setting.apply({ puts: [aliased('a', '1', 'y')] });
      expect(changedNames(commit)).to.deep.equal(['a', 'x', 'y']);
      expect(setting.see('x')).to.equal('absent');
    });
    for (const holder of [wildcardHolder, namedHolder]) {
      it(`§3.9 one that nobody has answered for is unknown once it leads nowhere (${holder.role})`, () => {
        for (const part of [{ puts: [aliased('a', '1')] }, { removals: [gone('a')] }]) {
          const setting = use();
          setting.apply({ puts: [aliased('a', '1', 'x')], holder });
          setting.want('a');
          const asked = setting.want('x');
          expect(setting.see('x')).to.equal('a 1');
          setting.apply({ ...part, holder });
          expect(setting.see('x')).to.equal('unknown');
          setting.apply({ resolved: [asked] });
          expect(setting.see('x')).to.equal('absent');
        }
      });
    }
    it('one that two variants of a name share stays with the one that is left', () => {
      const setting = use();
      setting.apply({
        puts: [cluster('a', '1', prod, { aliases: ['x'] }), cluster('a', '2', notProd, { aliases: ['x'] })],
      });
      setting.apply({ removals: [gone('a', notProd)] });
      expect(setting.see('x', inProd)).to.equal('a 1');
      expect(setting.see('x', inTest)).to.not.equal('a 1');
    });
    it('of a name that is wanted keep the resource, and go with the interest', () => {
      const setting = use();
      const [byAlias, byName] = [setting.want('x'), setting.want('a')];
      setting.apply({ puts: [aliased('a', '1', 'x')] });
      setting.store.removeInterest(byName);
      expect(setting.see('x')).to.equal('a 1');
      setting.store.removeInterest(byAlias);
      expect(setting.store.bodyBytes).to.equal(0);
    });
  });

  describe('faults (protocol §8)', () => {
    it('are kept beside the resource, and cleared when it arrives', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      const commit = setting.apply({ resourceErrors: [fault('a', 14)] });
      expect(changedNames(commit)).to.deep.equal(['a']);
      expect(setting.see('a')).to.equal('a 1');
      const [kept] = setting.store.resourceErrors(cds, resourceName('a'), NO_PARAMETERS);
      expect(kept?.revision).to.deep.equal({ released: commit.revision, canary: commit.revision });
      expect(changedNames(setting.apply({ puts: [cluster('a', '1')] }))).to.deep.equal(['a']);
      expect(setting.store.resourceErrors(cds, resourceName('a'), NO_PARAMETERS)).to.deep.equal([]);
    });
    it('are for those that their constraints match', () => {
      const setting = use();
      setting.want('a', inProd);
      setting.apply({ resourceErrors: [{ ...fault('a', 14), constraints: prod }] });
      expect(setting.store.resourceErrors(cds, resourceName('a'), inProd)).to.have.length(1);
      expect(setting.store.resourceErrors(cds, resourceName('a'), inTest)).to.have.length(0);
    });
    it('are no news when they are said again, but when they say something else', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ resourceErrors: [fault('a', 14)] });
      expect(changedNames(setting.apply({ resourceErrors: [fault('a', 14)] }))).to.deep.equal([]);
      expect(changedNames(setting.apply({ resourceErrors: [fault('a', 13)] }))).to.deep.equal(['a']);
    });
    const answers: readonly [string, (setting: Setting, interest: Interest) => void][] = [
      ['a removal', (setting) => setting.apply({ removals: [gone('a')] })],
      ['silence', (setting, interest) => setting.apply({ resolved: [interest] })],
      [
        'a resource by that alias',
        (setting, interest) =>
          setting.apply({
            puts: [cluster('b', '1', UNCONSTRAINED, { aliases: ['a'] })],
            resolved: [interest],
          }),
      ],
    ];
    for (const [what, answer] of answers) {
      it(`are over when there is an answer: ${what}`, () => {
        const setting = use();
        const interest = setting.want('a');
        setting.apply({ resourceErrors: [fault('a', 14)] });
        answer(setting, interest);
        expect(setting.errorsOf('a')).to.deep.equal([]);
      });
    }
    it('are over when the resource is removed after its time to live has passed here', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ puts: [cluster('a', '1')], removals: [], resolved: [interest] });
      setting.apply({ removals: [gone('a')] });
      setting.apply({ resourceErrors: [fault('a', 14)] });
      setting.apply({ removals: [gone('a')] });
      expect(setting.errorsOf('a')).to.deep.equal([]);
    });
    it('stay with the answer that says them again', () => {
      for (const selector of ['a', '*']) {
        const setting = use();
        const interest = setting.want(selector);
        const resourceErrors = [fault(selector, 14), { ...fault(selector, 14), constraints: notProd }];
        setting.apply({ resourceErrors });
        setting.apply({ resourceErrors: [fault(selector, 14)], resolved: [interest] });
        expect(setting.errorsOf(selector), selector).to.deep.equal(['']);
      }
    });
    it('stay when another interest joins one that has its answer', () => {
      for (const selector of ['a', '*']) {
        const setting = use();
        setting.apply({ resolved: [setting.want(selector, inProd)] });
        setting.apply({ resourceErrors: [fault(selector, 14)] });
        setting.apply({ resolved: [setting.want(selector, inTest)] });
        expect(setting.errorsOf(selector, inTest), selector).to.deep.equal(['']);
      }
    });
    it('are over when what has its answer has another one', () => {
      for (const selector of ['a', '*']) {
        const setting = use();
        const interest = setting.want(selector);
        setting.apply({ resourceErrors: [fault(selector, 14)], resolved: [interest] });
        expect(setting.errorsOf(selector), selector).to.deep.equal(['']);
        setting.apply({ resolved: [interest] });
        expect(setting.errorsOf(selector), selector).to.deep.equal([]);
      }
    });
    it('are over for all of them when another upstream answers', () => {
      const setting = use();
      const [first, other] = [setting.want('a', inProd), setting.want('a', inTest)];
      for (const resolved of [[first], [other]]) setting.apply({ resourceErrors: [fault('a', 5)], resolved });
      setting.apply({ holder: otherHolder, resolved: [other] });
      expect(setting.errorsOf('a', inTest)).to.deep.equal([]);
    });
    it('beside what is there stay, whatever else is answered', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ puts: [cluster('a', '1')], holder: wildcardHolder });
      setting.apply({ resourceErrors: [fault('a', 14)], holder: wildcardHolder });
      setting.apply({ resolved: [interest] });
      expect(setting.errorsOf('a')).to.deep.equal(['']);
    });
    it('that nobody could be told are not kept', () => {
      const setting = use();
      setting.want('b');
      setting.apply({ resourceErrors: [fault('a', 14)] });
      expect(setting.store.resourceErrors(cds, resourceName('a'), NO_PARAMETERS)).to.deep.equal([]);
    });
    it('said to a wildcard are for all who have it, as long as anybody has', () => {
      const setting = use();
      const wildcard = setting.want('*');
      const other = setting.want('*', inProd);
      const named = setting.want('a');
      setting.want('z');
      setting.apply({ resourceErrors: [fault('a', 14)], holder: wildcardHolder });
      setting.apply({ resourceErrors: [fault('z', 14)] });
      expect(setting.members('*')).to.deep.equal(['a']);
      setting.store.removeInterest(named);
      setting.store.removeInterest(other);
      expect(setting.members('*')).to.deep.equal(['a']);
      setting.store.removeInterest(wildcard);
      expect(setting.members('*')).to.deep.equal([]);
    });
    it('go with the interest', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ resourceErrors: [fault('a', 14)] });
      setting.store.removeInterest(interest);
      expect([...setting.store.tables]).to.deep.equal([]);
    });
  });

  describe('payloads', () => {
    it('equal ones are held once, whatever the name, variant or type', () => {
      const setting = use();
      const { any } = cluster('a', '1');
      setting.apply({
        puts: [
          cluster('a', '1'),
          cluster('b', '1', UNCONSTRAINED, { any }),
          cluster('c', '1', prod, { any }),
          cluster('c', '1', notProd, { any }),
        ],
      });
      setting.store.apply(
        transaction({ holder: namedHolder, type: type('eds'), puts: [put(type('eds'), 'e', '', { any })] }),
      );
      expect(setting.store.bodyBytes).to.equal(any?.length);
      setting.apply({ removals: [gone('a'), gone('b'), gone('c', prod)] });
      expect(setting.store.bodyBytes).to.equal(any?.length);
    });
    it('are a copy: the response that they came in is not pinned, nor does its reuse matter', () => {
      const setting = use();
      const bytes = Buffer.from(cluster('a', '1').any ?? []);
      const expected = Buffer.from(bytes);
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, { any: bytes })] });
      bytes.fill(0);
      const value = setting.store.resolve(cds, resourceName('a'), NO_PARAMETERS);
      if (!isVariant(value)) throw new Error(value);
      expect(Buffer.from(value.payload?.bytes ?? [])).to.deep.equal(expected);
      expect(value.payload?.bytes.buffer.byteLength).to.equal(expected.length);
    });
    it('bytes go back to 0 when everything is removed', () => {
      const setting = use();
      for (let round = 0; round < 3; round++) {
        const puts = Array.from({ length: 50 }, (_, index) =>
          cluster(`n${index % 25}`, `c${index * (round + 1)}`, index < 25 ? prod : notProd),
        );
        setting.apply({ holder: wildcardHolder, puts, complete: true });
      }
      expect(setting.store.bodyBytes).to.be.greaterThan(0);
      setting.apply({ holder: wildcardHolder, complete: true });
      expect(setting.store.bodyBytes).to.equal(0);
    });
    it('of a replaced variant are released', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', 'long content')] });
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.store.bodyBytes).to.equal(size('a', '1'));
    });
  });

  describe('an interest that ends', () => {
    it('drops what only it saw', () => {
      const setting = use();
      const [prodInterest] = [setting.want('a', inProd), setting.want('a', inTest)];
      setting.apply({ puts: [cluster('a', '1', prod), cluster('a', '22', notProd)] });
      setting.store.removeInterest(prodInterest);
      expect(setting.see('a', inProd)).to.equal('unknown');
      expect(setting.see('a', inTest)).to.equal('a 22');
      expect(setting.store.bodyBytes).to.equal(size('a', '22'));
    });
    it('leaves what another sees, by name, wildcard or glob', () => {
      const name = `xdstp://x/${kind}/d/a`;
      for (const [selector, holder] of [
        [name, namedHolder],
        [WILDCARD, wildcardHolder],
        [`xdstp://x/${kind}/d/*`, namedHolder],
      ] as const) {
        const setting = use();
        const ending = setting.want(name, inProd);
        const staying = setting.want(selector, inTest);
        setting.apply({ holder, puts: [cluster(name, '1')] });
        setting.store.removeInterest(ending);
        expect(setting.see(name, inTest), selector).to.equal(`${name} 1`);
        setting.store.removeInterest(staying);
        expect(setting.store.bodyBytes, selector).to.equal(0);
      }
    });
    it('a wildcard: what was only ever named does not keep it, nor it what was named', () => {
      const setting = use();
      const [wildcard, named] = [setting.want('*'), setting.want('n')];
      setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1'), cluster('n', '1')], complete: true });
      setting.apply({ puts: [cluster('n', '1')] });
      setting.store.removeInterest(wildcard);
      expect(setting.see('n')).to.equal('n 1');
      expect(setting.store.bodyBytes).to.equal(size('n', '1'));
      setting.store.removeInterest(named);
      expect(setting.store.bodyBytes).to.equal(0);
    });
    it('the last one of a type leaves nothing: clients can name any type', () => {
      const setting = use();
      const interest = setting.want('a');
      setting.apply({ puts: [cluster('a', '1')], resolved: [interest] });
      setting.store.removeInterest(interest);
      expect([...setting.store.tables]).to.deep.equal([]);
    });
  });

  describe('time to live (protocol §8)', () => {
    it('goes on for the new constraints of a variant', () => {
      const setting = use();
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, { ttlMilliseconds: 1000 })] });
      const move = { holder: namedHolder, name: resourceName('a'), from: UNCONSTRAINED, to: prod };
      setting.store.restamp({ type: cds, moves: [move], unresolved: [] });
      expect(setting.expiring).to.deep.equal(['a', 'a']);
      setting.clock.advance(1000);
      const moved = setting.store.resolve(cds, resourceName('a'), inProd);
      expect(isVariant(moved) && [...setting.store.expire([moved])]).to.have.length(1);
    });
    const ttl = { ttlMilliseconds: 1000 };
    const see = (setting: Setting) => setting.store.resolve(cds, resourceName('a'), NO_PARAMETERS);

    it('asks to be woken, and ends what is due then', () => {
      const setting = use();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, ttl)] });
      expect(setting.expiring).to.deep.equal(['a']);
      const variant = see(setting);
      if (!isVariant(variant)) throw new Error(variant);
      setting.clock.advance(999);
      expect([...setting.store.expire([variant])]).to.deep.equal([]);
      setting.clock.advance(1);
      const [ended] = setting.store.expire([variant]);
      expect(ended?.commit.changed.has(variant.name)).to.equal(true);
      expect(setting.see('a')).to.equal('absent');
      expect([...setting.store.expire([variant])]).to.deep.equal([]);
      expect(setting.store.bodyBytes).to.equal(0);
    });
    it('§3.10 ends those of one version in one commit, with that version', () => {
      const setting = use();
      const other = { holder: otherHolder, version: '7' };
      const names = ['a', 'c', 'e'];
      setting.apply({ version: '5', puts: names.map((name) => cluster(name, '1', UNCONSTRAINED, ttl)) });
      setting.apply({ ...other, puts: [cluster('b', '1', UNCONSTRAINED, ttl), cluster('d', '1')] });
      setting.clock.advance(500);
      setting.apply({ version: '6', heartbeats: [{ ...gone('e'), ...ttl }] });
      setting.clock.advance(500);
      const all = ['a', 'b', 'c', 'd', 'e', 'a'].map((name) => ({ type: cds, ...gone(name) }));
      const { revision } = setting.store;
      const ended = Array.from(setting.store.expire(all), ({ commit, count }) => [
        commit.version,
        commit.revision - revision,
        count,
        changedNames(commit),
      ]);
      expect(ended).to.deep.equal([
        ['6', 1, 2, ['a', 'c']],
        ['7', 2, 1, ['b']],
      ]);
      expect(names.map((name) => setting.see(name))).to.deep.equal(['unknown', 'unknown', 'e 1']);
    });
    it('a heartbeat prolongs it', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, ttl)] });
      const variant = see(setting);
      if (!isVariant(variant)) throw new Error(variant);
      setting.clock.advance(600);
      setting.apply({ heartbeats: [{ ...gone('a'), ...ttl }] });
      setting.clock.advance(600);
      expect([...setting.store.expire([variant])]).to.deep.equal([]);
      expect(setting.see('a')).to.equal('a 1');
    });
    it('the resource without one ends the countdown, and is told', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, ttl)] });
      const variant = see(setting);
      if (!isVariant(variant)) throw new Error(variant);
      expect(changedNames(setting.apply({ puts: [cluster('a', '1')] }))).to.deep.equal(['a']);
      setting.clock.advance(5000);
      expect([...setting.store.expire([variant])]).to.deep.equal([]);
    });
    it('§4.11 a heartbeat without one ends the countdown, and is told once', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, ttl)] });
      const variant = see(setting);
      if (!isVariant(variant)) throw new Error(variant);
      const end = { heartbeats: [{ ...gone('a'), ttlMilliseconds: undefined }] };
      expect(changedNames(setting.apply(end))).to.deep.equal(['a']);
      expect(changedNames(setting.apply(end))).to.deep.equal([]);
      setting.clock.advance(5000);
      expect([...setting.store.expire([variant])]).to.deep.equal([]);
      expect(setting.see('a')).to.equal('a 1');
    });
    it('§4.11 a full state keeps what it only prolongs', () => {
      const setting = use();
      setting.apply({ puts: [cluster('a', '1', UNCONSTRAINED, ttl), cluster('b', '1')] });
      setting.clock.advance(600);
      setting.apply({ puts: [cluster('c', '1')], heartbeats: [{ ...gone('a'), ...ttl }], complete: true });
      expect(setting.see('a')).to.equal('a 1');
      expect(setting.see('b')).to.equal('unknown');
      setting.clock.advance(600);
      expect(setting.store.deadline({ type: cds, ...gone('a') })).to.equal(setting.clock.monotonic() + 400);
    });
    it('a heartbeat for what is not there is nothing', () => {
      expect(use().apply({ heartbeats: [{ ...gone('a'), ...ttl }] }).changed.size).to.equal(0);
    });
  });
});

function use(): Setting {
  return new Setting();
}

function fault(name: string, code: number) {
  return {
    name: resourceName(name),
    constraints: UNCONSTRAINED,
    code,
    message: 'm',
    status: Buffer.from('s'),
  };
}
