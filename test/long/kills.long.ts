import { expect } from 'chai';
import { killUpstream } from '../e2e/support/kills.ts';

describe('upstream is killed at random moments, often', function () {
  this.timeout(600_000);

  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`(${protocol}) 100 times, with 50 clients`, async () => {
      const seed = Date.now() % 1_000_000;
      const problems = await killUpstream({ kills: 100, clients: 50, protocol, seed });
      expect(problems, `seed ${seed}`).to.deep.equal([]);
    });
  }
});
