import { expect } from 'chai';
import { Lab, namedHolder, resources, type } from '../support/lab.ts';
import { witness } from './witness.ts';

describe('cold cache and no upstream (§8)', () => {
  it('§8 nothing that the stream asks for is cached: UNAVAILABLE before any response', () => {
    const lab = new Lab();
    lab.upstream.down = true;
    const client = lab.sotw();
    client.send('lds', { resourceNames: ['server'] });
    expect(client.received()).to.deep.equal([]);
    expect(client.status?.code).to.equal(14);
  });

  it('§8 a client that waits already hears of it when the round has failed', () => {
    const lab = new Lab();
    const client = lab.sotw();
    client.send('lds', { resourceNames: ['server'] });
    expect(client.status).to.equal(undefined);
    lab.upstream.down = true;
    lab.relay.changed();
    expect(client.status?.code).to.equal(14);
  });

  it('§8 so does one with a type of which it asks for nothing', () => {
    const lab = new Lab();
    lab.upstream.down = true;
    const client = lab.sotw();
    client.send('eds', { resourceNames: [] });
    expect(client.status, 'nothing is asked for').to.equal(undefined);
    client.send('lds');
    expect(client.status?.code).to.equal(14);
  });

  it('§8 as long as upstream may still answer it is waited for', () => {
    const lab = new Lab();
    const client = lab.sotw();
    client.send('lds');
    lab.clock.advance(60_000);
    expect(client.status).to.equal(undefined);
  });

  it('§8 with something of it cached the stream lives', () => {
    const lab = new Lab();
    witness(lab);
    lab.upstream.down = true;
    const client = lab.sotw();
    client.send('cds');
    client.send('lds');
    lab.relay.changed();
    expect(resources(client.one())).to.deep.equal({ a: '1' });
    expect(client.status).to.equal(undefined);
  });

  it('§8 what is known to be absent is known', () => {
    const lab = new Lab();
    const first = lab.sotw();
    first.send('lds', { resourceNames: ['nowhere'] });
    lab.says({ type: type('lds'), holder: namedHolder });
    lab.upstream.down = true;
    const client = lab.sotw();
    client.send('lds', { resourceNames: ['nowhere'] });
    expect(client.one().resources).to.deep.equal([]);
  });

  it('§8 an outage ends no stream that has had a response, and takes nothing back', () => {
    const lab = new Lab();
    const untouched = witness(lab);
    lab.upstream.down = true;
    lab.relay.changed();
    untouched();
  });
});
