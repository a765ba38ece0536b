import type { Clock } from '../model/clock.ts';
import type { LoadOrigin, ReportedTraffic } from '../model/load.ts';
import { type Change, type HeardChange, type Opinion, objection, type VerdictSource } from './changes.ts';
import type { RolloutSettings } from './judge.ts';
import type { CanaryStream } from './waiting.ts';

/** Requests that clients have sent. Successes and errors are requests. */
export interface Tally {
  requests: number;
  errors: number;
  /** Over so much time, of all that are counted together, and in so many reports. */
  seconds: number;
  reports: number;
  /** The reports as a number: old ones count less in all else. */
  heard: number;
  /** The sum of the squares of the requests of each report. */
  squares: number;
  /** The sum of the squares of the errors of each report, each by its requests. */
  errorSquares: number;
}

/** A client that reports. */
export type ComparedClient = Readonly<Pick<Reporting, 'counted' | 'usual' | 'origin'>>;

export type TrafficSettings = NonNullable<RolloutSettings['traffic']>;
type TrafficBounds = Omit<TrafficSettings, 'intervalMs'>;

/** Of the clients that have a change, and of those that have not. */
type Cohorts<T> = Readonly<Record<'canaries' | 'others', T>>;

/** What traffic says of a change, in one class of clients. Where there are no others, they are the canaries before it. */
export interface TrafficVerdict extends Cohorts<Readonly<Tally>> {
  readonly state: 'GOOD' | 'BAD' | 'UNKNOWN';
  /** For people. */
  readonly reason: string;
}

export const noRequests = (): Tally => tallyOf(0, 0, 0, 0);

/** One report. */
export const reported = (requests: number, errors: number, seconds: number): Tally =>
  tallyOf(requests, errors, seconds, 1);

const tallyOf = (requests: number, errors: number, seconds: number, reports: number): Tally => ({
  requests,
  errors,
  seconds,
  reports,
  heard: reports,
  squares: requests ** 2,
  errorSquares: requests === 0 ? 0 : errors ** 2 / requests,
});

const fading = ['requests', 'errors', 'seconds', 'reports', 'squares', 'errorSquares'] as const;

/** What there was counts as much as `weight` says: 1 is all of it. */
export function addTo(sum: Tally, more: Readonly<Tally>, weight: number): void {
  for (const key of fading) sum[key] = sum[key] * weight + more[key];
  sum.heard += more.heard;
}

export function sumOf(tallies: Iterable<Readonly<Tally>>): Tally {
  const sum = noRequests();
  for (const one of tallies) addTo(sum, one, 1);
  return sum;
}

/** Chance alone may find something bad so often, each time it is asked. */
const falseAlarms = 1 / 1000;
/** What is usual shows in so many reports. A client that has just come has said little so far. */
const leastReports = 6;
/** So many clients show how much they differ. */
const fewest = 3;

/**
 * Compares the clients that have a change with those that have not, or with themselves before it. Something is bad if it
 * is beyond its bound, and if chance does not explain it (docs/adr/0161). `classes`: as many comparisons are made for
 * the change.
 */
export function compareTraffic(
  clients: Cohorts<readonly ComparedClient[]>,
  bounds: TrafficBounds,
  classes: number,
): TrafficVerdict {
  const counted = countedOf(clients);
  const { canaries, others } = counted;
  const otherwise = clients.others.length === 0 ? 'before' : 'at the others';
  const { minRequests, maxErrorIncrease, maxRequestDrop } = bounds;
  const limit = Math.log(classes / falseAlarms);
  if (canaries.seconds === 0)
    return { state: 'UNKNOWN', reason: whyNothingCounts(clients.canaries), ...counted };
  if (others.requests < minRequests) {
    const reason = `${amount(others.requests)} requests ${otherwise}: min_requests is ${minRequests}`;
    return { state: 'UNKNOWN', reason, ...counted };
  }
  const compared = comparedOf(clients);
  const known = comparedOf(ofKnown(clients));
  if (isDrop(known, bounds, limit)) {
    const reason = `${perSecond(known.counted.canaries)} requests a second for each client that has it, ${perSecond(known.counted.others)} ${otherwise}: max_request_drop is ${maxRequestDrop} percent`;
    return { state: 'BAD', reason, ...counted };
  }
  const errors = `${percent(canaries)} of ${amount(canaries.requests)} requests failed for clients that have it, ${percent(others)} of ${amount(others.requests)} ${otherwise}`;
  if (canaries.requests < minRequests)
    return { state: 'UNKNOWN', reason: `${errors}: min_requests is ${minRequests}`, ...counted };
  if (!isRise(compared, bounds, limit)) return { state: 'GOOD', reason: errors, ...counted };
  return { state: 'BAD', reason: `${errors}: max_error_increase is ${maxErrorIncrease} points`, ...counted };
}

