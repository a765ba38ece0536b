import type { Charged, TypeUrl } from '../model/brand.ts';
import { type Clock, Sweep, type Timer } from '../model/clock.ts';
import { atOnce, type InTurns } from '../model/time-slices.ts';
import { unreadPlace } from './accounts.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { faulty, heldBytes, noFirstRequest, noNode, noPlace, type Refusal, stalled } from './refusal.ts';
import { LastNode } from './requests.ts';
import type { FaultReason, Peer, ServerStream, StreamHandler } from './server-stream.ts';

/** How often silent and stalled clients are looked for, in milliseconds. */
export const overdueCheckMs = 1000;

/** Who may open a stream of whatever kind, and how many of all kinds there may be. */
export interface StreamPlaces {
  /** Why this peer is answered nothing of a type, whatever it asks; undefined: it is. Without a type: of any. */
  denial(peer: Peer, type: TypeUrl | undefined): Refusal | undefined;
  /** Why no stream of this peer is taken now; undefined: it is. `type`: undefined on ADS, and for load reports. */
  refusal(peer: Peer, type: TypeUrl | undefined): Refusal | undefined;
  streamOpened(peer: Peer): void;
  streamClosed(peer: Peer): void;
}

/** The open streams of one kind by their ids, the oldest first. Each takes a place for so long. */
export class OpenStreams<Stream extends ClientStream<unknown>> extends Map<string, Stream> {
  readonly places: StreamPlaces | undefined;
  readonly #prefix: string;
  readonly #overdue: Sweep;
  #lastId = 0;

  /** `limits`: see `failIfOverdue`. `places` undefined: nothing bounds them. `prefix`: before the numbers that are the ids. */
  constructor(
    clock: Clock,
    limits: () => Parameters<Stream['failIfOverdue']>[0],
    places: StreamPlaces | undefined,
    prefix = '',
  ) {
    super();
    this.places = places;
    this.#prefix = prefix;
    this.#overdue = new Sweep(clock, overdueCheckMs, () => {
      const times = limits();
      for (const stream of this.values()) stream.failIfOverdue(times);
      return this.size > 0;
    });
  }

  take(transport: ServerStream, make: (id: string) => Stream): Stream {
    const id = `${this.#prefix}${++this.#lastId}`;
    const stream = make(id);
    this.set(id, stream);
    this.places?.streamOpened(transport.peer);
    this.#overdue.start();
    transport.handle(stream);
    return stream;
  }

  /** It is over. */
  override delete(id: string): boolean {
    const stream = this.get(id);
    const isDeleted = super.delete(id);
    if (stream !== undefined) this.places?.streamClosed(stream.peer);
    return isDeleted;
  }

  /** Ends the newest: they took more than there are places. */
  keepOldest(count: number): void {
    for (const stream of [...this.values()].slice(count)) stream.failFor(noPlace);
  }
}

/**
 * A stream of one client, whatever it asks: who it is by its node, and how long it may take. A large request is handled
 * over several turns of the event loop, so that it does not hold up other clients. Nothing more is read from its own
 * client meanwhile.
 */
export abstract class ClientStream<Client> implements StreamHandler {
  /** Among those of its kind. */
  readonly id: string;
  readonly transport: ServerStream;
  /** Undefined: it has not said yet who it is. Its class alone sets it. */
  client: Client | undefined;
  /** Nothing more is said on it. */
  protected isOver = false;
  readonly #clock: Clock;
  readonly #openedAt: number;
  readonly #node = new LastNode();
  /** Since when a write waits for the client, which has read nothing since, by the clock; undefined: none does. */
  #blockedSince: number | undefined;
  /** Bytes that only this client gets and that it has not read. */
  #unread = 0;
  /** The same of what others get too. */
  #unreadShared: Buffer | undefined;
  /** Nothing is read before that. */
  #paused: Timer | undefined;
  /** What is left of a large request. */
  #turns: InTurns<void> | undefined;
  #nextTurn: Timer | undefined;
  #heldBytes = 0;
  #isRunning = false;

  constructor(id: string, transport: ServerStream, clock: Clock) {
    this.id = id;
    this.transport = transport;
    this.#clock = clock;
    this.#openedAt = clock.monotonic();
  }

  abstract message(bytes: Charged): void;
  /** It ends with this, which is to be counted. */
  protected abstract rejected(refusal: Refusal): void;

  get peer(): Peer {
    return this.transport.peer;
  }

  /** The client has not read what was written last. */
  protected get isBlocked(): boolean {
    return this.#blockedSince !== undefined;
  }

  get isPaused(): boolean {
    return this.#paused !== undefined;
  }

  /** The client half-closes: it says nothing any more. */
  ended(): void {
    this.end({ code: Code.OK, message: '' });
  }

  drained(): void {
    this.#blockedSince = undefined;
    this.keepUnread(0);
  }

