import { expect } from 'chai';
import { namedSelection } from '../../src/downstream/type-stream.ts';
import { resourceName } from '../../src/model/brand.ts';
import { NO_PARAMETERS } from '../../src/model/parameters.ts';
import type { SelectionEntry } from '../../src/model/selection.ts';

const selected = (name: string): SelectionEntry => ({
  selector: resourceName(name),
  spelling: name,
  locator: false,
  parameters: NO_PARAMETERS,
  locatorParameters: undefined,
});
const everything = selected('*');

describe('the names of SotW requests', () => {
  const selections: readonly (readonly [readonly (readonly string[])[], readonly string[] | undefined])[] = [
    [[[]], ['*']],
    [[[], []], ['*']],
    [[['a']], ['a']],
    [[['a'], []], []],
    [[[], ['a'], []], []],
    [[['*'], []], []],
    [[['*', 'a'], ['a']], ['a']],
    [[['a'], [], ['*']], ['*']],
    [[['']], []],
    [[[''], []], []],
    [[['', '']], []],
    [[[], ['']], []],
    [[['', 'a']], ['', 'a']],
  ];
  for (const [requests, expected] of selections) {
    const said = requests.map((names) => `[${names.join(' ')}]`).join(' ');
    it(`§3.6 ${said} subscribes to [${expected?.join(' ')}]`, () => {
      const results = requests.map((names, index) => {
        const hasNamed = requests.slice(0, index).some((before) => before.length > 0);
        return namedSelection(names.map(selected), hasNamed, everything);
      });
      const last = [...(results.at(-1)?.entries.values() ?? [])];
      expect(last.map(({ spelling }) => spelling)).to.deep.equal(expected);
    });
  }

  it('§3.6 without a legacy wildcard nothing named is nothing', () => {
    expect(namedSelection([], false, undefined).size).to.equal(0);
  });
});
