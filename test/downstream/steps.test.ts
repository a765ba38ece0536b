import { expect } from 'chai';
import { SotwNames } from '../../src/downstream/steps.ts';
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

describe('SotwNames', () => {
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
      const named = new SotwNames();
      const results = requests.map((names) => named.selection(names.map(selected), everything));
      const last = [...(results.at(-1)?.entries.values() ?? [])];
      expect(last.map(({ spelling }) => spelling)).to.deep.equal(expected);
    });
  }

  it('§3.6 without a legacy wildcard nothing named is nothing', () => {
    expect(new SotwNames().selection([], undefined).size).to.equal(0);
  });
});
