import { X509Certificate } from 'node:crypto';
import { expect } from 'chai';
import { type CertifiedClient, ClientAuthorities } from '../../src/wire/client-authorities.ts';
import { checkTlsMaterial, parseCertificates } from '../../src/wire/tls-material.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { cpuSeconds } from '../support/cpu.ts';

const bundle = (...authorities: readonly Issued[]): Buffer =>
  Buffer.from(authorities.map(({ certificate }) => certificate).join(''));
const read = (issued: Issued): X509Certificate => new X509Certificate(issued.certificate);
/** Whose client has shown nothing behind it. */
const clientOf = (authorities: ClientAuthorities, issued: Issued): CertifiedClient =>
  authorities.clientOf(read(issued), () => []);
const authority = (name: string, issuer?: Issued): Issued =>
  issueCertificate({ name, authority: true, ...(issuer === undefined ? {} : { issuer }) });

describe('authorities of client certificates', () => {
  const one = authority('root');
  const namesake = authority('root');
  const other = authority('another root');
  const middle = authority('middle', one);
  const lower = authority('lower', middle);
  const leaf = (issuer: Issued, days = 1): Issued => issueCertificate({ name: 'leaf', issuer, days });

  /** `seen`: as a client would have sent them. */
  const vouches = (ca: Buffer, issued: Issued, ...seen: readonly Issued[]): boolean => {
    const authorities = new ClientAuthorities(ca);
    for (const intermediate of seen) {
      authorities.remember([read(intermediate)]);
    }
    return clientOf(authorities, issued).knowsIssuers;
  };

  it('vouch for what they issued, whatever the order of the file', () => {
    expect(vouches(bundle(other, one), leaf(one))).to.equal(true);
    expect(vouches(bundle(other), leaf(one))).to.equal(false);
    expect(vouches(bundle(one), one)).to.equal(true);
  });

  it('an authority of the same name with another key is another one', () => {
    expect(vouches(bundle(namesake), leaf(one))).to.equal(false);
    expect(vouches(bundle(namesake, one), leaf(one))).to.equal(true);
  });

  it('vouch by way of intermediates, in the file or from the client', () => {
    expect(vouches(bundle(one, middle), leaf(middle))).to.equal(true);
    expect(vouches(bundle(one), leaf(middle), middle)).to.equal(true);
    expect(vouches(bundle(one), leaf(lower), middle, lower)).to.equal(true);
    expect(vouches(bundle(one), leaf(lower), lower)).to.equal(false);
    expect(vouches(bundle(other), leaf(lower), middle, lower)).to.equal(false);
  });

  it('an intermediate alone is no root, as in a handshake', () => {
    expect(vouches(bundle(middle), leaf(middle))).to.equal(false);
  });

  it('a certificate that may not issue any is no intermediate', () => {
    const workload = leaf(one);
    expect(vouches(bundle(one), leaf(workload), workload)).to.equal(false);
  });

  it('two intermediates that issued each other vouch for nobody', () => {
    const first = authority('first');
    const second = authority('second', first);
    const back = issueCertificate({ name: 'first', authority: true, issuer: second, key: first });
    expect(vouches(bundle(one), leaf(first), back, second)).to.equal(false);
  });

  it('a ring of three with one way out is vouched for, whoever is looked at first', () => {
    const [first, second, third] = [authority('first', one), authority('second'), authority('third')];
    const again = (name: string, issuer: Issued, key: Issued): Issued =>
      issueCertificate({ name, authority: true, issuer, key });
    const ring = [
      again('first', third, first),
      again('second', first, second),
      again('third', second, third),
    ];
    for (const start of ring) {
      const authorities = new ClientAuthorities(bundle(one, ...ring, first));
      const looked = [start, ...ring].map((issuer) => clientOf(authorities, leaf(issuer)).knowsIssuers);
      expect(looked).to.deep.equal([true, true, true, true]);
    }
  });

  it('a chain of twenty is followed', () => {
    const chain = [one];
    for (let at = 0; at < 20; at++) chain.push(authority(`step ${at}`, chain.at(-1)));
    expect(vouches(bundle(...chain.toReversed()), leaf(chain.at(-1) ?? one))).to.equal(true);
  });

  it('a certificate that has expired since it was verified keeps its authority', () => {
    expect(vouches(bundle(one), leaf(one, -1))).to.equal(true);
  });

  it('say until when a certificate and those that issued it are valid', () => {
    const hour = 1 / 24;
    const short = issueCertificate({ name: 'short', authority: true, issuer: one, days: hour });
    const authorities = new ClientAuthorities(bundle(one, short));
    const left = (issued: Issued): number =>
      (clientOf(authorities, issued).validUntil - Date.now()) / 86_400_000;
    expect(left(leaf(one))).to.be.within(0.9, 1);
    expect(left(leaf(short))).to.be.within(0.9 * hour, hour);
    expect(left(leaf(short, -1))).to.be.within(-1.01, -0.99);
    const longer = issueCertificate({ name: 'short', authority: true, issuer: one, key: short });
    authorities.replace(bundle(one, short, longer));
    expect(left(leaf(short)), 'while it is replaced').to.be.within(0.9, 1);
  });

  it('know who issued a certificate when each issuer up to a root is known, and then a root that ends counts too', () => {
    const hour = 1 / 24;
    const ending = issueCertificate({ name: 'ending', authority: true, days: hour });
    const [below, end] = [authority('below', ending), read(ending).validToDate.getTime()];
    const issued = leaf(below);
    const authorities = new ClientAuthorities(bundle(ending));
    expect(clientOf(authorities, issued).knowsIssuers).to.equal(false);
    expect(clientOf(authorities, issued).validUntil).to.equal(read(issued).validToDate.getTime());
    authorities.remember([read(below)]);
    expect(clientOf(authorities, issued).knowsIssuers).to.equal(true);
    expect(clientOf(authorities, issued).validUntil).to.equal(end);
    // With another root it is not known who issued the intermediate.
    authorities.replace(bundle(other));
    expect(clientOf(authorities, issued).knowsIssuers).to.equal(false);
    expect(clientOf(authorities, leaf(other)).knowsIssuers).to.equal(true);
  });

  it('read the certificate of a client once, and anew when there are other authorities', () => {
    const authorities = new ClientAuthorities(bundle(one));
    const issued = leaf(one);
    const client = clientOf(authorities, issued);
    expect(clientOf(authorities, issued)).to.equal(client);
    expect(clientOf(authorities, leaf(one))).not.to.equal(client);
    const ending = issueCertificate({ name: 'root', authority: true, key: one, days: 1 / 24 });
    authorities.replace(bundle(ending));
    expect(clientOf(authorities, issued).validUntil).to.be.below(client.validUntil);
  });

  it('keep no intermediates that a client made up, and look at each of many namesakes once', () => {
    const authorities = new ClientAuthorities(bundle(one));
    const issued = leaf(middle);
    const made = Array.from({ length: 24 }, () => issueCertificate({ name: 'middle', authority: true }));
    const genuine = Array.from({ length: 24 }, () => authority('middle', one));
    for (const intermediate of [...made, ...genuine, middle]) {
      authorities.remember([read(intermediate)]);
    }
    const before = cpuSeconds();
    expect(clientOf(authorities, issued).validUntil).to.be.above(Date.now());
    expect(clientOf(authorities, issued).knowsIssuers).to.equal(true);
    expect(cpuSeconds() - before).to.be.below(0.5);
  });

  it('look at each of many ways to a root that is gone once', () => {
    const authorities = new ClientAuthorities(bundle(one));
    let [above] = [one];
    for (const name of ['first', 'second', 'third']) {
      const key = authority(name, above);
      const again = { name, authority: true, key, issuer: above };
      for (const each of Array.from({ length: 8 }, () => issueCertificate(again)))
        authorities.remember([read(each)]);
      above = key;
    }
    const issued = read(leaf(above));
    expect(authorities.clientOf(issued, () => []).knowsIssuers).to.equal(true);
    authorities.replace(bundle(other));
    const before = cpuSeconds();
    for (let at = 0; at < 100; at++)
      expect(authorities.clientOf(issued, () => []).knowsIssuers).to.equal(false);
    expect(cpuSeconds() - before).to.be.below(0.5);
  });

  it('keep no certificates of other clients, which would drive the intermediates out', () => {
    const authorities = new ClientAuthorities(bundle(one));
    for (const behind of [middle, ...Array.from({ length: 257 }, () => leaf(one))])
      authorities.remember([read(behind)]);
    expect(clientOf(authorities, leaf(middle)).knowsIssuers).to.equal(true);
  });

  it('tell whether one of them is gone', () => {
    const authorities = new ClientAuthorities(bundle(one));
    expect(authorities.replace(bundle(other, one))).to.equal(false);
    expect(authorities.replace(bundle(other))).to.equal(true);
    expect(clientOf(authorities, leaf(one)).knowsIssuers).to.equal(false);
    expect(clientOf(authorities, leaf(other)).knowsIssuers).to.equal(true);
  });
});

