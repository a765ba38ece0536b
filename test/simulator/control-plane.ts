import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { AnySchema } from '@bufbuild/protobuf/wkt';
import type { Node } from '../../src/gen/envoy/config/core/v3/base_pb.ts';
import {
  DeltaDiscoveryRequestSchema,
  DeltaDiscoveryResponseSchema,
  DiscoveryRequestSchema,
  DiscoveryResponseSchema,
  DynamicParameterConstraintsSchema,
  type Resource,
  type ResourceError,
  ResourceErrorSchema,
  ResourceNameSchema,
  ResourceSchema,
} from '../../src/gen/envoy/service/discovery/v3/discovery_pb.ts';
import { LOAD_PATH } from '../../src/model/load.ts';
import { Code } from '../../src/wire/grpc-status.ts';
import type { StreamHandler } from '../../src/wire/server-stream.ts';
import { type Constraints, matches, NONE, type Parameters, parametersOf } from './constraints.ts';
import { type Asked, writeAsked } from './load-messages.ts';
import type { Call, Connection, Host } from './network.ts';
import { bodyOf, catalog, type Kind, kindOf, kinds, type World } from './world.ts';

/** How a control plane differs from others; all of these are met in the field. */
export interface Habits {
  readonly protocol: 'DELTA' | 'SOTW';
  /** Matches parameters itself (TP2); else it decides by node. */
  readonly native: boolean;
  /** Delta: says of a name that it does not have that it is not there; others stay silent. */
  readonly tellsMissing: boolean;
  /** Delta: splits a wildcard's first answer. */
  readonly splits: boolean;
  /** Delta: ignores requests with the nonce of an overtaken response, subscriptions and all. */
  readonly dropsStale: boolean;
  /** SotW: each response holds all that is subscribed, of every type. */
  readonly wholePartial: boolean;
  readonly versions: 'revision' | 'none' | 'restart';
  /** A replica that learns everything so much later, in milliseconds. */
  readonly lag: number;
  /** Says in resource_errors that a name is not, or no longer, there: over SotW, relays below keep what they have. */
  readonly errors?: boolean;
  /** What it asks of load reports; left out: it takes none. */
  readonly loads?: Asked;
}

/** What control planes hear of load. */
export interface LoadListener {
  /** A report was read. */
  arrived(report: Uint8Array): void;
  /** It was there, and was not read. */
  lost(report: Uint8Array): void;
}

/** What a control plane says of a name instead of a resource: google.rpc.Code. */
interface Fault {
  readonly name: string;
  readonly code: 5 | 14;
}

/** The wildcard of a type and its names have streams of their own (protocol §5b). */
export type Role = 'names' | 'wildcard';

/** What somebody wants: by its name, or as one of all. */
export interface Wish {
  readonly kind: Kind;
  readonly role: Role;
  readonly name: string;
  readonly form: Parameters;
}

/** Milliseconds between the parts of a split answer. */
const splitGap = 60;

/** One thing that a subscriber may see. */
interface Shown {
  readonly name: string;
  readonly constraints: Constraints;
  readonly content: string;
}

/** A control plane that holds what the world held a while ago. */
export class ControlPlane implements Host {
  readonly id: string;
  readonly habits: Habits;
  readonly world: World;
  readonly connections = new Set<Connection>();
  readonly #streams = new Set<PlaneStream>();
  /** By connection, all delta streams that there were on it. */
  readonly #opened = new WeakMap<Connection, DeltaStream[]>();
  reachable: 'up' | 'down' | 'deaf' = 'up';
  /** The world's revision that it shows. */
  applied = 0;
  /** Responses sent, for quiet times. */
  sent = 0;
  /** Requests that ask for something, or answer. What is idle is let go of in quiet too. */
  received = 0;
  readonly #loads: LoadListener;
  #asks: Asked | undefined;
  readonly #loadStreams = new Set<Call>();
  #startedAt = 0;

