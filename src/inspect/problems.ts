import type { PageFacts, Plain } from '../admin/service.ts';
import type { StatusResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ClassProblem, ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem, ProblemClass } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { errorText, shorten } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import { type CertificateState, certificateText } from '../observe/certificates.ts';
import { formatBytes, formatSeconds } from '../observe/format.ts';
import { othersText } from '../observe/missing-text.ts';
import {
  countedLong as counted,
  discardCommand,
  noCanary,
  parametersLabel,
  problemKinds,
  releaseCommand,
  severities,
} from '../observe/problems.ts';
import {
  command,
  fileCommand,
  globFlags,
  problem,
  reach,
  scopeFlags,
  timeAfter,
  timestamp,
} from './problem-parts.ts';

/** What Status says beside its problems. */
export type KnownStatus = Omit<Plain<StatusResponse>, 'problems' | 'moreProblems'>;

export interface ProblemFacts {
  readonly status: KnownStatus;
  readonly classes: Plain<ListClassesResponse>;
  readonly facts: PageFacts;
  readonly now: number;
}

/** What an answer lists at most: problems, and the classes of each. */
const most = { problems: 100, classes: 40 };
const day = 86_400_000;
/** The bounds of the alerts (deploy/observability/alerts.yaml). */
const bounds = {
  /** Of a limit: from here on it is a problem. */
  limit: 0.8,
  certificate: { warning: 7 * day, critical: day },
  diskLagSeconds: 300,
  lagMs: 500,
  restarts: 2,
  /** The share of changes that may fail, and so many must fail at least. */
  late: { warning: 0.06, critical: 0.144, least: 10 },
};
/** Names of resources and classes that a text has at most. */
const namesTold = 3;

/** Pure: what is wrong, the worst first, one problem for each cause. */
export function problemsOf(facts: ProblemFacts): {
  readonly problems: Plain<Problem>[];
  readonly moreProblems: number;
} {
  const found = finders.flatMap((find) => find(facts)).toSorted(worstFirst);
  return { problems: found.slice(0, most.problems), moreProblems: Math.max(0, found.length - most.problems) };
}

const finders: readonly ((facts: ProblemFacts) => readonly Plain<Problem>[])[] = [
  notReady,
  upstreams,
  changeHeld,
  removalsHeld,
  rejections,
  changesLate,
  workersRestart,
  certificates,
  configuration,
  updatesRefused,
  disk,
  silent,
  turnedAway,
  limits,
  heavyPeers,
  busy,
  missing,
  ambiguous,
  frozen,
  discarded,
  warnings,
];

const kinds = Object.keys(problemKinds);
/**
 * What concerns the whole relay comes before the critical problems of some clients, and after their warnings. Changes are
 * late because of something else.
 */
const rank = ({ kind, severity, clients }: Plain<Problem>): number =>
  clients > 0 ? clients : severity === 'critical' && kind !== 'changes_late' ? Infinity : 0;

function worstFirst(a: Plain<Problem>, b: Plain<Problem>): number {
  const order = (one: Plain<Problem>): number => severities.findIndex((known) => known === one.severity);
  if (order(a) !== order(b)) return order(a) - order(b);
  if (rank(a) !== rank(b)) return rank(b) - rank(a);
  return urgency(b) - urgency(a) || kinds.indexOf(a.kind) - kinds.indexOf(b.kind);
}

/** The others may wait for a fix: nothing else is as urgent. */
const urgency = ({ title }: Plain<Problem>): number => Number(title.endsWith(noCanary));

function notReady({ status }: ProblemFacts): readonly Plain<Problem>[] {
  if (status.ready) return [];
  const detail = errorText(status.reason, 300);
  const commands = ['distributary status'];
  return [
    problem('not_ready', [], { severity: 'critical', title: 'The relay is not ready', detail, commands }),
  ];
}

