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

interface Reporting {
  /** By `Clock.monotonic()`: the last time. */
  reportedAt: number;
  /** In other workers, as far as it is known. */
  upstreams: Upstreams;
}

/**
 * A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
 * be in another worker than these: then its worker asks the primary, which asks all workers.
 */
export class SubscribedElsewhere {
  readonly #clock: Clock;
  readonly #ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>;
  readonly #changed: () => void;
  readonly #nodes = new Map<string, Reporting>();
  readonly #soon: Sweep;
  readonly #again: Sweep;
  #looks = 0;
  #isAsking = false;

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
    const reportedAt = this.#clock.monotonic();
    const known = this.#nodes.get(node);
    if (known === undefined) {
      this.#nodes.set(node, { reportedAt, upstreams: nothing });
      this.#soon.start();
      return nothing;
    }
    known.reportedAt = reportedAt;
    return known.upstreams;
  }

  /** Whether to look again, so `#soon` does once. */
  #look(isAboutAll: boolean): boolean {
    const now = this.#clock.monotonic();
    for (const [node, { reportedAt }] of this.#nodes)
      if (now - reportedAt >= forgottenMs) this.#nodes.delete(node);
    const asked = [...this.#nodes].filter(([, { upstreams }]) => isAboutAll || upstreams.size === 0);
    if (asked.length > 0 && !this.#isAsking) void this.#askAbout(asked.map(([node]) => node));
    if (this.#nodes.size > 0) this.#again.start();
    return false;
  }

  /** A primary that does not answer is asked again. */
  async #askAbout(nodes: string[]): Promise<void> {
    this.#isAsking = true;
    try {
      this.#heard(nodes, await this.#ask(nodes));
    } catch {
      // What was known stays.
    } finally {
      this.#isAsking = false;
    }
  }

  #heard(asked: readonly string[], found: readonly NodeSubscriptions[]): void {
    const upstreamsOf = new Map(found.map((one) => [one.node, new Set(one.upstreams)]));
    let isChanged = false;
    for (const node of asked) {
      const known = this.#nodes.get(node);
      const upstreams = upstreamsOf.get(node) ?? nothing;
      if (known === undefined || known.upstreams.symmetricDifference(upstreams).size === 0) continue;
      known.upstreams = upstreams;
      isChanged = true;
    }
    if (isChanged) this.#changed();
  }
}
