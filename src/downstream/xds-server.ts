import { type Charged, type TypeUrl, typeUrl } from '../model/brand.ts';
import type { Result } from '../model/result.ts';
import type { Defers, RequestKind } from '../model/subscription.ts';
import { atOnce, type InTurns, OverTurns } from '../model/time-slices.ts';
import { ADS_SERVICE, knownTypes } from '../model/types.ts';
import { ClientStream, OpenStreams } from '../wire/client-stream.ts';
import type { GrpcStatus } from '../wire/grpc-status.ts';
import { denied, malformed, type Refusal, rulesChanged } from '../wire/refusal.ts';
import { type ErrorDetail, type Request, readRequest } from '../wire/requests.ts';
import type { ServerStream } from '../wire/server-stream.ts';
import { heldTooMuch, Quota, refusedUpstream, tooLarge, unavailable } from './admission.ts';
import {
  Conversations,
  longestWarmingMs,
  type OrderedStream,
  type OrderedType,
  SendOrder,
} from './send-order.ts';
import type { ClientContext, DownstreamServices } from './services.ts';
import type { Overdue } from './stream-metrics.ts';
import { bytesOf, copyOf, type Handled, isLarge, type StreamContext, TypeStream } from './type-stream.ts';

/** Every streaming xDS method (protocol §2), by path. */
export const routes: ReadonlyMap<string, Route> = new Map(
  knownTypes
    .flatMap(({ url, short, service, streamMethod, deltaMethod }): [string, Route][] => [
      [`/${service}/${streamMethod}`, { protocol: 'sotw', type: url, service: short }],
      [`/${service}/${deltaMethod}`, { protocol: 'delta', type: url, service: short }],
    ])
    .filter(([path]) => !path.endsWith('/undefined'))
    .concat([
      [`/${ADS_SERVICE}/StreamAggregatedResources`, { protocol: 'sotw', type: undefined, service: 'ads' }],
      [`/${ADS_SERVICE}/DeltaAggregatedResources`, { protocol: 'delta', type: undefined, service: 'ads' }],
    ]),
);

/** What hears of streams. */
export interface StreamListener {
  readonly opened: (stream: XdsStream) => void;
  /** A canary that rejects something is about to subscribe to something else, or to be somebody else. */
  readonly changing: (stream: XdsStream) => void;
  readonly closed: (stream: XdsStream) => void;
}

/** All downstream streams. */
export class XdsServer extends OpenStreams<XdsStream> {
  readonly #services: DownstreamServices;
  readonly #listener: StreamListener;
  readonly conversations = new Conversations();
  /** Of all streams that there were. */
  readonly routes = new Set<Route>();
  /** Streams whose clients are to be looked at anew. */
  readonly #moving: OverTurns<XdsStream>;

  constructor(services: DownstreamServices, listener: StreamListener, prefix: string) {
    super(services.clock, services.limits, services.places, prefix);
    this.#services = services;
    this.#listener = listener;
    this.#moving = new OverTurns(services.clock, (stream) => stream.pump());
  }

