import { constants, randomBytes, X509Certificate } from 'node:crypto';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { attempt, fail, ok, type Result } from '../model/result.ts';
import { explainError } from './node-error.ts';

/** A TLS end's certificate (chain) and key, and the authorities it trusts; all PEM. */
export interface TlsMaterial {
  readonly certificate?: Buffer;
  readonly privateKey?: Buffer;
  readonly ca?: Buffer;
  /** What the keys of session tickets are derived from. */
  readonly ticketSecret?: Buffer;
}

/** Bytes: as many as the strength of what is derived from it. */
const leastSecretBytes = 32;

/** TLS 1.3, and of TLS 1.2 only what is authenticated encryption (AEAD) with forward secrecy: no CBC, no RSA key exchange. */
const ciphers = [
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'TLS_AES_128_GCM_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

/**
 * The same for node:tls, of both ends. In TLS 1.2 a client could begin another handshake on its connection, and show another
 * certificate or none: the review of a `ca` (ADR 70) would not find the one that its identity came from.
 */
export function secureContextOptions({ certificate, privateKey, ca }: TlsMaterial): SecureContextOptions {
  const secureOptions = constants.SSL_OP_NO_RENEGOTIATION;
  return { ciphers, minVersion: 'TLSv1.2', cert: certificate, key: privateKey, ca, secureOptions };
}

/** For the admin listener, whose TLS sessions no other takes: Node gives all listeners of a process the same context. */
export function serverContextOptions(material: TlsMaterial): SecureContextOptions {
  return { ...secureContextOptions(material), sessionIdContext: randomBytes(16).toString('hex') };
}

/**
 * Whether it parses and the key belongs to the certificate: what would otherwise fail at the first handshake. Whether it
 * is whole, too: OpenSSL takes what comes before the cut, so a `ca` that is being written would trust too few, or nobody.
 */
export function checkTlsMaterial(material: TlsMaterial): Result<TlsMaterial> {
  const { certificate, privateKey, ca, ticketSecret } = material;
  if ((certificate === undefined) !== (privateKey === undefined)) {
    return fail('certificate and private_key belong together: one is missing');
  }
  if (certificate !== undefined && isCutOff(certificate.toString('latin1'))) {
    return fail('certificate is cut off: a PEM block has no end');
  }
  const authorities = ca === undefined ? undefined : parseAuthorities(ca.toString('latin1'), 'ca');
  if (authorities?.ok === false) return authorities;
  const secret = ticketSecret && checkTicketSecret(ticketSecret, 'session_ticket_secret_file');
  if (secret?.ok === false) return secret;
  const made = attempt(() => createSecureContext(secureContextOptions(material)), explainError);
  return made.ok ? ok(material) : made;
}

/** Whether it is long enough. `named`: for the error, which says nothing of what is in it. */
export function checkTicketSecret(secret: Buffer, named: string): Result<undefined> {
  if (secret.length >= leastSecretBytes) return ok(undefined);
  return fail(
    `${named} has ${secret.length} bytes: it must have ${leastSecretBytes} or more, as from "openssl rand -base64 48"`,
  );
}

const block = /-----BEGIN ([A-Z0-9 ]+)-----[^]*?-----END \1-----/g;

/** The certificates of a PEM text, at least one; keys and comments beside them are passed over. `named`: for the error. */
export function parseCertificates(pem: string, named: string): Result<readonly X509Certificate[]> {
  if (isCutOff(pem)) return fail(`${named} is cut off: a PEM block has no end`);
  const certificates: X509Certificate[] = [];
  for (const [text, label] of pem.matchAll(block)) {
    if (label?.endsWith('CERTIFICATE') !== true) continue;
    const parsed = attempt(() => new X509Certificate(text), explainError);
    if (!parsed.ok)
      return fail(`certificate ${certificates.length + 1} in ${named} cannot be parsed: ${parsed.error}`);
    certificates.push(parsed.value);
  }
  return certificates.length > 0 ? ok(certificates) : fail(`${named} has no PEM certificate`);
}

/**
 * `parseCertificates` of a list of authorities. Envoy reads revocation lists that stand in one, nothing here does: who
 * brings such a file must not believe that what it revokes is refused.
 */
export function parseAuthorities(pem: string, named: string): Result<readonly X509Certificate[]> {
  if (!pem.includes('-----BEGIN X509 CRL-----')) return parseCertificates(pem, named);
  return fail(
    `${named} has a revocation list (X509 CRL), but none is read, and what it revokes would be trusted: use certificates only, without the authority of what is revoked`,
  );
}

/** Whether a PEM text ends within a block, as while it is being written. OpenSSL would take the blocks before that. */
function isCutOff(pem: string): boolean {
  return /-----BEGIN |-----[A-Z ]*$/.test(pem.replaceAll(block, ''));
}
