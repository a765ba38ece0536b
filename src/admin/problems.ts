import { resolve } from 'node:path';
import { create } from '@bufbuild/protobuf';
import type { AdsUpstreamConfig } from '../config/config.ts';
import type { StatusResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ClassProblem, ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import { type Problem, type ProblemClass, ProblemSchema } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { contentHash } from '../model/payloads.ts';
import { errorText, printable, shorten } from '../model/text.ts';
import { WILDCARD } from '../model/transaction.ts';
import { isGlob } from '../model/xdstp.ts';
import { type CertificateState, certificateText } from '../observe/certificates.ts';
import { canariesText, formatBytes, formatSeconds } from '../observe/format.ts';
import {
  command,
  countedLong as counted,
  discardCommand,
  type Kind,
  missingText,
  noCanary,
  parametersLabel,
  problemKinds,
  releaseCommand,
  severities,
} from '../observe/problems.ts';
import { rejections as reasons } from '../observe/rejections.ts';
import { classOfProblem, fairShare } from './fleet-survey.ts';
import type { PageFacts, Plain } from './service.ts';

/** What Status says beside its problems and what clients reject. */
export type KnownStatus = Omit<
  Plain<StatusResponse>,
  'problems' | 'moreProblems' | 'nacks' | 'rejectingClients'
>;

interface ProblemFacts {
  readonly status: KnownStatus;
  readonly classes: Plain<ListClassesResponse>;
  readonly facts: PageFacts;
  readonly now: number;
}

/** What an answer lists at most. */
const mostProblems = 100;
const day = 86_400_000;
/** The bounds of the alerts (deploy/observability/alerts.yaml). */
const bounds = {
  /** Of a limit: from here on it is a problem. */
  limit: 0.8,
  /** The lesser of a time and a share of the lifetime: many certificates live for hours. */
  certificate: { warning: { time: 7 * day, share: 0.25 }, critical: { time: day, share: 0.1 } },
  diskLagSeconds: 300,
  lagMs: 500,
  restarts: 2,
  /** The share of changes that may fail, and so many must fail at least. */
  late: { warning: 0.06, critical: 0.144, least: 10 },
};

type Problems = Iterable<Plain<Problem>>;

/** Pure: what is wrong, the worst first, one problem for each cause. */
export function problemsOf(facts: ProblemFacts) {
  const found = [...finders.values().flatMap((find) => find(facts))].toSorted(worstFirst);
  // Clients can make any number of causes: they drive out no other kind, and no other class.
  const byClass = fairShare(
    found,
    ({ kind, classes: [first] }) => `${kind} ${classOfProblem(first)}`,
    found.length,
  );
  const listed = fairShare(byClass, ({ kind }) => kind, mostProblems);
  return { problems: listed.toSorted(worstFirst), moreProblems: found.length - listed.length };
}

const finders: readonly ((facts: ProblemFacts) => Problems)[] = [
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

function* notReady({ status }: ProblemFacts): Problems {
  if (status.ready) return;
  const detail = errorText(status.reason, 300);
  const commands = ['distributary status'];
  yield problem('not_ready', [], { title: 'The relay is not ready', detail, commands });
}

function* upstreams({ status, facts }: ProblemFacts): Problems {
  for (const upstream of status.upstreams) {
    const { name, kind, connected, stale, staleSince, lastError, staleReason, refusedStreams } = upstream;
    const shown = shorten(name, 60);
    const detail = errorText(lastError || staleReason, 300);
    const about = { upstream: name, since: staleSince, detail };
    if (!connected) {
      const title = `Upstream ${shown} is unreachable`;
      const commands = [reach(kind, upstream.endpoint, facts.controlPlanes.get(name)?.tls)];
      yield problem('upstream_away', [name], { ...about, title, commands });
    } else if (stale && kind === 'filesystem') {
      const title = `The relay refuses files of upstream ${shown}`;
      const commands = [fileCommand('distributary validate --config', facts.file)];
      yield problem('updates_refused', [name], { ...about, title, commands });
    } else if (stale) {
      const title = `What came from upstream ${shown} may be out of date`;
      yield problem('upstream_stale', [name], { ...about, title });
    } else yield* streamsEnd(upstream, refusedStreams, about);
  }
}

function* streamsEnd(
  { name, suspectTypes }: Plain<StatusResponse>['upstreams'][number],
  refused: number,
  about: Partial<Plain<Problem>>,
): Problems {
  if (refused === 0 && suspectTypes.length === 0) return;
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
  yield problem('upstream_streams_end', [name], { ...about, since, title, detail });
}

/** A change that waits, and what an operator can type. */
function* changeHeld({ status: { rollout }, facts }: ProblemFacts): Problems {
  if (rollout === undefined || (rollout.state !== 'HELD' && rollout.state !== 'CANARY')) return;
  const { pending, types, names, upstream, reason, since, state } = rollout;
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${shorten(upstream, 60)}`;
  const canaries = `canaries: ${canariesText(state, rollout.canaries)}`;
  // With `mode: MANUAL` only an operator ends it.
  const isTimed = facts.rollout !== undefined && facts.rollout.mode !== 'MANUAL' && state !== 'HELD';
  const [type = ''] = types;
  const [name = ''] = names;
  const about = {
    detail: [errorText(reason, 300), what, canaries].filter((part) => part !== '').join('; '),
    since,
    until: isTimed ? timeAfter(since, facts.rollout.maxWaitMs) : '',
    upstream,
    // Which resource waits, where it is of one type.
    ...(types.length === 1 ? { type, name } : {}),
  };
  yield waiting(about, rollout, facts.rollout?.mode === 'MANUAL');
}

/** What is typed first must not give to everybody what canaries have found bad, nor decide on another change. */
function waiting(
  about: Partial<Plain<Problem>>,
  { state, noCanary: waits, queuedHeld, waves }: Plain<RolloutStatus>,
  isManual: boolean,
): Plain<Problem> {
  const isHeld = state === 'HELD';
  if (waits) {
    const title = `${isHeld ? 'A change is held' : 'A change waits'}: ${noCanary}`;
    const short = `a${title.slice(1)} (run ${releaseCommand})`;
    return problem('change_held', [], { ...about, title, short, commands: [releaseCommand, discardCommand] });
  }
  const pending = 'distributary diff --pending';
  if (isHeld) {
    const title = queuedHeld ? 'A change that nobody has is held' : 'A change is held';
    const commands = queuedHeld ? [pending] : [discardCommand, releaseCommand];
    return problem('change_held', [], { ...about, title, commands });
  }
  const goOn = waves > 1 ? 'distributary promote --reason "…"' : releaseCommand;
  return problem('change_pending', [], {
    ...about,
    title: `A change waits for ${isManual ? 'an operator' : 'its canaries, checks or traffic'}`,
    commands: [pending, ...(isManual ? [goOn] : [])],
  });
}

/** Of gated types the rollout holds them, until somebody decides. */
function removalsHeld({ status, facts }: ProblemFacts): Problems {
  return status.upstreams.flatMap(({ name, heldRemovals }) =>
    heldRemovals.map(({ type, count, since }) => {
      const hold = facts.controlPlanes.get(name)?.maxRemovalHoldMs;
      const are = count === 1 ? 'is' : 'are';
      return problem('removals_held', [name, type], {
        title: `${counted(count, 'removal')} of ${shorten(type, 80)} from ${shorten(name, 60)} ${are} held back`,
        since,
        until: hold === undefined ? '' : timeAfter(since, hold),
        commands: [command('distributary release', '--upstream', name, '--type', type, '--reason', '…')],
        upstream: name,
        type,
      });
    }),
  );
}

function* changesLate({ facts: { recent } }: ProblemFacts): Problems {
  const { acknowledged, late, rejections: rejected, minutes } = recent;
  const all = acknowledged + rejected;
  const failed = late + rejected;
  if (failed <= bounds.late.least || failed < bounds.late.warning * all) return;
  const share = Math.floor((100 * failed) / all);
  const title = `${share}% of the changes in the last ${minutes} minutes were late or rejected`;
  const detail = `${late.toLocaleString('en')} acknowledged after more than 1 s and ${rejected.toLocaleString('en')} rejected, of ${all.toLocaleString('en')}`;
  const severity = failed < bounds.late.critical * all ? 'warning' : 'critical';
  yield problem('changes_late', [], { severity, title, detail });
}

function* workersRestart({ status, facts: { recent } }: ProblemFacts): Problems {
  if (recent.restarts <= bounds.restarts) return;
  const ended = status.workers.find(({ lastError }) => lastError !== '');
  const title = `Workers were restarted ${recent.restarts.toLocaleString('en')} times in the last hour`;
  const detail = ended === undefined ? '' : `worker ${ended.number}: ${errorText(ended.lastError, 300)}`;
  yield problem('workers_restart', [], { title, detail });
}

/** One file is one cause, whoever uses it: often a relay has one certificate for everything. */
function* certificates({ facts, now }: ProblemFacts): Problems {
  for (const [file, all] of Map.groupBy(facts.certificates, (one) => one.file)) {
    yield* certificateExpires(file, all, now);
    yield* certificateRefused(file, all);
  }
}

function* certificateExpires(file: string, all: readonly CertificateState[], now: number): Problems {
  const [first] = all.toSorted((one, other) => (one.expiresAt ?? Infinity) - (other.expiresAt ?? Infinity));
  const { expiresAt: at = Infinity, validFrom = -Infinity } = first ?? {};
  const within = ({ time, share }: typeof bounds.certificate.warning) =>
    Math.min(time, share * (at - validFrom));
  const [warning, critical] = [within(bounds.certificate.warning), within(bounds.certificate.critical)];
  if (at - now >= warning) return;
  const severity = at - now < critical ? 'critical' : 'warning';
  const soon = formatSeconds((severity === 'critical' ? critical : warning) / 1000);
  const verb = at < now ? 'has expired' : `expires within ${soon}`;
  yield problem('certificate_expires', [file], {
    ...ofOwners(all),
    severity,
    title: `The ${certificateText(all)} ${verb}`,
    detail: `${shorten(file, 300)}: valid until ${timestamp(at)}`,
    since: timestamp(at < now ? at : at - warning),
    until: at < now ? '' : timestamp(at),
    commands: [fileCommand('openssl x509 -noout -subject -enddate -in', file)],
  });
}

function* certificateRefused(file: string, all: readonly CertificateState[]): Problems {
  const refusals = all.flatMap(({ refused }) => refused ?? []);
  const [first] = refusals;
  if (first === undefined) return;
  const concerned = all.filter(({ refused }) => refused !== undefined);
  yield problem('certificate_refused', [file], {
    ...ofOwners(concerned),
    title: `The new ${certificateText(concerned)} is refused`,
    detail: `${errorText(first.error, 300)}; the previous ${concerned.every(({ kind }) => kind === 'ca') ? 'file' : 'certificate'} stays in use`,
    since: timestamp(Math.min(...refusals.map(({ since }) => since))),
  });
}

function ofOwners(all: readonly CertificateState[]): Pick<Plain<Problem>, 'upstream'> {
  const [first] = all.flatMap(({ owner }) => ('upstream' in owner ? owner.upstream : []));
  return { upstream: first ?? '' };
}

function* configuration({ facts: { refusedConfiguration } }: ProblemFacts): Problems {
  if (refusedConfiguration === undefined) return;
  const { file, problems, since } = refusedConfiguration;
  const told = problems.slice(0, namesTold).map((one) => shorten(one, 300));
  const rest = problems.length - told.length;
  yield problem('configuration_refused', [], {
    title: 'The new configuration is refused',
    detail: `${told.join('; ')}${rest > 0 ? `; and ${rest} more` : ''}`,
    since: timestamp(since),
    commands: [fileCommand('distributary validate --config', file)],
  });
}

/** Of control planes; files are in `upstreams`. */
function updatesRefused({ status, facts: { recent } }: ProblemFacts): Problems {
  const files = new Set(status.upstreams.filter(({ kind }) => kind === 'filesystem').map(({ name }) => name));
  return recent.refusedUpdates
    .filter(({ upstream }) => !files.has(upstream))
    .map(({ upstream, type, count, reason }) =>
      problem('updates_refused', [upstream, type], {
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

const diskFailures = {
  cache: {
    title: 'The cache cannot be written to disk',
    effect: 'clients are still served, but a restart would begin with old data',
  },
  rollout: {
    title: 'The file rollout.json cannot be written to disk',
    effect: 'clients are still served, but a restart would forget what is frozen, discarded or found bad',
  },
  unread: {
    title: 'The file rollout.json could not be read',
    effect:
      'freezes, discards and held changes of before the start may be lost: look whether they are in force',
  },
};

function* disk({ facts, now }: ProblemFacts): Problems {
  if (facts.disk === undefined) return;
  const { failing, lagSeconds, path } = facts.disk;
  const commands = [fileCommand('df -h', path), fileCommand('ls -ld', path)];
  for (const { what, reason, since } of failing) {
    const { title, effect } = diskFailures[what];
    const detail = `${diskText.get(reason) ?? reason}; ${effect}`;
    yield problem('disk_fails', [what], { title, detail, since: timestamp(since), commands });
  }
  if (failing.length === 0 && lagSeconds > bounds.diskLagSeconds) {
    const title = `A change has been waiting for the disk for ${formatSeconds(lagSeconds)}`;
    const since = timestamp(now - lagSeconds * 1000);
    yield problem('disk_late', [], { title, since, commands });
  }
}

function* turnedAway({ facts: { recent } }: ProblemFacts): Problems {
  const away = recent.turnedAway.filter(({ reason }) => reasons.get(reason)?.because === 'LIMIT');
  const refused = recent.turnedAway.filter(({ reason }) => reasons.get(reason)?.because === 'CLIENT');
  const stalled = recent.turnedAway.filter(({ reason }) => reason === 'stalled');
  const total = (all: typeof away): number => all.reduce((sum, { count }) => sum + count, 0);
  const byReason = (all: typeof away): string =>
    all.map(({ reason, count }) => `${reason}: ${count.toLocaleString('en')}`).join(', ');
  if (away.length > 0)
    yield problem('clients_turned_away', [], {
      title: `Limits have refused clients ${counted(total(away), 'time')} in the last ${recent.minutes} minutes`,
      detail: byReason(away),
    });
  if (refused.length > 0)
    yield problem('clients_refused', [], {
      title: `Clients were not accepted ${counted(total(refused), 'time')} in the last ${recent.minutes} minutes`,
      detail: byReason(refused),
    });
  if (stalled.length > 0)
    yield problem('clients_stall', [], {
      title: `${counted(total(stalled), 'stream')} ended in the last ${recent.minutes} minutes because clients did not read`,
    });
}

function limits({ facts }: ProblemFacts): Problems {
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
function heavyPeers({ status, facts }: ProblemFacts): Problems {
  return status.accounts
    .filter(({ waits, workPerSecond }) => waits && workPerSecond >= facts.workPerPeerMs)
    .map(({ key, connections, streams: open, heldBytes }) =>
      problem('peer_heavy', [key], {
        title: `${shorten(key, 200)} is throttled: it asks for more than its share of work`,
        detail: `${counted(connections, 'connection')}, ${counted(open, 'stream')}, ${formatBytes(Number(heldBytes))} held for it alone`,
      }),
    );
}

function* busy({ facts: { recent } }: ProblemFacts): Problems {
  if (recent.lagMs <= bounds.lagMs) return;
  const title = `A process of the relay is busy: events wait for ${(recent.lagMs / 1000).toFixed(1)} s`;
  yield problem('busy', [], { title });
}

function ambiguous({ status }: ProblemFacts): Problems {
  return status.types
    .filter((type) => type.ambiguous > 0)
    .map(({ type, ambiguous: count }) =>
      problem('ambiguous', [type], {
        title: `${counted(count, 'lookup')} of ${shorten(type, 80)} ${count === 1 ? 'matches' : 'match'} several variants`,
        type,
      }),
    );
}

/** A rollback freezes each of its types for the same reason. */
function* frozen({ status: { rollout } }: ProblemFacts): Problems {
  const freezes = rollout?.freezes ?? [];
  const causes = Map.groupBy(freezes, ({ reason, operator, upstream }) =>
    JSON.stringify([reason, operator, upstream]),
  );
  for (const [key, own] of causes) {
    const [first] = own;
    if (first === undefined) continue;
    const { upstream, operator, reason } = first;
    const types = own.map(({ type }) => type || 'everything');
    const of = upstream === '' ? '' : ` of ${shorten(upstream, 60)}`;
    const what = `${types.join(', ')}${of}`;
    // Without a scope `unfreeze` ends every freeze there is.
    const scopes = causes.size === 1 ? [[]] : own.map(({ type }) => scopeFlags(type, upstream));
    yield problem('frozen', [key], {
      title: `Frozen: ${what}`,
      detail: `${shorten(reason, 300)}; by ${shorten(operator, 200)}`,
      since: own.map(({ since }) => since).toSorted()[0] ?? '',
      commands: scopes.map((flags) => command('distributary unfreeze', ...flags, '--reason', '…')),
      upstream,
      type: own.length === 1 ? first.type : '',
    });
  }
}

/** Clients have what they had before, and the control plane believes that they have something else. */
function* discarded({ facts }: ProblemFacts): Problems {
  if (facts.discarded === undefined) return;
  const { names, types, upstreams, only, reason } = facts.discarded;
  const of = upstreams.map((upstream) => shorten(upstream, 60)).join(', ');
  const what = `${counted(names, 'name')} (${types.join(', ')}) of ${of}`;
  const [upstream = ''] = upstreams;
  const why = reason === '' ? '' : `reason: ${shorten(reason, 300)}`;
  const until = 'over when the upstream sends something else';
  yield problem('discarded', [], {
    title: 'A discarded change is still what the upstream sends',
    detail: [what, why, until].filter((part) => part !== '').join('; '),
    commands: ['distributary diff --pending'],
    upstream: upstreams.length === 1 ? upstream : '',
    ...only,
  });
}

function warnings({ status }: ProblemFacts): Problems {
  return status.warnings.map((warning) =>
    problem('configuration_dangerous', [warning], {
      title: 'The configuration is accepted with a warning',
      detail: shorten(warning, 400),
    }),
  );
}

/* What is wrong at clients, by the answer about their classes. */

/** Of each problem. */
const mostClasses = 40;

/**
 * One error about one resource is one cause, whatever the classes of the clients that say it. Who was sent several
 * resources at once says the same error of all of them.
 */
function rejections({ classes }: ProblemFacts): Problems {
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
      title: `${whoText(concerned)} ${verb} ${shorten(type, 80)} ${shorten(what, 120)}`,
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

function silent({ classes }: ProblemFacts): Problems {
  return [...Map.groupBy(ofKind(classes, 'LATE'), ({ type }) => type)].map(([type, rows]) => {
    const concerned = concernedBy(rows);
    const { clients } = concerned;
    const have = clients === 1 ? 'has' : 'have';
    return problem('clients_silent', [type], {
      ...concerned,
      title: `${whoText(concerned)} ${have} not acknowledged ${shorten(type, 80)}`,
      commands: [command('distributary clients', '--type', type, '--state', 'STALE')],
      type,
    });
  });
}

/**
 * What the same clients ask for by name, and does not exist for them, is one cause. What exists for nobody is for
 * information: it may not be there yet.
 */
function missing({ classes }: ProblemFacts): Problems {
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
    const listed = names.slice(0, namesTold).map(([row]) => shorten(row?.name ?? '', 80));
    const rest = names.length - listed.length;
    const all = `${listed.join(', ')}${rest > 0 ? ` and ${rest.toLocaleString('en')} more` : ''}`;
    const get = clients === 1 ? 'gets' : 'get';
    // What is nearest to one class is not to another.
    const nearest = rows.every((row) => row.nearest === first.nearest) ? first.nearest : '';
    const why = first.why === '' ? '' : `: ${missingText({ ...first, nearest })}`;
    const [parameters = {}] = rows.map((row) => row.parameters);
    const given = Object.entries(parameters).flatMap(([key, value]) => ['--param', `${key}=${value}`]);
    return problem('missing', [type, JSON.stringify(names.map(([row]) => row?.name))], {
      ...concerned,
      severity: first.elsewhere ? 'warning' : 'info',
      title: `${whoText(concerned)} ${get} no ${shorten(type, 80)} ${all}${why}`,
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
  const byClass = Map.groupBy(rows, classOfProblem);
  const classes = [...byClass.values()].flatMap((own): Plain<ProblemClass>[] => {
    const [first] = own;
    if (first === undefined) return [];
    const clients = own.reduce((sum, row) => sum + row.clients, 0);
    return [{ class: first.class, parameters: first.parameters, clients }];
  });
  const since = rows.map((row) => row.since).filter((time) => time !== '');
  return {
    clients: rows.reduce((sum, row) => sum + row.clients, 0),
    classes: classes.toSorted((a, b) => b.clients - a.clients).slice(0, mostClasses),
    since: since.toSorted()[0] ?? '',
  };
}

/** `11 clients with env=prod`, `113 clients of 20 classes`. */
function whoText({ clients, classes }: Concerned): string {
  const [first] = classes;
  if (classes.length !== 1 || first === undefined)
    return `${counted(clients, 'client')} of ${classes.length < mostClasses ? '' : 'at least '}${classes.length} classes`;
  return `${counted(clients, 'client')} with ${shorten(parametersLabel(first.parameters), 120)}`;
}

/** Names of resources that a text has at most. */
const namesTold = 3;

type Known = Partial<Plain<Problem>> & Pick<Plain<Problem>, 'title'>;

/** `key`: what makes it the same problem the next time. */
function problem(kind: Kind, key: readonly string[], known: Known): Plain<Problem> {
  const all = { ...nothingYet, severity: problemKinds[kind].severity, ...known };
  return {
    ...all,
    id: contentHash(JSON.stringify([kind, ...key])),
    kind,
    runbook: problemKinds[kind].runbook,
    title: printable(all.title),
    // It stands within a sentence.
    short: printable(known.short ?? all.title.charAt(0).toLowerCase() + all.title.slice(1)),
    detail: printable(all.detail),
    commands: (known.commands ?? []).filter((one) => one !== ''),
  };
}

const { $typeName: _, ...nothingYet } = create(ProblemSchema);

/** The operator's shell is in another directory than the relay. */
const fileCommand = (verb: string, file: string): string => command(verb, resolve(file));

/** From the relay's machine, as the relay connects: is there anything at this address, and which certificate does it show? */
function reach(kind: string, endpoint: string, tls: AdsUpstreamConfig['tls']): string {
  if (kind === 'filesystem') return fileCommand('ls -l', endpoint);
  if (endpoint.startsWith('unix:')) return fileCommand('ls -l', endpoint.slice('unix:'.length));
  if (endpoint === '') return '';
  const { serverName, ca, identity } = tls ?? {};
  return command(
    'distributary reach',
    ...['--endpoint', endpoint],
    ...(tls === undefined ? [] : ['--tls']),
    ...(serverName === undefined ? [] : ['--server-name', serverName]),
    ...(ca === undefined ? [] : ['--ca', resolve(ca)]),
    ...(identity === undefined
      ? []
      : ['--cert', resolve(identity.certificate), '--key', resolve(identity.privateKey)]),
  );
}

/** `resources` takes a name and a star. */
const globFlags = (name: string): readonly string[] =>
  name === WILDCARD ? [] : ['--name', name.slice(0, name.indexOf('*') + 1)];

const scopeFlags = (type: string, upstream: string): readonly string[] => [
  ...(upstream === '' ? [] : ['--upstream', upstream]),
  ...(type === '' ? [] : ['--type', type]),
];

export const timestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();

function timeAfter(since: string, milliseconds: number): string {
  const at = Date.parse(since);
  return Number.isNaN(at) ? '' : timestamp(at + milliseconds);
}
