import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit, ContentChange, Snapshot } from '../model/catalog.ts';
import {
  type Answers,
  type Change,
  type ChangeCourse,
  type ChangedName,
  type ChangedVariant,
  type Content,
  contentHash,
  type RecordedChanges,
  sameContents,
} from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import { areSame, getOrMake } from '../model/maps.ts';
import type { PendingName } from '../model/rollout.ts';
import { shorten } from '../model/text.ts';
import { type History, verdictOf } from './history.ts';

/** Answers to what is asked for the first time share a change, until it has so many names: each copies them. */
const maxJoined = 1000;

/** Characters of why operators have promoted and released a change, all together. */
const longestReason = 1000;

type Fate = 'RELEASED' | 'REPLACED' | 'DISCARDED' | undefined;

/**
 * What everybody has now, and what becomes of a name's changes that were pending, the newest first; undefined: that still
 * waits. Older ones are replaced.
 */
type NameSettled = Pick<Snapshot, 'released'> & Readonly<Record<'fates', readonly Fate[]>>;
type Settled = Map<ResourceName, NameSettled>;

type NewChange = Pick<Change, 'type' | 'upstream' | 'names' | 'first' | 'reason'>;

/** What clients of another process say to a change, which is known by one name that it changed. */
export interface ReportedAnswers extends Answers {
  readonly type: TypeUrl;
  readonly name: ResourceName;
  /** `contentHash` of a variant that is new, or `gone`. */
  readonly content: string;
  readonly gone: boolean;
  /** How long the last ACK took, in milliseconds; undefined: there was none. */
  readonly tookMs: number | undefined;
}

/** Commits whose ACKs still count: the newest. */
const maxCommits = 100;
/** Answers of many clients come together: they are told at most so often, in milliseconds. */
const tellMs = 500;

/** How many clients have answered since it was told, and how. */
type Said = Pick<ReportedAnswers, 'accepted' | 'rejected' | 'tookMs'>;

/** What clients say to what came with the newest commits: counted up with each answer, and told now and then. */
export class CommitAnswers<Sent extends object> {
  readonly #clock: Clock;
  readonly #tell: (sent: Sent, said: Said) => void;
  /** By when the commit arrived, as `Clock.monotonic()` says it. An answer costs a look into it. */
  readonly #commits = new Map<number, Sent>();
  readonly #news = new Map<Sent, { accepted: number; rejected: number; tookMs: number | undefined }>();

  constructor(clock: Clock, tell: (sent: Sent, said: Said) => void) {
    this.#clock = clock;
    this.#tell = tell;
  }

