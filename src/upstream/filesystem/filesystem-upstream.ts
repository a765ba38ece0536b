import { createHash } from 'node:crypto';
import type { ResourceName, TypeUrl } from '../../model/brand.ts';
import type { Clock } from '../../model/clock.ts';
import type { Parameters } from '../../model/parameters.ts';
import { isCollection } from '../../model/selection.ts';
import { type Holder, type Interest, type Put, type Selector, transaction } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import type { Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import { type ClaimOptions, claims } from '../claims.ts';
import { type FileProblem, formatProblem } from './parse.ts';
import { describe, type FileResource, getOrMake } from './resources.ts';
import { type FileContent, FileSource, type Scan, type ScanOutcome, scanFiles } from './scan.ts';

export interface FilesystemOptions {
  readonly name: string;
  /** A directory, or one file; relative to the working directory. */
  readonly path: string;
  readonly claims: ClaimOptions;
  /** limits.max_constraint_depth. */
  readonly maxConstraintDepth: number;
  readonly clock: Clock;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** Something of this type in a file is refused: told once for each problem. */
  readonly rejected: (type: TypeUrl) => void;
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
  readonly #publisher: Publisher;
  readonly #source: FileSource;
  #reported: ReadonlyMap<string, FileProblem> = new Map();
  #current: UpstreamState;

  constructor(options: FilesystemOptions, sink: UpstreamSink) {
    const { name, path, maxConstraintDepth, clock } = options;
    this.name = name;
    this.#options = options;
    this.#sink = sink;
    this.#publisher = new Publisher({ key: `files:${name}`, upstream: name, role: 'wildcard' }, sink);
    this.#source = new FileSource(path, maxConstraintDepth, clock, (look) => this.#found(look));
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
    this.#publisher.subscribe(interest);
  }

  /** Files are as current as they can be. */
  resubscribe(): void {}

  unsubscribe(interest: Interest): void {
    this.#publisher.unsubscribe(interest);
  }

  /** To keep it costs nothing here. */
  markIdle(): void {}

  markActive(): void {}

  refusals(): undefined {
    return undefined;
  }

  suspects(): readonly [] {
    return [];
  }

  refusal(): undefined {
    return undefined;
  }

  state(): UpstreamState {
    return this.#current;
  }

  start(): void {
    this.#source.start();
  }

  async stop(): Promise<void> {
    this.#publisher.stop();
    await this.#source.stop();
  }

  #found(look: ScanOutcome): void {
    if (look.kind === 'missing') {
      const { path } = this.#options;
      this.#report([{ file: path, place: undefined, message: look.reason, types: [] }]);
      this.#setState({ connected: false, down: true }, true);
      return;
    }
    const { files } = look.scan;
    const { types, problems } = mergeScan(look.scan, (type, name) => this.claims(type, name));
    this.#report([...problems, ...withheldProblems(files)]);
    const stale = [...files.values()].some(({ problems: wrong }) => wrong.length > 0);
    this.#setState({ connected: true, everConnected: true, down: false }, stale);
    this.#publisher.publish(types, withheldTypes(look.scan));
  }

  /** Each problem once, not once for each scan. */
  #report(problems: readonly FileProblem[]): void {
    const { log, name, rejected } = this.#options;
    const now = new Map(problems.map((problem) => [formatProblem(problem), problem]));
    for (const [text, { file, types }] of now) {
      if (this.#reported.has(text)) continue;
      log.warn(text, { upstream: name, file });
      for (const type of types) rejected(type);
    }
    for (const [text, { file }] of this.#reported) {
      if (!now.has(text)) log.info(`resolved: ${text}`, { upstream: name, file });
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

function withheldTypes(scan: Scan): ReadonlySet<TypeUrl> {
  const types = new Set<TypeUrl>();
  for (const { withheld } of scan.files.values()) {
    for (const type of withheld) types.add(type);
  }
  return types;
}

/** What was last published of a type. */
interface Published {
  readonly content: TypeContent;
  /** False while a file that never was good seems to hold some of it: what is missing is unknown, not absent. */
  readonly complete: boolean;
}

/** Knows who wants what of the files, and turns contents into transactions. */
export class Publisher {
  readonly #holder: Holder;
  readonly #sink: UpstreamSink;
  readonly #interests = new Map<TypeUrl, Map<Selector, Map<Parameters, Interest>>>();
  /** Not answered yet. They are answered together, as one request of a client brings many. */
  readonly #unanswered = new Set<Interest>();
  readonly #published = new Map<TypeUrl, Published>();
  #withheld: ReadonlySet<TypeUrl> = new Set();
  #scanned = false;
  #answering = false;
  #stopped = false;

  constructor(holder: Holder, sink: UpstreamSink) {
    this.#holder = holder;
    this.#sink = sink;
  }

  stop(): void {
    this.#stopped = true;
  }

  subscribe(interest: Interest): void {
    const selectors = getOrMake(
      this.#interests,
      interest.type,
      () => new Map<Selector, Map<Parameters, Interest>>(),
    );
    const sets = getOrMake(selectors, interest.selector, () => new Map<Parameters, Interest>());
    sets.set(interest.parameters, interest);
    this.#unanswered.add(interest);
    if (this.#scanned) this.#answerSoon();
  }

  unsubscribe({ type, selector, parameters }: Interest): void {
    const selectors = this.#interests.get(type);
    const sets = selectors?.get(selector);
    const known = sets?.get(parameters);
    if (known === undefined) return;
    this.#unanswered.delete(known);
    sets?.delete(parameters);
    if (sets?.size === 0) selectors?.delete(selector);
    if (selectors?.size === 0) this.#interests.delete(type);
  }

  /**
   * The files' whole content, types in the order in which they are published; of the `withheld` types some may be
   * missing.
   */
  publish(contents: ReadonlyMap<TypeUrl, TypeContent>, withheld: ReadonlySet<TypeUrl>): void {
    this.#scanned = true;
    this.#withheld = withheld;
    // What is gone goes last: what referred to it has been changed by then (protocol §8, Order on ADS).
    for (const type of new Set([...contents.keys(), ...this.#interests.keys(), ...this.#published.keys()])) {
      this.#publishType(type, contents.get(type) ?? emptyContent);
    }
  }

  #publishType(type: TypeUrl, content: TypeContent): void {
    const complete = !this.#withheld.has(type);
    const before = this.#published.get(type);
    const same = before?.content.digest === content.digest && before.content.version === content.version;
    if (same && before.complete === complete) return;
    this.#published.set(type, { content, complete });
    const interests: Interest[] = [];
    for (const sets of this.#interests.get(type)?.values() ?? []) interests.push(...sets.values());
    for (const interest of interests) this.#unanswered.delete(interest);
    this.#apply(type, content, allPuts(content), complete, interests);
  }

  /** After the caller is done: it may be in the middle of a change of its own. */
  #answerSoon(): void {
    if (this.#answering) return;
    this.#answering = true;
    queueMicrotask(() => {
      this.#answering = false;
      this.#answer();
    });
  }

  #answer(): void {
    const byType = Map.groupBy(this.#unanswered, ({ type }) => type);
    this.#unanswered.clear();
    for (const [type, interests] of byType) {
      const before = this.#published.get(type);
      const content = before?.content ?? emptyContent;
      const complete = !this.#withheld.has(type);
      this.#published.set(type, { content, complete });
      const all = before === undefined || interests.some(({ selector }) => isCollection(selector));
      const names = new Set(interests.map(({ selector }) => selector));
      // Given again, as the cache may have dropped what nobody subscribed to.
      const puts = all ? allPuts(content) : [...names].flatMap((name) => content.byName.get(name) ?? []);
      this.#apply(type, content, puts, all && complete, interests);
    }
  }

  #apply(
    type: TypeUrl,
    content: TypeContent,
    puts: readonly Put[],
    complete: boolean,
    interests: readonly Interest[],
  ): void {
    if (this.#stopped) return;
    const resolved = this.#withheld.has(type) ? [] : interests;
    this.#sink.apply(
      transaction({ holder: this.#holder, type, version: content.version, puts, complete, resolved }),
    );
  }
}

function allPuts(content: TypeContent): Put[] {
  return [...content.byName.values()].flat();
}

/** All resources of one type, of all files. */
export interface TypeContent {
  readonly version: string;
  /** Equal: nothing of this type changed. */
  readonly digest: string;
  readonly byName: ReadonlyMap<ResourceName, readonly Put[]>;
}

export interface Merged {
  /** In the order in which they are sent on ADS (protocol §8), so that what is referred to comes first. */
  readonly types: ReadonlyMap<TypeUrl, TypeContent>;
  readonly problems: readonly FileProblem[];
}

/** `mergeFiles` of a scan, with the scan's own problems first. */
export function mergeScan(scan: Scan, claimed: Claimed): Merged {
  const contents = new Map<string, FileContent>();
  const broken: FileProblem[] = [];
  for (const [file, { content, problems, notes }] of scan.files) {
    if (content !== undefined) contents.set(file, content);
    broken.push(...problems, ...notes);
  }
  const merged = mergeFiles(contents, claimed);
  return { types: merged.types, problems: [...scan.problems, ...broken, ...merged.problems] };
}

type Claimed = (type: TypeUrl, name: ResourceName) => boolean;

/**
 * Joins the files, which come in path order. Of two resources with the same type, name and constraints the later file's
 * is refused, and reported; its other resources count. Variants of one name, with different constraints, may be in
 * different files. What `claimed` denies is left out: other upstreams serve it.
 */
function mergeFiles(files: ReadonlyMap<string, FileContent>, claimed: Claimed): Merged {
  const types = new Map<TypeUrl, TypeBuilder>();
  const problems: FileProblem[] = [];
  for (const [file, content] of files) {
    for (const resource of content.resources) {
      if (!claimed(resource.type, resource.put.name)) continue;
      const builder = getOrMake(types, resource.type, () => new TypeBuilder());
      const earlier = builder.add(resource, file, content.versionInfo);
      if (earlier === undefined) continue;
      problems.push({
        file,
        place: content.places[resource.index],
        message: `${describe(resource.type, resource.put)} is refused: ${earlier} has it already`,
        types: [resource.type],
      });
    }
  }
  const ordered = [...types].toSorted(([a], [b]) => typeInfo(a).order - typeInfo(b).order);
  return { types: new Map(ordered.map(([type, builder]) => [type, builder.build()])), problems };
}

interface Origin {
  readonly put: Put;
  readonly file: string;
}

class TypeBuilder {
  readonly #names = new Map<ResourceName, Map<string, Origin>>();
  readonly #digests: string[] = [];
  readonly #versions = new Set<string>();

  /** The file that has it already; undefined if it was added. */
  add(resource: FileResource, file: string, versionInfo: string): string | undefined {
    const { put, digest } = resource;
    const variants = getOrMake(this.#names, put.name, () => new Map<string, Origin>());
    const earlier = variants.get(put.constraints.key);
    if (earlier !== undefined) return earlier.file;
    variants.set(put.constraints.key, { put, file });
    this.#digests.push(digest);
    this.#versions.add(versionInfo);
    return undefined;
  }

  build(): TypeContent {
    const digest = createHash('sha256').update(this.#digests.toSorted().join()).digest('hex').slice(0, 16);
    const [only = ''] = this.#versions;
    return {
      // The files' own version if they agree on one; else the content's (protocol §7).
      version: this.#versions.size === 1 && only !== '' ? only : digest,
      digest,
      byName: new Map(
        [...this.#names].map(([name, variants]) => [name, [...variants.values()].map(({ put }) => put)]),
      ),
    };
  }
}

/** Of a type that no file has. */
const emptyContent: TypeContent = new TypeBuilder().build();

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
