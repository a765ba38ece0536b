import { createHash } from 'node:crypto';
import { dirname } from 'node:path';
import { type Clock, Settling, Sweep } from '../model/clock.ts';
import { fail, type Result } from '../model/result.ts';
import { DirectoryWatches } from '../wire/directory-watches.ts';
import { readNamed } from '../wire/named-file.ts';
import { explainError } from '../wire/node-error.ts';
import { checkTlsMaterial, type TlsMaterial } from '../wire/tls-material.ts';

/** Paths of PEM files, and of a secret. */
export type TlsFiles = { readonly [Part in keyof TlsMaterial]?: string | undefined };

/** Each with its key in the configuration. */
const parts = [
  ['certificate', 'certificate'],
  ['privateKey', 'private_key'],
  ['ca', 'ca'],
  ['ticketSecret', 'session_ticket_secret_file'],
] as const satisfies readonly (readonly [keyof TlsMaterial, string])[];

/** Reads the files and checks that they parse and belong together. */
export async function readTlsFiles(files: TlsFiles): Promise<Result<TlsMaterial>> {
  const material: { -readonly [Part in keyof TlsMaterial]: TlsMaterial[Part] } = {};
  for (const [part, key] of parts) {
    const path = files[part];
    if (path === undefined) continue;
    try {
      material[part] = await readNamed(path);
    } catch (error) {
      return fail(`${key} ${path}: ${explainError(error)}`);
    }
  }
  const checked = checkTlsMaterial(material);
  return checked.ok ? checked : fail(`${paths(files).join(', ')}: ${checked.error}`);
}

interface TlsFilesWatch {
  readonly clock: Clock;
  /** What is in force when the watch begins; undefined: nothing yet. */
  readonly current: TlsMaterial | undefined;
  /** A new version that parses and belongs together. */
  take(material: TlsMaterial): void;
  /** A new version was not fit for use: the old one stays in force. Once for each cause. */
  refused(reason: string): void;
  /** After each look: whether what is in the files is in force. */
  looked(isInForce: boolean): void;
}

/** Certificate and key are written one after the other. */
const settlingTimes = { quiet: 200, longest: 2000 };
/** For what the notifications miss: symbolic links further up, network file systems. Milliseconds. */
const period = 10_000;

/**
 * Watches until the function returned is called. A Kubernetes Secret's files change by a swap of the symbolic link
 * `..data` beside them.
 */
export function watchTlsFiles(files: TlsFiles, options: TlsFilesWatch): () => void {
  const { clock } = options;
  let fingerprint = options.current && fingerprintOf(options.current);
  let refusal: string | undefined;
  let closed = false;
  let looks = 0;
  const settling = new Settling(clock, settlingTimes, () => void look());
  const watches = new DirectoryWatches(() => settling.touch());
  const directories = new Set(paths(files).map((path) => dirname(path)));
  const polling = new Sweep(clock, period, () => {
    // Not at once: files may be half written at any moment.
    settling.touch();
    return true;
  });

  async function look(): Promise<void> {
    const turn = ++looks;
    for (const directory of directories) watches.add(directory);
    const found = await readTlsFiles(files);
    // A slower, older look must not win.
    if (closed || turn !== looks) return;
    if (found.ok) {
      const next = fingerprintOf(found.value);
      if (next !== fingerprint) options.take(found.value);
      fingerprint = next;
      refusal = undefined;
    } else if (found.error !== refusal) {
      refusal = found.error;
      options.refused(refusal);
    }
    options.looked(found.ok);
  }

  polling.start();
  for (const directory of directories) watches.add(directory);
  // They may have changed since `current` was read. Where nothing was, they may be about to be written.
  if (options.current !== undefined) settling.touch();
  return () => {
    closed = true;
    polling.stop();
    settling.cancel();
    watches.close();
  };
}

function fingerprintOf(material: TlsMaterial): string {
  const hash = createHash('sha256');
  for (const [part] of parts) hash.update(`${material[part]?.length ?? -1};`).update(material[part] ?? '');
  return hash.digest('hex');
}

function paths(files: TlsFiles): string[] {
  return parts.map(([part]) => files[part]).filter((path) => path !== undefined);
}
