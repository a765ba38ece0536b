import { countIn } from '../../model/maps.ts';
import { noIds, Selection } from '../../model/selection.ts';
import {
  type Defers,
  defersEverything,
  type EarlierState,
  type Encoding,
  type Holding,
  type MissingEntry,
  type Rejection,
  type Response,
  type Subscription,
  type SyncState,
} from '../../model/subscription.ts';
import { keptError } from '../../model/text.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import type { ErrorDetail } from '../../wire/requests.ts';
import type { Peer } from '../../wire/server-stream.ts';
import {
  type AcceptedNames,
  Conversation,
  longestWarmingMs,
  mostParticipants,
  type OrderedStream,
  type OrderedType,
  referringTypes,
  SendOrder,
} from '../send-order.ts';
import type { ClientContext, DownstreamServices, ListedClient, ListedType } from '../services.ts';
import type { ClientTransport, Overdue } from '../stream-metrics.ts';

/** What one message of a client asks for, by the rules in force when it was read. */
export interface Poll {
  readonly info: TypeInfo;
  readonly client: ClientContext;
  readonly selection: Selection;
  readonly transport: ClientTransport;
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
/** JSON is so many times as long as what it is made of. */
const jsonFactor = 3;
/** What is kept for a client that may poll again lasts so long: Envoy's refresh_delay is seconds. Milliseconds. */
export const lingerMs = 60_000;
/**
 * Of all clients together. One that has missed a poll is forgotten for a new one, the least recently polled first. If
 * there is none, the new one is not known: clients that poll in turn would drive out one another, each just before it
 * polls again. One peer has at most half, as it may invent its nodes.
 */
const maxClients = 20_000;
const maxBytes = 256 << 20;
/** A place of an account. */
const pollingPlace = 'clients that poll';
/** What it costs to know what a client has of a type that others wait for; measured. */
const bytesPerSubscription = 2048;

/** A class of polls: what it shows, until it ends. */
interface Shows {
  readonly shown: Subscription | undefined;
}

/** Names of a type that a client polls, and what it was answered with. Envoy polls each route configuration apart. */
export class PolledNames implements OrderedType {
  readonly info: TypeInfo;
  readonly client: PollingClient;
  readonly selection: Selection;
  readonly bytes: number;
  polledAt: number;
  isForgotten = false;
  /** The version that it was last answered with; empty: it was not. */
  version = '';
  lastNack: Rejection | undefined;
  /** It has not accepted that version since. */
  #isRejected = false;
  /** Between its last polls, in milliseconds; 0: unknown. */
  intervalMilliseconds = 0;
  /** The version that it says it has. */
  #has = '';
  /** The class by which it was answered, and the version of what that showed. */
  #answeredBy: { readonly by: WeakRef<Shows>; readonly content: string } | undefined;
  /** Its type waits for others, or others for it. */
  readonly #isOrdered: boolean;
  /** What it has of them, for the types that wait for it. */
  subscription: Subscription | undefined;
  /** The version of the last answer that this subscription knows of; empty: there was none. */
  #answeredWith = '';

