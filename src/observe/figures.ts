import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import type { Clock, Timer } from '../model/clock.ts';
import { delayBuckets, type Happened, type Metrics } from './metrics.ts';

/**
 * What a process has counted since its start, for the charts of the status page and for problems. All of it is plain data,
 * for another process too.
 */
export type Counters = Readonly<ReturnType<Metrics['counted']> & ReturnType<typeof processCounters>> & {
  readonly streams: number;
  readonly connections: number;
};

/** Of a process that does not answer its pid. */
export type CountersOrPid = Counters | number;

/** One that does not keep the process alive. */
const delay = monitorEventLoopDelay({ resolution: 20 });

/** What only this process can say of itself. */
export function processCounters() {
  const { active, idle } = performance.eventLoopUtilization();
  const lagMs = delay.count === 0 ? 0 : delay.percentile(99) / 1e6;
  delay.enable();
  delay.reset();
  return {
    pid: process.pid,
    memoryBytes: process.memoryUsage.rss(),
    /** Milliseconds in which the event loop was busy, and was not. */
    busyMs: active,
    idleMs: idle,
    /** For how long 99 % of events waited at most, since it was asked before. Milliseconds. */
    lagMs,
  };
}

/** One point of the charts. */
export type Figure = ReturnType<typeof figure>;

/** Five minutes of points. */
const everyMs = 5000;
const kept = 60;

/** For so long what has happened is a problem: as long as the alerts look back. Restarts of workers: an hour. */
const recentMinutes = 10;
const longestMinutes = 60;
const perMinute = 60_000 / everyMs;
/** Looks at the event loop; most of them must have found that events wait. */
const looksAtLag = perMinute;
/** An ACK after longer is late: the objective of deploy/observability. Seconds. */
const inTime = 1;

/** What has happened of late: all but `restarts` and `lagMs` in so many `minutes`. */
export type Recent = ReturnType<ReturnType<typeof takeFigures>['recent']>;

/** The last five minutes, and what happened within an hour. A point costs some additions; with workers each is asked for its counters. */
export function takeFigures(clock: Clock, ask: () => Promise<readonly CountersOrPid[]>) {
  const points: Figure[] = [];
  /** One for each look, within an hour. */
  const grown: (readonly Happened[])[] = [];
  const lags: number[] = [];
  let last: readonly Counters[] = [];
  /** By `Clock.monotonic()`. */
  let lastAt = 0;
  let timer: Timer | undefined;
  let isStopped = false;

  return {
    get points(): readonly Figure[] {
      return points;
    },
    /** Of each process, as of the last point. */
    get counters() {
      return last;
    },
    recent() {
      const all = [...summedUp(grown.slice(-recentMinutes * perMinute).flat()).values()];
      const of = (what: Happened[1]) => all.filter((one) => one[1] === what);
      const sorted = lags.toSorted((a, b) => a - b);
      return {
        minutes: recentMinutes,
        acknowledged: countOf(all, 'acknowledged'),
        /** Of those, later than 1 s. */
        late: countOf(all, 'acknowledged', (bound) => Number(bound) > inTime),
        rejections: countOf(all, 'rejections'),
        turnedAway: of('turned away').map(([count, , reason = '']) => ({ reason, count })),
        refusedUpdates: of('refused').map(([count, , upstream = '', type = '']) => ({
          upstream,
          type,
          count,
          /** Of the last one: which resource, and why. */
          reason: reasonOf(upstream, type),
        })),
        /** Of workers, within an hour. */
        restarts: grown.reduce((total, one) => total + countOf(one, 'restarts'), 0),
        /** Of the busiest process: for how long events wait. */
        lagMs: sorted.length < looksAtLag ? 0 : (sorted[Math.floor(sorted.length / 2)] ?? 0),
      };
    },
    start: () => void look(),
    stop(): void {
      isStopped = true;
      timer?.cancel();
    },
  };

  function reasonOf(upstream: string, type: string): string {
    const key = JSON.stringify([upstream, type]);
    return last.flatMap(({ refusals }) => refusals).findLast(([of]) => of === key)?.[1] ?? '';
  }

  async function look(): Promise<void> {
    const heard = await ask().catch(() => last);
    if (isStopped) return;
    // What it said last: left out, all that it has ever counted would look new when it answers again.
    const counters = heard.flatMap((one) => (typeof one === 'number' ? (ofProcess(one, last) ?? []) : one));
    const [at, now] = [clock.now(), clock.monotonic()];
    if (lastAt > 0) {
      const happened = growth(last, counters);
      points.push(figure(at, (now - lastAt) / 1000, last, counters, happened));
      grown.push(happened);
      if (grown.length > longestMinutes * perMinute) grown.shift();
    }
    lags.push(Math.max(0, ...counters.map(({ lagMs }) => lagMs)));
    if (lags.length > looksAtLag) lags.shift();
    last = counters;
    lastAt = now;
    if (points.length > kept) points.shift();
    timer = clock.after(everyMs, () => void look());
  }
}

