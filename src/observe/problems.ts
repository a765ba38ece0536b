import type { ClassProblem } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { NearParameters } from '../model/nearest-parameters.ts';
import type { Rejection } from '../model/subscription.ts';
import { printable, shorten } from '../model/text.ts';
import { ago } from './format.ts';

/** The words of alerts. What is only for information is no problem: nothing waits for an operator. */
export const severities = ['critical', 'warning', 'info'] as const;
type Severity = (typeof severities)[number];

/**
 * Everything that can be wrong, in the order in which problems are listed where nothing else decides. Alerts, problems
 * and runbooks are one list: a test compares them.
 */
// biome-ignore format: a table, one kind a line
export const problemKinds = {
  not_ready: { severity: 'critical', runbook: 'not-ready', alerts: ['DistributaryNotReady'], means: 'the relay is not ready for clients' },
  upstream_away: { severity: 'critical', runbook: 'control-plane-away', alerts: ['DistributaryControlPlaneAway'], means: 'an upstream is not connected' },
  change_held: { severity: 'critical', runbook: 'change-held', alerts: ['DistributaryChangeHeld', 'DistributaryRolloutsTimeOut'], means: 'a change was found bad, or has no verdict: only canaries have it, and the others wait' },
  removals_held: { severity: 'critical', runbook: 'removals-held', alerts: ['DistributaryRemovalsHeld'], means: 'an upstream has removed too much at once' },
  clients_reject: { severity: 'critical', runbook: 'clients-reject', alerts: ['DistributaryRejections', 'DistributaryClientsReject'], means: 'clients reject a resource, all for the same reason' },
  changes_late: { severity: 'warning', runbook: 'changes-late', alerts: ['DistributaryChangesLateFast', 'DistributaryChangesLateSlow'], means: 'too many changes of the last minutes were late or rejected' },
  workers_restart: { severity: 'critical', runbook: 'workers-restart', alerts: ['DistributaryWorkersRestart'], means: 'workers exit and are restarted' },
  certificate_expires: { severity: 'warning', runbook: 'certificates', alerts: ['DistributaryCertificateEndsSoon', 'DistributaryCertificateEnds'], means: 'a certificate expires soon, or has expired' },
  certificate_refused: { severity: 'warning', runbook: 'certificates', alerts: ['DistributaryCertificateRefused'], means: 'a new certificate is refused, and the old one stays in use' },
  configuration_refused: { severity: 'warning', runbook: 'configuration-refused', alerts: ['DistributaryConfigurationRefused'], means: 'a new configuration is refused, and the old one stays in use' },
  updates_refused: { severity: 'warning', runbook: 'updates-refused', alerts: ['DistributaryUpdatesRefused'], means: 'the relay refuses responses or files of an upstream' },
  upstream_stale: { severity: 'warning', runbook: 'control-plane-away', alerts: ['DistributaryDataOutOfDate'], means: 'what came from an upstream may be out of date' },
  upstream_streams_end: { severity: 'warning', runbook: 'upstream-streams-end', alerts: ['DistributaryUpstreamStreamsEnd'], means: 'a control plane ends streams again and again' },
  disk_fails: { severity: 'warning', runbook: 'disk', alerts: ['DistributaryDiskFails'], means: 'the cache cannot be written to disk' },
  disk_late: { severity: 'warning', runbook: 'disk', alerts: ['DistributaryDiskLate'], means: 'a change waits for the disk' },
  clients_silent: { severity: 'warning', runbook: 'clients-silent', alerts: ['DistributaryClientsSilent'], means: 'clients do not acknowledge what they were sent' },
  clients_stall: { severity: 'warning', runbook: 'clients-silent', alerts: ['DistributaryClientsStall'], means: 'clients stopped reading, and their streams were ended' },
  clients_refused: { severity: 'warning', runbook: 'clients-refused', alerts: ['DistributaryClientsRefused'], means: 'clients are not accepted: they are allowed nothing, their certificate is not valid, or what they send cannot be read' },
  clients_turned_away: { severity: 'warning', runbook: 'limits', alerts: ['DistributaryClientsTurnedAway'], means: 'clients are refused because of a limit' },
  limit_near: { severity: 'warning', runbook: 'limits', alerts: ['DistributaryStreamsNearLimit', 'DistributaryConnectionsNearLimit'], means: 'a limit is nearly reached' },
  peer_heavy: { severity: 'warning', runbook: 'limits', alerts: [], means: 'a peer asks for more than its share of work' },
  busy: { severity: 'warning', runbook: 'relay-busy', alerts: ['DistributaryBusy'], means: 'events wait in a process of the relay' },
  missing: { severity: 'warning', runbook: 'missing-resources', alerts: ['DistributaryClientsLackResources'], means: 'clients ask for a resource that does not exist for them' },
  ambiguous: { severity: 'warning', runbook: 'ambiguous-variants', alerts: ['DistributaryAmbiguousVariants'], means: 'several variants match the same parameters' },
  frozen: { severity: 'warning', runbook: 'frozen', alerts: ['DistributaryFrozen'], means: 'an operator has frozen changes' },
  discarded: { severity: 'warning', runbook: 'discarded', alerts: ['DistributaryDiscarded'], means: 'an upstream still says what was discarded, by an operator or by `on_failure: DISCARD`' },
  configuration_dangerous: { severity: 'warning', runbook: 'configuration-dangerous', alerts: [], means: 'the configuration is accepted, with a warning' },
  change_pending: { severity: 'info', runbook: 'change-held', alerts: [], means: 'a change waits for its canaries, checks, traffic or an operator: nothing is wrong' },
} as const satisfies Record<string, {
  /** Where the problem does not say another one. */
  readonly severity: Severity;
  /** The alerts of deploy/observability/alerts.yaml that fire while there is such a problem; some have none. */
  readonly alerts: readonly string[];
  /** A page of docs/runbooks. */
  readonly runbook: string;
  /** For docs/reference/problems.md. */
  readonly means: string;
}>;