  constructor(client: PollingClient, { info, selection }: Poll, now: number) {
    this.client = client;
    this.info = info;
    this.selection = selection;
    this.#isOrdered = referringTypes.has(info.short);
    this.bytes = keptBytes({ selection }) + (this.#isOrdered ? bytesPerSubscription : 0);
    this.polledAt = now;
  }

  get rejection(): Rejection | undefined {
    return this.#isRejected && this.lastNack?.version === this.version ? this.lastNack : undefined;
  }

  get endsAt(): number {
    const interval = this.intervalMilliseconds || intervalMs.unknown;
    return this.polledAt + intervals * Math.max(interval, intervalMs.shortest);
  }

  /** Until then it is known what the client has. */
  get isOrderedUntil(): number {
    return this.polledAt + Math.max(lingerMs, intervals * this.intervalMilliseconds);
  }

  /** The version that a poll comes with is its ACK (protocol §7.8). */
  get state(): SyncState {
    if (this.version === '') return 'NOT_SENT';
    if (this.rejection !== undefined) return 'ERROR';
    return this.#has === this.version ? 'SYNCED' : 'STALE';
  }

  /** `now`: of `Clock.monotonic()`. `at`: milliseconds since the epoch. */
  polled({ version, error }: Poll, now: number, at: number): void {
    const since = now - this.polledAt;
    // Who asks again after a failure does so sooner than usual.
    if (since > 0) this.intervalMilliseconds = Math.max(since, this.intervalMilliseconds * decay);
    this.polledAt = now;
    this.#has = version;
    if (error === undefined) {
      if (version === this.version) this.#isRejected = false;
      return;
    }
    const { code } = error;
    const message = keptError(error.message);
    const changes = { names: [], total: 0, removal: false };
    this.lastNack = { code, message, at, version: this.version, name: '', variant: undefined, changes };
    this.#isRejected = true;
  }

  /** `content`: the class's version of what it showed. */
  answered(by: Shows, version: string, content: string): void {
    this.version = version;
    this.#answeredBy = { by: new WeakRef(by), content };
  }

  /** What a class shows is known as long as it shows what the client was answered with. */
  holdings(): Iterable<Holding> {
    const { rejection, state } = this;
    return this.#shown?.holdingsOf(this.#answeredBy?.content ?? '', { state, rejection }) ?? none;
  }

  get missing(): readonly MissingEntry[] {
    return this.#shown?.missing ?? none;
  }

  get #shown(): Subscription | undefined {
    return this.#answeredBy?.by.deref()?.shown;
  }

  /** Endpoints are polled for each cluster that is new. */
  resend(): void {}

  /**
   * What this client is answered with, if not with what all of its class are: what it still needs besides, or nothing
   * new. `version`: of what the class shows.
   */
  next(poll: Poll, version: string): Response | 'UNCHANGED' | undefined {
    if (!this.#isFollowed(poll)) return undefined;
    const isAccepted = this.#accepts(poll);
    if (poll.version === '') this.#open(poll);
    else if (isAccepted) this.#follow(poll, noIds);
    else this.#resendAll(poll);
    const next = this.client.next(this);
    if (next === 'WAITS' && poll.version !== '') return 'UNCHANGED';
    const own = next !== 'WAITS' && this.subscription?.hasDeferredRemovals === true ? next : undefined;
    this.#answeredWith = own?.version ?? version;
    return own;
  }

  /** It has all that its class shows. */
  hasAll(poll: Poll): void {
    if (!this.#isFollowed(poll)) return;
    if (this.#accepts(poll)) this.#follow(poll, noIds);
    else {
      this.#open(poll);
      this.#resume({ contentVersion: poll.version });
      this.#answeredWith = poll.version;
    }
    // It is told nothing: what is due moves the cursor.
    this.client.next(this);
  }

  /** From its first answer on: a client that was not answered yet has nothing. */
  #isFollowed(poll: Poll): boolean {
    if (this.subscription !== undefined) return true;
    if (!this.#isOrdered || this.isForgotten || !this.client.follow(this)) return false;
    this.#open(poll);
    return true;
  }

  /** It has its last answer. */
  #accepts(poll: Poll): boolean {
    if (poll.version === '' || poll.version !== this.#answeredWith) return false;
    const { lastNonce } = this.subscription?.responses ?? {};
    if (lastNonce !== undefined) this.subscription?.answer(lastNonce, undefined);
    return true;
  }

  /** It has not taken what it was answered with, or somebody else has answered it. */
  #resendAll(poll: Poll): void {
    if (this.#answeredWith === '') this.#resume({ possiblyHeld: new Set() });
    this.#follow(poll, new Set(poll.selection.entries.keys()));
  }

  /** In another cohort, or by other rules that leave its parameters: what it has stays known. `again`: what it may not have. */
  #follow({ encoding, selection, client: { access } }: Poll, again: ReadonlySet<string>): void {
    if (this.subscription === undefined) return;
    this.subscription.encoding = encoding;
    this.subscription.select(selection, access, again, none);
  }

  #resume(earlier: EarlierState): void {
    this.client.returned();
    this.subscription?.resume(earlier);
  }

  #open(poll: Poll): void {
    this.subscription?.close();
    this.subscription = this.client.open(poll);
  }

