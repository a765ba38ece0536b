import type { Clock, Timer } from '../../model/clock.ts';
import type { Transaction } from '../../model/transaction.ts';
import { encodeRequest, type OutgoingRequest } from '../../wire/request-writer.ts';
import type { Channel, ChannelStream, ChannelStreamHandler } from './channel.ts';

interface OpenStreamOptions {
  readonly channel: Channel;
  readonly path: string;
  /** What it says in x-distributary-via. */
  readonly via: string;
  /** The encoded Node: in each request (ADR 132). */
  readonly node: Uint8Array;
  readonly clock: Clock;
}

/** From its opening to its end: its timers end with it. */
export class OpenStream {
  readonly via: string;
  readonly since: number;
  /** Some response on it could be read. */
  answered = false;
  readonly #clock: Clock;
  readonly #stream: ChannelStream;
  #arrivedAt: number | undefined;
  readonly #timers = new Map<string, Timer>();
  readonly #node: Uint8Array;

  constructor({ channel, path, via, node, clock }: OpenStreamOptions, handler: ChannelStreamHandler) {
    this.via = via;
    this.since = clock.now();
    this.#clock = clock;
    this.#node = node;
    const read = (hasMore: boolean): boolean => {
      if (!hasMore) this.#arrivedAt = undefined;
      return hasMore;
    };
    this.#stream = channel.open(path, via, {
      message: (bytes) => {
        this.#arrivedAt = clock.monotonic();
        return read(handler.message(bytes));
      },
      proceed: () => read(handler.proceed()),
      closed: (reason, code) => handler.closed(reason, code),
    });
  }

  /** When the response that is read now arrived, by `Clock.monotonic()`. */
  get arrivedAt(): number | undefined {
    return this.#arrivedAt;
  }

  send(request: OutgoingRequest): void {
    this.#stream.write(encodeRequest(request, this.#node));
  }

  arm(timer: string, milliseconds: number, fire: () => void): void {
    this.#timers.get(timer)?.cancel();
    const armed = this.#clock.after(milliseconds, () => {
      this.#timers.delete(timer);
      fire();
    });
    this.#timers.set(timer, armed);
  }

  cancel(timer: string): void {
    this.#timers.get(timer)?.cancel();
    this.#timers.delete(timer);
  }

  end(): void {
    for (const timer of this.#timers.values()) timer.cancel();
    this.#stream.end();
  }
}

/** When the response that is read now arrived on this stream. */
export const arrivalOn = (stream: OpenStream | undefined): number | undefined => stream?.arrivedAt;

/** The transaction, with the time when its response arrived on this stream. */
export function arrivedOn(stream: OpenStream | undefined, said: Transaction): Transaction {
  return { ...said, arrivedAt: arrivalOn(stream) };
}
