import type { Clock } from '../model/clock.ts';
import type { LoadOrigin, ReportedTraffic } from '../model/load.ts';
import { type Change, type HeardChange, type Opinion, objection, type VerdictSource } from './changes.ts';
import type { RolloutSettings } from './judge.ts';
import {
  addTo,
  type ComparedClient,
  compareTraffic,
  isKnown,
  noRequests,
  reported,
  type Sides,
  sumOf,
  type Tally,
  type TrafficSettings,
  type TrafficVerdict,
} from './traffic-verdict.ts';
import type { CanaryStream } from './waiting.ts';

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
class Reporting implements ComparedClient {
  readonly node: string;
  readonly classKey: string;
  /** For people. */
  readonly classLabel: string;
  usual = noRequests();
  /**
   * What it has reported since its first report with requests: this is usual once it says enough. That it was idle
   * before would look like bursts. Undefined: it does already.
   */
  #begun: Tally | undefined = noRequests();
  counted = noRequests();
  /** On which side of a change it is; `between`: on none. */
  #side: 'canaries' | 'others' | 'between' | undefined;
  /** So many of its next reports are in part about the time before it was on that side. */
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
    if (this.#side === undefined || this.#side === 'between') return;
    if (this.#side === 'canaries' && origin.isPartial) this.#begin();
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
    return this.#side === 'canaries' || this.#side === 'between';
  }

  /** Undefined: it is not compared with anybody. */
  take(side: 'canaries' | 'others' | 'between' | undefined): void {
    if (side === this.#side) return;
    this.#wasJudged ||= this.isJudged;
    this.#side = side;
    this.#begin();
    this.counted = noRequests();
  }

  /** What it has reported so far was about something else, and so is what it reports until it has accepted this. */
  restart(): void {
    if (this.#side === 'canaries') this.take('between');
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
      const sides = assignSides(reporting, own, (one) => this.#hasFrozen(one));
      // A class that has no canary says nothing about the change.
      if (sides.canaries.length === 0) return own.length === 0 ? [] : nothing;
      const { state, reason, canaries, others } = compareTraffic(sides, bounds, classes.size);
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
function assignSides(
  peers: Iterable<Reporting>,
  streams: readonly CanaryStream[],
  hasFrozen: (one: Reporting) => boolean,
): Sides<Reporting[]> {
  const accepted = new Map<string, boolean>();
  for (const { node, standing } of streams)
    accepted.set(node, standing.kind === 'accepted' && accepted.get(node) !== false);
  const sides: Sides<Reporting[]> = { canaries: [], others: [] };
  for (const one of peers) {
    const has = accepted.get(one.node);
    const side = has === true ? 'canaries' : has === false || hasFrozen(one) ? 'between' : 'others';
    one.take(side);
    if (side !== 'between') sides[side].push(one);
  }
  return sides;
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
