import { mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { loadConfig } from '../../src/config/load.ts';
import { problemLine } from '../../src/config/source.ts';
import { ok } from '../../src/model/result.ts';
import { issueCertificate } from '../support/certificates.ts';
import { temporaryDirectory } from './support.ts';

describe('configuration: the files it names', () => {
  const directory = temporaryDirectory();
  const path = (name: string): string => join(directory(), name);

  beforeEach(() => {
    const authority = issueCertificate({ name: 'authority', authority: true });
    const relay = issueCertificate({ name: 'relay', issuer: authority });
    const other = issueCertificate({ name: 'other' });
    mkdirSync(path('resources'));
    writeFileSync(path('ca.pem'), authority.certificate + other.certificate);
    writeFileSync(path('relay.pem'), relay.certificate + authority.certificate);
    writeFileSync(path('relay.key'), relay.privateKey);
    writeFileSync(path('other.key'), other.privateKey);
    writeFileSync(path('garbage.pem'), '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
    writeFileSync(path('text.pem'), 'nothing\n');
    writeFileSync(path('file'), '');
  });

  const problems = (tls: string, resources = 'resources'): readonly string[] => {
    const text = `xds:\n  tls: ${tls}\nupstreams:\n  - { name: a, types: [cds], ads: { endpoints: ["c:1"], tls: ${tls.replace(/, require_client_certificate: true/, '')} } }\n  - { name: b, filesystem: { path: ${path(resources)} } }\n`;
    const inPlace = text.replaceAll(/[\w-]+\.(?:pem|key)/g, (name) => path(name));
    const checked = loadConfig('f', {}, ok(inPlace));
    return (checked.ok ? [] : checked.error).map((problem) =>
      problemLine('f', problem)
        .replaceAll(`${directory()}/`, '')
        .replace(/:\d+: /, ': '),
    );
  };

  it('are fine when certificates parse and keys belong to them', () => {
    const tls =
      '{ certificate: relay.pem, private_key: relay.key, ca: ca.pem, require_client_certificate: true }';
    expect(problems(tls)).to.deep.equal([]);
  });

  it('a key of another certificate, in every place', () => {
    const message = 'other.key is not the key of the first certificate in relay.pem';
    expect(problems('{ certificate: relay.pem, private_key: other.key }')).to.deep.equal([
      `f:2: xds.tls.private_key: ${message}`,
      `f:4: upstreams[0].ads.tls.private_key: ${message}`,
    ]);
  });

  it('files that are missing or hold something else', () => {
    const [certificate, key, ca] = problems(
      '{ certificate: garbage.pem, private_key: none.key, ca: text.pem }',
    );
    expect(certificate).to.match(
      /^f:2: xds\.tls\.certificate: certificate 1 in garbage\.pem cannot be parsed: /,
    );
    expect(key).to.match(/^f:2: xds\.tls\.private_key: none\.key cannot be read: there is no such file/);
    expect(ca).to.equal('f:2: xds.tls.ca: text.pem has no PEM certificate');
  });

  it('a file that holds no key', () => {
    const [first] = problems('{ certificate: relay.pem, private_key: text.pem }');
    expect(first).to.match(/^f:2: xds\.tls\.private_key: text\.pem has no PEM private key/);
  });

  it('a revocation list among the authorities, which nobody would look at', () => {
    const list = '-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n';
    writeFileSync(path('ca.pem'), readFileSync(path('ca.pem'), 'utf8') + list);
    const message =
      'ca.pem has a revocation list (X509 CRL), but none is read, and what it revokes would be trusted: use certificates only, without the authority of what is revoked';
    expect(problems('{ certificate: relay.pem, private_key: relay.key, ca: ca.pem }')).to.deep.equal([
      `f:2: xds.tls.ca: ${message}`,
      `f:4: upstreams[0].ads.tls.ca: ${message}`,
    ]);
  });

  it('a secret of session tickets that is too short, too large, or not there', () => {
    const wrong = (file: string): string | undefined =>
      problems(
        `{ certificate: relay.pem, private_key: relay.key, session_ticket_secret_file: ${file} }`,
      ).find((problem) => problem.startsWith('f:2: xds.'));
    expect(wrong('other.key')).to.equal(undefined);
    expect(wrong('text.pem')).to.match(
      /^f:2: xds\.tls\.session_ticket_secret_file: text\.pem has 8 bytes: it must have 32 or more/,
    );
    expect(wrong('none.pem')).to.match(
      /session_ticket_secret_file: none\.pem cannot be read: there is no such/,
    );
    truncateSync(path('text.pem'), 2 ** 30);
    expect(wrong('text.pem')).to.match(
      /text\.pem cannot be read: it has 1073741824 bytes: at most 16777216 are/,
    );
  });

  it('a token in the place of its file is not told', () => {
    const about = (token: string): string => {
      const ads = `{ endpoints: ["c:1"], token_file: "${token}" }`;
      const checked = loadConfig('f', {}, ok(`upstreams: [{ name: a, ads: ${ads} }]\n`));
      return checked.ok ? '' : checked.error.map((problem) => problemLine('f', problem)).join('\n');
    };
    for (const secret of ['Bearer abc', 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJyZWxheSJ9.c2lnbmF0dXJl'])
      expect(about(secret))
        .to.match(/token_file: .*is this the token itself/)
        .and.not.include(secret);
    expect(about('/run/secrets/token')).to.include('token_file: /run/secrets/token cannot be read: ');
  });

  it('a directory of resources that is not there, or is a file', () => {
    expect(problems('{}', 'none')[0]).to.match(
      /^f:5: upstreams\[1\]\.filesystem\.path: none cannot be listed: there is no such/,
    );
    expect(problems('{}', 'file')[0]).to.match(
      /file cannot be listed: a part of the path is not a directory/,
    );
  });

  it('are looked at even if the rest is wrong: every problem at once, in the order of the file', () => {
    const found = problems('{ certificate: none.pem, private_key: none.key, cipher: x }', 'none');
    expect(found.map((problem) => problem.split(': ').slice(0, 2).join(' '))).to.deep.equal([
      'f:2 xds.tls.certificate',
      'f:2 xds.tls.private_key',
      'f:2 xds.tls.cipher',
      'f:4 upstreams[0].ads.tls.certificate',
      'f:4 upstreams[0].ads.tls.private_key',
      'f:4 upstreams[0].ads.tls.cipher',
      'f:5 upstreams[1].filesystem.path',
    ]);
  });
});
