import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '../../e2e/support/paths.ts';
import { issueCertificate } from '../../support/certificates.ts';
import type { TargetTls } from './target.ts';

/** What only the tenant red may see: its resources have it as content. */
export const SECRET = 'SECRET-OF-RED';
const authority = issueCertificate({ name: 'authority', authority: true });
const server = issueCertificate({
  name: 'relay',
  issuer: authority,
  dns: ['relay.test'],
  ips: ['127.0.0.1'],
});
const red = issueCertificate({ name: 'red', issuer: authority, uris: ['spiffe://test/red/proxy'] });
const blue = issueCertificate({ name: 'blue', issuer: authority, uris: ['spiffe://test/blue/proxy'] });

/** Red is the well-behaved one, blue attacks. */
export const tenantsTls: TargetTls = {
  ca: authority.certificate,
  serverName: 'relay.test',
  tenant: red,
  attacker: blue,
};

/** Rules by which each tenant has names of its own, and all share some. */
export const tenantsAuthorization = {
  rules: [
    { principals: ['spiffe://test/red/*'], names: ['red-*', 'shop'], allow: true },
    { principals: ['spiffe://test/blue/*'], names: ['blue-*', 'shop'], allow: true },
  ],
};

/** Whose variant a client gets is a matter of its certificate. */
export const tenantParameter = {
  key: 'tenant',
  from: 'peer.uri_san',
  pattern: '^spiffe://test/([a-z]+)/',
  trusted: true,
};

/** The PEM files of a listener with mutual TLS. */
export class TenantFiles implements Disposable {
  readonly #directory: TemporaryDirectory = temporaryDirectory();
  /** As the configuration has it. */
  readonly tls = {
    private_key: this.#write('relay.key', server.privateKey),
    certificate: this.#write('relay.crt', server.certificate),
    ca: this.#write('ca.crt', authority.certificate),
    require_client_certificate: true,
  };

  [Symbol.dispose](): void {
    this.#directory[Symbol.dispose]();
  }

  #write(name: string, pem: string): string {
    const path = join(this.#directory.path, name);
    writeFileSync(`${path}.new`, pem);
    renameSync(`${path}.new`, path);
    return path;
  }
}