  /** From now on nothing is known of what the client has. */
  forgetOrder(): void {
    if (this.subscription === undefined) return;
    this.client.leave(this);
    this.subscription.close();
    this.subscription = undefined;
    this.#answeredWith = '';
  }
}

const none: readonly never[] = [];
const urgency: readonly SyncState[] = ['ERROR', 'STALE', 'NOT_SENT', 'SYNCED'];

/** The first of those with the greatest; undefined: there are none. There may be thousands. */
function latest<T>(all: readonly T[], at: (one: T) => number): T | undefined {
  let found = all[0];
  for (const one of all) if (found !== undefined && at(one) > at(found)) found = one;
  return found;
}

/** All names of a type that a client polls. */
function polledType(info: TypeInfo, all: readonly PolledNames[]): ListedType {
  const only = all.length === 1 ? all[0] : undefined;
  const polledLast = (): PolledNames | undefined => latest(all, ({ polledAt }) => polledAt);
  return {
    info,
    get selection() {
      return only?.selection ?? Selection.of(all.flatMap(({ selection }) => [...selection.entries.values()]));
    },
    get polledAt() {
      return polledLast()?.polledAt ?? 0;
    },
    subscription: {
      get responses() {
        return {
          state: urgency.find((state) => all.some((one) => one.state === state)) ?? 'NOT_SENT',
          version: polledLast()?.version ?? '',
          rejections: new Set(all.flatMap(({ rejection }) => rejection ?? none)),
          lastNack: latest(
            all.flatMap(({ lastNack }) => lastNack ?? none),
            ({ at }) => at,
          ),
          rejectedWhole: undefined,
          oldestOutstanding: undefined,
        };
      },
      holdings: () => Iterator.from(all).flatMap((one) => one.holdings()),
      get missing() {
        return only?.missing ?? all.flatMap(({ missing }) => missing);
      },
    },
  };
}

/**
 * So many of a client's intervals it may take until it has said that it has clusters and what they need, and until it
 * has polled its routes after that, has said so, and polls its clusters again.
 */
const orderIntervals = { warming: 3, removal: 9 };

/**
 * A node of a peer, on whatever connection it polls. Its types wait for one another as those of a stream do (protocol
 * §8), but for whole intervals: a client says with its next poll what it has taken.
 */
class PollingClient implements ListedClient, OrderedStream {
  readonly id: string;
  readonly key: string;
  readonly route: ListedClient['route'];
  readonly account: Account;
  /** By type, and hash and size of the selection. */
  readonly names = new Map<string, PolledNames>();
  client: ClientContext;
  transport: ListedClient['transport'];
  polledAt = 0;
  readonly #services: DownstreamServices;
  readonly #ordered: PolledNames[] = [];
  readonly #order: SendOrder;
  #taken: Response | undefined;
  /** When its first poll said that it has something: of its other types nothing is known yet. */
  #returnedAt: number | undefined;

