import { constants, type ServerHttp2Stream } from 'node:http2';
import { prefixOf } from './grpc-frames.ts';
import { refuse } from './grpc-requests.ts';
import type { GrpcStatus } from './grpc-status.ts';
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
  #answer: readonly Uint8Array[] | undefined;
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
    const size = pieces.reduce((sum, { length }) => sum + length, 0);
    this.#answer = framed ? [prefixOf(size), ...pieces] : pieces;
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

  takeAnswer(): readonly Uint8Array[] | undefined {
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
