import { X509Certificate } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { parseSubjectAltNames, type ShownCertificate, type SubjectAltNames } from './peer.ts';
import { parseCertificates } from './tls-material.ts';
import { Intermediates } from './tls-sessions.ts';

/** Of what a client shows. OpenSSL accepts up to a hundred. */
export const maxChainLength = 10;
/** Of clients; each takes half a KB. */
const maxKnown = 10_000;

/** What a verified certificate says of its client. */
export interface CertifiedClient {
  readonly names: SubjectAltNames;
  /** Milliseconds since the epoch: until when the certificate and what issued it are valid. */
  readonly validUntil: number;
  /** The authorities vouch for it: all that issued it are known, up to a root. Else `validUntil` does not say when one of them ends. */
  readonly knowsIssuers: boolean;
}

/**
 * Whether the authorities of a listener still vouch for a certificate that was verified before they changed. OpenSSL
 * verifies in a handshake only, so this follows its chains again: names, signatures, and who may be an authority. How
 * long it is valid is `validUntil`: a resumed TLS session was verified when it began (ADR 70).
 */
export class ClientAuthorities {
  #roots: readonly X509Certificate[] = [];
  #own: readonly X509Certificate[] = [];
  readonly #seen: Intermediates;
  /** The revision of `#seen` that the tables are of. */
  #revision = 0;
  /** Those that lead to a root, and until when they and theirs are valid: what lasts longest first. */
  #issuers: ReadonlyMap<X509Certificate, number> = new Map();
  /** By fingerprint: a fleet that comes back brings the same certificates, and to read one takes longer than to find it. */
  readonly #clients = new LRUCache<string, CertifiedClient>({ max: maxKnown });

  /** `seen`: what clients have shown, and will. */
  constructor(ca: Buffer, seen = new Intermediates()) {
    this.#seen = seen;
    this.replace(ca);
  }

  /** Replaces the authorities. True: one of the old ones is missing in the new ones. */
  replace(ca: Buffer): boolean {
    const parsed = parseCertificates(ca.toString('latin1'), 'ca');
    const next = parsed.ok ? parsed.value : [];
    const fingerprints = new Set(next.map(({ fingerprint256 }) => fingerprint256));
    const isMissing = this.#own.some(({ fingerprint256 }) => !fingerprints.has(fingerprint256));
    this.#own = next;
    this.#roots = next.filter((certificate) => isIssued(certificate, certificate));
    this.#forget();
    return isMissing;
  }

  /**
   * Whom a certificate names that came with a connection, and for how long. `issuers`: what it was verified by, the last one
   * first. To read them takes longer than all the rest, so they are asked for where they are not known.
   */
  clientOf(shown: ShownCertificate, issuers: () => readonly X509Certificate[]): CertifiedClient {
    this.#lookAnew();
    const { fingerprint256, raw } = shown;
    const known = this.#clients.get(fingerprint256);
    if (known?.knowsIssuers === true) return known;
    const certificate = new X509Certificate(raw);
    let validUntil = this.#validUntil(certificate);
    if (validUntil === undefined) {
      // First, as the intermediates count for the time.
      this.remember(issuers());
      this.#lookAnew();
      validUntil = this.#validUntil(certificate);
    }
    const client = {
      names: parseSubjectAltNames(certificate.subjectAltName ?? ''),
      validUntil: validUntil ?? endOf(certificate),
      knowsIssuers: validUntil !== undefined,
    };
    this.#clients.set(fingerprint256, client);
    return client;
  }

  /**
   * Keeps the intermediates that came with a verified certificate, if they are vouched for: a client may send any. So are
   * certificates of other clients, which may issue none: they would drive the intermediates out.
   */
  remember(issuers: readonly X509Certificate[]): void {
    for (const intermediate of issuers) {
      const isKnown = this.#own.some((one) => isSame(one, intermediate)) || this.#seen.see(intermediate);
      if (isKnown || !intermediate.ca) continue;
      this.#lookAnew();
      if (this.#validUntil(intermediate) !== undefined) this.#seen.show(intermediate);
    }
  }

  /** Until when the certificate and what issued it are valid, up to a root; undefined: no way that is known leads to one. */
  #validUntil(certificate: X509Certificate): number | undefined {
    const found = this.#issuers.entries().find(([issuer]) => isIssued(certificate, issuer));
    return found && Math.min(endOf(certificate), found[1]);
  }

  /**
   * From the roots down, so that authorities that issued each other are no circle. By signatures: another issuer may have
   * the name of one that is known. Of several ways, as while an issuer is replaced, the one that lasts longest counts: what
   * lasts longest is followed first.
   */
  #followDown(): ReadonlyMap<X509Certificate, number> {
    const issuers = new Map<X509Certificate, number>();
    const reached = new Map(this.#roots.map((root) => [root, endOf(root)]));
    const all = [...this.#own, ...this.#seen.values()].filter(({ ca }) => ca);
    const left = new Set(all).difference(new Set(this.#roots));
    while (reached.size > 0) {
      const [issuer, until] = [...reached].reduce((one, other) => (other[1] > one[1] ? other : one));
      reached.delete(issuer);
      issuers.set(issuer, until);
      for (const one of left) {
        if (!isIssued(one, issuer)) continue;
        left.delete(one);
        reached.set(one, Math.min(endOf(one), until));
      }
    }
    return issuers;
  }

  /** Others add to what was seen. */
  #lookAnew(): void {
    if (this.#revision !== this.#seen.revision) this.#forget();
  }

  #forget(): void {
    this.#revision = this.#seen.revision;
    this.#issuers = this.#followDown();
    this.#clients.clear();
  }
}

const endOf = ({ validToDate }: X509Certificate): number => validToDate.getTime();

const isSame = (one: X509Certificate, other: X509Certificate): boolean =>
  one.fingerprint256 === other.fingerprint256;

/** To verify a signature takes longer than all the rest, and the same authorities are looked at again and again. */
const verified = new WeakMap<X509Certificate, X509Certificate>();

function isIssued(certificate: X509Certificate, issuer: X509Certificate): boolean {
  if (verified.get(certificate) === issuer) return true;
  if (!certificate.checkIssued(issuer) || !certificate.verify(issuer.publicKey)) return false;
  verified.set(certificate, issuer);
  return true;
}
