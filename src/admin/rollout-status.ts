import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import type { Change } from '../model/change.ts';
import type { PendingName } from '../model/rollout.ts';
import { typeInfo } from '../model/types.ts';
import type { History } from '../releases/history.ts';
import type { RolloutState } from '../releases/judge.ts';
import type { RolloutReport } from '../releases/rollout.ts';
import type { TrafficVerdict } from '../releases/traffic.ts';
import { timestamp } from './problems.ts';
import type { PageFacts, Plain, RolloutSummary } from './service.ts';

/** Names that are listed; there may be as many as resources. */
const maxNames = 100;

/** For AdminService. */
export function rolloutStatus(
  report: RolloutReport,
  history: Pick<History, 'releasedRevision' | 'lastRevision'>,
): Plain<RolloutStatus> {
  const { state, pending, shown, canaries, noCanary, freezes } = report;
  const { wave, bakes, bakedAt, cause } = report;
  const queued = pending.filter((one) => one.queued);
  return {
    state: state.kind,
    since: timestamp(state.since),
    upstream: distinct(shown.map(({ upstream }) => upstream)).join(', '),
    types: shortTypes(shown),
    names: distinct(shown.map(({ name }) => name)).slice(0, maxNames),
    pending: pending.length,
    masked: pending.filter(({ masked }) => masked !== undefined).length,
    queued: queued.length,
    queuedTypes: shortTypes(queued),
    queuedHeld: report.queuedHeld !== undefined,
    canaries,
    noCanary,
    wave,
    waves: bakes.length,
    bakeSeconds: bakes.map((milliseconds) => milliseconds / 1000),
    ...(cause === undefined ? {} : { cause }),
    ...(bakedAt === undefined ? {} : { waveEnds: timestamp(bakedAt) }),
    checks: report.checks.map((check) => ({
      ...check,
      recent: check.recent.map((one) => ({ ...one, at: timestamp(one.askedAt) })),
    })),
    ...(report.traffic === undefined ? {} : { traffic: trafficStatus(report.traffic) }),
    reason: reasonOf(report),
    revision: history.releasedRevision,
    pendingRevision: history.lastRevision,
    freezes: freezes.map(({ type, upstream = '', reason: why, operator, since }) => ({
      type: type === undefined ? '' : typeInfo(type).short,
      upstream,
      reason: why,
      operator,
      since: timestamp(since),
    })),
  };
}

/** More than a uint32 holds. */
const most = 2 ** 32 - 1;

function trafficStatus(traffic: NonNullable<RolloutReport['traffic']>) {
  const { state, reason, recent, maxErrorIncrease } = traffic;
  const count = ({ requests, errors }: TrafficVerdict['canaries']) => ({
    requests: Math.min(most, Math.round(requests)),
    errors: Math.min(most, Math.round(errors)),
  });
  const points = recent.map(({ at, canaries, others }) => ({
    at: timestamp(at),
    canaries: count(canaries),
    others: count(others),
  }));
  const [canaries, others] = [count(traffic.canaries), count(traffic.others)];
  return { state, reason, canaries, others, recent: points, maxErrorIncrease };
}

/** For the list of problems and the gauge. Undefined: nothing of what upstream says was discarded. */
export function discardedFacts({ pending, whyDiscarded }: RolloutReport): PageFacts['discarded'] {
  const own = pending.filter(({ masked }) => masked === 'discarded');
  const [first] = own;
  if (first === undefined) return undefined;
  return {
    names: own.length,
    types: shortTypes(own),
    upstreams: distinct(own.map(({ upstream }) => upstream)),
    only: own.length === 1 ? { type: typeInfo(first.type).short, name: first.name } : undefined,
    reason: whyDiscarded,
  };
}

/**
 * In the words of the status, what a change of the history waits in. Undefined: it does not wait. `judged`: by `nameKey`, in
 * which change of the name is what canaries have.
 */
export function waitingState(
  { type, names, revision }: Pick<Change, 'type' | 'names' | 'revision'>,
  report: Pick<RolloutReport, 'pending' | 'changes' | 'freezes' | 'queuedHeld'>,
  judged: ReadonlyMap<string, number | undefined>,
): RolloutState['kind'] | 'QUEUED' | undefined {
  const { pending, changes, freezes, queuedHeld } = report;
  const own = new Set(names.filter(({ verdict }) => verdict === 'PENDING').map(({ name }) => name));
  if (own.size === 0) return undefined;
  const isOwn = (one: PendingName): boolean => one.type === type && own.has(one.name);
  const isJudged = (one: PendingName): boolean => isOwn(one) && judged.get(one.key) === revision;
  const states = changes.filter((one) => one.names.some(isJudged)).map(({ state }) => state.kind);
  if (states.length > 0) return states.includes('HELD') ? 'HELD' : 'CANARY';
  if (queuedHeld?.some(isOwn) === true) return 'HELD';
  if (pending.some((one) => isOwn(one) && one.queued)) return 'QUEUED';
  // Nobody judges what is frozen.
  const frozen = pending.some((one) => isOwn(one) && (one.masked !== undefined || freezes.length > 0));
  return frozen ? 'FROZEN' : undefined;
}

/** For readiness. Undefined: changes go to everybody at once. */
export function rolloutSummary(report: RolloutReport): RolloutSummary | undefined {
  const { enabled, state } = report;
  const { kind } = state;
  if (!enabled && kind === 'IDLE') return undefined;
  const reason = kind === 'IDLE' ? '' : reasonOf(report);
  return {
    state: kind,
    since: timestamp(state.since),
    cause: kind === 'HELD' ? state.cause : undefined,
    reason,
  };
}

function reasonOf({ state, freezes, whyDiscarded }: RolloutReport): string {
  if (state.kind === 'IDLE') return whyDiscarded;
  // A rollback freezes each of its types for the same reason.
  return state.kind === 'FROZEN'
    ? [...new Set(freezes.map(({ reason }) => reason))].join('; ')
    : state.reason;
}

const distinct = (texts: readonly string[]): string[] => [...new Set(texts)].toSorted();

const shortTypes = (names: readonly PendingName[]): string[] =>
  distinct(names.map(({ type }) => typeInfo(type).short));
