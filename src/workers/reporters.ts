import { isDeepStrictEqual } from 'node:util';
import { serialize } from 'node:v8';
import type { Config } from '../config/config.ts';
import type { TrafficJudge } from '../load-reports.ts';
import type { Cohort } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import type { Commit } from '../model/catalog.ts';
import { type Content, contentHash } from '../model/change.ts';
import { type Clock, Settling, Sweep, systemClock, type Timer } from '../model/clock.ts';
import type { ReportedTraffic } from '../model/load.ts';
import { areSame, getOrMake } from '../model/maps.ts';
import type { CohortClient } from '../model/rollout.ts';
import {
  byPlace,
  type Canaries,
  classesMoved,
  isInWaves,
  type Member,
  type Moved,
} from '../releases/canaries.ts';
import { CommitAnswers } from '../releases/recorder.ts';
import type { Rollout } from '../releases/rollout.ts';
import {
  type CanaryStream,
  type Fleet,
  outdated,
  type Survey,
  unknownCanary,
  type Waiting,
} from '../releases/waiting.ts';
import type { RelayFleet } from '../rollout-fleet.ts';
import type { Message, ToPrimary } from './ipc-messages.ts';

/** While a change waits the clients are looked at so often, in milliseconds: some may have come. */
const lookMs = 1000;
/** Answers of many canaries arrive together. */
const settling = { quiet: 10, longest: 100 };
/** Nodes that are canaries, of one worker: what the primary keeps over a restart is bounded, too. */
const maxCanaries = 10_000;

type CanaryFleet = Pick<RelayFleet, 'waitingChanged' | 'survey' | 'over'>;

/** Tells the primary what this worker's canaries say to the changes that wait. */
export class CanaryReporter {
  readonly #fleet: CanaryFleet;
  readonly #clock: Clock;
  readonly #send: (message: ToPrimary) => void;
  readonly #settling: Settling;
  #waiting: Waiting = new Map();
  /** Of the primary's question: it knows by it which change an answer is about. */
  #round = 0;
  #told = Buffer.alloc(0);
  /** Since the last report. */
  #ends: CanaryStream[] = [];
  /** Streams that have rejected something, by id, as long as they are canaries: a freeze may be over before they leave. */
  #rejected: ReadonlySet<string> = new Set();
  #timer: Timer | undefined;

  constructor(fleet: CanaryFleet, clock: Clock, send: (message: ToPrimary) => void) {
    this.#fleet = fleet;
    this.#clock = clock;
    this.#send = send;
    this.#settling = new Settling(clock, settling, () => this.#report());
  }

  /** The primary's question: answered at once, and again whenever the answer is another. */
  ask({ round, waiting }: Message<'waiting'>): void {
    this.#round = round;
    this.#waiting = waiting;
    this.#told = Buffer.alloc(0);
    this.#fleet.waitingChanged();
    // What ended rejected the change before, perhaps.
    this.#ends = this.#ends.map(outdated);
    if (waiting.size === 0) {
      this.#ends = [];
      this.#fleet.over();
    }
    this.#report();
  }

  /** As the primary asked last. */
  waiting(): Waiting {
    return this.#waiting;
  }

