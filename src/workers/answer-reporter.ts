import type { Commit } from '../model/catalog.ts';
import { contentHash } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { Message, ToPrimary } from './ipc-messages.ts';

/** Commits whose answers still count: the newest. */
const maxCommits = 100;
/** Answers of many clients come together, in milliseconds. */
const tellMs = 500;

/** Tells the primary, which keeps the history, what the clients of this worker say to changes. */
export class AnswerReporter {
  readonly #clock: Clock;
  readonly #send: (message: ToPrimary) => void;
  /** By when the commit arrived. */
  readonly #commits = new Map<number, Message<'answers'>>();
  readonly #news = new Set<number>();

  constructor(clock: Clock, send: (message: ToPrimary) => void) {
    this.#clock = clock;
    this.#send = send;
  }

  /** What canaries say the judge hears. */
  committed({ type, receivedAt, contents, sides }: Commit): void {
    const isForCanaries = sides !== undefined && sides.released.changed.size === 0;
    const change = contents === undefined || isForCanaries ? undefined : changeOf(contents);
    if (change === undefined) return;
    this.#commits.set(receivedAt, {
      kind: 'answers',
      type,
      ...change,
      accepted: 0,
      rejected: 0,
      tookMs: undefined,
    });
    const [oldest] = this.#commits.keys();
    if (this.#commits.size > maxCommits && oldest !== undefined) this.#commits.delete(oldest);
  }

  answered(receivedAt: number, isAccepted: boolean): void {
    const commit = this.#commits.get(receivedAt);
    if (commit === undefined) return;
    if (this.#news.size === 0) this.#clock.after(tellMs, () => this.#tell());
    this.#news.add(receivedAt);
    this.#commits.set(
      receivedAt,
      isAccepted
        ? { ...commit, accepted: commit.accepted + 1, tookMs: this.#clock.monotonic() - receivedAt }
        : { ...commit, rejected: commit.rejected + 1 },
    );
  }

  #tell(): void {
    for (const receivedAt of this.#news) {
      const commit = this.#commits.get(receivedAt);
      if (commit === undefined) continue;
      this.#send(commit);
      this.#commits.set(receivedAt, { ...commit, accepted: 0, rejected: 0, tookMs: undefined });
    }
    this.#news.clear();
  }
}

/** One name that shows which change this is. */
function changeOf(contents: NonNullable<Commit['contents']>) {
  for (const [name, { before, after }] of contents) {
    const known = new Set(before.said.map(({ variant }) => contentHash(variant)));
    const hashes = after.said.map(({ variant }) => contentHash(variant));
    const content = hashes.find((hash) => !known.has(hash));
    if (content !== undefined) return { name, content };
    if (hashes.length === 0) return { name, content: '' };
  }
  return undefined;
}
