import { replaceAllButOne } from '../e2e/support/replaced-replicas.ts';

describe('siblings, many', function () {
  this.timeout(300_000);

  it('ten replicas, no control plane, nine replaced one after the other: every client has everything all the time', async () => {
    await replaceAllButOne(10);
  });
});
