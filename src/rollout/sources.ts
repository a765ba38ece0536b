import type { Change } from './changes.ts';
import type { HoldCause, Verdict } from './judge.ts';
import type { CanaryStream } from './waiting.ts';

/** A change that waits, and who is to have it. */
export interface HeardChange {
  readonly change: Change;
  /** Undefined: that is not known for a moment. */
  readonly canaries: readonly CanaryStream[] | undefined;
  /** Upstream has said something else of it since the last look. */
  readonly isNew: boolean;
}

/** Why a change is bad. */
export interface Objection {
  readonly cause: HoldCause;
  readonly reason: string;
  /** What is at fault of it, by `nameKey`. */
  readonly names: ReadonlySet<string>;
}

/** What a source says of one change now. */
export interface Opinion {
  /** It was measured, and stays bad until upstream says something else under one of its names. */
  readonly verdict?: Verdict | undefined;
  /** The change itself shows it, and is bad for as long as it does. */
  readonly objection?: Objection | undefined;
  /** Since when it is good, in milliseconds since the epoch; undefined: it is not yet. */
  readonly goodSince: number | undefined;
  /** Why it is not; empty if it is. */
  readonly waitsFor: string;
}

/** It does not keep a change from going on. */
export const noObjection: Opinion = { goodSince: 0, waitsFor: '' };

/** What may find a change bad whatever its canaries say: the guard, limits of removals, checks, traffic. */
export interface VerdictSource {
  /** At every look: all changes that wait. Those of which it says nothing are left out. */
  look(changes: readonly HeardChange[], now: number): ReadonlyMap<Change, Opinion>;
}

/** What all sources say. */
export class Sources {
  readonly #sources: readonly VerdictSource[];
  #opinions: readonly ReadonlyMap<Change, Opinion>[] = [];
  #verdicts: readonly Verdict[] = [];

  constructor(sources: readonly VerdictSource[]) {
    this.#sources = sources;
  }

  look(changes: readonly HeardChange[], now: number): void {
    this.#opinions = this.#sources.map((source) => source.look(changes, now));
    for (const { verdict } of this.#opinions.flatMap((all) => [...all.values()]))
      if (verdict !== undefined && !this.#verdicts.some(({ names }) => verdict.names.isSubsetOf(names)))
        this.#verdicts = [...this.#verdicts, verdict];
  }

  /** What was measured, the same values until something changes. */
  get verdicts(): readonly Verdict[] {
    return this.#verdicts;
  }

  /** These names wait with another content now, or wait no more. */
  changed(names: ReadonlySet<string>): void {
    this.#verdicts = this.#verdicts.filter((one) => one.names.isDisjointFrom(names));
  }

  objectionTo(change: Change): Objection | undefined {
    return this.#of(change).find(({ objection }) => objection !== undefined)?.objection;
  }

  /** Since when all of them find it good, and why one does not. */
  goodness(change: Change): Pick<Opinion, 'goodSince' | 'waitsFor'> {
    const all = this.#of(change);
    const isGood = all.every(({ goodSince }) => goodSince !== undefined);
    return {
      goodSince: isGood ? Math.max(0, ...all.flatMap(({ goodSince }) => goodSince ?? [])) : undefined,
      waitsFor: all.flatMap(({ waitsFor }) => (waitsFor === '' ? [] : waitsFor)).join('; '),
    };
  }

  #of(change: Change): readonly Opinion[] {
    return this.#opinions.flatMap((all) => all.get(change) ?? []);
  }
}
