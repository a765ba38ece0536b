import { expect } from 'chai';
import fc from 'fast-check';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import { type Item, pruneChain, valueAt } from '../../src/views/item.ts';

/** An item that was touched at these revisions; every other time it went. */
function itemAt(revisions: readonly number[]): Item {
  const item: Item = {
    id: ' a',
    name: resourceName('a'),
    requestedName: 'a',
    locator: false,
    parameters: NO_PARAMETERS,
    named: true,
    last: { revision: revisions[0] ?? 0, value: 'unknown', older: undefined },
  };
  for (const revision of revisions.slice(1)) {
    const value = item.last.value === 'absent' ? 'unknown' : 'absent';
    item.last = { revision, value, older: item.last };
  }
  return item;
}

function revisionsOf(item: Item): number[] {
  const revisions: number[] = [];
  for (let entry: typeof item.last | undefined = item.last; entry !== undefined; entry = entry.older) {
    revisions.push(entry.revision);
  }
  return revisions;
}

describe('the history of an item', () => {
  const rows: readonly (readonly [readonly number[], readonly number[], readonly number[]])[] = [
    [[1, 2, 3], [], [3]],
    [[1, 2, 3], [3], [3]],
    [[1, 2, 3], [9], [3]],
    [[1, 2, 3], [2], [3, 2]],
    [[1, 2, 3], [1], [3, 1]],
    [[1, 2, 3], [0], [3]],
    [
      [1, 3, 5, 7, 9],
      [4, 6],
      [9, 5, 3],
    ],
    [
      [1, 3, 5, 7, 9],
      [3, 4],
      [9, 3],
    ],
    [
      [1, 3, 5, 7, 9],
      [0, 8],
      [9, 7],
    ],
  ];
  for (const [revisions, standing, left] of rows) {
    it(`of ${revisions.join(' ')} with cursors at [${standing.join(' ')}] is pruned to ${left.join(' ')}`, () => {
      const item = itemAt(revisions);
      pruneChain(item.last, standing);
      expect(revisionsOf(item)).to.deep.equal(left);
    });
  }

  it('shows every cursor after pruning what it did before, in no more entries than cursors and a head', () => {
    const revisions = fc
      .uniqueArray(fc.nat(60), { minLength: 1, maxLength: 30 })
      .map((list) => list.toSorted((a, b) => a - b));
    const cursors = fc
      .uniqueArray(fc.nat(60), { maxLength: 8 })
      .map((list) => list.toSorted((a, b) => a - b));
    fc.assert(
      fc.property(revisions, cursors, (all, standing) => {
        const item = itemAt(all);
        const before = standing.map((revision) => valueAt(item, revision));
        const head = item.last.value;
        pruneChain(item.last, standing);
        expect(standing.map((revision) => valueAt(item, revision))).to.deep.equal(before);
        expect(item.last.value).to.equal(head);
        expect(revisionsOf(item).length).to.be.lessThan(standing.length + 2);
      }),
    );
  });
});
