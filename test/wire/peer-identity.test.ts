import { expect } from 'chai';
import { type PeerNames, peerKey, verifiedIdentity } from '../../src/wire/peer.ts';

const peer = (differences: Partial<PeerNames>): PeerNames => ({
  address: '10.0.0.1:4711',
  unix: false,
  uriSans: [],
  dnsSans: [],
  ...differences,
});

describe('the identity of a peer', () => {
  it('is its URI SANs, whatever their order', () => {
    const [a, b] = ['spiffe://example.com/a', 'spiffe://example.com/b'];
    expect(verifiedIdentity(peer({ uriSans: [a], dnsSans: ['a.example.com'] }))).to.equal(a);
    expect(verifiedIdentity(peer({ uriSans: [a, b] }))).to.equal(verifiedIdentity(peer({ uriSans: [b, a] })));
  });

  it('is its DNS SANs where it has no URI', () => {
    expect(verifiedIdentity(peer({ dnsSans: ['a.example.com'] }))).to.equal('dns:a.example.com');
  });

  it('cannot be made of several names that read like another', () => {
    const joined = peer({ uriSans: ['spiffe://a","spiffe://b'] });
    expect(verifiedIdentity(joined)).not.to.equal(
      verifiedIdentity(peer({ uriSans: ['spiffe://a', 'spiffe://b'] })),
    );
  });

  it('is the address without its port, for bounds, where nothing is verified', () => {
    expect(verifiedIdentity(peer({}))).to.equal(undefined);
    expect(peerKey(peer({}))).to.equal('address 10.0.0.1');
    expect(peerKey(peer({ address: '/run/relay.sock', unix: true }))).to.equal('address /run/relay.sock');
    expect(peerKey(peer({ dnsSans: ['a'] }))).to.equal('identity dns:a');
    expect(peerKey(peer({ uriSans: ['10.0.0.1'] }))).not.to.equal(peerKey(peer({})));
  });

  it('is the first half of an IPv6 address, as one host may have all of the rest', () => {
    const key = (address: string): string => peerKey(peer({ address }));
    expect(key('[2001:db8:1:2:3:4:5:6]:80')).to.equal('address 2001:db8:1:2/64');
    expect(key('[2001:db8::1]:80')).to.equal(key('[2001:db8::ffff:2]:81'));
    expect(key('[2001:db8:0:1::1]:80')).not.to.equal(key('[2001:db8::1]:80'));
    expect(key('[::1]:80')).to.equal('address 0:0:0:0/64');
  });
});
