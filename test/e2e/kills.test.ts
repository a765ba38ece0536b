import { expect } from 'chai';
import { killUpstream } from './support/kills.ts';

describe('upstream is killed at random moments', () => {
  for (const protocol of ['DELTA', 'SOTW'] as const) {
    it(`(${protocol}) 50 clients are only told what it had, lose only what it lacked, and agree with it in the end`, async () => {
      const seed = Date.now() % 1_000_000;
      const problems = await killUpstream({ kills: 5, clients: 50, protocol, seed });
      expect(problems, `seed ${seed}`).to.deep.equal([]);
    });
  }
});
