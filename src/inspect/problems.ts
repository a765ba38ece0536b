import type { PageFacts, Plain } from '../admin/service.ts';
import type { StatusResponse } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ListClassesResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem } from '../gen/distributary/admin/v1/problems_pb.ts';
import type { RolloutStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import { errorText, shorten } from '../model/text.ts';
import { type CertificateState, certificateText } from '../observe/certificates.ts';
import { formatBytes, formatSeconds } from '../observe/format.ts';
import { rejections as reasons } from '../observe/metrics.ts';
import {
  countedLong as counted,
  discardCommand,
  noCanary,
  problemKinds,
  releaseCommand,
  severities,
} from '../observe/problems.ts';
import { missing, rejections, silent } from './client-problems.ts';
import {
  classOfProblem,
  command,
  fairShare,
  fileCommand,
  namesTold,
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
export function problemsOf(facts: ProblemFacts): {
  readonly problems: Plain<Problem>[];
  readonly moreProblems: number;
} {
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
  yield problem('not_ready', [], { severity: 'critical', title: 'The relay is not ready', detail, commands });
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
      yield problem('upstream_away', [name], { ...about, severity: 'critical', title, commands });
    } else if (stale && kind === 'filesystem') {
      const title = `The relay refuses files of upstream ${shown}`;
      yield problem('updates_refused', [name], { ...about, severity: 'warning', title });
    } else if (stale) {
      const title = `What came from upstream ${shown} may be out of date`;
      yield problem('upstream_stale', [name], { ...about, severity: 'warning', title });
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
  yield problem('upstream_streams_end', [name], { ...about, since, severity: 'warning', title, detail });
}

/** A change that waits, and what an operator can type. */
function* changeHeld({ status: { rollout }, facts }: ProblemFacts): Problems {
  if (rollout === undefined || (rollout.state !== 'HELD' && rollout.state !== 'CANARY')) return;
  const { pending, types, names, upstream, reason, since, noCanary: waits, queuedHeld } = rollout;
  const isHeld = rollout.state === 'HELD';
  const { total = 0, accepted = 0, rejected = 0, ended = 0 } = rollout.canaries ?? {};
  const what = `${counted(pending, 'name')} (${types.join(', ')}) of ${shorten(upstream, 60)}`;
  const canaries = `canaries: ${counted(total, 'stream')}, ${accepted} accepted, ${rejected} rejected, ${ended} disconnected`;
  const detail = [errorText(reason, 300), what, canaries].filter((part) => part !== '').join('; ');
  const about = { detail, since, upstream, ...onlyOf(types, names) };
  const end = endOfWait(since, facts);
  if (waits) {
    yield problem('change_held', [], {
      ...about,
      severity: 'critical',
      until: isHeld ? '' : end,
      title: `${isHeld ? 'A change is held' : 'A change waits'}: ${noCanary}`,
      short: `${isHeld ? 'a change is held' : 'a change waits'}: ${noCanary} (run ${releaseCommand})`,
      commands: [releaseCommand, discardCommand],
    });
  } else if (isHeld) yield held(about, queuedHeld);
  else yield changePending({ ...about, until: end }, rollout, facts);
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
function removalsHeld({ status, facts }: ProblemFacts): Problems {
  return status.upstreams.flatMap(({ name, heldRemovals }) =>
    heldRemovals.map(({ type, count, since }) => {
      const hold = facts.controlPlanes.get(name)?.maxRemovalHoldMs;
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

function* changesLate({ facts: { recent } }: ProblemFacts): Problems {
  const { acknowledged, late, rejections: rejected, minutes } = recent;
  const all = acknowledged + rejected;
  const failed = late + rejected;
  if (failed <= bounds.late.least || failed < bounds.late.warning * all) return;
  const share = Math.floor((100 * failed) / all);
  const title = `${share}% of the changes in the last ${minutes} minutes were late or rejected`;
  const detail = `${late.toLocaleString('en')} acknowledged after more than 1 s and ${rejected.toLocaleString('en')} rejected, of ${all.toLocaleString('en')}`;
  const severity = failed < bounds.late.critical * all ? 'warning' : 'critical';
  const short = `${share}% of changes are late or rejected`;
  yield problem('changes_late', [], { severity, title, short, detail });
}

function* workersRestart({ status, facts: { recent } }: ProblemFacts): Problems {
  if (recent.restarts <= bounds.restarts) return;
  const ended = status.workers.find(({ lastError }) => lastError !== '');
  const title = `Workers were restarted ${recent.restarts.toLocaleString('en')} times in the last hour`;
  const detail = ended === undefined ? '' : `worker ${ended.number}: ${errorText(ended.lastError, 300)}`;
  const short = 'workers exit and are restarted';
  yield problem('workers_restart', [], { severity: 'critical', title, short, detail });
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
    severity: 'warning',
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
    severity: 'warning',
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

const diskFailures = {
  cache: {
    short: 'the cache cannot be written to disk',
    effect: 'clients are still served, but a restart would begin with old data',
  },
  rollout: {
    short: 'the file rollout.json cannot be written to disk',
    effect: 'clients are still served, but a restart would forget what is frozen, discarded or found bad',
  },
  unread: {
    short: 'the file rollout.json could not be read',
    effect:
      'freezes, discards and held changes of before the start may be lost: look whether they are in force',
  },
};

function* disk({ facts, now }: ProblemFacts): Problems {
  if (facts.disk === undefined) return;
  const { failing, lagSeconds, path } = facts.disk;
  const commands = [fileCommand('df -h', path), fileCommand('ls -ld', path)];
  if (failing !== undefined) {
    const { short, effect } = diskFailures[failing.what];
    const title = short.charAt(0).toUpperCase() + short.slice(1);
    const detail = `${diskText.get(failing.reason) ?? failing.reason}; ${effect}`;
    const since = timestamp(failing.since);
    yield problem('disk_fails', [], { severity: 'warning', title, short, detail, since, commands });
  } else if (lagSeconds > bounds.diskLagSeconds) {
    const title = `A change has been waiting for the disk for ${formatSeconds(lagSeconds)}`;
    const since = timestamp(now - lagSeconds * 1000);
    const short = 'the disk is too slow';
    yield problem('disk_late', [], { severity: 'warning', title, short, since, commands });
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
      severity: 'warning',
      title: `Limits have refused clients ${counted(total(away), 'time')} in the last ${recent.minutes} minutes`,
      short: 'limits refuse clients',
      detail: byReason(away),
    });
  if (refused.length > 0)
    yield problem('clients_refused', [], {
      severity: 'warning',
      title: `Clients were not accepted ${counted(total(refused), 'time')} in the last ${recent.minutes} minutes`,
      short: 'clients are not accepted',
      detail: byReason(refused),
    });
  if (stalled.length > 0)
    yield problem('clients_stall', [], {
      severity: 'warning',
      title: `${counted(total(stalled), 'stream')} ended in the last ${recent.minutes} minutes because clients did not read`,
      short: 'clients do not read',
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
        severity: 'warning',
        title: `${shorten(key, 200)} is throttled: it asks for more than its share of work`,
        short: 'a peer asks for more than its share of work',
        detail: `${counted(connections, 'connection')}, ${counted(open, 'stream')}, ${formatBytes(Number(heldBytes))} held for it alone`,
      }),
    );
}

function* busy({ facts: { recent } }: ProblemFacts): Problems {
  if (recent.lagMs <= bounds.lagMs) return;
  const title = `A process of the relay is busy: events wait for ${(recent.lagMs / 1000).toFixed(1)} s`;
  yield problem('busy', [], { severity: 'warning', title, short: 'the relay is busy' });
}

function ambiguous({ status }: ProblemFacts): Problems {
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
      severity: 'warning',
      title: `Frozen: ${what}`,
      short: `${what} ${types.length === 1 ? 'is' : 'are'} frozen`,
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
    severity: 'warning',
    title: 'A discarded change is still what the upstream sends',
    short: `${counted(names, 'name')} ${names === 1 ? 'was' : 'were'} discarded`,
    detail: [what, why, until].filter((part) => part !== '').join('; '),
    commands: ['distributary diff --pending'],
    upstream: upstreams.length === 1 ? upstream : '',
    ...only,
  });
}

function warnings({ status }: ProblemFacts): Problems {
  return status.warnings.map((warning) =>
    problem('configuration_dangerous', [warning], {
      severity: 'warning',
      title: 'The configuration is accepted with a warning',
      short: 'the configuration has a warning',
      detail: shorten(warning, 400),
    }),
  );
}
