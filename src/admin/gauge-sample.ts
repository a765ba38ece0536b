import type { Route } from '../downstream/xds-server.ts';
import type { TypeUrl } from '../model/brand.ts';
import { getOrMake } from '../model/maps.ts';
import type { Upstream, UpstreamState } from '../model/upstream.ts';
import type { Sample } from '../observe/metrics.ts';
import type { Reading } from '../observe/series.ts';
import type { Relay } from '../relay.ts';
import type { Accounts } from '../wire/accounts.ts';
import type { Staleness } from './staleness.ts';

/** Shown while there are none, as are those that there were: an autoscaler cannot read a metric that no replica has. */
const always: readonly Kind[] = [
  { protocol: 'sotw', service: 'ads' },
  { protocol: 'delta', service: 'ads' },
];
type Kind = Pick<Route, 'protocol' | 'service'>;
const kindOf = ({ protocol, service }: Kind): string => `${protocol} ${service}`;

/** What the gauges show of a process. */
export function sampleOf(
  relay: Relay,
  staleness: Staleness,
  connections: number,
  accounts: Accounts,
  loadStreams: { readonly received: number; readonly sent: number },
): Sample {
  const { store } = relay;
  const streams = Map.groupBy(relay.server.values(), ({ route }) => kindOf(route));
  const subscribers = subscribersOf(relay);
  const now = Date.now();
  const perType = (count: (of: Readonly<Subscribers>) => number): Reading[] =>
    [...store.tables].map(([type]) => [count(subscribers.get(type) ?? NO_SUBSCRIBERS), type]);
  const perUpstream = (value: (of: UpstreamState, upstream: Upstream) => number): Reading[] =>
    relay.upstreams.map((upstream) => [value(upstream.state(), upstream), upstream.name]);
  return {
    downstream_connections: [[connections]],
    peer_accounts: [[accounts.size]],
    peer_waiting: [[accounts.waiting]],
    peer_held_bytes: [[accounts.held]],
    downstream_streams: Array.from(
      new Set([...always, ...relay.server.routes].map(kindOf)),
      (kind): Reading => [streams.get(kind)?.length ?? 0, ...kind.split(' ')],
    ),
    downstream_subscriptions: perType(({ subscriptions }) => subscriptions),
    classes: perType(({ classes }) => classes),
    downstream_unacknowledged: perType(({ unacknowledged }) => unacknowledged),
    downstream_rejecting: perType(({ rejecting }) => rejecting),
    upstream_connected: perUpstream(({ connected }) => Number(connected)),
    upstream_sessions: perUpstream(({ sessions }) => sessions),
    upstream_kept_bytes: perUpstream((_, upstream) => upstream.keptBytes?.() ?? 0),
    upstream_stale_seconds: perUpstream((_, upstream) => {
      const since = staleness.since(upstream);
      return since === undefined ? 0 : (now - since) / 1000;
    }),
    upstream_from_siblings: perUpstream((state) => Number(state.fromSiblingsSince !== undefined)),
    cache_resources: [...store.tables].map(([type, { resourceCount }]) => [resourceCount, type]),
    cache_variants: [...store.tables].map(([type, { variants }]) => [variants, type]),
    load_report_streams: [
      [loadStreams.received, 'received'],
      [loadStreams.sent, 'sent'],
    ],
    cache_bytes: [[store.bytes]],
  };
}

/** `classes` are views: each is a class of clients. */
const NO_SUBSCRIBERS = { subscriptions: 0, classes: 0, unacknowledged: 0, rejecting: 0 };
type Subscribers = typeof NO_SUBSCRIBERS;

/** What the streams of a process are subscribed to, by type, and what they make of it. */
function subscribersOf(relay: Relay): ReadonlyMap<TypeUrl, Readonly<Subscribers>> {
  const types = new Map<TypeUrl, Subscribers>();
  const of = (type: TypeUrl): Subscribers => getOrMake(types, type, () => ({ ...NO_SUBSCRIBERS }));
  for (const [type, subscriptions] of subscriptionsOf(relay)) of(type).subscriptions = subscriptions;
  for (const view of relay.views.all()) of(view.type).classes++;
  for (const stream of relay.server.values()) {
    for (const { info, subscription } of stream.types) {
      const state = subscription?.responses.state;
      if (state === 'STALE') of(info.url).unacknowledged++;
      if (state === 'ERROR') of(info.url).rejecting++;
    }
  }
  return types;
}

/** How many subscriptions of each type the streams of a process have, and the classes of polls. */
export function subscriptionsOf(relay: Relay): ReadonlyMap<TypeUrl, number> {
  const counts = new Map<TypeUrl, number>();
  for (const view of relay.views.all()) {
    counts.set(view.type, (counts.get(view.type) ?? 0) + view.selection.size * view.subscribed);
  }
  return counts;
}
