import type { TypeUrl } from '../model/brand.ts';
import type { Clock } from '../model/clock.ts';
import type { Gate, PendingName, TypedName } from '../model/rollout.ts';
import type { CanaryRules } from './canary-choice.ts';
import type { HashOf, SavedContent } from './discards.ts';
import type { Fleet } from './fleet.ts';
import type { Freeze } from './freezes.ts';
import type { JudgeSettings, RolloutState, WaitingState } from './judge.ts';
import type { RemovingChange } from './removal-limits.ts';
import type { SavedVerdict } from './verdicts.ts';

/** As configured (`rollout`). */
export interface RolloutSettings extends JudgeSettings {
  readonly canary: CanaryRules;
  /** Who may be a canary; empty: anybody. */
  readonly canaryPrincipals: readonly string[];
  readonly types: readonly TypeUrl[];
}

/** What a restart must not forget. */
export interface SavedRollout {
  readonly freezes: readonly Freeze[];
  /** The nodes that were canaries of what waited, each with its class. */
  readonly canaries: ReadonlyMap<string, string>;
  /** What was found bad. */
  readonly verdicts: readonly SavedVerdict[];
  /** What operators have discarded. */
  readonly discards: readonly SavedContent[];
  /** Names that a rollback has removed, and that stay away until they are released. */
  readonly withheld: readonly TypedName[];
}

type RolloutResult = 'released' | 'held' | 'discarded' | 'timeout';

/** For metrics, logs and the disk. */
export interface RolloutEvents {
  counted(result: RolloutResult): void;
  /** All canaries have accepted these changes. */
  accepted(names: readonly PendingName[]): void;
  /** Everybody gets these changes now. `milliseconds`: how long they have waited. */
  released(names: readonly PendingName[], milliseconds: number): void;
  /** Of all changes. */
  stateChanged(state: RolloutState): void;
  /** Of one change that waits. */
  changeIs(state: WaitingState, names: readonly PendingName[]): void;
  save(state: SavedRollout): void;
}

export interface RolloutOptions {
  readonly gate: Gate;
  readonly fleet: Fleet;
  readonly clock: Clock;
  readonly events: RolloutEvents;
  /** Of each change that waits, why it removes too much; undefined: it does not. */
  readonly tooManyRemovals: (changes: readonly RemovingChange[]) => readonly (string | undefined)[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revisions: () => Pick<RolloutReport, 'revision' | 'pendingRevision'>;
  /** What a restart compares contents by; left out: nothing is kept over restarts. */
  readonly hashOf?: HashOf | undefined;
  /** From before a restart; undefined: nothing is kept over restarts. */
  readonly saved: SavedRollout | undefined;
}

/** One change that waits. */
interface ReportedChange {
  readonly state: WaitingState;
  readonly names: readonly PendingName[];
}

export interface RolloutReport {
  /** `rollout` is configured. */
  readonly enabled: boolean;
  readonly state: RolloutState;
  /** Names that wait for a verdict, and those that nobody sees. Of several changes `state` and `canaries` are those of the first that is held, or of the first. */
  readonly pending: readonly PendingName[];
  /** Of those, the names of that change, and those that nobody sees. */
  readonly shown: readonly PendingName[];
  readonly changes: readonly ReportedChange[];
  readonly canaries: {
    readonly total: number;
    readonly accepted: number;
    readonly rejected: number;
    readonly ended: number;
  };
  /** What waits was not rejected, and none of its canaries is connected. */
  readonly noCanary: boolean;
  readonly freezes: readonly Freeze[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revision: number;
  readonly pendingRevision: number;
}
