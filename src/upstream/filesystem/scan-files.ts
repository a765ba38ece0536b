import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { lstat, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { type TypeUrl, typeUrl } from '../../model/brand.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import { isKnownType } from '../../model/types.ts';
import { linksOnTheWay } from '../../wire/directory-watches.ts';
import { errorCode, explainError } from '../../wire/node-error.ts';
import {
  type FileProblem,
  type FileResource,
  isResourceFile,
  type Located,
  parseFile,
  readResources,
  tooLarge,
} from './resource-file.ts';

/** By path, in path order; directories that cannot be listed too. */
export type Files = ReadonlyMap<string, FileRecord>;

/**
 * Reads all resource files below `root` (or `root` itself, if it is a file). Names that begin with a dot are skipped:
 * editors' copies, and the `..data` directories of a ConfigMap, whose files are seen through their links. So are those
 * of other programs, `othersNames`. Only files whose status changed are read, and only those whose bytes changed are
 * parsed. The error says why `root` cannot be read at all. `now`: milliseconds since the epoch, as file times have it.
 * `visit`: is called for each directory before it is read, so that a watch on it misses nothing.
 */
export async function scanFiles(
  root: string,
  previous: Files,
  maxConstraintDepth: number,
  now: () => number,
  visit: (directory: string) => void,
): Promise<Result<Files>> {
  const files = new Map<string, FileRecord>();
  /** What symbolic links point at, by their paths; undefined: it is none. */
  const targets = new Map<string, string | undefined>();
  /** Real paths: a link to a directory that was seen already, a loop for one, is not followed. */
  const seen = new Set<string>();
  let directories: ReadonlySet<string> | undefined;

  async function readDirectory(path: string, real: string): Promise<void> {
    if (seen.has(real)) return;
    visit(real);
    const names = await readdir(path);
    seen.add(real);
    for (const name of names.toSorted())
      if (!name.startsWith('.') && !othersNames.has(name)) await readEntry(join(path, name));
  }

  async function readEntry(path: string): Promise<void> {
    try {
      const link = (await lstat(path)).isSymbolicLink();
      if (link) await visitLinks(path);
      const real = link ? await realpath(path) : path;
      const status = await stat(real, { bigint: true });
      if (status.isDirectory()) {
        await readDirectory(path, await realpath(path));
      } else if (status.isFile() && isResourceFile(path)) {
        // What a link points at can change without a trace in the directory of the link.
        if (link) visit(dirname(real));
        await readOne(path, status);
      }
    } catch (error) {
      foundUnreadable(path, error);
    }
  }

  /** Any link on the way can be replaced, as that of a release. */
  async function visitLinks(path: string): Promise<void> {
    const walk = linksOnTheWay(path);
    for (let step = walk.next(); step.done !== true; ) {
      const at = step.value;
      if (!targets.has(at)) targets.set(at, await readlink(at).catch(() => undefined));
      const target = targets.get(at);
      if (target !== undefined) visit(dirname(at));
      step = walk.next(target);
    }
  }

  async function readOne(path: string, { dev, ino, size, mtimeNs, ctimeNs, ctimeMs }: BigIntStats) {
    const large = tooLarge(path, size);
    if (large !== undefined) {
      foundBad(path, large);
      return;
    }
    const before = previous.get(path);
    const signature = `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`;
    if (before?.signature === signature) {
      files.set(path, before);
      return;
    }
    // Two writes within the file system's clock tick look like one: such a status proves nothing yet.
    const settled = now() - Number(ctimeMs) > clockTickMs;
    const bytes = await readFile(path);
    files.set(path, readRecord(path, bytes, settled ? signature : '', before, maxConstraintDepth));
  }

  /** Listed, but not to be read: what was known of it, or below it, stays (protocol §3.9). */
  function foundUnreadable(path: string, error: unknown): void {
    directories ??= directoriesOf(previous);
    const below = directories.has(path) ? [...previous].filter(([file]) => file.startsWith(path + sep)) : [];
    if (errorCode(error) === 'ENOENT' && below.length === 0 && !isResourceFile(path)) return;
    for (const [file, record] of below) files.set(file, record);
    foundBad(path, explainError(error), below.length > 0 ? emptyRecord : undefined);
  }

  function foundBad(path: string, message: string, others?: LastGood): void {
    const before = previous.get(path);
    if (before?.digest === '' && before.problems[0]?.message === message) files.set(path, before);
    else files.set(path, badRecord(path, [{ place: undefined, message }], before ?? others, unread));
  }

  try {
    await visitLinks(root);
    const status = await stat(root, { bigint: true });
    if (status.isDirectory()) await readDirectory(root, await realpath(root));
    else {
      visit(dirname(await realpath(root)));
      await readOne(root, status);
    }
  } catch (error) {
    return fail(`cannot read ${root}: ${explainError(error)}`);
  }
  const sorted = [...files].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return ok(new Map(sorted));
}

/** All those in which something is, at whatever depth. */
function directoriesOf(files: Files): ReadonlySet<string> {
  const all = new Set<string>();
  for (const file of files.keys()) for (let at = dirname(file); !all.has(at); at = dirname(at)) all.add(at);
  return all;
}

/** Of the root of an ext4 file system, which only root can list, and of kustomize, whose `resources` are files. */
const othersNames: ReadonlySet<string> = new Set(['lost+found', 'kustomization.yaml', 'kustomization.yml']);

/** Milliseconds; generous, as some file systems keep whole seconds only, but then sizes mostly differ. */
const clockTickMs = 50;

/** What is known of one file. */
export interface FileRecord {
  /** Of the file's status when it was read; `''` if it must be read again whatever its status says. */
  readonly signature: string;
  /** Of its bytes. */
  readonly digest: string;
  /** As it was last read without fault; undefined if it never was. */
  readonly resources: readonly FileResource[] | undefined;
  /** Why it cannot be read as a whole; empty: it is good. */
  readonly problems: readonly FileProblem[];
  /** What will not do what is meant, though the file is good. */
  readonly notes: readonly FileProblem[];
  /** Of one without resources: of which type there are none, and in which version. */
  readonly empty: { readonly type: TypeUrl; readonly versionInfo: string } | undefined;
  /** What is missing of these types is unknown, not absent (protocol §3.9). Nothing, of a file that ever was good. */
  readonly withheld: Withheld;
}

/** The types that what never was good seems to hold; all, if it does not show which. */
export type Withheld = ReadonlySet<TypeUrl> | 'ALL';

const nothing: ReadonlySet<TypeUrl> = new Set();

/** What stays of a file that cannot be read now. */
type LastGood = Pick<FileRecord, 'resources' | 'notes' | 'empty'>;

const emptyRecord: LastGood = { resources: [], notes: [], empty: undefined };

/** Reads a file's bytes. What cannot be read keeps the last good content. */
export function readRecord(
  file: string,
  bytes: Uint8Array,
  signature: string,
  previous: FileRecord | undefined,
  maxConstraintDepth: number,
): FileRecord {
  // It may have grown since its size was asked for.
  const large = tooLarge(file, BigInt(bytes.length));
  if (large !== undefined) return badRecord(file, [{ place: undefined, message: large }], previous, unread);
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (previous?.digest === digest) return { ...previous, signature };
  const parsed = parseFile(file, bytes);
  const sound = parsed.ok ? parsed.value : parsed.error.rest;
  const read = sound && readResources(file, sound, maxConstraintDepth);
  const problems = [...(parsed.ok ? [] : parsed.error.problems), ...(read?.problems ?? [])];
  const notes = bounded(file, read?.notes ?? []);
  if (read === undefined || problems.length > 0) {
    const found = [...problems, ...notes].toSorted((a, b) => (a.place?.line ?? 0) - (b.place?.line ?? 0));
    const named = typesNamedIn(bytes);
    const isOther = !parsed.ok && parsed.error.isOther;
    return badRecord(file, found, previous, { signature, digest, named, isOther });
  }
  const { resources, empty } = read;
  return { signature, digest, resources, empty, problems: [], notes, withheld: nothing };
}

/** More would not be read, and each is a line of the log. */
const mostProblems = 50;

function bounded(file: string, found: readonly Located[]): readonly FileProblem[] {
  const left = found.length - mostProblems;
  const more = left > 0 ? [{ place: undefined, message: `${left} more problems are in this file` }] : [];
  return [...found.slice(0, mostProblems), ...more].map(({ place, message }) => ({
    file,
    place,
    message,
    types: [],
  }));
}

/** One update is refused, whatever is wrong with it: only the first says of which types. */
export function oneUpdate(
  file: string,
  found: readonly Located[],
  types: readonly TypeUrl[],
): readonly FileProblem[] {
  const [first, ...others] = bounded(file, found);
  return first === undefined ? [] : [{ ...first, types }, ...others];
}

/** What its bytes show all the same. `isOther`: it is whole, and no DiscoveryResponse at all: a package.json, say. */
const unread = { signature: '', digest: '', named: nothing, isOther: false };

function badRecord(
  file: string,
  found: readonly Located[],
  previous: LastGood | undefined,
  { signature, digest, named, isOther }: Readonly<typeof unread>,
): FileRecord {
  const resources = previous?.resources;
  const before = resources?.map(({ type }) => type) ?? [];
  const types = refusedTypes(named, before);
  return {
    signature,
    digest,
    resources,
    empty: previous?.empty,
    problems: oneUpdate(file, found, types),
    notes: resources === undefined ? [] : (previous?.notes ?? []),
    withheld: resources !== undefined || isOther ? nothing : withheldBy(named),
  };
}

/** A file that is cut off may show no more than the type of a wrapper or of an extension. */
const withheldBy = (named: ReadonlySet<TypeUrl>): Withheld =>
  named.values().some(isKnownType) ? named : 'ALL';

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

/** Type URLs are plain text in every format, the binary one too; some writers of JSON escape the slash. */
function typesNamedIn(bytes: Uint8Array): ReadonlySet<TypeUrl> {
  const text = new TextDecoder('latin1').decode(bytes);
  return new Set(
    text
      .matchAll(/(type\.googleapis\.com)\\?(\/[\w.]+)/g)
      .map(([, prefix, name]) => typeUrl(`${prefix}${name}`)),
  );
}
