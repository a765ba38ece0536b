import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ChannelCredentials, credentials } from '@grpc/grpc-js';
import type { Issued } from '../../support/certificates.ts';
import { type TemporaryDirectory, temporaryDirectory } from './paths.ts';

/** PEM files, as a configuration names them. */
export class PemFiles implements Disposable {
  readonly #directory: TemporaryDirectory = temporaryDirectory();

  /** By a move: nobody reads half of it. */
  write(name: string, pem: string): string {
    const path = this.path(name);
    writeFileSync(`${path}.new`, pem);
    renameSync(`${path}.new`, path);
    return path;
  }

  /** In place, as a text editor may. */
  overwrite(name: string, pem: string): void {
    writeFileSync(this.path(name), pem);
  }

  path(name: string): string {
    return join(this.#directory.path, name);
  }

  bundle(name: string, authorities: readonly Issued[]): string {
    return this.write(name, authorities.map(({ certificate }) => certificate).join(''));
  }

  identity(name: string, issued: Issued): { certificate: string; private_key: string } {
    return {
      private_key: this.write(`${name}.key`, issued.privateKey),
      certificate: this.write(`${name}.crt`, issued.certificate),
    };
  }

  [Symbol.dispose](): void {
    this.#directory[Symbol.dispose]();
  }
}

/** Of a client that trusts this authority, and has a certificate of its own or none. */
export function trusting(ca: Issued, own?: Issued): ChannelCredentials {
  const roots = Buffer.from(ca.certificate);
  if (own === undefined) return credentials.createSsl(roots);
  return credentials.createSsl(roots, Buffer.from(own.privateKey), Buffer.from(own.certificate));
}