function upstreams({ status, facts }: ProblemFacts): readonly Plain<Problem>[] {
  return status.upstreams.flatMap((upstream) => {
    const { name, kind, connected, stale, staleSince, lastError, staleReason, refusedStreams } = upstream;
    const shown = shorten(name, 60);
    const detail = errorText(lastError || staleReason, 300);
    const about = { upstream: name, since: staleSince, detail };
    if (!connected) {
      const title = `Upstream ${shown} is unreachable`;
      const commands = [reach(kind, upstream.endpoint, facts.upstreamTls.get(name))];
      return problem('upstream_away', [name], {
        ...about,
        severity: 'critical',
        title,
        commands,
      });
    }
    if (stale && kind === 'filesystem') {
      const title = `The relay refuses files of upstream ${shown}`;
      return problem('updates_refused', [name], { ...about, severity: 'warning', title });
    }
    if (stale) {
      const title = `What came from upstream ${shown} may be out of date`;
      return problem('upstream_stale', [name], { ...about, severity: 'warning', title });
    }
    return streamsEnd(upstream, refusedStreams, about);
  });
}

function streamsEnd(
  { name, suspectTypes }: Plain<StatusResponse>['upstreams'][number],
  refused: number,
  about: Partial<Plain<Problem>>,
): readonly Plain<Problem>[] {
  if (refused === 0 && suspectTypes.length === 0) return [];
  const title = `Upstream ${shorten(name, 60)} ends streams of the relay`;
  const suspects = suspectTypes
    .slice(0, namesTold)
    .map(
      ({ type, reason }) =>
        `${shorten(type, 80)} is requested on an isolated stream (${errorText(reason, 200)})`,
    );
  const streams = refused === 0 ? [] : [`${counted(refused, 'stream')} refused`];
  const detail = [...streams, ...suspects, about.detail ?? ''].filter((part) => part !== '').join('; ');
  const since = suspectTypes[0]?.since ?? '';
  return [problem('upstream_streams_end', [name], { ...about, since, severity: 'warning', title, detail })];
}

