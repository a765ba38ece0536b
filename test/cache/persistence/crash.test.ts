import { expect } from 'chai';
import { crash } from './crashes.ts';

describe('persistence and kill -9', () => {
  it('8 times at random moments: what is loaded is always one whole revision', async () => {
    const { moved } = await crash(8, Math.random);
    expect(moved).to.be.at.least(2); // or the kills did not meet the writes
  });
});
