import { createHash } from 'node:crypto';
import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import type { Clock } from '../../model/clock.ts';
import type { Result } from '../../model/result.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, type Put, transaction } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import type { UpdateMetrics, Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import { type ClaimOptions, claims } from '../claims.ts';
import { type FileProblem, formatProblem } from './parse.ts';
import { describe, type FileResource, getOrMake } from './resources.ts';
import { FileSource, type Scan, scanFiles } from './scan.ts';

export interface FilesystemOptions {
  readonly name: string;
  /** A directory, or one file; relative to the working directory. */
  readonly path: string;
  readonly claims: ClaimOptions;
  /** limits.max_constraint_depth. */
  readonly maxConstraintDepth: number;
  readonly clock: Clock;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** A problem is told once. */
  readonly metrics: UpdateMetrics;
}

/**
 * Files as an upstream (protocol §7). Each scan publishes what changed, a type in one transaction with its full state.
 * A completed scan answers every interest: what is in no file is absent (§3.9). A file that cannot be read keeps its
 * last good content; if the path itself goes away, everything stays as it was and is stale. Of a file that never was
 * good since the start nothing is known: the types that it names are published without being called complete.
 */
export class FilesystemUpstream implements Upstream {
  readonly name: string;
  readonly #options: FilesystemOptions;
  readonly #sink: UpstreamSink;
  readonly #holder: Holder;
  readonly #source: FileSource;
  #reported: ReadonlyMap<string, FileProblem> = new Map();
  #current: UpstreamState;
  /** By `keyOf`. */
  readonly #interests = new Map<TypeUrl, Map<string, Interest>>();
  /** Not answered yet. They are answered together, as one request of a client brings many. */
  readonly #unanswered = new Set<Interest>();
  /** What was last published. `complete`: see `#isComplete`. */
  readonly #published = new Map<TypeUrl, { readonly content: TypeContent; readonly complete: boolean }>();
  /** Types of which a file that never was good seems to hold some. */
  #withheld: ReadonlySet<TypeUrl> = new Set();
  #answering = false;
  #stopped = false;

