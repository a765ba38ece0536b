import type { LoadOrigin } from '../model/load.ts';
import type { RolloutSettings } from './judge.ts';

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
export interface ComparedClient {
  /** What it has reported for the change. */
  readonly counted: Readonly<Tally>;
  /** What it reported before: older reports count less. */
  readonly usual: Readonly<Tally>;
  readonly origin: LoadOrigin;
}

export type TrafficSettings = NonNullable<RolloutSettings['traffic']>;
type TrafficBounds = Omit<TrafficSettings, 'intervalMs'>;

/** Of the clients that have a change, and of those that have not. */
export type Sides<T> = Readonly<Record<'canaries' | 'others', T>>;

/** What traffic says of a change, in one class of clients. Where there are no others, they are the canaries before it. */
export interface TrafficVerdict extends Sides<Readonly<Tally>> {
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

/** What there was counts as much as `weight` says: 1 is all of it. */
export function addTo(sum: Tally, more: Readonly<Tally>, weight: number): void {
  sum.requests = sum.requests * weight + more.requests;
  sum.errors = sum.errors * weight + more.errors;
  sum.seconds = sum.seconds * weight + more.seconds;
  sum.reports = sum.reports * weight + more.reports;
  sum.heard += more.heard;
  sum.squares = sum.squares * weight + more.squares;
  sum.errorSquares = sum.errorSquares * weight + more.errorSquares;
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
  clients: Sides<readonly ComparedClient[]>,
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
function countedOf({ canaries, others }: Sides<readonly ComparedClient[]>): Sides<Tally> {
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
export const isKnown = ({ usual }: Pick<ComparedClient, 'usual'>): boolean => usual.heard >= leastReports;

/**
 * Only clients of which it is known how many requests they had before can be compared with that. A relay has those of as
 * many clients as it happens to have: with one among them nobody is compared of whom it is not known.
 */
function ofKnown(clients: Sides<readonly ComparedClient[]>): Sides<readonly ComparedClient[]> {
  const canaries = clients.canaries.filter(isKnown);
  if (clients.others.length === 0) return { canaries, others: [] };
  if (![...clients.canaries, ...clients.others].some(isRelay)) return clients;
  const others = clients.others.filter(isKnown);
  return others.length === 0 ? { canaries: [], others: clients.others } : { canaries, others };
}

/** Undefined: it is not known, or the canaries are compared with it anyway. */
function usualOf({ canaries, others }: Sides<readonly ComparedClient[]>): Sides<Tally> | undefined {
  if (others.length === 0 || !canaries.every(isKnown) || !others.some(isKnown)) return undefined;
  return {
    canaries: sumOf(canaries.map(({ usual }) => usual)),
    others: sumOf(others.filter(isKnown).map(({ usual }) => usual)),
  };
}

/** What both sides do with the change, and what both did before. */
type Compared = ReturnType<typeof comparedOf>;

const comparedOf = (clients: Sides<readonly ComparedClient[]>) => ({
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
  const shared = (side: 'canaries' | 'others'): number => {
    const alone = independent(counted[side], bursts);
    const worth = differing === 0 ? alone : Math.min(alone, independent(asReports(clients[side]), differing));
    return 1 / worth - 1 / counted[side].requests;
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
  // If the change does nothing, both sides have the same rate.
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
  const differing = spread(clients.others.length === 0 ? clients.canaries : clients.others) * shares(clients);
  // Relative to the expected number.
  const inOthers =
    clients.others.length === 0 ? bursts(clients.canaries, 'usual') : bursts(clients.others, 'counted');
  let variance = Math.max(differing, bursts(clients.canaries, 'counted') + inOthers);
  if (usual !== undefined && usual.others.requests > 0) {
    const fewer = requestRate(usual.canaries) / requestRate(usual.others);
    if (fewer < 1) {
      expected *= fewer;
      variance += 1 / Math.max(1, usual.canaries.requests) + 1 / usual.others.requests;
    }
  }
  const missing = expected - canaries.requests;
  if (missing * 100 <= maxRequestDrop * expected) return false;
  // If the change does nothing, all requests fall to both sides as those that are expected do.
  const share = (canaries.requests + others.requests) / (expected + others.requests);
  const evidence =
    against(canaries.requests, share * expected) + against(others.requests, share * others.requests);
  return isBeyondChance(evidence, variance * (expected / missing) ** 2, limit);
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

/** Of one request, if both sides have the same rate. No errors so far do not mean that none come. */
function errorVariance({ canaries, others }: Sides<Tally>): number {
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

/** How much clients differ in what they get of what they usually got, beyond chance: a relative variance. */
function spread(clients: readonly ComparedClient[]): number {
  const ratios: number[] = [];
  let chance = 0;
  const mean = requestRate(sumOf(clients.map(({ counted }) => counted)));
  for (const { counted, usual } of clients) {
    const expected = (usual.requests > 0 ? requestRate(usual) : mean) * counted.seconds;
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

/** How much the requests of these clients come in bursts, beyond chance: a relative variance of what was counted. */
function bursts(clients: readonly ComparedClient[], of: 'counted' | 'usual'): number {
  let variance = 0;
  let expected = 0;
  for (const client of clients) {
    const { requests, reports, squares } = client.usual;
    if (requests === 0) continue;
    const mean = requests / reports;
    expected += mean * client[of].reports;
    // Few reports differ less from their mean than from what is usual.
    const differ = (squares / reports - mean ** 2) * (reports > 1 ? reports / (reports - 1) : 1);
    variance += Math.max(0, differ - mean) * client[of].reports;
  }
  return expected === 0 ? 0 : variance / expected ** 2;
}

/** Averages of many clients differ less than clients do. */
const shares = ({ canaries, others }: Sides<readonly ComparedClient[]>): number =>
  1 / Math.max(1, canaries.length) + (others.length === 0 ? 0 : 1 / others.length);

const percent = (tally: Tally): string => `${(errorRate(tally) * 100).toFixed(1)} %`;
const perSecond = (tally: Tally): string => requestRate(tally).toFixed(1);
const amount = (count: number): string => String(Math.round(count));
