import { isDeepStrictEqual } from 'node:util';
import type { Side } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { type Clock, systemClock, type Timer } from '../model/clock.ts';
import type { Canaries } from '../releases/canaries.ts';
import type { Rollout } from '../releases/rollout.ts';
import {
  type CanaryStream,
  type Fleet,
  outdated,
  type Survey,
  unknownCanary,
  type Waiting,
} from '../releases/waiting.ts';
import type { Message } from './ipc-messages.ts';

type CanaryReport = Message<'canary_report'>;
type CanariesMessage = Message<'canaries'>;

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
  /** Whether all workers have acknowledged everything that there is for a side. */
  hasDelivered(side: Side): boolean;
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
  #told: CanariesMessage | undefined;
  #surveyed: { readonly reports: readonly CanaryReport[]; readonly survey: Survey } | undefined;
  #moving: { readonly timer: Timer; readonly since: number } | undefined;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Before workers start. */
  serve(judging: JudgingProcess): void {
    this.#judging = judging;
    this.#told = this.#canaries();
  }

  /** All of them listen. */
  workersStarted(workers: ReportingWorkers): void {
    this.#workers = workers;
    this.#askNew();
  }

  stop(): void {
    this.#moving?.timer.cancel();
    this.#pause?.cancel();
    this.#workers = undefined;
  }

  /** What the workers know, and one that starts must. Undefined: there is no rollout, so it has one feed. */
  get told(): CanariesMessage | undefined {
    return this.#told;
  }

  #canaries(): CanariesMessage | undefined {
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
    // Who is on the way to another side is not seen there, and where no worker listens nobody is.
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
    const timer = this.#clock.after(recheckMs, () => {
      this.moved();
      // No survey is complete before.
      if (!this.isMoving) this.#judging?.rollout.answered();
    });
    this.#moving = { since, timer };
  }

  get isMoving(): boolean {
    return this.#moving !== undefined;
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
    const isSame = known?.reports.length === reports.length;
    if (isSame && reports.every((one, at) => one === known.reports[at])) return known.survey;
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

/** What it said was about something that waits no more. */
const silent = ({ stream, names }: CanaryStream): CanaryStream => ({ ...unknownCanary, stream, names });

/** Nobody goes back to what is released. */
function onlyAdds(before: CanariesMessage, { waves, reached, named, open }: CanariesMessage): boolean {
  if (!isDeepStrictEqual(open, before.open) || !isDeepStrictEqual(waves, before.waves)) return false;
  if (before.reached.entries().some(([classKey, wave]) => (reached.get(classKey) ?? 1) < wave)) return false;
  return named.isSupersetOf(before.named);
}
