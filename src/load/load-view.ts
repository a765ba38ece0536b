import type { Clock } from '../model/clock.ts';
import { countIn, getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import type { Account } from '../wire/accounts.ts';
import { addCounts, type Counts, type ReadCluster } from './reading.ts';

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
/** Longer names are in sums only. Bytes. */
const longestName = 1024;

type Peer = Pick<Account, 'key' | 'exempt'>;

class Window {
  readonly since: number;
  readonly classes = new Map<
    string,
    { readonly of: ReportingClass; readonly byCluster: Map<string, Counts> }
  >();
  #size = 0;
  /** How many each peer has made, by its key: one that comes again has another account. */
  readonly #made = new Map<string, number>();

  constructor(since: number) {
    this.since = since;
  }

  /** Undefined: there is no room for it. */
  row(of: ReportingClass, peer: Peer, cluster: string): Counts | undefined {
    const known = this.classes.get(of.id)?.byCluster.get(cluster);
    if (known !== undefined) return known;
    const isFull = !peer.exempt && (this.#made.get(peer.key) ?? 0) >= mostRows / 2;
    if (isFull || this.#size >= mostRows || cluster.length > longestName) return undefined;
    this.#size++;
    countIn(this.#made, peer.key, 1);
    const { byCluster } = getOrMake(this.classes, of.id, () => ({ of, byCluster: new Map() }));
    return getOrMake(byCluster, cluster, () => ({ success: 0, error: 0, dropped: 0 }));
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
  add(of: ReportingClass, peer: Peer, clusters: readonly ReadCluster[]): void {
    const window = this.#windowAt(this.#clock.monotonic());
    for (const one of clusters) {
      const row = window.row(of, peer, one.name);
      if (row !== undefined) addCounts(row, one);
    }
  }

  /** What clients of each class said of each cluster. `seconds`: over how long. */
  rows() {
    const now = this.#clock.monotonic();
    const current = this.#windowAt(now);
    const windows = this.#last === undefined ? [current] : [this.#last, current];
    const shown = new Map<string, Counts & { readonly cluster: string; readonly of: ReportingClass }>();
    for (const { classes } of windows)
      for (const { of, byCluster } of classes.values())
        for (const [cluster, row] of byCluster) {
          const key = JSON.stringify([of.id, cluster]);
          const sum = getOrMake(shown, key, () => ({ cluster, of, success: 0, error: 0, dropped: 0 }));
          addCounts(sum, row);
        }
    return { loads: [...shown.values()], seconds: (now - (windows[0] ?? current).since) / 1000 };
  }

  #windowAt(now: number): Window {
    const { since } = this.#current;
    if (now < since + windowMs) return this.#current;
    this.#last = now < since + 2 * windowMs ? this.#current : undefined;
    this.#current = new Window(now);
    return this.#current;
  }
}
