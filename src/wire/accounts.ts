import { type Charged, charged } from '../model/brand.ts';
import { type Clock, Rate, Sweep, type Timer } from '../model/clock.ts';
import { countIn } from '../model/maps.ts';
import type { Payer } from '../model/time-slices.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import { identityKey, type PeerNames, peerKey } from './peer.ts';

/** What one peer may use, and all of them together. */
export interface AccountBounds {
  /** Bytes that are held for one peer and for nobody else (limits.max_held_bytes_per_peer). */
  readonly heldPerPeer: number;
  /** The same of all peers together (limits.max_held_bytes). */
  readonly held: number;
  /** Milliseconds of work in a second, past which a peer gets shorter turns (limits.max_work_per_peer). */
  readonly workPerSecond: number;
  /** Changes of what a peer polls, and of nodes that report load (limits.subscription_changes_per_second). */
  readonly changesPerSecond: number;
}

/** Of what a peer may have only so many at once: connections, streams, and kinds of calls. */
export type Place = string;

/** Of a stream or call, while its client has not read what only it gets. */
export const unreadPlace: Place = 'what it does not read';

/** A peer works for so long before others get their turn, in milliseconds: alone, beside others, and over its rate. */
const turnMs = { alone: 20, usual: 4, short: 1 };
/** All peers have so long together in one turn of the event loop: those that wait, then what arrives. */
const allTurnsMs = 20;
/** A peer is alone if no other has worked for so long. */
const aloneMs = 1000;
/** So many seconds of its rate a peer may use at once. */
const burstSeconds = 2;
/** What `figures` calls of late, in milliseconds. */
const recentMs = 5000;
/**
 * Of all peers together. A peer may have as many as there are places left: a region's 20,000 streams that come back at
 * once from one address, and of a thousand peers that flood 40 each, while there are places for others.
 */
const mostArriving = 40_000;
const sweepMs = 10_000;

/**
 * One account for each peer, which every listener charges: its verified identity, else its address (peer.ts).
 * What many share is charged to nobody.
 */
export class Accounts {
  readonly #clock: Clock;
  readonly #bounds: () => AccountBounds;
  readonly #isExempt: (peer: PeerNames) => boolean;
  readonly #defer: (run: () => void) => void;
  readonly #accounts = new Map<string, Account>();
  readonly #waiting = new Set<Account>();
  /** Bytes held for single peers, all together. Like what follows, only accounts change it. */
  held = 0;
  /** Of these, of those who are bounded. */
  bounded = 0;
  /** How much waits that has just arrived. */
  arriving = 0;
  /** Which turn of the event loop this is, counting those in which somebody worked. */
  turn = 0;
  /** Milliseconds that all have worked in this turn. */
  workInTurn = 0;
  #isTurnScheduled = false;
  readonly #sweep: Sweep;
  /** Who worked last, and when that was; and when somebody else did. */
  #worker: Account | undefined;
  #workerAt = Number.NEGATIVE_INFINITY;
  #otherAt = Number.NEGATIVE_INFINITY;
  /** Work is measured once: what runs within it is part of it. */
  #isWorking = false;

