import { create } from '@bufbuild/protobuf';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import type { Tapped } from '../downstream/taps.ts';
import type { Route } from '../downstream/xds-server.ts';
import {
  type AccountStatus,
  type ClientTypeState,
  ExplainResponseSchema,
  type StatusResponse,
  TypeStatusSchema,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  type TapMessage,
  TapMessageSchema,
  WaitResponseSchema,
} from '../gen/distributary/admin/v1/delivery_pb.ts';
import type { ClusterLoad, LoadResponse } from '../gen/distributary/admin/v1/load_pb.ts';
import type { LoadView, ReportingClass } from '../load/load-view.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { systemClock } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import { NO_PARAMETERS, type Parameters } from '../model/parameters.ts';
import type { Result } from '../model/result.ts';
import { covers } from '../model/selection.ts';
import type { Holding } from '../model/subscription.ts';
import { Pace, TimeSlices } from '../model/time-slices.ts';
import { typeInfo } from '../model/types.ts';
import type { Upstream, UpstreamState } from '../model/upstream.ts';
import { authorityOf } from '../model/xdstp.ts';
import { type Sample, typeLabels } from '../observe/metrics.ts';
import type { Reading } from '../observe/series.ts';
import type { Relay } from '../relay.ts';
import { unmetMatches, type WaveRules } from '../releases/canaries.ts';
import type { Standing } from '../releases/waiting.ts';
import { compileGlob } from '../security/pattern.ts';
import type { Accounts } from '../wire/accounts.ts';
import type { EncodedStatus } from '../wire/client-status.ts';
import { rpcError } from '../wire/connect.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
import {
  clientDetail,
  clientList,
  inWaves,
  missingOf,
  summed,
  sumOfWaves,
  typeState,
  type WaveOf,
  waveClients,
  withheldOf,
} from './client-list.ts';
import { type ClientStatusQuery, clientConfigs } from './csds.ts';
import { fleetSurvey, mergedRows } from './fleet-survey.ts';
import { acceptanceOf, canonicalOf } from './missing.ts';
import {
  canonicalGiven,
  clientQuery,
  clientsQuery,
  explainQuery,
  optionalType,
  type Request,
  resourceQuery,
  waitQuery,
} from './requests.ts';
import { aboutVariant, sentVariants, variantId } from './resources.ts';
import type { Answer, Awaitable, ClientMethods, Plain } from './service.ts';
import type { Staleness } from './staleness.ts';

/** What a reload would change for the clients of this process. */
export type ReloadPreview = (
  text: string,
  pace: Pace,
  /** Aborts when nobody waits for it any more. */
  signal: AbortSignal,
) => Promise<Answer<'compareConfiguration'>>;

/** The process whose clients these are. */
interface ServingProcess {
  readonly relay: Relay;
  readonly accounts: Accounts;
  readonly loadReports: { readonly view: LoadView };
  /** What a stream says to what waits; undefined: it does not subscribe to it. */
  readonly fleet: { standing(stream: string): Standing['kind'] | undefined };
}

/**
 * The clients whose streams end in this process, and those that poll it: read when asked for. `rules`: who gets what
 * waits, in which wave.
 */