  constructor(
    id: string,
    habits: Habits,
    world: World,
    later: (milliseconds: number, run: () => void) => void,
    loads: LoadListener,
  ) {
    this.id = id;
    this.habits = habits;
    this.#loads = loads;
    this.#asks = habits.loads;
    this.world = world;
    world.listen((revision, edits) => {
      const apply = (): void => {
        this.applied = revision;
        const changed = new Set(edits.map((edit) => edit.kind));
        for (const stream of [...this.#streams]) stream.changed(changed);
      };
      if (habits.lag === 0) apply();
      else later(habits.lag, apply);
    });
  }

  accept(call: Call): void {
    if (call.path === LOAD_PATH) {
      this.#acceptLoad(call);
      return;
    }
    const stream =
      this.habits.protocol === 'DELTA' ? new DeltaStream(this, call) : new SotwStream(this, call);
    this.#streams.add(stream);
    if (stream instanceof DeltaStream)
      this.#opened.set(call.connection, [...(this.#opened.get(call.connection) ?? []), stream]);
    call.handle({
      message: (bytes) => {
        if (this.reachable === 'up') stream.message(bytes);
      },
      ended: () => undefined,
      drained: () => undefined,
      closed: () => this.#streams.delete(stream),
    } satisfies StreamHandler);
  }

  /** Its first message says whose load it is. */
  #acceptLoad(call: Call): void {
    const asks = this.#asks;
    if (asks === undefined) {
      call.handle({ message: () => {}, ended: () => {}, drained: () => {}, closed: () => {} });
      call.end({ code: Code.UNIMPLEMENTED, message: 'no load reports' });
      return;
    }
    let isKnown = false;
    call.handle({
      message: (bytes) => {
        if (!isKnown && this.reachable === 'up') this.#ask(call);
        else if (this.reachable === 'up') this.#loads.arrived(bytes);
        else this.#loads.lost(bytes);
        isKnown = true;
      },
      ended: () => undefined,
      drained: () => undefined,
      closed: () => this.#loadStreams.delete(call),
    } satisfies StreamHandler);
  }

  #ask(call: Call): void {
    this.#loadStreams.add(call);
    if (this.#asks !== undefined) call.write(framed(writeAsked(this.#asks)));
  }

  /** It wants other reports from now on. */
  asksFor(asks: Asked): void {
    if (this.#asks === undefined || this.reachable !== 'up') return;
    this.#asks = asks;
    for (const call of this.#loadStreams) this.#ask(call);
  }

  /** Comes back with nothing of its streams, and may count its versions anew. */
  restart(): void {
    this.#startedAt = this.applied;
    for (const connection of [...this.connections]) connection.kill('the control plane restarted');
    this.#streams.clear();
  }

  /** Something is wrong with a resource for a moment: it is as it was, and an error beside it. */
  fault(kind: Kind, name: string): void {
    if (this.reachable !== 'up') return;
    for (const stream of [...this.#streams]) stream.fault(kind, { name, code: 14 });
  }

  /** One stream fails, its connection lives on. */
  failStream(at: number): void {
    const streams = [...this.#streams];
    const stream = streams[at % Math.max(1, streams.length)];
    if (stream === undefined) return;
    this.#streams.delete(stream);
    stream.call.end({ code: 14, message: 'one stream failed' });
  }

  get tellsErrors(): boolean {
    return this.habits.errors === true;
  }

  /**
   * Delta: what a session has asked of a kind has had no answer since its last stream began: no response that is about the
   * wildcard; and to names no response at all, on its other streams neither, or of this one an error alone.
   */
  isSilent(connection: Connection, session: string, wish: Wish): boolean {
    const { kind, role } = wish;
    const streams = (this.#opened.get(connection) ?? []).filter((one) => one.session === session);
    const asked = streams.filter((one) => one.asks(kind, role));
    const last = asked.at(-1);
    if (last === undefined) return false;
    if (role === 'wildcard') return !last.hasToldOf(kind);
    if (last.hasOnlyFaultsFor(wish)) return true;
    // What was said on earlier ones counts no more.
    return !last.hasSpoken && !streams.some((one) => one.hasSpoken && !asked.includes(one));
  }

  get version(): string {
    switch (this.habits.versions) {
      case 'none':
        return '';
      case 'restart':
        return String(this.applied - this.#startedAt);
      default:
        return String(this.applied);
    }
  }
}

function framed(message: Uint8Array): Buffer {
  const frame = Buffer.alloc(5 + message.length);
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, 5);
  return frame;
}

abstract class PlaneStream {
  readonly call: Call;
  protected readonly plane: ControlPlane;
  protected parameters: Parameters = parametersOf(new Map());
  #nonce = 0;

  constructor(plane: ControlPlane, call: Call) {
    this.plane = plane;
    this.call = call;
  }

  /** It has had a response. */
  get hasSpoken(): boolean {
    return this.#nonce > 0;
  }

  /** By what it has shown in its node. */
  get session(): string {
    return this.parameters.key;
  }

  abstract message(bytes: Buffer): void;
  abstract changed(changed: ReadonlySet<Kind>): void;
  abstract fault(kind: Kind, fault: Fault): void;

  protected identify(node: Node | undefined): void {
    if (node === undefined) return;
    const texts = Object.entries(node.metadata ?? {}).flatMap(([key, value]) =>
      typeof value === 'string' ? [[key, value] as const] : [],
    );
    this.parameters = parametersOf(new Map(texts));
  }

  protected nextNonce(): string {
    return String(++this.#nonce);
  }

  protected write(message: Uint8Array): void {
    this.plane.sent++;
    this.call.write(framed(message));
  }

  /** What is under a name for these parameters: of a control plane that decides by node, one at most. */
  protected under(kind: Kind, name: string, given: Parameters): Shown[] {
    const { habits, world, applied } = this.plane;
    if (habits.native) {
      return world
        .matching(kind, name, given, applied)
        .map(({ constraints, content }) => ({ name, constraints, content }));
    }
    const [first] = world.matching(kind, name, this.parameters, applied);
    return first === undefined ? [] : [{ name, constraints: NONE, content: first.content }];
  }

  protected everything(kind: Kind, given: Parameters): Shown[] {
    const { names, hidden } = catalog[kind];
    return names.filter((name) => !hidden.includes(name)).flatMap((name) => this.under(kind, name, given));
  }
}

/** A name or `*`, as somebody with these parameters sees it. */
interface Selected {
  readonly name: string;
  readonly parameters: Parameters;
}

const noParameters = parametersOf(new Map());
const idOf = ({ name, parameters }: Selected): string => `${parameters.key} ${name}`;
const shownId = ({ name, constraints }: Shown): string => `${constraints.label} ${name}`;

function selectedOf(
  names: readonly string[],
  locators: readonly { readonly name: string; readonly dynamicParameters: Record<string, string> }[],
): Selected[] {
  return [
    ...names.map((name) => ({ name, parameters: noParameters })),
    ...locators.map(({ name, dynamicParameters }) => ({
      name,
      parameters: parametersOf(new Map(Object.entries(dynamicParameters))),
    })),
  ];
}

function visible(
  stream: { under(name: string, given: Parameters): Shown[]; everything(given: Parameters): Shown[] },
  selection: Iterable<Selected>,
): Map<string, Shown> {
  const found = new Map<string, Shown>();
  for (const { name, parameters } of selection) {
    const shown = name === '*' ? stream.everything(parameters) : stream.under(name, parameters);
    for (const one of shown) found.set(shownId(one), one);
  }
  return found;
}

function resourceOf(kind: Kind, { name, constraints, content }: Shown, version: string): Resource {
  const named =
    constraints.message === undefined
      ? { name }
      : {
          resourceName: create(ResourceNameSchema, {
            name,
            dynamicParameterConstraints: constraints.message,
          }),
        };
  return create(ResourceSchema, { ...named, version, resource: bodyOf(kind, name, content) });
}

interface SotwType {
  selection: Map<string, Selected>;
  nonce: string;
  /** Something was named: an empty list is nothing from then on. */
  named: boolean;
  sent: Map<string, Shown>;
}

class SotwStream extends PlaneStream {
  readonly #types = new Map<Kind, SotwType>();

  message(bytes: Buffer): void {
    const request = fromBinary(DiscoveryRequestSchema, bytes);
    this.identify(request.node);
    const kind = kindOf(request.typeUrl);
    const known = this.#types.get(kind);
    if (known !== undefined && known.nonce !== '' && request.responseNonce !== known.nonce) return; // stale
    const state: SotwType = known ?? { selection: new Map(), nonce: '', named: false, sent: new Map() };
    this.#types.set(kind, state);
    const selected = selectedOf(request.resourceNames, request.resourceLocators);
    if (selected.length > 0) state.named = true;
    else if (!state.named && catalog[kind].legacy) selected.push({ name: '*', parameters: noParameters });
    const before = state.selection;
    state.selection = new Map(selected.map((one) => [idOf(one), one]));
    const added = selected.filter((one) => !before.has(idOf(one)));
    if (added.length > 0 || selected.length >= before.size) this.plane.received++;
    for (const id of state.sent.keys()) {
      if (!this.#visible(kind, state.selection.values()).has(id)) state.sent.delete(id);
    }
    if (known !== undefined && added.length === 0) return;
    this.#respond(kind, state, added);
  }

  changed(changed: ReadonlySet<Kind>): void {
    for (const kind of kinds) {
      const state = changed.has(kind) ? this.#types.get(kind) : undefined;
      if (state !== undefined && state.selection.size > 0) this.#respond(kind, state, []);
    }
  }

  fault(kind: Kind, fault: Fault): void {
    const state = this.#types.get(kind);
    if (state === undefined) return;
    const shown = this.#visible(kind, state.selection.values()).values();
    if (shown.some(({ name }) => name === fault.name)) this.#respond(kind, state, [], fault);
  }

  #visible(kind: Kind, selection: Iterable<Selected>): Map<string, Shown> {
    return visible(
      {
        under: (name, given) => this.under(kind, name, given),
        everything: (given) => this.everything(kind, given),
      },
      selection,
    );
  }

  #respond(kind: Kind, state: SotwType, added: readonly Selected[], fault?: Fault): void {
    const now = this.#visible(kind, state.selection.values());
    const complete = catalog[kind].full || [...state.selection.values()].some(({ name }) => name === '*');
    const asked = this.#visible(kind, added);
    const news = [...now].filter(
      ([id, { content }]) => asked.has(id) || state.sent.get(id)?.content !== content,
    );
    const lost = [...state.sent].filter(([id]) => !now.has(id)).map(([, { name }]) => name);
    state.sent = new Map(now);
    const faults = fault === undefined ? [] : [fault];
    const named = new Set([...state.selection.values()].map(({ name }) => name));
    const missing = new Set([...added.map(({ name }) => name), ...lost.filter((name) => named.has(name))]);
    for (const name of this.plane.habits.errors === true ? missing : []) {
      if (name === '*' || faults.some((one) => one.name === name)) continue;
      if (![...now.values()].some((shown) => shown.name === name)) faults.push({ name, code: 5 });
    }
    if (news.length + faults.length === 0 && !(complete && lost.length + added.length > 0)) return;
    const whole = complete || this.plane.habits.wholePartial;
    state.nonce = this.nextNonce();
    const { version } = this.plane;
    // What is faulty is not in the response.
    const said = (whole ? [...now] : news).filter(([, { name }]) => name !== fault?.name);
    const resources = said.map(([, shown]) => {
      const body = bodyOf(kind, shown.name, shown.content);
      if (shown.constraints.message === undefined) return body;
      const value = toBinary(ResourceSchema, resourceOf(kind, shown, ''));
      return create(AnySchema, {
        typeUrl: 'type.googleapis.com/envoy.service.discovery.v3.Resource',
        value,
      });
    });
    this.write(
      toBinary(
        DiscoveryResponseSchema,
        create(DiscoveryResponseSchema, {
          versionInfo: version,
          typeUrl: catalog[kind].url,
          nonce: state.nonce,
          resources,
          resourceErrors: errorsOf(this.plane, kind, faults),
        }),
      ),
    );
  }
}

function errorsOf({ world }: ControlPlane, kind: Kind, faults: readonly Fault[]): ResourceError[] {
  return faults.map(({ name, code }) => {
    world.faults.add(`${kind} ${name} ${code}`);
    return create(ResourceErrorSchema, { resourceName: { name }, errorDetail: { code, message: 'faulty' } });
  });
}

interface DeltaType {
  readonly selection: Map<string, Selected>;
  /** What the client has: content by (name, constraints). */
  readonly sent: Map<string, { readonly shown: Shown; readonly content: string }>;
  nonce: string;
  /** Parts of a first answer that have not been sent yet. */
  pending: Shown[];
  /** More than errors was sent. */
  hasTold: boolean;
  /** All that was ever sent. */
  readonly told: Shown[];
  readonly faulty: Set<string>;
}

class DeltaStream extends PlaneStream {
  readonly #types = new Map<Kind, DeltaType>();

  asks(kind: Kind, role: Role): boolean {
    const selected = this.#types.get(kind)?.selection.values();
    return selected?.some(({ name }) => (name === '*') === (role === 'wildcard')) === true;
  }

  /** An error has been the answer, where there is nothing for these parameters (protocol §3.9). */
  hasOnlyFaultsFor({ kind, name, form }: Wish): boolean {
    const { faulty, told = [] } = this.#types.get(kind) ?? {};
    const isFor = (one: Shown): boolean => one.name === name && matches(one.constraints.message, form);
    return faulty?.has(name) === true && !told.some(isFor);
  }

  /** In more than errors. */
  hasToldOf(kind: Kind): boolean {
    return this.#types.get(kind)?.hasTold === true;
  }

  message(bytes: Buffer): void {
    const request = fromBinary(DeltaDiscoveryRequestSchema, bytes);
    this.identify(request.node);
    const kind = kindOf(request.typeUrl);
    const known = this.#types.get(kind);
    const state: DeltaType = known ?? {
      selection: new Map(),
      sent: new Map(),
      nonce: '',
      pending: [],
      hasTold: false,
      told: [],
      faulty: new Set(),
    };
    this.#types.set(kind, state);
    const { dropsStale, tellsMissing, splits } = this.plane.habits;
    const subscribe = selectedOf(request.resourceNamesSubscribe, request.resourceLocatorsSubscribe);
    const unsubscribe = selectedOf(request.resourceNamesUnsubscribe, request.resourceLocatorsUnsubscribe);
    if (subscribe.length > 0 || unsubscribe.length === 0) this.plane.received++;
    if (dropsStale && request.responseNonce !== '' && request.responseNonce !== state.nonce) return;
    if (known === undefined && subscribe.length === 0 && catalog[kind].legacy) {
      subscribe.push({ name: '*', parameters: noParameters });
    }
    const versions = new Map(Object.entries(request.initialResourceVersions));
    for (const one of subscribe) state.selection.set(idOf(one), one);
    for (const one of unsubscribe) state.selection.delete(idOf(one));
    const now = this.#visible(kind, state.selection.values());
    for (const id of state.sent.keys()) if (!now.has(id)) state.sent.delete(id);
    if (subscribe.length === 0 && known !== undefined) return;
    const send = new Map<string, Shown>();
    const missing = new Set<string>();
    for (const one of subscribe) {
      const found = this.#visible(kind, [one]);
      if (found.size === 0 && one.name !== '*' && tellsMissing) missing.add(one.name);
      for (const [id, shown] of found) if (now.has(id)) send.set(id, shown);
    }
    // What the client says it has: the same version is skipped, and what is gone is said to be gone.
    // A name alone is one without constraints.
    const names = new Set(
      [...now.values()].filter(({ constraints }) => constraints === NONE).map(({ name }) => name),
    );
    for (const [name, version] of versions) {
      for (const [id, shown] of now) {
        if (shown.name !== name || versionOf(shown) !== version) continue;
        send.delete(id);
        state.sent.set(id, { shown, content: shown.content });
      }
      if (!names.has(name)) missing.add(name);
    }
    const wildcard = subscribe.some(({ name }) => name === '*');
    if (send.size === 0 && missing.size === 0 && !(wildcard && versions.size === 0)) return;
    const list = [...send.values()];
    if (splits && wildcard && list.length > 2) {
      const waiting = state.pending.length > 0;
      const asked = new Set(list.map(shownId));
      // What takes the place of what is removed comes with the removal: a swap of variants is one update (protocol §5.1).
      const first = list.filter(({ name }, at) => at < 2 || missing.has(name));
      const rest = list.filter((one) => !first.includes(one));
      state.pending = [...state.pending.filter((one) => !asked.has(shownId(one))), ...rest];
      this.#send(kind, state, first, [...missing]);
      if (!waiting) this.#later(kind, state);
    } else {
      const faulty = this.plane.habits.errors === true ? subscribe.map(({ name }) => name) : [];
      const faults = [...missing].filter((name) => faulty.includes(name) && !versions.has(name));
      const removed = [...missing].filter((name) => !faults.includes(name));
      this.#send(
        kind,
        state,
        list,
        removed,
        [],
        faults.map((name) => ({ name, code: 5 })),
      );
    }
  }

  fault(kind: Kind, fault: Fault): void {
    const sent = this.#types.get(kind)?.sent.values() ?? [];
    const state = this.#types.get(kind);
    if (state === undefined || ![...sent].some(({ shown }) => shown.name === fault.name)) return;
    state.faulty.add(fault.name);
    this.#send(kind, state, [], [], [], [fault]);
  }

  changed(changed: ReadonlySet<Kind>): void {
    for (const kind of kinds) {
      const state = changed.has(kind) ? this.#types.get(kind) : undefined;
      if (state === undefined) continue;
      const now = this.#visible(kind, state.selection.values());
      state.pending = state.pending.filter((one) => now.get(shownId(one))?.content === one.content);
      const waiting = new Set(state.pending.map(shownId));
      const send = [...now.values()].filter(
        (one) => !waiting.has(shownId(one)) && state.sent.get(shownId(one))?.content !== one.content,
      );
      const gone = [...state.sent.values()].filter(({ shown }) => !now.has(shownId(shown)));
      if (send.length === 0 && gone.length === 0) continue;
      const removed = gone.filter(({ shown }) => shown.constraints.message === undefined);
      const variants = gone.filter(({ shown }) => shown.constraints.message !== undefined);
      const named = new Set([...state.selection.values()].map(({ name }) => name));
      for (const { name } of now.values()) named.delete(name); // another variant
      const missing = removed.filter(
        ({ shown }) => this.plane.habits.errors === true && named.has(shown.name),
      );
      for (const { shown } of missing) state.sent.delete(shownId(shown));
      this.#send(
        kind,
        state,
        send,
        removed.filter((one) => !missing.includes(one)).map(({ shown }) => shown.name),
        variants.map(({ shown }) => shown),
        missing.map(({ shown }) => ({ name: shown.name, code: 5 })),
      );
    }
  }

  #later(kind: Kind, state: DeltaType): void {
    this.call.connection.network.loop.after(splitGap, () => {
      if (!this.call.live || state.pending.length === 0) return;
      const next = state.pending.splice(0, 2);
      this.#send(kind, state, next, []);
      this.#later(kind, state);
    });
  }

  #visible(kind: Kind, selection: Iterable<Selected>): Map<string, Shown> {
    return visible(
      {
        under: (name, given) => this.under(kind, name, given),
        everything: (given) => this.everything(kind, given),
      },
      selection,
    );
  }

  #send(
    kind: Kind,
    state: DeltaType,
    resources: readonly Shown[],
    removed: readonly string[],
    variants: readonly Shown[] = [],
    faults: readonly Fault[] = [],
  ): void {
    for (const shown of resources) state.sent.set(shownId(shown), { shown, content: shown.content });
    state.told.push(...resources);
    for (const name of removed) state.sent.delete(shownId({ name, constraints: NONE, content: '' }));
    for (const shown of variants) state.sent.delete(shownId(shown));
    if (resources.length + removed.length + variants.length > 0 || faults.length === 0) state.hasTold = true;
    state.nonce = this.nextNonce();
    const { versions } = this.plane.habits;
    this.write(
      toBinary(
        DeltaDiscoveryResponseSchema,
        create(DeltaDiscoveryResponseSchema, {
          systemVersionInfo: this.plane.version,
          typeUrl: catalog[kind].url,
          nonce: state.nonce,
          resources: resources.map((shown) =>
            resourceOf(kind, shown, versions === 'none' ? '' : versionOf(shown)),
          ),
          removedResources: [...removed],
          resourceErrors: errorsOf(this.plane, kind, faults),
          removedResourceNames: variants.map(({ name, constraints }) =>
            create(ResourceNameSchema, {
              name,
              dynamicParameterConstraints:
                constraints.message ?? create(DynamicParameterConstraintsSchema, {}),
            }),
          ),
        }),
      ),
    );
  }
}

/** Of a control plane that derives versions from the content. */
const versionOf = ({ content, constraints }: Shown): string => `v${content}${constraints.label}`;
