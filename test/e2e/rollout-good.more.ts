import { expect } from 'chai';
import { makeGoodChanges } from './support/good-changes.ts';
import { prepare, type Setting } from './support/setting.ts';

const changes = 30;

describe('good changes, ten Envoys under constant requests', function () {
  this.timeout(900_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  it(`${changes} of them: waves, traffic, a check and the guard hold none, and no request fails`, async () => {
    const { bad, failures, requests } = await makeGoodChanges(setting, changes);
    expect(Object.entries(bad).filter(([, count]) => count > 0)).to.deep.equal([]);
    expect(failures).to.deep.equal([]);
    expect(requests).to.be.above(changes);
  });
});
