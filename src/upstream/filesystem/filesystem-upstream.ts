import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { lstat, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { type ResourceName, resourceName, type TypeUrl, typeUrl } from '../../model/brand.ts';
import type { Clock, Timer } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';
import { fail, ok, type Result } from '../../model/result.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, type Put, transaction } from '../../model/transaction.ts';
import { isKnownType, typeInfo } from '../../model/types.ts';
import type { UpdateMetrics, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import { DirectoryWatches, linksOnTheWay, type WatchDirectory } from '../../wire/directory-watches.ts';
import { errorCode, explainError } from '../../wire/node-error.ts';
import { type ClaimOptions, claims } from '../claims.ts';
import {
  describe,
  type FileProblem,
  type FileResource,
  formatProblem,
  isResourceFile,
  type Located,
  parseFile,
  readResources,
} from './resource-file.ts';

/** Milliseconds. A change is looked at once it has been quiet for so long, or when `longestDelayMs` is over. */
const quietMs = 50;
const longestDelayMs = 500;
/** For file systems that do not tell of changes. */
const pollPresentMs = 30_000;
const pollMissingMs = 1_000;
/** A scan during which something changed is done again, so that half of a change is not published; so often. */
const maxRounds = 3;

export interface FilesystemOptions {
  readonly name: string;
  /** A directory, or one file; relative to the working directory. */
  readonly path: string;
  readonly claims: ClaimOptions;
  /** limits.max_constraint_depth. */
  readonly maxConstraintDepth: number;
  /** The upstream that it takes the place of. What that has read of the same path stays its last good content. */
  readonly before?: FilesystemUpstream | undefined;
  readonly watchDirectory?: WatchDirectory;
  readonly clock: Clock;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** A problem is told once. */
  readonly metrics: UpdateMetrics;
}

/**
 * Files as an upstream (protocol §7). Each scan publishes what changed, a type in one transaction with its full state.
 * A completed scan answers every interest: what is in no file is absent (§3.9). A file that cannot be read keeps its
 * last good content; if the path itself goes away, everything stays as it was and is stale. Of a file that never was
 * good since the start nothing is known: the types that it names are published without being called complete, and their
 * interests wait. If it names none, what is there is served, and nothing that is cached is dropped, of any type.
 */
export class FilesystemUpstream implements Upstream {
  readonly name: string;
  readonly #options: Omit<FilesystemOptions, 'before' | 'watchDirectory'>;
  readonly #sink: UpstreamSink;
  readonly #holder: Holder;
  /** As they were found last. */
  #files: Files = new Map();
  /** Of the last scan that was merged; undefined: the next one is, whatever it finds. */
  #merged: { readonly files: Files; readonly unwatched: string } | undefined;
  /** When resources with a TTL end, by the clock's monotonic time. */
  readonly #ends = new WeakMap<Put, number>();
  readonly #watches: DirectoryWatches;
  #timer: Timer | undefined;
  /** Since when something has changed that was not looked at. */
  #touchedAt: number | undefined;
  #scanning: Promise<void> | undefined;
  #reported: ReadonlyMap<string, FileProblem> = new Map();
  #current: UpstreamState;
  /** Not answered yet. */
  readonly #unanswered = new Set<Interest>();
  /** Subscribed just now. They are answered together, as one request of a client brings many. */
  readonly #asked = new Set<Interest>();
  /** What was last published. `complete`: see `#isComplete`. */
  readonly #published = new Map<TypeUrl, { readonly content: TypeContent; readonly complete: boolean }>();
  #withheld: Withheld = nothing;
  #stopped = false;

  constructor({ before, watchDirectory, ...options }: FilesystemOptions, sink: UpstreamSink) {
    const { name, path, maxConstraintDepth } = options;
    this.name = name;
    this.#options = options;
    this.#sink = sink;
    this.#watches = new DirectoryWatches(() => this.#touched(), watchDirectory);
    if (before !== undefined) {
      const { path: its, maxConstraintDepth: depth } = before.#options;
      if (its === path && depth === maxConstraintDepth) {
        this.#files = before.#files;
        this.#ends = before.#ends;
      }
    }
    this.#holder = { key: `files:${name}`, upstream: name, role: 'wildcard' };
    this.#current = {
      kind: 'filesystem',
      connected: false,
      everConnected: false,
      down: false,
      endpoint: path,
      sessions: 0,
      staleSince: undefined,
      lastError: '',
      refusedStreams: 0,
    };
  }

  claims(type: TypeUrl, selector: string): boolean {
    return claims(this.#options.claims, type, selector);
  }

  subscribe(interest: Interest): void {
    this.#unanswered.add(interest);
    if (!this.#current.everConnected) return;
    // After the caller is done: it may be in the middle of a change of its own.
    if (this.#asked.size === 0) queueMicrotask(() => this.#answerAsked());
    this.#asked.add(interest);
  }

  unsubscribe(interest: Interest): void {
    this.#unanswered.delete(interest);
    this.#asked.delete(interest);
  }

  state(): UpstreamState {
    return this.#current;
  }

  start(): void {
    this.#scan();
  }

  /** A scan that is under way says nothing more. It is not waited for: the file system may not answer. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#watches.close();
  }

  /** Whenever something below the path changes the files are looked at, one look at a time. */
  #touched(): void {
    if (this.#stopped) return;
    const now = this.#options.clock.monotonic();
    this.#touchedAt ??= now;
    if (this.#scanning === undefined)
      this.#scanAfter(Math.min(quietMs, Math.max(0, this.#touchedAt + longestDelayMs - now)));
  }

  #scanAfter(milliseconds: number): void {
    this.#timer?.cancel();
    this.#timer = this.#options.clock.after(milliseconds, () => this.#scan());
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
    const { path, maxConstraintDepth, clock } = this.#options;
    for (let round = 1; ; round++) {
      this.#touchedAt = undefined;
      const directories = new Set<string>();
      const unwatched: string[] = [];
      const visit = (directory: string): void => {
        if (this.#stopped || directories.has(directory)) return;
        directories.add(directory);
        if (!this.#watches.add(directory)) unwatched.push(directory);
      };
      const scan = await scanFiles(path, this.#files, maxConstraintDepth, () => clock.now(), visit);
      if (this.#stopped) return false;
      this.#watches.keepOnly(directories);
      if (scan.ok) this.#files = scan.value;
      if (this.#touchedAt !== undefined && round < maxRounds) continue;
      this.#found(scan, unwatched);
      return scan.ok;
    }
  }

  #found(scan: Result<Files>, unwatched: readonly string[]): void {
    if (!scan.ok) {
      this.#merged = undefined;
      this.#report([{ file: this.#options.path, place: undefined, message: scan.error, types: [] }]);
      this.#setState({ connected: false, down: true }, true);
      return;
    }
    const files = scan.value;
    const merged = { files, unwatched: unwatched.join() };
    if (merged.unwatched === this.#merged?.unwatched && areSame(this.#merged.files, files)) return;
    this.#merged = merged;
    const { types, problems } = mergeScan(files, (type, name) => this.claims(type, name));
    this.#report([...problems, ...withheldProblems(files), ...unwatchedProblems(unwatched)]);
    const stale = [...files.values()].some(({ problems: wrong }) => wrong.length > 0);
    this.#setState({ connected: true, everConnected: true, down: false }, stale);
    this.#withheld = withheldOf(files);
    // What is gone goes last: what referred to it has been changed by then (protocol §8, Order on ADS).
    const unanswered = Array.from(this.#unanswered, ({ type }) => type);
    for (const type of new Set([...types.keys(), ...unanswered, ...this.#published.keys()]))
      this.#publish(type, types.get(type) ?? emptyContent);
  }

  #publish(type: TypeUrl, content: TypeContent): void {
    const complete = this.#isComplete(type);
    const before = this.#published.get(type);
    const same = before?.content.digest === content.digest && before.content.version === content.version;
    if (same && before.complete === complete) return;
    this.#published.set(type, { content, complete });
    for (const one of this.#asked) if (one.type === type) this.#asked.delete(one);
    const interests = [...this.#unanswered].filter((one) => one.type === type);
    this.#apply(type, content, allPuts(content), complete, interests);
  }

  /** False while a file that never was good may hold some of it: what is missing may be there. */
  #isComplete(type: TypeUrl): boolean {
    return this.#withheld !== 'ALL' && !this.#withheld.has(type);
  }

  #answerAsked(): void {
    const byType = Map.groupBy(this.#asked, ({ type }) => type);
    this.#asked.clear();
    for (const [type, interests] of byType) this.#answer(type, interests);
  }

  #answer(type: TypeUrl, interests: readonly Interest[]): void {
    const before = this.#published.get(type);
    const content = before?.content ?? emptyContent;
    const complete = this.#isComplete(type);
    this.#published.set(type, { content, complete });
    const all = before === undefined || interests.some(({ selector }) => isCollection(selector));
    // Given again, as the cache may have dropped what nobody subscribed to.
    const asked = new Set(interests.flatMap(({ selector }) => putsCalled(content, selector)));
    const puts = all ? allPuts(content) : [...asked];
    this.#apply(type, content, puts, all && complete, interests);
  }

  #apply(
    type: TypeUrl,
    { version }: TypeContent,
    puts: readonly Put[],
    complete: boolean,
    interests: readonly Interest[],
  ): void {
    if (this.#stopped) return;
    const resolved = this.#isComplete(type) ? interests : [];
    for (const interest of resolved) this.#unanswered.delete(interest);
    const { clock, metrics } = this.#options;
    metrics.accepted?.(type);
    const arrivedAt = clock.monotonic();
    const holder = this.#holder;
    const living = puts.flatMap((put) => this.#living(put, arrivedAt));
    this.#sink.apply(transaction({ holder, type, version, puts: living, complete, resolved, arrivedAt }));
    if (this.#withheld !== 'ALL' || interests.length === 0) return;
    // A file that shows no type may be no file of resources: nobody waits for it, and nothing is dropped.
    const forNow: Holder = { ...holder, restored: true };
    this.#sink.apply(transaction({ holder: forNow, type, version, resolved: interests, arrivedAt }));
  }

  /** Its TTL counts from when it was first given, however often it is given again. */
  #living(put: Put, now: number): readonly Put[] {
    const { ttlMilliseconds: ttl } = put;
    if (ttl === undefined) return [put];
    const left = Math.ceil(getOrMake(this.#ends, put, () => now + ttl) - now);
    return left > 0 ? [{ ...put, ttlMilliseconds: left }] : [];
  }

  /** Each problem once, not once for each scan. What is over comes first, so that the last line is what holds. */
  #report(problems: readonly FileProblem[]): void {
    const { log, name, metrics } = this.#options;
    const now = new Map(problems.map((problem) => [formatProblem(problem), problem]));
    const broken = new Set(problems.map(({ file }) => file));
    for (const [text, { file }] of this.#reported) {
      if (now.has(text)) continue;
      const fields = { upstream: name, file };
      if (broken.has(file)) log.info(`no longer found, but the file has other problems: ${text}`, fields);
      else log.info(`resolved: ${text}`, fields);
    }
    for (const [text, { file, types }] of now) {
      if (this.#reported.has(text)) continue;
      log.warn(text, { upstream: name, file });
      for (const type of types) metrics.rejected?.(type, text, undefined);
    }
    this.#reported = now;
  }

  #setState(part: Partial<UpstreamState>, stale: boolean): void {
    const [first = ''] = this.#reported.keys();
    const more = this.#reported.size - 1;
    const before = this.#current;
    this.#current = {
      ...before,
      ...part,
      staleSince: stale ? (before.staleSince ?? this.#options.clock.now()) : undefined,
      lastError: more > 0 ? `${first} (and ${more} more)` : first,
    };
    if (JSON.stringify(before) !== JSON.stringify(this.#current)) this.#sink.changed();
  }
}

/** What follows from a file that never was good, which its own problem does not say. */
function withheldProblems(files: Files): FileProblem[] {
  return [...files].flatMap(([file, { withheld }]) => {
    if (withheld !== 'ALL' && withheld.size === 0) return [];
    const message =
      withheld === 'ALL'
        ? 'until this is good, what is cached already stays, of all types: it may be in it'
        : `until this is good, what no other file has counts as unknown, not as absent: ${Array.from(withheld, (type) => typeInfo(type).short).join(', ')}`;
    return [{ file, place: undefined, message, types: [] }];
  });
}

/** Nothing is wrong with what is served: it is late. */
function unwatchedProblems([file, ...others]: readonly string[]): FileProblem[] {
  if (file === undefined) return [];
  const more = others.length > 0 ? ` and in ${others.length} directories more` : '';
  const message = `changes in it${more} are seen within ${pollPresentMs / 1000} s only, because it cannot be watched; on Linux fs.inotify.max_user_watches and max_user_instances bound how much can be`;
  return [{ file, place: undefined, message, types: [] }];
}

function withheldOf(files: Files): Withheld {
  const types = new Set<TypeUrl>();
  for (const { withheld } of files.values()) {
    if (withheld === 'ALL') return 'ALL';
    for (const type of withheld) types.add(type);
  }
  return types;
}

/** Whether nothing was read that differs. Their records are kept from scan to scan. */
function areSame(before: Files, now: Files): boolean {
  return (
    before.size === now.size &&
    now.entries().every(([path, { resources, problems, notes }]) => {
      const known = before.get(path);
      return known?.resources === resources && known?.problems === problems && known.notes === notes;
    })
  );
}

/** All resources of one type, of all files. */
interface TypeContent {
  readonly version: string;
  /** Equal: nothing of this type changed. */
  readonly digest: string;
  readonly byName: ReadonlyMap<ResourceName, readonly Put[]>;
  /** By the other names by which they may be subscribed (protocol §4.8). */
  readonly byAlias: ReadonlyMap<ResourceName, readonly Put[]>;
}

/** The variants of one type, by name and constraints, while the files are joined. */
type Joined = Map<ResourceName, Map<string, FileResource>>;

/**
 * Joins the files, which come in path order. Of two resources with the same type, name and constraints the later file's
 * is refused, and reported; its other resources count. Variants of one name, with different constraints, may be in
 * different files. What `claimed` denies is left out: other upstreams serve it. The types are in the order in which they
 * are sent on ADS (protocol §8), so that what is referred to comes first.
 */
export function mergeScan(
  files: Files,
  claimed: (type: TypeUrl, name: ResourceName) => boolean,
): { readonly types: ReadonlyMap<TypeUrl, TypeContent>; readonly problems: readonly FileProblem[] } {
  const joined = new Map<TypeUrl, Joined>();
  const problems: FileProblem[] = [];
  const refused = new Map<string, { readonly found: Located[]; readonly types: Set<TypeUrl> }>();
  for (const { resources = [], problems: broken, notes } of files.values()) {
    for (const problem of [...broken, ...notes]) problems.push(problem);
    for (const resource of resources) {
      const { file, place, type, put } = resource;
      if (!claimed(type, put.name)) continue;
      const names = getOrMake(joined, type, (): Joined => new Map());
      const variants = getOrMake(names, put.name, () => new Map<string, FileResource>());
      const earlier = variants.get(put.constraints.key);
      if (earlier === undefined) variants.set(put.constraints.key, resource);
      else {
        const message = `${describe(type, put)} is refused: ${earlier.file} has it already`;
        const ofFile = getOrMake(refused, file, () => ({ found: [], types: new Set<TypeUrl>() }));
        ofFile.found.push({ place, message });
        ofFile.types.add(type);
      }
    }
  }
  const ordered = [...joined].toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order);
  const types = new Map(ordered.map(([type, names]) => [type, contentOf(names)]));
  for (const [file, { found, types: its }] of refused) problems.push(...oneUpdate(file, found, [...its]));
  return { types, problems };
}

function contentOf(names: Joined): TypeContent {
  const all = [...names.values().flatMap((variants) => variants.values())];
  const digests = all.map((one) => one.digest).toSorted();
  const digest = createHash('sha256').update(digests.join()).digest('hex').slice(0, 16);
  const byAlias = new Map<ResourceName, Put[]>();
  for (const { put } of all) {
    for (const alias of put.aliases) getOrMake(byAlias, resourceName(alias), () => []).push(put);
  }
  const [only = '', ...others] = new Set(all.map(({ versionInfo }) => versionInfo));
  return {
    // The files' own version if they agree on one; else the content's (protocol §7).
    version: others.length === 0 && only !== '' ? only : digest,
    digest,
    byName: new Map(
      [...names].map(([name, variants]) => [name, Array.from(variants.values(), ({ put }) => put)]),
    ),
    byAlias,
  };
}

/** Of a type that no file has. */
const emptyContent: TypeContent = contentOf(new Map());

const putsCalled = ({ byName, byAlias }: TypeContent, name: ResourceName): readonly Put[] => [
  ...(byName.get(name) ?? []),
  ...(byAlias.get(name) ?? []),
];

const allPuts = ({ byName }: TypeContent): Put[] => [...byName.values()].flat();

/** Everything wrong with the files below a path, for `validate`; nothing is watched or kept. `claimed`: as of `mergeScan`. */
export async function checkResourceFiles(
  path: string,
  maxConstraintDepth: number,
  claimed: (type: TypeUrl, name: ResourceName) => boolean,
): Promise<readonly FileProblem[]> {
  const scan = await scanFiles(path, new Map(), maxConstraintDepth, Date.now, () => {});
  if (!scan.ok) return [{ file: path, place: undefined, message: scan.error, types: [] }];
  return mergeScan(scan.value, claimed).problems;
}

/** By path, in path order; directories that cannot be listed too. */
export type Files = ReadonlyMap<string, FileRecord>;

/**
 * Reads all resource files below `root` (or `root` itself, if it is a file). Names that begin with a dot are skipped:
 * editors' copies, and the `..data` directories of a ConfigMap, whose files are seen through their links. Only files
 * whose status changed are read, and only those whose bytes changed are parsed. The error says why `root` cannot be
 * read at all. `now`: milliseconds since the epoch, as file times have it. `visit`: is called for each directory before it
 * is read, so that a watch on it misses nothing.
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

  async function readDirectory(path: string, real: string): Promise<void> {
    if (seen.has(real)) return;
    visit(real);
    const names = await readdir(path);
    seen.add(real);
    for (const name of names.toSorted()) if (!name.startsWith('.')) await readEntry(join(path, name));
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
    const below = [...previous].filter(([file]) => file.startsWith(path + sep));
    if (errorCode(error) === 'ENOENT' && below.length === 0 && !isResourceFile(path)) return;
    for (const [file, record] of below) files.set(file, record);
    const before = previous.get(path) ?? (below.length > 0 ? emptyRecord : undefined);
    const message = explainError(error);
    const isKnown = before?.digest === '' && before.problems[0]?.message === message;
    files.set(path, isKnown ? before : badRecord(path, [{ place: undefined, message }], before, unread));
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
  /** What is missing of these types is unknown, not absent (protocol §3.9). Nothing, of a file that ever was good. */
  readonly withheld: Withheld;
}

/** The types that what never was good seems to hold; all, if it does not show which. */
type Withheld = ReadonlySet<TypeUrl> | 'ALL';

const nothing: ReadonlySet<TypeUrl> = new Set();

const emptyRecord: FileRecord = {
  signature: '',
  digest: '',
  resources: [],
  problems: [],
  notes: [],
  withheld: nothing,
};

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
  const read = sound && readResources(file, sound, maxConstraintDepth);
  const problems = [...(parsed.ok ? [] : parsed.error.problems), ...(read?.problems ?? [])];
  const notes = bounded(file, read?.notes ?? []);
  if (read === undefined || problems.length > 0) {
    const found = [...problems, ...notes].toSorted((a, b) => (a.place?.line ?? 0) - (b.place?.line ?? 0));
    const named = typesNamedIn(bytes);
    const isOther = !parsed.ok && parsed.error.isOther;
    return badRecord(file, found, previous, { signature, digest, named, isOther });
  }
  return { signature, digest, resources: read.resources, problems: [], notes, withheld: nothing };
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
function oneUpdate(
  file: string,
  found: readonly Located[],
  types: readonly TypeUrl[],
): readonly FileProblem[] {
  const [first, ...others] = bounded(file, found);
  return first === undefined ? [] : [{ ...first, types }, ...others];
}

/** What its bytes show all the same. */
interface BadFile extends Pick<FileRecord, 'signature' | 'digest'> {
  readonly named: ReadonlySet<TypeUrl>;
  /** It is whole, and no DiscoveryResponse at all: a package.json, say. */
  readonly isOther: boolean;
}

const unread: BadFile = { signature: '', digest: '', named: nothing, isOther: false };

function badRecord(
  file: string,
  found: readonly Located[],
  previous: FileRecord | undefined,
  { signature, digest, named, isOther }: BadFile,
): FileRecord {
  const resources = previous?.resources;
  const before = resources?.map(({ type }) => type) ?? [];
  const types = refusedTypes(named, before);
  return {
    signature,
    digest,
    resources,
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