  /** What came with the commit that arrived then. */
  sent(receivedAt: number, make: () => Sent): Sent {
    const sent = getOrMake(this.#commits, receivedAt, make);
    const [oldest] = this.#commits.keys();
    if (this.#commits.size > maxCommits && oldest !== undefined) this.#commits.delete(oldest);
    return sent;
  }

  /** A client has accepted or rejected that. */
  answered(receivedAt: number, isAccepted: boolean): void {
    const sent = this.#commits.get(receivedAt);
    if (sent === undefined) return;
    if (this.#news.size === 0) this.#clock.after(tellMs, () => this.#tellNews());
    const said = getOrMake(this.#news, sent, () => ({ accepted: 0, rejected: 0, tookMs: undefined }));
    if (isAccepted) {
      said.accepted++;
      said.tookMs = this.#clock.monotonic() - receivedAt;
    } else said.rejected++;
  }

  #tellNews(): void {
    for (const [sent, said] of this.#news) this.#tell(sent, said);
    this.#news.clear();
  }
}

/**
 * Makes changes of commits: of what upstream says, and of what an operator or the judge does to what waits. And says what
 * clients say to them, and how long they take to accept them.
 */
export class Recorder {
  readonly history: History;
  readonly #clock: Clock;
  readonly #hearsClients: () => boolean;
  /** Types of which somebody has said something. */
  readonly #known = new Set<TypeUrl>();
  /** Of the revisions that came with a commit. */
  readonly #answersTo: CommitAnswers<Set<number>>;
  /** What canaries have said last, and of what, by the first of these names: the judge tells it at each look. */
  readonly #said = new WeakMap<PendingName, readonly unknown[]>();

  /** `hearsClients`, called each time: the clients of this process are those that changes are for. */
  constructor(history: History, clock: Clock, hearsClients: () => boolean) {
    this.history = history;
    this.#clock = clock;
    this.#hearsClients = hearsClients;
    this.#answersTo = new CommitAnswers(clock, (revisions, said) => {
      for (const revision of revisions) this.#answered(this.history.get(revision), said);
    });
  }

  /** Before the first commit. Of these types something was restored: that is no change. */
  start(types: Iterable<TypeUrl>, recorded: RecordedChanges | undefined): void {
    if (recorded !== undefined) this.history.restore(recorded);
    for (const type of types) this.#known.add(type);
  }

  /** Both cohorts have seen the commit. */
  committed({ type, contents, resolved, receivedAt, operation }: Commit): void {
    if (contents === undefined) return;
    const reason = reasonOf(operation, 'rollback');
    const isUnknown = !this.#known.has(type);
    const { names, settled, hasSpoken } = differencesOf(contents, reason, isUnknown);
    const found = this.#settle(type, settled, receivedAt, reasonOf(operation, 'discard'));
    for (const [name, { fates }] of settled) {
      const content = contents.get(name);
      // Nobody knows of it as a change that waited.
      if (fates.includes('RELEASED') && content !== undefined && !found.has(name))
        names.push(changedName(name, content, content.after.released, 'RELEASED'));
    }
    if (resolved.length + names.length > 0) this.#known.add(type);
    if (names.length === 0) return;
    const first = reason === '' && names.every(isAllFirst);
    const upstream = hasSpoken ? upstreamOf(names) : '';
    this.#add({ type, names, first, upstream, reason }, receivedAt);
  }

  #add(change: NewChange, receivedAt: number): void {
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
    const at = this.#clock.now();
    const releasedAt = isReleased ? at : undefined;
    const { revision } = this.history.add({ ...change, ...countsOf(change.names), at, releasedAt });
    if (isReleased && !change.first) this.#released(receivedAt, [revision]);
  }

  /**
   * What was pending of these names is not any more: their changes get these verdicts. Returns those of which something
   * was. `reason`: an operator's; empty: nobody has decided.
   */
  #settle(type: TypeUrl, settled: Settled, receivedAt: number, reason: string): ReadonlySet<ResourceName> {
    const now = this.#clock.now();
    /** How many of its changes were pending, of those that were looked at. */
    const seen = new Map<ResourceName, number>();
    if (settled.size === 0) return new Set();
    /** Of a large change without bodies only the first names are kept. */
    let unlisted = false;
    const released: number[] = [];
    for (const change of [...this.history.changes()].toReversed()) {
      if (change.type !== type) continue;
      const { added, changed, removed } = change;
      const isUnlisted = change.names.length < added + changed + removed;
      unlisted ||= isUnlisted && change.names.some((one) => isSettled(one, settled));
      const names = change.names.map((one) => settledName(one, settled.get(one.name), seen));
      const isDecided = names.some(({ verdict }, index) => verdict !== change.names[index]?.verdict);
      if (areSame(change.names, names)) continue;
      const isReleased = isDecided && verdictOf({ names }) === 'RELEASED';
      if (isReleased && change.releasedAt === undefined) released.push(change.revision);
      const releasedAt = change.releasedAt ?? (isReleased ? now : undefined);
      this.history.replace({ ...change, names, releasedAt, reason: (isDecided && reason) || change.reason });
    }
    this.#released(receivedAt, released);
    return new Set(unlisted ? settled.keys() : seen.keys());
  }

