import { isDeepStrictEqual } from 'node:util';
import { type Clock, Sweep } from '../model/clock.ts';
import type { Message, ToPrimary } from './ipc-messages.ts';
import type { WorkerSlot } from './worker-slot.ts';

// A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
// be in another worker than these. So a worker names the nodes that report there and have no subscription there, the primary
// passes them on, and the other workers say what these are subscribed to. Each message is all of it.

type Upstreams = ReadonlySet<string>;
const nothing: Upstreams = new Set();

interface WorkerParts {
  readonly clock: Clock;
  readonly send: (message: ToPrimary) => void;
  /** Names of the upstreams of which streams of this process have subscriptions, by their node's id. */
  readonly here: (node: string) => Upstreams;
  /** Clients may report to others from now on. */
  readonly changed: () => void;
}

/** New nodes come together, in milliseconds. */
const togetherMs = 50;
/** How often it is looked whether subscriptions have changed, and who reports no more, in milliseconds. */
const lookMs = 1000;
/** A node that nobody has asked about for so long reports no more, in milliseconds. */
const forgottenMs = 15_000;

/** A worker's end. */
export class SubscribedElsewhere {
  readonly #parts: WorkerParts;
  /** By `Clock.monotonic()`: when each node was asked about last. */
  readonly #askedAt = new Map<string, number>();
  readonly #telling: Sweep;
  readonly #looking: Sweep;
  #elsewhere: ReadonlyMap<string, Upstreams> = new Map();
  /** Nodes that report in other workers. */
  #wanted: readonly string[] = [];
  #said: Message<'subscribed'>['of'] = [];

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#telling = new Sweep(parts.clock, togetherMs, () => this.#tell());
    this.#looking = new Sweep(parts.clock, lookMs, () => this.#look());
  }

  /** Names of upstreams of which this node has subscriptions in other workers, as far as it is known. */
  of(node: string): Upstreams {
    if (!this.#askedAt.has(node)) this.#telling.start();
    this.#askedAt.set(node, this.#parts.clock.monotonic());
    return this.#elsewhere.get(node) ?? nothing;
  }

  receive(message: Message<'reporting_elsewhere' | 'subscribed_elsewhere'>): void {
    if (message.kind === 'reporting_elsewhere') {
      this.#wanted = message.nodes;
      this.#look();
      this.#looking.start();
      return;
    }
    this.#elsewhere = new Map(message.of.map(([node, upstreams]) => [node, new Set(upstreams)]));
    this.#parts.changed();
  }

  #tell(): boolean {
    this.#parts.send({ kind: 'reporting', nodes: [...this.#askedAt.keys()] });
    this.#looking.start();
    return false;
  }

  /** Whether there is anything to look at again. */
  #look(): boolean {
    const { clock, here, send } = this.#parts;
    const before = this.#askedAt.size;
    for (const [node, at] of this.#askedAt)
      if (clock.monotonic() - at >= forgottenMs) this.#askedAt.delete(node);
    if (this.#askedAt.size < before) this.#telling.start();
    const of = this.#wanted.flatMap((node) => {
      const upstreams = [...here(node)];
      return upstreams.length === 0 ? [] : [[node, upstreams] as const];
    });
    if (!isDeepStrictEqual(of, this.#said)) send({ kind: 'subscribed', of });
    this.#said = of;
    return this.#askedAt.size > 0 || this.#wanted.length > 0;
  }
}

type ReportingWorker = Pick<WorkerSlot, 'reporting' | 'subscribed' | 'send'>;

/** The primary's end: it passes on what workers say. */
export class SubscriptionExchange {
  readonly #workers: readonly ReportingWorker[];

  constructor(workers: readonly ReportingWorker[]) {
    this.#workers = workers;
  }

  /** It reports for other nodes than before. */
  reporting(from: ReportingWorker): void {
    for (const worker of this.#othersOf(from)) worker.send(this.reportingElsewhere(worker));
    // What the others have said already they do not say again.
    this.#tell(from);
  }

  /** A worker says something else than before, or has ended. */
  subscribed(): void {
    for (const worker of this.#workers) if (worker.reporting.length > 0) this.#tell(worker);
  }

  reportingElsewhere(worker: ReportingWorker | undefined): Message<'reporting_elsewhere'> {
    const nodes = new Set(this.#othersOf(worker).flatMap(({ reporting }) => reporting));
    return { kind: 'reporting_elsewhere', nodes: [...nodes] };
  }

  #tell(worker: ReportingWorker): void {
    const asked = new Set(worker.reporting);
    const all = new Map<string, Set<string>>();
    for (const [node, upstreams] of this.#othersOf(worker).flatMap(({ subscribed }) => subscribed))
      if (asked.has(node)) all.set(node, new Set(upstreams).union(all.get(node) ?? nothing));
    const of = [...all].map(([node, upstreams]) => [node, [...upstreams]] as const);
    worker.send({ kind: 'subscribed_elsewhere', of });
  }

  #othersOf(worker: ReportingWorker | undefined): readonly ReportingWorker[] {
    return this.#workers.filter((one) => one !== worker);
  }
}
