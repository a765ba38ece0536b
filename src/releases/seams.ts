import type { Answers, ChangeCourse } from '../model/change.ts';
import type { Clock } from '../model/clock.ts';
import type { Gate, MaskReason, PendingName } from '../model/rollout.ts';
import { counted } from '../model/text.ts';
import { typeInfo } from '../model/types.ts';
import { operations } from './changes.ts';
import type { Checks } from './checks.ts';
import type { RemovalLimit } from './guard.ts';
import type { HoldCause, RolloutSettings, RolloutState, WaitingState } from './judge.ts';
import type { HashOf, SavedRollout } from './rollout-file.ts';
import type { Traffic } from './traffic.ts';
import type { Fleet } from './waiting.ts';

/*
 * What a rollout is given, and what it tells: metrics, logs, the disk and inspection. And what a reload must not give it
 * while something waits.
 */

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
  canariesSaid(names: readonly PendingName[], said: Answers & { readonly areAll: boolean }): void;
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

type Gating = Pick<RolloutSettings, 'waves' | 'types'> & Partial<RolloutSettings>;

/** Why names are not what upstream says, the strictest first, and what ends that. */
const reasons: readonly (readonly [masked: MaskReason | undefined, why: string, end: string])[] = [
  ['rolledBack', 'a rollback holds', 'run "distributary unfreeze"'],
  ['frozen', 'a freeze holds', 'run "distributary unfreeze"'],
  ['discarded', 'a change is discarded', 'wait until the control plane sends something else'],
  ['queued', 'a change waits', `wait until everybody has it, or run ${operations}`],
  [undefined, 'a change waits', `wait until everybody has it, or run ${operations}`],
];

/**
 * Why a reload must not give clients other parameters: with PER_PARAMETERS their sessions are new then, and have nothing
 * that was released. They would get what waits, or nothing of what was rolled back. Undefined: nothing waits.
 */
export function parametersObjection(
  pending: readonly Pick<PendingName, 'type' | 'masked'>[],
): string | undefined {
  const found = reasons.find(([reason]) => pending.some(({ masked }) => masked === reason));
  if (found === undefined) return undefined;
  const [reason, why, end] = found;
  const names = pending.filter(({ masked }) => masked === reason);
  return `parameters: they cannot change while ${why} (${listed(names)}): ${end}, then send SIGHUP`;
}

/**
 * Why a reload must not give everybody what of these names waits: it would take away what resources need that are
 * discarded or frozen, and stay so.
 */
export function neededObjection(
  queued: readonly Pick<PendingName, 'type'>[],
  before: Gating,
  after: Gating | undefined,
): string | undefined {
  const names = queued.filter(
    ({ type }) => before.types.includes(type) && after?.types.includes(type) !== true,
  );
  if (names.length === 0) return undefined;
  const what =
    after === undefined
      ? 'rollout: it cannot be taken out'
      : `rollout.types: ${typesOf(names)} cannot be taken out`;
  return `${what} while something discarded or frozen needs what would go (${listed(names)}): wait until the control plane sends something else, or run "distributary unfreeze", then send SIGHUP`;
}

/**
 * Why a reload must not take effect while a change waits: it would show the change to clients that are protected from
 * it. Undefined: it would not. More canaries may see what nobody has found bad. `reason`: why it is held; undefined: its
 * canaries have not decided yet.
 */
export function reloadObjection(
  reason: string | undefined,
  names: readonly Pick<PendingName, 'type'>[],
  before: Gating,
  after: Gating | undefined,
): string | undefined {
  const refused = (path: string, why: string): string => {
    const what = listed(names);
    return reason === undefined
      ? `${path}: ${why} while a change waits for canaries (${what}): wait until everybody has it, or run ${operations}, then send SIGHUP`
      : `${path}: ${why} while a change is held (${what}; ${reason}): run ${operations} first, then send SIGHUP`;
  };
  if (names.length === 0) return undefined;
  if (after === undefined) return refused('rollout', 'it cannot be taken out');
  const ungated = names.find(({ type }) => before.types.includes(type) && !after.types.includes(type));
  if (ungated !== undefined)
    return refused('rollout.types', `${typeInfo(ungated.type).short} cannot be taken out`);
  if (reason === undefined) return undefined;
  const { canaryPrincipals: named = [] } = before;
  const { canaryPrincipals: principals = [] } = after;
  if (named.length > 0 && (principals.length === 0 || principals.some((one) => !named.includes(one))))
    return refused('rollout.canary_principals', 'it cannot name more clients');
  for (const [index, { path, percent, match }] of after.waves.entries()) {
    // Of what is added behind the waves nothing is reached before somebody decides.
    if (index >= before.waves.length) break;
    const known = before.waves.slice(0, index + 1);
    const most = Math.max(...known.map((wave) => wave.percent));
    if (percent > most) return refused(`${path}.percent`, `it cannot grow (${most} to ${percent})`);
    const all = known.flatMap((wave) => Array.from(wave.match));
    const added = match.find((one) => !all.some(({ key, value }) => key === one.key && value === one.value));
    if (added !== undefined) return refused(`${path}.match`, `${added.key}: ${added.value} cannot be added`);
  }
  return undefined;
}

const typesOf = (names: readonly Pick<PendingName, 'type'>[]): string =>
  [...new Set(names.map(({ type }) => typeInfo(type).short))].join(', ');

const listed = (names: readonly Pick<PendingName, 'type'>[]): string =>
  `${typesOf(names)}: ${counted(names.length, 'name')}`;
