import type { Load } from '../core.ts';
import type { Config } from '../config/config.ts';
import type { WorkerSlot } from './worker-slot.ts';

/** A worker, as far as its clients count. */
type LoadedWorker = Pick<WorkerSlot, 'load' | 'send'>;
type Limits = Pick<Config['limits'], 'maxStreams' | 'maxConnections'>;

/** What the clients of all workers have open. Each worker hears what the others have, and takes no more than is left. */
export class WorkerLoads {
  limits: Limits;
  readonly #workers: readonly LoadedWorker[];
  readonly #streams = new Places('streams');
  readonly #connections = new Places('connections');
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
    const { maxStreams, maxConnections } = this.limits;
    this.#streams.give(this.#workers, maxStreams);
    this.#connections.give(this.#workers, maxConnections);
    let [streams, connections] = [0, 0];
    for (const { load } of this.#workers) {
      streams += load.streams;
      connections += load.connections;
    }
    for (const worker of this.#workers) {
      const { load } = worker;
      const others = { streams: streams - load.streams, connections: connections - load.connections };
      const most = { ...this.#streams.mostOf(worker), ...this.#connections.mostOf(worker) };
      worker.send({ kind: 'load_elsewhere', load: others, most });
    }
  }
}

/** How many streams, or connections, of each worker have a place within the limit. */
class Places {
  readonly #what: keyof Load;
  readonly #places = new Map<LoadedWorker, number>();

  constructor(what: keyof Load) {
    this.#what = what;
  }

  /**
   * Two workers can take the last place at the same time: neither has heard of the other's then. Who has a place keeps it,
   * also if the limit is lower now.
   */
  give(workers: readonly LoadedWorker[], limit: number): void {
    for (const worker of workers)
      this.#places.set(worker, Math.min(this.#of(worker), worker.load[this.#what]));
    let free = limit - this.#places.values().reduce((sum, places) => sum + places, 0);
    for (const worker of workers) {
      const places = this.#of(worker);
      const more = Math.max(0, Math.min(worker.load[this.#what] - places, free));
      this.#places.set(worker, places + more);
      free -= more;
    }
  }

  /** Empty if all that it has have a place. */
  mostOf(worker: LoadedWorker): Partial<Load> {
    const places = this.#of(worker);
    return places < worker.load[this.#what] ? { [this.#what]: places } : {};
  }

  #of(worker: LoadedWorker): number {
    return this.#places.get(worker) ?? 0;
  }
}
