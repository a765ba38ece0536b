import { byPlace, type Member } from '../rollout/election.ts';
import type { CanaryStream, Standing, Survey } from '../rollout/fleet.ts';
import type { CanaryReport, ReportedStream } from './ipc-messages.ts';

/** Nodes that are canaries, of one worker: what the primary keeps over a restart is bounded, too. */
const maxCanaries = 1000;

/** What has ended since the last report. */
export type Ends = Pick<CanaryReport, 'ended' | 'endedRejecting'>;

export const NO_ENDS: Ends = { ended: 0, endedRejecting: [] };

/**
 * What a worker says of its clients, as far as the judge needs it: all canaries, and of the other nodes with equal
 * subscriptions in one class the first by the hash. No other of them is ever elected.
 */
export function reportOf(
  { members, canaries }: Survey,
  {
    round,
    ends,
    rejected,
  }: { readonly round: number; readonly ends: Ends; readonly rejected: ReadonlySet<string> },
): CanaryReport {
  const sets = new Map<ReadonlySet<string>, number>();
  const numbers = (subscribed: Member['subscribed']): number[] =>
    [...subscribed].map((names) => {
      const number = sets.get(names) ?? sets.size;
      sets.set(names, number);
      return number;
    });
  const chosen: CanaryReport['members'] = [];
  const candidates = new Map<string, Member>();
  for (const member of members) {
    const subscribed = numbers(member.subscribed);
    if (member.side === 'canary') {
      if (chosen.length < maxCanaries) chosen.push({ ...member, subscribed });
      continue;
    }
    const key = JSON.stringify([member.classKey, subscribed.toSorted((a, b) => a - b)]);
    const known = candidates.get(key);
    if (known === undefined || byPlace(member, known) < 0) candidates.set(key, member);
  }
  for (const member of candidates.values())
    chosen.push({ ...member, subscribed: numbers(member.subscribed) });
  const rejecting = canaries.filter(({ stream }) => rejected.has(stream));
  const count = (kind: Standing['kind']): number =>
    canaries.filter(({ stream, standing }) => standing.kind === kind && !rejected.has(stream)).length;
  return {
    kind: 'canary_report',
    round,
    subscriptions: [...sets.keys()].map((names) => Array.from(names)),
    members: chosen,
    accepted: count('accepted'),
    waiting: count('waiting'),
    rejecting: rejecting.map(reported),
    ...ends,
  };
}

export function reported({ stream, standing, names }: CanaryStream): ReportedStream {
  const all = names.flatMap((set) => Array.from(set));
  if (standing.kind !== 'rejected') return { stream, standing, names: all };
  return { stream, standing: { ...standing, names: [...standing.names] }, names: all };
}

export function surveyOf(reports: readonly CanaryReport[]): Survey {
  return { complete: true, members: reports.flatMap(membersOf), canaries: reports.flatMap(streamsOf) };
}

/** Of each canary. Who rejects nothing is counted only, and has no id. */
export function streamsOf({ accepted, waiting, rejecting }: CanaryReport): readonly CanaryStream[] {
  return [
    ...rejecting.map(streamOf),
    ...several(accepted, { kind: 'accepted' }),
    ...several(waiting, { kind: 'waiting' }),
  ];
}

export function endedOf({ ended, endedRejecting }: CanaryReport): readonly CanaryStream[] {
  return [...endedRejecting.map(streamOf), ...several(ended, { kind: 'waiting' })];
}

function streamOf({ stream, standing, names }: ReportedStream): CanaryStream {
  const sets = [new Set(names)];
  if (standing.kind !== 'rejected') return { stream, standing, names: sets };
  return { stream, standing: { ...standing, names: new Set(standing.names) }, names: sets };
}

const several = (count: number, standing: Standing): readonly CanaryStream[] =>
  Array.from({ length: count }, () => ({ stream: '', standing, names: [] }));

function membersOf({ subscriptions, members }: CanaryReport): readonly Member[] {
  const sets = subscriptions.map((names) => new Set(names));
  return members.map((member) => ({
    ...member,
    subscribed: new Set(member.subscribed.flatMap((number) => sets[number] ?? [])),
  }));
}
