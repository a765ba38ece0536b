import { createHash } from 'node:crypto';
import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import { type Clock, Settling, type Timer } from '../../model/clock.ts';
import { getOrMake } from '../../model/maps.ts';
import type { Result } from '../../model/result.ts';
import {
  type Holder,
  type Interest,
  type Put,
  type Removal,
  type Transaction,
  transaction,
} from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import type { UpdateMetrics, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import { DirectoryWatches, type WatchDirectory } from '../../wire/directory-watches.ts';
import { type Claims, claims } from '../claims.ts';
import { VariantSet } from '../variant-set.ts';
import {
  describe,
  type FileProblem,
  type FileResource,
  formatProblem,
  type Located,
} from './resource-file.ts';
import { type FileRecord, type Files, oneUpdate, scanFiles, type Withheld } from './scan-files.ts';

/** Milliseconds. When a change is looked at. */
const settlingTimes = { quiet: 50, longest: 500 };
/** For file systems that do not tell of changes. */
const pollPresentMs = 30_000;
const pollMissingMs = 1_000;
/** A scan during which something changed is done again, so that half of a change is not published; so often. */
const maxRounds = 3;

export interface FilesystemOptions {
  readonly name: string;
  /** A directory, or one file; relative to the working directory. */
  readonly path: string;
  readonly claims: Claims;
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
 * Files as an upstream (protocol §7). Each scan publishes what changed, a type in one transaction with its full state. It
 * stays in the cache, whether or not somebody subscribes to it.
 * A completed scan answers every interest: what is in no file is absent (§3.9). A file that cannot be read keeps its
 * last good content; if the path itself goes away, everything stays as it was and is stale. Of a file that never was
 * good since the start nothing is known: the types that it names are published without being called complete, and their
 * interests wait. If it names none, what is there is served, and nothing that was cached before is dropped, of any type.
 * What this upstream has published goes even so when a file that can be read loses it.
 */
export class FilesystemUpstream implements Upstream {
  readonly name: string;
  readonly publishesAs: Holder;
  readonly #options: Omit<FilesystemOptions, 'before' | 'watchDirectory'>;
  readonly #sink: UpstreamSink;
  /** As they were found last. */
  #files: Files = new Map();
  /** Of the last scan that was merged. `unwatched` undefined: the next one is, whatever it finds. */
  #merged: { readonly files: Files; readonly unwatched?: string | undefined } = { files: new Map() };
  /** When resources with a TTL end, by the clock's monotonic time. */
  readonly #ends = new WeakMap<Put, number>();
  readonly #watches: DirectoryWatches;
  readonly #settling: Settling;
  /** For the next look if nothing is seen to change. */
  #timer: Timer | undefined;
  /** Since the last look began something has changed. */
  #isTouched = false;
  #scanning: Promise<void> | undefined;
  #reported: ReadonlyMap<string, FileProblem> = new Map();
  #current: UpstreamState;
  /** Not answered yet. */
  readonly #unanswered = new Set<Interest>();
  /** Subscribed just now. They are answered together, as one request of a client brings many. */
  readonly #asked = new Set<Interest>();
  /** What was last published, but for types that no file has. `complete`: see `#isComplete`. */
  readonly #published = new Map<TypeUrl, { readonly content: TypeContent; readonly complete: boolean }>();
  #withheld: Withheld = new Set();
  #stopped = false;

  constructor({ before, watchDirectory, ...options }: FilesystemOptions, sink: UpstreamSink) {
    const { name, path, maxConstraintDepth } = options;
    this.name = name;
    this.#options = options;
    this.#sink = sink;
    this.#watches = new DirectoryWatches(() => this.#touched(), watchDirectory);
    this.#settling = new Settling(options.clock, settlingTimes, () => this.#scan());
    if (before !== undefined) {
      const { path: its, maxConstraintDepth: depth } = before.#options;
      if (its === path && depth === maxConstraintDepth) {
        this.#files = before.#files;
        this.#ends = before.#ends;
      }
    }
    this.publishesAs = { key: `files:${name}`, upstream: name, role: 'wildcard' };
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

  get looking(): Promise<void> | undefined {
    return this.#scanning;
  }

  /** A scan that is under way says nothing more. It is not waited for: the file system may not answer. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#settling.cancel();
    this.#watches.close();
  }

  /** Whenever something below the path changes the files are looked at, one look at a time. */
  #touched(): void {
    if (this.#stopped) return;
    this.#isTouched = true;
    if (this.#scanning === undefined) this.#settling.touch();
  }

  #scan(): void {
    if (this.#scanning !== undefined || this.#stopped) return;
    this.#timer?.cancel();
    this.#settling.cancel();
    this.#scanning = this.#scanOnce();
  }

  async #scanOnce(): Promise<void> {
    const present = await this.#scanUntilQuiet();
    this.#scanning = undefined;
    if (this.#stopped) return;
    if (this.#isTouched) this.#settling.touch();
    else this.#timer = this.#options.clock.after(present ? pollPresentMs : pollMissingMs, () => this.#scan());
  }

  /** Whether the path is there. */
  async #scanUntilQuiet(): Promise<boolean> {
    const { path, maxConstraintDepth, clock } = this.#options;
    for (let round = 1; ; round++) {
      this.#isTouched = false;
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
      if (this.#isTouched && round < maxRounds) continue;
      this.#found(scan, unwatched);
      return scan.ok;
    }
  }

  #found(scan: Result<Files>, unwatched: readonly string[]): void {
    if (!scan.ok) {
      this.#merged = { ...this.#merged, unwatched: undefined };
      this.#report([{ file: this.#options.path, place: undefined, message: scan.error, types: [] }]);
      this.#setState({ connected: false, down: true }, true);
      return;
    }
    const files = scan.value;
    const before = this.#merged;
    const merged = { files, unwatched: unwatched.join() };
    if (merged.unwatched === before.unwatched && areSame(before.files, files)) return;
    this.#merged = merged;
    const { types, problems } = mergeScan(files, (type, name) => this.claims(type, name));
    this.#report([...problems, ...withheldProblems(files), ...unwatchedProblems(unwatched)]);
    const stale = [...files.values()].some(({ problems: wrong }) => wrong.length > 0);
    this.#setState({ connected: true, everConnected: true, down: false }, stale);
    this.#withheld = withheldOf(files.values());
    const elsewhere = withheldOf(mayHaveMore(before.files, files));
    // What is gone goes last: what referred to it has been changed by then (protocol §8, Order on ADS).
    const unanswered = Array.from(this.#unanswered, ({ type }) => type);
    const restored = this.#sink.restoredOf?.(this.publishesAs) ?? [];
    for (const type of new Set([...types.keys(), ...unanswered, ...this.#published.keys(), ...restored]))
      this.#publish(type, types.get(type) ?? emptyContent, elsewhere);
  }

  /** `elsewhere`: of these types, what is in the files no more may be where it cannot be read. */
  #publish(type: TypeUrl, content: TypeContent, elsewhere: Withheld): void {
    const complete = this.#isComplete(type);
    const before = this.#published.get(type);
    const same = before?.content.digest === content.digest && before.content.version === content.version;
    if (same && before.complete === complete) return;
    // A client may invent types.
    if (complete && content === emptyContent) this.#published.delete(type);
    else this.#published.set(type, { content, complete });
    for (const one of this.#asked) if (one.type === type) this.#asked.delete(one);
    const interests = [...this.#unanswered].filter((one) => one.type === type);
    const { puts } = content;
    const isGone = before !== undefined && !complete && !withholds(elsewhere, type);
    const removals = isGone ? lacking(puts, before.content.puts) : [];
    this.#apply(type, content, interests, { puts, removals, complete });
  }

  /** False while a file that never was good may hold some of it: what is missing may be there. */
  #isComplete(type: TypeUrl): boolean {
    return !withholds(this.#withheld, type);
  }

  #answerAsked(): void {
    const byType = Map.groupBy(this.#asked, ({ type }) => type);
    this.#asked.clear();
    // What there is was published, and is in the cache.
    for (const [type, interests] of byType)
      this.#apply(type, this.#published.get(type)?.content ?? emptyContent, interests);
  }

  #apply(
    type: TypeUrl,
    { version }: TypeContent,
    interests: readonly Interest[],
    { puts = [], ...said }: Partial<Pick<Transaction, 'puts' | 'removals' | 'complete'>> = {},
  ): void {
    if (this.#stopped) return;
    const resolved = this.#isComplete(type) ? interests : [];
    for (const interest of resolved) this.#unanswered.delete(interest);
    const { clock, metrics } = this.#options;
    metrics.accepted?.(type);
    const arrivedAt = clock.monotonic();
    const holder = this.publishesAs;
    const living = puts.flatMap((put) => this.#living(put, arrivedAt));
    this.#sink.apply(transaction({ holder, type, version, puts: living, ...said, resolved, arrivedAt }));
    if (this.#withheld !== 'ALL' || interests.length === 0) return;
    // A file that shows no type may be no file of resources: nobody waits for it.
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

function withheldOf(files: Iterable<FileRecord>): Withheld {
  const types = new Set<TypeUrl>();
  for (const { withheld } of files) {
    if (withheld === 'ALL') return 'ALL';
    for (const type of withheld) types.add(type);
  }
  return types;
}

const withholds = (withheld: Withheld, type: TypeUrl): boolean => withheld === 'ALL' || withheld.has(type);

/**
 * The files in which may be what another one has lost since. What shows no type is none of them if it was there before:
 * it may never become good, and may be no file of resources.
 */
const mayHaveMore = (before: Files, now: Files): FileRecord[] =>
  [...now].flatMap(([path, record]) =>
    record.withheld === 'ALL' && before.get(path)?.withheld === 'ALL' ? [] : [record],
  );

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

type TypeContent = ReturnType<typeof contentOf>;

/** The variants of one type, while the files are joined. */
type Joined = VariantSet<Removal & { readonly resource: FileResource }>;

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
  const empty: NonNullable<FileRecord['empty']>[] = [];
  for (const { resources = [], empty: none, problems: broken, notes } of files.values()) {
    for (const problem of [...broken, ...notes]) problems.push(problem);
    if (none !== undefined) empty.push(none);
    for (const resource of resources) {
      const { file, place, type, put } = resource;
      if (!claimed(type, put.name)) continue;
      const { name, constraints } = put;
      const variants = getOrMake(joined, type, (): Joined => new VariantSet());
      const earlier = variants.get(name, constraints.key);
      if (earlier === undefined) variants.add({ name, constraints, resource });
      else {
        const message = `${describe(type, put)} is refused: ${earlier.resource.file} has it already`;
        const ofFile = getOrMake(refused, file, () => ({ found: [], types: new Set<TypeUrl>() }));
        ofFile.found.push({ place, message });
        ofFile.types.add(type);
      }
    }
  }
  const types = new Map(inOrder(joined).map(([type, variants]) => [type, contentOf(variants)]));
  for (const [type, its] of inOrder(Map.groupBy(empty, (one) => one.type)))
    if (!types.has(type)) types.set(type, contentOf(undefined, its));
  for (const [file, { found, types: its }] of refused) problems.push(...oneUpdate(file, found, [...its]));
  return { types, problems };
}

const inOrder = <Of>(byType: ReadonlyMap<TypeUrl, Of>): [TypeUrl, Of][] =>
  [...byType].toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order);

/** All resources of one type, of all files; `empty`: what says that there are none. Equal digests: nothing of it changed. */
function contentOf(variants?: Joined, empty: readonly Pick<FileResource, 'versionInfo'>[] = []) {
  const all = [...(variants?.all() ?? [])].map(({ resource }) => resource);
  const digests = all.map((one) => one.digest).toSorted();
  const digest = createHash('sha256').update(digests.join()).digest('hex').slice(0, 16);
  const [only = '', ...others] = new Set([...all, ...empty].map(({ versionInfo }) => versionInfo));
  return {
    // The files' own version if they agree on one; else the content's (protocol §7).
    version: others.length === 0 && only !== '' ? only : digest,
    digest,
    puts: all.map(({ put }) => put),
  };
}

/** Of a type that no file has. */
const emptyContent: TypeContent = contentOf();

/** Those of `before` whose variant is not there now. */
function lacking(now: readonly Put[], before: readonly Put[]): Removal[] {
  const there = new VariantSet(now);
  return before.filter((put) => !there.has(put)).map(({ name, constraints }) => ({ name, constraints }));
}

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
