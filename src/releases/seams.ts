import type { TypeUrl } from '../model/brand.ts';
import type { ChangeCourse } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { Gate, PendingName, Wave } from '../model/rollout.ts';
import type { Checks } from './checks.ts';
import type { GuardBounds } from './guard.ts';
import type { HoldCause, JudgeSettings, RolloutState, WaitingState } from './judge.ts';
import type { RemovalLimit } from './removal-limits.ts';
import type { HashOf, SavedRollout } from './rollout-file.ts';
import type { Traffic } from './traffic.ts';
import type { TrafficSettings } from './traffic-verdict.ts';
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

type RolloutResult = 'released' | 'held' | 'discarded' | 'timeout' | 'failed_check' | 'failed_traffic';

/** As what a change counts that comes to this state. What is to be discarded counts when it is. */
export function resultOf(
  state: WaitingState,
  onFailure: RolloutSettings['onFailure'] | undefined,
): RolloutResult | undefined {
  if (state.kind !== 'HELD') return undefined;
  if (state.cause === 'timeout') return 'timeout';
  return onFailure === 'DISCARD' ? undefined : 'held';
}

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
  /** Of all changes. */
  stateChanged(state: RolloutState): void;
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
