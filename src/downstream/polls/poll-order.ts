import {
  type Defers,
  defersEverything,
  type EarlierState,
  type Response,
  type Subscription,
} from '../../model/subscription.ts';
import type { TypeInfo } from '../../model/types.ts';
import type { Account } from '../../wire/accounts.ts';
import { type AcceptedNames, Conversation, mostParticipants, type OrderedType } from '../conversations.ts';
import { longestWarmingMs, type OrderedStream, SendOrder } from '../send-order.ts';
import type { DownstreamServices, LoggedStream, Overdue } from '../services.ts';
import type { Poll } from './poll.ts';

/**
 * So many of a client's intervals it may take until it has said that it has clusters and what they need, and until it
 * has polled its routes after that, has said so, and polls its clusters again.
 */
const intervals = { warming: 3, removal: 9 };

/** The client whose polls are answered in order. */
export interface OrderedClient extends LoggedStream {
  /** Between two polls of the same, the longest, in milliseconds; 0: unknown. */
  readonly intervalMilliseconds: number;
  readonly accepted: AcceptedNames;
}

/**
 * The types that one client polls. They wait for one another as those of a stream do (protocol §8), but for whole
 * intervals: a client says with its next poll what it has taken.
 */
export class PollOrder implements OrderedStream {
  readonly types: PolledSubscription[] = [];
  readonly conversation: Conversation;
  readonly route = { protocol: 'rest' };
  readonly #client: OrderedClient;
  readonly #services: DownstreamServices;
  readonly #order: SendOrder;
  #taken: Response | undefined;
  /** When its first poll said that it has something: of its other types nothing is known yet. */
  #returnedAt: number | undefined;

  constructor(client: OrderedClient, services: DownstreamServices) {
    this.#client = client;
    this.#services = services;
    this.conversation = new Conversation(this.types, client.accepted);
    this.#order = new SendOrder(this, services.clock);
  }

  get isRelay(): boolean {
    return this.#client.client?.relay === true;
  }

  get removalGraceMilliseconds(): number {
    const { removalGraceMilliseconds = 0 } = this.#services.limits();
    const longest = intervals.removal * this.#client.intervalMilliseconds;
    return removalGraceMilliseconds === 0 ? 0 : Math.max(removalGraceMilliseconds, longest);
  }

  get warmingMilliseconds(): number {
    return intervals.warming * Math.max(longestWarmingMs, this.#client.intervalMilliseconds);
  }

  /** Undefined: it polls too many already. */
  follow(poll: Poll, payer: Account): PolledSubscription | undefined {
    if (this.types.length >= mostParticipants) return undefined;
    const followed = new PolledSubscription(this, poll, payer, this.#services);
    this.types.push(followed);
    return followed;
  }

  leave(followed: PolledSubscription): void {
    this.types.splice(this.types.indexOf(followed), 1);
    if (this.types.length > 0) return;
    this.#returnedAt = undefined;
    this.#order.close();
  }

  /** Undefined: nothing is due. */
  next(type: PolledSubscription): Response | 'WAITS' | undefined {
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

/** Names of a type that a client polls, and what it has of them: for the types that wait for it. */
export class PolledSubscription implements OrderedType {
  readonly info: TypeInfo;
  readonly #order: PollOrder;
  readonly #payer: Account;
  readonly #services: DownstreamServices;
  #poll: Poll;
  #subscription: Subscription;
  /** The version of its last answer; empty: there was none. */
  #answeredWith = '';

  constructor(order: PollOrder, poll: Poll, payer: Account, services: DownstreamServices) {
    this.info = poll.info;
    this.#order = order;
    this.#payer = payer;
    this.#services = services;
    this.#poll = poll;
    this.#subscription = this.#open();
  }

  get subscription(): Subscription {
    return this.#subscription;
  }

  /** Endpoints are polled for each cluster that is new. */
  resend(): void {}

  /**
   * What this client is answered with, if not with what all of its class are: what it still needs besides, or nothing
   * new. `version`: of what the class shows.
   */
  next(poll: Poll, version: string): Response | 'UNCHANGED' | undefined {
    const has = this.#read(poll);
    if (has === 'LAST') this.#accept();
    else if (has === 'NOTHING') this.#reopen();
    else {
      // It has not taken what it was answered with, or somebody else has answered it: all of it is sent.
      if (this.#answeredWith === '') this.#resume({ possiblyHeld: none });
      this.#sendAll();
    }
    const next = this.#order.next(this);
    if (next === 'WAITS' && poll.version !== '') return 'UNCHANGED';
    const own = next !== 'WAITS' && this.#subscription.hasDeferredRemovals ? next : undefined;
    this.#answeredWith = own?.version ?? version;
    return own;
  }

  /** It has all that its class shows. */
  hasAll(poll: Poll): void {
    if (this.#read(poll) === 'LAST') this.#accept();
    else {
      this.#reopen();
      this.#resume({ contentVersion: poll.version });
      this.#answeredWith = poll.version;
    }
    // It is told nothing: what is due moves the cursor.
    this.#order.next(this);
  }

  /** What the client has, by its version: its last answer, nothing that is known, or something else. */
  #read(poll: Poll): 'LAST' | 'NOTHING' | 'OTHER' {
    const { encoding, client } = this.#poll;
    this.#poll = poll;
    const isSame = poll.encoding === encoding && poll.client.access.key === client.access.key;
    if (!isSame || poll.version === '') return 'NOTHING';
    return poll.version === this.#answeredWith ? 'LAST' : 'OTHER';
  }

  #resume(earlier: EarlierState): void {
    this.#order.returned();
    this.#subscription.resume(earlier);
  }

  #accept(): void {
    const { lastNonce } = this.#subscription.responses;
    if (lastNonce !== undefined) this.#subscription.answer(lastNonce, undefined);
  }

  #sendAll(): void {
    const { selection, client } = this.#poll;
    this.#subscription.select(selection, client.access, new Set(selection.entries.keys()), []);
  }

  #reopen(): void {
    this.#subscription.close();
    this.#subscription = this.#open();
  }

  #open(): Subscription {
    const { info, encoding, selection, client } = this.#poll;
    const subscriber = { wake: nothing, payer: this.#payer, polls: true };
    return this.#services.open(info.url, encoding, selection, client.access, subscriber);
  }

  close(): void {
    this.#order.leave(this);
    this.#subscription.close();
  }
}

const none: ReadonlySet<string> = new Set();

/** Whoever polls asks again by itself. */
function nothing(): void {}
