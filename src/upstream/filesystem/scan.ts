import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { lstat, readdir, readFile, realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import { isKnownType } from '../../model/types.ts';
import { DirectoryWatches } from '../../wire/directory-watches.ts';
import { errorCode, explainError } from '../../wire/node-error.ts';
import { type FileProblem, isResourceFile, type ParsedFile, type Place, parseFile } from './parse.ts';
import { describe, type FileResource, readResources } from './resources.ts';

interface ScanOptions {
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

/** What a file contributed when it could last be read. */
interface FileContent {
  readonly versionInfo: string;
  readonly resources: readonly FileResource[];
  /** Of the resources, by index; empty where they are not known. */
  readonly places: readonly (Place | undefined)[];
}

/** What is known of one file. */
export interface FileRecord {
  /** Of the file's status when it was read; `''` if it must be read again whatever its status says. */
  readonly signature: string;
  /** Of its bytes. */
  readonly digest: string;
  /** As it was last read without fault; undefined if it never was. */
  readonly content: FileContent | undefined;
  /** Why it cannot be read as a whole; empty: it is good. */
  readonly problems: readonly FileProblem[];
  /** What will not do what is meant, though the file is good. */
  readonly notes: readonly FileProblem[];
  /**
   * The types that a file which never was good seems to hold. Their other files do not make the whole of the type:
   * what is missing from them is unknown, not absent (protocol §3.9).
   */
  readonly withheld: ReadonlySet<TypeUrl>;
}

const nothing: ReadonlySet<TypeUrl> = new Set();

/** Reads a file's bytes. What cannot be read keeps the last good content. */
export function readRecord(
  file: string,
  bytes: Uint8Array,
  signature: string,
  previous: FileRecord | undefined,
  maxConstraintDepth: number,
): FileRecord {
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (previous?.digest === digest) return { ...previous, signature };
  const parsed = parseFile(file, bytes);
  const sound = parsed.ok ? parsed.value : parsed.error.rest;
  const read = sound === undefined ? undefined : judge(file, sound, maxConstraintDepth);
  const problems = [...(parsed.ok ? [] : parsed.error.problems), ...(read?.problems ?? [])];
  const notes = read?.notes ?? [];
  if (sound === undefined || read === undefined || problems.length > 0) {
    const found = [...problems, ...notes].toSorted((a, b) => (a.place?.line ?? 0) - (b.place?.line ?? 0));
    return badRecord(file, found, previous, signature, digest, bytes);
  }
  const content = {
    versionInfo: sound.response.versionInfo,
    resources: read.resources,
    places: sound.places,
  };
  return { signature, digest, content, problems: [], notes, withheld: nothing };
}

function judge(file: string, parsed: ParsedFile, maxConstraintDepth: number) {
  const { resources, problems } = readResources(parsed.response, maxConstraintDepth);
  const located = problems.map(({ index, message }): Located => {
    return { place: parsed.placeOf(index), message: `resources[${parsed.indexOf(index)}]: ${message}` };
  });
  return { resources, problems: located, notes: notesOn(file, resources, parsed) };
}

type Located = Pick<FileProblem, 'place' | 'message'>;

/** Files send no heartbeats, so that a resource with a TTL ends, at clients too, and does not come again. */
function notesOn(
  file: string,
  resources: readonly FileResource[],
  { placeOf }: ParsedFile,
): readonly FileProblem[] {
  return resources
    .filter(({ put }) => put.ttlMilliseconds !== undefined)
    .map(({ type, put, index }) => ({
      file,
      place: placeOf(index),
      message: `${describe(type, put)} has a ttl: it ends ${(put.ttlMilliseconds ?? 0) / 1000} s after the file is read, because nothing renews it; leave ttl out`,
      types: [],
    }));
}

/** A file that is there, but cannot be read. */
function unreadableRecord(file: string, message: string, previous: FileRecord | undefined): FileRecord {
  return badRecord(file, [{ place: undefined, message }], previous, '', '', new Uint8Array(0));
}

/** More would not be read, and each is a line of the log. */
const mostProblems = 50;

function badRecord(
  file: string,
  found: readonly Located[],
  previous: FileRecord | undefined,
  signature: string,
  digest: string,
  bytes: Uint8Array,
): FileRecord {
  const content = previous?.content;
  const named = typesNamedIn(bytes);
  const before = content?.resources.map(({ type }) => type) ?? [];
  const types = refusedTypes(named, before);
  const left = found.length - mostProblems;
  const more = left > 0 ? [{ place: undefined, message: `${left} more problems are in this file` }] : [];
  // One update is refused, whatever is wrong with it: only the first says of which types.
  const problems = [...found.slice(0, mostProblems), ...more].map(({ place, message }, at) => ({
    file,
    place,
    message,
    types: at === 0 ? types : [],
  }));
  return {
    signature,
    digest,
    content,
    problems,
    notes: content === undefined ? [] : (previous?.notes ?? []),
    withheld: content === undefined ? named : nothing,
  };
}

/**
 * What a file that cannot be read would have changed: the types of the xDS protocol that it names, as others are mostly
 * those of extensions; else what it had before. If neither is known: a type without a name.
 */
function refusedTypes(named: ReadonlySet<TypeUrl>, before: readonly TypeUrl[]): readonly TypeUrl[] {
  const known = [...named].filter(isKnownType);
  if (known.length > 0) return known;
  const others = [...new Set(named.size > 0 ? named : before)];
  return others.length > 0 ? others : [typeUrl('')];
}

/** Type URLs are plain text in every format, the binary one too. */
function typesNamedIn(bytes: Uint8Array): ReadonlySet<TypeUrl> {
  const text = new TextDecoder('latin1').decode(bytes);
  return new Set(text.matchAll(/type\.googleapis\.com\/[\w.]+/g).map(([url]) => typeUrl(url)));
}

/** Milliseconds. A change is looked at once it has been quiet for so long, or when `longestDelayMs` is over. */
const quietMs = 50;
const longestDelayMs = 500;
/** For file systems that do not tell of changes. */
const pollPresentMs = 30_000;
const pollMissingMs = 1_000;
/** A scan during which something changed is done again, so that half of a change is not published; so often. */
const maxRounds = 3;

/** Looks at the files whenever something below the path changes, one look at a time. */
export class FileSource {
  #files: ReadonlyMap<string, FileRecord> = new Map();
  readonly #path: string;
  readonly #maxConstraintDepth: number;
  readonly #clock: Clock;
  readonly #found: (scan: Result<Scan>) => void;
  readonly #watches = new DirectoryWatches(() => this.#changed());
  #timer: Timer | undefined;
  #touchedAt: number | undefined;
  #scanning: Promise<void> | undefined;
  #stopped = false;

  constructor(path: string, maxConstraintDepth: number, clock: Clock, found: (scan: Result<Scan>) => void) {
    this.#path = path;
    this.#maxConstraintDepth = maxConstraintDepth;
    this.#clock = clock;
    this.#found = found;
  }

  start(): void {
    this.#scan();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#scanning;
    this.#watches.close();
  }

  #changed(): void {
    if (this.#stopped) return;
    const now = this.#clock.now();
    this.#touchedAt ??= now;
    if (this.#scanning === undefined)
      this.#scanAfter(Math.min(quietMs, Math.max(0, this.#touchedAt + longestDelayMs - now)));
  }

  #scanAfter(milliseconds: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.after(milliseconds, () => this.#scan());
  }

  #scan(): void {
    if (this.#scanning === undefined && !this.#stopped) this.#scanning = this.#scanOnce();
  }

  async #scanOnce(): Promise<void> {
    const present = await this.#scanUntilQuiet();
    this.#scanning = undefined;
    if (this.#stopped) return;
    if (this.#touchedAt !== undefined) this.#scanAfter(quietMs);
    else this.#scanAfter(present ? pollPresentMs : pollMissingMs);
  }

  /** Whether the path is there. */
  async #scanUntilQuiet(): Promise<boolean> {
    for (let round = 1; ; round++) {
      this.#touchedAt = undefined;
      const directories = new Set<string>();
      const scan = await scanFiles(this.#path, this.#files, {
        maxConstraintDepth: this.#maxConstraintDepth,
        now: () => this.#clock.now(),
        visit: (directory) => {
          directories.add(directory);
          if (!this.#stopped) this.#watches.add(directory);
        },
      });
      if (this.#stopped) return false;
      this.#watches.keepOnly(directories);
      if (scan.ok) this.#files = scan.value.files;
      if (this.#touchedAt !== undefined && round < maxRounds) continue;
      this.#found(scan);
      return scan.ok;
    }
  }
}
