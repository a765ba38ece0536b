import { X509Certificate } from 'node:crypto';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError } from './node-error.ts';

const block = /-----BEGIN ([A-Z0-9 ]+)-----[^]*?-----END \1-----/g;

/** The certificates of a PEM text, at least one; keys and comments beside them are passed over. `named`: for the error. */
export function parseCertificates(pem: string, named: string): Result<readonly X509Certificate[]> {
  if (isCutOff(pem)) return fail(`${named} is cut off: a PEM block has no end`);
  const certificates: X509Certificate[] = [];
  for (const [text, label] of pem.matchAll(block)) {
    if (label?.endsWith('CERTIFICATE') !== true) continue;
    try {
      certificates.push(new X509Certificate(text));
    } catch (error) {
      const index = certificates.length + 1;
      return fail(`certificate ${index} in ${named} cannot be parsed: ${explainError(error)}`);
    }
  }
  return certificates.length > 0 ? ok(certificates) : fail(`${named} holds no PEM certificate`);
}

/** Whether a PEM text ends within a block, as while it is being written. OpenSSL would take the blocks before that. */
export function isCutOff(pem: string): boolean {
  return /-----BEGIN |-----[A-Z ]*$/.test(pem.replaceAll(block, ''));
}
