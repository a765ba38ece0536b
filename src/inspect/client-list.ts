import { create } from '@bufbuild/protobuf';
import { Listed } from '../admin/answers.ts';
import type { Plain } from '../admin/plain.ts';
import type { ClientsQuery } from '../admin/requests.ts';
import type { Answer } from '../admin/service.ts';
import type { ListedClient, ListedType } from '../downstream/services.ts';
import { type Client, ClientSchema, type ClientTypeState } from '../gen/distributary/admin/v1/admin_pb.ts';
import type { TypeUrl } from '../model/brand.ts';
import { coversResource } from '../model/selection.ts';
import type { ClientState } from '../model/subscription.ts';
import type { Pace } from '../model/time-slices.ts';
import { canonicalName } from '../model/xdstp.ts';
import type { Relay } from '../relay.ts';
import { compileGlob } from '../security/pattern.ts';
import { classOf } from './client-class.ts';
import { missingOf, stateOf } from './client-state.ts';

/** The clients that are asked for. With a limit those that reject something come first. */
export async function clientList(
  all: readonly ListedClient[],
  query: ClientsQuery,
  relay: Pick<Relay, 'isServed'>,
  pace: Pace,
): Promise<Answer<'listClients'>> {
  const { limit, offset, pageSize = Infinity } = query;
  const isMeant = clientFilter(query, relay);
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
  const rows = Iterator.from(listed.slice(offset, end)).map((stream) => rowOf(stream, query, relay));
  return new Listed({}, { field: 'clients', rows }, (written) => ({
    total: all.length,
    matching: listed.length,
    rejecting: rejecting.length,
    nextOffset: written > 0 && offset + written < wanted ? offset + written : 0,
  }));
}

const rejects = ({ subscription }: ListedType): boolean => subscription?.responses.state === 'ERROR';

function rowOf(stream: ListedClient, { type }: ClientsQuery, relay: Pick<Relay, 'isServed'>): Client {
  const { id, client, transport, route, types } = stream;
  return create(ClientSchema, {
    id,
    node: { id: client?.nodeId ?? '', cluster: client?.cluster ?? '' },
    peer: transport.peer.address,
    transport: route.protocol,
    service: route.service,
    types: types.filter(isOfType(type)).map((one) => typeState(one, relay)),
    class: client === undefined ? '' : classOf(client).id,
  });
}

export function typeState(type: ListedType, relay: Pick<Relay, 'isServed'>): Plain<ClientTypeState> {
  const [selected] = type.selection.entries.values();
  return {
    type: type.info.short,
    version: type.subscription?.responses.version ?? '',
    state: stateOf(type, relay),
    lastNack: type.subscription?.responses.lastNack?.message ?? '',
    parameters: Object.fromEntries(selected?.parameters.entries ?? []),
    subscriptions: type.selection.size,
    removalState: '',
    lastPoll: type.polledAt === undefined ? '' : new Date(type.polledAt).toISOString(),
    missing: false,
  };
}

type Test<T> = (value: T) => boolean;

function clientFilter(query: ClientsQuery, relay: Pick<Relay, 'isServed'>): Test<ListedClient> {
  const tests: readonly (Test<ListedClient> | undefined)[] = [
    ofNode(query),
    found(query.search.toLowerCase()),
    query.class === ''
      ? undefined
      : ({ client }) => client !== undefined && classOf(client).id === query.class,
    ofTypes(query, relay),
  ];
  const asked = tests.filter((test) => test !== undefined);
  return (stream) => asked.every((test) => test(stream));
}

function ofNode({ node }: ClientsQuery): Test<ListedClient> | undefined {
  if (node === '') return undefined;
  const isNode = compileGlob(node);
  return ({ client }) => isNode(client?.nodeId ?? '');
}

function found(text: string): Test<ListedClient> | undefined {
  if (text === '') return undefined;
  return ({ id, client, transport }) =>
    [id, client?.nodeId ?? '', client?.cluster ?? '', transport.peer.address].some((part) =>
      part.toLowerCase().includes(text),
    );
}

function ofTypes(
  { type, state, resource }: ClientsQuery,
  relay: Pick<Relay, 'isServed'>,
): Test<ListedClient> | undefined {
  if (type === undefined && state === undefined) return undefined;
  const isMeant = isOfType(type);
  const isAbout = type === undefined || resource === '' ? () => true : about(type, resource, state, relay);
  const hasState: Test<ListedType> =
    state === 'MISSING'
      ? (one) => missingOf(one, relay).length > 0 // whatever else is wrong with it
      : (one) => state === undefined || stateOf(one, relay) === state;
  return (stream) => stream.types.some((one) => isMeant(one) && hasState(one) && isAbout(one));
}

/** Streams that subscribe to a name, have rejected it, or lack it. */
function about(
  type: TypeUrl,
  resource: string,
  state: ClientState | undefined,
  relay: Pick<Relay, 'isServed'>,
): Test<ListedType> {
  if (state === 'MISSING') return (one) => missingOf(one, relay).some(({ name }) => name === resource);
  if (state === 'ERROR') {
    return ({ subscription }) =>
      [...(subscription?.responses.rejections ?? [])].some(({ name }) => name === resource);
  }
  const canonical = canonicalName(resource, type);
  if (!canonical.ok) return () => false;
  const named = { name: canonical.value, aliases: [] };
  // Streams of a class share a selection.
  const known = new WeakMap<object, boolean>();
  return ({ selection }) => {
    const before = known.get(selection);
    if (before !== undefined) return before;
    const covers = selection.entries.values().some(({ selector }) => coversResource(selector, named));
    known.set(selection, covers);
    return covers;
  };
}

/** Undefined: every type. */
const isOfType =
  (type: TypeUrl | undefined) =>
  ({ info }: ListedType): boolean =>
    type === undefined || info.url === type;
