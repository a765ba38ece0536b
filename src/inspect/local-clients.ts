import type { ExplainQuery, Plain } from '../admin/ports.ts';
import type { TypeStream } from '../downstream/type-stream.ts';
import type { XdsStream } from '../downstream/xds-stream.ts';
import type {
  ClientTypeState,
  HeldVariant,
  ListClientsResponse,
  NackStatus,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import { isVariant } from '../model/catalog.ts';
import { systemClock } from '../model/clock.ts';
import { formatConstraints } from '../model/constraints.ts';
import { NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { TimeSlices } from '../model/time-slices.ts';
import { TypeLabels } from '../observe/type-label.ts';
import type { Relay } from '../relay.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import { type ClientStatusQuery, clientConfigs } from './client-configs.ts';
import { type ClientDetails, type ClientsSummary, type ClientsView, mostRecent } from './clients-view.ts';
import { subscriptionsOf } from './gauge-sample.ts';

/** The clients whose streams end in this process: read when asked for. */
export class LocalClients implements ClientsView {
  readonly #relay: Relay;
  readonly #slices = new TimeSlices(systemClock);

  constructor(relay: Relay) {
    this.#relay = relay;
  }

  summary(): ClientsSummary {
    const { server } = this.#relay;
    const labels = new TypeLabels();
    const subscriptions = new Map<string, number>();
    for (const [type, count] of subscriptionsOf(this.#relay)) {
      const label = labels.of(type);
      subscriptions.set(label, (subscriptions.get(label) ?? 0) + count);
    }
    return { streams: server.size, subscriptions, nacks: this.#nacks(), workers: [] };
  }

  list(limit: number | undefined): Plain<ListClientsResponse> {
    const streams = [...this.#relay.server.streams()];
    if (limit !== undefined)
      streams.sort((a, b) => Number(rejectsSomething(b)) - Number(rejectsSomething(a)));
    return {
      clients: streams.slice(0, limit).map((stream) => ({
        id: stream.id,
        node: { id: stream.client?.nodeId ?? '', cluster: stream.client?.cluster ?? '' },
        peer: stream.transport.peer.address,
        transport: stream.route.protocol,
        service: stream.route.service,
        types: stream.types.map(typeState),
      })),
      total: streams.length,
    };
  }

  find(
    client: string,
    { type, name }: Pick<ExplainQuery, 'type' | 'name'>,
  ): Result<ClientDetails, GrpcStatus> {
    const stream = this.#relay.server.stream(client);
    if (stream === undefined) return noSuchClient(client);
    const asked = stream.types.find(({ info }) => info.url === type);
    const held = asked === undefined ? undefined : heldOf(asked, name);
    return ok({
      parameters: parametersOf(stream, asked, name),
      state:
        asked === undefined ? undefined : { ...typeState(asked), ...(held === undefined ? {} : { held }) },
    });
  }

  configs(query: ClientStatusQuery): Promise<Result<EncodedStatus, GrpcStatus>> {
    return clientConfigs(this.#relay, query, this.#slices);
  }

  #nacks(): readonly Plain<NackStatus>[] {
    const found = new Map<string, Plain<NackStatus>>();
    for (const stream of this.#relay.server.streams()) {
      for (const { info, state, version, lastNack } of stream.types) {
        if (state !== 'ERROR' || lastNack === undefined) continue;
        const key = JSON.stringify([info.short, version, lastNack.names, lastNack.message]);
        const known = found.get(key);
        if (known !== undefined) {
          known.clients++;
          continue;
        }
        found.set(key, {
          type: info.short,
          name: lastNack.names,
          version,
          clients: 1,
          error: lastNack.message,
          since: new Date(lastNack.at).toISOString(),
        });
      }
    }
    return mostRecent(found.values());
  }
}

/** What Explain answers for a stream that is not there. */
export function noSuchClient(client: string): Result<never, GrpcStatus> {
  const message = `no client has the stream ${client}: ListClients shows those that there are`;
  return fail({ code: Code.NOT_FOUND, message });
}

function typeState(type: TypeStream): Plain<ClientTypeState> {
  const [selected] = type.selection.entries.values();
  return {
    type: type.info.short,
    version: type.version,
    state: type.state,
    lastNack: type.lastNack?.message ?? '',
    parameters: Object.fromEntries(selected?.parameters.entries ?? []),
    subscriptions: type.selection.size,
  };
}

/** What the client was last sent of a name. */
function heldOf(type: TypeStream, name: string): Plain<HeldVariant> | undefined {
  for (const item of type.subscription?.holdings() ?? []) {
    if (item.name !== name || !isVariant(item.value)) continue;
    const { constraints, version, cachedSince } = item.value;
    return {
      constraints: formatConstraints(constraints.expression),
      version,
      since: new Date(cachedSince).toISOString(),
    };
  }
  return undefined;
}

function parametersOf(stream: XdsStream, type: TypeStream | undefined, name: string): Parameters {
  for (const selected of type?.selection.entries.values() ?? []) {
    if (selected.spelling === name) return selected.parameters;
  }
  return stream.client?.derived(undefined) ?? NO_PARAMETERS;
}

const rejectsSomething = (stream: XdsStream): boolean => stream.types.some(({ state }) => state === 'ERROR');
