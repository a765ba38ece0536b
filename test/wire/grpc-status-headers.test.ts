import { expect } from 'chai';
import fc from 'fast-check';
import { encodeGrpcMessage, statusTrailers, trailersOnly } from '../../src/wire/grpc-requests.ts';
import { Code } from '../../src/wire/grpc-status.ts';

describe('grpc-status and grpc-message', () => {
  it('any short message survives percent encoding, in printable ASCII', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (message) => {
        const encoded = encodeGrpcMessage(message);
        expect(encoded).to.match(/^[\x20-\x7e]*$/);
        expect(decodeURIComponent(encoded)).to.equal(message);
      }),
    );
  });

  it('half of a surrogate pair is replaced, not thrown', () => {
    expect(encodeGrpcMessage('a\ud800b')).to.equal('a%EF%BF%BDb');
  });

  it('a long message is cut between characters at about 1 KB', () => {
    for (const character of ['x', 'é', '😀', '%']) {
      const encoded = encodeGrpcMessage(character.repeat(5000));
      expect(encoded.length).to.be.within(1000, 1024);
      expect(decodeURIComponent(encoded)).to.match(/\.\.\.$/);
    }
  });

  it('without a message there is no grpc-message', () => {
    expect(statusTrailers({ code: Code.OK, message: '' })).to.deep.equal({ 'grpc-status': '0' });
  });

  it('a trailers-only response is a 200 with all of it', () => {
    expect(trailersOnly({ code: Code.NOT_FOUND, message: 'x' })).to.deep.equal({
      ':status': 200,
      'content-type': 'application/grpc',
      'grpc-status': '5',
      'grpc-message': 'x',
    });
  });
});
