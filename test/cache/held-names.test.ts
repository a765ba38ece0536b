import { expect } from 'chai';
import { Store } from '../../src/cache/store.ts';
import type { Cohort } from '../../src/model/access.ts';
import { resourceName } from '../../src/model/brand.ts';
import { type Commit, isVariant, type Value } from '../../src/model/catalog.ts';
import { internParameters, NO_PARAMETERS, type Parameters } from '../../src/model/parameters.ts';
import type { PendingChange } from '../../src/model/rollout.ts';
import {
  type Interest,
  type Put,
  type Transaction,
  transaction,
  WILDCARD,
} from '../../src/model/transaction.ts';
import { VariantIndex } from '../../src/model/variant-index.ts';
import { namedHolder, put, type, when, wildcardHolder } from '../support/in-memory-relay.ts';
import { compiled, is, not } from '../support/variants.ts';
import { VirtualClock } from '../support/virtual-clock.ts';
import { workOf } from '../support/work.ts';

const cds = type('cds');
const eds = type('eds');
const prod = when({ env: 'prod' });
const test = when({ env: 'test' });
const second = when({ version: '2' });
const inSecond = internParameters([['version', '2']]);
const inBoth = internParameters([
  ['env', 'prod'],
  ['version', '2'],
]);
const inProd = internParameters([['env', 'prod']]);
const inTest = internParameters([['env', 'test']]);

class Setting {
  readonly clock = new VirtualClock();
  readonly published: Commit[] = [];
  readonly changes: PendingChange[] = [];
  readonly store: Store;

  constructor() {
    this.store = new Store({
      clock: this.clock,
      ambiguous: () => {},
      expiring: () => {},
      publish: (commit) => this.published.push(commit),
    });
    this.gate.gatedTypes(new Set([cds]));
    this.gate.onChanged((change) => this.changes.push(change));
  }

  get gate() {
    return this.store.held;
  }

  want(selector: string, parameters: Parameters = NO_PARAMETERS): Interest {
    const interest = { type: cds, selector: resourceName(selector), parameters };
    this.store.addInterest(interest);
    return interest;
  }

  apply(part: Partial<Transaction>): Commit {
    const commit = this.store.apply(transaction({ holder: namedHolder, type: cds, ...part }));
    this.gate.notify();
    return commit;
  }

  /** Upstream has these clusters, and no others. */
  full(contents: Readonly<Record<string, string>>, version = ''): Commit {
    const puts = Object.entries(contents).map(([name, content]) => cluster(name, content));
    return this.apply({ holder: wildcardHolder, puts, complete: true, version });
  }

  see(cohort: Cohort, name: string, parameters: Parameters = NO_PARAMETERS): string {
    return shown(this.store.cohorts[cohort].resolve(cds, resourceName(name), parameters));
  }

  /** What the released cohort and the canaries see. */
  both(name: string, parameters: Parameters = NO_PARAMETERS): string {
    return `${this.see('released', name, parameters)} | ${this.see('canary', name, parameters)}`;
  }

  members(cohort: Cohort, parameters: Parameters = NO_PARAMETERS): string {
    return [...this.store.cohorts[cohort].members(cds, WILDCARD, parameters)].toSorted().join(' ');
  }

  /** What a wildcard shows of a name. */
  wildcard(cohort: Cohort, name: string, parameters: Parameters): string {
    return shown(this.store.cohorts[cohort].resolve(cds, resourceName(name), parameters, undefined, true));
  }

  pending(): string {
    return [...this.gate.pending]
      .map(
        ({ name, masked, queued }) =>
          `${name}${masked ? ` ${masked}` : ''}${queued && !masked ? ' queued behind' : ''}`,
      )
      .join(', ');
  }
}

const shown = (value: Value): string => (isVariant(value) ? value.version : value);
const cluster = (name: string, content: string, more: Partial<Put> = {}) =>
  put(cds, name, content, { version: content, ...more });
const gone = (name: string, constraints = cluster('a', '').constraints) => ({
  name: resourceName(name),
  constraints,
});
const changed = (commit: Commit, cohort: Cohort): string =>
  [...(commit.cohorts?.[cohort] ?? commit).changed.keys()].join(' ');

