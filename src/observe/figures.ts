import type { Clock, Timer } from '../model/clock.ts';
import type { Counters } from './counters.ts';
import type { Figure } from './figure.ts';
import { delayBuckets } from './metrics.ts';

/** Five minutes of points. */
const everyMs = 5000;
const kept = 60;

/** The last five minutes. A point costs some additions; with workers each is asked for its counters. */
export class Figures {
  readonly #clock: Clock;
  readonly #counters: () => Promise<readonly Counters[]>;
  readonly #points: Figure[] = [];
  #last: readonly Counters[] = [];
  #lastAt = 0;
  #timer: Timer | undefined;
  #stopped = false;

  constructor(clock: Clock, counters: () => Promise<readonly Counters[]>) {
    this.#clock = clock;
    this.#counters = counters;
  }

  get points(): readonly Figure[] {
    return this.#points;
  }

  /** Of each process, as of the last point. */
  get counters(): readonly Counters[] {
    return this.#last;
  }

  start(): void {
    void this.#look();
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  async #look(): Promise<void> {
    const counters = await this.#counters().catch(() => this.#last);
    if (this.#stopped) return;
    const at = this.#clock.now();
    if (this.#lastAt > 0) this.#points.push(figure(at, (at - this.#lastAt) / 1000, this.#last, counters));
    this.#last = counters;
    this.#lastAt = at;
    if (this.#points.length > kept) this.#points.shift();
    this.#timer = this.#clock.after(everyMs, () => void this.#look());
  }
}

/** What happened between two looks at the processes. A worker that has ended takes its counts along. */
export function figure(
  at: number,
  seconds: number,
  before: readonly Counters[],
  now: readonly Counters[],
): Figure {
  const grown = (count: (counters: Counters) => number): number =>
    Math.max(0, sum(now, count) - sum(before, count));
  const acknowledged = [...delayBuckets, Infinity].map((_, index) =>
    grown((counters) => counters.acknowledged[index] ?? 0),
  );
  return {
    at,
    updates: seconds > 0 ? grown(({ responses }) => responses) / seconds : 0,
    acknowledged: quantile(0.99, acknowledged),
    streams: sum(now, ({ streams }) => streams),
    memory: sum(now, ({ memoryBytes }) => memoryBytes),
    busy: Math.max(0, ...now.map((counters, index) => busyPart(counters, before[index]))),
  };
}

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
