import { expect } from 'chai';
import { compileAuthorization } from '../../src/security/authorization.ts';
import type { Peer } from '../../src/wire/transport.ts';
import { Lab, namedHolder, put, resources, type } from '../support/lab.ts';

const edsPath = '/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints';

describe('authorization', () => {
  const only = (names: readonly string[], types = [type('eds')]) => ({
    access: (peer: Peer) =>
      compileAuthorization([{ principals: undefined, types, names, allow: true }]).classOf(peer),
  });

  it('a client that may see nothing at all: PERMISSION_DENIED on ADS', () => {
    const lab = new Lab({
      access: (peer) =>
        compileAuthorization([
          { principals: ['spiffe://nobody'], types: undefined, names: undefined, allow: true },
        ]).classOf(peer),
    });
    const client = lab.sotw();
    client.send('cds');
    expect(client.status?.code).to.equal(7);
    expect(lab.upstream.journal).to.deep.equal([]);
  });

  it('a type that it may not see: PERMISSION_DENIED on the type’s own service', () => {
    const lab = new Lab(only(['x']));
    const client = lab.sotw('/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets');
    client.send('sds', { resourceNames: ['key'] });
    expect(client.status?.code).to.equal(7);
    expect(lab.upstream.journal).to.deep.equal([]);
  });

  it('names of which it may see none: PERMISSION_DENIED on the type’s own service', () => {
    const lab = new Lab(only(['x*']));
    const client = lab.sotw(edsPath);
    client.send('eds', { resourceNames: ['y', 'z'] });
    expect(client.status?.code).to.equal(7);
    expect(lab.upstream.journal).to.deep.equal([]);
  });

  it('names of which it may see some: the others are left out', () => {
    const lab = new Lab(only(['x*']));
    const client = lab.sotw(edsPath);
    client.send('eds', { resourceNames: ['x', 'y'] });
    const puts = ['x', 'y'].map((name) => put(type('eds'), name, '1'));
    lab.says({ type: type('eds'), holder: namedHolder, puts });
    expect(resources(client.one())).to.deep.equal({ x: '1' });
    expect(client.status).to.equal(undefined);
  });

  it('on ADS another type than it may see is left out, and the stream lives', () => {
    const lab = new Lab(only(['x']));
    const client = lab.sotw();
    client.send('sds', { resourceNames: ['key'] });
    lab.says({ type: type('sds'), holder: namedHolder, puts: [put(type('sds'), 'key', '1')] });
    expect(client.received()).to.deep.equal([]);
    expect(client.status).to.equal(undefined);
  });

  it('a wildcard shows what may be seen, and nothing if nothing may', () => {
    const lab = new Lab(only(['x*', 'shared'], [type('cds')]));
    const client = lab.sotw();
    client.send('cds');
    client.send('lds');
    lab.full('cds', { x1: '1', y1: '1', shared: '1' });
    lab.full('lds', { x1: '1' });
    expect(client.received().map(resources)).to.deep.equal([{ x1: '1', shared: '1' }, {}]);
  });
});
