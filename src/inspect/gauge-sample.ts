import type { TypeUrl } from '../model/brand.ts';
import type { Sample } from '../observe/sample.ts';
import type { Relay } from '../relay.ts';
import type { Staleness } from './staleness.ts';

/** What the gauges show of a process. */
export function sampleOf(relay: Relay, staleness: Staleness, connections: number): Sample {
  const counts = new Map<string, { transport: 'sotw' | 'delta'; service: string; count: number }>();
  for (const { route } of relay.server.streams()) {
    const key = `${route.protocol} ${route.service}`;
    const known = counts.get(key) ?? { transport: route.protocol, service: route.service, count: 0 };
    known.count++;
    counts.set(key, known);
  }
  const subscriptions = subscriptionsOf(relay);
  const now = Date.now();
  return {
    connections,
    streams: [...counts.values()],
    types: [...relay.store.tables()].map(([type, table]) => ({
      type,
      subscriptions: subscriptions.get(type) ?? 0,
      resources: table.resourceCount,
      variants: table.variants,
    })),
    upstreams: relay.upstreams.map((upstream) => {
      const { connected, sessions } = upstream.state();
      const staleSince = staleness.since(upstream);
      const staleSeconds = staleSince === undefined ? 0 : (now - staleSince) / 1000;
      return { upstream: upstream.name, connected, sessions, staleSeconds };
    }),
    cacheBytes: relay.store.bytes,
  };
}

/** How many subscriptions of each type the streams of a process have. */
export function subscriptionsOf(relay: Relay): ReadonlyMap<TypeUrl, number> {
  const counts = new Map<TypeUrl, number>();
  for (const view of relay.views.all()) {
    counts.set(view.type, (counts.get(view.type) ?? 0) + view.selection.size * view.subscribers.size);
  }
  return counts;
}
