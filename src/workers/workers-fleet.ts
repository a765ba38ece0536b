import { isDeepStrictEqual } from 'node:util';
import type { Side } from '../model/access.ts';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import type { Canaries } from '../rollout/canaries.ts';
import type { Rollout } from '../rollout/rollout.ts';
import {
  type CanaryStream,
  type Fleet,
  outdated,
  type Survey,
  unknownCanary,
  type Waiting,
} from '../rollout/waiting.ts';
import type { Message } from './ipc-messages.ts';

type CanaryReport = Message<'canary_report'>;
type CanariesMessage = Message<'canaries'>;

/** How often it is looked whether the workers have what a canary needs to move back, and for how long. Milliseconds. */
const recheckMs = 50;
const longestMoveMs = 5000;

/** The workers, as a rollout needs them. */
interface ReportingWorkers {
  tell(message: Message<'waiting' | 'canaries'>): void;
  /** Of each worker that listens: what it said last; undefined: nothing yet. */
  reports(): readonly (CanaryReport | undefined)[];
}

/** The process of the judge, as its workers' clients concern it. */
interface JudgingProcess {
  readonly rollout: Pick<Rollout, 'answered' | 'canaryEnded'> & {
    readonly canaries: Pick<Canaries, 'waves' | 'reached' | 'named' | 'open'>;
  };
  /** Whether all workers have acknowledged everything that there is for a side. */
  hasDelivered(side: Side): boolean;
  /** Something waits for a verdict. */
  waits(): boolean;
}

/**
 * The clients of all workers, as the judge in the primary sees them (docs/adr/0130). What a worker says counts only if it
 * was asked when it had the change: when it had acknowledged everything on its feed for canaries.
 */
export class WorkersFleet implements Fleet {
  readonly #clock: Clock;
  #judging: JudgingProcess | undefined;
  #workers: ReportingWorkers | undefined;
  /** What the workers were asked about; undefined: something else waits now. */
  #asked: Waiting | undefined;
  #round = 0;
  /** Reports of this round count; undefined: none does yet. */
  #countsFrom: number | undefined;
  /** Streams of canaries that have ended: judged when it is known how many there are. */
  readonly #ends: { readonly round: number; readonly stream: CanaryStream }[] = [];
  /** What workers know. */
  #told: CanariesMessage | undefined;
  #surveyed: { readonly reports: readonly CanaryReport[]; readonly survey: Survey } | undefined;
  #moving: { readonly timer: Timer; readonly since: number } | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Before workers start. */
  serve(judging: JudgingProcess): void {
    this.#judging = judging;
    this.#told = this.canaries();
  }

  /** All of them listen. */
  workersStarted(workers: ReportingWorkers): void {
    this.#workers = workers;
  }

  stop(): void {
    this.#moving?.timer.cancel();
    this.#workers = undefined;
  }

  /** For a worker that starts. Undefined: there is no rollout, so it has one feed. */
  canaries(): CanariesMessage | undefined {
    const canaries = this.#judging?.rollout.canaries;
    if (canaries === undefined || canaries.waves.length === 0) return undefined;
    const { waves, reached, named, open } = canaries;
    return { kind: 'canaries', waves, reached, named, open };
  }

