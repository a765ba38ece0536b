import type { StatusResponse } from '../../gen/distributary/admin/v1/admin_pb.ts';
import type { Change } from '../../gen/distributary/admin/v1/changes_pb.ts';
import type {
  ClassProblem,
  ClientClass,
  ListClassesResponse,
} from '../../gen/distributary/admin/v1/fleet_pb.ts';
import type { Problem } from '../../gen/distributary/admin/v1/problems_pb.ts';
import type {
  CheckStatus,
  RolloutStatus,
  TrafficCounts,
  TrafficStatus,
} from '../../gen/distributary/admin/v1/rollout_pb.ts';
import { counted, errorText, shorten } from '../../model/text.ts';
import { WILDCARD } from '../../model/transaction.ts';
import { verdictText } from '../../observe/format.ts';
import type { RecentLine } from '../../observe/log.ts';
import { parametersLabel } from '../../observe/problems.ts';
import type { Inspector, PageFacts, Plain } from '../service.ts';

/**
 * What the status page shows, as plain JSON: bounded in size, whatever the relay serves. Times are milliseconds since
 * the epoch (0: there is none), so that a page counts by itself and the model changes only when something has changed.
 */
export type PageModel = ReturnType<typeof pageModel>;

export type PageProblem = PageModel['problems'][number];
export type PageClass = PageModel['classes'][number];
export type PageVerdict = NonNullable<PageModel['change']>['verdicts'][number];
export type PageChart = NonNullable<PageVerdict['chart']>;

export interface PageLine {
  readonly name: string;
  /** `bound`: what must not be crossed; `other`: what is compared with. */
  readonly kind: 'value' | 'other' | 'bound';
  /** One for each point, or one for all. Null: there is none. */
  readonly values: readonly (number | null)[];
}

export interface ModelInputs {
  readonly status: Plain<StatusResponse>;
  readonly classes: Plain<ListClassesResponse>;
  readonly facts: PageFacts;
  readonly changes: readonly Plain<Change>[];
  readonly lines: readonly RecentLine[];
  readonly upstreamOf: Inspector['page']['upstreamOf'];
}

/** What a model lists at most. */
const most = {
  problems: 40,
  problemClasses: 12,
  classes: 80,
  upstreams: 40,
  types: 40,
  events: 50,
  names: 3,
  checks: 20,
  charts: 6,
  waves: 100,
};

/** Pure: the model has nothing that changes with time alone. */
export function pageModel(inputs: ModelInputs) {
  const { status, classes, facts, upstreamOf } = inputs;
  const { problems, moreProblems } = status;
  const shown = classes.classes.slice(0, most.classes);
  return {
    relay: {
      nodeId: shorten(status.nodeId, 200),
      host: shorten(status.host, 200),
      version: status.version,
      configuration: facts.configuration,
      configuredAt: facts.configuredAt,
      startedAt: facts.startedAt,
      ready: status.ready,
      readOnly: facts.readOnly,
      workers: status.workers.map(({ listening }) => ({ listening })),
    },
    clients: status.clients + status.pollingClients,
    problems: problems.slice(0, most.problems).map(pageProblem),
    moreProblems: moreProblems + Math.max(0, problems.length - most.problems),
    change: status.rollout && pageChange(status.rollout, status.waveClients),
    upstreams: status.upstreams.slice(0, most.upstreams).map(({ name, connected, stale }) => ({
      name,
      connected,
      stale,
      perParameters: facts.controlPlanes.get(name)?.variants === 'PER_PARAMETERS',
    })),
    classes: shown.map((one) => pageClass(one, classes.problems, upstreamOf)),
    otherClasses: otherClasses(classes, shown.length),
    types: status.types
      .slice(0, most.types)
      .map(({ type, resources }) => ({ type: shorten(type, 100), resources })),
    cacheBytes: Number(status.cacheBytes),
    events: events(inputs),
  };
}

