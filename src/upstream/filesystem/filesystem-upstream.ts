import type { TypeUrl } from '../../model/brand.ts';
import type { Clock } from '../../model/clock.ts';
import type { Interest } from '../../model/transaction.ts';
import { typeInfo } from '../../model/types.ts';
import type { Upstream, UpstreamSink, UpstreamState } from '../../model/upstream.ts';
import type { Log } from '../../observe/log.ts';
import { type ClaimOptions, claims } from '../claims.ts';
import { FileSource, type ScanOutcome } from './file-source.ts';
import { mergeScan } from './merge.ts';
import { type FileProblem, formatProblem } from './problem.ts';
import { Publisher } from './publisher.ts';
import type { Scan } from './scan.ts';

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