  /** Everybody gets these changes with the commit that arrived then. */
  #released(receivedAt: number, revisions: readonly number[]): void {
    if (revisions.length === 0) return;
    const sent = this.#answersTo.sent(receivedAt, () => new Set());
    for (const revision of revisions) sent.add(revision);
  }

  /** A stream has accepted or rejected what arrived then, as `Clock.monotonic()` says it. */
  answered(receivedAt: number, isAccepted: boolean): void {
    if (this.#hearsClients()) this.#answersTo.answered(receivedAt, isAccepted);
  }

  /** The clients of another process have said this since its last report. */
  reported({ type, accepted, rejected, tookMs, ...shown }: ReportedAnswers): void {
    const changes = [...this.history.changes()].toReversed();
    const change = changes.find((one) => one.type === type && one.names.some((of) => shows(of, shown)));
    if (change?.first === false) this.#answered(change, { accepted, rejected, tookMs });
  }

  /** Canaries have said this to what waits under these names. `areAll`: all of them have accepted it. */
  canariesSaid(
    names: readonly PendingName[],
    { accepted, rejected, areAll }: Answers & { readonly areAll: boolean },
  ): void {
    const [first] = names;
    if (first === undefined) return;
    const said = [accepted, rejected, areAll, ...names];
    if (areSame(this.#said.get(first), said)) return;
    this.#said.set(first, said);
    for (const change of this.history.waitingOf(names)) {
      const canariesMs = change.canariesMs ?? (areAll ? this.history.ageMs(change.revision) : undefined);
      const { canaries: before } = change;
      const isSame = before?.accepted === accepted && before.rejected === rejected;
      if (isSame && canariesMs === change.canariesMs) continue;
      this.history.replace({ ...change, canariesMs, canaries: { accepted, rejected } });
    }
  }

  /** What waits under these names is there now. */
  isAt(names: readonly PendingName[], course: Partial<ChangeCourse>): void {
    // Why it was held is told of what is discarded after that.
    for (const change of this.history.waitingOf(names))
      this.history.replace({ ...change, course: { wave: 1, waves: 1, ...change.course, ...course } });
  }

  /** An operator ends a wave of what waits under these names, or releases it. */
  decided(names: readonly PendingName[], reason: string): void {
    for (const change of this.history.waitingOf(names)) {
      const said = change.reason === '' ? reason : `${change.reason}; ${reason}`;
      this.history.replace({ ...change, reason: shorten(said, longestReason) });
    }
  }

  #answered(change: Change | undefined, { accepted, rejected, tookMs }: Said): void {
    if (change === undefined) return;
    const before = change.answers ?? { accepted: 0, rejected: 0 };
    const answers = { accepted: before.accepted + accepted, rejected: before.rejected + rejected };
    // With several processes the last one counts.
    const clientsMs = tookMs === undefined ? change.clientsMs : Math.max(tookMs, change.clientsMs ?? 0);
    this.history.replace({ ...change, clientsMs, answers });
  }
}

/** Empty: it is none of these operations. */
const reasonOf = (operation: Commit['operation'], verb: 'rollback' | 'discard'): string =>
  operation?.verb === verb ? operation.reason : '';

/**
 * What is new, and what becomes of what was pending. `hasSpoken`: upstream says something else. `isUnknown`: nothing was
 * said of the type before.
 */
function differencesOf(contents: NonNullable<Commit['contents']>, reason: string, isUnknown: boolean) {
  const names: ChangedName[] = [];
  const settled: Settled = new Map();
  let hasSpoken = false;
  for (const [name, content] of contents) {
    const { before, after } = content;
    const fates = fatesOf(before, after, reason === '');
    if (fates.some((fate) => fate !== undefined)) settled.set(name, { fates, released: after.released });
    if (!sameContents(before.said, after.said)) {
      hasSpoken = true;
      // Upstream has gone back to the change that is judged: that goes on.
      if (isBehind(before) && sameContents(after.said, after.canary) && fates.at(-1) === undefined) continue;
      const verdict = sameContents(after.said, after.released) ? 'RELEASED' : 'PENDING';
      if (verdict === 'PENDING' || !sameContents(before.released, after.said))
        names.push(changedName(name, content, after.said, verdict, isUnknown));
    } else if (!sameContents(before.released, after.released) && !fates.includes('RELEASED'))
      names.push(changedName(name, content, after.released, 'RELEASED', isUnknown));
  }
  return { names, settled, hasSpoken };
}

/** What upstream says is behind the change that canaries have. */
const isBehind = ({ said, released, canary }: Snapshot): boolean =>
  !sameContents(canary, said) && !sameContents(canary, released);

/** Of what upstream said, and of the change that it was behind. */
function fatesOf(before: Snapshot, after: Snapshot, isJudged: boolean): readonly Fate[] {
  const said = sameContents(before.said, before.released) ? [] : [saidFate(before, after, isJudged)];
  return isBehind(before) ? [...said, canaryFate(before, after)] : said;
}

function saidFate(before: Snapshot, after: Snapshot, isJudged: boolean): Fate {
  if (!sameContents(before.said, after.said))
    return sameContents(before.canary, before.said) && isBehind(after) ? undefined : 'REPLACED';
  if (!sameContents(before.released, after.released))
    return sameContents(after.said, after.released) ? 'RELEASED' : undefined;
  return isJudged && isDiscarded(before, after) ? 'DISCARDED' : undefined;
}

function canaryFate(before: Snapshot, after: Snapshot): Fate {
  if (isBehind(after)) return undefined;
  if (sameContents(before.canary, after.canary))
    return sameContents(after.canary, after.released) ? 'RELEASED' : undefined;
  return sameContents(after.canary, after.said) ? 'REPLACED' : 'DISCARDED';
}

/** `seen` counts the changes of each name that waited. */
function settledName(
  one: ChangedName,
  of: NameSettled | undefined,
  seen: Map<ResourceName, number>,
): ChangedName {
  if (of === undefined) return one;
  const at = seen.get(one.name) ?? 0;
  if (one.verdict !== 'PENDING') return before(one, of, at);
  seen.set(one.name, at + 1);
  const verdict = at < of.fates.length ? of.fates[at] : 'REPLACED';
  return verdict === undefined ? before(one, of, at + 1) : { ...one, verdict };
}

/**
 * What upstream has said of a name since a change that is released now comes after that: a rollback to the change gives
 * it. `at`: so many changes that waited are newer.
 */
function before(one: ChangedName, { fates, released }: NameSettled, at: number): ChangedName {
  const { content, verdict } = one;
  if (content === undefined || verdict === 'RELEASED' || !fates.includes('RELEASED', at)) return one;
  return { ...one, content: { ...content, before: released } };
}

/** Canaries saw what upstream says, and go back to what everybody has. */
const isDiscarded = (before: Snapshot, { said, released, canary }: Snapshot): boolean =>
  sameContents(before.canary, before.said) && !sameContents(canary, said) && sameContents(canary, released);

const isSettled = ({ name, verdict }: ChangedName, settled: Settled): boolean =>
  verdict === 'PENDING' && settled.has(name);

function changedName(
  name: ResourceName,
  { before: { released: before }, saidFirst }: ContentChange,
  now: Content,
  verdict: ChangedName['verdict'],
  isUnknown = false,
): ChangedName {
  // What everybody has instead of what waits is known.
  const areFirst = isUnknown && verdict === 'RELEASED';
  const isFirst = ({ variant }: ChangedVariant): boolean =>
    areFirst || saidFirst.has(variant.constraints.key);
  const after = now.map((held) => (isFirst(held) ? { ...held, first: true } : held));
  const change = before.length === 0 ? 'ADDED' : after.length === 0 ? 'REMOVED' : 'CHANGED';
  const bytes = after.reduce((sum, { variant }) => sum + (variant.payload?.bytes.length ?? 0), 0);
  return { name, change, bytes, verdict, content: { before, after } };
}

/** Nothing may have changed upstream. */
const isAllFirst = ({ change, content }: ChangedName): boolean =>
  change === 'ADDED' && content?.after.every(({ first }) => first === true) === true;

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

/** It is the change that brought the variant, or took it. Without bodies the name decides. */
function shows(
  { name, change, content }: ChangedName,
  shown: Pick<ReportedAnswers, 'name' | 'content' | 'gone'>,
): boolean {
  if (name !== shown.name) return false;
  if (content === undefined) return change !== (shown.gone ? 'ADDED' : 'REMOVED');
  const has = (of: Content): boolean => of.some(({ variant }) => contentHash(variant) === shown.content);
  return has(content.before) === shown.gone && has(content.after) !== shown.gone;
}
