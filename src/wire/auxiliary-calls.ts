import { constants, type ServerHttp2Stream } from 'node:http2';
import type { Clock, Timer } from '../model/clock.ts';
import { fail, ok, type Result } from '../model/result.ts';
import type { Account } from './accounts.ts';
import { refuse } from './grpc-requests.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { Peer } from './server-stream.ts';

/** Calls that are counted together. One object for each kind. */
export interface CallKind {
  /** For messages: "health watches". */
  readonly name: string;
  /** Open at once, of all peers and of one (wire/peer-identity.ts). */
  readonly max: number;
  readonly maxPerPeer: number;
  /** What happens to one too many: it is refused, or the oldest of the peer with most ends so that it can be answered. */
  readonly whenExceeded: 'REFUSED' | 'ENDS_OLDEST';
}

export interface AuxiliaryCallsOptions {
  readonly clock: Clock;
  /** How long a client may take to finish a request, or to read an answer. */
  readonly stalledMilliseconds: () => number;
  /** For metrics: a call too many, or one that was ended because its client did nothing. */
  readonly refused: (reason: 'calls' | 'stalled') => void;
}

/** How often calls are looked at whose clients do nothing, in milliseconds. */
const stalledCheckMs = 1000;

interface MadeAnswer {
  readonly pieces: readonly Uint8Array[];
  readonly framed: boolean;
}

/** One call of an auxiliary service, as its handler sees it. */
export class AuxiliaryCall {
  readonly peer: Peer;
  readonly kind: CallKind;
  readonly #stream: ServerHttp2Stream;
  readonly #released: (call: AuxiliaryCall) => void;
  readonly #closing: (() => void)[] = [];
  /** The stream, and work that goes on though the client may have left. */
  #holds = 1;
  #waitingSince: number | undefined;
  #answer: MadeAnswer | undefined;
  /** Bytes of answers that the client has not taken yet. */
  #kept = 0;
  #ended = false;

