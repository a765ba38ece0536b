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

/** The primary and each worker answer in one turn. */
const mostAsked = 20_000;

interface Reporting {
  readonly node: string;
  /** By `Clock.monotonic()`: the last time. */
  reportedAt: number;
  /** In other workers; undefined: nobody has answered yet. */
  upstreams: Upstreams | undefined;
}

/**
 * A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
 * be in another worker than these: then its worker asks the primary, which asks all workers.
 */
export class SubscribedElsewhere {
  readonly #clock: Clock;
  readonly #ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>;
  readonly #changed: () => void;
  /** By the stream that reports: those whose node was asked about last are the last. */
  readonly #streams = new Map<string, Reporting>();
  /** By node, of these streams: a client that comes back is known already. */
  #known = new Map<string, Upstreams | undefined>();
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

  /**
   * Names of upstreams of which this node, the last one of its stream, has subscriptions in other workers. Undefined: that is
   * not known yet.
   */
  of(node: string, stream: string): Upstreams | undefined {
    const reportedAt = this.#clock.monotonic();
    const known = this.#streams.get(stream);
    if (known?.node !== node) {
      const upstreams = this.#known.get(node);
      this.#streams.set(stream, { node, reportedAt, upstreams });
      this.#soon.start();
      return upstreams;
    }
    known.reportedAt = reportedAt;
    return known.upstreams;
  }

  /** Whether to look again, so `#soon` does once. */
  #look(isAboutAll: boolean): boolean {
    const now = this.#clock.monotonic();
    for (const [stream, { reportedAt }] of this.#streams)
      if (now - reportedAt >= forgottenMs) this.#streams.delete(stream);
    this.#known = new Map(this.#streams.values().map(({ node, upstreams }) => [node, upstreams]));
    if (!this.#isAsking) this.#askAboutSome(isAboutAll);
    if (this.#streams.size > 0) this.#again.start();
    return false;
  }

  #askAboutSome(isAboutAll: boolean): void {
    const asked = new Set<string>();
    for (const [stream, one] of [...this.#streams]) {
      if (asked.size >= mostAsked) break;
      if (!isAboutAll && (one.upstreams ?? nothing).size > 0) continue;
      asked.add(one.node);
      this.#streams.delete(stream);
      this.#streams.set(stream, one);
    }
    if (asked.size > 0) void this.#askAbout([...asked]);
  }

  /** A primary that does not answer is asked again. */
  async #askAbout(nodes: string[]): Promise<void> {
    this.#isAsking = true;
    const found = await this.#ask(nodes).catch(() => undefined);
    this.#isAsking = false;
    this.#heard(nodes, found);
  }

  /** `found`: undefined if there was no answer. Then what was known stays, and nobody waits longer. */
  #heard(asked: readonly string[], found: readonly NodeSubscriptions[] | undefined): void {
    const upstreamsOf = found && new Map(found.map((one) => [one.node, new Set(one.upstreams)]));
    let isChanged = false;
    const nodes = new Set(asked);
    for (const one of this.#streams.values()) {
      if (!nodes.has(one.node)) continue;
      const upstreams = (upstreamsOf === undefined ? one.upstreams : upstreamsOf.get(one.node)) ?? nothing;
      if (one.upstreams?.symmetricDifference(upstreams).size === 0) continue;
      one.upstreams = upstreams;
      this.#known.set(one.node, upstreams);
      isChanged = true;
    }
    if (isChanged) this.#changed();
  }
}
