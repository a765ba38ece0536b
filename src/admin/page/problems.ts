import type { ClassProblem, ListClassesResponse } from '../../gen/distributary/admin/v1/fleet_pb.ts';
import { errorText } from '../../model/error-text.ts';
import { shorten } from '../../model/text.ts';
import { formatBytes } from '../../observe/format.ts';
import type { Plain } from '../plain.ts';
import { type Problem, parametersLabel } from './model.ts';
import { counted, millisecondsOf, type ProblemInputs, problem } from './problem-parts.ts';
import { rolloutProblems, withoutCanary } from './rollout-problems.ts';

/** Of a limit: from here on it is a problem. */
const nearLimit = 0.8;
const dayMs = 86_400_000;
const certificateDays = { warn: 14, bad: 3 };
/** So many missing names of a type are listed one by one. */
const missingListed = 3;

/** What is wrong, the worst first: what is bad, and then what concerns the most clients, in the order of this list. */
export function problemsOf(inputs: ProblemInputs): readonly Problem[] {
  const found = [
    ...withoutCanary(inputs),
    ...notReady(inputs),
    ...upstreamsAway(inputs),
    ...rolloutProblems(inputs),
    ...rejections(inputs),
    ...unacknowledged(inputs),
    ...limits(inputs),
    ...heavyPeers(inputs),
    ...certificates(inputs),
    ...missing(inputs),
    ...ambiguous(inputs),
    ...warnings(inputs),
  ];
  return [
    ...found.filter(({ severity }) => severity === 'bad'),
    ...found.filter(({ severity }) => severity !== 'bad'),
  ];
}

/** The query of the page that lists such clients. */
const clientsQuery = (filters: Readonly<Record<string, string>>): string =>
  `?${new URLSearchParams(filters).toString()}#clients`;

/** Where the page shows who is served from where. */
const servedClients = { link: '?#fan-out', linkText: 'clients' };

const streams = (count: number): string => counted(count, 'client');

function notReady({ status }: ProblemInputs): readonly Problem[] {
  if (status.ready) return [];
  const detail = errorText(status.reason, 300);
  return [problem({ id: 'ready', severity: 'bad', title: 'Not ready', detail, runbook: 'not-ready' })];
}

function upstreamsAway({ status }: ProblemInputs): readonly Problem[] {
  return status.upstreams.flatMap(({ name, connected, stale, staleSince, lastError, refusedStreams }) => {
    const shown = shorten(name, 60);
    const about = { ...servedClients, since: millisecondsOf(staleSince), detail: errorText(lastError, 300) };
    if (!connected) {
      const title = `Upstream ${shown} is away`;
      const short = `\`${shown}\` away`;
      return problem({
        ...about,
        id: `away ${name}`,
        severity: 'bad',
        title,
        short,
        runbook: 'control-plane-away',
      });
    }
    if (stale) {
      const title = `What came from upstream ${shown} may be out of date`;
      return problem({ ...about, id: `stale ${name}`, title, runbook: 'control-plane-away' });
    }
    if (refusedStreams === 0) return [];
    const title = `Upstream ${shown} ends ${refusedStreams} of its streams`;
    return problem({ ...about, id: `refused ${name}`, title, runbook: 'upstream-streams-end' });
  });
}

const rejects = (clients: number): string => `${streams(clients)} ${clients === 1 ? 'rejects' : 'reject'}`;

/** Error × resource × class × clients. In the sentence, the clients of all classes are added up. */
function rejections({ classes }: ProblemInputs): readonly Problem[] {
  const all = ofKind(classes, 'REJECTED');
  const ofResource = ({ type, what }: Plain<ClassProblem>): string => JSON.stringify([type, what]);
  const totals = clientsBy(all, ofResource);
  return all.map((rejection) => {
    const { type, name, what, parameters, clients, error, version, since, class: of } = rejection;
    const label = shorten(parametersLabel(parameters), 120);
    const inAll = totals.get(ofResource(rejection)) ?? clients;
    const verb = clients === 1 ? 'rejects' : 'reject';
    return problem({
      id: `rejected ${JSON.stringify([type, what, of, error])}`,
      severity: 'bad',
      title: `${streams(clients)} with ${label} ${verb} ${shorten(type, 80)} ${shorten(what, 120)}`,
      short: `${rejects(inAll)} ${shorten(type, 40)}/${shorten(what, 60)}`,
      detail: `${errorText(error, 300)}${version === '' ? '' : ` (version ${shorten(version, 60)})`}`,
      since: millisecondsOf(since),
      runbook: 'clients-reject',
      link: clientsQuery({ type, state: 'ERROR', class: of, ...(name === '' ? {} : { resource: name }) }),
      linkText: 'clients',
    });
  });
}