  constructor(
    stream: ServerHttp2Stream,
    peer: Peer,
    kind: CallKind,
    released: (call: AuxiliaryCall) => void,
  ) {
    this.peer = peer;
    this.kind = kind;
    this.#stream = stream;
    this.#released = released;
    stream.once('close', () => {
      for (const run of this.#closing) run();
      this.answerTaken();
      this.#release();
    });
  }

  /** It was ended here: what its handler says now reaches nobody. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Work for it goes on until the function returned is called: until then it counts, whether or not the client stays. */
  hold(): () => void {
    this.#holds++;
    return () => this.#release();
  }

  /**
   * Sent instead of the empty message that the handler answers with next. It is encoded already. `framed`: behind a
   * length, as in gRPC and in Connect's streams.
   */
  answerWith(pieces: readonly Uint8Array[], framed = true): void {
    this.#answer = { pieces, framed };
  }

  /** So many bytes are held for the peer until it has taken its answer. A text says why they may not be. */
  keepAnswer(bytes: number): string | undefined {
    if (this.#stream.closed || this.#stream.destroyed) return undefined;
    const excess = this.peer.account.hold(bytes);
    if (excess === undefined) this.#kept += bytes;
    return excess;
  }

  answerTaken(): void {
    this.peer.account.keeps(-this.#kept);
    this.#kept = 0;
  }

  takeAnswer(): MadeAnswer | undefined {
    const answer = this.#answer;
    this.#answer = undefined;
    return answer;
  }

  /** At once, if it is closed already. */
  onClose(run: () => void): void {
    if (this.#stream.closed || this.#stream.destroyed) run();
    else this.#closing.push(run);
  }

  /** A request was complete, and something was answered. */
  progressed(): void {
    this.#waitingSince = undefined;
  }

  /** Whether the relay has waited for the client for so long. */
  isStalled(now: number, milliseconds: number): boolean {
    if (this.#stream.readableEnded && this.#stream.writableLength === 0) {
      this.#waitingSince = undefined;
      return false;
    }
    this.#waitingSince ??= now;
    return now - this.#waitingSince >= milliseconds;
  }

  end(status: GrpcStatus): void {
    if (this.#ended) return;
    this.#ended = true;
    const stream = this.#stream;
    if (!stream.headersSent) {
      refuse(stream, status);
      return;
    }
    // Trailers cannot overtake what the client does not read. gRPC takes this code for RESOURCE_EXHAUSTED.
    stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    stream.destroy();
  }

  #release(): void {
    if (--this.#holds === 0) this.#released(this);
  }
}

/** The open calls of auxiliary services: how many there may be, and how long they may wait for their clients. */
export class AuxiliaryCalls {
  readonly #options: AuxiliaryCallsOptions;
  readonly #byKind = new Map<CallKind, CallsOfKind>();
  #size = 0;
  #stalledTimer: Timer | undefined;

  constructor(options: AuxiliaryCallsOptions) {
    this.#options = options;
  }

  open(stream: ServerHttp2Stream, peer: Peer, kind: CallKind): Result<AuxiliaryCall, GrpcStatus> {
    const excess = this.#excess(kind, peer);
    if (excess !== undefined) {
      this.#options.refused('calls');
      const { status, oldest } = excess;
      if (kind.whenExceeded === 'REFUSED' || oldest === undefined) return fail(status);
      this.#remove(oldest);
      oldest.end(status);
    }
    const call = new AuxiliaryCall(stream, peer, kind, (released) => this.#remove(released));
    const calls = this.#byKind.get(kind) ?? new CallsOfKind();
    this.#byKind.set(kind, calls);
    calls.add(call);
    peer.account.enter(kind.name);
    this.#size++;
    this.#watch();
    return ok(call);
  }

  /** Which bound is reached; undefined: none. */
  #excess(
    kind: CallKind,
    peer: Peer,
  ): { readonly status: GrpcStatus; readonly oldest: AuxiliaryCall | undefined } | undefined {
    const { name, max, maxPerPeer } = kind;
    const { account } = peer;
    const calls = this.#byKind.get(kind);
    const isFull = account.count(name) >= maxPerPeer;
    if (calls === undefined || (!isFull && calls.size < max)) return undefined;
    const oldest = calls.oldestOf(isFull ? account : calls.largest());
    const message = isFull
      ? `this peer has ${maxPerPeer} ${name} open, which is the maximum`
      : `${max} ${name} are open, which is the maximum`;
    return { status: { code: Code.RESOURCE_EXHAUSTED, message }, oldest };
  }

  #remove(call: AuxiliaryCall): void {
    if (this.#byKind.get(call.kind)?.remove(call) !== true) return;
    call.peer.account.leave(call.kind.name);
    this.#size--;
    if (this.#size > 0) return;
    this.#stalledTimer?.cancel();
    this.#stalledTimer = undefined;
  }

  #watch(): void {
    this.#stalledTimer ??= this.#options.clock.after(stalledCheckMs, () => {
      this.#stalledTimer = undefined;
      this.#endStalled();
      if (this.#size > 0) this.#watch();
    });
  }

  #endStalled(): void {
    const { clock, stalledMilliseconds, refused } = this.#options;
    const [now, milliseconds] = [clock.now(), stalledMilliseconds()];
    for (const calls of this.#byKind.values()) {
      for (const call of calls.all()) {
        if (call.ended || !call.isStalled(now, milliseconds)) continue;
        refused('stalled');
        const message = `the client has not finished its request, or not read its answer, for ${milliseconds} ms (limits.stalled_timeout)`;
        call.end({ code: Code.RESOURCE_EXHAUSTED, message });
      }
    }
  }
}

/** Those of each peer in the order in which they came. */
class CallsOfKind {
  readonly #byAccount = new Map<Account, Set<AuxiliaryCall>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  all(): IteratorObject<AuxiliaryCall> {
    return this.#byAccount.values().flatMap((calls) => calls);
  }

  add(call: AuxiliaryCall): void {
    const { account } = call.peer;
    const calls = this.#byAccount.get(account) ?? new Set<AuxiliaryCall>();
    this.#byAccount.set(account, calls.add(call));
    this.#size++;
  }

  /** False: it is gone already. */
  remove(call: AuxiliaryCall): boolean {
    const { account } = call.peer;
    const calls = this.#byAccount.get(account);
    if (calls?.delete(call) !== true) return false;
    if (calls.size === 0) this.#byAccount.delete(account);
    this.#size--;
    return true;
  }

  /** Who has most. */
  largest(): Account | undefined {
    let [found, most]: [Account | undefined, number] = [undefined, 0];
    for (const [account, { size }] of this.#byAccount) if (size > most) [found, most] = [account, size];
    return found;
  }

  oldestOf(account: Account | undefined): AuxiliaryCall | undefined {
    return account && this.#byAccount.get(account)?.values().next().value;
  }
}