/** Without others the canaries are compared with themselves before it. */
function countedOf({ canaries, others }: Cohorts<readonly ComparedClient[]>): Cohorts<Tally> {
  const compared =
    others.length === 0 ? canaries.map(({ usual }) => usual) : others.map(({ counted }) => counted);
  return { canaries: sumOf(canaries.map(({ counted }) => counted)), others: sumOf(compared) };
}

/** Clients have accepted a change, and nothing that they have reported is about it alone. */
function whyNothingCounts(canaries: readonly ComparedClient[]): string {
  const whole = canaries.filter(({ origin }) => !origin.isPartial);
  if (whole.length === 0)
    return 'only relays that hold something back have accepted it, by a rollout or a freeze of their own: what they report is also of clients that do not have it';
  const stages = Math.min(...whole.map(({ origin }) => origin.stages));
  const times = stages === 0 ? 'twice' : `${stages + 2} times`;
  return `no client that has it has reported ${times} since it accepted it`;
}

const isRelay = ({ origin }: ComparedClient): boolean => origin.stages > 0;
const isKnown = ({ usual }: Pick<ComparedClient, 'usual'>): boolean => usual.heard >= leastReports;

/**
 * Only clients of which it is known how many requests they had before can be compared with that. A relay has those of as
 * many clients as it happens to have: with one among them nobody is compared of whom it is not known.
 */
function ofKnown(clients: Cohorts<readonly ComparedClient[]>): Cohorts<readonly ComparedClient[]> {
  const canaries = clients.canaries.filter(isKnown);
  if (clients.others.length === 0) return { canaries, others: [] };
  if (![...clients.canaries, ...clients.others].some(isRelay)) return clients;
  const others = clients.others.filter(isKnown);
  return others.length === 0 ? { canaries: [], others: clients.others } : { canaries, others };
}

/** Undefined: it is not known, or the canaries are compared with it anyway. */
function usualOf({ canaries, others }: Cohorts<readonly ComparedClient[]>): Cohorts<Tally> | undefined {
  if (others.length === 0 || !canaries.every(isKnown) || !others.some(isKnown)) return undefined;
  return {
    canaries: sumOf(canaries.map(({ usual }) => usual)),
    others: sumOf(others.filter(isKnown).map(({ usual }) => usual)),
  };
}

/** What both cohorts do with the change, and what both did before. */
type Compared = ReturnType<typeof comparedOf>;

const comparedOf = (clients: Cohorts<readonly ComparedClient[]>) => ({
  clients,
  counted: countedOf(clients),
  usual: usualOf(clients),
});

/** More requests fail. Clients of which more failed before already are compared with that. */
function isRise(
  { clients, counted, usual }: Compared,
  { maxErrorIncrease, minRequests }: TrafficBounds,
  limit: number,
): boolean {
  const known =
    usual === undefined || Math.min(usual.canaries.requests, usual.others.requests) < minRequests
      ? undefined
      : usual;
  const bursts = correlation([...clients.canaries, ...clients.others].map(({ usual }) => usual));
  // Where it is known what is usual for each, it is known how they differ.
  const differing = known === undefined ? correlation([asReports(clients.others)]) : 0;
  /** Requests that share their fate say less: of one request, so much more variance. */
  const shared = (cohort: 'canaries' | 'others'): number => {
    const alone = independent(counted[cohort], bursts);
    const worth =
      differing === 0 ? alone : Math.min(alone, independent(asReports(clients[cohort]), differing));
    return 1 / worth - 1 / counted[cohort].requests;
  };
  const [ofCanaries, ofOthers] = [shared('canaries'), shared('others')];
  let expected = errorRate(counted.others);
  let variance = errorVariance(counted) * (ofCanaries + ofOthers);
  const more = known === undefined ? 0 : errorRate(known.canaries) - errorRate(known.others);
  if (known !== undefined && more > 0) {
    expected += more;
    const usually = 1 / independent(known.canaries, bursts) + 1 / independent(known.others, bursts);
    variance += errorVariance(known) * usually;
  }
  const [canaries, others] = [counted.canaries.requests, counted.others.requests];
  const rate = errorRate(counted.canaries);
  const increase = rate - expected;
  if (increase * 100 <= maxErrorIncrease) return false;
  // If the change does nothing, both cohorts have the same rate.
  const both = (rate * canaries + expected * others) / (canaries + others);
  const evidence =
    against(rate * canaries, both * canaries) +
    against((1 - rate) * canaries, (1 - both) * canaries) +
    against(expected * others, both * others) +
    against((1 - expected) * others, (1 - both) * others);
  // Bernstein's bound: a few bursts are larger by chance than a normal distribution has them.
  const rare = Math.max(0, ofCanaries - ofOthers) / 3;
  return isBeyondChance(evidence, (variance / increase + rare) / increase, limit);
}