/** Those that are not listed one by one. Of classes that are not in the answer at all, only the problems are known. */
function otherClasses({ classes, total, streams, problems }: Plain<ListClassesResponse>, shown: number) {
  const rest = classes.slice(shown);
  const known = new Set(classes.map(({ id }) => id));
  const beyond = problems.filter((problem) => !known.has(problem.class));
  const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
  const left = Math.max(0, streams - sum(classes.slice(0, shown).map((one) => one.streams)));
  /** A stream may have several problems: it counts once at most. */
  const those = (kind: string, of: 'rejecting' | 'late'): number => {
    const unlisted = beyond.filter((problem) => problem.kind === kind).map(({ clients }) => clients);
    return Math.min(left, sum([...rest.map((one) => one[of]), ...unlisted]));
  };
  return {
    classes: Math.max(0, total - shown),
    streams: left,
    rejecting: those('REJECTED', 'rejecting'),
    late: those('LATE', 'late'),
  };
}

/** Names may have kilobytes. */
function pageProblem(problem: Plain<Problem>, at: number) {
  const { upstream, type, name, classes } = problem;
  return {
    ...problem,
    // The first three are said in the sentence (`sentence`), and begin with who it is.
    short: shorten(problem.short, at < 3 ? 400 : 120),
    upstream: shorten(upstream, longestName),
    type: shorten(type, longestName),
    // A name that is cut would be another one.
    name: name.length > longestName ? '' : name,
    classes: classes.slice(0, most.problemClasses).map(({ class: of, parameters, clients }) => ({
      class: of,
      label: shorten(parametersLabel(parameters), 200),
      clients,
    })),
  };
}

/** A change that waits, the first that is held if several do. Undefined: none waits. */
function pageChange(rollout: Plain<RolloutStatus>, waveClients: Plain<StatusResponse>['waveClients']) {
  const { state, since, wave, waves, waveEnds = '', types, names, checks, traffic, canaries } = rollout;
  if (wave === 0) return undefined;
  const few = names.slice(0, most.names).map((name) => shorten(name, 100));
  const more = names.length > few.length ? ', …' : '';
  const verdicts = [
    ...(traffic === undefined ? [] : [{ of: 'traffic', said: traffic, chart: trafficChart(traffic) }]),
    ...checks
      .slice(0, most.checks)
      .map((check) => ({ of: `check ${check.name}`, said: check, chart: checkChart(check) })),
  ];
  return {
    state,
    since: millisecondsOf(since),
    what: `${types.join(', ')}: ${few.join(', ')}${more}`,
    wave,
    waves,
    ends: millisecondsOf(waveEnds),
    clients: waveClients.slice(0, most.waves + 1).map((counts, index) => ({
      clients: counts.clients,
      accepted: counts.accepted,
      rejected: counts.rejected,
      seconds: rollout.bakeSeconds[index] ?? 0,
    })),
    streams: canaries?.total ?? 0,
    accepted: canaries?.accepted ?? 0,
    rejected: canaries?.rejected ?? 0,
    verdicts: verdicts.map((one, index) => ({
      of: shorten(one.of, 120),
      state: one.said.state,
      reason: errorText(one.said.reason, 300),
      chart: index < most.charts ? one.chart : undefined,
    })),
  };
}

/** What a verdict was, over time. Without lines it says only whether all is well: for each point G (good), B (bad) or U. */
function checkChart({ recent, min, max }: Plain<CheckStatus>) {
  if (recent.length === 0) return undefined;
  const at = recent.map((one) => millisecondsOf(one.at));
  const values = recent.map(({ value }) => drawn(value));
  const known = values.filter((value) => value !== null);
  const states = recent.map(({ state }) => state);
  const answers = counted(recent.length, 'answer');
  const last = known.at(-1);
  if (last === undefined) {
    const said = [...Map.groupBy(states, (state) => state)].map(([state, all]) => `${all.length} ${state}`);
    const marks = states.map((state) => state.charAt(0)).join('');
    return { at, lines: [], marks, unit: '' as const, text: `${answers}: ${said.join(', ')}` };
  }
  const bounds = [
    ['min', drawn(min)],
    ['max', drawn(max)],
  ] as const;
  const lines: PageLine[] = [{ name: 'value', kind: 'value', values }];
  for (const [name, bound] of bounds)
    if (bound !== null) lines.push({ name: `${name} ${bound}`, kind: 'bound', values: [bound] });
  const [, ...drawnBounds] = lines.map(({ name }) => name);
  const range = `from ${Math.min(...known)} to ${Math.max(...known)}, the last ${last}`;
  return {
    at,
    lines,
    marks: '',
    unit: '' as const,
    text: [`${answers}: ${range}`, ...drawnBounds].join('; '),
  };
}

