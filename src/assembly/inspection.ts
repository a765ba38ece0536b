import type { ExplainQuery, Inspector, Plain, Readiness, ResourcesQuery } from '../admin/ports.ts';
import type { Cell, Held } from '../cache/cell.ts';
import type { XdsStream } from '../downstream/stream.ts';
import type { TypeStream } from '../downstream/type-stream.ts';
import type {
  ClientTypeState,
  ExplainResponse,
  ListClientsResponse,
  ListResourcesResponse,
  NackStatus,
  StatusResponse,
  VariantSummary,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { explainMatch, formatConstraints } from '../model/constraints.ts';
import { NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import { typeInfo } from '../model/types.ts';
import type { UpstreamState } from '../model/upstream.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Sample } from '../observe/sample.ts';
import type { Relay } from '../relay.ts';
import { Code, type GrpcStatus } from '../wire/status.ts';

/** Rejected resources that Status tells of. */
const mostNacks = 100;

export interface InspectionOptions {
  readonly relay: Relay;
  readonly version: string;
  readonly startedAt: number;
  /** Why the relay does not serve, whatever its upstreams; undefined while it does. */
  readonly unready: () => string | undefined;
  readonly configDump: () => unknown;
  readonly metricsText: () => Promise<string>;
}

/** The relay as operators see it: all of it read when asked for. */
export class Inspection implements Omit<Inspector, 'clientStatus'> {
  readonly #options: InspectionOptions;

  constructor(options: InspectionOptions) {
    this.#options = options;
  }

  ready(): Readiness {
    const upstreams = this.#options.relay.upstreams.map((upstream) => {
      const { connected, staleSince } = upstream.state();
      return { name: upstream.name, connected, stale: staleSince !== undefined, since: staleSince };
    });
    const waiting = this.#options.relay.upstreams.filter((upstream) => !upstream.state().everConnected);
    const reason =
      this.#options.unready() ??
      (waiting.length === 0
        ? ''
        : `never connected yet: ${waiting.map((upstream) => describe(upstream.name, upstream.state())).join(', ')}`);
    return { ready: reason === '', reason, upstreams };
  }

  status(): Plain<StatusResponse> {
    const { relay, version, startedAt } = this.#options;
    const { ready, reason } = this.ready();
    const subscriptions = this.#subscriptions();
    return {
      version,
      uptimeSeconds: (Date.now() - startedAt) / 1000,
      ready,
      reason,
      upstreams: relay.upstreams.map((upstream) => {
        const state = upstream.state();
        return {
          name: upstream.name,
          kind: state.kind,
          connected: state.connected,
          endpoint: state.endpoint,
          sessions: state.sessions,
          stale: state.staleSince !== undefined,
          staleSince: state.staleSince === undefined ? '' : timestamp(state.staleSince),
          lastError: state.lastError,
        };
      }),
      types: [...relay.store.tables()].map(([type, table]) => ({
        type: typeInfo(type).short,
        resources: table.cells.size,
        variants: table.variants,
        subscriptions: subscriptions.get(type) ?? 0,
        ambiguous: table.ambiguous,
      })),
      clients: relay.server.size,
      nacks: this.#nacks(),
      cacheBytes: BigInt(relay.store.bytes),
    };
  }

  explain(query: ExplainQuery): Result<Plain<ExplainResponse>, GrpcStatus> {
    const { relay } = this.#options;
    const name = canonicalName(query.name, query.type);
    if (!name.ok) return fail({ code: Code.INVALID_ARGUMENT, message: name.error });
    const stream = query.client === undefined ? undefined : relay.server.stream(query.client);
    if (query.client !== undefined && stream === undefined) {
      const message = `no client has the stream ${query.client}: ListClients shows those that there are`;
      return fail({ code: Code.NOT_FOUND, message });
    }
    const asked = stream?.types.find(({ info }) => info.url === query.type);
    const parameters = query.parameters ?? parametersOf(stream, asked, query.name);
    const cell = cellOf(relay, query.type, name.value);
    const value = relay.store.resolve(query.type, name.value, parameters);
    const variants = [...(cell?.variants.values() ?? [])].map((held) =>
      Object.assign(summary(held), explainMatch(held.constraints.expression, parameters)),
    );
    return ok({
      match: isVariant(value) ? formatConstraints(value.constraints.expression) : '',
      matchFound: isVariant(value),
      variants,
      parameters: Object.fromEntries(parameters.entries),
      ambiguous: variants.filter(({ matches }) => matches).length > 1,
      state: isVariant(value) ? 'present' : value,
      ...(asked === undefined ? {} : { client: typeState(asked) }),
    });
  }

  listResources(query: ResourcesQuery): Result<Plain<ListResourcesResponse>, GrpcStatus> {
    const { pageToken, pageSize, namePrefix } = query;
    const after = readToken(pageToken);
    if (after === undefined) {
      const message = `page_token ${JSON.stringify(pageToken)} is not one that this service gave`;
      return fail({ code: Code.INVALID_ARGUMENT, message });
    }
    const found: { type: string; name: string; cell: Cell }[] = [];
    for (const [type, table] of this.#options.relay.store.tables()) {
      if (query.type !== undefined && type !== query.type) continue;
      for (const [name, cell] of table.cells) {
        if (name.startsWith(namePrefix) && cell.variants.size > 0) {
          found.push({ type: typeInfo(type).short, name, cell });
        }
      }
    }
    found.sort((a, b) => compare([a.type, a.name], [b.type, b.name]));
    const rest = found.filter(({ type, name }) => compare([type, name], after) > 0);
    const page = rest.slice(0, pageSize);
    const last = page.at(-1);
    const more = rest.length > page.length && last !== undefined;
    return ok({
      resources: page.map(({ type, name, cell }) => ({
        type,
        name,
        variants: cell.variants.values().map(summary),
      })),
      nextPageToken: more ? Buffer.from(JSON.stringify([last.type, last.name])).toString('base64url') : '',
    });
  }

  listClients(limit: number | undefined): Plain<ListClientsResponse> {
    const streams = [...this.#options.relay.server.streams()];
    if (limit !== undefined) streams.sort((a, b) => Number(rejecting(b)) - Number(rejecting(a)));
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

  configDump(): unknown {
    return this.#options.configDump();
  }

  metricsText(): Promise<string> {
    return this.#options.metricsText();
  }

  /** What the gauges show. */
  sample(): Sample {
    const { relay } = this.#options;
    const counts = new Map<string, { transport: 'sotw' | 'delta'; service: string; count: number }>();
    for (const { route } of relay.server.streams()) {
      const key = `${route.protocol} ${route.service}`;
      const known = counts.get(key) ?? { transport: route.protocol, service: route.service, count: 0 };
      known.count++;
      counts.set(key, known);
    }
    const subscriptions = this.#subscriptions();
    const now = Date.now();
    return {
      streams: [...counts.values()],
      types: [...relay.store.tables()].map(([type, table]) => ({
        type,
        subscriptions: subscriptions.get(type) ?? 0,
        resources: table.cells.size,
        variants: table.variants,
      })),
      upstreams: relay.upstreams.map((upstream) => {
        const { connected, sessions, staleSince } = upstream.state();
        const staleSeconds = staleSince === undefined ? 0 : (now - staleSince) / 1000;
        return { upstream: upstream.name, connected, sessions, staleSeconds };
      }),
      cacheBytes: relay.store.bytes,
    };
  }

  #subscriptions(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const view of this.#options.relay.views.all()) {
      counts.set(view.type, (counts.get(view.type) ?? 0) + view.selection.size * view.subscribers.size);
    }
    return counts;
  }

  #nacks(): Plain<NackStatus>[] {
    const found = new Map<string, Plain<NackStatus> & { readonly at: number }>();
    for (const stream of this.#options.relay.server.streams()) {
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
          since: timestamp(lastNack.at),
          at: lastNack.at,
        });
      }
    }
    return [...found.values()]
      .toSorted((a, b) => b.at - a.at)
      .slice(0, mostNacks)
      .map(({ at: _at, ...nack }) => nack);
  }
}

