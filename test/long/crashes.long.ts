import { expect } from 'chai';
import { crash } from '../cache/persistence/crashes.ts';

describe('persistence and kill -9, often', function () {
  this.timeout(3_600_000);

  it('500 times at random moments: what is loaded is always one whole revision', async () => {
    const { kept, lost, moved } = await crash(500, Math.random);
    console.log(
      `${kept} revisions loaded, ${lost} not on disk yet, ${moved} crashes in the midst of changes`,
    );
    expect(moved).to.be.above(250);
  });
});
