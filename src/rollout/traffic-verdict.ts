/** Requests that clients have sent. Successes and errors are requests. */
export interface Tally {
  requests: number;
  errors: number;
  /** Over so much time, of all that are counted together, and in so many reports. */
  seconds: number;
  reports: number;
  /** The sum of the squares of the requests of each report. */
  squares: number;
}

/** A client that reports. */
export interface ComparedClient {
  /** What it has reported for the change. */
  readonly counted: Readonly<Tally>;
  /** What it reported before: older reports count less. */
  readonly usual: Readonly<Tally>;
}

/** As configured (`rollout.traffic`). */
export interface TrafficSettings {
  /** How often clients are asked to report. Milliseconds. */
  readonly intervalMs: number;
  /** Percentage points. */
  readonly maxErrorIncrease: number;
  /** Percent of the requests of one client in one second. */
  readonly maxRequestDrop: number;
  readonly minRequests: number;
}

type TrafficBounds = Omit<TrafficSettings, 'intervalMs'>;

/** Of the clients that have a change, and of those that have not. */
export interface Sides<T> {
  readonly canaries: T;
  readonly others: T;
}

/** What traffic says of a change, in one class of clients. Where there are no others, they are the canaries before it. */
export interface TrafficVerdict extends Sides<Readonly<Tally>> {
  readonly state: 'GOOD' | 'BAD' | 'UNKNOWN';
  /** For people. */
  readonly reason: string;
}

/** What the tallies of a verdict were once. */
export interface TrafficPoint extends Sides<Readonly<Tally>> {
  /** Milliseconds since the epoch. */
  readonly at: number;
}

export const noRequests = (): Tally => ({ requests: 0, errors: 0, seconds: 0, reports: 0, squares: 0 });

/** What there was counts as much as `weight` says: 1 is all of it. */
export function addTo(sum: Tally, more: Readonly<Tally>, weight: number): void {
  sum.requests = sum.requests * weight + more.requests;
  sum.errors = sum.errors * weight + more.errors;
  sum.seconds = sum.seconds * weight + more.seconds;
  sum.reports = sum.reports * weight + more.reports;
  sum.squares = sum.squares * weight + more.squares;
}

export function sumOf(tallies: Iterable<Readonly<Tally>>): Tally {
  const sum = noRequests();
  for (const one of tallies) addTo(sum, one, 1);
  return sum;
}

/** Chance alone may find something bad so often, each time it is asked. */
const falseAlarms = 1 / 1000;
/** What is usual shows in so many reports. A client that has just come has said little so far. */
const leastReports = 5;
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
  const limit = Math.sqrt(2 * Math.log(classes / falseAlarms));
  if (canaries.seconds === 0)
    return {
      state: 'UNKNOWN',
      reason: 'no client that has it has reported twice since it accepted it',
      ...counted,
    };
  if (others.requests < minRequests) {
    const reason = `${amount(others.requests)} requests ${otherwise}: min_requests is ${minRequests}`;
    return { state: 'UNKNOWN', reason, ...counted };
  }
  const compared = { clients, counted, usual: usualOf(clients) };
  const known = { ...compared, ...ofKnown(clients) };
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

const isKnown = ({ usual }: ComparedClient): boolean => usual.reports >= leastReports;

/** Only clients of which it is known how many requests they had before can be compared with that. */
function ofKnown(clients: Sides<readonly ComparedClient[]>): Pick<Compared, 'clients' | 'counted'> {
  const { canaries, others } = clients;
  const known = others.length === 0 ? { canaries: canaries.filter(isKnown), others } : clients;
  return { clients: known, counted: countedOf(known) };
}

/** Undefined: it is not known, or the canaries are compared with it anyway. */
function usualOf({ canaries, others }: Sides<readonly ComparedClient[]>): Compared['usual'] {
  if (others.length === 0 || !canaries.every(isKnown) || !others.some(isKnown)) return undefined;
  return {
    canaries: sumOf(canaries.map(({ usual }) => usual)),
    others: sumOf(others.filter(isKnown).map(({ usual }) => usual)),
  };
}

