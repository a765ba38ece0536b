import { expect } from 'chai';
import { prepare, type Setting } from './support/setting.ts';
import { type SnapshotSwaps, swapSnapshots } from './support/snapshot-swaps.ts';

interface Way extends Omit<SnapshotSwaps, 'swaps'> {
  readonly named?: string;
}

const ways: readonly Way[] = [
  { transport: 'ads-delta', protocol: 'DELTA', ordered: false },
  { transport: 'ads-delta', protocol: 'DELTA', ordered: true },
  { transport: 'ads-sotw', protocol: 'SOTW', ordered: false },
  { transport: 'ads-sotw', protocol: 'SOTW', ordered: true },
  { transport: 'delta-grpc', protocol: 'DELTA', ordered: false, named: 'a stream for each type' },
  { transport: 'grpc', protocol: 'SOTW', ordered: false, named: 'a stream for each type' },
  { transport: 'rest', protocol: 'DELTA', ordered: false, named: 'polls' },
  { transport: 'rest', protocol: 'SOTW', ordered: true, relays: [{}, {}], named: 'polls, two tiers' },
  { transport: 'rest', protocol: 'DELTA', ordered: false, restart: true, named: 'polls, a restart' },
  // Over HTTP/1.1 they go to all workers, and those do not know of each other (§8.6).
  {
    transport: 'rest',
    http2: true,
    protocol: 'DELTA',
    ordered: false,
    relays: [{ workers: 2 }],
    named: 'polls over HTTP/2, workers',
  },
  { transport: 'ads-delta', protocol: 'DELTA', ordered: false, relays: [{ workers: 2 }], named: 'workers' },
  {
    transport: 'delta-grpc',
    protocol: 'DELTA',
    ordered: false,
    relays: [{ workers: 2 }],
    named: 'a stream for each type, workers',
  },
  { transport: 'ads-sotw', protocol: 'DELTA', ordered: true, relays: [{}, {}], named: 'two tiers' },
  { transport: 'ads-delta', protocol: 'DELTA', ordered: false, restart: true, named: 'a restart' },
  { transport: 'ads-delta', protocol: 'DELTA', ordered: false, away: true, named: 'while away' },
];
/** More of them by hand, and at go-control-plane directly. */
const swaps = Number(process.env['SWAPS'] ?? 15);
/** On a machine that is too slow for Envoy's polls, every 200 ms, a run says nothing. */
const attempts = 4;
const isDirect = process.env['SWAPS_DIRECT'] === 'yes';

/** Control planes send each type as a response of its own: what belongs together comes in any order, and with pauses. */
describe('snapshots: a real Envoy under 200 requests a second while all that they hold is replaced', function () {
  this.timeout(600_000);
  let setting: Setting;

  before(async function () {
    setting = await prepare(this);
  });

  after(async () => {
    await setting?.[Symbol.asyncDispose]();
  });

  for (const { named = 'ADS', ...way } of ways) {
    it(`§8.6, §8.7 Envoy ${way.transport}, upstream ${way.protocol}, ads=${way.ordered}, ${named}: no failed request`, async () => {
      const protocol = isDirect ? undefined : way.protocol;
      let outcome = await swapSnapshots(setting, { ...way, protocol, swaps });
      // A wait for a client that does not poll in time ends by its bound, and then requests may fail (§8.7).
      for (let at = 1; at < attempts && outcome.failed > 0 && outcome.overdue > 0; at++)
        outcome = await swapSnapshots(setting, { ...way, protocol, swaps });
      const { failed, total, answers, overdue } = outcome;
      const all = `${JSON.stringify(Object.fromEntries(answers))}, waited in vain: ${overdue}`;
      if (process.env['SWAPS'] !== undefined) process.stdout.write(`    ${failed} of ${total}: ${all}\n`);
      expect(failed, all).to.equal(0);
    });
  }
});
