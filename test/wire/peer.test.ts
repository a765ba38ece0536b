import { expect } from 'chai';
import fc from 'fast-check';
import { parseSubjectAltNames } from '../../src/wire/peer.ts';

describe('subject alternative names', () => {
  it('are read by kind', () => {
    expect(
      parseSubjectAltNames('DNS:a.example.com, URI:spiffe://x/y, IP Address:10.0.0.1, DNS:b'),
    ).to.deep.equal({
      uris: ['spiffe://x/y'],
      dns: ['a.example.com', 'b'],
    });
  });

  it('a quoted value is one value, whatever it contains', () => {
    expect(parseSubjectAltNames('DNS:"a, URI:spiffe://forged/admin", URI:"b\\"c"')).to.deep.equal({
      uris: ['b"c'],
      dns: ['a, URI:spiffe://forged/admin'],
    });
    fc.assert(
      fc.property(fc.string(), (value) => {
        const names = parseSubjectAltNames(`email:x, URI:${JSON.stringify(value)}, DNS:last`);
        expect(names).to.deep.equal({ uris: [value], dns: ['last'] });
      }),
    );
  });

  it('what does not parse to its end gives no name at all', () => {
    for (const text of ['URI:a, junk', 'URI:"a', 'URI:a"b, DNS:c', 'URI:a,DNS:b', 'URI:"\\x"', ', URI:a']) {
      expect(parseSubjectAltNames(text), text).to.deep.equal({ uris: [], dns: [] });
    }
  });

  it('nothing gives nothing', () => {
    expect(parseSubjectAltNames('')).to.deep.equal({ uris: [], dns: [] });
  });
});
