import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit, Snapshot } from '../model/catalog.ts';
import {
  type Change,
  type ChangedName,
  type Content,
  type RecordedChanges,
  sameContents,
} from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { PendingName } from '../model/rollout.ts';
import { Acceptance, type CanariesSaid, type ReportedAnswers } from './acceptance.ts';
import { History, type HistoryOptions } from './history.ts';

/** Answers to what is asked for the first time share a change, until it has so many names: each copies them. */
const maxJoined = 1000;

type Settled = Map<ResourceName, 'RELEASED' | 'REPLACED' | 'DISCARDED'>;

/** When a commit was recorded, and when it arrived, as `Clock.monotonic()` says it. */
interface Moment {
  readonly now: number;
  readonly receivedAt: number;
}

type NewChange = Pick<Change, 'type' | 'upstream' | 'names' | 'first' | 'reason'>;

export interface RecorderOptions extends HistoryOptions {
  readonly clock: Clock;
  /** The clients of this process are those that changes are for. Called each time. */
  readonly hearsClients: () => boolean;
}

/** Makes changes of commits: of what upstream says, and of what an operator or the judge does to what waits. */
export class Recorder {
  readonly history: History;
  readonly #acceptance: Acceptance;
  readonly #options: RecorderOptions;
  /** Types of which somebody has said something. */
  readonly #known = new Set<TypeUrl>();

  constructor(options: RecorderOptions) {
    this.history = new History(options);
    this.#acceptance = new Acceptance(this.history, options.clock);
    this.#options = options;
  }

  /** Before the first commit. Of these types something was restored: that is no change. */
  start(types: Iterable<TypeUrl>, recorded: RecordedChanges | undefined): void {
    if (recorded !== undefined) this.history.restore(recorded);
    for (const type of types) this.#known.add(type);
  }

  /** A stream has accepted or rejected what arrived then, as `Clock.monotonic()` says it. */
  answered(receivedAt: number, isAccepted: boolean): void {
    if (this.#options.hearsClients()) this.#acceptance.answered(receivedAt, isAccepted);
  }

  /** The same of the clients of another process. */
  reported(answers: ReportedAnswers): void {
    this.#acceptance.reported(answers);
  }

  /** What canaries have said to these, so far. */
  canariesSaid(names: readonly PendingName[], said: CanariesSaid): void {
    const byType = Map.groupBy(names, ({ type }) => type);
    const waiting = byType
      .entries()
      .map(([type, own]) => [type, new Set(own.map(({ name }) => name))] as const);
    this.#acceptance.canariesSaid(new Map(waiting), said);
  }

  /** Both sides have seen the commit. */
  committed({ type, contents, resolved, receivedAt, operation }: Commit): void {
    if (contents === undefined) return;
    const reason = reasonOf(operation, 'rollback');
    const { names, settled, hasSpoken } = differencesOf(contents, reason);
    const moment = { now: this.#options.clock.now(), receivedAt };
    const found = this.#settle(type, settled, moment, reasonOf(operation, 'discard'));
    for (const [name, verdict] of settled) {
      const content = contents.get(name);
      // Nobody knows of it as a change that waited.
      if (verdict === 'RELEASED' && content !== undefined && !found.has(name))
        names.push(changedName(name, content.before.released, content.after.released, 'RELEASED'));
    }
    const isUnknown = !this.#known.has(type);
    if (resolved.length + names.length > 0) this.#known.add(type);
    if (names.length === 0) return;
    const isAsked = reason === '' && (isUnknown || resolved.length > 0);
    const first = isAsked && names.every(({ change }) => change === 'ADDED');
    const upstream = hasSpoken ? upstreamOf(names) : '';
    this.#add({ type, names, first, upstream, reason }, moment);
  }

  #add(change: NewChange, { now: at, receivedAt }: Moment): void {
    const last = this.history.last();
    const isReleased = change.names.every(({ verdict }) => verdict === 'RELEASED');
    const joins =
      change.first && last?.first === true && last.type === change.type && last.upstream === change.upstream;
    // Clients come one by one, and each may ask for another name for the first time.
    if (joins && last.names.length === last.added && last.names.length < maxJoined) {
      const joined = { ...last, names: [...last.names, ...change.names] };
      this.history.replace({ ...joined, ...countsOf(joined.names) });
      return;
    }
    const releasedAt = isReleased ? at : undefined;
    const { revision } = this.history.add({ ...change, ...countsOf(change.names), at, releasedAt });
    if (isReleased && !change.first) this.#acceptance.released(receivedAt, [revision]);
  }

  /**
   * What was pending of these names is not any more: the newest change of each gets this verdict. Returns those of which
   * something was. `reason`: an operator's; empty: nobody has decided.
   */
  #settle(
    type: TypeUrl,
    settled: Settled,
    { now, receivedAt }: Moment,
    reason: string,
  ): ReadonlySet<ResourceName> {
    const seen = new Set<ResourceName>();
    if (settled.size === 0) return seen;
    /** Of a large change without bodies only the first names are kept. */
    let unlisted = false;
    const released: number[] = [];
    for (const change of [...this.history.changes()].toReversed()) {
      if (change.type !== type || !change.names.some((one) => isSettled(one, settled))) continue;
      const { added, changed, removed } = change;
      if (change.names.length < added + changed + removed) unlisted = true;
      const names = change.names.map((one) => {
        const verdict = isSettled(one, settled) ? settled.get(one.name) : undefined;
        if (verdict === undefined) return one;
        const own = seen.has(one.name) ? 'REPLACED' : verdict;
        seen.add(one.name);
        return { ...one, verdict: own };
      });
      const isReleased = !names.some(({ verdict }) => verdict === 'PENDING') && names.some(gotReleased);
      if (isReleased && change.releasedAt === undefined) released.push(change.revision);
      const releasedAt = change.releasedAt ?? (isReleased ? now : undefined);
      this.history.replace({ ...change, names, releasedAt, reason: reason || change.reason });
    }
    this.#acceptance.released(receivedAt, released);
    return unlisted ? new Set(settled.keys()) : seen;
  }
}