  constructor(id: string, key: string, poll: Poll, { account, address }: Peer, services: DownstreamServices) {
    this.id = id;
    this.key = key;
    this.account = account;
    this.route = { protocol: poll.transport, service: 'polls' };
    this.client = poll.client;
    this.transport = { peer: { address } };
    this.#services = services;
    const conversation = new Conversation(this.#ordered, this.#accepted);
    this.#order = new SendOrder(this, this.#ordered, services.clock, conversation);
  }

  get types(): readonly ListedType[] {
    const byType = Map.groupBy(this.names.values(), ({ info }) => info);
    return [...byType].toSorted(([a], [b]) => a.order - b.order).map(([info, all]) => polledType(info, all));
  }

  get intervalMilliseconds(): number {
    const longest = this.names.values().reduce((most, one) => Math.max(most, one.intervalMilliseconds), 0);
    return Math.min(longest, intervalMs.longest);
  }

  /** It should have polled again by now. */
  isLate(now: number): boolean {
    return this.polledAt + 2 * Math.max(this.intervalMilliseconds, intervalMs.shortest) < now;
  }

  readonly #accepted: AcceptedNames = (short) => {
    const all = [...this.names.values()].filter(({ info }) => info.short === short);
    if (all.length === 0) return undefined;
    const accepted = all.filter(({ state }) => state === 'SYNCED');
    return new Set(
      accepted.flatMap(({ selection }) => Array.from(selection.entries.values(), ({ selector }) => selector)),
    );
  };

  get isRelay(): boolean {
    return this.client.relay;
  }

  get removalGraceMilliseconds(): number {
    const { removalGraceMilliseconds = 0 } = this.#services.limits();
    const longest = orderIntervals.removal * this.intervalMilliseconds;
    return removalGraceMilliseconds === 0 ? 0 : Math.max(removalGraceMilliseconds, longest);
  }

  get warmingMilliseconds(): number {
    return orderIntervals.warming * Math.max(longestWarmingMs, this.intervalMilliseconds);
  }

  /** False: it polls too many already. */
  follow(names: PolledNames): boolean {
    return this.#ordered.length < mostParticipants && this.#ordered.push(names) > 0;
  }

  open({ info, encoding, selection, client }: Poll): Subscription {
    // Whoever polls asks again by itself.
    const subscriber = { wake: () => {}, payer: this.account, polls: 'client' } as const;
    return this.#services.open(info.url, encoding, selection, client.access, subscriber);
  }