export function localClients(
  { relay, accounts, loadReports, fleet }: ServingProcess,
  preview: ReloadPreview,
  rules: () => WaveRules,
): ClientsView {
  const slices = new TimeSlices(systemClock);
  /** Of `status`, which is not waited long for: it is not behind what others ask, as clients do by CSDS. Nor is the survey. */
  const statusSlices = new TimeSlices(systemClock);
  /** The primary does not wait long for a look of `wait` either. */
  const waitSlices = new TimeSlices(systemClock);
  const waves = (): WaveOf => inWaves(rules(), (stream) => fleet.standing(stream));
  const streamOf = (id: string): ListedClient => relay.client(id) ?? noSuchClient(id);

  return {
    inWorkers: false,
    status: () => statusSlices.run(status),
    listClients(request) {
      const query = clientsQuery(request);
      const waveOf = waves();
      return slices.run((pace) => clientList([...relay.clients()], query, relay, waveOf, pace));
    },
    listClasses: fleetSurvey(relay, new TimeSlices(systemClock), systemClock),
    load: (request) => loadOf(loadReports.view, request),
    getClient(request) {
      const query = clientQuery(request);
      const stream = streamOf(query.id);
      return slices.run((pace) => clientDetail(stream, query, relay, pace));
    },
    explain(request) {
      const { type, name: requestedName, parameters } = explainQuery(request);
      const name = canonicalGiven(requestedName, type);
      const stream = streamOf(request.client);
      const access = stream.client?.access;
      const asked = stream.types.find(({ info }) => info.url === type);
      const holding = asked && holdingOf(asked, name, parameters);
      const own =
        holding?.parameters ??
        asked?.selection.entries.values().find(({ selector }) => selector === name)?.parameters ??
        derivedOf(stream, authorityOf(name));
      const withheld = withheldOf(relay, access, type, name, parameters ?? own);
      const known = {
        parameters: Object.fromEntries(own.entries),
        canary: access?.cohort === 'canary',
        ...(withheld === 'all'
          ? { state: 'denied' }
          : { variants: withheld.map((held) => variantId(held, name)) }),
      };
      if (asked === undefined) return create(ExplainResponseSchema, known);
      const client = {
        ...typeState(asked, relay),
        ...heldOf(asked, holding, name),
        // It asks for this, by its name or by a wildcard or glob that shows nothing.
        missing: holding?.missing ?? missingOf(asked, relay).some(({ canonical }) => covers(canonical, name)),
      };
      return create(ExplainResponseSchema, { ...known, client });
    },
    getResource: (request) => sentVariants(streamOf(request.client), resourceQuery(request), slices),
    compareConfiguration: ({ text }, { signal }) => slices.run((pace) => preview(text, pace, signal)),
    wait: async (request) =>
      create(WaitResponseSchema, await acceptanceOf(relay, waitQuery(request), waitSlices)),
    tap: (request, { signal }) => tapMessages(relay, request, signal),
    configs: (query) => clientConfigs(relay, query, slices),
  };

  async function status(pace: Pace): Promise<ClientsStatus> {
    const { server, polls, store } = relay;
    const labelOf = typeLabels((type) => store.variants(type) > 0);
    const types = new Map<string, number>();
    for (const [type, count] of subscriptionsOf(relay)) {
      const label = labelOf(type);
      types.set(label, (types.get(label) ?? 0) + count);
    }
    return {
      clients: server.size,
      pollingClients: polls.clients.size,
      types: [...types].map(([type, subscriptions]) => create(TypeStatusSchema, { type, subscriptions })),
      warnings: [...warningsOf(relay, rules())],
      waveClients: await waveClients(server.values(), waves(), pace),
      accounts: accounts
        .heaviest(shownAccounts)
        .map((one) => Object.assign(one, { heldBytes: BigInt(one.heldBytes) })),
      workers: [],
    };
  }
}

function warningsOf(relay: Relay, rules: WaveRules): readonly string[] {
  const waves = rules.waves.filter(({ match }) => match.length > 0);
  if (waves.length === 0) return [];
  const clients = new Set(Iterator.from(relay.clients()).map((client) => derivedOf(client)));
  return clients.size === 0 ? [] : waves.flatMap((wave) => unmetMatches(wave, clients));
}

/** What the client was last sent of a name, and whether it accepted it. */
function heldOf(
  type: ListedType,
  holding: Holding | undefined,
  name: ResourceName,
): Pick<Plain<ClientTypeState>, 'held' | 'removalState'> {
  if (holding === undefined || holding.state === 'NOT_SENT') {
    // What a wildcard has no more leaves no holding behind.
    const rejected = type.subscription?.responses.rejectedWhole?.changes;
    const isNamed = (one: string): boolean => canonicalOf(type.info.url, one) === name;
    const isRejected = rejected?.removal === true && rejected.names.some(isNamed);
    return { removalState: isRejected ? 'ERROR' : '' };
  }
  const { value, state, rejection } = holding;
  // What a client that polls was sent is known until it is due something newer.
  if (value === undefined) return { removalState: '' };
  if (!isVariant(value)) return { removalState: state };
  return { held: { ...aboutVariant(value), state, error: rejection?.message ?? '' }, removalState: '' };
}

