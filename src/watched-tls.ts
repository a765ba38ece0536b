import { isDeepStrictEqual } from 'node:util';
import type { AdsUpstreamConfig, ServerTls, UpstreamConfig } from './config/config.ts';
import type { Core } from './core.ts';
import { type Clock, Settling, Sweep, systemClock } from './model/clock.ts';
import { fail, ok, type Result } from './model/result.ts';
import type { CertificateOwner, FollowedCertificate } from './observe/certificates.ts';
import type { Log } from './observe/log.ts';
import { directoriesOf, readTlsFiles, type TlsFiles } from './security/tls-files.ts';
import type { AdsTls } from './upstream/ads/grpc-channel.ts';
import type { ListenerTls } from './wire/client-connections.ts';
import { DirectoryWatches } from './wire/directory-watches.ts';
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

/** Certificate and key are written one after the other. */
const settlingTimes = { quiet: 200, longest: 2000 };
/** For what the notifications miss: symbolic links further up, network file systems. Milliseconds. */
const period = 10_000;

/**
 * The one place where certificates, keys and authorities are read, followed, counted and logged
 * (docs/adr/0153-one-reader-of-certificates.md). A Kubernetes Secret's files change by a swap of the symbolic link `..data`
 * beside them.
 */
export class TlsFollower {
  readonly #files: TlsFiles;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #certificate: FollowedCertificate;
  readonly #first: Promise<void>;
  readonly #settling: Settling;
  readonly #watches = new DirectoryWatches(() => this.#settling.touch());
  readonly #polling: Sweep;
  #inForce: Result<TlsMaterial> = fail('not read yet');
  #take: (material: TlsMaterial) => void = () => {};
  #looks = 0;
  #saidExpired = false;
  #closed = false;

  constructor(owner: CertificateOwner, files: TlsFiles, { log, metrics }: Observers, clock = systemClock) {
    this.#files = files;
    this.#clock = clock;
    this.#log = log.child({ ...owner });
    const { certificate, ca = '' } = files;
    this.#certificate = metrics.certificates.follow(
      owner,
      certificate ?? ca,
      certificate === undefined ? 'ca' : 'certificate',
    );
    this.#settling = new Settling(clock, settlingTimes, () => void this.#look());
    this.#polling = new Sweep(clock, period, () => {
      // Not at once: files may be half written at any moment.
      this.#settling.touch();
      return true;
    });
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
    this.#polling.stop();
    this.#settling.cancel();
    this.#watches.close();
  }

  async #read(): Promise<void> {
    const found = await readTlsFiles(this.#files);
    this.#inForce = found;
    if (found.ok) Object.assign(this.#certificate, validityOf(found.value));
    this.#warnOfExpiry();
  }

  /** `take`: each version that parses and belongs together, of what has changed since the first reading, too. */
  async follow(take: (material: TlsMaterial) => void = () => {}): Promise<void> {
    const found = await this.material();
    if (this.#closed) return;
    this.#take = take;
    this.#polling.start();
    this.#watch();
    // They may have changed since they were read. Where nothing was, they may be about to be written.
    if (found.ok) this.#settling.touch();
  }

  #watch(): void {
    for (const directory of directoriesOf(this.#files)) this.#watches.add(directory);
  }

  async #look(): Promise<void> {
    const turn = ++this.#looks;
    this.#watch();
    const found = await readTlsFiles(this.#files);
    // A slower, older look must not win.
    if (this.#closed || turn !== this.#looks) return;
    if (!found.ok) this.#refuse(found.error);
    else {
      if (!isDeepStrictEqual(this.#inForce, found)) this.#changed(found.value);
      this.#certificate.refused = undefined;
    }
    this.#warnOfExpiry();
  }

  #changed(next: TlsMaterial): void {
    this.#take(next);
    this.#inForce = ok(next);
    Object.assign(this.#certificate, validityOf(next));
    this.#certificate.reloads.success++;
    this.#saidExpired = false;
    const { kind, file } = this.#certificate;
    if (kind === 'ca') this.#log.info('CA file reloaded', { ca: file });
    else this.#log.info('certificate reloaded', { certificate: file });
  }

  /** What is in force stays so. Once for each cause. */
  #refuse(error: string): void {
    if (error === this.#certificate.refused?.error) return;
    // A connection that has nothing to be made with says why.
    if (!this.#inForce.ok) this.#inForce = fail(error);
    this.#certificate.refuse(error, this.#clock.now());
    const { kind, file } = this.#certificate;
    if (kind === 'ca') this.#log.error('a new CA file is refused', { ca: file, error });
    else this.#log.error('a new certificate is refused', { certificate: file, error });
  }

  /** Once for each certificate: when it is loaded, or when it expires later. */
  #warnOfExpiry(): void {
    const { expiresAt, file } = this.#certificate;
    if (this.#saidExpired || expiresAt === undefined || expiresAt > this.#clock.now()) return;
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
