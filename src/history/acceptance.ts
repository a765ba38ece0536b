import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import type { History } from './history.ts';

/** Commits whose ACKs still count: the newest. */
const maxCommits = 100;
/** ACKs of many clients come together: the history is told of the last one at most so often, in milliseconds. */
const tellMs = 500;

interface Released {
  readonly revisions: readonly number[];
  /** How long the last ACK took, in milliseconds; undefined: nobody has accepted it yet. */
  took: number | undefined;
}

/** How long clients take to accept changes. An ACK costs a look into a map. */
export class Acceptance {
  readonly #history: History;
  readonly #clock: Clock;
  /** By when the commit that gave the changes to everybody arrived, as `Clock.monotonic()` says it. */
  readonly #commits = new Map<number, Released>();
  readonly #news = new Set<Released>();

  constructor(history: History, clock: Clock) {
    this.#history = history;
    this.#clock = clock;
  }

  /** Everybody gets these changes with the commit that arrived then. */
  released(receivedAt: number, revisions: readonly number[]): void {
    if (revisions.length === 0) return;
    const known = this.#commits.get(receivedAt)?.revisions ?? [];
    this.#commits.set(receivedAt, { revisions: [...new Set([...known, ...revisions])], took: undefined });
    const [oldest] = this.#commits.keys();
    if (this.#commits.size > maxCommits && oldest !== undefined) this.#commits.delete(oldest);
  }

  /** A client has accepted what arrived then. */
  acknowledged(receivedAt: number): void {
    const commit = this.#commits.get(receivedAt);
    if (commit === undefined) return;
    commit.took = this.#clock.monotonic() - receivedAt;
    if (this.#news.size === 0) this.#clock.after(tellMs, () => this.#tell());
    this.#news.add(commit);
  }

  /** All canaries have accepted what waits under these names. */
  canariesAccepted(waiting: ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>): void {
    const now = this.#clock.now();
    for (const change of [...this.#history.changes()]) {
      const names = waiting.get(change.type);
      const pending = change.names.filter(({ verdict }) => verdict === 'PENDING');
      if (change.canariesMs !== undefined || names === undefined || pending.length === 0) continue;
      if (pending.every(({ name }) => names.has(name)))
        this.#history.replace({ ...change, canariesMs: now - change.at });
    }
  }

  #tell(): void {
    for (const { revisions, took } of this.#news) {
      for (const revision of revisions) {
        const change = this.#history.get(revision);
        if (change !== undefined) this.#history.replace({ ...change, clientsMs: took });
      }
    }
    this.#news.clear();
  }
}
