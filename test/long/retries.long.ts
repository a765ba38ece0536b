import { expect } from 'chai';
import { retryCost } from '../e2e/support/retry-cost.ts';

const seconds = 60;

describe('a control plane that is away for a minute', function () {
  this.timeout(300_000);

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`(${protocol}) costs under 1 % of a core, and no line in the log`, async () => {
      const { up, down, lines } = await retryCost(seconds, protocol);
      console.log(`CPU with it ${up.toFixed(2)} s, without it ${down.toFixed(2)} s, in ${seconds} s`);
      expect(down - up).to.be.lessThan(seconds / 100);
      const [lost, retrying, back] = lines;
      expect(lost.length).to.be.within(1, 2);
      expect(retrying).to.deep.equal([]);
      expect(back.map(({ message }) => message)).to.deep.equal(['connected to the control plane']);
    });
  }
});
