import { expect } from 'chai';
import { rejectedText } from '../../src/observe/problems.ts';

describe('what was rejected, in words', () => {
  const nothing = { names: [], total: 0, removal: false };
  const cases: readonly [Parameters<typeof rejectedText>[0], string][] = [
    [{ name: '', changes: nothing }, 'the whole response'],
    [{ name: 'web', changes: { ...nothing, names: ['web'], total: 1 } }, 'web'],
    [{ name: 'web', changes: { names: ['web'], total: 1, removal: true } }, 'removal of web'],
    [{ name: '', changes: { ...nothing, names: ['a', 'b'], total: 2 } }, 'one of a, b'],
    [{ name: '', changes: { ...nothing, names: ['a', 'b'], total: 3 } }, 'one of a, b and 1 more'],
    [{ name: '', changes: { ...nothing, names: ['a', 'b'], total: 12 } }, 'one of a, b and 10 more'],
  ];
  for (const [rejected, text] of cases) it(text, () => expect(rejectedText(rejected)).to.equal(text));
});
