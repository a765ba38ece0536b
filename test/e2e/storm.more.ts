import { expect } from 'chai';
import { endpointsAskedFor, storm } from './support/storm.ts';

const clients = 1000;

describe(`a storm: ${clients} clients reconnect at once after a restart with a persisted cache`, function () {
  this.timeout(300_000);

  for (const upstream of ['up', 'down'] as const) {
    it(`upstream ${upstream}: it hears of each interest once; nobody is sent again what it has (delta; SotW with CONTENT)`, async () => {
      const { problems, asked, upstreamStreams } = await storm({ clients, connections: 20, upstream });
      expect(problems).to.deep.equal([]);
      expect(asked).to.deep.equal(endpointsAskedFor);
      expect(upstreamStreams).to.be.at.most(2);
    });
  }
});
