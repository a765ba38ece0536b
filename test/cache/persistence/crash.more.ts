import { expect } from 'chai';
import { crash } from './crashes.ts';

describe('persistence and kill -9, often', function () {
  this.timeout(900_000);

  it('40 times at random moments: what is loaded is always one whole revision', async () => {
    const { moved } = await crash(40, Math.random);
    expect(moved).to.be.at.least(10); // or the kills did not meet the writes
  });
});
