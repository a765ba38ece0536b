import type { Canaries } from './canaries.ts';
import type { Fleet, Survey, Waiting } from './fleet.ts';

const noNodes: ReadonlySet<string> = new Set();

export interface StaffingOptions {
  readonly canaries: Canaries;
  readonly fleet: Fleet;
  /** Other nodes have to be remembered over a restart. */
  readonly save: () => void;
}

/** Gives what waits its canaries, and what was found bad no more of them. */
export class Staffing {
  readonly #options: StaffingOptions;

  constructor(options: StaffingOptions) {
    this.#options = options;
  }

  /** Where a class has no canary for what waits, one is elected. What was found bad is shown to nobody else. */
  survey(waiting: Waiting, now: number, isBad: (survey: Survey) => boolean): Survey {
    const { canaries, fleet } = this.#options;
    const survey = fleet.survey(waiting);
    if (isBad(survey)) {
      this.#remember(survey, now);
      if (survey.complete) this.showToOthers(false);
      return survey;
    }
    const open = this.showToOthers(true) ? fleet.survey(waiting) : survey;
    const nodes = canaries.elect(open.members);
    if (nodes.size > 0) fleet.moved(nodes);
    const staffed = nodes.size > 0 ? fleet.survey(waiting) : open;
    this.#remember(staffed, now);
    return staffed;
  }

  /** What was found bad is for the canaries that have it, and for nobody that comes while it waits, whatever the rules say. */
  showToOthers(shown: boolean): boolean {
    const { canaries, fleet } = this.#options;
    const changed = canaries.close(!shown);
    if (changed) fleet.moved(shown ? undefined : noNodes);
    return changed;
  }

  #remember({ members }: Survey, now: number): void {
    if (this.#options.canaries.remember(members, now)) this.#options.save();
  }
}