  /**
   * `bounds`: those in force. `isExempt`: it stands for many clients, and its bytes are counted and not bounded. `defer`:
   * runs after others had their turn.
   */
  constructor(
    clock: Clock,
    bounds: () => AccountBounds,
    isExempt: (peer: PeerNames) => boolean = () => true,
    defer: (run: () => void) => void = (run) => void setImmediate(run),
  ) {
    this.#clock = clock;
    this.#sweep = new Sweep(clock, sweepMs, () => {
      for (const [key, account] of this.#accounts) if (account.isIdle) this.#accounts.delete(key);
      return this.#accounts.size > 0;
    });
    this.#bounds = bounds;
    this.#isExempt = isExempt;
    this.#defer = defer;
  }

  get bounds(): AccountBounds {
    return this.#bounds();
  }

  /** How many peers have had to wait for their turn within the last second. */
  get waiting(): number {
    return this.#accounts.values().reduce((count, { waits }) => count + (waits ? 1 : 0), 0);
  }

  get size(): number {
    return this.#accounts.size;
  }

  of({ address, unix, uriSans, dnsSans }: PeerNames): Account {
    // Not what was given: that may be a connection, and the account outlives it.
    const names = { address, unix, uriSans, dnsSans };
    const key = peerKey(names);
    return (
      this.#accounts.get(key) ?? this.again(new Account(key, this, this.#clock, () => this.#isExempt(names)))
    );
  }

  /** That of a verified identity; undefined: it has nothing open. */
  ofIdentity(identity: string): Account | undefined {
    return this.#accounts.get(identityKey(identity));
  }

  /** The account of a peer that is still there: it may have been given up meanwhile, as nothing was open. */
  again(account: Account): Account {
    const known = this.#accounts.get(account.key);
    if (known !== undefined) return known;
    this.#accounts.set(account.key, account);
    this.emptied();
    return account;
  }

  /** Other rules are in force. */
  reload(): void {
    for (const account of this.#accounts.values()) account.reload();
  }

  /** The heaviest first: by work, then by bytes. */
  heaviest(count: number) {
    return [...this.#accounts.values()]
      .map((account) => account.figures())
      .toSorted((a, b) => b.workPerSecond - a.workPerSecond || b.heldBytes - a.heldBytes)
      .slice(0, count);
  }

  /** For Account: all together have worked for so long that sockets and timers come first. */
  get isTurnOver(): boolean {
    return this.workInTurn >= allTurnsMs;
  }

  /** For Account, which begins to work in this turn: for how many milliseconds it may. */
  turnOf(account: Account, excess: number, now: number): number {
    if (account !== this.#worker) {
      [this.#otherAt, this.#worker] = [this.#workerAt, account];
    }
    this.#workerAt = now;
    if (now - this.#otherAt > aloneMs) return turnMs.alone;
    return excess > this.bounds.workPerSecond * burstSeconds ? turnMs.short : turnMs.usual;
  }

  /** For Account: this turn ends when others have had theirs. */
  endTurnSoon(): void {
    if (this.#isTurnScheduled) return;
    this.#isTurnScheduled = true;
    this.#defer(this.#endTurn);
  }

  /** For Account: something of it waits. */
  queued(account: Account): void {
    this.#waiting.add(account);
    this.endTurnSoon();
  }

  /** For Account: it has nothing left, or nothing yet. It is kept while it owes something. */
  emptied(): void {
    this.#sweep.start();
  }

  /** For Account: measures, unless this is part of what is measured already. */
  measured<T>(account: Account, run: () => T): T {
    if (this.#isWorking) return run();
    const clock = this.#clock;
    const began = clock.monotonic();
    this.#isWorking = true;
    try {
      return run();
    } finally {
      this.#isWorking = false;
      const now = clock.monotonic();
      account.spent(now - began, now);
    }
  }

  /**
   * Peers that wait get their turn, those first that have not worked of late, and of these who has waited longest. What
   * is left waits for the next turn.
   */
  readonly #endTurn = (): void => {
    this.#isTurnScheduled = false;
    this.turn++;
    this.workInTurn = 0;
    if (this.#waiting.size === 0) return;
    const clock = this.#clock;
    const now = clock.monotonic();
    const [calm = [], busy = []] = [true, false].map((isCalm) =>
      this.#waiting
        .values()
        .filter((account) => account.isCalm(now) === isCalm)
        .toArray(),
    );
    for (const account of [...calm, ...busy]) {
      this.#waiting.delete(account);
      if (account.takeTurn()) this.#waiting.add(account);
      if (this.isTurnOver || clock.monotonic() >= now + allTurnsMs) break;
    }
    if (this.#waiting.size > 0) this.endTurnSoon();
  };
}

/** What one peer has, holds and does. */
export class Account implements Payer {
  /** `identity spiffe://…` or `address 10.0.0.1`. */
  readonly key: string;
  readonly #accounts: Accounts;
  readonly #clock: Clock;
  readonly #isExempt: () => boolean;
  readonly #places = new Map<Place, number>();
  readonly #waiting = new Set<() => void>();
  /** Of what waits, how much has just arrived. */
  #arriving = 0;
  /** What goes on to read from connections of which nothing is read now. */
  readonly #unread = new Set<() => void>();
  /** When a stream got what had waited as others had too much unread, by the clock. Streams look for that each second. */
  roomAt = Number.NEGATIVE_INFINITY;
  /** How many have begun in the last turn, and for how many milliseconds of work each. */
  #reads = 0;
  #readMs = 1;
  #exempt: boolean | undefined;
  #held = 0;
  /** Of it, what counts in the bound of all. */
  #bounded = 0;
  /** Responses that others get too and that streams of this peer have not read: how many streams, and bytes. */
  readonly #unreadShared = new Map<Buffer, number>();
  #sharedBytes = 0;
  #turn = -1;
  #workInTurn = 0;
  /** For so many milliseconds in this turn. */
  #mayWork = turnMs.usual;
  /** Milliseconds of work beyond the rate, and of late. Both fade: `#recover`. */
  #excess = 0;
  #recent = 0;
  #fadedAt = 0;
  #waitedAt = Number.NEGATIVE_INFINITY;
  #changes: Rate | undefined;

  constructor(key: string, accounts: Accounts, clock: Clock, isExempt: () => boolean) {
    this.key = key;
    this.#accounts = accounts;
    this.#clock = clock;
    this.#isExempt = isExempt;
  }

  /** It stands for many clients, as a relay does. Asked once, as it may cost a look at all rules. */
  get exempt(): boolean {
    this.#exempt ??= this.#isExempt();
    return this.#exempt;
  }

  reload(): void {
    this.#exempt = undefined;
    if (this.#held > 0) this.keeps(0);
  }

  /** Nothing is open or held, and no work has to be made up for. */
  get isIdle(): boolean {
    if (this.#places.size > 0 || this.#held > 0 || this.#waiting.size + this.#unread.size > 0) return false;
    this.#recover(this.#clock.monotonic());
    return this.#excess === 0;
  }

  /** How many it has open. */
  count(place: Place): number {
    return this.#places.get(place) ?? 0;
  }

  /** Takes a place. `leave` must follow once. */
  enter(place: Place): void {
    countIn(this.#places, place, 1);
  }

  leave(place: Place): void {
    countIn(this.#places, place, -1);
    if (this.#places.size === 0) this.#accounts.emptied();
  }

  get held(): number {
    return this.#held;
  }

  /** So many bytes more (or less) are held for it alone. A text says why they may not be: they are not counted then. */
  hold(bytes: number): string | undefined {
    const excess = bytes > 0 && !this.exempt ? this.#excessOf(bytes) : undefined;
    if (excess !== undefined) return excess;
    this.keeps(bytes);
    return undefined;
  }

  #excessOf(bytes: number): string | undefined {
    const { heldPerPeer, held } = this.#accounts.bounds;
    if (this.#held + bytes > heldPerPeer) {
      return `${this.key} would hold ${this.#held + bytes} bytes: at most ${heldPerPeer} are allowed for one peer (limits.max_held_bytes_per_peer)`;
    }
    const all = this.#accounts.bounded + bytes;
    if (all <= held) return undefined;
    return `${all} bytes would be held for single peers: at most ${held} are allowed (limits.max_held_bytes)`;
  }

  /** The same of what is there already: it counts beyond the bound too. */
  keeps(bytes: number): void {
    this.#held += bytes;
    this.#accounts.held += bytes;
    const bounded = this.exempt ? 0 : this.#held;
    this.#accounts.bounded += bounded - this.#bounded;
    this.#bounded = bounded;
  }

  /** Why nothing more may be kept for it; undefined: it may. */
  get excess(): string | undefined {
    return this.exempt ? undefined : this.#excessOf(0);
  }

  /** One stream more (or less) has not read this, which others get too. It counts once, and not among what is held. */
  keepsShared(bytes: Buffer, more: 1 | -1): void {
    const before = this.#unreadShared.size;
    countIn(this.#unreadShared, bytes, more);
    this.#sharedBytes += (this.#unreadShared.size - before) * bytes.length;
  }

  /** Why nothing at all is written: too much of what others get too is not read. One may always be written. */
  get sharedExcess(): string | undefined {
    const { heldPerPeer } = this.#accounts.bounds;
    if (this.exempt || this.#sharedBytes <= heldPerPeer) return undefined;
    return `${this.key} has not read ${this.#sharedBytes} bytes of responses: at most ${heldPerPeer} are allowed for one peer (limits.max_held_bytes_per_peer)`;
  }

  /**
   * Why no more is written of what only one of its streams or calls gets: some of that is not read, and it holds too much.
   * Whatever it holds, one may be written: that may be larger than all that it may hold.
   */
  get unreadExcess(): string | undefined {
    return (this.count(unreadPlace) === 0 ? undefined : this.excess) ?? this.sharedExcess;
  }

  /** So many changes of what it polls. False: it makes too many. */
  change(count: number): boolean {
    return this.#rate.trySpend(this.#clock.monotonic(), count);
  }

  /** The same of changes that are made whatever they cost: milliseconds to wait before the next. */
  changed(count: number): number {
    return this.exempt ? 0 : this.#rate.spend(this.#clock.monotonic(), count);
  }

  get #rate(): Rate {
    this.#changes ??= new Rate(() => this.#accounts.bounds.changesPerSecond, this.#clock.monotonic());
    return this.#changes;
  }

  /** Hands bytes over, which a handler cannot get otherwise, and charges the time that takes. */
  charge<T>(bytes: Buffer, run: (bytes: Charged) => T): T {
    return this.#accounts.measured(this, () => run(charged(bytes)));
  }

  /** Other work on its behalf. */
  work<T>(run: () => T): T {
    return this.#accounts.measured(this, run);
  }

  /** So many milliseconds of work on its behalf are done, now by the clock's monotonic time. */
  spent(milliseconds: number, at?: number): void {
    const { turn } = this.#accounts;
    if (turn !== this.#turn) {
      const now = at ?? this.#clock.monotonic();
      this.#turn = turn;
      this.#workInTurn = 0;
      this.#recover(now);
      this.#mayWork = this.#accounts.turnOf(this, this.#excess, now);
      this.#accounts.endTurnSoon();
    }
    this.#accounts.workInTurn += milliseconds;
    this.#workInTurn += milliseconds;
    this.#excess += milliseconds;
    this.#recent += milliseconds;
  }

  /** Its turn is over, or that of all, or others of its requests wait: what comes now has to wait too. */
  get mustWait(): boolean {
    return this.#waiting.size > 0 || this.#isTurnOver;
  }

  /** Runs it in one of the next turns. For what another bound has admitted, as limits.max_streams does. */
  wait(run: () => void): Timer {
    this.#waiting.add(run);
    this.#waitedAt = this.#clock.monotonic();
    this.#accounts.queued(this);
    return { cancel: () => this.#waiting.delete(run) };
  }

  /** The same for what has just arrived, which nothing else bounds. Undefined: too much waits already. */
  waitOnArrival(run: () => void): Timer | undefined {
    const placesLeft = mostArriving - this.#accounts.arriving;
    if (placesLeft <= 0 || (!this.exempt && this.#arriving >= placesLeft)) return undefined;
    this.#arrived(1);
    const arrived = (): void => {
      this.#arrived(-1);
      run();
    };
    this.wait(arrived);
    return {
      cancel: () => {
        if (this.#waiting.delete(arrived)) this.#arrived(-1);
      },
    };
  }

  #arrived(count: number): void {
    this.#arriving += count;
    this.#accounts.arriving += count;
  }

  /**
   * Reads on in one of the next turns. What that brings is not known before it is there, so it is taken to be as much as
   * the last time, and a millisecond of work at least.
   */
  readLater(read: () => void): Timer {
    this.#unread.add(read);
    this.#waitedAt = this.#clock.monotonic();
    this.#accounts.queued(this);
    return { cancel: () => this.#unread.delete(read) };
  }

  /** Something of it waits, or did within the last second. */
  get waits(): boolean {
    return this.#waiting.size > 0 || this.#clock.monotonic() - this.#waitedAt < 1000;
  }

  /** For Accounts: false if nothing is left to do. */
  takeTurn(): boolean {
    for (const run of this.#waiting) {
      if (this.#isTurnOver) break;
      this.#waiting.delete(run);
      run();
    }
    const worked = this.#turn === this.#accounts.turn - 1 ? this.#workInTurn : 0;
    if (this.#reads > 0) this.#readMs = worked / this.#reads;
    const reads = Math.max(1, Math.floor(this.#mayWork / Math.max(1, this.#readMs)));
    const begun = this.#unread.values().take(reads).toArray();
    this.#reads = begun.length;
    for (const read of begun) {
      this.#unread.delete(read);
      read();
    }
    return this.#waiting.size + this.#unread.size > 0;
  }

  /** For the status page. `workPerSecond`: milliseconds of work in a second, of late. */
  figures() {
    this.#recover(this.#clock.monotonic());
    return {
      key: this.key,
      connections: this.count('connections'),
      streams: this.count('streams'),
      heldBytes: this.#held,
      workPerSecond: (this.#recent * 1000) / recentMs,
      waits: this.waits,
    };
  }

  /** It has made up for what it did. */
  isCalm(now: number): boolean {
    this.#recover(now);
    return this.#excess < turnMs.usual;
  }

  get #isTurnOver(): boolean {
    const { isTurnOver, turn } = this.#accounts;
    return isTurnOver || (this.#turn === turn && this.#workInTurn >= this.#mayWork);
  }

  #recover(now: number): void {
    const elapsed = now - this.#fadedAt;
    this.#fadedAt = now;
    this.#excess = Math.max(0, this.#excess - (elapsed / 1000) * this.#accounts.bounds.workPerSecond);
    this.#recent *= Math.exp(-elapsed / recentMs);
  }
}

/** A request comes while too many wait. */
export const tooMuchWaits = ({ key }: Account): GrpcStatus => ({
  code: Code.RESOURCE_EXHAUSTED,
  message: `too many requests wait for their turn, of ${key} or of all together (limits.max_work_per_peer): ask again later`,
});

/** For listeners that only we ourselves can reach. */
export function boundlessAccounts(clock: Clock): Accounts {
  const none = Number.MAX_SAFE_INTEGER;
  const bounds = { heldPerPeer: none, held: none, workPerSecond: none, changesPerSecond: none };
  return new Accounts(clock, () => bounds);
}
