import { expect } from 'chai';
import { resourceName } from '../../src/model/brand.ts';
import { nameKey } from '../../src/model/holds.ts';
import type { PendingName } from '../../src/model/rollout.ts';
import type { Member } from '../../src/releases/canaries.ts';
import { Changes } from '../../src/releases/changes.ts';
import { unjudged } from '../../src/releases/judge.ts';
import { type WaitingNames, waitingNames } from '../../src/releases/waiting.ts';
import { type } from '../support/in-memory-relay.ts';
import { Random } from '../support/random.ts';

const cds = type('cds');
const key = (name: string): string => nameKey(cds, resourceName(name));
const keys = (names: string): ReadonlySet<string> => new Set((names === '' ? [] : names.split('')).map(key));
const waiting = (names: string): WaitingNames =>
  waitingNames(
    names.split('').map(
      (name): PendingName => ({
        type: cds,
        name: resourceName(name),
        key: key(name),
        upstream: 'central',
        since: 0,
        removed: false,
        masked: undefined,
        seen: true,
        queued: false,
      }),
    ),
  );
const member = (classKey: string, ...names: readonly string[]): Member => ({
  nodeKey: classKey,
  place: 0,
  classKey,
  mayBeCanary: true,
  cohort: 'released',
  subscribed: new Set(names.map(keys)),
});

/** Each row as its names and its classes. */
function rowsOf(names: string, members: readonly Member[], bonds: readonly string[] = []): readonly string[] {
  const changes = new Changes();
  changes.arrange(waiting(names), new Set(), waiting(''), members, bonds.map(keys), new Set(), unjudged, 0);
  return told(changes);
}

const told = ({ rows }: Changes): readonly string[] =>
  rows
    .map(
      ({ names, classes }) => `${names.map(({ name }) => name).join('')} ${[...classes].toSorted().join('')}`,
    )
    .toSorted();

describe('the changes that wait', () => {
  it('names of classes that share nothing are apart', () => {
    expect(rowsOf('ab', [member('X', 'a'), member('Y', 'b')])).to.deep.equal(['a X', 'b Y']);
  });

  it('a class that subscribes to two names joins them, and classes that share a name', () => {
    expect(rowsOf('ab', [member('X', 'a', 'b')])).to.deep.equal(['ab X']);
    expect(rowsOf('abcd', [member('X', 'ab'), member('Y', 'bc'), member('Z', 'd')])).to.deep.equal([
      'abc XY',
      'd Z',
    ]);
  });

  it('what nobody subscribes to is one change, but for what a verdict is about', () => {
    expect(rowsOf('abcde', [member('X', 'a')], ['cd'])).to.deep.equal(['a X', 'be ', 'cd ']);
  });

  it('what does not wait joins nothing', () => {
    expect(rowsOf('ab', [member('X', 'az'), member('Y', 'bz')], ['z'])).to.deep.equal(['a X', 'b Y']);
  });

  it('a row keeps its times while others come and go', () => {
    const changes = new Changes();
    const one = [member('X', 'a'), member('Y', 'b')];
    changes.arrange(waiting('a'), new Set(), waiting(''), one, [], keys('a'), unjudged, 1);
    changes.arrange(waiting('ab'), new Set(), waiting(''), one, [], keys('b'), unjudged, 2);
    const startedAt = () => changes.rows.map(({ judge }) => judge.startedAt);
    expect(startedAt()).to.deep.equal([1, 2]);
    changes.arrange(waiting('ab'), new Set(), waiting(''), [member('X', 'ab')], [], new Set(), unjudged, 3);
    expect(startedAt()).to.deep.equal([1]);
    changes.arrange(waiting('b'), new Set(), waiting(''), one, [], new Set(), unjudged, 4);
    expect(startedAt()).to.deep.equal([1]);
  });

  it('many that are held, and what is asked of each name, cost nothing by how many there are beside each', () => {
    const changes = new Changes();
    const names = 'abcdefghijklmnopqrstuvwxyz';
    const members = names.split('').map((name) => member(name, name));
    changes.arrange(waiting(names), new Set(), waiting(''), members, [], new Set(), unjudged, 0);
    let looks = 0;
    for (const { keys: own, judge } of changes.rows) {
      judge.hold(0, { cause: 'rejected', reason: 'a test' });
      const [has, isDisjointFrom] = [own.has.bind(own), own.isDisjointFrom.bind(own)];
      own.has = (one) => {
        looks++;
        return has(one);
      };
      own.isDisjointFrom = (others) => {
        looks++;
        return isDisjointFrom(others);
      };
    }
    changes.endedHolds();
    expect(changes.endedHolds()).to.deep.equal([]);
    for (const name of names)
      expect(changes.isQueued({ type: cds, name: resourceName(name) }, false)).to.equal(false);
    expect(looks).to.be.at.most(names.length);
  });

  it('are the components of names and classes', () => {
    for (let seed = 1; seed <= 200; seed++) {
      const random = new Random(seed);
      const some = (): string =>
        'abcdefgh'
          .split('')
          .filter(() => random.next() < 0.2)
          .join('');
      const members = 'TUVWXYZ'.split('').map((classKey) => member(classKey, some(), some()));
      const changes = new Changes();
      changes.arrange(waiting('abcdefgh'), new Set(), waiting(''), members, [], new Set(), unjudged, 0);
      expect(changes.rows.flatMap(({ names }) => names)).to.have.length(8);
      for (const { classKey, subscribed } of members) {
        const own = new Set([...subscribed].flatMap((names) => [...names]));
        const rows = changes.rows.filter((row) => !row.keys.isDisjointFrom(own));
        expect(rows.length, `seed ${seed}`).to.equal(own.size === 0 ? 0 : 1);
        expect(rows.every(({ classes }) => classes.has(classKey))).to.equal(true);
      }
    }
  });
});
