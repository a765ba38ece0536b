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
  /** In other workers, as far as it is known. */
  upstreams: Upstreams;
}

/**
 * A client reports its load to the control planes of which it has subscriptions (protocol §5c.2). Its stream of reports may
 * be in another worker than these: then its worker asks the primary, which asks all workers. Returns the names of upstreams
 * of which a node, the last one of its stream, has subscriptions in other workers, as far as it is known. `changed`: clients
 * may report to others from now on.
 */
export function subscribedElsewhere(
  clock: Clock,
  ask: (nodes: string[]) => Promise<readonly NodeSubscriptions[]>,
  changed: () => void,
): (node: string, stream: string) => Upstreams {
  /** By the stream that reports: those whose node was asked about last are the last. */
  const streams = new Map<string, Reporting>();
  /** By node, of these streams: a client that comes back is known already. */
  let known = new Map<string, Upstreams>();
  let looks = 0;
  let isAsking = false;
  const soon = new Sweep(clock, togetherMs, () => look(false));
  const again = new Sweep(clock, againMs, () => look(++looks % rarely === 0));

  return (node, stream) => {
    const reportedAt = clock.monotonic();
    const before = streams.get(stream);
    if (before?.node === node) {
      before.reportedAt = reportedAt;
      return before.upstreams;
    }
    const upstreams = known.get(node) ?? nothing;
    streams.set(stream, { node, reportedAt, upstreams });
    soon.start();
    return upstreams;
  };

  /** Whether to look again, so `soon` does once. */
  function look(isAboutAll: boolean): boolean {
    const now = clock.monotonic();
    for (const [stream, { reportedAt }] of streams)
      if (now - reportedAt >= forgottenMs) streams.delete(stream);
    known = new Map(streams.values().map(({ node, upstreams }) => [node, upstreams]));
    if (!isAsking) void askAboutSome(isAboutAll);
    if (streams.size > 0) again.start();
    return false;
  }

  /** A primary that does not answer is asked again: what was known stays. */
  async function askAboutSome(isAboutAll: boolean): Promise<void> {
    const asked = new Set<string>();
    for (const [stream, one] of [...streams]) {
      if (asked.size >= mostAsked) break;
      if (!isAboutAll && one.upstreams.size > 0) continue;
      asked.add(one.node);
      streams.delete(stream);
      streams.set(stream, one);
    }
    if (asked.size === 0) return;
    isAsking = true;
    const found = await ask([...asked]).catch(() => undefined);
    isAsking = false;
    if (found !== undefined) heard(asked, found);
  }

  function heard(asked: ReadonlySet<string>, found: readonly NodeSubscriptions[]): void {
    const upstreamsOf = new Map(found.map((one) => [one.node, new Set(one.upstreams)]));
    let isChanged = false;
    for (const one of streams.values()) {
      if (!asked.has(one.node)) continue;
      const upstreams = upstreamsOf.get(one.node) ?? nothing;
      if (one.upstreams.symmetricDifference(upstreams).size === 0) continue;
      one.upstreams = upstreams;
      known.set(one.node, upstreams);
      isChanged = true;
    }
    if (isChanged) changed();
  }
}
