import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type TLSSocket } from 'node:tls';
import { expect } from 'chai';
import fc from 'fast-check';
import { z } from 'zod';
import { issuersOf, parseSubjectAltNames, verifiedCertificate } from '../../src/wire/peer.ts';
import { issueCertificate } from '../support/certificates.ts';

describe('subject alternative names', () => {
  it('are read by kind', () => {
    expect(
      parseSubjectAltNames('DNS:a.example.com, URI:spiffe://x/y, IP Address:10.0.0.1, DNS:b'),
    ).to.deep.equal({
      uriSans: ['spiffe://x/y'],
      dnsSans: ['a.example.com', 'b'],
    });
  });

  it('a quoted value is one value, whatever it contains', () => {
    expect(parseSubjectAltNames('DNS:"a, URI:spiffe://forged/admin", URI:"b\\"c"')).to.deep.equal({
      uriSans: ['b"c'],
      dnsSans: ['a, URI:spiffe://forged/admin'],
    });
    fc.assert(
      fc.property(fc.string(), (value) => {
        const names = parseSubjectAltNames(`email:x, URI:${JSON.stringify(value)}, DNS:last`);
        expect(names).to.deep.equal({ uriSans: [value], dnsSans: ['last'] });
      }),
    );
  });

  it('what does not parse to its end gives no name at all', () => {
    for (const text of ['URI:a, junk', 'URI:"a', 'URI:a"b, DNS:c', 'URI:a,DNS:b', 'URI:"\\x"', ', URI:a']) {
      expect(parseSubjectAltNames(text), text).to.deep.equal({ uriSans: [], dnsSans: [] });
    }
  });

  it('nothing gives nothing', () => {
    expect(parseSubjectAltNames('')).to.deep.equal({ uriSans: [], dnsSans: [] });
  });
});

describe('the certificate of a client', () => {
  it('is read alone: what is shown behind it would stay in memory', async () => {
    const root = issueCertificate({ name: 'root', authority: true });
    const middle = issueCertificate({ name: 'middle', authority: true, issuer: root });
    const relay = issueCertificate({ name: 'relay', issuer: root, dns: ['localhost'] });
    const own = issueCertificate({ name: 'client', issuer: middle, uris: ['spiffe://x/y'] });
    const ca = root.certificate;
    const server = createServer({ cert: relay.certificate, key: relay.privateKey, ca, requestCert: true });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = z.object({ port: z.number() }).parse(server.address());
    const shown = own.certificate + middle.certificate;
    const connected = new Promise<TLSSocket>((resolve) => server.once('secureConnection', resolve));
    const client = connect({
      host: '127.0.0.1',
      port,
      ca,
      cert: shown,
      key: own.privateKey,
      servername: 'localhost',
    });
    const socket = await connected;
    const certificate = verifiedCertificate(socket);
    const { fingerprint256, raw } = new X509Certificate(own.certificate);
    expect(certificate).to.deep.equal({ fingerprint256, raw });
    expect(issuersOf(socket, 10).map(({ subject }) => subject)).to.deep.equal(['CN=root', 'CN=middle']);
    expect(issuersOf(socket, 1).map(({ subject }) => subject)).to.deep.equal(['CN=middle']);
    client.destroy();
    server.close();
    await once(server, 'close');
    expect(verifiedCertificate(socket)).to.equal(undefined);
  });
});
