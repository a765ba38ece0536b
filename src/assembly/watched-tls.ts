import { X509Certificate } from 'node:crypto';
import type { ServerTls } from '../config/config.ts';
import { systemClock } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { readTlsFiles, watchTlsFiles } from '../security/tls-files.ts';
import type { ListenerTls } from '../wire/listener.ts';
import type { TlsMaterial } from '../wire/tls-material.ts';
import type { Core } from './core.ts';

/** Takes a new certificate for the connections from now on. */
interface TlsServer {
  setTls(material: ListenerTls): Result<undefined>;
}

/** A listener's certificate, followed until it is closed. */
export interface WatchedTls {
  /** Undefined: plaintext. */
  readonly material: ListenerTls | undefined;
  close(): void;
}

const plaintext: WatchedTls = { material: undefined, close: () => {} };

/** Reads a listener's certificate and hands each new version to the server, without a restart. */
export async function watchTls(
  files: ServerTls | undefined,
  server: () => TlsServer | undefined,
  { log, metrics }: Pick<Core, 'log' | 'metrics'>,
  listener: string,
): Promise<Result<WatchedTls>> {
  if (files === undefined) return ok(plaintext);
  const { certificate, privateKey, ca, requireClientCertificate } = files;
  const paths = { certificate, privateKey, ...(ca === undefined ? {} : { ca }) };
  const material = await readTlsFiles(paths);
  if (!material.ok) return fail(material.error);
  metrics.certificateExpiry(listener, expiryOf(material.value));
  const refused = (error: string): void => {
    metrics.certificateRefused(listener, error, systemClock.now());
    log.error('a new certificate is refused', { certificate, error });
  };
  const close = watchTlsFiles(paths, {
    clock: systemClock,
    current: material.value,
    changed: (next) => {
      const set = server()?.setTls({ ...next, requireClientCertificate });
      if (set?.ok === false) {
        refused(set.error);
        return;
      }
      metrics.certificateExpiry(listener, expiryOf(next));
      log.info('certificate reloaded', { certificate });
    },
    refused,
  });
  return ok({ material: { ...material.value, requireClientCertificate }, close });
}

/** Of the first certificate of the chain. The material was checked. */
function expiryOf({ certificate }: TlsMaterial): number {
  return certificate === undefined ? 0 : new X509Certificate(certificate).validToDate.getTime();
}