function cellOf(relay: Relay, type: TypeUrl, name: ResourceName): Cell | undefined {
  for (const [url, table] of relay.store.tables()) if (url === type) return table.cells.get(name);
  return undefined;
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

function parametersOf(stream: XdsStream | undefined, type: TypeStream | undefined, name: string): Parameters {
  for (const selected of type?.selection.entries.values() ?? []) {
    if (selected.spelling === name) return selected.parameters;
  }
  return stream?.client?.derived(undefined) ?? NO_PARAMETERS;
}

function summary({ constraints, variant }: Held): Plain<VariantSummary> {
  return {
    constraints: formatConstraints(constraints.expression),
    version: variant.version,
    bytes: variant.payload?.bytes.length ?? 0,
    since: timestamp(variant.since),
    upstream: variant.upstream,
  };
}

function describe(name: string, state: UpstreamState): string {
  return state.lastError === '' ? name : `${name} (${state.endpoint}: ${state.lastError})`;
}

const rejecting = (stream: XdsStream): boolean => stream.types.some(({ state }) => state === 'ERROR');

const timestamp = (milliseconds: number): string => new Date(milliseconds).toISOString();

function compare(a: readonly [string, string], b: readonly [string, string]): number {
  if (a[0] !== b[0]) return a[0] < b[0] ? -1 : 1;
  return a[1] === b[1] ? 0 : a[1] < b[1] ? -1 : 1;
}

function readToken(token: string): readonly [string, string] | undefined {
  if (token === '') return ['', ''];
  try {
    const value: unknown = JSON.parse(Buffer.from(token, 'base64url').toString());
    if (!Array.isArray(value)) return undefined;
    const type: unknown = value[0];
    const name: unknown = value[1];
    return typeof type === 'string' && typeof name === 'string' ? [type, name] : undefined;
  } catch {
    return undefined;
  }
}
