import { expect } from 'chai';
import { eventually } from './support/eventually.ts';
import { ResourceFiles } from './support/files.ts';
import { Reader } from './support/reading-fleet.ts';
import { RelayProcess } from './support/relay.ts';
import { runSlowClients } from './support/slow-clients.ts';

const MB = 1024 * 1024;

describe('clients that do not read', function () {
  this.timeout(300_000);

  it('hold up no update for the others, hold one pending state at most, and then get the newest', async () => {
    const outcome = await runSlowClients({ streams: 100, stalled: 10, size: 36_000, updates: 50 });
    expect(outcome.missed).to.equal(0);
    expect(outcome.growth).to.be.below(50 * MB);
    for (const versions of outcome.afterwards) {
      // What its own buffers and its window of 64 KB hold, the rest of one, and then the newest: nothing was queued.
      expect(versions.length).to.be.within(1, 6);
      expect(versions.at(-1)).to.equal(outcome.newest);
    }
  });

  it('are ended past limits.stalled_timeout, with a status, and counted', async () => {
    using files = new ResourceFiles();
    const state = (content: string): ReadonlyMap<string, string> => new Map([['a', content.repeat(300_000)]]);
    files.write('cds', state('a'));
    await using relay = await RelayProcess.start({
      upstreams: [files.upstream],
      limits: { stalled_timeout: '4s' },
    });
    const reader = new Reader(relay.xds, 'stalled', 65_535);
    try {
      await eventually(() => {
        if (reader.versions.length === 0) throw new Error('no first state');
      });
      reader.stall();
      files.write('cds', state('b'));
      await eventually(async () => {
        expect(await relay.metric('downstream_rejected_total', 'reason="stalled"')).to.equal(1);
      });
      await eventually(async () => {
        expect(await relay.metric('downstream_streams')).to.equal(0);
      });
    } finally {
      reader.close();
    }
  });
});