/** Between two looks at the processes. */
export function figure(
  at: number,
  seconds: number,
  before: readonly Counters[],
  now: readonly Counters[],
  happened = growth(before, now),
) {
  const acknowledged = [...delayBuckets, Infinity].map((bound) =>
    countOf(happened, 'acknowledged', (one) => one === String(bound)),
  );
  return {
    /** Milliseconds since the epoch. */
    at,
    /** Responses handed to clients, for each second. */
    updates: seconds > 0 ? countOf(happened, 'responses') / seconds : 0,
    /** Seconds from the receipt of an update to the ACK, of 99 % of them; null: there was none. */
    acknowledged: quantile(0.99, acknowledged),
    streams: sum(now, ({ streams }) => streams),
    /** Of all processes, in bytes. */
    memory: sum(now, ({ memoryBytes }) => memoryBytes),
    /** Of the busiest process: 0 to 1. */
    busy: Math.max(0, ...now.map((counters) => busyPart(counters, ofProcess(counters.pid, before)))),
  };
}

const ofProcess = (pid: number, all: readonly Counters[]): Counters | undefined =>
  all.find((counters) => counters.pid === pid);

/** What happened between two looks. A worker that has ended takes its counts along. */
const growth = (before: readonly Counters[], now: readonly Counters[]): readonly Happened[] => {
  const grown = now.flatMap(({ pid, happened }) => {
    const then = summedUp(ofProcess(pid, before)?.happened ?? []);
    return [...summedUp(happened)].flatMap(([key, [count, ...what]]): Happened[] => {
      const more = count - (then.get(key)?.[0] ?? 0);
      return more > 0 ? [[more, ...what]] : [];
    });
  });
  return [...summedUp(grown).values()];
};

/** The same things once. */
function summedUp(all: readonly Happened[]): ReadonlyMap<string, Happened> {
  const sums = new Map<string, Happened>();
  for (const [count, ...what] of all) {
    const key = JSON.stringify(what);
    sums.set(key, [count + (sums.get(key)?.[0] ?? 0), ...what]);
  }
  return sums;
}

const countOf = (
  all: readonly Happened[],
  what: Happened[1],
  isMeant: (of: string) => boolean = () => true,
): number =>
  all.reduce((total, [count, is, of = '']) => (is === what && isMeant(of) ? total + count : total), 0);

const sum = (all: readonly Counters[], count: (counters: Counters) => number): number =>
  all.reduce((total, counters) => total + count(counters), 0);

function busyPart(now: Counters, before: Counters | undefined): number {
  const busy = now.busyMs - (before?.busyMs ?? 0);
  const idle = now.idleMs - (before?.idleMs ?? 0);
  return busy < 0 || idle < 0 || busy + idle === 0 ? 0 : busy / (busy + idle);
}

/** Within a bucket the values are taken to be spread evenly, as Prometheus does. */
function quantile(part: number, counts: readonly number[]): number | null {
  const total = counts.reduce((all, count) => all + count, 0);
  if (total === 0) return null;
  let below = 0;
  for (const [index, count] of counts.entries()) {
    const upper = delayBuckets[index];
    if (below + count >= part * total) {
      const lower = delayBuckets[index - 1] ?? 0;
      if (upper === undefined) return lower;
      return lower + ((upper - lower) * (part * total - below)) / count;
    }
    below += count;
  }
  return delayBuckets.at(-1) ?? 0;
}
