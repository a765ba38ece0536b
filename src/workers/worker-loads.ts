import type { Load } from '../assembly/admission.ts';
import type { ToWorker } from './ipc-messages.ts';

/** A worker, as far as its clients count. */
export interface LoadedWorker {
  /** What its clients have open. */
  readonly load: Load;
  send(message: ToWorker): void;
}

/** What the clients of all workers have open. Each worker hears what the others have, and takes no more than is left. */
export class WorkerLoads {
  maxStreams: number;
  readonly #workers: readonly LoadedWorker[];
  /** How many streams of each worker have a place in `limits.max_streams`. */
  readonly #places = new Map<LoadedWorker, number>();
  #announcing = false;

  constructor(workers: readonly LoadedWorker[], maxStreams: number) {
    this.#workers = workers;
    this.maxStreams = maxStreams;
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
    this.#givePlaces();
    let [streams, connections] = [0, 0];
    for (const { load } of this.#workers) {
      streams += load.streams;
      connections += load.connections;
    }
    for (const worker of this.#workers) {
      const { load } = worker;
      const others = { streams: streams - load.streams, connections: connections - load.connections };
      const places = this.#placesOf(worker);
      const surplus = places < load.streams ? { mostStreams: places } : {};
      worker.send({ kind: 'load_elsewhere', load: others, ...surplus });
    }
  }

  /**
   * Two workers can take the last place at the same time: neither has heard of the other's stream then. Who has a place
   * keeps it, also if the limit is lower now.
   */
  #givePlaces(): void {
    for (const worker of this.#workers)
      this.#places.set(worker, Math.min(this.#placesOf(worker), worker.load.streams));
    let free = this.maxStreams - this.#places.values().reduce((sum, places) => sum + places, 0);
    for (const worker of this.#workers) {
      const places = this.#placesOf(worker);
      const more = Math.max(0, Math.min(worker.load.streams - places, free));
      this.#places.set(worker, places + more);
      free -= more;
    }
  }

  #placesOf(worker: LoadedWorker): number {
    return this.#places.get(worker) ?? 0;
  }
}
