import type { Plain } from '../admin/ports.ts';
import type { XdsStream } from '../downstream/xds-stream.ts';
import type { ClientHolding, GetClientResponse } from '../gen/distributary/admin/v1/fleet_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { formatConstraints } from '../model/constraints.ts';
import type { Holding } from '../model/subscription.ts';
import { classOf } from './client-class.ts';

/** The worst first. */
const urgency: ReadonlyMap<string, number> = new Map([
  ['ERROR', 0],
  ['STALE', 1],
  ['NOT_SENT', 2],
  ['SYNCED', 3],
]);

/** One stream, with at most so many of the names that it has. */
export function clientDetail(stream: XdsStream, limit: number): Plain<GetClientResponse> {
  const { id, client, route, transport } = stream;
  const all = stream.types.flatMap(({ info, subscription }) =>
    [...(subscription?.holdings() ?? [])].map((holding) => row(info.short, holding)),
  );
  const holdings = all
    .toSorted((a, b) => (urgency.get(a.state) ?? 0) - (urgency.get(b.state) ?? 0))
    .slice(0, limit);
  return {
    id,
    nodeId: client?.nodeId ?? '',
    nodeCluster: client?.cluster ?? '',
    peer: transport.peer.address,
    transport: route.protocol,
    service: route.service,
    class: client === undefined ? '' : classOf(client).id,
    parameters: Object.fromEntries(client?.derived(undefined).entries ?? []),
    holdings,
    total: all.length,
  };
}

function row(type: string, { name, value, state, current, rejection }: Holding): Plain<ClientHolding> {
  const about = isVariant(value)
    ? {
        constraints: formatConstraints(value.constraints.expression),
        version: value.version,
        since: new Date(value.cachedSince).toISOString(),
      }
    : { constraints: '', version: '', since: '' };
  const sent = isVariant(value) ? 'present' : value === 'absent' ? 'absent' : '';
  return { type, name, state, sent, ...about, current, error: rejection?.message ?? '' };
}
