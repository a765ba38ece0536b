import type { Plain } from '../admin/service.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import { Conditions } from '../observe/conditions.ts';
import type { Log } from '../observe/log.ts';
import { wrongOnes } from '../observe/problems.ts';

/** `moreProblems`: that the list has no room for. */
interface Found {
  readonly problems: readonly Plain<Problem>[];
  readonly moreProblems: number;
}

/** Says in the log when a problem begins and when it ends, in the words of the page. A list that is made is looked at. */
export class ProblemLog {
  readonly #conditions: Conditions;
  #known = new Map<string, string>();

  constructor(log: Log) {
    this.#conditions = new Conditions(log);
  }

  look({ problems, moreProblems }: Found): void {
    const wrong = wrongOnes(problems);
    for (const { id, title, kind, severity, detail, clients, runbook } of wrong) {
      const fields = { kind, severity, detail, clients, runbook };
      this.#conditions.set(id, 'is', 'warn', `problem: ${title}`, fields);
    }
    const now = new Map(wrong.map(({ id, title }) => [id, title]));
    // What a list has no room for is not over.
    if (moreProblems === 0)
      for (const [id, title] of this.#known)
        if (!now.has(id)) this.#conditions.set(id, 'was', 'info', `resolved: ${title}`);
    this.#known = now;
  }
}
