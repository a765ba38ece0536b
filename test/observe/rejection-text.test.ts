import { expect } from 'chai';
import { rejectedText } from '../../src/observe/problems.ts';

describe('what was rejected, in words', () => {
  const whole: Parameters<typeof rejectedText>[0] = { name: '', names: [], changed: 0, removal: false };
  const cases: readonly [Partial<typeof whole>, string][] = [
    [{}, 'the whole response'],
    [{ name: 'web', names: ['web'], changed: 1 }, 'web'],
    [{ name: 'web', names: ['web'], changed: 1, removal: true }, 'removal of web'],
    [{ names: ['a', 'b'], changed: 2 }, 'one of a, b'],
    [{ names: ['a', 'b'], changed: 3 }, 'one of a, b and 1 more'],
    [{ names: ['a', 'b'], changed: 12 }, 'one of a, b and 10 more'],
  ];
  for (const [rejected, text] of cases)
    it(text, () => expect(rejectedText({ ...whole, ...rejected })).to.equal(text));
});
