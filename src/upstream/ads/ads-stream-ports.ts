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
  count(type: TypeUrl, result: 'accepted' | 'rejected'): void;
  log(level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>): void;
  via(): string;
  /** Nobody subscribes to it: it only lingers. */
  readonly isIdle: (interest: Interest) => boolean;
  /** A stream is about to be opened; `again`: after another one, from which something may be held. */
  opening(again: boolean): void;
  /** A response has arrived, and it was one. */
  answered(): void;
  /** A wildcard was not answered in time. */
  wildcardOverdue(): void;
  /** A stream ended that had no answer. True: the whole connection is given up. */
  endedUnanswered(reason: string): boolean;
  /** A stream ended that had answers; another one is opened. */
  ended(reason: string): void;
  /** However it went: the relay itself has closed the stream, or will not open it again. */
  closed(): void;
  /** Not closed by the relay. */
  countEnd(code: Code): void;
}

/** What a stream tells its session. */
export interface AdsStreamObserver {
  opened(): void;
  /** Something of this type is asked that never was. */
  firstRequested(type: TypeUrl): void;
  /** There is a response of this type, accepted or not. */
  answered(type: TypeUrl): void;
  /** There is a response that can be read. */
  accepted(): void;
  /** By the relay itself. */
  closed(): void;
  /** Not by the relay. True: what may have been the cause is asked elsewhere now. */
  ended(how: StreamEnd, reason: string): boolean;
}

export interface AdsStreamOptions {
  readonly protocolState: StreamProtocol;
  readonly protocol: 'DELTA' | 'SOTW';
  /** The encoded Node: in the first request of each stream. */
  readonly node: Uint8Array;
  readonly backoff: Backoff;
  readonly clock: Clock;
  readonly handler: AdsStreamHandler;
  readonly observer: AdsStreamObserver;
  /** A stream that has lived so long is well: the next wait is a short one again. Milliseconds. */
  readonly stableAfterMs: number;
}

/** One type that moves from one stream to another, with its state and the endpoint of the last stream. */
export interface ReleasedType {
  readonly state: TypeState;
  readonly endpoint: number | undefined;
  /** See `#hasEndedBefore`. */
  readonly hasEndedBefore: boolean;
  /** Nothing else was asked there: how long to wait for the next stream. */
  readonly backoff: Backoff | undefined;
}