/** Fewer requests come. Clients to which fewer came before already are compared with that. */
function isDrop(
  { clients, counted: { canaries, others }, usual }: Compared,
  { maxRequestDrop, minRequests }: TrafficBounds,
  limit: number,
): boolean {
  if (others.requests < minRequests) return false;
  let expected = requestRate(others) * canaries.seconds;
  // The first report of a client may be of the time before it had anything to do.
  const said = clients.canaries.filter(({ usual }) => usual.heard > 1);
  // One or two others do not show how much clients differ, and nobody knows what was usual: then only none at all says something.
  const isUnknown = said.length === 0 && clients.others.length < fewest;
  if (isUnknown && canaries.requests > 0) return false;
  const differing = differenceOf(clients, said.length / Math.max(1, clients.canaries.length));
  const usually = burstsOfReports([...clients.canaries, ...clients.others]);
  // Relative to the expected number.
  const inOthers =
    clients.others.length === 0
      ? bursts(clients.canaries, 'usual')
      : bursts(clients.others, 'counted', usually);
  let variance = Math.max(differing, bursts(clients.canaries, 'counted', usually) + inOthers);
  const before = sumOf(said.map(({ usual }) => usual));
  const otherwise = usual?.others ?? others;
  const fewer = requestRate(before) / requestRate(otherwise);
  if (before.seconds > 0 && fewer < 1) {
    expected *= fewer;
    variance += 1 / Math.max(1, before.requests) + 1 / otherwise.requests;
  }
  const missing = expected - canaries.requests;
  if (missing * 100 <= maxRequestDrop * expected) return false;
  // If the change does nothing, all requests fall to both cohorts as those that are expected do.
  const share = (canaries.requests + others.requests) / (expected + others.requests);
  const evidence =
    against(canaries.requests, share * expected) + against(others.requests, share * others.requests);
  return isBeyondChance(evidence, variance * (expected / missing) ** 2, limit);
}

/**
 * How much clients may differ beyond chance: a relative variance. `told`: of so large a part of the canaries it is known what
 * they got before. The others may differ as clients do among each other.
 */
function differenceOf(clients: Cohorts<readonly ComparedClient[]>, told: number): number {
  const peers = clients.others.length === 0 ? clients.canaries : clients.others;
  const [alike, ofUsual] = [spread(peers, 'counted'), spread(peers, 'usual')];
  // What those who have just come got in a report or two differs much from what is usual for them.
  const areKnown = [...clients.canaries, ...clients.others].every(isKnown);
  const steady = areKnown ? ofUsual : Math.min(alike, ofUsual);
  return (alike * (1 - told) + steady * told) * shares(clients);
}

/** What a part of all counts says against what is expected of it. The sum over all parts is that of `isBeyondChance`. */
const against = (counted: number, expected: number): number =>
  counted === 0 ? 0 : counted * Math.log(counted / expected);

/**
 * Chance has so much against it in less than exp(-limit) of all cases. Each request by itself has exp(-evidence): it is
 * Chernoff's bound, and holds where few are counted, or none. `variance`: what varies besides, relative to the difference.
 */
const isBeyondChance = (evidence: number, variance: number, limit: number): boolean =>
  evidence > limit * (1 + 2 * variance * evidence);

const errorRate = ({ errors, requests }: Tally): number => (requests === 0 ? 0 : errors / requests);
const requestRate = ({ requests, seconds }: Tally): number => (seconds === 0 ? 0 : requests / seconds);