  answered(): void {
    if (this.#waiting.size > 0) this.#settling.touch();
  }

  canaryEnded(stream: CanaryStream): void {
    this.#ends.push(stream);
    this.#settling.touch();
  }

  #report(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#waiting.size === 0) return;
    this.#timer = this.#clock.after(lookMs, () => this.#report());
    const survey = this.#fleet.survey(this.#waiting);
    // It calls when all streams have been looked at.
    if (!survey.complete) return;
    // The primary forgets what is not listed.
    const rejecting = survey.canaries.filter(
      ({ stream, standing }) => standing.kind === 'rejected' || this.#rejected.has(stream),
    );
    this.#rejected = new Set(rejecting.map(({ stream }) => stream));
    const report = reportOf(survey, this.#round, this.#ends, this.#rejected);
    const bytes = serialize(report);
    if (!bytes.equals(this.#told) || report.ended.length > 0) this.#send(report);
    this.#told = bytes;
    this.#ends = [];
  }
}

/**
 * What a worker says of its clients, as far as the judge needs it: all canaries, and of the other nodes with equal
 * subscriptions in one class the first by the hash. No other of them is ever elected.
 */
export function reportOf(
  { members, canaries }: Survey,
  round: number,
  ended: readonly CanaryStream[],
  rejected: ReadonlySet<string>,
): Message<'canary_report'> {
  const numbers = new Map<ReadonlySet<string>, number>();
  const numberOf = (names: ReadonlySet<string>): number => getOrMake(numbers, names, () => numbers.size);
  const chosen: Member[] = [];
  const candidates = new Map<string, Member>();
  for (const member of members) {
    if (member.cohort === 'canary') {
      if (chosen.length < maxCanaries) chosen.push(member);
      continue;
    }
    const subscribed = Array.from(member.subscribed, numberOf).toSorted((a, b) => a - b);
    const key = JSON.stringify([member.classKey, member.mayBeCanary, subscribed]);
    const known = candidates.get(key);
    if (known === undefined || byPlace(member, known) < 0) candidates.set(key, member);
  }
  // Of those that reject nothing the equal ones are one object, so that the message has it once.
  const equal = new Map<string, CanaryStream>();
  const listed = canaries.map((one) => {
    if (rejected.has(one.stream)) return one;
    const { node, classKey, standing, names } = one;
    const key = JSON.stringify([node, classKey, standing, names.map(numberOf)]);
    return getOrMake(equal, key, () => ({ ...one, stream: '' }));
  });
  return {
    kind: 'canary_report',
    round,
    members: [...chosen, ...candidates.values()],
    canaries: listed,
    ended,
  };
}

/** As the primary said last. */
export function cohortBy({ named, open, waves, reached }: CanaryRules, client: CohortClient): Cohort {
  if (named.has(client.nodeKey)) return 'canary';
  if (open?.has(client.classKey) === false) return 'released';
  return isInWaves(waves, reached.get(client.classKey), client) ? 'canary' : 'released';
}

/** Which clients may be in another cohort than before; undefined: all may be. */
export function movedBetween(
  before: CanaryRules,
  now: CanaryRules,
): ((client: Moved) => boolean) | undefined {
  if (!isDeepStrictEqual(before.waves, now.waves)) return undefined;
  const named = before.named.symmetricDifference(now.named);
  const reaches = classesMoved(before.reached, now.reached);
  return (client) =>
    named.has(client.nodeKey) ||
    reaches?.(client) === true ||
    (before.open?.has(client.classKey) === false && now.open?.has(client.classKey) !== false);
}

/** Tells the primary, which keeps the history, what the clients of this worker say to changes. */
export class AnswerReporter extends CommitAnswers<
  Pick<Message<'answers'>, 'type' | 'name' | 'content' | 'gone'>
> {
  constructor(clock: Clock, send: (message: ToPrimary) => void) {
    super(clock, (change, said) => send({ kind: 'answers', ...change, ...said }));
  }

  /** What canaries say the judge hears. */
  committed({ type, receivedAt, contents, cohorts }: Commit): void {
    const isForCanaries = cohorts !== undefined && cohorts.released.changed.size === 0;
    const change = contents === undefined || isForCanaries ? undefined : changeOf(contents);
    if (change !== undefined) this.sent(receivedAt, () => ({ type, ...change }));
  }
}

/** One name that shows which change this is. */
function changeOf(contents: NonNullable<Commit['contents']>) {
  for (const [name, { before, after }] of contents) {
    const [was, is] = [hashesOf(before.said), hashesOf(after.said)];
    const [fresh] = is.difference(was);
    if (fresh !== undefined) return { name, content: fresh, gone: false };
    const [left] = was.difference(is);
    if (left !== undefined) return { name, content: left, gone: true };
  }
  return undefined;
}

const hashesOf = (content: Content): ReadonlySet<string> =>
  new Set(content.map(({ variant }) => contentHash(variant)));

/** Reports of many clients come together, in milliseconds. */
const tellTrafficMs = 200;

/** Tells the primary, which judges changes, what the clients of this worker report of their traffic. */
export class TrafficReporter implements TrafficJudge {
  intervalMs: number | undefined;
  readonly #soon: Sweep;
  readonly #send: (message: ToPrimary) => void;
  #reports: ReportedTraffic[] = [];
  #left: string[] = [];

  constructor(config: Config, clock: Clock, send: (message: ToPrimary) => void) {
    this.reload(config);
    this.#soon = new Sweep(clock, tellTrafficMs, () => this.tell());
    this.#send = send;
  }

  reload({ rollout }: Config): void {
    this.intervalMs = rollout?.traffic?.intervalMs;
  }

  add(report: ReportedTraffic): void {
    this.#soon.start();
    this.#reports.push(report);
  }

  left(stream: string): void {
    if (this.intervalMs === undefined) return;
    this.#soon.start();
    this.#left.push(stream);
  }

  /** Before the primary hears what came later. */
  tell(): void {
    if (this.#reports.length + this.#left.length === 0) return;
    this.#send({ kind: 'traffic', reports: this.#reports, left: this.#left });
    this.#reports = [];
    this.#left = [];
  }
}

type CanaryReport = Message<'canary_report'>;
type CanaryRules = Message<'canaries'>;

/** How often it is looked whether the workers have what a canary needs to move back, and for how long. Milliseconds. */
const recheckMs = 50;
const longestMoveMs = 5000;
/** Names that begin to wait are asked about at once. After that others wait so long, in milliseconds, or for many times what it took. */
const pause = { shortestMs: 10, times: 10 };

const none: ReadonlySet<never> = new Set();

/** The workers, as a rollout needs them. */
interface ReportingWorkers {
  tell(message: Message<'waiting' | 'canaries'>): void;
  /** Of each worker that listens: what it said last; undefined: nothing yet. */
  reports(): readonly (CanaryReport | undefined)[];
}

/** The process of the judge, as its workers' clients concern it. */
interface JudgingProcess {
  readonly rollout: Pick<Rollout, 'answered' | 'canaryEnded' | 'waiting'> & {
    readonly canaries: Pick<Canaries, 'waves' | 'reached' | 'named' | 'open' | 'clientsLeft'>;
  };
  /** Whether all workers have acknowledged everything that there is for a cohort. */
  hasDelivered(cohort: Cohort): boolean;
}

/**
 * The clients of all workers, as the judge in the primary sees them (docs/adr/0130). What a worker says counts only if it
 * was asked when it had the change: when it had acknowledged everything on its feed for canaries.
 */
export class WorkersFleet implements Fleet {
  readonly #clock: Clock;
  #judging: JudgingProcess | undefined;
  #workers: ReportingWorkers | undefined;
  /** What the workers were asked about last. */
  #asked: Waiting = new Map();
  /** Something else waits since they were asked. */
  #isStale = true;
  #round = 0;
  /** Reports up to this round are about what does not wait any more. */
  #over = 0;
  /** Reports of this round count; undefined: none does yet. */
  #countsFrom: number | undefined;
  /** Since names that began to wait were asked about. */
  #pause: Timer | undefined;
  /** What the workers know, and one that starts must. Undefined: there is no rollout, so it has one feed. */
  told: CanaryRules | undefined;
  #surveyed: { readonly reports: readonly CanaryReport[]; readonly survey: Survey } | undefined;
  /** Since when canaries wait that are to move back; undefined: none does. */
  #movingSince: number | undefined;
  readonly #moves: Sweep;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
    this.#moves = new Sweep(clock, recheckMs, () => {
      this.moved();
      // No survey is complete before.
      if (!this.isMoving) this.#judging?.rollout.answered();
      return this.isMoving;
    });
  }

  /** Before workers start. */
  serve(judging: JudgingProcess): void {
    this.#judging = judging;
    this.told = this.#canaries();
  }

  /** All of them listen. */
  workersStarted(workers: ReportingWorkers): void {
    this.#workers = workers;
    this.#askNew();
  }

  stop(): void {
    this.#moves.stop();
    this.#pause?.cancel();
    this.#workers = undefined;
  }

  #canaries(): CanaryRules | undefined {
    const canaries = this.#judging?.rollout.canaries;
    if (canaries === undefined || canaries.waves.length === 0) return undefined;
    const { waves, reached, named, open } = canaries;
    return { kind: 'canaries', waves, reached, named, open };
  }

