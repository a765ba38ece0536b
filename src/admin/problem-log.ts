import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { Clock } from '../model/clock.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { wrongOnes } from '../observe/problems.ts';
import { timestamp } from './problem-parts.ts';
import type { problemsOf } from './problems.ts';
import type { Plain } from './service.ts';

/**
 * Looks at each list of problems that is made. It says in the log when a problem begins and when it ends, in the words of
 * the page, and it remembers since when a problem is listed that does not say by itself when it began. The same list, in
 * which each problem says since when. `startedAt`: milliseconds since the epoch. `isQuiet`: nothing is logged any more.
 */
export function problemLog(
  log: Log,
  clock: Pick<Clock, 'now'>,
  startedAt: number,
  isQuiet: () => boolean = () => false,
): (list: ReturnType<typeof problemsOf>) => ReturnType<typeof problemsOf> {
  const conditions = new Conditions(log);
  let known: ReadonlyMap<string, Plain<Problem>> = new Map();
  /** What the first list has was there from the start. */
  let firstSince: string | undefined = timestamp(startedAt);

  return ({ problems: found, moreProblems }) => {
    const listed = firstSince ?? timestamp(clock.now());
    firstSince = undefined;
    const problems = found.map((one) => ({ ...one, since: one.since || known.get(one.id)?.since || listed }));
    if (!isQuiet()) say(problems, moreProblems > 0);
    known = new Map(problems.map((one) => [one.id, one]));
    return { problems, moreProblems };
  };

  function say(now: readonly Plain<Problem>[], isCut: boolean): void {
    const wrong = wrongOnes(now);
    for (const one of wrong) {
      const { id, title, kind, severity, since, detail, clients, runbook } = one;
      const fields = { kind, severity, since, detail, clients, runbook };
      conditions.set(id, 'is', 'warn', `problem: ${title}`, fields, sharedBy(one));
    }
    // What a list has no room for is not over.
    if (isCut) return;
    const wrongIds = new Set(wrong.map(({ id }) => id));
    for (const one of wrongOnes([...known.values()])) {
      const { id, title, kind, since } = one;
      if (!wrongIds.has(id))
        conditions.set(id, 'was', 'info', `resolved: ${title}`, { kind, since }, sharedBy(one));
    }
  }
}

/** Clients can make any number of problems of a kind, which share its lines: those of all others are their own. */
const sharedBy = ({ classes, kind }: Plain<Problem>): string | undefined =>
  classes.length > 0 ? kind : undefined;
