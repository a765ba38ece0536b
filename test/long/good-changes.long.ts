import { expect } from 'chai';
import { makeGoodChanges } from '../e2e/support/good-changes.ts';
import { prepare, type Setting } from '../e2e/support/setting.ts';

const changes = 1000;

describe('good changes, ten Envoys under constant requests', function () {
  this.timeout(3_600_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it(`${changes} of them: waves, traffic, a check and the guard hold none, and no request fails`, async () => {
    const { bad, failures, requests, released, seconds } = await makeGoodChanges(setting, changes);
    console.log(
      `${released} judged, ${requests} requests in ${Math.round(seconds)} s: ${JSON.stringify(bad)}`,
    );
    expect(Object.entries(bad).filter(([, count]) => count > 0)).to.deep.equal([]);
    expect(failures).to.deep.equal([]);
    expect(requests).to.be.above(changes);
  });
});
