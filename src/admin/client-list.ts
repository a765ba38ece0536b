import { create } from '@bufbuild/protobuf';
import type { ClientContext, ListedClient, ListedType } from '../downstream/services.ts';
import {
  ClientSchema,
  type ClientTypeState,
  type ClientWave,
} from '../gen/distributary/admin/v1/admin_pb.ts';
import {
  type ClientHolding,
  ClientHoldingSchema,
  type GetClientResponseSchema,
} from '../gen/distributary/admin/v1/fleet_pb.ts';
import type { WaveStatus } from '../gen/distributary/admin/v1/rollout_pb.ts';
import type { Access } from '../model/access.ts';
import type { ResourceName, TypeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import { systemClock, WallTime } from '../model/clock.ts';
import { getOrMake } from '../model/maps.ts';
import type { Parameters } from '../model/parameters.ts';
import { contentHash } from '../model/payloads.ts';
import type { HeldVariant } from '../model/rollout.ts';
import { coversResource, isCollection } from '../model/selection.ts';
import type { ClientState, Holding, MissingEntry } from '../model/subscription.ts';
import type { Pace } from '../model/time-slices.ts';
import { type Selector, WILDCARD } from '../model/transaction.ts';
import { canonicalName } from '../model/xdstp.ts';
import { notAllowed } from '../observe/problems.ts';
import type { Relay } from '../relay.ts';
import { type WaveRules, waveOf } from '../releases/canaries.ts';
import type { Standing } from '../releases/waiting.ts';
import { compileGlob } from '../security/pattern.ts';
import { Listed, nextOffset } from './answers.ts';
import type { ClientQuery, ClientsQuery } from './requests.ts';
import { aboutVariant } from './resources.ts';
import type { Answer, Plain } from './service.ts';

type IsServed = Pick<Relay, 'isServed'>;

const times = new WallTime(systemClock);

/** What a client may not get of a name although it is for such a client. 'all': it may not ask for the name. */
export function withheldOf(
  relay: Pick<Relay, 'catalogOf'>,
  access: Access | undefined,
  type: TypeUrl,
  name: ResourceName,
  parameters: Parameters,
): 'all' | readonly HeldVariant[] {
  if (access === undefined || access.unrestricted) return none;
  if (!access.allows(type, name)) return 'all';
  return relay
    .catalogOf(access.cohort)
    .named(type, name)
    .filter(({ variant }) => variant.constraints.matches(parameters) && !access.admits(variant, parameters));
}

/** Why a client has nothing of what it asks for; empty: not because of what it may not get. */
export function whyWithheld(
  relay: Pick<Relay, 'catalogOf'>,
  access: Access | undefined,
  type: TypeUrl,
  { canonical, parameters }: Pick<MissingEntry, 'canonical' | 'parameters'>,
): string {
  if (access === undefined || access.unrestricted) return '';
  if (!isCollection(canonical)) {
    const withheld = withheldOf(relay, access, type, canonical, parameters);
    return withheld === 'all' || withheld.length > 0 ? notAllowed : '';
  }
  // What there is of it is not shown. Of some there is only an error.
  const catalog = relay.catalogOf(access.cohort);
  const hasMember = Iterator.from(catalog.members(type, canonical, parameters)).some((name) =>
    catalog.isMember(type, canonical, name, parameters),
  );
  return hasMember ? notAllowed : '';
}

/** The clients that are asked for. With a limit those that reject something come first. */
export async function clientList(
  all: readonly ListedClient[],
  query: ClientsQuery,
  relay: IsServed,
  waveOf: WaveOf,
  pace: Pace,
): Promise<Answer<'listClients'>> {
  const { limit, offset, pageSize = Infinity } = query;
  const isMeant = clientFilter(query, relay, waveOf);
  const inOrder: ListedClient[] = [];
  const rejecting: ListedClient[] = [];
  const others: ListedClient[] = [];
  for (const stream of all) {
    await pace.yieldIfDue();
    if (!isMeant(stream)) continue;
    inOrder.push(stream);
    (stream.types.some(rejects) ? rejecting : others).push(stream);
  }
  const listed = limit === undefined ? inOrder : [...rejecting, ...others];
  const end = offset + Math.min(limit ?? Infinity, pageSize);
  const wanted = limit === undefined ? listed.length : Math.min(listed.length, offset + limit);
  const rows = Iterator.from(listed.slice(offset, end)).map((stream) => {
    const wave = waveOf(stream);
    const types = stream.types.filter(isOfType(query.type)).map((one) => typeState(one, relay));
    return create(ClientSchema, { ...aboutOf(stream), types, ...(wave === undefined ? {} : { wave }) });
  });
  return new Listed({}, { field: 'clients', rows }, (written) => ({
    total: all.length,
    matching: listed.length,
    rejecting: rejecting.length,
    nextOffset: nextOffset(offset, written, wanted),
  }));
}

const rejects = ({ subscription }: ListedType): boolean => subscription?.responses.state === 'ERROR';

function aboutOf({ id, client, transport, route }: ListedClient) {
  return {
    id,
    node: { id: client?.nodeId ?? '', cluster: client?.cluster ?? '' },
    peer: transport.peer.address,
    transport: route.protocol,
    service: route.service,
    class: client === undefined ? '' : classOf(client).id,
  };
}

export function typeState(type: ListedType, relay: IsServed): Plain<ClientTypeState> {
  const [selected] = type.selection.entries.values();
  return {
    type: type.info.short,
    version: type.subscription?.responses.version ?? '',
    state: stateOf(type, relay),
    lastNack: type.subscription?.responses.lastNack?.message ?? '',
    parameters: Object.fromEntries(selected?.parameters.entries ?? []),
    subscriptions: type.selection.size,
    removalState: '',
    lastPoll: type.polledAt === undefined ? '' : new Date(times.of(type.polledAt)).toISOString(),
    missing: false,
  };
}

type Test<T> = (value: T) => boolean;

function clientFilter(query: ClientsQuery, relay: IsServed, waveOf: WaveOf): Test<ListedClient> {
  const { node, class: of, wave } = query;
  const isNode = compileGlob(node);
  const text = query.search.toLowerCase();
  const hasTypes = ofTypes(query, relay);
  return (stream) => {
    const { id, client, transport } = stream;
    const { nodeId = '', cluster = '' } = client ?? {};
    const told = [id, nodeId, cluster, transport.peer.address];
    return (
      (node === '' || isNode(nodeId)) &&
      (text === '' || told.join('\n').toLowerCase().includes(text)) &&
      (of === '' || (client && classOf(client).id) === of) &&
      (wave === 0 || waveOf(stream)?.wave === wave) &&
      hasTypes(stream)
    );
  };
}

function ofTypes({ type, state, resource }: ClientsQuery, relay: IsServed): Test<ListedClient> {
  if (type === undefined && state === undefined) return () => true;
  const isMeant = isOfType(type);
  const isAbout = type === undefined || resource === '' ? () => true : about(type);
  const hasState: Test<ListedType> =
    state === 'MISSING'
      ? (one) => missingOf(one, relay).length > 0 // whatever else is wrong with it
      : (one) => state === undefined || stateOf(one, relay) === state;
  return (stream) => stream.types.some((one) => isMeant(one) && hasState(one) && isAbout(one));

  /** Streams that subscribe to a name, have rejected it, or lack it. */
  function about(of: TypeUrl): Test<ListedType> {
    if (state === 'MISSING') return (one) => missingOf(one, relay).some(({ name }) => name === resource);
    if (state === 'ERROR') {
      return ({ subscription }) =>
        [...(subscription?.responses.rejections ?? [])].some(({ name }) => name === resource);
    }
    const canonical = canonicalName(resource, of);
    if (!canonical.ok) return () => false;
    const named = { name: canonical.value, aliases: [] };
    // Streams of a class share a selection.
    const known = new WeakMap<object, boolean>();
    return ({ selection }) =>
      getOrMake(known, selection, () =>
        selection.entries.values().some(({ selector }) => coversResource(selector, named)),
      );
  }
}

/** Undefined: every type. */
const isOfType =
  (type: TypeUrl | undefined) =>
  ({ info }: ListedType): boolean =>
    type === undefined || info.url === type;

/** The worst first. */
const urgency: readonly ClientState[] = ['ERROR', 'MISSING', 'STALE', 'NOT_SENT', 'SYNCED'];

/** One client, with so many of the names that it has. */
export async function clientDetail(
  stream: ListedClient,
  { limit, offset, type: only, name }: Omit<ClientQuery, 'id'>,
  relay: Pick<Relay, 'catalogOf' | 'isServed' | 'isAnswered'>,
  pace: Pace,
): Promise<Listed<typeof GetClientResponseSchema>> {
  const { client } = stream;
  const byState = new Map<ClientState, Held[]>();
  let total = 0;
  for (const type of stream.types.filter(isOfType(only))) {
    for (const held of heldOf(type, relay, isNamed(name, type.info.url))) {
      await pace.yieldIfDue();
      total++;
      getOrMake(byState, held.state, () => []).push(held);
    }
  }
  const page = urgency.flatMap((state) => byState.get(state) ?? []).slice(offset, offset + limit);
  const rows = Iterator.from(page).map((held) => {
    const isMissing = held.state === 'MISSING';
    return row(held, isMissing ? whyWithheld(relay, client?.access, held.info.url, held) : '');
  });
  const { node, ...about } = aboutOf(stream);
  const known = {
    ...about,
    nodeId: node.id,
    nodeCluster: node.cluster,
    parameters: Object.fromEntries(client?.derived(undefined).entries ?? []),
    total,
    states: Object.fromEntries(byState.entries().map(([state, same]) => [state, same.length])),
  };
  return new Listed(known, { field: 'holdings', rows }, (written) => ({
    nextOffset: nextOffset(offset, written, total),
  }));
}

type Named = Pick<Held, 'name' | 'canonical'>;

/** Empty: every name. */
function isNamed(asked: string, type: TypeUrl): Test<Named> {
  if (asked === '') return () => true;
  const named = canonicalName(asked, type);
  return ({ name, canonical }) => name === asked || (named.ok && canonical === named.value);
}

/** What is shown of a holding. */
interface Held extends Pick<Holding, 'name' | 'parameters' | 'value' | 'current' | 'rejection'> {
  readonly info: ListedType['info'];
  readonly canonical: Selector;
  readonly state: ClientState;
}

function* heldOf(
  type: ListedType,
  relay: Pick<Relay, 'isServed' | 'isAnswered'>,
  isMeant: Test<Named>,
): Iterable<Held> {
  const { info, subscription, selection } = type;
  for (const holding of subscription?.holdings() ?? [])
    if (isMeant(holding)) yield { ...holding, info, state: stateOfHolding(holding) };
  // Wildcards and globs that show nothing, or are not answered, have no holding.
  const missing = missingOf(type, relay).filter(({ canonical }) => isCollection(canonical));
  const unanswered = selection.collections
    .map(({ selector, requestedName, parameters }) => ({
      name: requestedName,
      canonical: selector,
      parameters,
    }))
    .filter((one) => !relay.isAnswered({ ...one, type: info.url, selector: one.canonical }));
  const states = { MISSING: missing, NOT_SENT: unanswered };
  for (const state of ['MISSING', 'NOT_SENT'] as const)
    for (const one of states[state].filter(isMeant)) {
      yield { ...one, value: undefined, current: true, rejection: undefined, info, state };
    }
}

function row({ info, name, parameters, value, state, current, rejection }: Held, why: string): ClientHolding {
  const sent = isVariant(value) ? 'present' : value === 'absent' ? 'absent' : '';
  return create(ClientHoldingSchema, {
    type: info.short,
    name,
    state,
    sent,
    ...(isVariant(value) ? aboutVariant(value) : {}),
    current,
    error: rejection?.message ?? '',
    why,
    parameters: Object.fromEntries(parameters.entries),
  });
}

const none: readonly never[] = [];

/** What a client asks for of a type, and gets nothing of. A type that nobody has a resource of is empty, not missing. */
export function missingOf({ info, subscription }: ListedType, relay: IsServed): readonly MissingEntry[] {
  const missing = subscription?.missing ?? none;
  if (missing.length === 0 || relay.isServed(info.url)) return missing;
  return missing.filter(({ canonical }) => canonical !== WILDCARD);
}

/** What a client made of a type, and whether it lacks something of it. */
function stateOf(type: ListedType, relay: IsServed): ClientState {
  const state = type.subscription?.responses.state ?? 'NOT_SENT';
  return stateOfHolding({ state, missing: missingOf(type, relay).length > 0 });
}

/** The same of one name. */
function stateOfHolding({ state, missing }: Pick<Holding, 'state' | 'missing'>): ClientState {
  return missing && (state === 'SYNCED' || state === 'NOT_SENT') ? 'MISSING' : state;
}

const newClass = (client: ClientContext) => ({
  id: contentHash(client.classKey),
  parameters: client.derived(undefined),
  access: client.access,
});

/** Contexts live as long as their streams, and few change: the hash is made once. */
const known = new WeakMap<ClientContext, ReturnType<typeof newClass>>();

/** A class of clients, as operators see it, and what it may see. */
export const classOf = (client: ClientContext) => getOrMake(known, client, newClass);

/** Where a client stands in what waits; undefined: it does not subscribe to it. */
export type WaveOf = (client: Pick<ListedClient, 'id' | 'client'>) => Plain<ClientWave> | undefined;

const answers = { accepted: 'ACCEPTED', rejected: 'REJECTED', waiting: 'WAITING' } as const;

/** As of now. `standing`: what a stream says to what waits; undefined: it does not subscribe to it. */
export function inWaves(
  { waves: all, reached, named }: WaveRules,
  standing: (stream: string) => Standing['kind'] | undefined,
): WaveOf {
  const rules = { waves: all, reached, named };
  const waves = all.length;
  return ({ id, client }) => {
    const said = waves === 0 || client === undefined ? undefined : standing(id);
    if (said === undefined || client === undefined) return undefined;
    const { nodeKey, classKey, place, access } = client;
    const placed = { nodeKey, classKey, place, parameters: client.derived(undefined) };
    const wave = waveOf(rules, placed, access.cohort);
    return { wave, waves, answer: access.cohort === 'canary' ? answers[said] : '' };
  };
}

/** How many there are in each wave, and how many get it with everybody. None: nothing waits. */
export async function waveClients(
  streams: Iterable<Pick<ListedClient, 'id' | 'client'>>,
  of: WaveOf,
  pace: Pace,
): Promise<Plain<WaveStatus>[]> {
  const counts: Plain<WaveStatus>[] = [];
  for (const stream of [...streams]) {
    await pace.yieldIfDue();
    const { wave = 0, waves = 0, answer = '' } = of(stream) ?? {};
    if (wave === 0) continue;
    while (counts.length <= waves) counts.push({ clients: 0, accepted: 0, rejected: 0 });
    const count = counts[wave - 1];
    if (count === undefined) continue;
    count.clients++;
    count.accepted += Number(answer === 'ACCEPTED');
    count.rejected += Number(answer === 'REJECTED');
  }
  return counts;
}

/** Two rows of the same thing as one: these counts are sums. */
export const summed =
  <Key extends string>(...keys: readonly Key[]) =>
  <Row extends Readonly<Record<Key, number>>>(a: Row, b: Row): Row =>
    Object.assign({ ...a }, Object.fromEntries(keys.map((key) => [key, a[key] + b[key]])));

const noWave: Plain<WaveStatus> = { clients: 0, accepted: 0, rejected: 0 };
const bothWaves = summed('clients', 'accepted', 'rejected');

/** Those of two processes. */
export const sumOfWaves = (
  a: readonly Plain<WaveStatus>[],
  b: readonly Plain<WaveStatus>[],
): Plain<WaveStatus>[] =>
  Array.from({ length: Math.max(a.length, b.length) }, (_, index) =>
    bothWaves(a[index] ?? noWave, b[index] ?? noWave),
  );
