import type { Plain } from '../admin/service.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { Clock } from '../model/clock.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { wrongOnes } from '../observe/problems.ts';
import { timestamp } from './problem-parts.ts';
import type { problemsOf } from './problems.ts';

/**
 * Looks at each list of problems that is made. It says in the log when a problem begins and when it ends, in the words of
 * the page, and it remembers since when a problem is listed that does not say by itself when it began.
 */
export class ProblemLog {
  readonly #conditions: Conditions;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #isQuiet: () => boolean;
  #known: ReadonlyMap<string, Plain<Problem>> = new Map();
  /** What the first list has was there from the start. */
  #firstSince: string | undefined;

  /** `startedAt`: milliseconds since the epoch. `isQuiet`: nothing is logged any more. */
  constructor(log: Log, clock: Pick<Clock, 'now'>, startedAt: number, isQuiet: () => boolean = () => false) {
    this.#conditions = new Conditions(log);
    this.#clock = clock;
    this.#firstSince = timestamp(startedAt);
    this.#isQuiet = isQuiet;
  }

  /** The same list, in which each problem says since when. */
  look({ problems: found, moreProblems }: ReturnType<typeof problemsOf>): ReturnType<typeof problemsOf> {
    const listed = this.#firstSince ?? timestamp(this.#clock.now());
    this.#firstSince = undefined;
    const problems = found.map((one) => ({
      ...one,
      since: one.since || this.#known.get(one.id)?.since || listed,
    }));
    if (!this.#isQuiet()) this.#log(problems, moreProblems > 0);
    this.#known = new Map(problems.map((one) => [one.id, one]));
    return { problems, moreProblems };
  }

  #log(now: readonly Plain<Problem>[], isCut: boolean): void {
    const wrong = wrongOnes(now);
    for (const one of wrong) {
      const { id, title, kind, severity, since, detail, clients, runbook } = one;
      const fields = { kind, severity, since, detail, clients, runbook };
      this.#conditions.set(id, 'is', 'warn', `problem: ${title}`, fields, sharedBy(one));
    }
    // What a list has no room for is not over.
    if (isCut) return;
    const wrongIds = new Set(wrong.map(({ id }) => id));
    for (const one of wrongOnes([...this.#known.values()])) {
      const { id, title, kind, since } = one;
      if (!wrongIds.has(id))
        this.#conditions.set(id, 'was', 'info', `resolved: ${title}`, { kind, since }, sharedBy(one));
    }
  }
}

/** Clients can make any number of problems of a kind, which share its lines: those of all others are their own. */
const sharedBy = ({ classes, kind }: Plain<Problem>): string | undefined =>
  classes.length > 0 ? kind : undefined;
