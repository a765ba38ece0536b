import { isDeepStrictEqual } from 'node:util';
import type { NodeSubscriptions } from '../gen/distributary/workers/v1/workers_pb.ts';
import { type Clock, Sweep } from '../model/clock.ts';

type Upstreams = ReadonlySet<string>;
const nothing: Upstreams = new Set();

/** New nodes are asked about together, in milliseconds. */
const togetherMs = 50;
/** How often it is asked about nodes that have no subscription elsewhere, and who reports no more, in milliseconds. */
const againMs = 1000;
/** So many times as rarely the others are asked about again. */
const rarely = 5;
/** A node that nobody has asked about for so long reports no more, in milliseconds. */
const forgottenMs = 15_000;

/**
 * A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
 * be in another worker than these: then its worker asks the primary, which asks all workers.
 */
export class SubscribedElsewhere {
  readonly #clock: Clock;
  readonly #ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>;
  readonly #changed: () => void;
  /** By `Clock.monotonic()`: when a report was last about each node. */
  readonly #reportedAt = new Map<string, number>();
  readonly #soon: Sweep;
  readonly #again: Sweep;
  #elsewhere: ReadonlyMap<string, Upstreams> = new Map();
  #looks = 0;

  /** `changed`: clients may report to others from now on. */
  constructor(
    clock: Clock,
    ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>,
    changed: () => void,
  ) {
    this.#clock = clock;
    this.#ask = ask;
    this.#changed = changed;
    this.#soon = new Sweep(clock, togetherMs, () => this.#look(false));
    this.#again = new Sweep(clock, againMs, () => this.#look(++this.#looks % rarely === 0));
  }

  /** Names of upstreams of which this node has subscriptions in other workers, as far as it is known. */
  of(node: string): Upstreams {
    if (!this.#reportedAt.has(node)) this.#soon.start();
    this.#reportedAt.set(node, this.#clock.monotonic());
    return this.#elsewhere.get(node) ?? nothing;
  }

  /** Whether to look again, so `#soon` does once. */
  #look(isAboutAll: boolean): boolean {
    const now = this.#clock.monotonic();
    for (const [node, at] of this.#reportedAt) if (now - at >= forgottenMs) this.#reportedAt.delete(node);
    const nodes = [...this.#reportedAt.keys()].filter((node) => isAboutAll || !this.#elsewhere.has(node));
    // A primary that does not answer is asked again.
    if (nodes.length > 0)
      void this.#ask(nodes).then(
        (found) => this.#heard(nodes, found),
        () => undefined,
      );
    if (this.#reportedAt.size > 0) this.#again.start();
    return false;
  }

  #heard(asked: readonly string[], found: readonly NodeSubscriptions[]): void {
    const about = new Set(asked);
    const kept = [...this.#elsewhere].filter(([node]) => this.#reportedAt.has(node) && !about.has(node));
    const now = new Map([...kept, ...found.map((one) => [one.node, new Set(one.upstreams)] as const)]);
    if (isDeepStrictEqual(now, this.#elsewhere)) return;
    this.#elsewhere = now;
    this.#changed();
  }
}
