import { expect } from 'chai';
import { Rate } from '../../src/model/clock.ts';

describe('Rate', () => {
  it('lets a second’s worth pass at once, and then one at a time', () => {
    const rate = new Rate(() => 4, 0);
    expect([0, 0, 0, 0, 0].map((now) => rate.spend(now))).to.deep.equal([0, 0, 0, 0, 250]);
  });

  // Spent at these times, at four a second: the milliseconds to wait after the last one.
  const rows: readonly (readonly [readonly number[], number])[] = [
    [[0], 0],
    [[0, 0, 0, 0, 0, 0], 500],
    [[0, 0, 0, 0, 0, 250], 250],
    [[0, 0, 0, 0, 0, 500], 0],
    [[0, 250, 500, 750, 1000, 1250, 1500], 0],
    [[0, 0, 0, 0, 60_000, 60_000, 60_000, 60_000], 0],
    [[0, 0, 0, 0, 60_000, 60_000, 60_000, 60_000, 60_000], 250],
  ];
  for (const [times, wait] of rows) {
    it(`at ${times.join(', ')} ms: wait ${wait}`, () => {
      const rate = new Rate(() => 4, 0);
      expect(times.map((now) => rate.spend(now)).at(-1)).to.be.closeTo(wait, 0.001);
    });
  }
});
