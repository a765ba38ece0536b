import type { TypeUrl } from '../model/brand.ts';
import type { Change, ChangedName, ChangeVerdict, RecordedChanges } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import { KeptBodies } from './kept-bodies.ts';

interface HistoryLimits {
  /** Of bodies; the oldest changes lose theirs first. */
  readonly maxBytes: number;
  readonly maxAgeMs: number;
}

/** So many changes are kept without bodies. */
const maxWithoutBodies = 100;
/** Names of a change without bodies. */
const maxNames = 1000;

export interface HistoryOptions {
  readonly clock: Pick<Clock, 'now'>;
  /** Undefined: no bodies are kept. Called each time. */
  readonly limits: () => HistoryLimits | undefined;
  /** This change is new, or another than before, or it is not kept any more: it has to be written. */
  readonly written: (change: Pick<Change, 'type' | 'revision'>) => void;
}

/** The last changes, the oldest first: with the bodies before and after, as far as the limits allow. */
export class History {
  readonly #options: HistoryOptions;
  readonly #bodies = new KeptBodies();
  /** By revision, in their order. The first ones are without bodies. */
  readonly #changes = new Map<number, Change>();
  #lastRevision = 0;
  /** The revision of the newest change without bodies. */
  #lastStripped = 0;
  #restoredRevision = 0;

  constructor(options: HistoryOptions) {
    this.#options = options;
  }

  get lastRevision(): number {
    return this.#lastRevision;
  }

  /** Of the last change before the restart; 0: nothing was restored. */
  get restoredRevision(): number {
    return this.#restoredRevision;
  }

  /** The last change that everybody has, with all before it that were not taken back. */
  get releasedRevision(): number {
    const [oldest] = this.#changes.keys();
    let released = (oldest ?? this.#lastRevision + 1) - 1;
    let waits = false;
    for (const change of this.#changes.values()) {
      const verdict = verdictOf(change);
      // What an operator has made is what everybody has, whatever waits.
      waits = change.reason === '' && (waits || verdict === 'PENDING');
      if (verdict === 'RELEASED' && !waits) released = change.revision;
    }
    return released;
  }

  /** Of the bodies that are kept. */
  get bytes(): number {
    return this.#bodies.bytes;
  }

  get keepsBodies(): boolean {
    return this.#options.limits() !== undefined;
  }

  /** The oldest first. */
  changes(): Iterable<Change> {
    this.#expire();
    return this.#changes.values();
  }

  get(revision: number): Change | undefined {
    this.#expire();
    return this.#changes.get(revision);
  }

  last(): Change | undefined {
    return this.#changes.get(this.#lastRevision);
  }

  add(change: Omit<Change, 'revision'>): Change {
    const added = this.#put({ ...change, revision: ++this.#lastRevision });
    this.#options.written(added);
    this.#expire();
    return added;
  }

  /** In the place of the change with this revision. */
  replace(change: Change): void {
    const before = this.#changes.get(change.revision);
    if (before === undefined) return;
    this.#dropBodies(before);
    this.#options.written(this.#put(change));
    this.#expire();
  }

  /** Before the first change. */
  restore({ changes, lastRevision }: RecordedChanges): void {
    this.#lastRevision = Math.max(lastRevision, this.#lastRevision, changes.at(-1)?.revision ?? 0);
    this.#restoredRevision = this.#lastRevision;
    for (const change of changes) this.#put(change);
    this.#expire();
  }

  #put(change: Change): Change {
    const kept = this.keepsBodies && isWhole(change) ? this.#keepBodies(change) : stripped(change);
    if (!isWhole(kept)) this.#lastStripped = Math.max(this.#lastStripped, kept.revision);
    this.#changes.set(kept.revision, kept);
    return kept;
  }

  #keepBodies(change: Change): Change {
    const names = change.names.map((one) => {
      const { content } = one;
      if (content === undefined) return one;
      const kept = { before: this.#bodies.keep(content.before), after: this.#bodies.keep(content.after) };
      return { ...one, content: kept };
    });
    return { ...change, names };
  }

  #dropBodies({ names }: Change): void {
    for (const { content } of names) {
      if (content === undefined) continue;
      this.#bodies.drop(content.before);
      this.#bodies.drop(content.after);
    }
  }

  /** From the oldest: bodies that are too old or too much, and then changes that are too many without. */
  #expire(): void {
    const limits = this.#options.limits();
    const oldest = this.#options.clock.now() - (limits?.maxAgeMs ?? 0);
    for (const change of this.#changes.values()) {
      if (!isWhole(change)) continue;
      const fits = limits !== undefined && this.bytes <= limits.maxBytes && change.at >= oldest;
      if (fits) break;
      this.#dropBodies(change);
      this.#lastStripped = Math.max(this.#lastStripped, change.revision);
      this.#changes.set(change.revision, stripped(change));
      this.#options.written(change);
    }
    for (const [revision, change] of this.#changes) {
      if (this.#changes.size <= maxWithoutBodies || isWhole(change)) break;
      this.#changes.delete(revision);
      this.#options.written(change);
    }
  }

  /** Whether everything after this change is kept with bodies: then what there was at it can be told. */
  reaches(revision: number): boolean {
    this.#expire();
    return revision >= this.#lastStripped;
  }

  /** The changes after a revision, the oldest first; of one type, if one is given. */
  *after(revision: number, type?: TypeUrl): Iterable<Change> {
    for (const change of this.#changes.values()) {
      if (change.revision > revision && (type === undefined || change.type === type)) yield change;
    }
  }
}

/** The first of these that one of its names has. */
const order: readonly ChangeVerdict[] = ['PENDING', 'RELEASED', 'DISCARDED', 'REPLACED'];

export function verdictOf({ names }: Pick<Change, 'names'>): ChangeVerdict {
  return order.find((verdict) => names.some((one) => one.verdict === verdict)) ?? 'RELEASED';
}

export function isWhole({ names, added, changed, removed }: Change): boolean {
  return names.length === added + changed + removed && names.every(({ content }) => content !== undefined);
}

function stripped(change: Change): Change {
  return { ...change, names: change.names.slice(0, maxNames).map(withoutBodies) };
}

function withoutBodies({ name, change, bytes, verdict }: ChangedName): ChangedName {
  return { name, change, bytes, verdict, content: undefined };
}