/** Of one request, if both cohorts have the same rate. No errors so far do not mean that none come. */
function errorVariance({ canaries, others }: Cohorts<Tally>): number {
  const rate = (canaries.errors + others.errors + 1) / (canaries.requests + others.requests + 2);
  return rate * (1 - rate);
}

/** What a client has reported, as one report. */
const asReports = (clients: readonly ComparedClient[]): Tally =>
  sumOf(clients.map(({ counted: { requests, errors, seconds } }) => reported(requests, errors, seconds)));

/**
 * How much the requests of one report have the same fate: 0 is chance, 1 is that all of them fail or none does. Each
 * tally has a rate of its own. What chance alone may show is none.
 */
function correlation(tallies: readonly Tally[]): number {
  let found = 0;
  let byChance = 0;
  let ifAllWereOne = 0;
  let free = 0;
  for (const { errors, requests, reports, squares, errorSquares } of tallies) {
    if (reports < fewest || requests === 0) continue;
    const rate = errors / requests;
    const variance = rate * (1 - rate);
    found += errorSquares - errors * rate;
    byChance += variance * (reports - 1);
    ifAllWereOne += variance * (requests - squares / requests);
    free += reports - 1;
  }
  const more = found - byChance * (1 + Math.sqrt(2 / free));
  const most = ifAllWereOne - byChance;
  return more > 0 && most > 0 ? Math.min(1, more / most) : 0;
}

/** So many requests, each with a fate of its own, say as much as these. */
const independent = ({ requests, squares }: Tally, correlation: number): number =>
  requests / (1 + Math.max(0, squares / requests - 1) * correlation);

/** How much clients differ in what they get, or in what they get of what they usually got, beyond chance: a relative variance. */
function spread(clients: readonly ComparedClient[], of: 'counted' | 'usual'): number {
  const ratios: number[] = [];
  let chance = 0;
  const mean = requestRate(sumOf(clients.map(({ counted }) => counted)));
  for (const { counted, usual } of clients) {
    const expected = (of === 'usual' && usual.requests > 0 ? requestRate(usual) : mean) * counted.seconds;
    if (expected === 0) continue;
    ratios.push(counted.requests / expected);
    chance += 1 / expected;
  }
  if (ratios.length < fewest) return 0;
  const average = ratios.reduce((sum, one) => sum + one, 0) / ratios.length;
  if (average === 0) return 0;
  const squares = ratios.reduce((sum, one) => sum + (one - average) ** 2, 0) / (ratios.length - 1);
  return Math.max(0, squares / average ** 2 - chance / ratios.length);
}

/**
 * How much the requests of these clients come in bursts, beyond chance: a relative variance of what was counted.
 * `usually`: the same of one report. Who has said too little has such bursts.
 */
function bursts(clients: readonly ComparedClient[], of: 'counted' | 'usual', usually?: number): number {
  let variance = 0;
  let expected = 0;
  for (const client of clients) {
    if (client.usual.requests === 0) continue;
    const { mean, more } = inReports(client.usual);
    expected += mean * client[of].reports;
    const own = usually === undefined || isKnown(client) ? more : usually * mean ** 2;
    variance += own * client[of].reports;
  }
  return expected === 0 ? 0 : variance / expected ** 2;
}

/** How much the requests of one report differ, beyond chance: a relative variance. Undefined: too little is known of all. */
function burstsOfReports(clients: readonly ComparedClient[]): number | undefined {
  let variance = 0;
  let squares = 0;
  for (const { usual } of clients.filter(isKnown)) {
    const { mean, more } = inReports(usual);
    variance += more * usual.reports;
    squares += mean ** 2 * usual.reports;
  }
  return squares === 0 ? undefined : variance / squares;
}

/** The requests of one report: their mean, and how much more than by chance they vary. */
function inReports({ requests, reports, squares }: Tally): { readonly mean: number; readonly more: number } {
  const mean = requests / reports;
  // Few reports differ less from their mean than from what is usual.
  const differ = (squares / reports - mean ** 2) * (reports > 1 ? reports / (reports - 1) : 1);
  return { mean, more: Math.max(0, differ - mean) };
}

/** Averages of many clients differ less than clients do. */
const shares = ({ canaries, others }: Cohorts<readonly ComparedClient[]>): number =>
  1 / Math.max(1, canaries.length) + (others.length === 0 ? 0 : 1 / others.length);

