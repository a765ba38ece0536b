import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TemporaryDirectory, temporaryDirectory } from '../../e2e/support/paths.ts';
import { type Issued, type IssueOptions, issueCertificate } from '../../support/certificates.ts';
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

const RED = 'spiffe://test/red/proxy';
const BLUE = 'spiffe://test/blue/proxy';
const signed = (options: Omit<IssueOptions, 'name'> & { readonly name?: string }): Issued =>
  issueCertificate({ name: 'attacker', issuer: authority, ...options });

/** What a careless reader of certificates takes for red. */
const impostors: Readonly<Record<string, Issued>> = {
  'the name is the common name': signed({ name: RED }),
  'a DNS name that goes on as a URI': signed({ dns: [`x, URI:${RED}`] }),
  'a URI that goes on as another one': signed({ uris: [`${BLUE}, URI:${RED}`] }),
  'a URI in quotes': signed({ uris: [`"${RED}"`] }),
  'a quote that is not closed': signed({ uris: [`spiffe://test/x", URI:"${RED}`] }),
  'a NUL, and then the URI': signed({ uris: [`${BLUE}\0${RED}`] }),
  'upper case': signed({ uris: ['SPIFFE://TEST/RED/PROXY'] }),
  'a path that goes up': signed({ uris: ['spiffe://test/blue/../red/proxy'] }),
  'the URI as a DNS name': signed({ dns: [RED] }),
  'no name at all': signed({}),
  'a thousand URIs': signed({ uris: Array.from({ length: 1000 }, (_, at) => `spiffe://test/x${at}/proxy`) }),
};

/** Red is the well-behaved one, blue attacks. */
export const tenantsTls: TargetTls = {
  ca: authority.certificate,
  serverName: 'relay.test',
  tenant: red,
  attacker: blue,
  impostors,
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
