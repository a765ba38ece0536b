import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock, Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { explainError } from '../wire/node-error.ts';
import { checkTlsMaterial, type TlsMaterial } from '../wire/tls-material.ts';

/** Paths of PEM files. */
export interface TlsFiles {
  readonly certificate?: string;
  readonly privateKey?: string;
  readonly ca?: string;
}

/** Reads the files and checks that they parse and belong together. */
export async function readTlsFiles(files: TlsFiles): Promise<Result<TlsMaterial>> {
  const certificate = await read('certificate', files.certificate);
  if (!certificate.ok) return certificate;
  const privateKey = await read('private_key', files.privateKey);
  if (!privateKey.ok) return privateKey;
  const ca = await read('ca', files.ca);
  if (!ca.ok) return ca;
  const checked = checkTlsMaterial({ ...certificate.value, ...privateKey.value, ...ca.value });
  return checked.ok ? checked : fail(`${paths(files).join(', ')}: ${checked.error}`);
}

async function read(
  key: 'certificate' | 'private_key' | 'ca',
  path: string | undefined,
): Promise<Result<TlsMaterial>> {
  if (path === undefined) return ok({});
  try {
    const bytes = await readFile(path);
    switch (key) {
      case 'certificate':
        return ok({ certificate: bytes });
      case 'private_key':
        return ok({ privateKey: bytes });
      case 'ca':
        return ok({ ca: bytes });
      default:
        return key satisfies never;
    }
  } catch (error) {
    return fail(`${key} ${path}: ${explainError(error)}`);
  }
}

export interface TlsFilesWatch {
  readonly clock: Clock;
  /** What is in force when the watch begins. */
  readonly current: TlsMaterial;
  /** A new version that is fit for use. */
  changed(material: TlsMaterial): void;
  /** A new version that is not: the old one stays in force. Once for each cause. */
  refused(reason: string): void;
}

/** Certificate and key are written one after the other: look when nothing has changed for so long. Milliseconds. */
const settle = 200;
/** In a directory where something always changes, look all the same. Milliseconds. */
const longestSettle = 2000;
/** For what the notifications miss: symbolic links further up, network file systems. Milliseconds. */
const period = 10_000;

/**
 * Watches until the function returned is called. Whole directories are watched, because files are replaced by renaming:
 * a Kubernetes Secret's by swapping the symbolic link `..data` beside them.
 */
export function watchTlsFiles(files: TlsFiles, options: TlsFilesWatch): () => void {
  const { clock } = options;
  let fingerprint = fingerprintOf(options.current);
  let refusal: string | undefined;
  let closed = false;
  let looks = 0;
  let settling: { readonly timer: Timer; readonly since: number } | undefined;
  let polling = clock.after(period, poll);

  async function look(): Promise<void> {
    const turn = ++looks;
    const found = await readTlsFiles(files);
    // A slower, older look must not win.
    if (closed || turn !== looks) return;
    if (!found.ok) {
      if (found.error !== refusal) options.refused(found.error);
      refusal = found.error;
      return;
    }
    refusal = undefined;
    const next = fingerprintOf(found.value);
    if (next === fingerprint) return;
    fingerprint = next;
    options.changed(found.value);
  }

  function poll(): void {
    // Not at once: files may be half written at any moment.
    noticed();
    polling = clock.after(period, poll);
  }

  function noticed(): void {
    const now = clock.now();
    const since = settling?.since ?? now;
    settling?.timer.cancel();
    const timer = clock.after(Math.min(settle, since + longestSettle - now), () => {
      settling = undefined;
      void look();
    });
    settling = { timer, since };
  }

  const directories = new Set(paths(files).map((path) => dirname(path)));
  const watchers = [...directories].map((directory) => watchDirectory(directory, noticed));
  return () => {
    closed = true;
    polling.cancel();
    settling?.timer.cancel();
    for (const watcher of watchers) watcher?.close();
  };
}

/** Undefined where the system has no more watches to give: polling remains. */
function watchDirectory(directory: string, noticed: () => void): FSWatcher | undefined {
  try {
    return watch(directory, { persistent: false }, noticed).on('error', noticed);
  } catch {
    return undefined;
  }
}

function fingerprintOf(material: TlsMaterial): string {
  const hash = createHash('sha256');
  for (const part of [material.certificate, material.privateKey, material.ca]) {
    hash.update(`${part?.length ?? -1};`).update(part ?? '');
  }
  return hash.digest('hex');
}

function paths(files: TlsFiles): string[] {
  return [files.certificate, files.privateKey, files.ca].filter((path) => path !== undefined);
}
