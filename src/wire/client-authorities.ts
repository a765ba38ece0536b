import type { X509Certificate } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { parseSubjectAltNames, type SubjectAltNames } from './peer.ts';
import { parseCertificates } from './tls-material.ts';
import { Intermediates } from './tls-sessions.ts';

/** A longer chain counts as broken. OpenSSL accepts up to a hundred. */
export const maxChainLength = 10;
/** Of clients; each takes half a KB. */
const maxKnown = 10_000;

/** What a verified certificate says of its client. */
export interface CertifiedClient {
  readonly names: SubjectAltNames;
  /** Milliseconds since the epoch: until when the certificate and what issued it are valid. */
  readonly validUntil: number;
  /** All that issued it are known, up to a root: else `validUntil` does not say when one of them ends. */
  readonly knowsIssuers: boolean;
}

/**
 * Whether the authorities of a listener still vouch for a certificate that was verified before they changed. OpenSSL
 * verifies in a handshake only, so this follows the chain again: names, signatures, and who may be an authority. How
 * long it is valid is `validUntil`: a resumed TLS session was verified when it began (ADR 70).
 */
export class ClientAuthorities {
  #roots: readonly X509Certificate[] = [];
  #own: readonly X509Certificate[] = [];
  readonly #seen: Intermediates;
  /** The revision of `#seen` that the tables are of. */
  #revision = 0;
  /** Of issuers, by fingerprint: until when they and theirs are valid; undefined: none leads to a root, or that is worked out. */
  readonly #ends = new Map<string, number | undefined>();
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
  clientOf(certificate: X509Certificate, issuers: () => readonly X509Certificate[]): CertifiedClient {
    this.#lookAnew();
    const { fingerprint256 } = certificate;
    const known = this.#clients.get(fingerprint256);
    if (known?.knowsIssuers === true) return known;
    let validUntil = this.#validUntil(certificate, 0);
    if (validUntil === undefined) {
      // First, as the intermediates count for the time.
      this.remember(issuers());
      this.#lookAnew();
      validUntil = this.#validUntil(certificate, 0);
    }
    const client = {
      names: parseSubjectAltNames(certificate.subjectAltName ?? ''),
      validUntil: validUntil ?? certificate.validToDate.getTime(),
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
      if (!isKnown && intermediate.ca && this.vouchFor(intermediate)) this.#seen.show(intermediate);
    }
  }

  /**
   * Until when the certificate and what issued it are valid, up to a root; undefined: no way that is known leads to one. By
   * signatures: another issuer may have the name of one that is known. Of several ways, as while an issuer is replaced, the
   * one that lasts longest counts.
   */
  #validUntil(certificate: X509Certificate, depth: number): number | undefined {
    const own = certificate.validToDate.getTime();
    if (this.#roots.some((root) => isSame(root, certificate))) return own;
    if (depth > maxChainLength) return undefined;
    let issuers: number | undefined;
    for (const issuer of [...this.#own, ...this.#seen.values()]) {
      if (issuers !== undefined && issuers >= own) break;
      const mayIssue = issuer.ca || this.#roots.includes(issuer);
      const until = mayIssue && isIssued(certificate, issuer) ? this.#until(issuer, depth) : undefined;
      if (until !== undefined) issuers = Math.max(issuers ?? 0, until);
    }
    return issuers === undefined ? undefined : Math.min(own, issuers);
  }

  /** Of an issuer: worked out once. */
  #until(issuer: X509Certificate, depth: number): number | undefined {
    const { fingerprint256 } = issuer;
    if (this.#ends.has(fingerprint256)) return this.#ends.get(fingerprint256);
    // While its own chain is followed: two certificates may have issued each other.
    this.#ends.set(fingerprint256, undefined);
    const until = this.#validUntil(issuer, depth + 1);
    this.#ends.set(fingerprint256, until);
    return until;
  }

  /** Others add to what was seen. */
  #lookAnew(): void {
    if (this.#revision !== this.#seen.revision) this.#forget();
  }

  #forget(): void {
    this.#revision = this.#seen.revision;
    this.#ends.clear();
    this.#clients.clear();
  }

  vouchFor(certificate: X509Certificate): boolean {
    this.#lookAnew();
    return this.#validUntil(certificate, 0) !== undefined;
  }
}

const isSame = (one: X509Certificate, other: X509Certificate): boolean =>
  one.fingerprint256 === other.fingerprint256;

function isIssued(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}
