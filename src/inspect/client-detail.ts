import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { ClientQuery } from '../admin/fleet-ports.ts';
import type { ListedClient } from '../downstream/services.ts';
import {
  type ClientHolding,
  ClientHoldingSchema,
  type GetClientResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { formatConstraints } from '../model/constraints.ts';
import type { Holding, SyncState } from '../model/subscription.ts';
import type { Pace } from '../model/time-slices.ts';
import { classOf } from './client-class.ts';

/** The worst first. */
const urgency: readonly SyncState[] = ['ERROR', 'STALE', 'NOT_SENT', 'SYNCED'];

/** One client, with so many of the names that it has. */
export async function clientDetail(
  stream: ListedClient,
  { limit, offset }: Omit<ClientQuery, 'id'>,
  pace: Pace,
): Promise<Listed<typeof GetClientResponseSchema>> {
  const { id, client, route, transport } = stream;
  const byState = new Map<SyncState, (readonly [string, Holding])[]>();
  let total = 0;
  for (const { info, subscription } of stream.types) {
    for (const holding of subscription?.holdings() ?? []) {
      await pace.yieldIfDue();
      total++;
      const same = byState.get(holding.state) ?? [];
      byState.set(holding.state, same);
      same.push([info.short, holding]);
    }
  }
  const page = urgency.flatMap((state) => byState.get(state) ?? []).slice(offset, offset + limit);
  const rows = Iterator.from(page).map(([type, holding]) => row(type, holding));
  const known = {
    id,
    nodeId: client?.nodeId ?? '',
    nodeCluster: client?.cluster ?? '',
    peer: transport.peer.address,
    transport: route.protocol,
    service: route.service,
    class: client === undefined ? '' : classOf(client).id,
    parameters: Object.fromEntries(client?.derived(undefined).entries ?? []),
    total,
  };
  return new Listed(known, { field: 'holdings', rows }, (written) => ({
    nextOffset: written > 0 && offset + written < total ? offset + written : 0,
  }));
}

function row(type: string, { name, value, state, current, rejection }: Holding): ClientHolding {
  const about = isVariant(value)
    ? {
        constraints: formatConstraints(value.constraints.expression),
        version: value.version,
        since: new Date(value.cachedSince).toISOString(),
      }
    : { constraints: '', version: '', since: '' };
  const sent = isVariant(value) ? 'present' : value === 'absent' ? 'absent' : '';
  return create(ClientHoldingSchema, {
    ...{ type, name, state, sent, ...about, current },
    error: rejection?.message ?? '',
  });
}
