import { expect } from 'chai';
import { namedSelection } from '../../src/downstream/type-stream.ts';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { SelectionEntry } from '../../src/model/selection.ts';

const selected = (name: string): SelectionEntry => ({
  selector: resourceName(name),
  requestedName: name,
  locator: false,
  parameters: NO_PARAMETERS,
  locatorParameters: undefined,
});
const everything = selected('*');

describe('the names of SotW requests', () => {
  const selections: readonly (readonly [names: readonly string[], expected: readonly string[]])[] = [
    [[], ['*']],
    [['a'], ['a']],
    [
      ['*', 'a'],
      ['*', 'a'],
    ],
    [[''], []],
    [['', ''], []],
    [
      ['', 'a'],
      ['', 'a'],
    ],
  ];
  for (const [names, expected] of selections) {
    it(`§3.6 [${names.join(' ')}] subscribes to [${expected.join(' ')}]`, () => {
      const selection = namedSelection(names.map(selected), everything);
      expect([...selection.entries.values()].map(({ requestedName }) => requestedName)).to.deep.equal(
        expected,
      );
    });
  }

  it('§3.6 without a legacy wildcard nothing named is nothing', () => {
    expect(namedSelection([], undefined).size).to.equal(0);
  });
});