  progressed(): void {
    this.#blockedSince = this.#clock.monotonic();
  }

  /** The transport has refused the call: that is counted like every refusal. */
  faulted(status: GrpcStatus, why?: FaultReason): void {
    this.failFor(faulty(status, why));
  }

  closed(): void {
    this.isOver = true;
    this.#paused?.cancel();
    this.keepUnread(0);
  }

  /** So much of what only this client gets has not been read yet, and `shared`, which others get too. */
  protected keepUnread(bytes: number, shared?: Buffer): void {
    const { account } = this.peer;
    const before = this.#unreadShared;
    this.#unreadShared = shared;
    if (shared !== undefined) account.keepsShared(shared, 1);
    if (before !== undefined) account.keepsShared(before, -1);
    if (bytes === this.#unread) return;
    if (this.#unread === 0) account.enter(unreadPlace);
    else if (bytes === 0) account.leave(unreadPlace);
    account.keeps(bytes - this.#unread);
    this.#unread = bytes;
  }

  end(status: GrpcStatus): void {
    if (this.isOver) return;
    this.isOver = true;
    this.transport.end(status);
  }

  failFor(refusal: Refusal | undefined): void {
    if (refusal === undefined || this.isOver) return;
    this.rejected(refusal);
    this.end(refusal.status);
  }

  /** Ends it if its client has not asked for anything yet, or has not read, for so many milliseconds. */
  failIfOverdue({
    firstRequestMilliseconds: firstRequestMs,
    stalledMilliseconds: stalledMs,
  }: Readonly<Record<'firstRequestMilliseconds' | 'stalledMilliseconds', number>>): void {
    const now = this.#clock.monotonic();
    const ready = now - this.#openedAt - this.transport.waitedMilliseconds;
    // A large request has arrived, and is not read to its end yet.
    const isSilent = this.client === undefined && this.#turns === undefined;
    if (isSilent && ready >= firstRequestMs) this.failFor(noFirstRequest(firstRequestMs, this.peer));
    else if (this.#blockedSince !== undefined && now - this.#blockedSince >= stalledMs)
      this.failFor(stalled(stalledMs));
  }

  /** False: nothing more should be written until `drained`. */
  protected write(frame: Buffer): boolean {
    const isRead = this.transport.write(frame);
    if (!isRead) this.progressed();
    return isRead;
  }

  /** Of a request, if it is to be read: that is done again only when its bytes have changed (protocol §3.1). */
  protected newNode(node: Buffer | undefined): Buffer | undefined {
    if (node === undefined && this.client === undefined) this.failFor(noNode);
    return node !== undefined && this.#node.isNew(node) ? node : undefined;
  }

  /** Nothing is read for so long. */
  pauseReading(milliseconds: number): void {
    this.#paused?.cancel();
    this.transport.pause();
    this.#paused = this.#clock.after(milliseconds, () => {
      this.#paused = undefined;
      this.#readOn();
    });
  }

  /** `bytes`: of a copy of the request. If its peer's account has no room for them the stream ends. */
  protected handleInTurns(bytes: number, turns: () => InTurns<void>): void {
    const excess = this.peer.account.hold(bytes);
    if (excess !== undefined) {
      this.failFor(heldBytes(excess));
      return;
    }
    this.#heldBytes = bytes;
    this.transport.pause();
    this.#turns = turns();
    this.#takeTurn();
  }

  /** Does the rest in this turn: what comes next must find the request handled. */
  finishReading(): void {
    const turns = this.#turns;
    if (turns === undefined || this.#isRunning) return;
    this.#turns = undefined;
    this.giveUpReading();
    atOnce(turns);
    this.#readOn();
  }

  /** What is not done yet of a large request. */
  protected giveUpReading(): void {
    if (!this.#isRunning) this.#turns?.return();
    this.#turns = undefined;
    this.#nextTurn?.cancel();
    this.peer.account.hold(-this.#heldBytes);
    this.#heldBytes = 0;
  }

  #takeTurn(): void {
    const turns = this.#turns;
    if (turns === undefined) return;
    const { account } = this.peer;
    const { done } = account.work(() => this.#run(turns));
    if (this.#turns === undefined) {
      // Given up meanwhile.
      turns.return();
      return;
    }
    if (done !== true) {
      this.#nextTurn = this.#clock.after(0, () => {
        // Its peer may have had its turn, or all peers together.
        if (account.mustWait) account.wait(() => this.#takeTurn());
        else this.#takeTurn();
      });
      return;
    }
    this.giveUpReading();
    this.#readOn();
  }

  #run(turns: InTurns<void>): IteratorResult<undefined, void> {
    this.#isRunning = true;
    try {
      return turns.next();
    } finally {
      this.#isRunning = false;
    }
  }

  #readOn(): void {
    if (!this.isOver && !this.isPaused && this.#turns === undefined) this.transport.resume();
  }
}
