import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Answers, type Change, type ChangedName, contentHash } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { History } from './history.ts';

/** Commits whose ACKs still count: the newest. */
const maxCommits = 100;
/** ACKs of many clients come together: the history is told of the last one at most so often, in milliseconds. */
const tellMs = 500;

/** What clients of another process say to a change, which is known by one name that it changed. */
export interface ReportedAnswers {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  /** `contentHash` of a variant that is new; empty: the name is gone. */
  readonly content: string;
  readonly accepted: number;
  readonly rejected: number;
  /** How long the last ACK took; undefined: there was none. */
  readonly tookMs: number | undefined;
}

/** Streams of canaries. */
export interface CanariesSaid extends Answers {
  /** All of them have accepted it. */
  readonly areAll: boolean;
}

/** What came with a commit. */
interface Sent {
  readonly revisions: readonly number[];
  /** Since the history was told. */
  accepted: number;
  rejected: number;
  /** How long the last ACK took, in milliseconds; undefined: nobody has accepted it yet. */
  took: number | undefined;
}

/** What clients say to changes, and how long they take to accept them. An answer costs a look into a map. */
export class Acceptance {
  readonly #history: History;
  readonly #clock: Clock;
  /** By when the commit with the changes arrived, as `Clock.monotonic()` says it. */
  readonly #commits = new Map<number, Sent>();
  readonly #news = new Set<Sent>();

  constructor(history: History, clock: Clock) {
    this.#history = history;
    this.#clock = clock;
  }

  /** Everybody gets these changes with the commit that arrived then. */
  released(receivedAt: number, revisions: readonly number[]): void {
    if (revisions.length === 0) return;
    const known = this.#commits.get(receivedAt);
    this.#commits.set(receivedAt, {
      ...{ accepted: 0, rejected: 0, took: undefined, ...known },
      revisions: [...new Set([...(known?.revisions ?? []), ...revisions])],
    });
    const [oldest] = this.#commits.keys();
    if (this.#commits.size > maxCommits && oldest !== undefined) this.#commits.delete(oldest);
  }

  /** A stream has accepted or rejected what arrived then. */
  answered(receivedAt: number, isAccepted: boolean): void {
    const commit = this.#commits.get(receivedAt);
    if (commit === undefined) return;
    if (isAccepted) commit.accepted++;
    else commit.rejected++;
    if (isAccepted) commit.took = this.#clock.monotonic() - receivedAt;
    if (this.#news.size === 0) this.#clock.after(tellMs, () => this.#tell());
    this.#news.add(commit);
  }

  /** The clients of another process have said this since its last report. */
  reported({ type, name, content, accepted, rejected, tookMs }: ReportedAnswers): void {
    const changes = [...this.#history.changes()].toReversed();
    const change = changes.find(
      (one) => one.type === type && one.names.some((of) => isOf(of, name, content)),
    );
    if (change !== undefined && !change.first) this.#add(change, { accepted, rejected, took: tookMs });
  }

  /** Canaries have said this to what waits under these names. */
  canariesSaid(
    waiting: ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>,
    { accepted, rejected, areAll }: CanariesSaid,
  ): void {
    const now = this.#clock.now();
    for (const change of [...this.#history.changes()]) {
      const names = waiting.get(change.type);
      const pending = change.names.filter(({ verdict }) => verdict === 'PENDING');
      if (names === undefined || pending.length === 0 || !pending.every(({ name }) => names.has(name)))
        continue;
      const canariesMs = change.canariesMs ?? (areAll ? now - change.at : undefined);
      const { canaries: before } = change;
      const isSame = before?.accepted === accepted && before.rejected === rejected;
      if (isSame && canariesMs === change.canariesMs) continue;
      this.#history.replace({ ...change, canariesMs, canaries: { accepted, rejected } });
    }
  }

  #tell(): void {
    for (const commit of this.#news) {
      const { revisions } = commit;
      for (const revision of revisions) {
        const change = this.#history.get(revision);
        if (change !== undefined) this.#add(change, commit);
      }
      [commit.accepted, commit.rejected] = [0, 0];
    }
    this.#news.clear();
  }

  #add(change: Change, { accepted, rejected, took }: Pick<Sent, 'accepted' | 'rejected' | 'took'>): void {
    const before = change.answers ?? { accepted: 0, rejected: 0 };
    const answers = { accepted: before.accepted + accepted, rejected: before.rejected + rejected };
    // With several processes the last one counts.
    const clientsMs = took === undefined ? change.clientsMs : Math.max(took, change.clientsMs ?? 0);
    this.#history.replace({ ...change, clientsMs, answers });
  }
}

/** Without bodies the name decides. */
const isOf = ({ name, change, content }: ChangedName, of: ResourceName, hash: string): boolean =>
  name === of &&
  (hash === ''
    ? change === 'REMOVED'
    : content === undefined || content.after.some(({ variant }) => contentHash(variant) === hash));