describe('held names', () => {
  it('the first member of a wildcard is found without a look at all names, whatever is held', () => {
    const lookedAt = (names: number): number => {
      const setting = new Setting();
      setting.want('*');
      const all = Object.fromEntries(Array.from({ length: names }, (_, at) => [`c${at}`, '1']));
      setting.full(all);
      setting.full({ ...all, c0: '2' });
      expect(setting.both('c0')).to.equal('1 | 2');
      const members = Iterator.from(setting.store.cohorts.released.members(cds, WILDCARD, NO_PARAMETERS));
      const readers: unknown = Object.getPrototypeOf(new Map().keys());
      if (typeof readers !== 'object' || readers === null) throw new Error('iterators have no prototype');
      return workOf(readers, ['next'], () => expect(members.next().value).to.equal('c0'));
    };
    expect(lookedAt(1000)).to.equal(lookedAt(10));
  });
  it('variants that all match, beside others that wait, cost what they are and not their square', () => {
    const work = (count: number): number => {
      const setting = new Setting();
      for (let at = 0; at < 5; at++) {
        setting.want('a', internParameters([['own', `${at}`]]));
        setting.want('*', internParameters([['own', `${at}`]]));
      }
      const overlapping = (key: string, content: string): readonly Put[] =>
        Array.from({ length: count }, (_, at) =>
          cluster('a', content, { constraints: compiled(not(is(key, `${at}`))) }),
        );
      setting.apply({ puts: overlapping('k', '1') });
      setting.gate.release();
      setting.apply({ puts: overlapping('k', '2') });
      return workOf(VariantIndex.prototype, ['match'], () =>
        setting.apply({ puts: overlapping('j', '1'), holder: wildcardHolder }),
      );
    };
    expect(work(200)).to.be.below(3 * work(100));
  });
  it('interests in one name that upstream answers together are looked at once', () => {
    const work = (count: number): number => {
      const setting = new Setting();
      setting.apply({ puts: [cluster('a', '1')] });
      const parameters = Array.from({ length: count }, (_, at) => internParameters([['own', `${at}`]]));
      const resolved = parameters.map((own) => setting.want('a', own));
      setting.gate.release();
      setting.apply({ puts: [cluster('a', '2')] });
      return workOf(VariantIndex.prototype, ['match', 'all'], () => setting.apply({ resolved }));
    };
    expect(work(200)).to.equal(work(100));
  });
  it('a change is for canaries first, and for the others after the release', () => {
    const setting = new Setting();
    setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    expect(setting.both('a')).to.equal('1 | 1');
    const commit = setting.apply({ puts: [cluster('a', '2')] });
    expect(setting.both('a')).to.equal('1 | 2');
    expect([changed(commit, 'released'), changed(commit, 'canary')]).to.deep.equal(['', 'a']);
    expect(setting.gate.size).to.equal(1);
    setting.gate.release();
    expect(setting.both('a')).to.equal('2 | 2');
    expect(setting.published.map((one) => [changed(one, 'released'), changed(one, 'canary')])).to.deep.equal([
      ['a', ''],
    ]);
    expect(setting.pending()).to.equal('');
  });
  it('what is pending is the same list, and the same value for a name, until something of it changes', () => {
    const setting = new Setting();
    for (const name of ['a', 'b', 'c']) setting.want(name);
    setting.apply({ puts: [cluster('a', '1'), cluster('b', '1')] });
    setting.apply({ puts: [cluster('a', '2'), cluster('b', '2')] });
    const before = setting.gate.pending;
    expect(before.map(({ name }) => name)).to.deep.equal(['a', 'b']);
    setting.apply({ puts: [cluster('c', '1')] });
    expect(setting.gate.pending).to.equal(before);
    setting.apply({ puts: [cluster('b', '3')] });
    const [a, b] = setting.gate.pending;
    expect([a === before[0], b === before[1]]).to.deep.equal([true, false]);
    setting.apply({ removals: [gone('a')] });
    expect(setting.gate.pending.map(({ removed }) => removed)).to.deep.equal([true, false]);
  });
  it('types that are not gated, and names that are new, do not wait', () => {
    const setting = new Setting();
    setting.want('*');
    setting.full({ a: '1' });
    expect(setting.full({ a: '1', b: '1' }).cohorts).to.equal(undefined);
    expect(setting.both('b')).to.equal('1 | 1');
    const cla = (content: string) => put(eds, 'a', content, { version: content });
    setting.store.apply(transaction({ holder: namedHolder, type: eds, puts: [cla('1')] }));
    const commit = setting.store.apply(transaction({ holder: namedHolder, type: eds, puts: [cla('2')] }));
    expect(commit.cohorts).to.equal(undefined);
  });
  /** Everybody has `a` at 1, canaries judge its removal, and upstream has it at 2 again. */
  function queuedBehindRemoval(): Setting {
    const setting = new Setting();
    setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    setting.apply({ removals: [gone('a')] });
    setting.gate.queueing(() => true);
    setting.apply({ puts: [cluster('a', '2')] });
    return setting;
  }

  it('a name whose removal is judged does not come back while it is', () => {
    const setting = queuedBehindRemoval();
    expect(setting.both('a')).to.equal('1 | absent');
    expect(setting.pending()).to.equal('a queued behind');
    setting.gate.queueing(() => false);
    setting.gate.unqueue();
    expect(setting.both('a')).to.equal('1 | 2');
    expect(setting.pending()).to.equal('a');
  });
  it('nor for a canary that asks for it only then', () => {
    const setting = queuedBehindRemoval();
    setting.apply({ resolved: [setting.want('a', inProd)] });
    expect([setting.both('a'), setting.both('a', inProd)]).to.deep.equal(['1 | absent', '1 | absent']);
  });
  it('who comes back to a change has it, and not what is queued behind it', () => {
    const queues: readonly ((setting: Setting) => void)[] = [
      ({ gate }) => gate.queueing(() => true),
      ({ gate }) =>
        gate.queue(
          () => true,
          () => false,
        ),
    ];
    for (const queue of queues) {
      const setting = new Setting();
      const interest = setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2')] });
      setting.store.removeInterest(interest);
      queue(setting);
      setting.apply({ puts: [cluster('a', '3')], resolved: [setting.want('a')] });
      expect(setting.both('a')).to.equal('1 | 2');
    }
  });
  it('unless its time to live has passed', () => {
    const setting = new Setting();
    const interest = setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    setting.apply({ puts: [cluster('a', '2', { ttlMilliseconds: 1000 })] });
    setting.store.removeInterest(interest);
    setting.clock.advance(1000);
    setting.gate.queueing(() => true);
    setting.apply({ puts: [cluster('a', '3')], resolved: [setting.want('a')] });
    expect(setting.both('a')).to.equal('1 | absent');
  });
  it('a change that upstream goes back to is not queued, though some of its clients are away', () => {
    const setting = new Setting();
    const interest = setting.want('a', inTest);
    setting.want('a', inProd);
    const say = (content: string, constraints = prod) =>
      setting.apply({ puts: [cluster('a', content, { constraints })] });
    for (const content of ['1', '2']) {
      say(content);
      say(content, test);
    }
    setting.store.removeInterest(interest);
    setting.gate.queueing(() => true);
    say('3');
    expect(setting.pending()).to.equal('a queued behind');
    say('2');
    expect([setting.pending(), setting.both('a', inProd)]).to.deep.equal(['a', '1 | 2']);
    setting.want('a', inTest);
    say('2', test);
    expect([setting.pending(), setting.both('a', inTest)]).to.deep.equal(['a', '1 | 2']);
  });
  it('a removal waits, and the wildcard still shows the name', () => {
    const setting = new Setting();
    const all = setting.want('*');
    setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1'), cluster('b', '1')], resolved: [all] });
    setting.full({ b: '1' });
    expect(setting.both('a')).to.equal('1 | unknown');
    expect([setting.members('released'), setting.members('canary')]).to.deep.equal(['a b', 'b']);
    expect(setting.gate.removals()).to.deep.equal({ removed: 1, released: 2 });
    setting.gate.release();
    expect(setting.members('released')).to.equal('b');
  });
  it('upstream goes back: nothing waits, and nobody gets the same content again', () => {
    const setting = new Setting();
    setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    const before = setting.store.cohorts.released.resolve(cds, resourceName('a'), NO_PARAMETERS);
    setting.apply({ puts: [cluster('a', '2')] });
    setting.apply({ puts: [cluster('a', '1', { version: 'another version' })] });
    expect(setting.pending()).to.equal('');
    expect(setting.store.cohorts.released.resolve(cds, resourceName('a'), NO_PARAMETERS)).to.equal(before);
    expect(setting.both('a')).to.equal('1 | 1');
    expect(setting.changes.map(({ joined, left }) => [joined, left])).to.deep.equal([
      [['a'], []],
      [[], ['a']],
    ]);
  });
  it('a variant for parameter sets that have nothing yet does not wait', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
    setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
    setting.want('a', inTest);
    setting.apply({ puts: [cluster('a', '3', { constraints: test })] });
    expect(setting.both('a', inProd)).to.equal('1 | 2');
    expect(setting.both('a', inTest)).to.equal('3 | 3');
    setting.apply({ puts: [cluster('a', '4', { constraints: test })] });
    expect(setting.both('a', inTest)).to.equal('3 | 4');
  });
  it('nor is it a change of what waits for others, until it changes itself', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
    setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
    const before = setting.changes.length;
    setting.want('a', inTest);
    setting.apply({ puts: [cluster('a', '3', { constraints: test })] });
    expect(setting.changes).to.have.length(before);
    setting.gate.discard();
    setting.want('a', inSecond);
    setting.apply({ puts: [cluster('a', '3', { constraints: second })] });
    expect(setting.pending()).to.equal('a discarded');
    setting.apply({ puts: [cluster('a', '4', { constraints: test })] });
    expect(setting.changes.at(-1)?.joined).to.deep.equal(['a']);
    expect(setting.both('a', inTest)).to.equal('3 | 4');
  });
  it('parameters that come while a variant waits which is for others too get it, and the others keep theirs', () => {
    const setting = new Setting();
    const inZone = internParameters([
      ['env', 'prod'],
      ['zone', 'a'],
    ]);
    const elsewhere = when({ env: 'prod', zone: 'b' });
    const inOther = internParameters([
      ['env', 'prod'],
      ['zone', 'b'],
    ]);
    setting.want('a', inOther);
    setting.apply({ puts: [cluster('a', '1', { constraints: elsewhere })] });
    setting.apply({ puts: [cluster('a', '2', { constraints: prod })], removals: [gone('a', elsewhere)] });
    expect(setting.both('a', inOther)).to.equal('1 | 2');
    setting.apply({ resolved: [setting.want('a', inZone)] });
    expect([setting.both('a', inOther), setting.both('a', inZone)]).to.deep.equal(['1 | 2', '2 | 2']);
  });
  describe('what is let in for others too, as nobody has anything of it any more', () => {
    /** Everybody has lost `a`, and canaries have it again. */
    const cameAgain = (): Setting => {
      const setting = new Setting();
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
      setting.apply({ removals: [gone('a', prod)] });
      setting.gate.queueing(() => true);
      setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
      setting.gate.queueing(() => false);
      setting.gate.release();
      setting.gate.unqueue();
      expect(setting.both('a', inProd)).to.equal('absent | 2');
      return setting;
    };
    const isTold = ({ cohorts, changed: all }: Commit, parameters: Parameters): boolean =>
      (cohorts?.released.changed ?? all)
        .get(resourceName('a'))
        ?.some((constraints) => constraints.matches(parameters)) === true;

    it('is told to those who get it', () => {
      const setting = cameAgain();
      setting.want('a', inTest);
      const commit = setting.apply({ puts: [cluster('a', '2', { constraints: test })] });
      expect([setting.see('released', 'a', inProd), isTold(commit, inProd)]).to.deep.equal(['2', true]);
    });
    it('also when another name is all that upstream says', () => {
      const setting = cameAgain();
      const resolved = [setting.want('a', inTest)];
      const commit = setting.apply({ puts: [cluster('b', '1', { constraints: test })], resolved });
      expect([setting.see('released', 'a', inProd), isTold(commit, inProd)]).to.deep.equal(['2', true]);
    });
  });
  it('two variants of a new name in one transaction come together', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    setting.apply({
      puts: [cluster('a', '1', { constraints: prod }), cluster('a', '2', { constraints: test })],
    });
    expect(setting.pending()).to.equal('');
  });
  it('a variant for a wildcard that has nothing yet does not wait, though names have one that matches', () => {
    const setting = new Setting();
    setting.want('a', inSecond);
    const all = setting.want('*', inBoth);
    setting.apply({ puts: [cluster('a', '1', { constraints: second })] });
    setting.apply({
      holder: wildcardHolder,
      puts: [cluster('a', '2', { constraints: prod })],
      resolved: [all],
    });
    expect(setting.members('released', inBoth)).to.equal('a');
    expect(setting.wildcard('released', 'a', inBoth)).to.equal('2');
    expect(setting.both('a', inSecond)).to.equal('1 | 1');
  });
  it('wildcards that have nothing yet get all variants that names have, each its own', () => {
    const setting = new Setting();
    setting.want('a', inBoth);
    setting.want('a', inProd);
    const puts = [cluster('a', '1', { constraints: prod }), cluster('a', '2', { constraints: second })];
    setting.apply({ puts, cannotDelete: true });
    setting.want('*', inBoth);
    setting.want('*', inSecond);
    setting.apply({ holder: wildcardHolder, puts, cannotDelete: true });
    expect(setting.members('released', inSecond)).to.equal('a');
    expect(setting.wildcard('released', 'a', inBoth)).to.equal('2');
    expect(setting.pending()).to.equal('');
  });
  it('what names get is no choice of a wildcard, and keeps it from no other one', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    setting.want('*', inSecond);
    const own = cluster('a', '1', { constraints: prod });
    const shown = cluster('a', '2', { constraints: second });
    setting.apply({ puts: [own], cannotDelete: true });
    setting.apply({ holder: wildcardHolder, puts: [shown], cannotDelete: true });
    setting.want('*', inBoth);
    setting.apply({ puts: [own], cannotDelete: true });
    setting.want('*', inProd);
    setting.apply({ holder: wildcardHolder, puts: [shown, own], cannotDelete: true });
    expect(setting.members('released', inProd)).to.equal('a');
    expect(setting.wildcard('released', 'a', inBoth)).to.equal('2');
  });
  it('a wildcard that has nothing yet gets the released content at once', () => {
    const setting = new Setting();
    setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    setting.want('*');
    setting.full({ a: '1' });
    expect(setting.pending()).to.equal('');
    expect(setting.members('released')).to.equal('a');
    const other = new Setting();
    other.want('a');
    other.apply({ puts: [cluster('a', '1')] });
    other.want('*');
    other.full({ a: '2' });
    expect([other.members('released'), other.both('a')]).to.deep.equal(['a', '1 | 2']);
  });
  it('it gets that too where upstream has put the name behind other constraints', () => {
    const setting = new Setting();
    setting.want('a', inBoth);
    setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
    const removals = [gone('a', prod)];
    setting.apply({ puts: [cluster('a', '2', { constraints: second })], removals });
    const all = setting.want('*', inBoth);
    const puts = [cluster('a', '2', { constraints: second })];
    setting.apply({ holder: wildcardHolder, puts, resolved: [all] });
    expect([setting.members('released', inBoth), setting.members('canary', inBoth)]).to.deep.equal([
      'a',
      'a',
    ]);
    expect(setting.both('a', inBoth)).to.equal('1 | 2');
  });
  describe('two variants for one wildcard', () => {
    /** `both` sees two variants of b by name, and one by its wildcard. */
    const wildcardOfBoth = () => {
      const setting = new Setting();
      setting.want('b', inSecond);
      setting.apply({
        puts: [cluster('b', '1', { constraints: prod }), cluster('b', '2', { constraints: second })],
      });
      const all = setting.want('*', inBoth);
      const puts = [cluster('b', '1', { constraints: prod })];
      setting.apply({ holder: wildcardHolder, puts, resolved: [all] });
      expect(setting.members('released', inBoth)).to.equal('b');
      return setting;
    };
    const wildcardOfSecond = { holder: wildcardHolder, puts: [cluster('b', '2', { constraints: second })] };

    it('another wildcard gets the second one, and the first keeps what it has', () => {
      const setting = wildcardOfBoth();
      const all = setting.want('*', inSecond);
      setting.apply({ ...wildcardOfSecond, resolved: [all] });
      expect(setting.members('released', inSecond)).to.equal('b');
      expect(setting.wildcard('released', 'b', inSecond)).to.equal('2');
      expect(setting.wildcard('released', 'b', inBoth)).to.equal('1');
      expect(setting.pending()).to.equal('');
    });
    it('a later wildcard gets what waited for nobody else', () => {
      const setting = wildcardOfBoth();
      setting.apply(wildcardOfSecond);
      expect(setting.members('released', inSecond)).to.equal('');
      const all = setting.want('*', inSecond);
      const [before] = setting.gate.pending;
      setting.apply({ holder: wildcardHolder, resolved: [all] });
      expect(setting.gate.pending[0]).to.not.equal(before);
      expect(setting.wildcard('released', 'b', inSecond)).to.equal('2');
      expect(setting.members('released', inSecond)).to.equal('b');
      expect(setting.wildcard('released', 'b', inBoth)).to.equal('1');
    });
    it('waits where the name has one that both wildcards may show, though one of them could be shown it', () => {
      const setting = new Setting();
      setting.apply({ puts: [cluster('b', '1')], resolved: [setting.want('b', inProd)] });
      setting.want('*');
      const all = setting.want('*', inProd);
      const puts = [cluster('b', '1'), cluster('b', '2', { constraints: prod })];
      setting.apply({ holder: wildcardHolder, puts, resolved: [all] });
      expect([setting.members('released'), setting.members('released', inProd)]).to.deep.equal(['b', 'b']);
      expect(setting.wildcard('released', 'b', inProd)).to.equal('1');
    });
    it('waits where the first would be shown it too, as names have chosen it', () => {
      const setting = new Setting();
      setting.want('b', inBoth);
      setting.apply({ puts: [cluster('b', '2', { constraints: second })] });
      const puts = [cluster('b', '1', { constraints: prod })];
      setting.apply({ puts });
      setting.gate.release();
      setting.apply({ holder: wildcardHolder, puts, resolved: [setting.want('*', inBoth)] });
      const shownToBoth = (cohort: Cohort) => [
        setting.see(cohort, 'b', inBoth),
        setting.wildcard(cohort, 'b', inBoth),
      ];
      expect(shownToBoth('released')).to.deep.equal(['2', '1']);
      setting.apply({ ...wildcardOfSecond, resolved: [setting.want('*', inSecond)] });
      expect(shownToBoth('released')).to.deep.equal(['2', '1']);
      expect(setting.members('released', inSecond)).to.equal('');
      setting.gate.release();
      expect(setting.members('released', inSecond)).to.equal('b');
    });
  });
  it('variants of a name and of a wildcard that new constraints make one are one for both cohorts', () => {
    const setting = new Setting();
    setting.want('*', inProd);
    setting.apply({ puts: [cluster('a', '1')] });
    setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1', { constraints: prod })] });
    expect(setting.members('released', inProd)).to.equal('a');
    const { name, constraints: from } = gone('a');
    const moves = [{ holder: namedHolder, name, from, to: prod }];
    setting.store.restamp({ type: cds, moves, unresolved: [] });
    expect([setting.pending(), setting.members('released', inProd)]).to.deep.equal(['', 'a']);
  });
  it('that another variant is chosen is queued too', () => {
    const setting = new Setting();
    setting.want('a', inTest);
    setting.full({ a: '1' });
    const forTest = { puts: [cluster('a', 'for test', { constraints: test })] };
    setting.apply(forTest);
    setting.full({ a: '2' });
    expect(setting.both('a', inTest)).to.equal('1 | 2');
    setting.gate.queueing(() => true);
    setting.apply({ ...forTest, cannotDelete: true });
    expect(setting.both('a', inTest)).to.equal('1 | 2');
    expect(setting.pending()).to.equal('a queued behind');
  });
  describe('what is queued comes to neither cohort where one has another resource by its alias', () => {
    const shared = { aliases: ['shared'] };
    const queuedBeside = (before: Partial<Put>, now?: Partial<Put>): Setting => {
      const setting = new Setting();
      setting.want('shared');
      setting.apply({ puts: [cluster('a', '1', before), cluster('b', '1', { constraints: test })] });
      if (now === undefined) setting.apply({ removals: [gone('a')] });
      else setting.apply({ puts: [cluster('a', '1', now)] });
      setting.gate.queueing(() => true);
      setting.apply({ puts: [cluster('b', '2', shared)] });
      expect(setting.pending()).to.equal('a, b queued');
      return setting;
    };
    it('which canaries judge the removal of', () => {
      const setting = queuedBeside(shared);
      expect(setting.both('shared')).to.equal('1 | unknown');
      setting.gate.release();
      expect([setting.both('shared'), setting.gate.size]).to.deep.equal(['unknown | unknown', 0]);
    });
    it('which canaries judge', () => {
      const setting = queuedBeside({}, shared);
      expect(setting.both('shared')).to.equal('unknown | 1');
      setting.gate.release();
      expect([setting.both('shared'), setting.gate.size]).to.deep.equal(['1 | 1', 0]);
    });
  });
  it('an alias shows what its cohort has', () => {
    const setting = new Setting();
    const resolved = [setting.want('x')];
    setting.apply({ puts: [cluster('a', '1', { aliases: ['x'] })], resolved });
    setting.apply({ puts: [cluster('a', '2', { aliases: ['y'] })] });
    expect(setting.both('x')).to.equal('1 | absent');
    setting.gate.release();
    expect(setting.both('x')).to.equal('absent | absent');
  });
  it('the version of a response that waits is the canaries’', () => {
    const setting = new Setting();
    const all = setting.want('*');
    setting.apply({ holder: wildcardHolder, puts: [cluster('a', '1')], resolved: [all], version: 'v1' });
    const commit = setting.full({ a: '2' }, 'v2');
    expect([commit.cohorts?.released.version, commit.cohorts?.canary.version]).to.deep.equal([
      undefined,
      'v2',
    ]);
    const versions = () => [
      setting.store.cohorts.released.version(all),
      setting.store.cohorts.canary.version(all),
    ];
    expect(versions()).to.deep.equal(['v1', 'v2']);
    setting.gate.release();
    expect(versions()).to.deep.equal(['v2', 'v2']);
    expect(setting.published[0]?.cohorts?.released.version).to.equal('v2');
  });

  describe('TTLs', () => {
    it('a heartbeat is for both cohorts', () => {
      const setting = new Setting();
      setting.want('a');
      const lives = { ttlMilliseconds: 1000 };
      setting.apply({ puts: [cluster('a', '1', lives)] });
      setting.apply({ puts: [cluster('a', '2', lives)] });
      setting.clock.advance(600);
      setting.apply({ heartbeats: [{ ...gone('a'), ttlMilliseconds: 1000 }] });
      setting.clock.advance(600);
      const value = setting.store.peek(cds, resourceName('a'), NO_PARAMETERS);
      expect(isVariant(value) && [...setting.store.expire([value])]).to.deep.equal([]);
      expect(setting.both('a')).to.equal('1 | 2');
    });
    it('the end of a TTL is for both cohorts, and what waits does not show through', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1', { ttlMilliseconds: 1000 })] });
      const value = setting.store.peek(cds, resourceName('a'), NO_PARAMETERS);
      setting.apply({ puts: [cluster('a', '2', { ttlMilliseconds: 1000 })] });
      setting.clock.advance(1000);
      setting.apply({ puts: [cluster('a', '2', { ttlMilliseconds: 1000 })], removals: [] });
      expect(isVariant(value) && [...setting.store.expire([value])]).to.deep.equal([]);
      setting.apply({ removals: [gone('a')] });
      setting.clock.advance(1000);
      expect(isVariant(value) && [...setting.store.expire([value])]).to.have.length(1);
      expect(setting.both('a')).to.equal('absent | absent');
    });
    it('a TTL of pending content does not end content without one', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2', { ttlMilliseconds: 1000 })] });
      const value = setting.store.peek(cds, resourceName('a'), NO_PARAMETERS);
      setting.clock.advance(1000);
      expect(isVariant(value) && [...setting.store.expire([value])]).to.have.length(1);
      expect(setting.both('a')).to.equal('1 | absent');
    });
  });

  describe('discard', () => {
    const discarded = () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2')] });
      setting.gate.discard();
      return setting;
    };
    it('canaries go back, and a release does not bring it', () => {
      const setting = discarded();
      expect(setting.both('a')).to.equal('1 | 1');
      expect(setting.pending()).to.equal('a discarded');
      expect(setting.gate.size).to.equal(0);
      setting.gate.release();
      expect(setting.both('a')).to.equal('1 | 1');
    });
    it('the same again stays discarded, something else is judged anew', () => {
      const setting = discarded();
      setting.apply({ puts: [cluster('a', '2', { version: 'again' })] });
      expect(setting.both('a')).to.equal('1 | 1');
      setting.apply({ puts: [cluster('a', '3')] });
      expect(setting.both('a')).to.equal('1 | 3');
    });
    it('something else for some clients is a change for all canaries that had been taken back', () => {
      const setting = new Setting();
      setting.want('a', inProd);
      setting.want('a', inTest);
      setting.apply({
        puts: [cluster('a', '1', { constraints: prod }), cluster('a', '1', { constraints: test })],
      });
      setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
      setting.gate.discard();
      const commit = setting.apply({ puts: [cluster('a', '2', { constraints: test })] });
      expect([setting.both('a', inProd), setting.both('a', inTest)]).to.deep.equal(['1 | 2', '1 | 2']);
      const told = commit.cohorts?.canary.changed.get(resourceName('a')) ?? [];
      expect(
        [inProd, inTest].map((one) => told.some((constraints) => constraints.matches(one))),
      ).to.deep.equal([true, true]);
    });
    it('a variant for clients that have just come says nothing else, and one for clients that had an answer does', () => {
      const setting = discarded();
      const resolved = [setting.want('a', inSecond)];
      setting.apply({ puts: [cluster('a', '2'), cluster('a', 'of 2', { constraints: second })], resolved });
      expect([setting.both('a', inSecond), setting.pending()]).to.deep.equal(['1 | 1', 'a discarded']);
      setting.apply({ resolved: [setting.want('a', inProd)] });
      setting.apply({ puts: [cluster('a', 'of prod', { constraints: prod })] });
      expect([setting.see('canary', 'a'), setting.pending()]).to.deep.equal(['2', 'a']);
    });
    it('what was discarded stays away when its type is gated no more, until upstream says something else', () => {
      const setting = discarded();
      setting.gate.gatedTypes(new Set());
      expect(setting.both('a')).to.equal('1 | 1');
      setting.apply({ puts: [cluster('a', '3')] });
      expect(setting.both('a')).to.equal('1 | 3');
      setting.gate.release();
      expect(setting.both('a')).to.equal('3 | 3');
    });
    it('upstream goes back: nothing is held', () => {
      const setting = discarded();
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.pending()).to.equal('');
    });
  });

  describe('clients with parameters of their own come and leave', () => {
    const isPast = (setting: Setting): void => {
      for (let index = 0; index < 300; index++) {
        const env = `invented-${index}`;
        const interest = setting.want('a', internParameters([['env', env]]));
        setting.apply({ puts: [cluster('a', `${index % 3}`, { constraints: when({ env }) })] });
        setting.store.removeInterest(interest);
      }
    };
    const waiting = (): Setting => {
      const setting = new Setting();
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
      setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
      return setting;
    };
    const kept = (setting: Setting): readonly number[] =>
      (['released', 'canary'] as const).map(
        (cohort) => setting.gate.contentOf(cds, resourceName('a'), cohort).length,
      );

    it('while a change waits: what was for them is kept of the last hundred', () => {
      const setting = waiting();
      isPast(setting);
      expect(kept(setting)).to.deep.equal([101, 1]);
      expect(setting.both('a', inProd)).to.equal('1 | 2');
    });
    it('while it is discarded: what was for them is kept of the last hundred', () => {
      const setting = waiting();
      setting.gate.discard();
      isPast(setting);
      expect(kept(setting)).to.deep.equal([101, 101]);
      expect([setting.both('a', inProd), setting.pending()]).to.deep.equal(['1 | 1', 'a discarded']);
    });
    it('while it is discarded: what upstream has for each of them is no news, and not kept for ever', () => {
      const setting = new Setting();
      setting.want('a');
      for (const content of ['1', '2']) setting.apply({ puts: [cluster('a', content)] });
      setting.gate.discard();
      for (let index = 0; index < 300; index++) {
        const env = `invented-${index}`;
        const interest = setting.want('a', internParameters([['env', env]]));
        const puts = [cluster('a', `of ${index}`, { constraints: when({ env }) })];
        setting.apply({ puts, resolved: [interest] });
        setting.store.removeInterest(interest);
      }
      expect(setting.pending()).to.equal('a discarded');
      const { refused } = setting.store.tables.get(cds)?.held.get(resourceName('a')) ?? {};
      expect(refused?.size).to.be.below(105);
    });
    it('what is kept back from clients that have left waits for them', () => {
      const setting = waiting();
      const interest = setting.want('a', inTest);
      setting.apply({ puts: [cluster('a', '1', { constraints: test })] });
      setting.apply({ puts: [cluster('a', '2', { constraints: test })] });
      setting.store.removeInterest(interest);
      isPast(setting);
      setting.want('a', inTest);
      expect(setting.see('released', 'a', inTest)).to.equal('1');
    });
    it('who asks for it again has it, though upstream has not answered yet', () => {
      const setting = waiting();
      const own = internParameters([['env', 'invented-0']]);
      const interest = setting.want('a', own);
      setting.apply({ puts: [cluster('a', '1', { constraints: when({ env: 'invented-0' }) })] });
      setting.store.removeInterest(interest);
      setting.want(
        'a',
        internParameters([
          ['env', 'invented-0'],
          ['version', '2'],
        ]),
      );
      for (let index = 1; index < 300; index++) {
        const env = `invented-${index}`;
        const other = setting.want('a', internParameters([['env', env]]));
        setting.apply({ puts: [cluster('a', '1', { constraints: when({ env }) })] });
        setting.store.removeInterest(other);
      }
      expect(setting.see('released', 'a', own)).to.equal('1');
    });
    const passes = (setting: Setting, env: string, content: string): void => {
      const interest = setting.want('a', internParameters([['env', env]]));
      setting.apply({ puts: [cluster('a', content, { constraints: when({ env }) })] });
      setting.store.removeInterest(interest);
    };
    /** One resource for all was swapped for one of each, which was discarded, and the clients in test have left. */
    const swapped = (): Setting => {
      const setting = new Setting();
      setting.want('a', inProd);
      const interest = setting.want('a', inTest);
      setting.apply({ puts: [cluster('a', '1')] });
      const puts = [cluster('a', '2', { constraints: prod }), cluster('a', 'of test', { constraints: test })];
      setting.apply({ puts, removals: [gone('a')] });
      setting.gate.discard();
      setting.store.removeInterest(interest);
      return setting;
    };
    const comesBack = (setting: Setting): void => {
      setting.want('a', inTest);
      setting.apply({ puts: [cluster('a', 'of test', { constraints: test })] });
    };
    it('what was discarded is no news for who had another variant before, and comes back', () => {
      const setting = swapped();
      for (let index = 0; index < 300; index++) passes(setting, `invented-${index}`, '2');
      comesBack(setting);
      expect([setting.both('a', inTest), setting.pending()]).to.deep.equal(['1 | 1', 'a discarded']);
    });
    it('what is kept of them has a bound, also if upstream has something else for each', () => {
      const setting = swapped();
      setting.apply({ puts: [cluster('a', '3', { constraints: prod })] });
      for (let index = 0; index < 300; index++) passes(setting, `invented-${index}`, `of ${index}`);
      expect(setting.gate.judgedContent(cds, resourceName('a'))).to.have.length.below(105);
    });
    it('what is kept back from clients that have left is known when they come back', () => {
      const setting = waiting();
      const interest = setting.want('a', inTest);
      setting.apply({ puts: [cluster('a', '1', { constraints: test })] });
      setting.apply({ puts: [cluster('a', '2', { constraints: test })] });
      setting.store.removeInterest(interest);
      isPast(setting);
      const { length } = setting.changes;
      setting.want('a', inTest);
      setting.apply({ puts: [cluster('a', '2', { constraints: test })] });
      expect(setting.changes.slice(length)).to.deep.equal([]);
    });
    it('what was discarded stays so while they are away, though who comes before has what upstream says', () => {
      const setting = new Setting();
      const interests = [inTest, inProd].map((parameters) => setting.want('a', parameters));
      const ofTest = cluster('a', '1', { constraints: test });
      setting.apply({ puts: [ofTest, cluster('a', '1', { constraints: prod })] });
      setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
      setting.gate.discard();
      for (const interest of interests) setting.store.removeInterest(interest);
      setting.want('a', inTest);
      setting.apply({ puts: [ofTest] });
      setting.want('a', inProd);
      setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
      expect([setting.both('a', inProd), setting.pending()]).to.deep.equal(['1 | 1', 'a discarded']);
    });
    it('in a freeze all stays as it was for who comes back', () => {
      const setting = waiting();
      setting.gate.freeze();
      isPast(setting);
      expect(kept(setting)[0]).to.equal(301);
    });
  });

  describe('freeze', () => {
    it('what waits of a type that is frozen is not released, nor when the type is gated no more', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2')] });
      setting.gate.freeze({ type: cds });
      setting.gate.release();
      setting.gate.gatedTypes(new Set());
      expect(setting.both('a')).to.equal('1 | 2');
    });
    it('nothing that is known changes, of any type, and new names come through', () => {
      const setting = new Setting();
      setting.want('*');
      setting.full({ a: '1', b: '1' });
      setting.gate.freeze();
      setting.full({ b: '2', c: '1' });
      expect([setting.both('a'), setting.both('b'), setting.both('c')]).to.deep.equal([
        '1 | 1',
        '1 | 1',
        '1 | 1',
      ]);
      const cla = (content: string) => put(eds, 'a', content, { version: content });
      setting.store.apply(transaction({ holder: namedHolder, type: eds, puts: [cla('1')] }));
      const commit = setting.store.apply(transaction({ holder: namedHolder, type: eds, puts: [cla('2')] }));
      expect([changed(commit, 'released'), changed(commit, 'canary')]).to.deep.equal(['', '']);
      setting.gate.unfreeze();
      expect(setting.both('b')).to.equal('1 | 2');
      expect([...setting.gate.pending].map(({ type: url }) => url)).to.not.include(eds);
    });
    it('what canaries have lost does not come back', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ removals: [gone('a')] });
      setting.gate.freeze();
      setting.apply({ puts: [cluster('a', '2')], resolved: [setting.want('a', inProd)] });
      expect([setting.both('a'), setting.both('a', inProd)]).to.deep.equal(['1 | absent', '1 | absent']);
      setting.gate.unfreeze();
      expect(setting.both('a')).to.equal('1 | 2');
    });
    it('what was pending stays as canaries have it', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.apply({ puts: [cluster('a', '2')] });
      setting.gate.freeze();
      setting.apply({ puts: [cluster('a', '3')] });
      expect(setting.both('a')).to.equal('1 | 2');
      setting.apply({ puts: [cluster('a', '1')] });
      expect(setting.both('a')).to.equal('1 | 2');
      setting.gate.unfreeze();
      expect(setting.both('a')).to.equal('1 | 1');
      expect(setting.pending()).to.equal('');
    });
    describe('while a change is in a later wave', () => {
      /** Canaries have `a` at 2, everybody at 1, and upstream says this in the freeze. */
      const frozenWith = (content: string): Setting => {
        const setting = new Setting();
        for (const name of ['a', 'b']) setting.want(name);
        setting.apply({ puts: [cluster('a', '1'), cluster('b', '1')] });
        setting.apply({ puts: [cluster('a', '2')] });
        setting.gate.queueing(() => true);
        setting.gate.freeze();
        setting.apply({ puts: [cluster('a', content), cluster('b', content)] });
        setting.gate.unfreeze();
        return setting;
      };
      it('ends with that change as canaries have it, and what came meanwhile behind it', () => {
        const setting = frozenWith('3');
        expect([setting.both('a'), setting.both('b')]).to.deep.equal(['1 | 2', '1 | 1']);
        expect(setting.pending()).to.equal('a queued behind, b queued');
        setting.gate.release();
        expect(setting.both('a')).to.equal('2 | 2');
        setting.gate.queueing(() => false);
        setting.gate.unqueue();
        expect([setting.both('a'), setting.both('b')]).to.deep.equal(['2 | 3', '1 | 3']);
      });
      it('goes on with that change as it is: it has neither changed nor ended', () => {
        const { joined, left } = frozenWith('3').changes.at(-1) ?? {};
        expect([joined, left]).to.deep.equal([[], ['b']]);
      });
      it('goes on with that change alone, where upstream has gone back to it', () => {
        const setting = frozenWith('2');
        expect([setting.both('a'), setting.pending()]).to.deep.equal(['1 | 2', 'a, b queued']);
      });
      it('has what upstream took back of it behind it', () => {
        const setting = frozenWith('1');
        expect([setting.both('a'), setting.pending()]).to.deep.equal(['1 | 2', 'a queued behind']);
      });
    });
    it('of one type or upstream leaves the others', () => {
      const setting = new Setting();
      setting.want('a');
      setting.apply({ puts: [cluster('a', '1')] });
      setting.gate.freeze({ type: eds });
      setting.gate.freeze({ upstream: 'another' });
      setting.apply({ puts: [cluster('a', '2')] });
      expect(setting.both('a')).to.equal('1 | 2');
    });
  });

  it('an alias of two resources means the same one while either is held, and when upstream goes back', () => {
    const setting = new Setting();
    setting.want('shared');
    const shared = { aliases: ['shared'] };
    const first = cluster('b', '1', shared);
    setting.apply({ puts: [first] });
    setting.apply({ puts: [cluster('a', '2', shared)] });
    expect(setting.both('shared')).to.equal('1 | 1');
    setting.apply({ puts: [cluster('a', '3', shared)] });
    expect(setting.both('shared')).to.equal('1 | 1');
    setting.apply({ removals: [gone('b')] });
    expect(setting.both('shared')).to.equal('1 | 3');
    setting.apply({ puts: [first] });
    expect(setting.both('shared')).to.equal('1 | 1');
  });
  describe('a rollback leaves an alias what it was', () => {
    const shared = { aliases: ['shared'] };
    let setting: Setting;
    const of = (upstream: string) => ({ holder: { ...wildcardHolder, key: upstream, upstream } });
    const now = (...names: readonly string[]) =>
      new Map(
        names.map((one) => [resourceName(one), setting.gate.contentOf(cds, resourceName(one), 'released')]),
      );

    beforeEach(() => {
      setting = new Setting();
      setting.want('*');
      setting.want('shared');
      setting.apply({ ...of('A'), puts: [cluster('b', 'b1', shared)] });
      setting.apply({ ...of('B'), puts: [cluster('a', 'a1', shared)] });
      expect(setting.both('shared')).to.equal('b1 | b1');
    });

    it('where it is of one of two', () => {
      const earlier = now('b');
      setting.apply({ ...of('A'), puts: [cluster('b', 'b2', shared)] });
      setting.gate.release();
      expect(setting.both('shared')).to.equal('b2 | b2');
      setting.gate.freeze({ type: cds });
      setting.gate.replace(cds, earlier, { type: cds, upstream: 'A' });
      expect(setting.both('shared')).to.equal('b1 | b1');
    });

    it('where it changes nothing', () => {
      setting.gate.replace(cds, now('b'), { type: cds, upstream: 'A' });
      expect(setting.pending()).to.equal('');
      expect(setting.both('shared')).to.equal('b1 | b1');
    });

    it('where it is of both', () => {
      const earlier = now('a', 'b');
      setting.apply({ ...of('A'), puts: [cluster('b', 'b2', shared)] });
      setting.gate.release();
      expect(setting.both('shared')).to.equal('b2 | b2');
      setting.gate.freeze({ type: cds });
      setting.gate.replace(cds, earlier);
      expect(setting.both('shared')).to.equal('b1 | b1');
      setting.gate.unfreeze();
      expect(setting.both('shared')).to.equal('b1 | b2');
      setting.gate.release();
      expect(setting.both('shared')).to.equal('b2 | b2');
    });
  });
  it('a rollback is told to those whose variant it removes', () => {
    const setting = new Setting();
    for (const parameters of [inProd, inTest]) setting.want('a', parameters);
    const [ofProd, ofTest] = [prod, test].map((constraints) => cluster('a', '1', { constraints }));
    if (ofProd === undefined || ofTest === undefined) throw new Error('there are two');
    setting.apply({ puts: [ofTest] });
    const earlier = setting.gate.contentOf(cds, resourceName('a'), 'released');
    setting.apply({ puts: [ofProd] });
    setting.apply({ removals: [gone('a', prod)] });
    expect(setting.both('a', inProd)).to.equal('1 | absent');
    setting.gate.replace(cds, new Map([[resourceName('a'), earlier]]));
    expect(setting.see('released', 'a', inProd)).to.equal('absent');
    const told = setting.published.at(-1)?.changed.get(resourceName('a')) ?? [];
    expect(told.some((constraints) => constraints.matches(inProd))).to.equal(true);
  });
  it('a rollback shows earlier contents to everybody, until unfreeze', () => {
    const setting = new Setting();
    setting.want('*');
    setting.full({ a: '1' });
    const contents = new Map([
      [resourceName('a'), setting.gate.contentOf(cds, resourceName('a'), 'released')],
    ]);
    setting.full({ a: '2', b: '1' });
    setting.gate.release();
    setting.gate.freeze({ type: cds });
    setting.gate.replace(cds, contents);
    expect([setting.both('a'), setting.both('b')]).to.deep.equal(['1 | 1', 'unknown | unknown']);
    expect([setting.members('released'), setting.members('canary')]).to.deep.equal(['a', 'a']);
    setting.full({ a: '3', b: '2' });
    expect([setting.both('a'), setting.both('b')]).to.deep.equal(['1 | 1', 'unknown | unknown']);
    setting.gate.unfreeze();
    expect([setting.both('a'), setting.both('b')]).to.deep.equal(['1 | 3', 'unknown | 2']);
    setting.gate.release();
    expect([setting.both('a'), setting.both('b')]).to.deep.equal(['3 | 3', '2 | 2']);
  });
  it('a rollback leaves everybody the variant that they have, where several match', () => {
    const setting = new Setting();
    setting.want('a', inProd);
    setting.apply({ puts: [cluster('a', '1', { constraints: prod })] });
    setting.apply({ puts: [cluster('a', 'for all')], resolved: [setting.want('a', inTest)] });
    const a = resourceName('a');
    const earlier = setting.gate.contentOf(cds, a, 'released');
    setting.apply({ puts: [cluster('a', '2', { constraints: prod })] });
    setting.gate.release();
    const seen = () => [inProd, inTest].map((parameters) => setting.both('a', parameters));
    expect(seen()).to.deep.equal(['2 | 2', 'for all | for all']);
    setting.gate.freeze({ type: cds });
    setting.gate.replace(cds, new Map([[a, earlier]]));
    expect(seen()).to.deep.equal(['1 | 1', 'for all | for all']);
  });
  for (const [what, selector, shared] of [
    ['by its name', 'a', {}],
    ['by an alias', 'shared', { aliases: ['shared'] }],
    ['by a wildcard', '*', {}],
  ] as const)
    it(`nor does it give who has come since what they never had, where they match that too: ${what}`, () => {
      const setting = new Setting();
      const a = resourceName('a');
      const says = (...puts: readonly Put[]): Commit =>
        setting.apply({ holder: wildcardHolder, puts, complete: true });
      setting.want(selector, inProd);
      says(cluster('a', 'for all', shared));
      const earlier = setting.gate.contentOf(cds, a, 'released');
      const ofProd = cluster('a', 'prod', { constraints: prod, ...shared });
      says(ofProd);
      setting.gate.release();
      setting.want(selector, inTest);
      says(ofProd, cluster('a', 'test', { constraints: test, ...shared }));
      const name = selector === '*' ? 'a' : selector;
      const seen = () => [inProd, inTest].map((parameters) => setting.both(name, parameters));
      expect(seen()).to.deep.equal(['prod | prod', 'test | test']);
      const ofTest = setting.gate
        .contentOf(cds, a, 'released')
        .filter(({ variant }) => variant.constraints.key === test.key);
      setting.gate.freeze({ type: cds });
      setting.gate.replace(cds, new Map([[a, [...earlier, ...ofTest]]]));
      expect(seen()).to.deep.equal(['for all | for all', 'test | test']);
    });
  it('what a rollback has removed stays away until no freeze is left that may mean it', () => {
    const setting = new Setting();
    setting.want('*');
    setting.full({ a: '1', late: '1' });
    const a = resourceName('a');
    setting.gate.freeze({ type: cds });
    setting.gate.freeze({ upstream: 'another' });
    setting.gate.replace(cds, new Map([[a, setting.gate.contentOf(cds, a, 'released')]]));
    // Nothing but its name is known while upstream does not say it.
    setting.full({ a: '1' });
    setting.gate.unfreeze({ upstream: 'another' });
    setting.full({ a: '1', late: '1' });
    expect(setting.both('late')).to.equal('unknown | unknown');
    setting.full({ a: '1' });
    setting.gate.unfreeze({ type: cds });
    setting.full({ a: '1', late: '1' });
    expect(setting.both('late'), 'new, as any other').to.equal('1 | 1');
  });
  it('the last good state outlives its interest, unless the cache needs the room', () => {
    const setting = new Setting();
    const interest = setting.want('a');
    setting.apply({ puts: [cluster('a', '1')] });
    setting.apply({ puts: [cluster('a', '2')] });
    setting.store.removeInterest(interest);
    setting.want('a');
    expect(setting.see('released', 'a')).to.equal('1');
    setting.apply({ puts: [cluster('a', '2')] });
    expect(setting.both('a')).to.equal('1 | 2');
    const isEnough = (): boolean => setting.store.bytes === 0;
    setting.gate.dropUnwanted(isEnough);
    expect(setting.both('a')).to.equal('1 | 2');
    setting.store.removeInterest(interest);
    setting.gate.dropUnwanted(isEnough);
    expect(setting.store.bytes).to.equal(0);
  });
});
