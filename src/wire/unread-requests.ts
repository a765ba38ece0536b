import type { Clock } from '../model/clock.ts';
import { Code, type GrpcStatus } from './grpc-status.ts';
import type { Peer } from './server-stream.ts';

/** A stream that is not read for now. */
export interface UnreadStream {
  readonly peer: Peer;
  /** So many bytes have come since: a client may send as much as its window allows. */
  readonly unreadBytes: number;
  /** Gives up the call. */
  refuse(status: GrpcStatus): void;
}

/** Node says nothing when a stream receives that is not read, so it is looked at. Milliseconds. */
const checkMs = 100;

/** What streams have received that are not read: it is charged to their peers. */
export class UnreadRequests {
  readonly #clock: Clock;
  readonly #charged = new Map<UnreadStream, number>();
  #isWatched = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** It is not read from now on. */
  add(stream: UnreadStream): void {
    if (this.#charged.has(stream)) return;
    this.#charged.set(stream, 0);
    this.#watch();
  }

  /** It is read again, or has ended. */
  delete(stream: UnreadStream): void {
    const bytes = this.#charged.get(stream);
    if (bytes === undefined) return;
    this.#charged.delete(stream);
    stream.peer.account.keeps(-bytes);
  }

  #watch(): void {
    if (this.#isWatched) return;
    this.#isWatched = true;
    this.#clock.after(checkMs, () => {
      this.#isWatched = false;
      for (const [stream, before] of this.#charged) {
        const { unreadBytes } = stream;
        const excess = stream.peer.account.hold(unreadBytes - before);
        if (excess === undefined) this.#charged.set(stream, unreadBytes);
        else stream.refuse({ code: Code.RESOURCE_EXHAUSTED, message: excess });
      }
      if (this.#charged.size > 0) this.#watch();
    });
  }
}
