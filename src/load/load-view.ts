import type { Clock } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import { addCounts, type Counts, type ReadCluster } from './reading.ts';
import type { Payer } from './rows.ts';

/** A class of clients, as operators see it. */
export interface ReportingClass {
  /** The same in every process. */
  readonly id: string;
  readonly parameters: Parameters;
}

/** What is shown is of the last one of these, and of what has passed of the next. Milliseconds. */
const windowMs = 30_000;
/** Rows that one process keeps for one window; a peer may make half of them. Reports of others count in sums only. */
const mostRows = 20_000;
/** A place of an account. */
const rowPlace = 'load shown';

/** A row costs about so much beside its name. */
const rowBytes = 200;
/** Longer names are in sums only. Bytes. */
const longestName = 1024;

type Row = Counts & { readonly payer: Payer };

class Window {
  readonly since: number;
  /** By class and cluster. */
  readonly classes = new Map<string, { readonly of: ReportingClass; readonly rows: Map<string, Row> }>();
  size = 0;

  constructor(since: number) {
    this.since = since;
  }
}

/** What clients reported in the last half a minute to minute, for operators. */
export class LoadView {
  readonly #clock: Clock;
  #last: Window | undefined;
  #current: Window;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#current = new Window(clock.monotonic());
  }

  /** What a report says of clusters. */
  add(of: ReportingClass, payer: Payer, clusters: readonly ReadCluster[]): void {
    const window = this.#windowAt(this.#clock.monotonic());
    let known = window.classes.get(of.id);
    for (const one of clusters) {
      const row = known?.rows.get(one.name) ?? made(window, of, payer, one.name);
      if (row === undefined) continue;
      known ??= window.classes.get(of.id);
      addCounts(row, one);
    }
  }

  /** What clients of each class said of each cluster. `seconds`: over how long. */
  rows() {
    const now = this.#clock.monotonic();
    const current = this.#windowAt(now);
    const windows = this.#last === undefined ? [current] : [this.#last, current];
    const shown = new Map<string, Counts & { readonly cluster: string; readonly of: ReportingClass }>();
    for (const { classes } of windows)
      for (const { of, rows } of classes.values())
        for (const [cluster, row] of rows) {
          const key = JSON.stringify([of.id, cluster]);
          const sum = getOrMake(shown, key, () => ({ cluster, of, success: 0, error: 0, dropped: 0 }));
          addCounts(sum, row);
        }
    return { loads: [...shown.values()], seconds: (now - (windows[0] ?? current).since) / 1000 };
  }

  /** Where nobody reports any more, and nobody looks, what was reported would be paid for as long. */
  forgetOld(): void {
    this.#windowAt(this.#clock.monotonic());
  }

  #windowAt(now: number): Window {
    if (now < this.#current.since + windowMs) return this.#current;
    if (this.#last !== undefined) forget(this.#last);
    const isNext = now < this.#current.since + 2 * windowMs;
    if (!isNext) forget(this.#current);
    this.#last = isNext ? this.#current : undefined;
    this.#current = new Window(now);
    return this.#current;
  }
}

/** Undefined: there is no room for it. */
function made(window: Window, of: ReportingClass, payer: Payer, cluster: string): Row | undefined {
  if (window.size >= mostRows || (!payer.exempt && payer.count(rowPlace) >= mostRows / 2)) return undefined;
  if (cluster.length > longestName || payer.hold(rowBytes + cluster.length) !== undefined) return undefined;
  const own = getOrMake(window.classes, of.id, () => ({ of, rows: new Map<string, Row>() }));
  const row: Row = { success: 0, error: 0, dropped: 0, payer };
  payer.enter(rowPlace);
  window.size++;
  own.rows.set(cluster, row);
  return row;
}

/** Nobody pays for its rows any more. */
function forget({ classes }: Window): void {
  for (const { rows } of classes.values())
    for (const [cluster, { payer }] of rows) {
      payer.leave(rowPlace);
      payer.hold(-rowBytes - cluster.length);
    }
}
