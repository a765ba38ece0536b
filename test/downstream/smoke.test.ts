import { expect } from 'chai';
import { Lab, resources, type } from '../support/lab.ts';

describe('relay, in the lab', () => {
  it('serves a wildcard CDS over SotW: first answer, update, ACK without answer', () => {
    const lab = new Lab();
    const client = lab.sotw();
    client.send('cds');
    expect(client.received()).to.have.length(0);
    lab.full('cds', { a: 'a1', b: 'b1' });
    const first = client.one();
    expect(resources(first)).to.deep.equal({ a: 'a1', b: 'b1' });
    client.ack('cds', first);
    expect(client.received()).to.have.length(0);
    lab.full('cds', { a: 'a2' }, '2');
    const second = client.one();
    expect(resources(second)).to.deep.equal({ a: 'a2' });
    expect(second.versionInfo).to.equal('2');
  });

  it('serves EDS by name over delta', () => {
    const lab = new Lab();
    const client = lab.delta();
    client.send('eds', { resourceNamesSubscribe: ['x', 'y'] });
    expect(lab.upstream.journal).to.deep.equal(['+eds x', '+eds y']);
    lab.says({ type: type('eds'), puts: [], removals: [] });
    const gone = client.one();
    expect(gone.removedResources).to.have.members(['x', 'y']);
  });
});