/** Empty: it is none of these operations. */
const reasonOf = (operation: Commit['operation'], verb: 'rollback' | 'discard'): string =>
  operation?.verb === verb ? operation.reason : '';

/** What is new, and what becomes of what was pending. `hasSpoken`: upstream says something else. */
function differencesOf(contents: NonNullable<Commit['contents']>, reason: string) {
  const names: ChangedName[] = [];
  const settled: Settled = new Map();
  let hasSpoken = false;
  for (const [name, { before, after }] of contents) {
    if (!sameContents(before.said, after.said)) {
      hasSpoken = true;
      if (!sameContents(before.said, before.released)) settled.set(name, 'REPLACED');
      const verdict = sameContents(after.said, after.released) ? 'RELEASED' : 'PENDING';
      if (verdict === 'PENDING' || !sameContents(before.released, after.said))
        names.push(changedName(name, before.released, after.said, verdict));
    } else if (!sameContents(before.released, after.released)) {
      if (sameContents(after.said, after.released)) settled.set(name, 'RELEASED');
      else names.push(changedName(name, before.released, after.released, 'RELEASED'));
    } else if (reason === '' && isDiscarded(before, after)) settled.set(name, 'DISCARDED');
  }
  return { names, settled, hasSpoken };
}

/** Canaries saw what upstream says, and go back to what everybody has. */
const isDiscarded = (before: Snapshot, { said, released, canary }: Snapshot): boolean =>
  sameContents(before.canary, before.said) && !sameContents(canary, said) && sameContents(canary, released);

const isSettled = ({ name, verdict }: ChangedName, settled: Settled): boolean =>
  verdict === 'PENDING' && settled.has(name);

const gotReleased = ({ verdict }: ChangedName): boolean => verdict === 'RELEASED';

function changedName(
  name: ResourceName,
  before: Content,
  after: Content,
  verdict: ChangedName['verdict'],
): ChangedName {
  const change = before.length === 0 ? 'ADDED' : after.length === 0 ? 'REMOVED' : 'CHANGED';
  const bytes = after.reduce((sum, { variant }) => sum + (variant.payload?.bytes.length ?? 0), 0);
  return { name, change, bytes, verdict, content: { before, after } };
}

function countsOf(names: readonly ChangedName[]): Pick<Change, 'added' | 'changed' | 'removed'> {
  const count = (kind: ChangedName['change']): number => names.filter(({ change }) => change === kind).length;
  return { added: count('ADDED'), changed: count('CHANGED'), removed: count('REMOVED') };
}

/** One transaction is of one upstream. */
function upstreamOf(names: readonly ChangedName[]): string {
  for (const { content } of names) {
    const [of] = [...(content?.after ?? []), ...(content?.before ?? [])];
    if (of !== undefined) return of.variant.upstream;
  }
  return '';
}