describe('authorities with a revocation list', () => {
  it('are refused, because nobody would look at it', () => {
    const list = '-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n';
    const checked = checkTlsMaterial({ ca: Buffer.from(list + authority('one').certificate) });
    expect(checked.ok ? '' : checked.error).to.contain('ca has a revocation list (X509 CRL)');
  });
});

describe('PEM that is half written', () => {
  const [first, second] = [authority('first'), authority('second')];
  const whole = first.certificate + second.certificate;

  it('every prefix of a ca that cuts a certificate is refused', () => {
    for (let length = 1; length < whole.length - 1; length += 13) {
      const parsed = parseCertificates(whole.slice(0, length), 'ca');
      const atEnd = Math.abs(length - first.certificate.length) <= 1;
      expect(parsed.ok, `${length} bytes`).to.equal(atEnd);
    }
    expect(parseCertificates(`# a comment\n${whole}\nmore\n`, 'ca').ok).to.equal(true);
  });

  it('a certificate whose chain is cut is refused, which OpenSSL would take', () => {
    const certificate = Buffer.from(whole.slice(0, -100));
    const checked = checkTlsMaterial({ certificate, privateKey: Buffer.from(first.privateKey) });
    expect(checked.ok ? '' : checked.error).to.contain('certificate is cut off');
  });
});