const percent = (tally: Tally): string => `${(errorRate(tally) * 100).toFixed(1)} %`;
const perSecond = (tally: Tally): string => requestRate(tally).toFixed(1);
const amount = (count: number): string => String(Math.round(count));

/** What the tallies of a verdict were, at a time in milliseconds since the epoch. */
type TrafficPoint = Pick<TrafficVerdict, 'canaries' | 'others'> & { readonly at: number };

/** What traffic says of a change, and how it came to that: the oldest first, one for each interval, and the last one. */
type TrafficHistory = TrafficVerdict &
  Pick<TrafficSettings, 'maxErrorIncrease'> & { readonly recent: readonly TrafficPoint[] };

/** Undefined: changes go to everybody at once. */
type JudgingSettings = Pick<RolloutSettings, 'traffic'> | undefined;

/** What is usual for a client is that of the last minutes: after so many seconds a report counts half. */
const halfLifeSeconds = 300;
/** The process of a client that says nothing for so many intervals may be gone, and with it its last word. */
const mostIntervals = 10;
/** Points that are kept of a change: for a chart. */
const mostPoints = 60;

/** A stream of reports. */
class Reporting {
  readonly node: string;
  readonly classKey: string;
  /** For people. */
  readonly classLabel: string;
  /** What it reported before a change: older reports count less. */
  usual = noRequests();
  /**
   * What it has reported since its first report with requests: this is usual once it says enough. That it was idle
   * before would look like bursts. Undefined: it does already.
   */
  #begun: Tally | undefined = noRequests();
  /** What it has reported for the change. */
  counted = noRequests();
  /** In which cohort of a change it is; `between`: in none. */
  #cohort: 'canaries' | 'others' | 'between' | undefined;
  /** So many of its next reports are in part about the time before it was in that cohort. */
  #mixed = 0;
  /** That was about a change that was judged. */
  #wasJudged = false;
  origin: LoadOrigin;
  reportedAt = 0;

  constructor({ node, classKey, classLabel, origin }: ReportedTraffic) {
    this.node = node;
    this.classKey = classKey;
    this.classLabel = classLabel;
    this.origin = origin;
  }