  /** Takes a stream of a path in `routes`, or says why not. */
  accept(transport: ServerStream, route: Route): GrpcStatus | undefined {
    const refusal = this.places?.refusal(transport.peer, route.type);
    if (refusal !== undefined) {
      this.#services.events.rejected(refusal.reason, refusal.logged, transport.peer);
      return refusal.status;
    }
    this.routes.add(route);
    this.#listener.opened(
      this.take(transport, (id) => new XdsStream(id, route, transport, this.#services, this)),
    );
    return undefined;
  }

  /** An upstream is down: streams that it alone could answer fail (protocol §8). */
  failUnavailableStreams(): void {
    for (const stream of this.values()) stream.failIfUnavailable();
  }

  /** Upstreams refuse other parameter sets than before: the streams that have those fail. */
  failRefusedStreams(): void {
    for (const stream of this.values()) stream.failIfRefused();
  }

  /** Rules or cohorts have changed: clients are looked at anew in slices, and each before it asks or is told anything. */
  reidentify(isMeant: (client: ClientContext) => boolean = () => true): void {
    const meant = this.values().filter(({ client }) => client !== undefined && isMeant(client));
    this.#moving.addAll(meant);
  }

  get isMoving(): boolean {
    return this.#moving.size > 0;
  }

  /** Now, if it is to be looked at anew. What was asked before that is handled first, and answered after it. */
  move(stream: XdsStream): void {
    if (!this.#moving.has(stream)) return;
    stream.finishReading();
    if (this.#moving.delete(stream)) stream.reidentify();
  }

  changing(stream: XdsStream): void {
    this.#listener.changing(stream);
  }

  closed(stream: XdsStream): void {
    this.delete(stream.id);
    this.#moving.delete(stream);
    this.#listener.closed(stream);
  }
}

/** What a path serves. */
export interface Route {
  readonly protocol: 'sotw' | 'delta';
  /** The per-type service's type; undefined on ADS. */
  readonly type: TypeUrl | undefined;
  /** `ads` or the type's short name, for metrics. */
  readonly service: string;
}

/** Nothing that it has asked for is unknown or unsaid. */
const isAnswered = ({ subscription }: TypeStream): boolean =>
  subscription === undefined || (subscription.view.resolved && !subscription.pending);

/** It may have something to say. */
const isNext = ({ subscription }: TypeStream): boolean =>
  subscription !== undefined && (subscription.pending || subscription.hasDeferredRemovals);

/** It may have something to say that nobody else is told. */
const isOwnNext = (type: TypeStream): boolean => type.subscription?.isAlone === true && isNext(type);

/** A request whose node was read. `moved`: the node has changed, and with it what the client is. */
type Arrived = readonly [request: Request, bytes: number, client: ClientContext, moved: boolean];

/** One client's stream: its types, what of its node matters, and the one write that may be under way. */
export class XdsStream extends ClientStream<ClientContext> implements OrderedStream {
  readonly route: Route;
  readonly #services: DownstreamServices;
  readonly #server: XdsServer;
  readonly #types: TypeStream[] = [];
  /** A large request has come and is not handled yet: no response to an older one is sent after it (§3.11). */
  #isReading = false;
  /** Since when its client asks for nothing more, by the clock. */
  #halfClosedAt: number | undefined;
  /** Since when it waits until its peer has less to read, by the clock. */
  #waitsSince: number | undefined;
  readonly #order: SendOrder;
  readonly #quota: Quota;
  /** What it gives to each of its types. */
  readonly #context: StreamContext;

  constructor(
    id: string,
    route: Route,
    transport: ServerStream,
    services: DownstreamServices,
    server: XdsServer,
  ) {
    super(id, transport, services.clock);
    this.route = route;
    this.#services = services;
    this.#server = server;
    this.#order = new SendOrder(this, this.#types, services.clock);
    this.#quota = new Quota(this, services);
    const { account: payer } = transport.peer;
    const [wake, changing] = [() => this.pump(), () => this.#changing()];
    this.#context = { services, quota: this.#quota, wake, changing, payer };
  }

  /** In the order in which types are sent on ADS (protocol §8). */
  get types(): readonly TypeStream[] {
    return this.#types;
  }

  get removalGraceMilliseconds(): number {
    return this.#services.limits().removalGraceMilliseconds ?? 0;
  }

  readonly warmingMilliseconds = longestWarmingMs;

  overdue({ info }: OrderedType, what: Overdue, names: readonly string[]): void {
    this.#services.events.overdue(info.url, what, names, this);
  }

  get isRelay(): boolean {
    return this.client?.relay === true;
  }

  message(bytes: Charged): void {
    if (this.isOver) return;
    const read = readRequest(bytes, this.route.protocol);
    if (!read.ok) {
      this.failFor(malformed(read.error));
      return;
    }
    this.finishReading();
    this.#server.move(this);
    if (this.isOver) return;
    const before = this.client;
    this.#identify(read.value.node);
    const { client } = this;
    const type = client === undefined || this.isOver ? undefined : this.#typeOf(read.value.typeUrl);
    if (client === undefined || type === undefined) return;
    // A changed node may change the parameters of every subscription.
    const moved = before !== undefined && before !== client;
    if (isLarge(read.value, bytes.length, this.#services.largeRequestBytes) && !type.repeats(read.value)) {
      const request = copyOf(read.value);
      this.handleInTurns(bytesOf(request), () =>
        this.#handleLarge(type, request, bytes.length, client, moved),
      );
      return;
    }
    this.#handled(atOnce(type.handle(read.value, client)), type, read.value, bytes.length, client, moved);
    this.#goOn();
  }

  *#handleLarge(type: TypeStream, ...arrived: Arrived): InTurns<void> {
    const [request, , client] = arrived;
    this.#isReading = true;
    const handled = yield* type.handle(request, client, true);
    this.#isReading = false;
    this.#handled(handled, type, ...arrived);
    yield;
    this.#goOn();
  }

  #goOn(): void {
    this.pump();
    this.#order.resumeOthers();
  }

  #handled(handled: Result<Handled>, type: TypeStream, ...[request, bytes, client, moved]: Arrived): void {
    if (!handled.ok) {
      this.failFor(malformed(handled.error));
      return;
    }
    if (this.isOver) return;
    const { kind, changed, isFirst } = handled.value;
    this.#order.requested(type);
    this.#count(type, kind, client.nodeId, request.error);
    this.#services.taps.heard(this, type.info.url, kind, request, bytes);
    const { events } = this.#services;
    const isOfCanary = client.access.cohort === 'canary';
    if (isOfCanary || changed || moved) events.touched(this.id, isOfCanary);
    this.#afterChange(handled.value, moved, moved ? this.#types : isFirst ? [] : [type]);
  }

  #count(type: TypeStream, kind: RequestKind, nodeId: string, error: ErrorDetail | undefined): void {
    const { events } = this.#services;
    events.request(type.info.url, kind, this);
    if (error === undefined || kind !== 'nack') return;
    const version = type.subscription?.responses.lastNack?.version ?? '';
    events.nack(type.info.url, nodeId, version, error, this.transport.peer);
  }

  /** `types`: those that may have changed and that the client had before. */
  #afterChange({ changed, reread }: Handled, moved: boolean, types: readonly TypeStream[]): void {
    if (changed) this.failIfUnavailable();
    if (changed || moved) {
      this.failIfRefused();
      this.failFor(heldTooMuch(this.peer.account.excess));
    }
    if (this.isOver || this.client?.exempt === true || !(changed || moved || reread)) return;
    this.#quota.spend(changed || moved ? 1 : 0, types);
  }

