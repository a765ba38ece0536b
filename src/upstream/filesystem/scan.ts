import type { BigIntStats } from 'node:fs';
import { lstat, readdir, readFile, realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { fail, ok, type Result } from '../../model/result.ts';
import { errorCode, explainError } from '../../wire/node-error.ts';
import { isResourceFile } from './parse.ts';
import type { FileProblem } from './problem.ts';
import { type FileRecord, readRecord, unreadableRecord } from './record.ts';

export interface ScanOptions {
  readonly maxConstraintDepth: number;
  /** Milliseconds since the epoch, as file times have it. */
  now(): number;
  /** Called for each directory before it is read, so that a watch on it misses nothing. */
  visit(directory: string): void;
}

export interface Scan {
  /** By path, in path order. */
  readonly files: ReadonlyMap<string, FileRecord>;
  /** Of directories; those of files are in their records. */
  readonly problems: readonly FileProblem[];
}

/**
 * Reads all resource files below `root` (or `root` itself, if it is a file). Names that begin with a dot are skipped:
 * editors' copies, and the `..data` directories of a ConfigMap, whose files are seen through their links. Only files
 * whose status changed are read, and only those whose bytes changed are parsed. The error says why `root` cannot be
 * read at all.
 */
export async function scanFiles(
  root: string,
  previous: ReadonlyMap<string, FileRecord>,
  options: ScanOptions,
): Promise<Result<Scan>> {
  const walk = new Walk(previous, options);
  try {
    if ((await lstat(root)).isSymbolicLink()) options.visit(dirname(root));
    if ((await stat(root)).isDirectory()) {
      options.visit(await realpath(root));
      const entries = await readdir(root);
      await walk.directory(root, entries);
    } else {
      options.visit(dirname(root));
      await walk.file(root);
    }
  } catch (error) {
    return fail(`cannot read ${root}: ${explainError(error)}`);
  }
  const files = [...walk.files].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return ok({ files: new Map(files), problems: walk.problems });
}

class Walk {
  readonly files = new Map<string, FileRecord>();
  readonly problems: FileProblem[] = [];
  readonly #previous: ReadonlyMap<string, FileRecord>;
  readonly #options: ScanOptions;
  /** Real paths: a link to a directory that was seen already, a loop for one, is not followed. */
  readonly #seen = new Set<string>();

  constructor(previous: ReadonlyMap<string, FileRecord>, options: ScanOptions) {
    this.#previous = previous;
    this.#options = options;
  }

  async directory(path: string, names: readonly string[]): Promise<void> {
    this.#seen.add(await realpath(path));
    for (const name of names.toSorted()) {
      if (name.startsWith('.')) continue;
      await this.#entry(join(path, name));
    }
  }

  async #entry(path: string): Promise<void> {
    try {
      const link = (await lstat(path)).isSymbolicLink();
      const real = link ? await realpath(path) : path;
      const status = await stat(real, { bigint: true });
      if (status.isDirectory()) {
        await this.#subdirectory(path, await realpath(path));
      } else if (status.isFile() && isResourceFile(path)) {
        // What a link points at can change without a trace in the directory of the link.
        if (link) this.#options.visit(dirname(real));
        await this.file(path, status);
      }
    } catch (error) {
      this.#unreadable(path, error);
    }
  }

  async #subdirectory(path: string, real: string): Promise<void> {
    if (this.#seen.has(real)) return;
    this.#options.visit(real);
    await this.directory(path, await readdir(path));
  }

  async file(path: string, known?: BigIntStats): Promise<void> {
    const previous = this.#previous.get(path);
    const status = known ?? (await stat(path, { bigint: true }));
    const signature = `${status.dev}:${status.ino}:${status.size}:${status.mtimeNs}:${status.ctimeNs}`;
    if (previous?.signature === signature) {
      this.files.set(path, previous);
      return;
    }
    // Two writes within the file system's clock tick look like one: such a status proves nothing yet.
    const settled = this.#options.now() - Number(status.ctimeMs) > clockTickMs;
    const bytes = await readFile(path);
    const { maxConstraintDepth } = this.#options;
    this.files.set(path, readRecord(path, bytes, settled ? signature : '', previous, maxConstraintDepth));
  }

  /** Listed, but not to be read: what was known of it stays (protocol §3.9). */
  #unreadable(path: string, error: unknown): void {
    if (isResourceFile(path)) {
      this.files.set(path, unreadableRecord(path, explainError(error), this.#previous.get(path)));
      return;
    }
    if (errorCode(error) === 'ENOENT') return;
    this.problems.push({ file: path, place: undefined, message: explainError(error), types: [] });
    for (const [file, record] of this.#previous) {
      if (file.startsWith(path + sep)) this.files.set(file, record);
    }
  }
}

/** Milliseconds; generous, as some file systems keep whole seconds only, but then sizes mostly differ. */
const clockTickMs = 50;
