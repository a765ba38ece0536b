import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { CLAIMS_EVERYTHING, claims } from '../../src/upstream/claims.ts';
import { namePatterns } from '../security/name-patterns.ts';

const cds = typeUrl('type.googleapis.com/envoy.config.cluster.v3.Cluster');
const lds = typeUrl('type.googleapis.com/envoy.config.listener.v3.Listener');
const xdstp = 'xdstp://example.com/envoy.config.cluster.v3.Cluster/a';

describe('upstream/claims', () => {
  it('no claims serve everything', () => {
    for (const name of ['*', 'a', xdstp]) expect(claims(CLAIMS_EVERYTHING, cds, name)).to.equal(true);
  });

  it('authorities claim their xdstp names of every type, and neither plain names nor *', () => {
    const options = { ...CLAIMS_EVERYTHING, authorities: ['example.com'] };
    expect(claims(options, cds, xdstp)).to.equal(true);
    expect(claims(options, cds, xdstp.replace('example.com', 'other.org'))).to.equal(false);
    expect(claims(options, cds, 'example.com')).to.equal(false);
    expect(claims(options, cds, '*')).to.equal(false);
    expect(claims({ ...options, types: [lds] }, cds, xdstp), 'types add').to.equal(true);
    expect(claims({ ...options, types: [lds] }, lds, 'plain')).to.equal(true);
  });

  it('types claim all names of a type, * too', () => {
    const options = { ...CLAIMS_EVERYTHING, types: [cds] };
    expect(claims(options, cds, '*')).to.equal(true);
    expect(claims(options, cds, 'a')).to.equal(true);
    expect(claims(options, lds, 'a')).to.equal(false);
  });

  it('names claim by prefix or exactly, and * only by the pattern *', () => {
    const options = { ...CLAIMS_EVERYTHING, names: namePatterns(['shop-*', 'one']) };
    expect(['shop-', 'shop-a', 'one'].every((name) => claims(options, cds, name))).to.equal(true);
    expect(['shop', 'ones', '*'].some((name) => claims(options, cds, name))).to.equal(false);
    expect(claims({ ...options, names: namePatterns(['*']) }, cds, '*')).to.equal(true);
  });

  it('types and names together must both match', () => {
    const options = { ...CLAIMS_EVERYTHING, types: [cds], names: namePatterns(['shop-*']) };
    expect(claims(options, cds, 'shop-a')).to.equal(true);
    expect(claims(options, lds, 'shop-a')).to.equal(false);
    expect(claims(options, cds, 'a')).to.equal(false);
  });

  it('§6.1 an xdstp name is claimed in every spelling', () => {
    const options = {
      ...CLAIMS_EVERYTHING,
      names: namePatterns([`${xdstp}?zone=1&env=x`, xdstp.replace(/a$/, 'w%65b'), `${xdstp}/%62*`]),
    };
    for (const name of [`${xdstp}?env=x&zone=1`, xdstp.replace(/a$/, 'web'), `${xdstp}/b/c`])
      expect(claims(options, cds, name), name).to.equal(true);
    expect(claims(options, cds, xdstp)).to.equal(false);
  });

  it('§6.3 who claims a glob by name claims its members', () => {
    const options = { ...CLAIMS_EVERYTHING, names: namePatterns([`${xdstp}/*?env=x`]) };
    for (const name of [`${xdstp}/*?env=x`, `${xdstp}/b?env=x`])
      expect(claims(options, cds, name), name).to.equal(true);
    for (const name of ['*', `${xdstp}/b`, `${xdstp}/b/c?env=x`])
      expect(claims(options, cds, name), name).to.equal(false);
  });

  it('a control plane without ADS claims only types that have a service', () => {
    const [vhds, unknown] = [
      typeUrl('type.googleapis.com/envoy.config.route.v3.VirtualHost'),
      typeUrl('type.googleapis.com/some.Extension'),
    ];
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'DELTA' }, vhds, 'a')).to.equal(true);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'SOTW' }, vhds, 'a')).to.equal(false);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'DELTA' }, unknown, '*')).to.equal(false);
    expect(claims({ ...CLAIMS_EVERYTHING, services: 'SOTW', authorities: ['x'] }, vhds, 'a')).to.equal(false);
  });
});