/** Under several parameter sets: that of `parameters`, else one that the client has. */
function holdingOf(
  type: ListedType,
  name: ResourceName,
  parameters: Parameters | undefined,
): Holding | undefined {
  const found = Iterator.from(type.subscription?.holdings() ?? [])
    .filter(({ canonical }) => canonical === name)
    .toArray();
  return (
    found.find((one) => one.parameters === parameters) ??
    found.find(({ value }) => isVariant(value)) ??
    found.find(({ state }) => state !== 'NOT_SENT')
  );
}

const derivedOf = ({ client }: Pick<ListedClient, 'client'>, authority?: string): Parameters =>
  client?.derived(authority) ?? NO_PARAMETERS;

/** The most accounts that Status lists. */
const shownAccounts = 5;

/** What Status says of clients. Of types only how many clients subscribe. */
export type ClientsStatus = Pick<
  Plain<StatusResponse>,
  'clients' | 'pollingClients' | 'types' | 'warnings' | 'accounts' | 'workers' | 'waveClients'
>;

/**
 * The clients of a relay, wherever their streams end: in this process, or in workers. Of ExplainResponse they say which
 * parameters and cohort a client has, what it was sent and, in `state` and `variants`, what it may not get; of WaitResponse
 * who has not accepted what there is now.
 */
export interface ClientsView extends ClientMethods {
  /** They are in workers: the streams of this process feed those. */
  readonly inWorkers: boolean;
  status(): Awaitable<ClientsStatus>;
  /** CSDS (protocol §9). INVALID_ARGUMENT: a matcher that is not accepted; RESOURCE_EXHAUSTED: too large. */
  configs(query: ClientStatusQuery): Awaitable<Result<EncodedStatus, GrpcStatus>>;
}

/** What several processes say, as one. */
export function mergeStatus(all: readonly ClientsStatus[]): ClientsStatus {
  const types = mergedRows(
    all.flatMap((status) => status.types),
    ({ type }) => type,
    summed('subscriptions'),
  );
  const { clients, pollingClients } = all.reduce(summed('clients', 'pollingClients'));
  return {
    clients,
    pollingClients,
    types,
    warnings: sharedWarnings(all),
    accounts: heaviest(all.flatMap(({ accounts }) => accounts)),
    workers: all.flatMap(({ workers }) => workers),
    waveClients: all.map((status) => status.waveClients).reduce(sumOfWaves, []),
  };
}

/** What all processes with clients say: a client of another one may be what this one misses. */
function sharedWarnings(all: readonly ClientsStatus[]): string[] {
  const [first, ...others] = all.filter(({ clients, pollingClients }) => clients + pollingClients > 0);
  return (first?.warnings ?? []).filter((one) => others.every(({ warnings }) => warnings.includes(one)));
}

/** The answer about a stream that is not there. */
export function noSuchClient(client: string): never {
  const message = `there is no client ${client}: the ids are in the column CLIENT of distributary clients; --node there finds those of a node`;
  throw rpcError({ code: Code.NOT_FOUND, message });
}

/** Those of several processes: a peer may have one in each. */
function heaviest(accounts: readonly Plain<AccountStatus>[]): Plain<AccountStatus>[] {
  const counts = summed('connections', 'streams', 'workPerSecond');
  const sum = (a: Plain<AccountStatus>, b: Plain<AccountStatus>): Plain<AccountStatus> => ({
    ...counts(a, b),
    heldBytes: a.heldBytes + b.heldBytes,
    waits: a.waits || b.waits,
  });
  return mergedRows(accounts, ({ key }) => key, sum)
    .toSorted((a, b) => b.workPerSecond - a.workPerSecond || Number(b.heldBytes - a.heldBytes))
    .slice(0, shownAccounts);
}

/** Each costs something for every message. */
const maxTaps = 16;

