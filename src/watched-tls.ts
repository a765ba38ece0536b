import type { AdsUpstreamConfig, ServerTls, UpstreamConfig } from './config/config.ts';
import type { Core } from './core.ts';
import { systemClock } from './model/clock.ts';
import { fail, ok, type Result } from './model/result.ts';
import type { CertificateOwner, FollowedCertificate } from './observe/certificates.ts';
import type { Log } from './observe/log.ts';
import { readTlsFiles, type TlsFiles, watchTlsFiles } from './security/tls-files.ts';
import type { AdsTls } from './upstream/ads/grpc-channel.ts';
import type { ListenerTls } from './wire/client-connections.ts';
import { parseCertificates, type TlsMaterial } from './wire/tls-material.ts';

type Observers = Pick<Core, 'log' | 'metrics'>;

/** A listener's certificate. */
interface ListenerCertificate {
  /** Undefined: plaintext. */
  readonly material: ListenerTls | undefined;
  /** Hands each version that came after `material` to the server, without a restart, until `close`. */
  readonly follow: (server: { setTls(material: ListenerTls): void }) => void;
  readonly close: () => void;
}

const plaintext: ListenerCertificate = { material: undefined, follow: () => {}, close: () => {} };

export async function readListenerTls(
  files: (ServerTls & Pick<TlsFiles, 'ticketSecret'>) | undefined,
  observers: Observers,
  listener: string,
): Promise<Result<ListenerCertificate>> {
  if (files === undefined) return ok(plaintext);
  const { requireClientCertificate, ...paths } = files;
  const followed = new TlsFollower({ listener }, paths, observers);
  const material = await followed.material();
  if (material.ok) {
    return ok({
      material: { ...material.value, requireClientCertificate },
      follow: (server) =>
        void followed.follow((next) => server.setTls({ ...next, requireClientCertificate })),
      close: () => followed.close(),
    });
  }
  followed.close();
  return material;
}

export type UpstreamTls = ReturnType<typeof watchUpstreamTls>;

/** What connections to an upstream and to its siblings are made with, followed until it is closed. Undefined: plaintext. */
export function watchUpstreamTls(upstream: UpstreamConfig, observers: Observers) {
  const { name } = upstream;
  const { tls, siblings } = upstream.kind === 'ads' ? upstream : {};
  const followers: TlsFollower[] = [];
  const follow = (owner: CertificateOwner, config: AdsUpstreamConfig['tls']): AdsTls | undefined => {
    if (config === undefined) return undefined;
    const { ca, identity, serverName, serverIdentities } = config;
    const paths = { ...identity, ...(ca === undefined ? {} : { ca }) };
    // The authorities that come with Node, and nothing of its own.
    if (identity === undefined && ca === undefined)
      return { material: async () => ok({}), serverName, serverIdentities };
    const followed = new TlsFollower(owner, paths, observers);
    void followed.follow();
    followers.push(followed);
    return { material: () => followed.material(), serverName, serverIdentities };
  };
  return {
    ads: follow({ upstream: name }, tls),
    siblings: follow({ upstream: name, siblings: 'true' }, siblings?.tls),
    close: () => {
      for (const followed of followers) followed.close();
    },
  };
}

/**
 * The one place where certificates, keys and authorities are read, followed, counted and logged
 * (docs/adr/0153-one-reader-of-certificates.md).
 */
class TlsFollower {
  readonly #files: TlsFiles;
  readonly #log: Log;
  readonly #certificate: FollowedCertificate;
  readonly #first: Promise<void>;
  #inForce: Result<TlsMaterial> = fail('not read yet');
  #saidExpired = false;
  #closed = false;
  #stop = (): void => {};

  constructor(owner: CertificateOwner, files: TlsFiles, { log, metrics }: Observers) {
    this.#files = files;
    this.#log = log.child({ ...owner });
    const { certificate, ca = '' } = files;
    this.#certificate = metrics.certificates.follow(
      owner,
      certificate ?? ca,
      certificate === undefined ? 'ca' : 'certificate',
    );
    this.#first = this.#read();
  }

  /** What is in force, when the files were read once; the error says why nothing is. */
  async material(): Promise<Result<TlsMaterial>> {
    await this.#first;
    return this.#inForce;
  }

  close(): void {
    this.#closed = true;
    this.#certificate.stop();
    this.#stop();
  }

  async #read(): Promise<void> {
    const found = await readTlsFiles(this.#files);
    this.#inForce = found;
    if (found.ok) Object.assign(this.#certificate, validityOf(found.value));
    this.#warnOfExpiry();
  }

  /** What has changed since the first reading, too. */
  async follow(take: (material: TlsMaterial) => void = () => {}): Promise<void> {
    const found = await this.material();
    if (this.#closed) return;
    this.#stop = watchTlsFiles(this.#files, {
      clock: systemClock,
      current: found.ok ? found.value : undefined,
      take: (next) => {
        take(next);
        this.#changed(next);
      },
      refused: (error) => this.#refused(error),
      looked: (isInForce) => {
        if (isInForce) this.#certificate.refused = undefined;
        this.#warnOfExpiry();
      },
    });
  }

  #changed(next: TlsMaterial): void {
    this.#inForce = ok(next);
    Object.assign(this.#certificate, validityOf(next));
    this.#certificate.reloads.success++;
    this.#saidExpired = false;
    const { kind, file } = this.#certificate;
    if (kind === 'ca') this.#log.info('CA file reloaded', { ca: file });
    else this.#log.info('certificate reloaded', { certificate: file });
  }

  #refused(error: string): void {
    // A connection that has nothing to be made with says why.
    if (!this.#inForce.ok) this.#inForce = fail(error);
    this.#certificate.refuse(error, systemClock.now());
    const { kind, file } = this.#certificate;
    if (kind === 'ca') this.#log.error('a new CA file is refused', { ca: file, error });
    else this.#log.error('a new certificate is refused', { certificate: file, error });
  }

  /** Once for each certificate: when it is loaded, or when it expires later. */
  #warnOfExpiry(): void {
    const { expiresAt, file } = this.#certificate;
    if (this.#saidExpired || expiresAt === undefined || expiresAt > systemClock.now()) return;
    this.#saidExpired = true;
    this.#log.warn('the certificate has expired', {
      certificate: file,
      expired: new Date(expiresAt).toISOString(),
    });
  }
}

/** Of the first certificate of the chain. */
function validityOf({ certificate }: TlsMaterial): Pick<FollowedCertificate, 'validFrom' | 'expiresAt'> {
  const chain = certificate && parseCertificates(certificate.toString('latin1'), 'certificate');
  const first = chain?.ok === true ? chain.value[0] : undefined;
  return { validFrom: first?.validFromDate.getTime(), expiresAt: first?.validToDate.getTime() };
}
