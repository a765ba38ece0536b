import type { TypeUrl } from '../model/brand.ts';
import type { Sample } from '../observe/metrics.ts';
import type { Relay } from '../relay.ts';
import type { Accounts } from '../wire/accounts.ts';
import type { Staleness } from './staleness.ts';

/** What the gauges show of a process. */
export function sampleOf(
  relay: Relay,
  staleness: Staleness,
  connections: number,
  accounts: Accounts,
  loadStreams: Sample['loadStreams'],
): Sample {
  const counts = new Map<string, { transport: 'sotw' | 'delta'; service: string; count: number }>();
  for (const { route } of relay.server.streams()) {
    const key = `${route.protocol} ${route.service}`;
    const known = counts.get(key) ?? { transport: route.protocol, service: route.service, count: 0 };
    known.count++;
    counts.set(key, known);
  }
  const subscribers = subscribersOf(relay);
  const now = Date.now();
  return {
    connections,
    accounts,
    streams: [...counts.values()],
    types: [...relay.store.tables].map(([type, { resourceCount: resources, variants }]) =>
      Object.assign({ type, resources, variants }, subscribers.get(type) ?? NO_SUBSCRIBERS),
    ),
    upstreams: relay.upstreams.map((upstream) => {
      const { connected, sessions, fromSiblingsSince } = upstream.state();
      const staleSince = staleness.since(upstream);
      const staleSeconds = staleSince === undefined ? 0 : (now - staleSince) / 1000;
      const fromSiblings = fromSiblingsSince !== undefined;
      return { upstream: upstream.name, connected, sessions, staleSeconds, fromSiblings };
    }),
    cacheBytes: relay.store.bytes,
    loadStreams,
  };
}

interface Subscribers {
  subscriptions: number;
  /** Views: each is a class of clients. */
  classes: number;
  unacknowledged: number;
  rejecting: number;
}

const NO_SUBSCRIBERS: Readonly<Subscribers> = {
  subscriptions: 0,
  classes: 0,
  unacknowledged: 0,
  rejecting: 0,
};

/** What the streams of a process are subscribed to, by type, and what they make of it. */
function subscribersOf(relay: Relay): ReadonlyMap<TypeUrl, Readonly<Subscribers>> {
  const types = new Map<TypeUrl, Subscribers>();
  const of = (type: TypeUrl): Subscribers => {
    const known = types.get(type) ?? { ...NO_SUBSCRIBERS };
    types.set(type, known);
    return known;
  };
  for (const [type, subscriptions] of subscriptionsOf(relay)) of(type).subscriptions = subscriptions;
  for (const view of relay.views.all()) of(view.type).classes++;
  for (const stream of relay.server.streams()) {
    for (const { info, subscription } of stream.types) {
      const state = subscription?.responses.state;
      if (state === 'STALE') of(info.url).unacknowledged++;
      if (state === 'ERROR') of(info.url).rejecting++;
    }
  }
  return types;
}

/** How many subscriptions of each type the streams of a process have. */
export function subscriptionsOf(relay: Relay): ReadonlyMap<TypeUrl, number> {
  const counts = new Map<TypeUrl, number>();
  for (const view of relay.views.all()) {
    counts.set(view.type, (counts.get(view.type) ?? 0) + view.selection.size * view.subscribers.size);
  }
  return counts;
}