  constructor(options: FilesystemOptions, sink: UpstreamSink) {
    const { name, path, maxConstraintDepth, clock } = options;
    this.name = name;
    this.#options = options;
    this.#sink = sink;
    this.#holder = { key: `files:${name}`, upstream: name, role: 'wildcard' };
    this.#source = new FileSource(path, maxConstraintDepth, clock, (scan) => this.#found(scan));
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
    getOrMake(this.#interests, interest.type, () => new Map<string, Interest>()).set(
      keyOf(interest),
      interest,
    );
    this.#unanswered.add(interest);
    if (this.#current.everConnected) this.#answerSoon();
  }

  unsubscribe(interest: Interest): void {
    const interests = this.#interests.get(interest.type);
    const known = interests?.get(keyOf(interest));
    if (known === undefined) return;
    this.#unanswered.delete(known);
    interests?.delete(keyOf(interest));
    if (interests?.size === 0) this.#interests.delete(interest.type);
  }

  state(): UpstreamState {
    return this.#current;
  }

  start(): void {
    this.#source.start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#source.stop();
  }

  #found(scan: Result<Scan>): void {
    if (!scan.ok) {
      this.#report([{ file: this.#options.path, place: undefined, message: scan.error, types: [] }]);
      this.#setState({ connected: false, down: true }, true);
      return;
    }
    const { files } = scan.value;
    const { types, problems } = mergeScan(scan.value, (type, name) => this.claims(type, name));
    this.#report([...problems, ...withheldProblems(files)]);
    const stale = [...files.values()].some(({ problems: wrong }) => wrong.length > 0);
    this.#setState({ connected: true, everConnected: true, down: false }, stale);
    this.#withheld = new Set(files.values().flatMap(({ withheld }) => withheld.values()));
    // What is gone goes last: what referred to it has been changed by then (protocol §8, Order on ADS).
    for (const type of new Set([...types.keys(), ...this.#interests.keys(), ...this.#published.keys()])) {
      this.#publish(type, types.get(type) ?? emptyContent);
    }
  }

  #publish(type: TypeUrl, content: TypeContent): void {
    const complete = this.#isComplete(type);
    const before = this.#published.get(type);
    const same = before?.content.digest === content.digest && before.content.version === content.version;
    if (same && before.complete === complete) return;
    this.#published.set(type, { content, complete });
    const interests = [...(this.#interests.get(type)?.values() ?? [])];
    for (const interest of interests) this.#unanswered.delete(interest);
    this.#apply(type, content, allPuts(content), complete, interests);
  }

  /** False while a file that never was good seems to hold some of it: what is missing is unknown, not absent. */
  #isComplete(type: TypeUrl): boolean {
    return !this.#withheld.has(type);
  }

  /** After the caller is done: it may be in the middle of a change of its own. */
  #answerSoon(): void {
    if (this.#answering) return;
    this.#answering = true;
    queueMicrotask(() => {
      this.#answering = false;
      const byType = Map.groupBy(this.#unanswered, ({ type }) => type);
      this.#unanswered.clear();
      for (const [type, interests] of byType) this.#answer(type, interests);
    });
  }

  #answer(type: TypeUrl, interests: readonly Interest[]): void {
    const before = this.#published.get(type);
    const content = before?.content ?? emptyContent;
    const complete = this.#isComplete(type);
    this.#published.set(type, { content, complete });
    const all = before === undefined || interests.some(({ selector }) => isCollection(selector));
    const names = new Set(interests.map(({ selector }) => selector));
    // Given again, as the cache may have dropped what nobody subscribed to.
    const puts = all ? allPuts(content) : [...names].flatMap((name) => content.byName.get(name) ?? []);
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
    const { clock, metrics } = this.#options;
    metrics.accepted?.(type);
    const arrivedAt = clock.monotonic();
    const holder = this.#holder;
    this.#sink.apply(transaction({ holder, type, version, puts, complete, resolved, arrivedAt }));
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
function withheldProblems(files: Scan['files']): FileProblem[] {
  return [...files].flatMap(([file, { withheld }]) => {
    if (withheld.size === 0) return [];
    const types = Array.from(withheld, (type) => typeInfo(type).short).join(', ');
    const message = `until this file is good, what no other file has counts as unknown, not as absent: ${types}`;
    return [{ file, place: undefined, message, types: [] }];
  });
}

/** All resources of one type, of all files. */
interface TypeContent {
  readonly version: string;
  /** Equal: nothing of this type changed. */
  readonly digest: string;
  readonly byName: ReadonlyMap<ResourceName, readonly Put[]>;
}

interface Found extends FileResource {
  readonly file: string;
  readonly versionInfo: string;
}

/** The variants of one type, by name and constraints, while the files are joined. */
type Joined = Map<ResourceName, Map<string, Found>>;

/**
 * Joins the files, which come in path order. Of two resources with the same type, name and constraints the later file's
 * is refused, and reported; its other resources count. Variants of one name, with different constraints, may be in
 * different files. What `claimed` denies is left out: other upstreams serve it. The types are in the order in which they
 * are sent on ADS (protocol §8), so that what is referred to comes first.
 */
export function mergeScan(
  scan: Scan,
  claimed: (type: TypeUrl, name: ResourceName) => boolean,
): { readonly types: ReadonlyMap<TypeUrl, TypeContent>; readonly problems: readonly FileProblem[] } {
  const joined = new Map<TypeUrl, Joined>();
  const problems = [...scan.problems];
  const refused: FileProblem[] = [];
  for (const [file, { content, problems: broken, notes }] of scan.files) {
    problems.push(...broken, ...notes);
    for (const resource of content?.resources ?? []) {
      const { type, put, index } = resource;
      if (content === undefined || !claimed(type, put.name)) continue;
      const names = getOrMake(joined, type, (): Joined => new Map());
      const variants = getOrMake(names, put.name, () => new Map<string, Found>());
      const earlier = variants.get(put.constraints.key);
      if (earlier === undefined) {
        variants.set(put.constraints.key, { ...resource, file, versionInfo: content.versionInfo });
      } else {
        const message = `${describe(type, put)} is refused: ${earlier.file} has it already`;
        refused.push({ file, place: content.places[index], message, types: [type] });
      }
    }
  }
  const ordered = [...joined].toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order);
  const types = new Map(ordered.map(([type, names]) => [type, contentOf(names)]));
  return { types, problems: [...problems, ...refused] };
}

function contentOf(names: Joined): TypeContent {
  const all = [...names.values().flatMap((variants) => variants.values())];
  const digests = all.map((one) => one.digest).toSorted();
  const digest = createHash('sha256').update(digests.join()).digest('hex').slice(0, 16);
  const [only = '', ...others] = new Set(all.map(({ versionInfo }) => versionInfo));
  return {
    // The files' own version if they agree on one; else the content's (protocol §7).
    version: others.length === 0 && only !== '' ? only : digest,
    digest,
    byName: new Map(
      [...names].map(([name, variants]) => [name, Array.from(variants.values(), ({ put }) => put)]),
    ),
  };
}

/** Of a type that no file has. */
const emptyContent: TypeContent = contentOf(new Map());

const allPuts = ({ byName }: TypeContent): Put[] => [...byName.values()].flat();

const keyOf = ({ selector, parameters }: Interest): string => `${parameters.id} ${selector}`;

/** Everything wrong with the files below a path, for `validate`; nothing is watched or kept. */
export async function checkResourceFiles(
  path: string,
  maxConstraintDepth: number,
): Promise<readonly FileProblem[]> {
  const scan = await scanFiles(path, new Map(), {
    maxConstraintDepth,
    now: () => Date.now(),
    visit: () => {},
  });
  if (!scan.ok) return [{ file: path, place: undefined, message: scan.error, types: [] }];
  return mergeScan(scan.value, () => true).problems;
}
