import type { TypeUrl } from '../model/brand.ts';
import type { ChangeCourse } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { Freeze, TypedName } from '../model/holds.ts';
import type { Gate, PendingName, Wave } from '../model/rollout.ts';
import type { CheckState, Checks } from './checks.ts';
import type { GuardBounds } from './guard.ts';
import type { HoldCause, JudgeSettings, RolloutState, WaitingState } from './judge.ts';
import type { RemovalLimit } from './removal-limits.ts';
import type { Traffic, TrafficHistory, TrafficSettings } from './traffic.ts';
import type { HashOf, SavedVerdicts } from './verdicts.ts';
import type { Fleet } from './waiting.ts';

/* What a rollout is given, and what it tells: metrics, logs, the disk and inspection. */

/** As configured (`rollout`). */
export interface RolloutSettings extends JudgeSettings {
  /** One or more. */
  readonly waves: readonly Wave[];
  /** Who may be a canary; empty: anybody. */
  readonly canaryPrincipals: readonly string[];
  readonly types: readonly TypeUrl[];
  readonly guard: GuardBounds;
  /** What becomes of a change that was found bad. */
  readonly onFailure: 'HOLD' | 'DISCARD';
  /** Undefined: nobody is judged by its traffic. */
  readonly traffic?: TrafficSettings | undefined;
}

/** What a restart must not forget. */
export interface SavedRollout extends SavedVerdicts {
  readonly freezes: readonly Freeze[];
  /** The nodes that were canaries of what waited, each with its class. */
  readonly canaries: ReadonlyMap<string, string>;
  /** Names that a rollback has removed, and that stay away until they are released. */
  readonly withheld: readonly TypedName[];
}

type RolloutResult = 'released' | 'held' | 'discarded' | 'timeout' | 'failed_check' | 'failed_traffic';

/** For metrics, logs and the disk. */
export interface RolloutEvents {
  counted(result: RolloutResult): void;
  /** How many canaries have accepted these, or rejected something of them; `areAll`: they have accepted all of it. */
  canariesSaid(
    names: readonly PendingName[],
    said: { readonly accepted: number; readonly rejected: number; readonly areAll: boolean },
  ): void;
  /** Everybody gets these changes now. `milliseconds`: how long they have waited. */
  released(names: readonly PendingName[], milliseconds: number): void;
  /** Of all changes. `wave`: from 1; 0 if nothing waits. */
  stateChanged(state: RolloutState, wave: number): void;
  /** Of one change that waits. */
  changeIs(
    state: WaitingState,
    names: readonly PendingName[],
    at: Pick<ChangeCourse, 'wave' | 'waves'>,
  ): void;
  /** An operator ends the wave of these, or releases them. */
  decided(names: readonly PendingName[], reason: string): void;
  /** By `on_failure`, because of `cause`, or by an operator. */
  discarded(names: readonly PendingName[], cause: HoldCause | undefined, reason: string): void;
  /** They were held because of `cause`, and are not any more, though nobody has released or discarded them. */
  resolved(names: readonly PendingName[], cause: HoldCause, reason: string): void;
  save(state: SavedRollout): void;
}

export interface RolloutOptions {
  /** They are asked while something waits. */
  readonly checks?: Pick<Checks, 'look' | 'waiting' | 'states'> | undefined;
  /** What clients report; left out: nothing. */
  readonly traffic?: Pick<Traffic, 'look' | 'verdictOn'> | undefined;
  readonly gate: Gate;
  readonly fleet: Fleet;
  readonly clock: Clock;
  readonly events: RolloutEvents;
  /** `max_removal_percent` of each upstream that has one. */
  readonly removalLimits: () => readonly RemovalLimit[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revisions: () => Pick<RolloutReport, 'revision' | 'pendingRevision'>;
  /** What a restart compares contents by; left out: nothing is kept over restarts. */
  readonly hashOf?: HashOf | undefined;
  /** From before a restart; undefined: nothing is kept over restarts. */
  readonly saved: SavedRollout | undefined;
}

/** How many names, and the wave that has ended: the first, if they were in several. */
export interface Promoted {
  readonly names: number;
  readonly wave: number;
}

/** One change that waits. */
interface ReportedChange {
  readonly state: WaitingState;
  /** From 1. */
  readonly wave: number;
  /** An earlier wave has ended that met somebody. */
  readonly isPastFirst: boolean;
  /** All who are to have it by now have accepted it. */
  readonly isAccepted: boolean;
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
  /** In which wave that change is, from 1; 0: nothing waits. */
  readonly wave: number;
  /** The bake of each wave, in milliseconds. */
  readonly bakes: readonly number[];
  /** When its wave is over, if nothing else happens. Milliseconds since the epoch. */
  readonly bakedAt: number | undefined;
  /** Why it is held, or was discarded by `on_failure`; undefined: neither. */
  readonly cause: HoldCause | undefined;
  readonly checks: readonly CheckState[];
  /** What the traffic of its clients says; undefined: nothing waits, or `rollout.traffic` is left out. */
  readonly traffic: TrafficHistory | undefined;
  readonly changes: readonly ReportedChange[];
  /** The state is that of these, which the guard finds bad and nobody has; undefined: it is of something else. */
  readonly queuedHeld: readonly PendingName[] | undefined;
  readonly canaries: {
    readonly total: number;
    readonly accepted: number;
    readonly rejected: number;
    readonly ended: number;
  };
  /** What waits was not rejected, and none of its canaries is connected. */
  readonly noCanary: boolean;
  /** Why operators have discarded what of it was discarded. */
  readonly whyDiscarded: string;
  readonly freezes: readonly Freeze[];
  /** Of the last change that everybody has, and of the last change. */
  readonly revision: number;
  readonly pendingRevision: number;
}