/** The messages of the streams that end in this process, as they pass: in slices, who reads along must not hold up updates. */
async function* tapMessages(
  relay: Relay,
  { client, type }: Request<'tap'>,
  signal: AbortSignal,
): AsyncIterable<TapMessage> {
  if (client !== '' && relay.server.get(client) === undefined) noSuchClient(client);
  if (relay.taps.size >= maxTaps) {
    const message = `${maxTaps} taps are open, the maximum: end one of them`;
    throw rpcError({ code: Code.RESOURCE_EXHAUSTED, message });
  }
  const tap = relay.taps.open({ client: client === '' ? undefined : client, type: optionalType(type) });
  const close = (): void => tap.close();
  signal.addEventListener('abort', close);
  try {
    const pace = new Pace(systemClock);
    for (let batch = await tap.next(); batch !== undefined && !signal.aborted; batch = await tap.next()) {
      for (const message of batch) {
        await pace.yieldIfDue();
        yield tapMessage(message);
      }
    }
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
}

function tapMessage({ at = systemClock.now(), type, names = [], removed = [], ...rest }: Tapped): TapMessage {
  const short = type === undefined ? '' : typeInfo(type).short;
  const lists = { names: [...names], removed: [...removed] };
  return create(TapMessageSchema, { ...rest, ...lists, at: new Date(at).toISOString(), type: short });
}

/** Of an answer. */
const mostLoads = 1000;

/** What clients of this process have reported. */
function loadOf(view: LoadView, asked: Request<'load'>): Plain<LoadResponse> {
  const { loads, seconds } = view.rows();
  const isCluster = compileGlob(asked.cluster);
  const meant = loads.filter(
    ({ cluster, of }) => (asked.cluster === '' || isCluster(cluster)) && isClass(of, asked),
  );
  return {
    loads: firstLoads(
      meant.map(({ cluster, of, success, error, dropped }) => ({
        cluster,
        class: of.id,
        parameters: Object.fromEntries(of.parameters.entries),
        requests: success + error,
        errors: error,
        dropped,
      })),
      asked,
    ),
    total: meant.length,
    seconds,
  };
}

/** Of what several processes say, as one. None of them was asked for fewer than an answer may have. */
export const mergeLoads =
  (asked: Request<'load'>) =>
  (answers: readonly Plain<LoadResponse>[]): Plain<LoadResponse> => {
    const loads = mergedRows(
      answers.flatMap((answer) => answer.loads),
      (one) => JSON.stringify([one.class, one.cluster]),
      summed('requests', 'errors', 'dropped'),
    );
    return {
      loads: firstLoads(loads, asked),
      // What a process has left out is counted at least once.
      total: Math.max(loads.length, ...answers.map(({ total }) => total)),
      seconds: Math.max(0, ...answers.map(({ seconds }) => seconds)),
    };
  };

function firstLoads(
  loads: readonly Plain<ClusterLoad>[],
  { limit, errorsFirst }: Request<'load'>,
): Plain<ClusterLoad>[] {
  const before = (a: Plain<ClusterLoad>, b: Plain<ClusterLoad>): number =>
    (errorsFirst ? b.errors - a.errors : 0) || b.requests - a.requests || (a.cluster < b.cluster ? -1 : 1);
  return loads.toSorted(before).slice(0, Math.min(limit === 0 ? mostLoads : limit, mostLoads));
}

const isClass = ({ id, parameters }: ReportingClass, asked: Request<'load'>): boolean =>
  asked.class === '' ||
  asked.class === id ||
  parameters.entries.entries().some(([key, value]) => asked.class === `${key}=${value}`);

/** Shown while there are none, as are those that there were: an autoscaler cannot read a metric that no replica has. */
const always: readonly Kind[] = [
  { protocol: 'sotw', service: 'ads' },
  { protocol: 'delta', service: 'ads' },
];
type Kind = Pick<Route, 'protocol' | 'service'>;
const kindOf = ({ protocol, service }: Kind): string => `${protocol} ${service}`;

type SampledProcess = Pick<ServingProcess, 'relay' | 'accounts'> & {
  readonly staleness: Staleness;
  readonly admission: { readonly connections: number };
};

/** What the gauges show of a process. */
export function sampleOf(
  { relay, staleness, accounts, admission }: SampledProcess,
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
    downstream_connections: [[admission.connections]],
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