/** What both sides do with the change, and what both did before. */
interface Compared {
  readonly clients: Sides<readonly ComparedClient[]>;
  readonly counted: Sides<Tally>;
  readonly usual: Sides<Tally> | undefined;
}

/** More requests fail. Clients of which more failed before already are compared with that. */
function isRise(
  { clients, counted: { canaries, others }, usual }: Compared,
  { maxErrorIncrease, minRequests }: TrafficBounds,
  limit: number,
): boolean {
  let expected = errorRate(others);
  let variance = errorVariance(canaries) + errorVariance(others);
  if (usual !== undefined && usual.canaries.requests >= minRequests && usual.others.requests >= minRequests) {
    const more = errorRate(usual.canaries) - errorRate(usual.others);
    if (more > 0) {
      expected += more;
      variance += errorVariance(usual.canaries) + errorVariance(usual.others);
    }
  }
  const increase = errorRate(canaries) - expected;
  return (
    increase * 100 > maxErrorIncrease && increase > limit * Math.sqrt(variance * clustering(clients.others))
  );
}

/** Fewer requests come. Clients to which fewer came before already are compared with that. */
function isDrop(
  { clients, counted: { canaries, others }, usual }: Compared,
  { maxRequestDrop, minRequests }: TrafficBounds,
  limit: number,
): boolean {
  if (others.requests < minRequests) return false;
  let expected = requestRate(others) * canaries.seconds;
  // Of the expected number, relative.
  const differing = spread(clients.others.length === 0 ? clients.canaries : clients.others) * shares(clients);
  let variance = 1 / others.requests + Math.max(differing, bursts(clients.canaries) + bursts(clients.others));
  if (usual !== undefined && usual.others.requests > 0) {
    const fewer = requestRate(usual.canaries) / requestRate(usual.others);
    if (fewer < 1) {
      expected *= fewer;
      variance += 1 / Math.max(1, usual.canaries.requests) + 1 / usual.others.requests;
    }
  }
  const missing = expected - canaries.requests;
  return (
    missing * 100 > maxRequestDrop * expected &&
    missing > limit * Math.sqrt(expected + expected ** 2 * variance)
  );
}

const errorRate = ({ errors, requests }: Tally): number => (requests === 0 ? 0 : errors / requests);
const requestRate = ({ requests, seconds }: Tally): number => (seconds === 0 ? 0 : requests / seconds);

/** Of the rate. No errors so far do not mean that none come. */
function errorVariance({ errors, requests }: Tally): number {
  const rate = (errors + 1) / (requests + 2);
  return (rate * (1 - rate)) / requests;
}

/** Errors come together: how many times more the rates of clients differ than by chance. */
function clustering(clients: readonly ComparedClient[]): number {
  const all = clients.map(({ counted }) => counted).filter(({ requests }) => requests > 0);
  const rate = errorRate(sumOf(all));
  if (all.length < fewest || rate === 0 || rate === 1) return 1;
  let sum = 0;
  for (const { errors, requests } of all)
    sum += (errors - requests * rate) ** 2 / (requests * rate * (1 - rate));
  return Math.max(1, sum / (all.length - 1));
}

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
function bursts(clients: readonly ComparedClient[]): number {
  let variance = 0;
  let expected = 0;
  for (const { counted, usual } of clients) {
    const { requests, reports, squares } = usual;
    if (requests === 0) continue;
    const mean = requests / reports;
    expected += mean * counted.reports;
    variance += Math.max(0, squares / reports - mean ** 2 - mean) * counted.reports;
  }
  return expected === 0 ? 0 : variance / expected ** 2;
}

/** Averages of many clients differ less than clients do. */
const shares = ({ canaries, others }: Sides<readonly ComparedClient[]>): number =>
  1 / Math.max(1, canaries.length) + (others.length === 0 ? 0 : 1 / others.length);

const percent = (tally: Tally): string => `${(errorRate(tally) * 100).toFixed(1)} %`;
const perSecond = (tally: Tally): string => requestRate(tally).toFixed(1);
const amount = (count: number): string => String(Math.round(count));
