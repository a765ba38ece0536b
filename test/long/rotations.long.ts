import { expect } from 'chai';
import { rotateCertificates } from '../e2e/support/rotations.ts';

describe('certificates, keys and authorities are replaced under load, often', function () {
  this.timeout(1_200_000);

  it('200 times, with 200 streams: only those whose authority went end, and a new client can connect at any time', async () => {
    const { problems, ended, probes, slowestProbe, updates } = await rotateCertificates({
      rotations: 200,
      streams: 200,
    });
    console.log(
      `${ended} streams ended with their authority; ${probes} new connections meanwhile, the slowest took ${slowestProbe} ms; ${updates} updates reached all others`,
    );
    expect(problems).to.deep.equal([]);
    expect(ended).to.equal(1000);
  });
});
