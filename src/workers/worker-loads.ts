import type { Config } from '../config/config.ts';
import type { Load } from '../core.ts';
import type { WorkerSlot } from './worker-slot.ts';

/** A worker, as far as its clients count. */
type LoadedWorker = Pick<WorkerSlot, 'load' | 'send'>;
type Limits = Pick<Config['limits'], 'maxStreams' | 'maxConnections'>;

/** What the clients of all workers have open. Each worker hears what the others have, and takes no more than is left. */
export class WorkerLoads {
  limits: Limits;
  readonly #workers: readonly LoadedWorker[];
  /** How many streams and connections of each worker have a place within the limits. */
  readonly #places: Record<keyof Load, readonly number[]> = { streams: [], connections: [] };
  #announcing = false;

  constructor(workers: readonly LoadedWorker[], limits: Limits) {
    this.#workers = workers;
    this.limits = limits;
  }

  /** One message to each worker for all that happens meanwhile. */
  changed(): void {
    if (this.#announcing) return;
    this.#announcing = true;
    setImmediate(() => {
      this.#announcing = false;
      this.#announce();
    });
  }

  #announce(): void {
    const streams = this.#give('streams', this.limits.maxStreams);
    const connections = this.#give('connections', this.limits.maxConnections);
    for (const [at, worker] of this.#workers.entries()) {
      const load = { streams: streams[at]?.others ?? 0, connections: connections[at]?.others ?? 0 };
      worker.send({ kind: 'load_elsewhere', load, most: { ...streams[at]?.most, ...connections[at]?.most } });
    }
  }

  /**
   * What each worker hears: what the others have, and how many it keeps, if not all that it has have a place. Two workers can
   * take the last place at the same time: neither has heard of the other's then. Who has a place keeps it, also if the limit
   * is lower now.
   */
  #give(what: keyof Load, limit: number) {
    const loads = this.#workers.map(({ load }) => load[what]);
    const kept = loads.map((load, at) => Math.min(load, this.#places[what][at] ?? 0));
    let free = limit - sum(kept);
    this.#places[what] = kept.map((places, at) => {
      const more = Math.max(0, Math.min((loads[at] ?? 0) - places, free));
      free -= more;
      return places + more;
    });
    return loads.map((load, at) => {
      const places = this.#places[what][at] ?? 0;
      const most: Partial<Load> = places < load ? { [what]: places } : {};
      return { others: sum(loads) - load, most };
    });
  }
}

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
