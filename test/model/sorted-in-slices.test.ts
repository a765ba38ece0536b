import { expect } from 'chai';
import * as fc from 'fast-check';
import { systemClock } from '../../src/model/clock.ts';
import { Pace, sortedInSlices } from '../../src/model/time-slices.ts';

describe('a sort that makes pauses', () => {
  it('is stable, whatever the length', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(20_000), fc.nat(1000), async (length, keys) => {
        const list = Array.from({ length }, (_, at) => ({ key: (at * 7919) % (keys + 1), at }));
        const compare = (a: { key: number }, b: { key: number }) => a.key - b.key;
        const sorted = await sortedInSlices(list, compare, new Pace(systemClock));
        expect(sorted).to.deep.equal(list.toSorted(compare));
      }),
      { numRuns: 20 },
    );
  });
});
