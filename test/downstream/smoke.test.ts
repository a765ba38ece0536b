import { expect } from 'chai';
import { InMemoryRelay, resources, type } from '../support/in-memory-relay.ts';

describe('relay, in the lab', () => {
  it('serves a wildcard CDS over SotW: first answer, update, ACK without answer', () => {
    const relay = new InMemoryRelay();
    const client = relay.sotw();
    client.send('cds');
    expect(client.received()).to.have.length(0);
    relay.full('cds', { a: 'a1', b: 'b1' });
    const first = client.one();
    expect(resources(first)).to.deep.equal({ a: 'a1', b: 'b1' });
    client.ack('cds', first);
    expect(client.received()).to.have.length(0);
    relay.full('cds', { a: 'a2' }, '2');
    const second = client.one();
    expect(resources(second)).to.deep.equal({ a: 'a2' });
    expect(second.versionInfo).to.equal('2');
  });

  it('serves EDS by name over delta', () => {
    const relay = new InMemoryRelay();
    const client = relay.delta();
    client.send('eds', { resourceNamesSubscribe: ['x', 'y'] });
    expect(relay.upstream.journal).to.deep.equal(['+eds x', '+eds y']);
    relay.says({ type: type('eds'), puts: [], removals: [] });
    const gone = client.one();
    expect(gone.removedResources).to.have.members(['x', 'y']);
  });
});
