import { byPlace, type Member } from '../rollout/canaries.ts';
import type { CanaryStream, Standing, Survey } from '../rollout/waiting.ts';
import type { CanaryReport, ReportedStream } from './ipc-messages.ts';

/** Nodes that are canaries, of one worker: what the primary keeps over a restart is bounded, too. */
const maxCanaries = 1000;

type Names = ReadonlySet<string>;

/** The sets of a report, each once. */
class Sets {
  readonly #numbers = new Map<Names, number>();

  numbersOf(sets: Iterable<Names>): number[] {
    return Array.from(sets, (names) => {
      const number = this.#numbers.get(names) ?? this.#numbers.size;
      this.#numbers.set(names, number);
      return number;
    });
  }

  get all(): string[][] {
    return Array.from(this.#numbers.keys(), (names) => [...names]);
  }
}

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
  }: {
    readonly round: number;
    readonly ends: readonly CanaryStream[];
    readonly rejected: ReadonlySet<string>;
  },
): CanaryReport {
  const sets = new Sets();
  const chosen: CanaryReport['members'] = [];
  const candidates = new Map<string, Member>();
  for (const member of members) {
    const subscribed = sets.numbersOf(member.subscribed);
    if (member.side === 'canary') {
      if (chosen.length < maxCanaries) chosen.push({ ...member, subscribed });
      continue;
    }
    const key = JSON.stringify([member.classKey, member.mayBeCanary, subscribed.toSorted((a, b) => a - b)]);
    const known = candidates.get(key);
    if (known === undefined || byPlace(member, known) < 0) candidates.set(key, member);
  }
  for (const member of candidates.values())
    chosen.push({ ...member, subscribed: sets.numbersOf(member.subscribed) });
  return {
    kind: 'canary_report',
    round,
    members: chosen,
    canaries: counted(canaries, rejected, sets),
    ended: ends.map((one) => reported(one, sets)),
    subscriptions: sets.all,
  };
}

/** Who rejects nothing is counted only, and has no id. */
function counted(canaries: readonly CanaryStream[], rejected: Names, sets: Sets): ReportedStream[] {
  const equal = new Map<string, ReportedStream>();
  for (const one of canaries) {
    const isListed = rejected.has(one.stream);
    const stream = reported(isListed ? one : { ...one, stream: '' }, sets);
    const key = JSON.stringify(stream);
    const count = (equal.get(key)?.count ?? 0) + 1;
    equal.set(key, { ...stream, count });
  }
  return [...equal.values()];
}

function reported({ stream, node, classKey, standing, names }: CanaryStream, sets: Sets): ReportedStream {
  const said = standing.kind === 'rejected' ? { ...standing, names: [...standing.names] } : standing;
  return { stream, count: 1, node, classKey, standing: said, subscribed: sets.numbersOf(names) };
}

export function surveyOf(reports: readonly CanaryReport[]): Survey {
  return { complete: true, members: reports.flatMap(membersOf), canaries: reports.flatMap(streamsOf) };
}

/** Of each canary. */
export const streamsOf = (report: CanaryReport): readonly CanaryStream[] =>
  readStreams(report.canaries, report);

export const endedOf = (report: CanaryReport): readonly CanaryStream[] => readStreams(report.ended, report);

function readStreams(
  streams: readonly ReportedStream[],
  { subscriptions }: CanaryReport,
): readonly CanaryStream[] {
  const sets = subscriptions.map((names) => new Set(names));
  return streams.flatMap(({ stream, count, node, classKey, standing, subscribed }) => {
    const said: Standing =
      standing.kind === 'rejected' ? { ...standing, names: new Set(standing.names) } : standing;
    const names = subscribed.flatMap((number) => sets[number] ?? []);
    return Array.from({ length: count }, () => ({ stream, node, classKey, standing: said, names }));
  });
}

function membersOf({ subscriptions, members }: CanaryReport): readonly Member[] {
  const sets = subscriptions.map((names) => new Set(names));
  return members.map((member) => ({
    ...member,
    subscribed: new Set(member.subscribed.flatMap((number) => sets[number] ?? [])),
  }));
}