export type Kind = keyof typeof problemKinds;

/** Distinct parameter sets have distinct labels. */
export function parametersLabel(
  parameters: Readonly<Record<string, string>>,
  none = '(no parameters)',
  separator = ', ',
): string {
  const words = Object.entries(parameters).map(([key, value]) => `${key}=${value}`);
  return words.length === 0 ? none : words.toSorted().join(separator);
}

/** `1 client`, `4,812 clients`. */
export function countedLong(count: number, noun: string): string {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

/** What the sentence needs of a problem (AdminService's Problem). */
type ToldProblem = Pick<Problem, 'severity' | 'short' | 'since'> & {
  /** Said too, where there is room for it. */
  readonly why?: string;
};

/** Of a list that has the worst first. */
export function worstOf(problems: readonly ToldProblem[]): Severity {
  const first = problems[0]?.severity;
  return severities.find((severity) => severity === first) ?? 'info';
}

export const wrongOnes = <T extends ToldProblem>(problems: readonly T[]): readonly T[] =>
  problems.filter(({ severity }) => severity !== 'info');

/** `for 11 s`, in brackets behind what is wrong now; empty: nobody knows. */
export function lasting(since: string, now: number): string {
  const time = ago(since, now);
  return time === undefined ? '' : `for ${time}`;
}

/** So many problems are told; the others are counted. */
const told = 3;

/**
 * What matters most, as somebody would say it on the phone. `now`: for how long each problem lasts is said too; without
 * it the sentence changes only when something has changed.
 */
export function sentence(
  clients: number,
  problems: readonly ToldProblem[],
  moreProblems: number,
  now?: number,
): string {
  const parts = problems.slice(0, told).map(({ short, since, why = '' }) => {
    const lasts = now === undefined ? '' : lasting(since, now);
    const more = [lasts, why].filter((text) => text !== '').join('; ');
    return more === '' ? short : `${short} (${more})`;
  });
  const rest = problems.length - parts.length + moreProblems;
  const more = rest === 0 ? [] : [countedLong(rest, 'more problem')];
  const well = problems.length === 0 ? ['all is well'] : [];
  const serving = clients === 0 ? 'No client is connected' : `Serving ${countedLong(clients, 'client')}`;
  return `${[serving, ...parts, ...more, ...well].join('; ')}.`;
}

/** Whether it serves, and whether something is wrong all the same: `ready (serves; 2 problems)`. */
export function readyText(ready: boolean, problems: readonly ToldProblem[], moreProblems: number): string {
  const count = wrongOnes(problems).length + moreProblems;
  const state = ready ? 'ready' : 'not ready';
  return ready && count > 0 ? `${state} (serves; ${countedLong(count, 'problem')})` : state;
}

/** What was rejected, in words: `web`, `removal of web`, `one of a, b and 3 more`. */
export function rejectedText({ name, changes }: Pick<Rejection, 'name' | 'changes'>): string {
  const { names, total, removal } = changes;
  const rest = total - names.length;
  const several = rest > 0 ? `${names.join(', ')} and ${rest} more` : names.join(', ');
  const what = name !== '' ? name : total > 1 ? `one of ${several}` : several;
  if (what === '') return 'the whole response';
  return removal ? `removal of ${what}` : what;
}

/** What an operator reads and types where a change waits for canaries that are away. */
export const noCanary = 'no canary is connected';
export const releaseCommand = 'distributary release --reason "…"';
export const discardCommand = 'distributary discard --reason "…"';

/** What an operator may copy into a shell: names come from peers. Empty: it cannot be typed. */
export function command(verb: string, ...words: readonly string[]): string {
  if (words.some((word) => word !== printable(word) || word.length > 300)) return '';
  return [verb, ...words.map(quoted)].join(' ');
}

function quoted(word: string): string {
  if (word === '…') return '"…"';
  return /^[\w./:@=+,%-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export const notAllowed = 'xds.authorization does not allow it';

type Why = Pick<ClassProblem, 'why' | 'nearest' | 'otherClasses'>;

/** `no variant matches; env=prod has one; 3 other classes have one`. */
export const missingText = ({ why, nearest, otherClasses }: Why): string =>
  `${why}${nearest === '' ? '' : `; ${nearest}`}${othersText(otherClasses)}`;

/** Of these parameters a text has at most so many characters. */
const longestChange = 60;

/** `env=prod has 12, env=test has 3`. `single`: they are of one name. `isCut`: there are more names than were looked at. */
export function nearestText(all: readonly NearParameters[], single: boolean, isCut: boolean): string {
  return all
    .map(({ changes, names }) => {
      const words = Array.from(changes, ([key, value]) =>
        shorten(value === undefined ? `no ${key}` : `${key}=${value}`, longestChange),
      );
      const count = single ? 'one' : `${isCut ? 'at least ' : ''}${names.toLocaleString('en')}`;
      return `${words.join(' and ')} has ${count}`;
    })
    .join(', ');
}

/** `; 3 other classes have one`; empty if no class has. */
export function othersText(classes: number): string {
  if (classes === 0) return '';
  return classes === 1 ? '; 1 other class has one' : `; ${classes} other classes have one`;
}