  survey(waiting: Waiting): Survey {
    const workers = this.#workers;
    if (workers === undefined) return { complete: false, members: [], canaries: [unknownCanary] };
    this.moved();
    if (this.#isStale) this.#ask(workers, waiting);
    if (this.#countsFrom === undefined && this.#hasDelivered('canary'))
      this.#countsFrom = this.#ask(workers, waiting);
    const from = this.#countsFrom;
    const all = workers.reports();
    const reports = all.filter((one) => one !== undefined);
    const counting = reports.filter(({ round }) => from !== undefined && round >= from);
    // Who is on the way to another cohort is not seen there, and where no worker listens nobody is.
    const areAll = all.length > 0 && counting.length === all.length;
    if (areAll && !this.isMoving) return this.#surveyOf(counting);
    // Who rejected something is still there, and may say something else now.
    const before = reports.flatMap(({ round, canaries }) =>
      canaries.filter(({ stream }) => stream !== '').map(round <= this.#over ? silent : outdated),
    );
    return { complete: false, members: [], canaries: [unknownCanary, ...before] };
  }

  waitingChanged(): void {
    this.#isStale = true;
    this.#countsFrom = undefined;
    if (this.#judging?.rollout.waiting().size !== 0) {
      this.#askNew();
      return;
    }
    this.#asked = new Map();
    this.#over = ++this.#round;
    this.#workers?.tell({ kind: 'waiting', round: this.#round, waiting: this.#asked });
  }

  /** Canaries that go back wait until their workers have what was released, or they would see the state before it. */
  moved(): void {
    // Workers that start have been told by their first message, and hear the rest once they all listen.
    const now = this.#workers === undefined ? undefined : this.#canaries();
    if (now === undefined || this.told === undefined || isDeepStrictEqual(now, this.told)) {
      this.#endMove();
      return;
    }
    this.#movingSince ??= this.#clock.monotonic();
    const isLate = this.#clock.monotonic() - this.#movingSince >= longestMoveMs;
    if (isLate || onlyAdds(this.told, now) || this.#hasDelivered('released')) {
      this.#endMove();
      this.told = now;
      this.#countsFrom = undefined;
      this.#workers?.tell(now);
      return;
    }
    this.#moves.start();
  }

  get isMoving(): boolean {
    return this.#movingSince !== undefined;
  }

  /** A worker has said something, or has acknowledged what it got for canaries. */
  reported(report?: CanaryReport): void {
    if (report !== undefined) this.#ended(report.ended, report.round);
    this.#judging?.rollout.answered();
  }

  /** The process of a worker that listened has ended, and with it the streams of its clients. */
  workerEnded(report: CanaryReport | undefined): void {
    this.#judging?.rollout.canaries.clientsLeft(this.#clock.monotonic());
    if (report !== undefined) this.#ended(report.canaries, report.round);
    this.#judging?.rollout.answered();
  }

  /** The same as long as no worker says anything else. */
  #surveyOf(reports: readonly CanaryReport[]): Survey {
    const known = this.#surveyed;
    if (known !== undefined && areSame(known.reports, reports)) return known.survey;
    const survey = surveyOf(reports);
    this.#surveyed = { reports, survey };
    return survey;
  }

  /** What was rejected before the round that counts may have been another change. */
  #ended(streams: readonly CanaryStream[], round: number): void {
    if (round <= this.#over) return;
    const counts = this.#countsFrom !== undefined && round >= this.#countsFrom;
    for (const stream of streams) this.#judging?.rollout.canaryEnded(counts ? stream : outdated(stream));
  }

  /** A canary may end as soon as it has a change: its worker must know by then that the change waits. */
  #askNew(): void {
    if (this.#workers === undefined || this.#pause !== undefined) return;
    const began = this.#clock.monotonic();
    const waiting: Waiting = this.#judging?.rollout.waiting() ?? new Map();
    const isAsked = ([type, names]: readonly [TypeUrl, ReadonlySet<ResourceName>]): boolean =>
      names.isSubsetOf(this.#asked.get(type) ?? none);
    if (waiting.entries().every(isAsked)) return;
    this.#ask(this.#workers, waiting);
    const took = this.#clock.monotonic() - began;
    this.#pause = this.#clock.after(Math.max(pause.shortestMs, took * pause.times), () => {
      this.#pause = undefined;
      this.#askNew();
    });
  }

  #ask(workers: ReportingWorkers, waiting: Waiting): number {
    this.#asked = waiting;
    this.#isStale = false;
    workers.tell({ kind: 'waiting', round: ++this.#round, waiting });
    return this.#round;
  }

  #hasDelivered(cohort: Cohort): boolean {
    return this.#judging?.hasDelivered(cohort) !== false;
  }

  #endMove(): void {
    this.#moves.stop();
    this.#movingSince = undefined;
  }
}

export function surveyOf(reports: readonly CanaryReport[]): Survey {
  return {
    complete: true,
    members: reports.flatMap(({ members }) => members),
    canaries: reports.flatMap(({ canaries }) => canaries),
  };
}

/** What it said was about something that waits no more. */
const silent = ({ stream, names }: CanaryStream): CanaryStream => ({ ...unknownCanary, stream, names });

/** Nobody goes back to what is released. */
function onlyAdds(before: CanaryRules, { waves, reached, named, open }: CanaryRules): boolean {
  if (!isDeepStrictEqual(open, before.open) || !isDeepStrictEqual(waves, before.waves)) return false;
  if (before.reached.entries().some(([classKey, wave]) => (reached.get(classKey) ?? 1) < wave)) return false;
  return named.isSupersetOf(before.named);
}
