import { createSecureContext, type SecureContextOptions } from 'node:tls';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError } from './node-error.ts';

/** A TLS end's certificate (chain) and key, and the authorities it trusts; all PEM. */
export interface TlsMaterial {
  readonly certificate?: Buffer;
  readonly privateKey?: Buffer;
  readonly ca?: Buffer;
}

/** The same for node:tls. */
export function secureContextOptions(material: TlsMaterial): SecureContextOptions {
  const options: SecureContextOptions = {};
  if (material.certificate !== undefined) options.cert = material.certificate;
  if (material.privateKey !== undefined) options.key = material.privateKey;
  if (material.ca !== undefined) options.ca = material.ca;
  return options;
}

/** Whether it parses and the key belongs to the certificate: what would otherwise fail at the first handshake. */
export function checkTlsMaterial(material: TlsMaterial): Result<TlsMaterial> {
  if ((material.certificate === undefined) !== (material.privateKey === undefined)) {
    return fail('certificate and private_key belong together: one is missing');
  }
  // OpenSSL takes a file without any certificate as an empty list of authorities: nobody would be trusted.
  if (material.ca !== undefined && !material.ca.includes('-----BEGIN ')) {
    return fail('ca holds no PEM certificate');
  }
  try {
    createSecureContext(secureContextOptions(material));
    return ok(material);
  } catch (error) {
    return fail(explainError(error));
  }
}
