import type { Clock, Timer } from './clock.ts';
import { getOrMake } from './maps.ts';

/** Updates, ACKs and health checks wait for a slice of work to end, in milliseconds. */
const sliceMs = 5;

/**
 * Makes long answers one at a time, in slices of 5 ms, which several short ones share. Between two slices, 5 ms are left
 * for everything else. Payers take turns, so that one with many answers to make does not hold up the others.
 */
export class TimeSlices {
  readonly #clock: Clock;
  readonly #turns = new Turns<Payer | undefined>();
  /** Milliseconds of the current slice that are used up, and when that was. */
  #used = 0;
  #usedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs it when its payer's turn comes. */
  async run<T>(work: (pace: Pace) => Promise<T>, payer?: Payer): Promise<T> {
    await this.#turns.begin(payer);
    const isFresh = performance.now() - this.#usedAt > sliceMs;
    const pace = new Pace(this.#clock, payer, isFresh ? 0 : this.#used);
    try {
      return await work(pace);
    } finally {
      this.#used = pace.end();
      this.#usedAt = performance.now();
      if (this.#used < sliceMs) this.#turns.end();
      else this.#clock.after(sliceMs, () => this.#turns.end());
    }
  }
}

/** One piece of work at a time. Those who ask take turns, so that one with much to do does not hold up the others. */
export class Turns<Who> {
  readonly #waiting = new Map<Who, Set<(isTurn: boolean) => void>>();
  #isBusy = false;

  /** True: it is this one's turn, and `end` must follow once. False: `gone` came first. */
  begin(who: Who, gone?: AbortSignal): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    if (gone?.aborted === true) return Promise.resolve(false);
    const waiting = getOrMake(this.#waiting, who, () => new Set());
    waiting.add(resolve);
    gone?.addEventListener('abort', () => {
      resolve(false);
      waiting.delete(resolve);
      if (waiting.size === 0 && this.#waiting.get(who) === waiting) this.#waiting.delete(who);
    });
    if (!this.#isBusy) this.end();
    return promise;
  }

  /** Runs it when its turn has come. */
  async run<T>(who: Who, work: () => Promise<T>): Promise<T> {
    await this.begin(who);
    try {
      return await work();
    } finally {
      this.end();
    }
  }

  end(): void {
    const [first] = this.#waiting;
    this.#isBusy = first !== undefined;
    if (first === undefined) return;
    const [who, waiting] = first;
    this.#waiting.delete(who);
    const [begin] = waiting;
    if (begin !== undefined) waiting.delete(begin);
    if (waiting.size > 0) this.#waiting.set(who, waiting);
    begin?.(true);
  }
}

export class Pace {
  readonly #clock: Clock;
  readonly #payer: Payer | undefined;
  #began = performance.now();
  /** Milliseconds of this slice that were used before. */
  #used: number;

  constructor(clock: Clock, payer?: Payer, used = 0) {
    this.#clock = clock;
    this.#payer = payer;
    this.#used = used;
  }

  /** To be called after each piece of work: a promise to wait for if the slice is over, else undefined. */
  yieldIfDue(): Promise<void> | undefined {
    if (performance.now() < this.#began + sliceMs - this.#used) return undefined;
    this.end();
    return new Promise((resolve) => {
      this.#clock.after(sliceMs, () => {
        this.#began = performance.now();
        this.#used = 0;
        resolve();
      });
    });
  }

  /** The last slice is over: how many milliseconds of it are used up. */
  end(): number {
    const worked = performance.now() - this.#began;
    this.#payer?.spent(worked);
    return this.#used + worked;
  }
}

/** So many are sorted at once. */
const runLength = 2048;

type Compare<T> = (a: T, b: T) => number;

/** A sorted copy of a list of any length: a merge sort that makes pauses. */
export async function sortedInSlices<T>(
  list: readonly T[],
  compare: Compare<T>,
  pace: Pace,
): Promise<readonly T[]> {
  let runs: (readonly T[])[] = [];
  for (let at = 0; at < list.length; at += runLength) {
    await pace.yieldIfDue();
    runs.push(list.slice(at, at + runLength).toSorted(compare));
  }
  while (runs.length > 1) {
    const merged: (readonly T[])[] = [];
    for (let at = 0; at < runs.length; at += 2) {
      merged.push(await mergedInSlices(runs[at] ?? [], runs[at + 1] ?? [], compare, pace));
    }
    runs = merged;
  }
  return runs[0] ?? [];
}

async function mergedInSlices<T>(
  a: readonly T[],
  b: readonly T[],
  compare: Compare<T>,
  pace: Pace,
): Promise<readonly T[]> {
  const merged: T[] = [];
  for (const one of inOrder(a, b, compare)) {
    merged.push(one);
    if (merged.length % runLength === 0) await pace.yieldIfDue();
  }
  return merged;
}

function* inOrder<T>(a: readonly T[], b: readonly T[], compare: Compare<T>): Iterable<T> {
  const rest = b[Symbol.iterator]();
  let next = rest.next();
  for (const one of a) {
    for (; next.done !== true && compare(next.value, one) < 0; next = rest.next()) yield next.value;
    yield one;
  }
  for (; next.done !== true; next = rest.next()) yield next.value;
}

/** Whose account work and memory go to (wire/accounts.ts). */
export interface Payer {
  /** So many milliseconds of work are done. */
  spent(milliseconds: number): void;
  /** So many bytes more, or less, are kept for it alone. They count beyond the bound too. */
  keeps(bytes: number): void;
}

/** A turn of the event loop ends after so many bytes, whatever the number of entries: they are hashed and copied. */
const bytesPerTurn = 1024 * 1024;

/** Work in parts: each `next` is one turn of the event loop, and the last one gives the result. */
export type InTurns<T> = Generator<undefined, T, undefined>;

/** Divides the reading of a large message into turns. */
export class ReadingPace {
  readonly #entriesPerTurn: number;
  #entries = 0;
  #bytes = 0;

  constructor(entriesPerTurn: number) {
    this.#entriesPerTurn = entriesPerTurn;
  }

  /** One more entry of so many bytes was read: whether others get a turn now. */
  isTurnOver(bytes: number): boolean {
    this.#entries++;
    this.#bytes += bytes;
    if (this.#entries < this.#entriesPerTurn && this.#bytes < bytesPerTurn) return false;
    this.#entries = 0;
    this.#bytes = 0;
    return true;
  }
}

/** A fleet, to each of which something is done once, in slices of 5 ms. Between two slices, 5 ms are left for everything else. */
export class OverTurns<T> extends Set<T> {
  readonly #clock: Pick<Clock, 'after' | 'monotonic'>;
  readonly #act: (one: T) => void;
  #timer: Timer | undefined;

  /** `act` must `delete` what it is given: until then it waits. */
  constructor(clock: Pick<Clock, 'after' | 'monotonic'>, act: (one: T) => void) {
    super();
    this.#clock = clock;
    this.#act = act;
  }

  addAll(all: Iterable<T>): void {
    for (const one of all) this.add(one);
    if (this.#timer === undefined) this.#next();
  }

  override clear(): void {
    super.clear();
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #next(): void {
    const end = this.#clock.monotonic() + sliceMs;
    for (const one of this) {
      this.#act(one);
      if (this.#clock.monotonic() > end) break;
    }
    if (this.size === 0) return;
    this.#timer ??= this.#clock.after(sliceMs, () => {
      this.#timer = undefined;
      this.#next();
    });
  }
}

/** In slices, one after the other. */
export async function inSlices<T>(work: InTurns<T>, pace: Pace): Promise<T> {
  for (let step = work.next(); ; step = work.next()) {
    if (step.done === true) return step.value;
    await pace.yieldIfDue();
  }
}

/** All of it in this turn. */
export function atOnce<T>(reading: InTurns<T>): T {
  for (;;) {
    const step = reading.next();
    if (step.done === true) return step.value;
  }
}
