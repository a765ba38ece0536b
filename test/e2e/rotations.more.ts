import { expect } from 'chai';
import { rotateCertificates } from './support/rotations.ts';

describe('certificates, keys and authorities are replaced under load, and found half written', function () {
  this.timeout(400_000);

  for (const { rotations, streams, workers, ends } of [
    { rotations: 5, streams: 40, workers: 2, ends: 4 },
    { rotations: 10, streams: 200, workers: 0, ends: 60 },
  ]) {
    it(`${rotations} times, with ${streams} streams and workers: ${workers}: only those whose authority went end, and a new client can connect at any time`, async () => {
      const { problems, ended, probes, updates } = await rotateCertificates({ rotations, streams, workers });
      expect(problems).to.deep.equal([]);
      expect(ended).to.equal(ends);
      expect(probes).to.be.greaterThan(rotations);
      expect(updates).to.be.greaterThan(rotations);
    });
  }
});
