import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { ClientQuery } from '../admin/requests.ts';
import type { ListedClient } from '../downstream/services.ts';
import {
  type ClientHolding,
  ClientHoldingSchema,
  type GetClientResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { formatConstraints } from '../model/constraints.ts';
import { isCollection } from '../model/selection.ts';
import type { ClientState, Holding } from '../model/subscription.ts';
import type { Pace } from '../model/time-slices.ts';
import type { Relay } from '../relay.ts';
import { classOf } from './client-class.ts';
import { missingOf, stateOfHolding } from './client-state.ts';

/** The worst first. */
const urgency: readonly ClientState[] = ['ERROR', 'MISSING', 'STALE', 'NOT_SENT', 'SYNCED'];

/** One client, with so many of the names that it has. */
export async function clientDetail(
  stream: ListedClient,
  { limit, offset }: Omit<ClientQuery, 'id'>,
  relay: Pick<Relay, 'isServed'>,
  pace: Pace,
): Promise<Listed<typeof GetClientResponseSchema>> {
  const { id, client, route, transport } = stream;
  const byState = new Map<ClientState, Held[]>();
  let total = 0;
  const found = (held: Held): void => {
    total++;
    const same = byState.get(held.state) ?? [];
    byState.set(held.state, same);
    same.push(held);
  };
  for (const type of stream.types) {
    const { short } = type.info;
    for (const holding of type.subscription?.holdings() ?? []) {
      await pace.yieldIfDue();
      found({ ...holding, type: short, state: stateOfHolding(holding) });
    }
    // Wildcards and globs that show nothing have no holding.
    for (const { name, canonical } of missingOf(type, relay))
      if (isCollection(canonical)) found({ ...nothingHeld, type: short, name });
  }
  const page = urgency.flatMap((state) => byState.get(state) ?? []).slice(offset, offset + limit);
  const rows = Iterator.from(page).map(row);
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

/** What is shown of a holding. */
interface Held extends Pick<Holding, 'name' | 'value' | 'current' | 'rejection'> {
  readonly type: string;
  readonly state: ClientState;
}

const nothingHeld: Omit<Held, 'type' | 'name'> = {
  state: 'MISSING',
  value: undefined,
  current: true,
  rejection: undefined,
};

function row({ type, name, value, state, current, rejection }: Held): ClientHolding {
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
