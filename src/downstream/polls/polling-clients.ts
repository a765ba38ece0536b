import type { TypeUrl } from '../../model/brand.ts';
import type { Timer } from '../../model/clock.ts';
import { Selection } from '../../model/selection.ts';
import {
  type Defers,
  defersEverything,
  type EarlierState,
  type Encoding,
  type Holding,
  type MissingEntry,
  type Rejection,
  type Response,
  type ShownState,
  type Subscription,
  type SyncState,
  type WholeState,
} from '../../model/subscription.ts';
import { keptError } from '../../model/text.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { Peer } from '../../wire/server-stream.ts';
import {
  type AcceptedNames,
  Conversation,
  mostParticipants,
  type OrderedType,
  referringTypes,
} from '../conversations.ts';
import { longestWarmingMs, type OrderedStream, SendOrder } from '../send-order.ts';
import type {
  ClientContext,
  ClientTransport,
  DownstreamServices,
  ListedClient,
  ListedType,
  Overdue,
} from '../services.ts';

/** What one message of a client asks for, by the rules in force when it was read. */
export interface Poll {
  readonly info: TypeInfo;
  readonly client: ClientContext;
  readonly selection: Selection;
  readonly encoding: Encoding;
  /** What the client has; empty: nothing. */
  readonly version: string;
  /** Why it has rejected that. */
  readonly error: ErrorDetail | undefined;
}

/** What is kept of a poll after its answer, roughly. */
export const keptBytes = ({ selection }: Pick<Poll, 'selection'>): number => 1024 + 128 * selection.size;

/** A client is listed for so many of its own intervals without a poll. */
const intervals = 3;
/**
 * Bounds of an interval in milliseconds: no shorter one counts, and before the second poll it is taken to be `unknown`.
 * What waits for a client waits as if it polled at least as often as the longest.
 */
const intervalMs = { shortest: 5000, unknown: 100_000, longest: 300_000 };
/** An interval is forgotten so slowly: Envoy waits for `refresh_delay`, and up to as long again. */
const decay = 0.9;
const sweepMs = 5000;
/** What is kept for a client that may poll again lasts so long: Envoy's refresh_delay is seconds. Milliseconds. */
export const lingerMs = 60_000;
/**
 * Of all clients together. One that has missed a poll is forgotten for a new one, the least recently polled first. If
 * there is none, the new one is not known: clients that poll in turn would drive out one another, each just before it
 * polls again.
 */
const maxClients = 20_000;
const maxBytes = 256 << 20;
/** What it costs to know what a client has of a type that others wait for; measured. */
const bytesPerSubscription = 2048;

/** A class of polls, as far as it shows what was answered. */
type Shown = Pick<WholeState, 'holdings' | 'missing'>;

/** Names of a type that a client polls, and what it was answered with. Envoy polls each route configuration apart. */
export class PolledNames implements OrderedType {
  readonly info: TypeInfo;
  readonly client: PollingClient;
  readonly selection: Selection;
  readonly bytes: number;
  readonly account: Account;
  polledAt: number;
  isForgotten = false;
  #intervalMs: number | undefined;
  /** The version that it says it has. */
  #has = '';
  /** The version that it was last answered with; empty: it was not. */
  #version = '';
  #rejection: Rejection | undefined;
  #lastNack: Rejection | undefined;
  /** Its type waits for others, or others for it. */
  readonly #isOrdered: boolean;
  /** By which it was subscribed. */
  #encoding: Encoding | undefined;
  #accessKey = '';
  /** What it has of them, for the types that wait for it. */
  #subscription: Subscription | undefined;
  /** The version of the last answer that this subscription knows of; empty: there was none. */
  #answeredWith = '';
  /** By what it was answered, and the version of what that showed. */
  #answeredBy: { readonly class: WeakRef<Shown>; readonly content: string } | undefined;