/** A change that waits, and what an operator can type. */
function changeHeld({ status: { rollout }, facts }: ProblemFacts): readonly Plain<Problem>[] {
  if (rollout === undefined || (rollout.state !== 'HELD' && rollout.state !== 'CANARY')) return [];
  const { pending, types, names, upstream, reason, since, noCanary: waits, queuedHeld } = rollout;
  const isHeld = rollout.state === 'HELD';
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = rollout.canaries ?? {};
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${shorten(upstream, 60)}`;
  const canaries = `canaries: ${counted(total, 'stream')}, ${accepted} accepted, ${rejected} rejected, ${ended} disconnected`;
  const detail = [errorText(reason, 300), what, canaries].filter((part) => part !== '').join('; ');
  const about = { detail, since, upstream, ...onlyOf(types, names) };
  const end = endOfWait(since, facts);
  if (waits) {
    return [
      problem('change_held', [], {
        ...about,
        severity: 'critical',
        until: isHeld ? '' : end,
        title: `${isHeld ? 'A change is held' : 'A change waits'}: ${noCanary}`,
        short: `${isHeld ? 'a change is held' : 'a change waits'}: ${noCanary} (run ${releaseCommand})`,
        commands: [releaseCommand, discardCommand],
      }),
    ];
  }
  if (isHeld) return [held(about, queuedHeld)];
  return [changePending({ ...about, until: end }, rollout, facts)];
}

/** What is typed first must not give to everybody what canaries have found bad, nor decide on another change. */
function held(about: Partial<Plain<Problem>>, isQueued: boolean): Plain<Problem> {
  const title = isQueued ? 'A change that nobody has is held' : 'A change is held';
  const commands = isQueued ? ['distributary diff --pending'] : [discardCommand, releaseCommand];
  return problem('change_held', [], { severity: 'critical', ...about, title, commands });
}

function changePending(
  about: Partial<Plain<Problem>>,
  { waves }: Plain<RolloutStatus>,
  { rollout }: PageFacts,
): Plain<Problem> {
  const isManual = rollout?.mode === 'MANUAL';
  const goOn = waves > 1 ? 'distributary promote --reason "…"' : releaseCommand;
  return problem('change_pending', [], {
    ...about,
    severity: 'info',
    title: `A change waits for ${isManual ? 'an operator' : 'its canaries, checks or traffic'}`,
    commands: ['distributary diff --pending', ...(isManual ? [goOn] : [])],
  });
}

/** With `mode: MANUAL` only an operator ends it. */
function endOfWait(since: string, { rollout }: PageFacts): string {
  return rollout === undefined || rollout.mode === 'MANUAL' ? '' : timeAfter(since, rollout.maxWaitMs);
}

/** Which resource waits, where it is one. */
function onlyOf(types: readonly string[], names: readonly string[]): { type: string; name: string } {
  const [type = ''] = types;
  const [name = ''] = names;
  return { type: types.length === 1 ? type : '', name: types.length === 1 ? name : '' };
}

/** Of gated types the rollout holds them, until somebody decides. */
function removalsHeld({ status, facts }: ProblemFacts): readonly Plain<Problem>[] {
  return status.upstreams.flatMap(({ name, heldRemovals }) =>
    heldRemovals.map(({ type, count, since }) => {
      const hold = facts.removalHoldMs.get(name);
      const are = count === 1 ? 'is' : 'are';
      const short = `${counted(count, 'removal')} of ${shorten(type, 80)} ${are} held back`;
      return problem('removals_held', [name, type], {
        severity: 'critical',
        title: `${counted(count, 'removal')} of ${shorten(type, 80)} from ${shorten(name, 60)} ${are} held back`,
        short,
        since,
        until: hold === undefined ? '' : timeAfter(since, hold),
        commands: [command('distributary release', '--upstream', name, '--type', type, '--reason', '…')],
        upstream: name,
        type,
      });
    }),
  );
}

/**
 * One error about one resource is one cause, whatever the classes of the clients that say it. Who was sent several
 * resources at once says the same error of all of them.
 */
function rejections({ classes }: ProblemFacts): readonly Plain<Problem>[] {
  const rows = ofKind(classes, 'REJECTED');
  const saying = ({ type, error }: Plain<ClassProblem>): string =>
    JSON.stringify([type, errorText(error, 300)]);
  const named = Map.groupBy(
    rows.filter(({ name }) => name !== ''),
    saying,
  );
  const about = (row: Plain<ClassProblem>): string => {
    const others = new Set(row.name === '' ? named.get(saying(row))?.map(({ what }) => what) : []);
    const [only = row.what] = others;
    return others.size > 1 ? row.what : only;
  };
  // Whoever names the resource comes first: the problem has its name.
  const causes = Map.groupBy(
    rows.toSorted((a, b) => Number(a.name === '') - Number(b.name === '')),
    (row) => JSON.stringify([saying(row), about(row)]),
  );
  return [...causes].flatMap(([key, rows]) => {
    const [first] = rows;
    if (first === undefined) return [];
    const { type, name, what, error } = first;
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const verb = clients === 1 ? 'rejects' : 'reject';
    const versions = [...new Set(rows.map(versionOf).filter((version) => version !== ''))];
    const version = versions.length === 1 ? ` (version ${versions[0]})` : '';
    return problem('clients_reject', [key], {
      ...concerned,
      severity: 'critical',
      title: `${whoText(concerned)} ${verb} ${shorten(type, 80)} ${shorten(what, 120)}`,
      short: `${counted(clients, 'client')} ${verb} ${shorten(type, 40)}${name === '' ? '' : ` ${shorten(what, 60)}`}`,
      detail: `${errorText(error, 300)}${version}`,
      commands: [
        name === '' ? '' : command('distributary history', '--type', type, '--name', name),
        command('distributary clients', '--type', type, '--state', 'ERROR'),
      ],
      type,
      name,
    });
  });
}

/** As `explain` says it; of several resources the response's. */
function versionOf({ version, content, controlPlaneVersion }: Plain<ClassProblem>): string {
  if (content === undefined) return shorten(controlPlaneVersion ?? version, 60);
  const said =
    controlPlaneVersion === undefined ? '' : `, ${shorten(controlPlaneVersion, 60)} at the control plane`;
  return `${content}${said}`;
}

function silent({ classes }: ProblemFacts): readonly Plain<Problem>[] {
  return [...Map.groupBy(ofKind(classes, 'LATE'), ({ type }) => type)].map(([type, rows]) => {
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const have = clients === 1 ? 'has' : 'have';
    return problem('clients_silent', [type], {
      ...concerned,
      severity: 'warning',
      title: `${whoText(concerned)} ${have} not acknowledged ${shorten(type, 80)}`,
      short: `${counted(clients, 'client')} ${have} not acknowledged ${shorten(type, 80)}`,
      commands: [command('distributary clients', '--type', type, '--state', 'STALE')],
      type,
    });
  });
}

/**
 * What the same clients ask for by name, and does not exist for them, is one cause. What exists for nobody is for
 * information: it may not be there yet.
 */
function missing({ classes }: ProblemFacts): readonly Plain<Problem>[] {
  const byName = Map.groupBy(ofKind(classes, 'MISSING'), ({ type, name }) => JSON.stringify([type, name]));
  const causes = Map.groupBy(byName.values(), (rows) =>
    JSON.stringify([
      rows[0]?.type,
      rows[0]?.elsewhere,
      rows.map((row) => JSON.stringify([row.class, parametersLabel(row.parameters)])).toSorted(),
    ]),
  );
  return [...causes.values()].flatMap((names) => {
    const [rows = []] = names;
    const [first] = rows;
    if (first === undefined) return [];
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const { type } = first;
    // Of the wildcard the type says all.
    const listed = names
      .slice(0, namesTold)
      .map(([row]) => (row === undefined || row.name === WILDCARD ? '' : shorten(row.name, 80)));
    const rest = names.length - listed.length;
    const all = `${listed.join(', ')}${rest > 0 ? ` and ${rest.toLocaleString('en')} more` : ''}`;
    const get = clients === 1 ? 'gets' : 'get';
    const why = first.why === '' ? '' : `: ${first.why}${othersText(first.otherClasses)}`;
    const [parameters = {}] = rows.map((row) => row.parameters);
    const given = Object.entries(parameters).flatMap(([key, value]) => ['--param', `${key}=${value}`]);
    return problem('missing', [type, JSON.stringify(names.map(([row]) => row?.name))], {
      ...concerned,
      severity: first.elsewhere ? 'warning' : 'info',
      title: `${whoText(concerned)} ${get} no ${`${shorten(type, 80)} ${all}`.trimEnd()}${why}`,
      short: `${counted(clients, 'client')} ${get} no ${`${shorten(type, 40)} ${listed[0] ?? ''}`.trimEnd()}${names.length > 1 ? ' …' : ''}`,
      commands: [
        first.name === WILDCARD || isGlob(first.name)
          ? command('distributary resources', '--type', type, ...globFlags(first.name))
          : command('distributary explain', '--type', type, '--name', first.name, ...given),
      ],
      type,
      name: first.name,
    });
  });
}

const ofKind = ({ problems }: Plain<ListClassesResponse>, kind: string): readonly Plain<ClassProblem>[] =>
  problems.filter((one) => one.kind === kind);

type Concerned = Pick<Plain<Problem>, 'clients' | 'classes' | 'since'>;

function concernedBy(rows: readonly Plain<ClassProblem>[]): Concerned {
  const byClass = Map.groupBy(rows, ({ class: id, parameters }) => id || parametersLabel(parameters));
  const classes = [...byClass.values()].flatMap((own): Plain<ProblemClass>[] => {
    const [first] = own;
    if (first === undefined) return [];
    const clients = own.reduce((sum, row) => sum + row.clients, 0);
    return [{ class: first.class, parameters: first.parameters, clients }];
  });
  const since = rows.map((row) => row.since).filter((time) => time !== '');
  return {
    clients: rows.reduce((sum, row) => sum + row.clients, 0),
    classes: classes.toSorted((a, b) => b.clients - a.clients).slice(0, most.classes),
    since: since.toSorted()[0] ?? '',
  };
}

/** `11 clients with env=prod`, `113 clients of 20 classes`. */
function whoText({ clients, classes }: Concerned): string {
  const [first] = classes;
  if (classes.length !== 1 || first === undefined)
    return `${counted(clients, 'client')} of ${classes.length < most.classes ? '' : 'at least '}${counted(classes.length, 'class')}`.replace(
      /classs$/,
      'classes',
    );
  return `${counted(clients, 'client')} with ${shorten(parametersLabel(first.parameters), 120)}`;
}

function changesLate({ facts: { recent } }: ProblemFacts): readonly Plain<Problem>[] {
  const { acknowledged, late, rejections: rejected, minutes } = recent;
  const all = acknowledged + rejected;
  const failed = late + rejected;
  if (failed <= bounds.late.least || failed < bounds.late.warning * all) return [];
  const share = Math.floor((100 * failed) / all);
  const title = `${share}% of the changes in the last ${minutes} minutes were late or rejected`;
  const detail = `${late.toLocaleString('en')} acknowledged after more than 1 s and ${rejected.toLocaleString('en')} rejected, of ${all.toLocaleString('en')}`;
  const severity = failed < bounds.late.critical * all ? 'warning' : 'critical';
  return [
    problem('changes_late', [], {
      severity,
      title,
      short: `${share}% of changes are late or rejected`,
      detail,
    }),
  ];
}

function workersRestart({ status, facts: { recent } }: ProblemFacts): readonly Plain<Problem>[] {
  if (recent.restarts <= bounds.restarts) return [];
  const ended = status.workers.find(({ lastError }) => lastError !== '');
  const title = `Workers were restarted ${recent.restarts.toLocaleString('en')} times in the last hour`;
  const detail = ended === undefined ? '' : `worker ${ended.number}: ${errorText(ended.lastError, 300)}`;
  return [
    problem('workers_restart', [], {
      severity: 'critical',
      title,
      short: 'workers exit and are restarted',
      detail,
    }),
  ];
}

/** One file is one cause, whoever uses it: often a relay has one certificate for everything. */
function certificates({ facts, now }: ProblemFacts): readonly Plain<Problem>[] {
  const byFile = Map.groupBy(facts.certificates, ({ file }) => file);
  return [...byFile].flatMap(([file, all]) =>
    [certificateExpires(file, all, now), certificateRefused(file, all)].flat(),
  );
}

function certificateExpires(
  file: string,
  all: readonly CertificateState[],
  now: number,
): readonly Plain<Problem>[] {
  const at = Math.min(...all.map(({ expiresAt = Infinity }) => expiresAt));
  if (at - now >= bounds.certificate.warning) return [];
  const verb = at < now ? 'has expired' : 'expires soon';
  return [
    problem('certificate_expires', [file], {
      ...ofOwners(all),
      severity: at - now < bounds.certificate.critical ? 'critical' : 'warning',
      title: `The ${certificateText(all)} ${verb}`,
      detail: `${shorten(file, 300)}: valid until ${timestamp(at)}`,
      ...(at < now ? { since: timestamp(at) } : { until: timestamp(at) }),
      commands: [fileCommand('openssl x509 -noout -subject -enddate -in', file)],
    }),
  ];
}

function certificateRefused(file: string, all: readonly CertificateState[]): readonly Plain<Problem>[] {
  const refusals = all.flatMap(({ refused }) => refused ?? []);
  const [first] = refusals;
  if (first === undefined) return [];
  const concerned = all.filter(({ refused }) => refused !== undefined);
  return [
    problem('certificate_refused', [file], {
      ...ofOwners(concerned),
      severity: 'warning',
      title: `The new ${certificateText(concerned)} is refused`,
      detail: `${errorText(first.error, 300)}; the previous ${concerned.every(({ kind }) => kind === 'ca') ? 'file' : 'certificate'} stays in use`,
      since: timestamp(Math.min(...refusals.map(({ since }) => since))),
    }),
  ];
}

function ofOwners(all: readonly CertificateState[]): Pick<Plain<Problem>, 'upstream'> {
  const [first] = all.flatMap(({ owner }) => ('upstream' in owner ? owner.upstream : []));
  return { upstream: first ?? '' };
}

function configuration({ facts: { refusedConfiguration } }: ProblemFacts): readonly Plain<Problem>[] {
  if (refusedConfiguration === undefined) return [];
  const { file, problems, since } = refusedConfiguration;
  return [
    problem('configuration_refused', [], {
      severity: 'warning',
      title: 'The new configuration is refused',
      detail: `${problems
        .slice(0, namesTold)
        .map((one) => shorten(one, 300))
        .join('; ')}${problems.length > namesTold ? `; and ${problems.length - namesTold} more` : ''}`,
      since: timestamp(since),
      commands: [fileCommand('distributary validate --config', file)],
    }),
  ];
}

/** Of control planes; files are in `upstreams`. */
function updatesRefused({ status, facts: { recent } }: ProblemFacts): readonly Plain<Problem>[] {
  const files = new Set(status.upstreams.filter(({ kind }) => kind === 'filesystem').map(({ name }) => name));
  return recent.refusedUpdates
    .filter(({ upstream }) => !files.has(upstream))
    .map(({ upstream, type, count, reason }) =>
      problem('updates_refused', [upstream, type], {
        severity: 'warning',
        title: `The relay refuses ${shorten(type, 80)} of upstream ${shorten(upstream, 60)}`,
        detail: `${counted(count, 'response')} in the last ${recent.minutes} minutes; the last reason: ${errorText(reason, 300)}`,
        upstream,
        type,
      }),
    );
}

export const diskText: ReadonlyMap<string, string> = new Map([
  ['full', 'the disk is full'],
  ['read_only', 'the disk is read-only'],
  ['locked', 'another process has the file open'],
  ['corrupt', 'the file is damaged'],
  ['io', 'the disk has an error'],
]);

function disk({ facts }: ProblemFacts): readonly Plain<Problem>[] {
  if (facts.disk === undefined) return [];
  const { failing, lagSeconds, path } = facts.disk;
  const commands = [fileCommand('df -h', path), fileCommand('ls -ld', path)];
  if (failing !== undefined) {
    const [what, lost] =
      failing.what === 'cache'
        ? ['the cache', 'begin with old data']
        : ['rollout.json', 'forget what is frozen, discarded or found bad'];
    const short = `${what} cannot be written to disk`;
    const detail = `${diskText.get(failing.reason) ?? failing.reason}; clients are still served, but a restart would ${lost}`;
    const since = timestamp(failing.since);
    return [
      problem('disk_fails', [], {
        severity: 'warning',
        title: short.charAt(0).toUpperCase() + short.slice(1),
        short,
        detail,
        since,
        commands,
      }),
    ];
  }
  if (lagSeconds <= bounds.diskLagSeconds) return [];
  const title = `A change has been waiting for the disk for ${formatSeconds(lagSeconds)}`;
  return [problem('disk_late', [], { severity: 'warning', title, short: 'the disk is too slow', commands })];
}

/** Reasons of downstream_rejected_total that the alert is about. */
const limitReasons = new Set([
  'streams',
  'streams_per_peer',
  'connections',
  'connections_per_peer',
  'subscriptions',
  'rate',
  'upstream_sessions',
  'request_bytes',
  'response_bytes',
]);

function turnedAway({ facts: { recent } }: ProblemFacts): readonly Plain<Problem>[] {
  const away = recent.turnedAway.filter(({ reason }) => limitReasons.has(reason));
  const stalled = recent.turnedAway.filter(({ reason }) => reason === 'stalled');
  const total = (all: typeof away): number => all.reduce((sum, { count }) => sum + count, 0);
  const reasons = away.map(({ reason, count }) => `${reason}: ${count.toLocaleString('en')}`).join(', ');
  return [
    ...(away.length === 0
      ? []
      : [
          problem('clients_turned_away', [], {
            severity: 'warning',
            title: `Limits have refused clients ${counted(total(away), 'time')} in the last ${recent.minutes} minutes`,
            short: 'limits refuse clients',
            detail: reasons,
          }),
        ]),
    ...(stalled.length === 0
      ? []
      : [
          problem('clients_stall', [], {
            severity: 'warning',
            title: `${counted(total(stalled), 'stream')} ended in the last ${recent.minutes} minutes because clients did not read`,
            short: 'clients do not read',
          }),
        ]),
  ];
}

function limits({ facts }: ProblemFacts): readonly Plain<Problem>[] {
  return facts.usage
    .filter(({ used, limit }) => limit > 0 && used >= bounds.limit * limit)
    .map(({ name, used, limit }) =>
      problem('limit_near', [name], {
        severity: used >= limit ? 'critical' : 'warning',
        title: `${name} is at ${Math.floor((100 * used) / limit)}%`,
        detail: `${used.toLocaleString('en')} of ${limit.toLocaleString('en')}`,
      }),
    );
}

/** A peer that has to wait for others, and works for a good part of the time. */
function heavyPeers({ status, facts }: ProblemFacts): readonly Plain<Problem>[] {
  return status.accounts
    .filter(({ waits, workPerSecond }) => waits && workPerSecond >= facts.workPerPeerMs)
    .map(({ key, connections, streams: open, heldBytes }) =>
      problem('peer_heavy', [key], {
        severity: 'warning',
        title: `${shorten(key, 200)} is throttled: it asks for more than its share of work`,
        short: 'a peer asks for more than its share of work',
        detail: `${counted(connections, 'connection')}, ${counted(open, 'stream')}, ${formatBytes(Number(heldBytes))} held for it alone`,
      }),
    );
}

function busy({ facts: { recent } }: ProblemFacts): readonly Plain<Problem>[] {
  if (recent.lagMs <= bounds.lagMs) return [];
  const title = `A process of the relay is busy: events wait for ${(recent.lagMs / 1000).toFixed(1)} s`;
  return [problem('busy', [], { severity: 'warning', title, short: 'the relay is busy' })];
}

function ambiguous({ status }: ProblemFacts): readonly Plain<Problem>[] {
  return status.types
    .filter((type) => type.ambiguous > 0)
    .map(({ type, ambiguous: count }) =>
      problem('ambiguous', [type], {
        severity: 'warning',
        title: `${counted(count, 'lookup')} of ${shorten(type, 80)} ${count === 1 ? 'matches' : 'match'} several variants`,
        type,
      }),
    );
}

/** A rollback freezes each of its types for the same reason. */
function frozen({ status: { rollout } }: ProblemFacts): readonly Plain<Problem>[] {
  const freezes = rollout?.freezes ?? [];
  const causes = Map.groupBy(freezes, ({ reason, operator, upstream }) =>
    JSON.stringify([reason, operator, upstream]),
  );
  return [...causes].flatMap(([key, own]) => {
    const [first] = own;
    if (first === undefined) return [];
    const { upstream, operator, reason } = first;
    const types = own.map(({ type }) => type || 'everything');
    const of = upstream === '' ? '' : ` of ${shorten(upstream, 60)}`;
    const what = `${types.join(', ')}${of}`;
    // Without a scope `unfreeze` ends every freeze there is.
    const scopes = causes.size === 1 ? [[]] : own.map(({ type }) => scopeFlags(type, upstream));
    return problem('frozen', [key], {
      severity: 'warning',
      title: `Frozen: ${what}`,
      short: `${what} ${types.length === 1 ? 'is' : 'are'} frozen`,
      detail: `${shorten(reason, 300)}; by ${shorten(operator, 200)}`,
      since: own.map(({ since }) => since).toSorted()[0] ?? '',
      commands: scopes.map((flags) => command('distributary unfreeze', ...flags, '--reason', '…')),
      upstream,
      type: own.length === 1 ? first.type : '',
    });
  });
}

/** Clients have what they had before, and the control plane believes that they have something else. */
function discarded({ facts }: ProblemFacts): readonly Plain<Problem>[] {
  if (facts.discarded === undefined) return [];
  const { names, types, upstreams, only, reason } = facts.discarded;
  const of = upstreams.map((upstream) => shorten(upstream, 60)).join(', ');
  const what = `${counted(names, 'name')} (${types.join(', ')}) of ${of}`;
  const [upstream = ''] = upstreams;
  return [
    problem('discarded', [], {
      severity: 'warning',
      title: 'A discarded change is still what the upstream sends',
      short: `${counted(names, 'name')} ${names === 1 ? 'was' : 'were'} discarded`,
      detail: [
        what,
        reason === '' ? '' : `reason: ${shorten(reason, 300)}`,
        'over when the upstream sends something else',
      ]
        .filter((part) => part !== '')
        .join('; '),
      commands: ['distributary diff --pending'],
      upstream: upstreams.length === 1 ? upstream : '',
      ...only,
    }),
  ];
}

function warnings({ status }: ProblemFacts): readonly Plain<Problem>[] {
  return status.warnings.map((warning) =>
    problem('configuration_dangerous', [warning], {
      severity: 'warning',
      title: 'The configuration is accepted with a warning',
      short: 'the configuration has a warning',
      detail: shorten(warning, 400),
    }),
  );
}