  leave(names: PolledNames): void {
    this.#ordered.splice(this.#ordered.indexOf(names), 1);
    this.#order.forget(names);
    if (this.#ordered.length > 0) return;
    this.#returnedAt = undefined;
    this.#order.close();
  }

  /** Undefined: nothing is due. */
  next(names: PolledNames): Response | 'WAITS' | undefined {
    this.#order.requested(names);
    const outcome = this.#order.sendOf(names);
    const taken = this.#taken;
    this.#taken = undefined;
    return outcome === 'waits' ? 'WAITS' : taken;
  }

  returned(): void {
    if (this.#ordered.length === 1) this.#returnedAt ??= this.#services.clock.monotonic();
  }

  /** It may not have polled all of its types yet, as a relay that was restarted sees it. */
  get #isBack(): boolean {
    const { clock } = this.#services;
    return this.#returnedAt !== undefined && clock.monotonic() < this.#returnedAt + this.warmingMilliseconds;
  }

  send(type: OrderedType, defers: Defers): boolean {
    const isKept = this.#isBack && this.removalGraceMilliseconds > 0;
    const { maxResponseBytes = Number.POSITIVE_INFINITY } = this.#services.limits();
    const mostBytes = this.client.exempt ? Number.POSITIVE_INFINITY : maxResponseBytes / jsonFactor;
    this.#taken = type.subscription?.take(isKept ? defersEverything : defers, mostBytes);
    if (this.#taken === undefined) return false;
    this.#order.taken(type, this.#taken);
    return true;
  }

  /** The next poll comes by itself. */
  pump(): void {}

  overdue({ info }: OrderedType, what: Overdue, names: readonly string[]): void {
    this.#services.events.overdue(info.url, what, names, this);
  }
}

/** Those that poll, for inspection: each until it has not polled for three of its own intervals. */
export class PollingClients {
  readonly #services: DownstreamServices;
  readonly #prefix: string;
  /** By node and peer; the least recently polled first. */
  readonly #clients = new Map<string, PollingClient>();
  /** What of one peer is known. */
  readonly #bytesOf = new Map<Account, number>();
  #lastId = 0;
  #bytes = 0;

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
    return Iterator.from(this.all()).find((one) => one.id === id);
  }

  /** `known`: what this poll was before. Undefined: nothing more may be kept of its client, or for its peer. */
  polled(poll: Poll, peer: Peer, known: PolledNames | undefined): PolledNames | undefined {
    const { clock } = this.#services;
    const now = clock.monotonic();
    const names = known?.isForgotten === false ? known : this.#namesOf(poll, peer, now);
    if (names === undefined) return undefined;
    const { client } = names;
    names.polled(poll, now, clock.now());
    client.client = poll.client;
    client.polledAt = now;
    client.transport = { peer: { address: peer.address } };
    this.#clients.delete(client.key);
    this.#clients.set(client.key, client);
    return names;
  }

  #namesOf(poll: Poll, peer: Peer, now: number): PolledNames | undefined {
    const { info, selection } = poll;
    const key = keyOf(poll, peer);
    const known = this.#clients.get(key);
    const client =
      known ?? new PollingClient(`${this.#prefix}p${this.#lastId + 1}`, key, poll, peer, this.#services);
    const selected = `${info.short} ${selection.hash} ${selection.size}`;
    const found = client.names.get(selected);
    if (found !== undefined) return found;
    if (client.names.size >= this.#services.limits().maxSubscriptions) return undefined;
    const names = new PolledNames(client, poll, now);
    if (!this.#makeRoom(client, names.bytes, now) || client.account.hold(names.bytes) !== undefined)
      return undefined;
    client.names.set(selected, names);
    this.#bytes += names.bytes;
    countIn(this.#bytesOf, client.account, names.bytes);
    if (known === undefined) {
      this.#lastId++;
      client.account.enter(pollingPlace);
    }
    this.#clients.set(key, client);
    return names;
  }

  /** For so many bytes more of a client; false: there is none. */
  #makeRoom({ key, account }: PollingClient, bytes: number, now: number): boolean {
    const more = this.#clients.has(key) ? 0 : 1;
    const isOwnShare = (): boolean =>
      account.exempt ||
      (account.count(pollingPlace) + more <= maxClients / 2 &&
        (this.#bytesOf.get(account) ?? 0) + bytes <= maxBytes / 2);
    const fits = (): boolean =>
      isOwnShare() && this.#bytes + bytes <= maxBytes && this.#clients.size + more <= maxClients;
    for (const oldest of this.#clients.values()) {
      if (fits()) return true;
      if (oldest.key === key || (oldest.account !== account && !isOwnShare())) continue;
      if (!oldest.isLate(now)) return false;
      this.#forget(oldest, () => true);
    }
    return fits();
  }

  #forgetEnded(): void {
    const now = this.#services.clock.monotonic();
    for (const client of this.#clients.values()) {
      for (const one of client.names.values()) if (one.isOrderedUntil <= now) one.forgetOrder();
      this.#forget(client, ({ endsAt }) => endsAt <= now);
    }
  }

  #forget(client: PollingClient, isOver: (names: PolledNames) => boolean): void {
    for (const [key, one] of client.names) {
      if (!isOver(one)) continue;
      one.isForgotten = true;
      one.forgetOrder();
      client.account.keeps(-one.bytes);
      this.#bytes -= one.bytes;
      countIn(this.#bytesOf, client.account, -one.bytes);
      client.names.delete(key);
    }
    if (client.names.size > 0) return;
    this.#clients.delete(client.key);
    client.account.leave(pollingPlace);
  }
}

/** Not the port: a client may open a connection for each poll. */
function keyOf({ client: { nodeId, cluster }, transport }: Poll, { account, address }: Peer): string {
  return JSON.stringify([transport, account.key, address.replace(/:\d+$/, ''), nodeId, cluster]);
}
