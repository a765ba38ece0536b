import { LOAD_PATH } from '../../src/model/load.ts';
import type { Parameters } from './constraints.ts';
import { type Asked, type Load, readAsked, writeReport } from './load-messages.ts';
import type { Call, Connection, Network } from './network.ts';
import { Random } from './random.ts';
import type { Note } from './violation.ts';

/** How soon a stream of reports is opened again, in milliseconds. */
const comeBack = 500;
/** Requests in a second, by cluster. */
const rates = { a: 60, b: 40 };
const zones = ['east', 'west'];

export interface LoadReporterOptions {
  readonly id: string;
  readonly network: Network;
  readonly note: Note;
  readonly parameters: () => Parameters;
  /** Every other of its requests fails. */
  readonly failing: () => boolean;
  /** A report has reached the relay. */
  readonly reported: () => void;
}

/** A client's stream of load reports, on the connection that it has for its resources. */
export class LoadReporter {
  readonly #options: LoadReporterOptions;
  readonly #random: Random;
  #call: Call | undefined;
  #asked: Asked | undefined;
  #told: Parameters | undefined;
  #reportedAt = 0;
  /** What is open stays open, and nothing else is requested. */
  resting = false;
  #open: readonly number[] = [];

  constructor(options: LoadReporterOptions) {
    this.#options = options;
    this.#random = new Random(options.network.options.seed, 'load', options.id);
  }

  get isAsked(): boolean {
    return this.#asked !== undefined;
  }

  open(connection: Connection): void {
    const { network, id, note } = this.#options;
    if (!connection.open) return;
    this.#asked = undefined;
    this.#told = undefined;
    const call = connection.call(LOAD_PATH, {
      message: (bytes) => {
        note(() => `${id} is asked for load: ${JSON.stringify(readAsked(bytes))}`);
        if (this.#call === call) this.#hear(call, readAsked(bytes));
        return false;
      },
      proceed: () => false,
      closed: () => {
        if (this.#call !== call) return;
        this.#call = undefined;
        network.loop.after(comeBack, () => {
          if (this.#call === undefined) this.open(connection);
        });
      },
    });
    this.#call = call;
    this.#send(call, []);
  }

  close(): void {
    this.#call = undefined;
  }

  #hear(call: Call, asked: Asked): void {
    const isFirst = this.#asked === undefined;
    this.#asked = asked;
    // What it has counted is not lost if it is asked for something else meanwhile.
    if (!isFirst) return;
    this.#reportedAt = this.#options.network.loop.monotonic();
    this.#schedule(call);
  }

  #schedule(call: Call): void {
    this.#options.network.loop.after(this.#asked?.intervalMs ?? 0, () => {
      if (this.#call !== call || !call.live) return;
      this.#send(call, this.#loads());
      this.#schedule(call);
    });
  }

  #loads(): readonly Load[] {
    const now = this.#options.network.loop.monotonic();
    const seconds = (now - this.#reportedAt) / 1000;
    this.#reportedAt = now;
    if (!this.resting) this.#open = zones.map(() => this.#random.below(4));
    const { clusters } = this.#asked ?? {};
    return Object.entries(rates).flatMap(([cluster, rate]) => {
      if (clusters !== undefined && !clusters.includes(cluster)) return [];
      return zones.map((zone, index): Load => {
        const requests = this.resting ? 0 : Math.round((rate * seconds) / zones.length);
        const error = this.#options.failing() ? Math.floor(requests / 2) : 0;
        const dropped = this.resting ? 0 : this.#random.below(3);
        return {
          cluster,
          zone,
          success: requests - error,
          error,
          dropped,
          inProgress: this.#open[index] ?? 0,
        };
      });
    });
  }

  #send(call: Call, loads: readonly Load[]): void {
    const { id, reported } = this.#options;
    const parameters = this.#options.parameters();
    const node = parameters === this.#told ? undefined : { id, parameters };
    this.#told = parameters;
    call.send(writeReport(node, loads), reported);
  }
}
