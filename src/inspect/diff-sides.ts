import { create, fromBinary } from '@bufbuild/protobuf';
import { collected } from '../admin/answers.ts';
import { valueOf } from '../admin/requests.ts';
import type { DiffSide } from '../gen/distributary/admin/v1/changes_pb.ts';
import { GetClientRequestSchema, GetClientResponseSchema } from '../gen/distributary/admin/v1/fleet_pb.ts';
import {
  ClientConfig_GenericXdsConfigSchema,
  type ClientStatusRequest,
  ClientStatusRequestSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { reachable, releasedAt, type StateAt } from '../history/history.ts';
import { type ResourceName, resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import type { Content } from '../model/change.ts';
import { internParameters, type Parameters } from '../model/parameters.ts';
import type { Pace, TimeSlices } from '../model/time-slices.ts';
import { statusClients } from '../wire/client-status.ts';
import { invalid } from '../wire/connect.ts';
import type { ChangesOptions } from './changes-options.ts';
import { ALL_CLIENTS } from './client-status-scope.ts';
import { noSuchClient } from './clients-view.ts';
import {
  type ComparableSide,
  type Comparables,
  comparableOf,
  comparablesOf,
  receivedComparable,
} from './comparable.ts';

export interface Sides {
  readonly from: ComparableSide;
  readonly to: ComparableSide;
}

type Of = Exclude<DiffSide['of'], { readonly case: undefined }>;

/** A state of the cache, or what a client gets of it. */
type StateQuery = Extract<Of, { readonly case: 'revision' | 'released' | 'pending' }>;

type ContentOf = (type: TypeUrl, name: ResourceName) => Content;

type MutableSide = Map<TypeUrl, Map<string, Comparables>>;

/** What is compared. Only states of the cache are compared with each other, and only clients with clients. */
export class DiffSides {
  readonly #options: ChangesOptions;

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  async of(one: DiffSide | undefined, other: DiffSide | undefined, slices: TimeSlices): Promise<Sides> {
    const [from, to] = [ofSide('from', one), ofSide('to', other)];
    if (isState(from) && isState(to)) return slices.run((pace) => this.#states(from, to, pace));
    if (isState(from) || isState(to)) {
      const message =
        'from and to must be of one kind: two of revision, released and pending, or two of client and parameters';
      throw invalid(message);
    }
    return { from: await this.#received(from, slices), to: await this.#received(to, slices) };
  }

  /** Of the names that may differ. */
  async #states(from: StateQuery, to: StateQuery, pace: Pace): Promise<Sides> {
    const names = new Map<TypeUrl, Set<ResourceName>>();
    const [before, after] = [this.#state(from, names), this.#state(to, names)];
    return { from: await sideOf(names, before, pace), to: await sideOf(names, after, pace) };
  }

  /** Adds the names that differ from what is released now. */
  #state(query: StateQuery, names: Map<TypeUrl, Set<ResourceName>>): ContentOf {
    const { gate, store } = this.#options.relay;
    switch (query.case) {
      case 'released':
        return (type, name) => gate.contentOf(type, name, 'released');
      case 'pending':
        for (const { type, name } of gate.pending) add(names, type, name);
        return (type, name) => store.snapshot(type, name).said;
      case 'revision': {
        const state = this.#revision(query.value);
        for (const [type, contents] of state) for (const name of contents.keys()) add(names, type, name);
        return (type, name) => state.get(type)?.get(name) ?? gate.contentOf(type, name, 'released');
      }
      default:
        return query satisfies never;
    }
  }

  /** Of a change that was not released, what upstream said then. */
  #revision(revision: number): StateAt {
    const { history } = this.#options;
    valueOf(reachable(history, revision));
    const released = releasedAt(history, revision, 'absent');
    const state = new Map([...released].map(([type, names]) => [type, new Map(names)]));
    for (const { type, names, revision: of } of history.changes()) {
      if (of > revision) break;
      for (const { name, verdict, content } of names) {
        const shown = of === revision ? verdict !== 'RELEASED' : verdict === 'PENDING';
        if (!shown || content === undefined) continue;
        const contents = state.get(type) ?? new Map<ResourceName, Content>();
        state.set(type, contents.set(name, content.after));
      }
    }
    return state;
  }

  #received(query: Exclude<Of, StateQuery>, slices: TimeSlices): Promise<ComparableSide> {
    if (query.case === 'client') return this.#heldBy(query.value, slices);
    const parameters = internParameters(Object.entries(query.value.values));
    return slices.run((pace) => this.#matching(parameters, pace));
  }

  /** What a client with these parameters gets of everything that is cached, if it is no canary. */
  async #matching(parameters: Parameters, pace: Pace): Promise<ComparableSide> {
    const { store } = this.#options.relay;
    const side: MutableSide = new Map();
    for (const [type, table] of store.tables) {
      const values = new Map<string, Comparables>();
      for (const name of new Set([...table.resources.keys(), ...this.#pendingOf(type)])) {
        await pace.yieldIfDue();
        const value = store.sides.released.peek(type, name, parameters);
        if (isVariant(value)) values.set(name, comparableOf(value));
      }
      side.set(type, values);
    }
    return side;
  }

  /** Upstream may have removed them. */
  *#pendingOf(type: TypeUrl): Iterable<ResourceName> {
    for (const pending of this.#options.relay.gate.pending) if (pending.type === type) yield pending.name;
  }

  /** What a client was sent, by CSDS: its stream may be in another process. */
  async #heldBy(client: string, slices: TimeSlices): Promise<ComparableSide> {
    const clients = this.#options.clients();
    const found = await clients.getClient(create(GetClientRequestSchema, { id: client, limit: 1 }));
    const { nodeId } = await collected(GetClientResponseSchema, found);
    const request = nodeRequest(nodeId);
    const maxBytes = this.#options.maxResponseBytes();
    const configs = valueOf(await clients.configs({ scope: ALL_CLIENTS, request, maxBytes, whole: true }));
    return slices.run(async (pace) => {
      const own = statusClients(configs).find(({ rest }) => rest.clientScope === client);
      if (own === undefined) return noSuchClient(client);
      const side: MutableSide = new Map();
      for (const bytes of own.entries) {
        await pace.yieldIfDue();
        const {
          typeUrl: url,
          name,
          versionInfo,
          xdsConfig,
        } = fromBinary(ClientConfig_GenericXdsConfigSchema, bytes);
        if (versionInfo === '' && xdsConfig === undefined) continue;
        const type = typeUrl(url);
        const values = side.get(type) ?? new Map<string, Comparables>();
        side.set(type, values.set(resourceName(name), receivedComparable(versionInfo, xdsConfig)));
      }
      return side;
    });
  }
}

function ofSide(field: string, side: DiffSide | undefined): Of {
  if (side !== undefined && side.of.case !== undefined) return side.of;
  throw invalid(`${field} is missing: expected revision, released, pending, client or parameters`);
}

const isState = (query: Of): query is StateQuery => query.case !== 'client' && query.case !== 'parameters';

function add(names: Map<TypeUrl, Set<ResourceName>>, type: TypeUrl, name: ResourceName): void {
  names.set(type, (names.get(type) ?? new Set()).add(name));
}

async function sideOf(
  names: ReadonlyMap<TypeUrl, ReadonlySet<ResourceName>>,
  content: ContentOf | undefined,
  pace: Pace,
): Promise<ComparableSide> {
  const side: MutableSide = new Map();
  for (const [type, all] of names) {
    const values = new Map<string, Comparables>();
    side.set(type, values);
    for (const name of all) {
      await pace.yieldIfDue();
      values.set(name, comparablesOf(content?.(type, name) ?? []));
    }
  }
  return side;
}

/** CSDS for the streams of one node. */
const nodeRequest = (id: string): ClientStatusRequest =>
  create(ClientStatusRequestSchema, {
    nodeMatchers: [{ nodeId: { matchPattern: { case: 'exact', value: id } } }],
  });