  survey(waiting: Waiting): Survey {
    const workers = this.#workers;
    if (workers === undefined) return { complete: false, members: [], canaries: [unknownCanary] };
    this.moved();
    // At once, because the ends of streams are reported from the question on.
    if (this.#asked === undefined) this.#ask(workers, waiting);
    if (this.#countsFrom === undefined && this.#hasDelivered('canary'))
      this.#countsFrom = this.#ask(workers, waiting);
    const from = this.#countsFrom;
    const all = workers.reports();
    const reports = all.filter((one) => one !== undefined);
    const counting = reports.filter(({ round }) => from !== undefined && round >= from);
    if (from !== undefined && counting.length === all.length) {
      this.#judgeEnds(from);
      return this.#surveyOf(counting);
    }
    // Who rejected something is still there, and may say something else now.
    const before = reports.flatMap(({ canaries }) => canaries).filter(({ stream }) => stream !== '');
    return { complete: false, members: [], canaries: [unknownCanary, ...before.map(outdated)] };
  }

  waitingChanged(): void {
    this.#asked = undefined;
    this.#countsFrom = undefined;
    if (this.#judging?.waits() !== false) return;
    this.#ends.splice(0);
    this.#workers?.tell({ kind: 'waiting', round: ++this.#round, waiting: new Map() });
  }

  /** Canaries that go back wait until their workers have what was released, or they would see the state before it. */
  moved(): void {
    const now = this.canaries();
    if (now === undefined || this.#told === undefined || isDeepStrictEqual(now, this.#told)) {
      this.#endMove();
      return;
    }
    const since = this.#moving?.since ?? this.#clock.monotonic();
    const isLate = this.#clock.monotonic() - since >= longestMoveMs;
    if (isLate || onlyAdds(this.#told, now) || this.#hasDelivered('released')) {
      this.#endMove();
      this.#told = now;
      this.#countsFrom = undefined;
      this.#workers?.tell(now);
      return;
    }
    this.#moving?.timer.cancel();
    this.#moving = { since, timer: this.#clock.after(recheckMs, () => this.moved()) };
  }

  get isMoving(): boolean {
    return this.#moving !== undefined;
  }

  /** A worker has said something, or has acknowledged what it got for canaries. */
  reported(report?: CanaryReport): void {
    if (report !== undefined) this.#addEnds(report, false);
    this.#judging?.rollout.answered();
  }

  /** The process of a worker has ended, and with it the streams of its canaries. */
  workerEnded(report: CanaryReport | undefined): void {
    if (report === undefined) return;
    this.#addEnds(report, true);
    this.#judging?.rollout.answered();
  }

  /** The same as long as no worker says anything else. */
  #surveyOf(reports: readonly CanaryReport[]): Survey {
    const known = this.#surveyed;
    const isSame = known?.reports.length === reports.length;
    if (isSame && reports.every((one, at) => one === known.reports[at])) return known.survey;
    const survey = surveyOf(reports);
    this.#surveyed = { reports, survey };
    return survey;
  }

  #addEnds(report: CanaryReport, process: boolean): void {
    const { round, canaries, ended } = report;
    if (this.#judging?.waits() !== true) return;
    for (const stream of process ? canaries : ended) this.#ends.push({ round, stream });
  }

  /** What was rejected before this round was another change. */
  #judgeEnds(from: number): void {
    for (const { round, stream } of this.#ends.splice(0))
      this.#judging?.rollout.canaryEnded(round < from ? outdated(stream) : stream);
  }

  #ask(workers: ReportingWorkers, waiting: Waiting): number {
    this.#asked = waiting;
    workers.tell({ kind: 'waiting', round: ++this.#round, waiting });
    return this.#round;
  }

  #hasDelivered(side: Side): boolean {
    return this.#judging?.hasDelivered(side) !== false;
  }

  #endMove(): void {
    this.#moving?.timer.cancel();
    this.#moving = undefined;
  }
}

export function surveyOf(reports: readonly CanaryReport[]): Survey {
  return {
    complete: true,
    members: reports.flatMap(({ members }) => members),
    canaries: reports.flatMap(({ canaries }) => canaries),
  };
}

/** Nobody goes back to what is released. */
function onlyAdds(before: CanariesMessage, { waves, reached, named, open }: CanariesMessage): boolean {
  if (!isDeepStrictEqual(open, before.open) || !isDeepStrictEqual(waves, before.waves)) return false;
  if (before.reached.entries().some(([classKey, wave]) => (reached.get(classKey) ?? 1) < wave)) return false;
  return named.isSupersetOf(before.named);
}