/** Percent of the requests that failed, in both cohorts. */
function trafficChart({ recent, maxErrorIncrease }: Plain<TrafficStatus>) {
  if (recent.length === 0) return undefined;
  const percent = (counts: Plain<TrafficCounts> | undefined): number | null =>
    counts === undefined || counts.requests === 0 ? null : drawn((counts.errors * 100) / counts.requests);
  const own = recent.map(({ canaries }) => percent(canaries));
  const others = recent.map((one) => percent(one.others));
  const bound = others.map((value) => (value === null ? null : drawn(value + maxErrorIncrease)));
  const lines: readonly PageLine[] = [
    { name: 'with the change', kind: 'value', values: own },
    { name: 'without it', kind: 'other', values: others },
    { name: 'bound', kind: 'bound', values: bound },
  ];
  const said = lines.map(({ name, values }) => `${name} ${values.at(-1) ?? 'unknown'}`).join(', ');
  return {
    at: recent.map((one) => millisecondsOf(one.at)),
    lines,
    marks: '',
    unit: '%' as const,
    text: `percent of requests that failed: ${said}`,
  };
}

/** With four digits; null: it cannot be drawn. */
const drawn = (value: number | undefined): number | null =>
  value === undefined || !Number.isFinite(value) ? null : Number(value.toPrecision(4));

const longestName = 500;

const millisecondsOf = (time: string): number => Date.parse(time) || 0;

/** `upstreams`: where what it subscribes to comes from, and how many of its streams reject some of it or are late with it. */
function pageClass(
  { id, parameters, restricted, streams, rejecting, late, subscriptions }: Plain<ClientClass>,
  problems: readonly Plain<ClassProblem>[],
  upstreamOf: Inspector['page']['upstreamOf'],
) {
  const names = new Set(subscriptions.flatMap(({ type, name }) => upstreamOf(type, name) ?? []));
  const own = problems.filter((problem) => problem.class === id);
  /** A stream may have several problems: it counts once at most. */
  const count = (kind: string, upstream: string, most: number): number => {
    const these = own.filter(
      ({ kind: is, type, name }) =>
        is === kind && upstreamOf(type, name === '' ? WILDCARD : name) === upstream,
    );
    return Math.min(
      most,
      these.reduce((sum, { clients }) => sum + clients, 0),
    );
  };
  return {
    id,
    label: shorten(parametersLabel(parameters), 200),
    restricted,
    streams,
    rejecting,
    late,
    upstreams: [...names].map((name) => ({
      name,
      rejecting: count('REJECTED', name, rejecting),
      late: count('LATE', name, late),
    })),
  };
}

/** Changes of resources, and what the log says, in one list. */
function events({ changes, lines }: ModelInputs) {
  const logged = lines.map(({ at, level, message, fields }) => ({
    at,
    level,
    revision: 0,
    text: message,
    detail: fields,
  }));
  return [...changes.map(changeEvent), ...logged].toSorted((a, b) => b.at - a.at).slice(0, most.events);
}

function changeEvent(change: Plain<Change>) {
  const { revision, since, upstream, type, names, reason } = change;
  const where = verdictText(change);
  const counts = [
    ['added', change.added],
    ['changed', change.changed],
    ['removed', change.removed],
  ] as const;
  const what = counts.filter(([, count]) => count > 0).map(([verb, count]) => `${count} ${verb}`);
  const shown = names.slice(0, most.names).map(({ name }) => shorten(name, 80));
  const rest = names.length - shown.length;
  const who = upstream === '' ? `an operator (${shorten(reason, 100)})` : shorten(upstream, 60);
  return {
    at: millisecondsOf(since),
    level: 'info' as const,
    revision,
    text: `${type}: ${what.join(', ')} by ${who}${where === 'RELEASED' ? '' : `, ${where.toLowerCase()}`}`,
    detail: `${shown.join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`,
  };
}