function unacknowledged({ classes }: ProblemInputs): readonly Problem[] {
  const all = ofKind(classes, 'LATE');
  const totals = clientsBy(all, ({ type }) => type);
  const have = (count: number): string => (count === 1 ? 'has' : 'have');
  return all.map(({ type, parameters, clients, since, class: of }) => {
    const inAll = totals.get(type) ?? clients;
    const label = shorten(parametersLabel(parameters), 120);
    return problem({
      id: `late ${type} ${of}`,
      title: `${streams(clients)} with ${label} ${have(clients)} not acknowledged ${shorten(type, 80)}`,
      short: `${streams(inAll)} ${have(inAll)} not acknowledged ${shorten(type, 80)}`,
      since: millisecondsOf(since),
      runbook: 'clients-silent',
      link: clientsQuery({ type, state: 'STALE', class: of }),
      linkText: 'clients',
    });
  });
}

/** How many clients of all classes have the same problem. */
function clientsBy(
  problems: readonly Plain<ClassProblem>[],
  key: (problem: Plain<ClassProblem>) => string,
): ReadonlyMap<string, number> {
  const totals = new Map<string, number>();
  for (const one of problems) totals.set(key(one), (totals.get(key(one)) ?? 0) + one.clients);
  return totals;
}

/** What is asked for by name, and upstream says that it does not exist: one line for each type. */
function missing({ classes }: ProblemInputs): readonly Problem[] {
  return [...Map.groupBy(ofKind(classes, 'MISSING'), ({ type }) => type)].map(([type, all]) => {
    const shown = shorten(type, 80);
    const names = [...new Set(all.map(({ name }) => name))];
    const listed = names.slice(0, missingListed).map((name) => shorten(name, 80));
    const rest = names.length - listed.length;
    const list = `${listed.join(', ')}${rest > 0 ? ` and ${rest} more` : ''}; `;
    const which = names.length === 1 ? '' : list; // The title has a single one.
    const clients = all.reduce((sum, one) => sum + one.clients, 0);
    const [first] = names;
    const what = names.length === 1 ? `${shown} ${listed.join()}` : `${names.length} names of ${shown}`;
    return problem({
      id: `missing ${type}`,
      runbook: 'missing-resources',
      title: `${what} ${names.length === 1 ? 'is' : 'are'} asked for and missing`,
      detail: `${which}${counted(clients, 'subscription')}`,
      link: clientsQuery({ type, resource: first ?? '' }),
      linkText: names.length === 1 ? 'clients' : 'clients of the first',
    });
  });
}

function ambiguous({ status }: ProblemInputs): readonly Problem[] {
  return status.types
    .filter((type) => type.ambiguous > 0)
    .map(({ type, ambiguous: count }) =>
      problem({
        id: `ambiguous ${type}`,
        title: `${counted(count, 'lookup')} of ${shorten(type, 80)} ${count === 1 ? 'matches' : 'match'} several variants`,
        runbook: 'ambiguous-variants',
        link: `?${new URLSearchParams({ matrix: type }).toString()}#matrix`,
        linkText: 'variants',
      }),
    );
}

function limits({ facts }: ProblemInputs): readonly Problem[] {
  return facts.usage
    .filter(({ used, limit }) => limit > 0 && used >= nearLimit * limit)
    .map(({ name, used, limit }) =>
      problem({
        id: `limit ${name}`,
        severity: used >= limit ? 'bad' : 'warn',
        title: `${name} is at ${Math.floor((100 * used) / limit)} %`,
        detail: `${used.toLocaleString('en')} of ${limit.toLocaleString('en')}`,
        runbook: 'limits',
        ...servedClients,
      }),
    );
}

/** A peer that has to wait for others, and works for a good part of the time. */
function heavyPeers({ status, facts }: ProblemInputs): readonly Problem[] {
  return status.accounts
    .filter(({ waits, workPerSecond }) => waits && workPerSecond >= facts.workPerPeerMs)
    .map(({ key, connections, streams: open, heldBytes }) =>
      problem({
        id: `heavy ${key}`,
        title: `${shorten(key, 200)} waits for its turn: it asks for more than its share of work`,
        short: 'a peer asks for more than its share of work',
        detail: `${counted(connections, 'connection')}, ${counted(open, 'stream')}, ${formatBytes(Number(heldBytes))} held for it alone`,
        runbook: 'limits',
      }),
    );
}

function certificates({ facts, now }: ProblemInputs): readonly Problem[] {
  return [...facts.certificates]
    .filter(([, at]) => at - now < certificateDays.warn * dayMs)
    .map(([listener, at]) =>
      problem({
        id: `certificate ${listener}`,
        severity: at - now < certificateDays.bad * dayMs ? 'bad' : 'warn',
        title: `The certificate of ${listener} ${at < now ? 'has ended' : 'ends soon'}`,
        detail: new Date(at).toISOString(),
        until: at,
        runbook: 'certificates',
      }),
    );
}

function warnings({ status }: ProblemInputs): readonly Problem[] {
  return status.warnings.map((warning) =>
    problem({
      id: `warning ${warning}`,
      title: 'The configuration is dangerous',
      short: 'a warning about the configuration',
      detail: shorten(warning, 400),
    }),
  );
}

const ofKind = ({ problems }: Plain<ListClassesResponse>, kind: string): readonly Plain<ClassProblem>[] =>
  problems.filter((one) => one.kind === kind);
