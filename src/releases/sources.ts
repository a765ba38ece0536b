import type { Change } from './changes.ts';
import type { Verdict } from './judge.ts';
import type { CanaryStream } from './waiting.ts';

/** A change that waits, and who is to have it. */
export interface HeardChange {
  readonly change: Change;
  /** Undefined: that is not known for a moment. */
  readonly canaries: readonly CanaryStream[] | undefined;
  /** Upstream has said something else of it since the last look. */
  readonly isNew: boolean;
}

/** What a source says of one change now. */
export interface Opinion {
  /** It is bad. What was measured stays so until upstream says something else under one of its names. */
  readonly verdict?: Verdict | undefined;
  /** Since when it is good, by `Clock.monotonic()`; undefined: it is not yet. */
  readonly goodSince: number | undefined;
  /** Why it is not; empty if it is. */
  readonly waitsFor: string;
}

/** Of a source that waits for nothing: undefined is nothing. */
export const objection = (verdict: Verdict | undefined): Opinion | undefined =>
  verdict && { verdict, goodSince: 0, waitsFor: '' };

/** The change itself shows it, and is bad for as long as it does. All else is measured. */
const isObjection = ({ cause }: Verdict): boolean => cause === 'removals' || cause === 'content';

/** All of them together: the first verdict, since when all find it good, and why one does not. */
export function together(all: readonly Opinion[]): Opinion {
  const isGood = all.every(({ goodSince }) => goodSince !== undefined);
  return {
    verdict: all.find(({ verdict }) => verdict !== undefined)?.verdict,
    goodSince: isGood ? Math.max(0, ...all.flatMap(({ goodSince }) => goodSince ?? [])) : undefined,
    waitsFor: all.flatMap(({ waitsFor }) => (waitsFor === '' ? [] : waitsFor)).join('; '),
  };
}

/** What may find a change bad whatever its canaries say: the guard, limits of removals, checks, traffic. */
export interface VerdictSource {
  /**
   * At every look: of each change that waits, in their order; undefined, or left out: it says nothing of it. `frozen`:
   * classes of which some clients have something that is frozen.
   */
  look(
    changes: readonly HeardChange[],
    frozen: ReadonlySet<string>,
    now: number,
  ): readonly (Opinion | undefined)[];
}

/** What all sources say. */
export class Sources {
  readonly #sources: readonly VerdictSource[];
  #opinions: ReadonlyMap<Change, readonly Opinion[]> = new Map();
  /** What was measured, the same values until something changes. */
  verdicts: readonly Verdict[] = [];

  constructor(sources: readonly VerdictSource[]) {
    this.#sources = sources;
  }

  look(changes: readonly HeardChange[], frozen: ReadonlySet<string>, now: number): void {
    const said = this.#sources.map((source) => source.look(changes, frozen, now));
    this.#opinions = new Map(changes.map(({ change }, at) => [change, said.flatMap((all) => all[at] ?? [])]));
    for (const { verdict } of said.flat().filter((one) => one !== undefined)) {
      if (verdict === undefined || isObjection(verdict)) continue;
      if (!this.verdicts.some(({ names }) => verdict.names.isSubsetOf(names)))
        this.verdicts = [...this.verdicts, verdict];
    }
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    this.verdicts = this.verdicts.filter((one) => one.names.isDisjointFrom(names));
  }

  /** Its verdict is an objection: the others are in `verdicts`. */
  opinionOn(change: Change): Opinion {
    const all = this.#opinions.get(change) ?? [];
    const objecting = all.find(({ verdict }) => verdict !== undefined && isObjection(verdict));
    return { ...together(all), verdict: objecting?.verdict };
  }
}
