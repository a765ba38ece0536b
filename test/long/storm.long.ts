import { expect } from 'chai';
import { endpointsAskedFor, storm } from '../e2e/support/storm.ts';

const clients = 5000;
const MB = 1024 * 1024;

describe(`a storm: ${clients} clients on as many connections, after a restart with a persisted cache`, function () {
  this.timeout(600_000);

  for (const upstream of ['up', 'down'] as const) {
    it(`upstream ${upstream}: it hears of each interest once; nobody is sent again what it has`, async () => {
      const outcome = await storm({ clients, connections: clients, upstream });
      const [before, after] = outcome.rss.map((bytes) => Math.round(bytes / MB));
      console.log(
        `upstream ${upstream}: all connected after ${Math.round(outcome.connected)} ms (${outcome.cpu.toFixed(1)} s of CPU), the next change at the last after ` +
          `${Math.round(outcome.served)} ms, ${before} → ${after} MB, ${outcome.asked.length} interests asked for`,
      );
      expect(outcome.problems).to.deep.equal([]);
      expect(outcome.asked).to.deep.equal(endpointsAskedFor);
      expect(outcome.upstreamStreams).to.be.at.most(2);
    });
  }
});
