import { expect } from 'chai';
import { typeUrl } from '../../src/model/brand.ts';
import { CLAIMS_EVERYTHING, claims } from '../../src/upstream/claims.ts';

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
    const options = { ...CLAIMS_EVERYTHING, names: ['shop-*', 'one'] };
    expect(['shop-', 'shop-a', 'one'].every((name) => claims(options, cds, name))).to.equal(true);
    expect(['shop', 'ones', '*'].some((name) => claims(options, cds, name))).to.equal(false);
    expect(claims({ ...options, names: ['*'] }, cds, '*')).to.equal(true);
  });

  it('types and names together must both match', () => {
    const options = { ...CLAIMS_EVERYTHING, types: [cds], names: ['shop-*'] };
    expect(claims(options, cds, 'shop-a')).to.equal(true);
    expect(claims(options, lds, 'shop-a')).to.equal(false);
    expect(claims(options, cds, 'a')).to.equal(false);
  });
});
