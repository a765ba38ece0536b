import { expect } from 'chai';
import { cases } from '../support/cases.ts';
import { type EnvoySetting, prepareEnvoy } from './support/setting.ts';
import { type Swaps, swapClusters } from './support/swaps.ts';

type Way = Pick<Swaps, 'transport' | 'protocol'>;
const ways: readonly [Way, ...Way[]] = [
  { transport: 'ads-delta', protocol: 'DELTA' },
  { transport: 'ads-sotw', protocol: 'SOTW' },
  { transport: 'ads-sotw', protocol: 'DELTA' },
  { transport: 'ads-delta', protocol: 'SOTW' },
];
/** So much that Envoy is busy with it while the next responses come. */
const busy = { size: 200_000, window: 65_535 };

/**
 * What the relay adds to that can be seen here too: if it does not let routes wait for clusters to get warm, a quarter of
 * the requests fail, and as many if removals do not wait for routes.
 */
describe('make before break: a real Envoy under constant requests while clusters are swapped', () => {
  let setting: EnvoySetting;

  before(async function () {
    setting = await prepareEnvoy(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const way of cases(...ways)) {
    it(`§8 Envoy ${way.transport}, upstream ${way.protocol}: 50 swaps, coalesced, and no failed request`, async () => {
      const outcome = await swapClusters(setting, { ...way, ...busy, swaps: 50, order: 'make before break' });
      expect([...outcome.answers.keys()].toSorted(), show(outcome.answers)).to.deep.equal([
        '200 one',
        '200 two',
      ]);
      expect(outcome.coalesced).to.be.greaterThan(0);
    });
  }

  it('§8.6 a control plane that breaks before it makes costs requests with removal_grace 0, and none without', async () => {
    for (const way of ways.slice(0, 2)) {
      const broken = { ...way, ...busy, swaps: 4, order: 'broken' } as const;
      const { answers } = await swapClusters(setting, { ...broken, removal_grace: '0s' });
      expect(answers.get('503'), show(answers)).to.be.greaterThan(0);
      const kept = (await swapClusters(setting, broken)).answers;
      expect([...kept.keys()].toSorted(), show(kept)).to.deep.equal(['200 one', '200 two']);
    }
  });
});

const show = (answers: ReadonlyMap<string, number>): string => JSON.stringify(Object.fromEntries(answers));
