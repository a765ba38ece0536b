import type { TypeUrl } from '../../model/brand.ts';
import type { Clock } from '../../model/clock.ts';
import type { Interest, Transaction } from '../../model/transaction.ts';
import type { Code } from '../../wire/grpc-status.ts';
import type { Backoff } from './backoff.ts';
import type { StreamProtocol, TypeState } from './stream-protocol.ts';
import type { StreamEnd } from './suspicion.ts';

/** What a stream needs from its upstream. */
export interface AdsStreamHandler {
  apply(transaction: Transaction): void;
  /** `arrivedAt`: when the response arrived, by `Clock.monotonic()`. */
  count(type: TypeUrl, result: 'accepted' | 'rejected', arrivedAt: number | undefined): void;
  log(level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>): void;
  via(): string;
  /** Nobody subscribes to the interest now. */
  readonly isIdle: (interest: Interest) => boolean;
  /** A stream is about to be opened; `again`: after another one, which may have delivered something. */
  opening(again: boolean): void;
  /** A response has arrived on a stream that said this, and it could be read. */
  answered(via: string): void;
  /** A wildcard was not answered in time. */
  wildcardOverdue(): void;
  /**
   * A stream that said this ended before any response; without a code the relay has closed it. True: the whole connection
   * is given up.
   */
  endedUnanswered(reason: string, via: string, code?: Code): boolean;
  /** A stream ended that had responses; another one is opened. */
  ended(reason: string): void;
  /** The relay itself has closed the stream, or will not open it again. */
  closed(): void;
  /** A stream ended, and not because the relay closed it. */
  countEnd(code: Code): void;
}

/** What a session hears from its streams. */
export interface AdsStreamObserver {
  opened(): void;
  /** A response has arrived, and nothing was read of it yet. */
  arrived(): void;
  /** A subscription of this type is sent that was never sent before. */
  firstRequested(type: TypeUrl): void;
  /** There is a response of this type, accepted or not. */
  answered(type: TypeUrl): void;
  /** There is a response that can be read. */
  accepted(): void;
  /** The relay itself has closed it. */
  closed(): void;
  /** It ended, and not because the relay closed it. True: the possible cause has moved to another stream. */
  ended(how: StreamEnd, reason: string): boolean;
}

export interface AdsStreamOptions {
  readonly protocolState: StreamProtocol;
  /** Of the gRPC method. */
  readonly path: string;
  /** The encoded Node: in each request (ADR 132). */
  readonly node: Uint8Array;
  readonly backoff: Backoff;
  readonly clock: Clock;
  readonly handler: AdsStreamHandler;
  readonly observer: AdsStreamObserver;
  /** A stream that has lasted this long resets the backoff. Milliseconds. */
  readonly stableAfterMs: number;
}

/** One type that moves from one stream to another, with its state and the endpoint of the last stream. */
export interface ReleasedType {
  readonly state: TypeState;
  readonly endpoint: number | undefined;
  /** See `#hasEndedBefore`. */
  readonly hasEndedBefore: boolean;
  /** The backoff of the old stream, if nothing else is subscribed there. */
  readonly backoff: Backoff | undefined;
}
