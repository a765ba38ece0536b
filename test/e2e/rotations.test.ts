import { expect } from 'chai';
import { rotateCertificates } from './support/rotations.ts';

describe('certificates, keys and authorities are replaced under load, and found half written', function () {
  this.timeout(120_000);

  it('ten times, with 200 streams: only those whose authority went end, and a new client can connect at any time', async () => {
    const { problems, ended, probes, updates } = await rotateCertificates({ rotations: 10, streams: 200 });
    expect(problems).to.deep.equal([]);
    expect(ended).to.equal(60);
    expect(probes).to.be.greaterThan(10);
    expect(updates).to.be.greaterThan(10);
  });

  it('five times, with workers', async () => {
    const { problems, ended } = await rotateCertificates({ rotations: 5, streams: 40, workers: 2 });
    expect(problems).to.deep.equal([]);
    expect(ended).to.equal(4);
  });
});
