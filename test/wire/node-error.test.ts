import { expect } from 'chai';
import { explainConnect, explainError, isDisconnect } from '../../src/wire/node-error.ts';

const failed = (error: string, note = '') =>
  explainConnect(`No connection established. Last error: ${error}. Resolution note: ${note}`);

describe('why a connection failed', () => {
  it('is said in words that name what to look at', () => {
    expect(failed('Error: connect ECONNREFUSED 127.0.0.1:1')).to.equal(
      'connection refused: nothing listens there (ECONNREFUSED)',
    );
    expect(failed("Error: Hostname/IP does not match certificate's altnames: Host: a.test")).to.equal(
      "Hostname/IP does not match certificate's altnames: Host: a.test",
    );
    const tls = 'Error [ERR_TLS_CERT_ALTNAME_INVALID]: Hostname/IP does not match: Host: a.test';
    expect(failed(tls)).to.equal('Hostname/IP does not match: Host: a.test');
    expect(failed('Error: certificate has expired')).to.equal("the control plane's certificate has expired");
    expect(explainConnect('anything else')).to.equal('anything else');
    expect(failed('Error: x', 'Name resolution failed')).to.equal('x. Name resolution failed');
  });

  it('is said as who refuses what, where the other end says so in an alert of TLS', () => {
    const said = (reason: string) =>
      `40D382ED5A7F0000:error:0A000415:SSL routines:ssl3_read_bytes:${reason}:../x/rec_layer_s3.c:918:SSL alert number 45\n`;
    const expired = 'the other end refuses the certificate that it was shown: certificate expired';
    const coded = Object.assign(new Error(said('ssl/tls alert certificate expired')), { code: 'ERR_SSL_X' });
    expect(explainError(coded)).to.equal(expired);
    expect(failed(said('sslv3 alert certificate expired'))).to.equal(expired);
    expect(failed(said('tlsv1 alert protocol version'))).to.equal(
      'the other end refuses the TLS handshake: protocol version',
    );
    expect(failed(said('no shared cipher'))).to.equal('TLS: no shared cipher');
    const plain = Object.assign(new Error(`write EPROTO ${said('wrong version number')}`), {
      code: 'EPROTO',
    });
    expect(explainError(plain)).to.equal('one end of the connection speaks TLS, and the other does not');
  });

  it('is a client certificate, as a rule, where the connection ends at once', () => {
    expect(failed('Failed to connect (2026-11-27T17:54:50.032Z)')).to.match(
      /^the control plane closes each new connection: it refuses the client certificate/,
    );
  });

  it('is the same text each time: no times, no thread of OpenSSL', () => {
    const alert =
      'error:0A00045C:SSL routines:ssl3_read_bytes:tlsv13 alert certificate required:a/b.c:918:SSL';
    const texts = ['405DE6A9897F0000', '40AABBCCDD7F0000'].map((thread, index) =>
      failed(`${thread}:${alert} alert number 116\n (2026-01-02T03:04:0${index}.020Z)`),
    );
    expect(texts).to.deep.equal([
      'the other end requires a client certificate, and none was sent',
      'the other end requires a client certificate, and none was sent',
    ]);
  });
});

describe('a client that has gone', () => {
  it('is none that a bug is reported of, also where connect-node says it in words of its own', () => {
    const gone = Object.assign(new Error('write EPIPE'), { code: 'EPIPE' });
    expect(isDisconnect(gone)).to.equal(true);
    expect(isDisconnect(new Error('[internal] write EPIPE', { cause: gone }))).to.equal(true);
    expect(isDisconnect(new Error('something else', { cause: new Error('x') }))).to.equal(false);
    expect(isDisconnect('EPIPE')).to.equal(false);
  });
});
