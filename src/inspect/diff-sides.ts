import { create, fromBinary } from '@bufbuild/protobuf';
import { collected } from '../admin/answers.ts';
import type { DiffSideQuery } from '../admin/changes-ports.ts';
import { GetClientResponseSchema } from '../gen/distributary/admin/v1/fleet_pb.ts';
import {
  ClientConfig_GenericXdsConfigSchema,
  type ClientStatusRequest,
  ClientStatusRequestSchema,
} from '../gen/envoy/service/status/v3/csds_pb.ts';
import { reachable, releasedAt, type StateAt } from '../history/history.ts';
import { type ResourceName, resourceName, type TypeUrl, typeUrl } from '../model/brand.ts';
import { isVariant } from '../model/catalog.ts';
import type { Content } from '../model/change.ts';
import type { Parameters } from '../model/parameters.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Pace, TimeSlices } from '../model/time-slices.ts';
import { statusClients } from '../wire/client-status.ts';
import { Code, type GrpcStatus } from '../wire/grpc-status.ts';
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

/** A state of the cache, or what a client gets of it. */
type StateQuery = Exclude<DiffSideQuery, { readonly kind: 'client' | 'parameters' }>;

type ContentOf = (type: TypeUrl, name: ResourceName) => Content;

type MutableSide = Map<TypeUrl, Map<string, Comparables>>;

/** What is compared. Only states of the cache are compared with each other, and only clients with clients. */
export class DiffSides {
  readonly #options: ChangesOptions;

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  async of(from: DiffSideQuery, to: DiffSideQuery, slices: TimeSlices): Promise<Result<Sides, GrpcStatus>> {
    if (isState(from) && isState(to)) return slices.run((pace) => this.#states(from, to, pace));
    if (isState(from) || isState(to)) {
      const message =
        'from and to must be of one kind: two of revision, released and pending, or two of client and parameters';
      return fail({ code: Code.INVALID_ARGUMENT, message });
    }
    const before = await this.#received(from, slices);
    if (!before.ok) return before;
    const after = await this.#received(to, slices);
    return after.ok ? ok({ from: before.value, to: after.value }) : after;
  }

  /** Of the names that may differ. */
  async #states(from: StateQuery, to: StateQuery, pace: Pace): Promise<Result<Sides, GrpcStatus>> {
    const names = new Map<TypeUrl, Set<ResourceName>>();
    const contents: ContentOf[] = [];
    for (const query of [from, to]) {
      const content = this.#state(query, names);
      if (!content.ok) return content;
      contents.push(content.value);
    }
    const [before, after] = contents;
    return ok({ from: await sideOf(names, before, pace), to: await sideOf(names, after, pace) });
  }

  /** Adds the names that differ from what is released now. */
  #state(query: StateQuery, names: Map<TypeUrl, Set<ResourceName>>): Result<ContentOf, GrpcStatus> {
    const { gate, store } = this.#options.relay;
    switch (query.kind) {
      case 'released':
        return ok((type, name) => gate.contentOf(type, name, 'released'));
      case 'pending':
        for (const { type, name } of gate.pending) add(names, type, name);
        return ok((type, name) => store.snapshot(type, name).said);
      case 'revision': {
        const state = this.#revision(query.revision);
        if (!state.ok) return state;
        for (const [type, contents] of state.value)
          for (const name of contents.keys()) add(names, type, name);
        return ok((type, name) => state.value.get(type)?.get(name) ?? gate.contentOf(type, name, 'released'));
      }
      default:
        return query satisfies never;
    }
  }

  /** Of a change that was not released, what upstream said then. */
  #revision(revision: number): Result<StateAt, GrpcStatus> {
    const { history } = this.#options;
    const reached = reachable(history, revision);
    if (!reached.ok) return reached;
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
    return ok(state);
  }

  async #received(
    query: Exclude<DiffSideQuery, StateQuery>,
    slices: TimeSlices,
  ): Promise<Result<ComparableSide, GrpcStatus>> {
    if (query.kind === 'client') return this.#heldBy(query.client, slices);
    return ok(await slices.run((pace) => this.#matching(query.parameters, pace)));
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
  async #heldBy(client: string, slices: TimeSlices): Promise<Result<ComparableSide, GrpcStatus>> {
    const clients = this.#options.clients();
    const found = await clients.client({ id: client, limit: 1, offset: 0 });
    if (!found.ok) return found;
    const { nodeId } = await collected(GetClientResponseSchema, found.value);
    const request = nodeRequest(nodeId);
    const maxBytes = this.#options.maxResponseBytes();
    const configs = await clients.configs({ scope: ALL_CLIENTS, request, maxBytes, whole: true });
    if (!configs.ok) return configs;
    return slices.run(async (pace) => {
      const own = statusClients(configs.value).find(({ rest }) => rest.clientScope === client);
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
      return ok(side);
    });
  }
}

const isState = (query: DiffSideQuery): query is StateQuery =>
  query.kind !== 'client' && query.kind !== 'parameters';

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