  add({ requests, errors, milliseconds, origin }: ReportedTraffic): void {
    this.origin = origin;
    const seconds = milliseconds / 1000;
    const said = reported(requests, errors, seconds);
    const isMixed = this.#mixed > 0;
    // What it does with a change that is judged is not what is usual.
    const isUsual = !this.isJudged && !(isMixed && this.#wasJudged);
    if (isUsual) this.#addUsual(said);
    this.#mixed = Math.max(0, this.#mixed - 1);
    this.#wasJudged &&= this.#mixed > 0;
    if (this.#cohort === undefined || this.#cohort === 'between') return;
    if (this.#cohort === 'canaries' && origin.isPartial) this.#begin();
    else if (!isMixed) addTo(this.counted, said, 1);
  }

  #addUsual(said: Readonly<Tally>): void {
    const weight = 0.5 ** (said.seconds / halfLifeSeconds);
    if (this.#begun !== undefined && this.usual.requests > 0) addTo(this.#begun, said, weight);
    addTo(this.usual, said, weight);
    if (this.#begun === undefined || !isKnown({ usual: this.#begun })) return;
    this.usual = this.#begun;
    this.#begun = undefined;
  }

  /** It has something that is judged, or is to have it. */
  get isJudged(): boolean {
    return this.#cohort === 'canaries' || this.#cohort === 'between';
  }

  /** Undefined: it is not compared with anybody. */
  take(cohort: 'canaries' | 'others' | 'between' | undefined): void {
    if (cohort === this.#cohort) return;
    this.#wasJudged ||= this.isJudged;
    this.#cohort = cohort;
    this.#begin();
    this.counted = noRequests();
  }

  /** What it has reported so far was about something else, and so is what it reports until it has accepted this. */
  restart(): void {
    if (this.#cohort === 'canaries') this.take('between');
    this.#begin();
    this.counted = noRequests();
  }

  #begin(): void {
    this.#mixed = 1 + this.origin.stages;
  }
}

const nothing: TrafficVerdict = {
  state: 'UNKNOWN',
  reason: 'no client that has it reports its load (LRS)',
  canaries: noRequests(),
  others: noRequests(),
};

/**
 * What clients report of their traffic, and what it says of a change: those that have it are compared with those of
 * their class that have not (LRS, protocol §5c).
 */
export class Traffic implements VerdictSource {
  #settings: TrafficSettings | undefined;
  readonly #clock: Clock;
  /** By id. */
  readonly #streams = new Map<string, Reporting>();
  /** By node: the class of those who have something that is frozen. */
  readonly #frozen = new Map<string, string>();
  /** What was new, by `nameKey`, since it was known last whose it is. */
  readonly #fresh = new Set<string>();
  /** Of the last look at which it was known who has what. */
  #verdicts = new Map<Change, TrafficHistory>();
  #sweptAt: number;

  constructor(rollout: JudgingSettings, clock: Clock) {
    this.#settings = rollout?.traffic;
    this.#clock = clock;
    this.#sweptAt = clock.monotonic();
  }

  /** How often clients are asked, in milliseconds; undefined: they are not. */
  get intervalMs(): number | undefined {
    return this.#settings?.intervalMs;
  }

  reload(rollout: JudgingSettings): void {
    this.#settings = rollout?.traffic;
    if (this.#settings !== undefined) return;
    this.#streams.clear();
    this.#frozen.clear();
    this.#fresh.clear();
    this.#verdicts = new Map();
  }

  add(report: ReportedTraffic): void {
    if (this.#settings === undefined) return;
    const { stream, node, classKey } = report;
    const now = this.#clock.monotonic();
    const known = this.#streams.get(stream);
    // By other rules it may be of another class.
    const isSame = known?.classKey === classKey && known.node === node;
    const reporting = isSame ? known : new Reporting(report);
    if (!isSame && this.#hasFrozen(reporting)) reporting.take('between');
    this.#streams.set(stream, reporting);
    reporting.reportedAt = now;
    reporting.add(report);
    this.#sweep(now, this.#settings.intervalMs * mostIntervals);
  }

  /** It reports no more. */
  left(stream: string): void {
    this.#streams.delete(stream);
  }

  look(changes: readonly HeardChange[], frozen: ReadonlySet<string>): readonly (Opinion | undefined)[] {
    const bounds = this.#settings;
    if (bounds === undefined) return [];
    this.#sweep(this.#clock.monotonic(), bounds.intervalMs * mostIntervals);
    const all = new Set(changes.flatMap(({ change }) => [...change.classes]));
    this.#freeze(frozen);
    // Only clients of these classes are compared from now on.
    for (const one of this.#streams.values())
      if (!all.has(one.classKey)) one.take(this.#hasFrozen(one) ? 'between' : undefined);
    this.#restart(changes);
    if (changes.every(({ canaries }) => canaries !== undefined)) this.#fresh.clear();
    const peers = Map.groupBy(this.#streams.values(), ({ classKey }) => classKey);
    const known = new Map<string, TrafficHistory>();
    for (const [{ classes }, verdict] of this.#verdicts)
      for (const classKey of classes) known.set(classKey, verdict);
    const verdicts = new Map<Change, TrafficHistory>();
    for (const { change, canaries } of changes) {
      // What was found before may be about something else: it is kept where it was heard.
      if (canaries === undefined) return [];
      verdicts.set(change, this.#verdict(change, canaries, peers, known, bounds));
    }
    this.#verdicts = verdicts;
    // Too little to judge by keeps nothing from going on.
    return Array.from(verdicts, ([{ keys: names }, { state, reason }]) =>
      objection(state === 'BAD' ? { cause: 'traffic', reason: `traffic: ${reason}`, names } : undefined),
    );
  }

  /** What it says of a change; undefined: nothing. */
  verdictOn(change: Change): TrafficHistory | undefined {
    return this.#verdicts.get(change);
  }

  /** Nothing is known of who has what is frozen, but that those who had it keep it. */
  #freeze(classes: ReadonlySet<string>): void {
    for (const [node, classKey] of this.#frozen) if (!classes.has(classKey)) this.#frozen.delete(node);
    for (const { isJudged, node, classKey } of this.#streams.values())
      if (isJudged && classes.has(classKey)) this.#frozen.set(node, classKey);
  }

  #hasFrozen({ node, classKey }: Reporting): boolean {
    return this.#frozen.get(node) === classKey;
  }

  /** What clients of these have may be another now: there may be thousands of changes, and of clients. */
  #restart(changes: readonly HeardChange[]): void {
    const classes = new Set<string>();
    for (const { change, isNew } of changes) {
      if (isNew) for (const key of change.keys) this.#fresh.add(key);
      if (!isNew && change.keys.isDisjointFrom(this.#fresh)) continue;
      for (const classKey of change.classes) classes.add(classKey);
    }
    if (classes.size === 0) return;
    for (const one of this.#streams.values()) if (classes.has(one.classKey)) one.restart();
    for (const [of, verdict] of this.#verdicts)
      if (!of.classes.isDisjointFrom(classes)) this.#verdicts.set(of, { ...verdict, recent: [] });
  }

  /** `streams`: all that are to have it. By class: `peers`, all that report, and `known`, what was found at the last look. */
  #verdict(
    { classes }: Change,
    streams: readonly CanaryStream[],
    peers: ReadonlyMap<string, readonly Reporting[]>,
    known: ReadonlyMap<string, TrafficHistory>,
    bounds: TrafficSettings,
  ): TrafficHistory {
    const byClass = Map.groupBy(streams, ({ classKey }) => classKey);
    const verdicts = [...classes].flatMap((classKey) => {
      const reporting = peers.get(classKey) ?? [];
      const own = byClass.get(classKey) ?? [];
      if (reporting.length === 0) return own.length === 0 ? [] : nothing;
      const cohorts = assignCohorts(reporting, own, (one) => this.#hasFrozen(one));
      // A class that has no canary says nothing about the change.
      if (cohorts.canaries.length === 0) return own.length === 0 ? [] : nothing;
      const { state, reason, canaries, others } = compareTraffic(cohorts, bounds, classes.size);
      const of = classes.size === 1 ? '' : ` (${reporting[0]?.classLabel ?? ''})`;
      return { state, reason: `${reason}${of}`, canaries, others };
    });
    const verdict = together(verdicts);
    // Changes can become one, and a part of one can go on alone.
    const [before] = [...classes].flatMap((classKey) => known.get(classKey) ?? []);
    const point = { at: this.#clock.now(), ...verdict };
    const recent = withPoint(before?.recent ?? [], point, bounds.intervalMs);
    return { ...verdict, recent, maxErrorIncrease: bounds.maxErrorIncrease };
  }

  #sweep(now: number, longest: number): void {
    if (now < this.#sweptAt + longest) return;
    this.#sweptAt = now;
    for (const [id, { reportedAt }] of this.#streams) if (reportedAt < now - longest) this.left(id);
  }
}

/** Clients report one by one: the last point grows until it is as old as an interval. */
function withPoint(
  points: readonly TrafficPoint[],
  { at, canaries, others }: TrafficPoint,
  intervalMs: number,
): readonly TrafficPoint[] {
  const [before, last] = [points.at(-2), points.at(-1)];
  const isSame = last?.canaries.requests === canaries.requests && last.others.requests === others.requests;
  if (isSame || canaries.requests === 0) return points;
  const kept = before !== undefined && at - before.at < intervalMs ? points.slice(0, -1) : points;
  return [...kept, { at, canaries, others }].slice(-mostPoints);
}

/**
 * Who has accepted a change, and who has not got it. A client of which a stream has yet to answer is neither, nor is one
 * that has only something else, which is frozen.
 */
function assignCohorts(
  peers: Iterable<Reporting>,
  streams: readonly CanaryStream[],
  hasFrozen: (one: Reporting) => boolean,
): Cohorts<Reporting[]> {
  const accepted = new Map<string, boolean>();
  for (const { node, standing } of streams)
    accepted.set(node, standing.kind === 'accepted' && accepted.get(node) !== false);
  const cohorts: Cohorts<Reporting[]> = { canaries: [], others: [] };
  for (const one of peers) {
    const has = accepted.get(one.node);
    const cohort = has === true ? 'canaries' : has === false || hasFrozen(one) ? 'between' : 'others';
    one.take(cohort);
    if (cohort !== 'between') cohorts[cohort].push(one);
  }
  return cohorts;
}

/** A change is as bad as it is for the class that it is worst for. */
function together(verdicts: readonly TrafficVerdict[]): TrafficVerdict {
  const worst =
    verdicts.find(({ state }) => state === 'BAD') ??
    verdicts.find((one) => one.state === 'UNKNOWN' && one !== nothing) ??
    verdicts.find(({ state }) => state === 'UNKNOWN') ??
    verdicts[0];
  if (worst === undefined) return nothing;
  return {
    ...worst,
    canaries: sumOf(verdicts.map(({ canaries }) => canaries)),
    others: sumOf(verdicts.map(({ others }) => others)),
  };
}
