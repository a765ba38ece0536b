import { X509Certificate } from 'node:crypto';
import { expect } from 'chai';
import { identityError } from '../../../src/upstream/ads/grpc-channel.ts';
import { issueCertificate } from '../../support/certificates.ts';

const plane = 'spiffe://example.com/control-plane';

/** The common name is `cp.test` in all of them. */
const certificates = {
  spiffe: { uris: [plane] },
  dns: { dns: ['cp.test', 'other.test'] },
  wildcard: { dns: ['*.planes.test'] },
  address: { ips: ['10.0.0.1'] },
  both: { uris: [plane], dns: ['cp.test'] },
  forged: { uris: [`spiffe://evil.example.com/a, URI:${plane}`] },
  nothing: {},
};

const rows: readonly [keyof typeof certificates, string, readonly string[], boolean][] = [
  // without server_identities: the host, by SANs
  ['dns', 'cp.test', [], true],
  ['dns', 'wrong.test', [], false],
  ['wildcard', 'cp.planes.test', [], true],
  ['wildcard', 'a.cp.planes.test', [], false],
  ['address', '10.0.0.1', [], true],
  ['address', '10.0.0.2', [], false],
  ['both', 'cp.test', [], true],
  // never by the common name
  ['spiffe', 'cp.test', [], false],
  ['address', 'cp.test', [], false],
  ['nothing', 'cp.test', [], false],
  // with server_identities: one of them, whatever the host
  ['spiffe', 'wrong.test', [plane], true],
  ['spiffe', 'wrong.test', ['spiffe://other/x', plane], true],
  ['spiffe', 'wrong.test', ['spiffe://example.com/*'], true],
  ['spiffe', 'cp.test', ['spiffe://example.com/another'], false],
  ['spiffe', 'cp.test', ['dns:cp.test'], false],
  ['dns', 'cp.test', [plane], false],
  ['dns', 'wrong.test', ['dns:Other.Test'], true],
  ['dns', 'wrong.test', ['dns:*.test'], true],
  ['wildcard', 'wrong.test', ['dns:cp.planes.test'], true],
  ['address', '10.0.0.1', ['dns:cp.test'], false],
  ['both', 'wrong.test', [plane, 'dns:nobody'], true],
  ['nothing', 'cp.test', ['dns:cp.test'], false],
  ['forged', 'cp.test', [plane], false],
];

describe("a control plane's certificate", () => {
  for (const [kind, host, identities, accepted] of rows) {
    const wanted = identities.length === 0 ? host : `one of ${identities.join(', ')} at ${host}`;
    it(`${kind}, wanted ${wanted}: ${accepted ? 'accepted' : 'refused'}`, () => {
      const { certificate } = issueCertificate({ name: 'cp.test', ...certificates[kind] });
      const error = identityError(host, identities, new X509Certificate(certificate).toLegacyObject());
      expect(error === undefined, String(error)).to.equal(accepted);
    });
  }

  it('a refusal names what it has and what was wanted', () => {
    const { certificate } = issueCertificate({ name: 'cp.test', uris: [plane], dns: ['cp.test'] });
    const peer = new X509Certificate(certificate).toLegacyObject();
    expect(identityError('a.test', [], peer)?.message).to.equal(
      `the control plane's certificate has URI:${plane}, DNS:cp.test: it is not for a.test (see server_name and server_identities)`,
    );
    expect(identityError('a.test', ['dns:b.test', 'spiffe://x/y'], peer)?.message).to.equal(
      `the control plane's certificate has URI:${plane}, DNS:cp.test: none of it is in server_identities: dns:b.test, spiffe://x/y`,
    );
  });
});