  constructor(client: PollingClient, poll: Poll, account: Account, now: number) {
    this.info = poll.info;
    this.client = client;
    this.selection = poll.selection;
    this.#isOrdered = referringTypes.has(poll.info.short);
    this.bytes = keptBytes(poll) + (this.#isOrdered ? bytesPerSubscription : 0);
    this.account = account;
    this.polledAt = now;
  }

  get version(): string {
    return this.#version;
  }

  get rejection(): Rejection | undefined {
    return this.#rejection?.version === this.#version ? this.#rejection : undefined;
  }

  get lastNack(): Rejection | undefined {
    return this.#lastNack;
  }

  get endsAt(): number {
    const interval = this.#intervalMs ?? intervalMs.unknown;
    return this.polledAt + intervals * Math.max(interval, intervalMs.shortest);
  }

  /** Until then it is known what the client has. */
  get isOrderedUntil(): number {
    return this.polledAt + Math.max(lingerMs, intervals * this.intervalMilliseconds);
  }

  /** Between its last polls, in milliseconds; 0: unknown. */
  get intervalMilliseconds(): number {
    return this.#intervalMs ?? 0;
  }

  /** The version that a poll comes with is its ACK (protocol §7.8). */
  get state(): SyncState {
    if (this.#version === '') return 'NOT_SENT';
    if (this.rejection !== undefined) return 'ERROR';
    return this.#has === this.#version ? 'SYNCED' : 'STALE';
  }

  polled({ version, error }: Poll, now: number): void {
    const since = now - this.polledAt;
    // Who asks again after a failure does so sooner than usual.
    if (since > 0) this.#intervalMs = Math.max(since, (this.#intervalMs ?? 0) * decay);
    this.polledAt = now;
    this.#has = version;
    if (error !== undefined) {
      const message = keptError(error.message);
      const changes = { names: [], total: 0, removal: false };
      const rejected = { version: this.#version, name: '', variant: undefined, changes };
      this.#rejection = { code: error.code, message, at: now, ...rejected };
      this.#lastNack = this.#rejection;
    } else if (version === this.#version) this.#rejection = undefined;
  }

  /** `content`: the class's version of what it showed. */
  answered(by: Shown, version: string, content: string): void {
    this.#version = version;
    this.#answeredBy = { class: new WeakRef(by), content };
  }

  get subscription(): Subscription | undefined {
    return this.#subscription;
  }

  /** Endpoints are polled for each cluster that is new. */
  resend(): void {}

  /**
   * What this client is answered with, if not with what all of its class are: what it still needs besides, or nothing
   * new. `version`: of what the class shows.
   */
  next(poll: Poll, version: string): Response | 'UNCHANGED' | undefined {
    if (!this.#isFollowed(poll)) return undefined;
    const has = this.#read(poll);
    if (has === 'LAST') this.#accept();
    else if (has === 'NOTHING') this.#reopen(poll);
    else {
      // It has not taken what it was answered with, or somebody else has answered it: all of it is sent.
      if (this.#answeredWith === '') this.#resume({ possiblyHeld: none });
      const { selection, client } = poll;
      this.#subscription?.select(selection, client.access, new Set(selection.entries.keys()), []);
    }
    const next = this.client.order.next(this);
    if (next === 'WAITS' && poll.version !== '') return 'UNCHANGED';
    const own = next !== 'WAITS' && this.#subscription?.hasDeferredRemovals === true ? next : undefined;
    this.#answeredWith = own?.version ?? version;
    return own;
  }

  /** It has all that its class shows. */
  hasAll(poll: Poll): void {
    if (!this.#isFollowed(poll)) return;
    if (this.#read(poll) === 'LAST') this.#accept();
    else {
      this.#reopen(poll);
      this.#resume({ contentVersion: poll.version });
      this.#answeredWith = poll.version;
    }
    // It is told nothing: what is due moves the cursor.
    this.client.order.next(this);
  }

  /** From its first answer on: a client that was not answered yet has nothing. */
  #isFollowed(poll: Poll): boolean {
    if (this.#subscription !== undefined) return true;
    if (!this.#isOrdered || this.isForgotten || !this.client.order.follow(this)) return false;
    this.#open(poll);
    return true;
  }

  /** What the client has, by its version: its last answer, nothing that is known, or something else. */
  #read({ encoding, client: { access }, version }: Poll): 'LAST' | 'NOTHING' | 'OTHER' {
    if (encoding !== this.#encoding || access.key !== this.#accessKey || version === '') return 'NOTHING';
    return version === this.#answeredWith ? 'LAST' : 'OTHER';
  }

  #resume(earlier: EarlierState): void {
    this.client.order.returned();
    this.#subscription?.resume(earlier);
  }

  #accept(): void {
    const { lastNonce } = this.#subscription?.responses ?? {};
    if (lastNonce !== undefined) this.#subscription?.answer(lastNonce, undefined);
  }

  #reopen(poll: Poll): void {
    this.#subscription?.close();
    this.#open(poll);
  }

  #open(poll: Poll): void {
    [this.#encoding, this.#accessKey] = [poll.encoding, poll.client.access.key];
    this.#subscription = this.client.order.open(poll, this.account);
  }

  /** From now on nothing is known of what the client has. */
  forgetOrder(): void {
    if (this.#subscription === undefined) return;
    this.client.order.leave(this);
    this.#subscription.close();
    this.#subscription = undefined;
    this.#answeredWith = '';
  }

  /** What a class shows is known as long as it shows what the client was answered with. */
  holdings(): Iterable<Holding> {
    const { rejection, state } = this;
    return this.#answeredBy?.class.deref()?.holdings({ state, rejection }, this.#answeredBy.content) ?? [];
  }

  get missing(): readonly MissingEntry[] {
    return this.#answeredBy?.class.deref()?.missing ?? [];
  }
}

const urgency: readonly SyncState[] = ['ERROR', 'STALE', 'NOT_SENT', 'SYNCED'];

class PolledType implements ListedType {
  readonly info: TypeInfo;
  readonly client: PollingClient;
  /** By hash and size of the selection. */
  readonly names = new Map<string, PolledNames>();

  constructor(info: TypeInfo, client: PollingClient) {
    this.info = info;
    this.client = client;
  }

  get selection(): Selection {
    const [first, ...others] = this.names.values();
    if (first !== undefined && others.length === 0) return first.selection;
    return Selection.of(this.names.values().flatMap(({ selection }) => selection.entries.values()));
  }

  get polledAt(): number {
    return Math.max(...this.#all().map((one) => one.polledAt));
  }

  get subscription(): this {
    return this;
  }

  get responses(): ShownState {
    const all = this.#all().toSorted((a, b) => b.polledAt - a.polledAt);
    const nacks = all.flatMap(({ lastNack }) => lastNack ?? []).toSorted((a, b) => b.at - a.at);
    return {
      state: urgency.find((state) => all.some((one) => one.state === state)) ?? 'NOT_SENT',
      version: all[0]?.version ?? '',
      rejections: new Set(all.flatMap(({ rejection }) => rejection ?? [])),
      lastNack: nacks[0],
      rejectedWhole: undefined,
      oldestOutstanding: undefined,
    };
  }

  holdings(): Iterable<Holding> {
    return Iterator.from(this.#all()).flatMap((one) => one.holdings());
  }

  get missing(): readonly MissingEntry[] {
    const [first, ...others] = this.#all();
    if (first === undefined || others.length === 0) return first?.missing ?? [];
    return this.#all().flatMap(({ missing }) => missing);
  }

  #all(): readonly PolledNames[] {
    return [...this.names.values()];
  }
}

/** A node of a peer, on whatever connection it polls. */
class PollingClient implements ListedClient {
  readonly id: string;
  readonly key: string;
  readonly route: ListedClient['route'];
  readonly byType = new Map<TypeUrl, PolledType>();
  client: ClientContext;
  transport: ListedClient['transport'];

  readonly order: PollOrder;

  constructor(
    id: string,
    key: string,
    protocol: ClientTransport,
    { client }: Poll,
    { address }: Peer,
    services: DownstreamServices,
  ) {
    this.id = id;
    this.key = key;
    this.route = { protocol, service: 'polls' };
    this.client = client;
    this.transport = { peer: { address } };
    this.order = new PollOrder(this, services);
  }

  get intervalMilliseconds(): number {
    const longest = Math.max(...this.names().map((one) => one.intervalMilliseconds));
    return Math.min(longest, intervalMs.longest);
  }

  readonly accepted: AcceptedNames = (short) => {
    const type = this.byType.values().find(({ info }) => info.short === short);
    if (type === undefined) return undefined;
    const all = type.names.values().filter(({ state }) => state === 'SYNCED');
    return new Set(
      all.flatMap(({ selection }) => selection.entries.values().map(({ spelling }) => spelling)),
    );
  };

  /** It should have polled again by now. */
  isLate(now: number): boolean {
    const latest = Math.max(...this.names().map(({ polledAt }) => polledAt));
    return latest + 2 * Math.max(this.intervalMilliseconds, intervalMs.shortest) < now;
  }

  names(): readonly PolledNames[] {
    return [...this.byType.values().flatMap(({ names }) => names.values())];
  }

  get types(): readonly ListedType[] {
    return [...this.byType.values()].toSorted((a, b) => a.info.order - b.info.order);
  }
}

/** Those that poll, for inspection: each until it has not polled for three of its own intervals. */
export class PollingClients {
  readonly #services: DownstreamServices;
  readonly #prefix: string;
  /** By node and peer; the least recently polled first. */
  readonly #clients = new Map<string, PollingClient>();
  readonly #byId = new Map<string, PollingClient>();
  #lastId = 0;
  #bytes = 0;
  #sweep: Timer | undefined;

  /** `prefix`: before the numbers that are the ids. */
  constructor(services: DownstreamServices, prefix: string) {
    this.#services = services;
    this.#prefix = prefix;
  }

  all(): Iterable<PollingClient> {
    this.#forgetEnded();
    return this.#clients.values();
  }

  get size(): number {
    this.#forgetEnded();
    return this.#clients.size;
  }

  find(id: string): PollingClient | undefined {
    this.#forgetEnded();
    return this.#byId.get(id);
  }

  /** `known`: what this poll was before. Undefined: nothing more may be kept for its peer. */
  polled(
    poll: Poll,
    transport: ClientTransport,
    peer: Peer,
    known: PolledNames | undefined,
  ): PolledNames | undefined {
    const now = this.#services.clock.now();
    const names = known?.isForgotten === false ? known : this.#namesOf(poll, transport, peer, now);
    if (names === undefined) return undefined;
    const { client } = names;
    names.polled(poll, now);
    client.client = poll.client;
    client.transport = { peer: { address: peer.address } };
    this.#clients.delete(client.key);
    this.#clients.set(client.key, client);
    return names;
  }

  stop(): void {
    this.#sweep?.cancel();
    this.forgetOrder();
  }

  /** The rules have changed, and with them what clients see. */
  forgetOrder(): void {
    for (const client of this.#clients.values()) for (const one of client.names()) one.forgetOrder();
  }

  #namesOf(poll: Poll, transport: ClientTransport, peer: Peer, now: number): PolledNames | undefined {
    const { info, selection } = poll;
    const key = keyOf(poll, transport, peer);
    const client =
      this.#clients.get(key) ??
      new PollingClient(`${this.#prefix}p${this.#lastId + 1}`, key, transport, poll, peer, this.#services);
    const type = client.byType.get(info.url) ?? new PolledType(info, client);
    const selected = `${selection.hash} ${selection.size}`;
    const found = type.names.get(selected);
    if (found !== undefined) return found;
    const names = new PolledNames(client, poll, peer.account, now);
    if (!this.#makeRoom(key, names.bytes, now) || peer.account.hold(names.bytes) !== undefined)
      return undefined;
    type.names.set(selected, names);
    client.byType.set(info.url, type);
    this.#bytes += names.bytes;
    if (!this.#clients.has(key)) {
      this.#lastId++;
      this.#byId.set(client.id, client);
    }
    this.#clients.set(key, client);
    this.#sweepLater();
    return names;
  }

  /** For so many bytes more of a client; false: there is none. */
  #makeRoom(key: string, bytes: number, now: number): boolean {
    const most = this.#clients.has(key) ? maxClients : maxClients - 1;
    const fits = (): boolean => this.#bytes + bytes <= maxBytes && this.#clients.size <= most;
    for (const oldest of this.#clients.values()) {
      if (fits()) return true;
      if (oldest.key === key) continue;
      if (!oldest.isLate(now)) return false;
      this.#forget(oldest, () => true);
    }
    return fits();
  }

  #forgetEnded(): void {
    const now = this.#services.clock.now();
    for (const client of this.#clients.values()) {
      for (const one of client.names()) if (one.isOrderedUntil <= now) one.forgetOrder();
      this.#forget(client, ({ endsAt }) => endsAt <= now);
    }
  }

  #forget(client: PollingClient, isOver: (names: PolledNames) => boolean): void {
    for (const [url, { names }] of client.byType) {
      for (const [selected, one] of names) {
        if (!isOver(one)) continue;
        one.isForgotten = true;
        one.forgetOrder();
        one.account.keeps(-one.bytes);
        this.#bytes -= one.bytes;
        names.delete(selected);
      }
      if (names.size === 0) client.byType.delete(url);
    }
    if (client.byType.size > 0) return;
    this.#clients.delete(client.key);
    this.#byId.delete(client.id);
  }

  #sweepLater(): void {
    this.#sweep ??= this.#services.clock.after(sweepMs, () => {
      this.#sweep = undefined;
      this.#forgetEnded();
      if (this.#clients.size > 0) this.#sweepLater();
    });
  }
}

/** Not the port: a client may open a connection for each poll. */
function keyOf({ client: { nodeId, cluster } }: Poll, transport: ClientTransport, peer: Peer): string {
  const { account, address } = peer;
  return JSON.stringify([transport, account.key, address.replace(/:\d+$/, ''), nodeId, cluster]);
}

/**
 * So many of a client's intervals it may take until it has said that it has clusters and what they need, and until it
 * has polled its routes after that, has said so, and polls its clusters again.
 */
const orderIntervals = { warming: 3, removal: 9 };

/**
 * The types that one client polls. They wait for one another as those of a stream do (protocol §8), but for whole
 * intervals: a client says with its next poll what it has taken.
 */
class PollOrder implements OrderedStream {
  readonly types: PolledNames[] = [];
  readonly conversation: Conversation;
  readonly route = { protocol: 'rest' };
  readonly #client: PollingClient;
  readonly #services: DownstreamServices;
  readonly #order: SendOrder;
  #taken: Response | undefined;
  /** When its first poll said that it has something: of its other types nothing is known yet. */
  #returnedAt: number | undefined;

  constructor(client: PollingClient, services: DownstreamServices) {
    this.#client = client;
    this.#services = services;
    this.conversation = new Conversation(this.types, client.accepted);
    this.#order = new SendOrder(this, services.clock);
  }

  get isRelay(): boolean {
    return this.#client.client.relay;
  }

  get removalGraceMilliseconds(): number {
    const { removalGraceMilliseconds = 0 } = this.#services.limits();
    const longest = orderIntervals.removal * this.#client.intervalMilliseconds;
    return removalGraceMilliseconds === 0 ? 0 : Math.max(removalGraceMilliseconds, longest);
  }

  get warmingMilliseconds(): number {
    return orderIntervals.warming * Math.max(longestWarmingMs, this.#client.intervalMilliseconds);
  }

  /** False: it polls too many already. */
  follow(names: PolledNames): boolean {
    return this.types.length < mostParticipants && this.types.push(names) > 0;
  }

  open({ info, encoding, selection, client }: Poll, payer: Account): Subscription {
    // Whoever polls asks again by itself.
    const subscriber = { wake: () => {}, payer, polls: true };
    return this.#services.open(info.url, encoding, selection, client.access, subscriber);
  }

  leave(names: PolledNames): void {
    this.types.splice(this.types.indexOf(names), 1);
    this.#order.forget(names);
    if (this.types.length > 0) return;
    this.#returnedAt = undefined;
    this.#order.close();
  }

  /** Undefined: nothing is due. */
  next(type: PolledNames): Response | 'WAITS' | undefined {
    this.#order.requested(type);
    const outcome = this.#order.sendOf(type);
    const taken = this.#taken;
    this.#taken = undefined;
    return outcome === 'waits' ? 'WAITS' : taken;
  }

  returned(): void {
    if (this.types.length === 1) this.#returnedAt ??= this.#services.clock.now();
  }

  /** It may not have polled all of its types yet, as a relay that was restarted sees it. */
  get #isBack(): boolean {
    const { clock } = this.#services;
    return this.#returnedAt !== undefined && clock.now() < this.#returnedAt + this.warmingMilliseconds;
  }

  send(type: OrderedType, defers: Defers): boolean {
    const isKept = this.#isBack && this.removalGraceMilliseconds > 0;
    this.#taken = type.subscription?.take(isKept ? defersEverything : defers);
    if (this.#taken === undefined) return false;
    this.#order.taken(type, this.#taken);
    return true;
  }

  /** The next poll comes by itself. */
  pump(): void {}

  overdue({ info }: OrderedType, what: Overdue, names: readonly string[]): void {
    this.#services.events.overdue(info.url, what, names, this.#client);
  }
}

const none: ReadonlySet<string> = new Set();