  /** The client half-closes, as grpcurl does after its request: that is answered first (protocol §3.11). */
  override ended(): void {
    this.#halfClosedAt = this.#services.clock.monotonic();
    this.pump();
  }

  override failIfOverdue(times: Parameters<ClientStream<ClientContext>['failIfOverdue']>[0]): void {
    super.failIfOverdue(times);
    if (this.#waitsSince !== undefined) this.pump();
    const { account } = this.peer;
    const now = this.#services.clock.monotonic();
    const isOverdue =
      now - (this.#halfClosedAt ?? Number.POSITIVE_INFINITY) >= times.firstRequestMilliseconds;
    // A stream that stalls makes room when it is closed, a little after its time.
    const fullMs = now - Math.max(this.#waitsSince ?? now, account.roomAt);
    if (this.#waitsSince !== undefined && (isOverdue || fullMs >= 2 * times.stalledMilliseconds))
      this.failFor(heldTooMuch(account.unreadExcess));
    if (isOverdue) super.ended();
  }

  override drained(): void {
    super.drained();
    this.pump();
  }

  override closed(): void {
    super.closed();
    this.#services.taps.ended(this);
    this.#server.closed(this);
    this.giveUpReading();
    this.#order.close();
    for (const type of this.#types.splice(0)) type.close();
    this.#quota.close();
  }

  /** Authorization or derivation rules have changed. */
  reidentify(): void {
    if (this.client === undefined || this.isOver) return;
    const client = this.#services.reapplyRules(this.client, this.transport.peer);
    if (client === undefined) {
      this.failFor(rulesChanged);
      return;
    }
    this.#reselect(client);
    this.#services.events.touched(this.id, false);
    this.#quota.takenSessions(); // the client did not ask for these
    this.failIfRefused();
  }

  /** Ends a stream that has nothing to say and no upstream that could change this (protocol §8, Upstream outage). */
  failIfUnavailable(): void {
    this.failFor(this.isOver ? undefined : unavailable(this.#types, this.#services));
  }

  /** Ends a stream that subscribes to what its upstream refuses. */
  failIfRefused(): void {
    this.failFor(this.isOver ? undefined : refusedUpstream(this.#types, this.#services));
  }

  /** Writes what is due, one response at a time: while the client does not read, nothing is queued. */
  pump(): void {
    this.#server.move(this);
    while (!this.isBlocked && !this.#isReading && !this.isOver && !this.#waitsForPeer())
      if (!this.#order.sendNext()) break;
    if (this.#halfClosedAt !== undefined && !this.#isReading && this.#types.every(isAnswered)) super.ended();
  }

  /**
   * What it gets next nobody else does, and its peer has too much of that to read, or too much that others get too: it is
   * asked again each second.
   */
  #waitsForPeer(): boolean {
    const { account } = this.peer;
    const isDue = account.sharedExcess === undefined ? isOwnNext : isNext;
    const waits = account.unreadExcess !== undefined && this.#types.some(isDue);
    if (!waits && this.#waitsSince === undefined) return false;
    const now = this.#services.clock.monotonic();
    if (!waits) account.roomAt = now;
    this.#waitsSince = waits ? (this.#waitsSince ?? now) : undefined;
    return waits;
  }

  send(type: OrderedType, defers: Defers): boolean {
    if (this.isOver) return false;
    const most = this.#mostBytes;
    const response = type.subscription?.take(defers, most);
    if (response === undefined) return false;
    const { events, taps } = this.#services;
    const { length } = response.bytes;
    if (length > most) {
      const refusal = tooLarge(type.info.short, length, most);
      this.failFor({ ...refusal, logged: refusal.status.message });
      return false;
    }
    const coalesced = type.subscription?.takeCoalesced() ?? 0;
    if (coalesced > 0) events.coalesced(type.info.url, coalesced);
    this.#order.taken(type, response);
    if (!this.write(response.bytes)) {
      if (type.subscription?.isShared(response) === true) this.keepUnread(0, response.bytes);
      else this.keepUnread(length);
    }
    events.response(type.info.url, this.route.protocol, response);
    taps.sent(this, type.info.url, response);
    return true;
  }

  /** Of one response. */
  get #mostBytes(): number {
    const { maxResponseBytes = Number.POSITIVE_INFINITY } = this.#services.limits();
    return this.client?.exempt === true ? Number.POSITIVE_INFINITY : maxResponseBytes;
  }

  #identify(shown: Buffer | undefined): void {
    const node = this.newNode(shown);
    const context = node && this.#services.context(node, this.peer);
    if (context === undefined) return;
    if (!context.ok) this.failFor({ reason: 'node', status: context.error });
    else if (this.client === undefined) this.client = context.value;
    else this.#reselect(context.value);
  }

  /** After that nobody could tell what it rejects. */
  #changing(): void {
    if (this.client?.access.cohort !== 'canary') return;
    const rejects = this.#types.some(({ subscription }) => subscription?.responses.state === 'ERROR');
    if (rejects) this.#server.changing(this);
  }

  /** The same subscriptions of another client, with other parameters, unless it has to connect again for these. */
  #reselect(client: ClientContext): void {
    this.#changing();
    this.client = client;
    if (this.#types.every((type) => type.reselect(client))) this.#quota.reselected(client);
    else this.failFor(rulesChanged);
  }

  #typeOf(url: string): TypeStream | undefined {
    const { type: fixed } = this.route;
    if (fixed !== undefined && url !== '' && url !== fixed) {
      this.failFor(malformed(`type_url ${JSON.stringify(url)} on a service that serves ${fixed}`, 'type'));
      return undefined;
    }
    if (fixed === undefined && url === '') {
      this.failFor(malformed('a request on ADS must carry type_url', 'type'));
      return undefined;
    }
    const type = fixed ?? typeUrl(url);
    const known = this.#types.find(({ info }) => info.url === type);
    if (known !== undefined) return known;
    const client = this.client;
    if (client === undefined) return undefined;
    if (client.access.deniesEverything(fixed)) {
      this.failFor(denied(fixed ?? 'anything'));
      return undefined;
    }
    if (!this.#quota.oneMoreType(client)) return undefined;
    const created = new TypeStream(type, this.route.protocol, client, this.#context);
    const later = this.#types.findIndex((other) => other.info.order > created.info.order);
    this.#types.splice(later < 0 ? this.#types.length : later, 0, created);
    if (fixed !== undefined) {
      const { account } = this.transport.peer;
      this.#order.conversation = this.#server.conversations.join(this.#order, account, client.nodeId);
    }
    return created;
  }

  protected rejected({ reason, status, logged }: Refusal): void {
    this.#services.events.rejected(reason, logged, this, status);
  }
}
